"""The one door to Hermes: every import of it, probed, nothing assumed.

Where Hermes is not installed each question has an answer of its own: the home
comes from HERMES_HOME, the settings from its config.yaml, nobody redacts, and
nobody is calling. Nothing here is kept between calls but repository roots, and
those by home, because one process may serve several profiles.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from .config_schema import Settings
from .repos import RepoRoots, Roots

PLUGIN = "project-history-recall"
SETTINGS = ("max_result_chars", "owner_chats")
WITHHELD = "[withheld: the host's redactor failed on this text]"

logger = logging.getLogger(__name__)

_roots: dict[Path, RepoRoots] = {}


def _probe(module: str, name: str) -> Any:
    """A name of the host, or None where this host has no such thing."""
    try:
        return getattr(sys.modules.get(module) or import_module(module), name, None)
    except Exception as error:  # a half-installed host may fail in any way while importing
        logger.debug("%s.%s is not to be had: %s", module, name, type(error).__name__)
        return None


def hermes_home() -> Path:
    """The home of this call: the profile's own inside a turn, else HERMES_HOME, else ~/.hermes."""
    get = _probe("hermes_constants", "get_hermes_home")
    if get is not None:
        return Path(get())
    return Path(os.environ.get("HERMES_HOME", "").strip() or Path.home() / ".hermes").expanduser()


def profile_name(home: Path) -> str:
    """The profile a home belongs to; "" for the default one."""
    return home.name if home.parent.name == "profiles" else ""


def live_variables(session_id: str | None) -> dict[str, str]:
    """What the host says of the running turn, by the field names of `scope.Live`.

    `session_id` is the handler's own argument; inside `execute_code` the host
    passes none and binds HERMES_SESSION_ID instead.
    """
    get = _probe("gateway.session_context", "get_session_env") or (lambda name, default="": os.environ.get(name, default))
    return {
        "session_id": (session_id or get("HERMES_SESSION_ID", "") or "").strip(),
        "platform": get("HERMES_SESSION_PLATFORM", "") or "",
        "source": get("HERMES_SESSION_SOURCE", "") or "",
        "chat_type": get("HERMES_SESSION_CHAT_TYPE", "") or "",
        "user_id": get("HERMES_SESSION_USER_ID", "") or "",
        "session_key": get("HERMES_SESSION_KEY", "") or "",
        "ui_session_id": get("HERMES_UI_SESSION_ID", "") or "",
    }


def redactor() -> Callable[[str], str] | None:
    """The host's own redactor, failing closed; None without Hermes."""
    egress = _probe("agent.redact", "redact_for_egress")
    plain = _probe("agent.redact", "redact_sensitive_text")
    if egress is None and plain is None:
        return None

    def redact(text: str) -> str:
        try:
            return str(egress(text) if egress is not None else plain(text, force=True))
        except Exception:
            logger.warning("the host's redactor failed; a text was withheld")
            return WITHHELD

    return redact


def read_settings(ctx: Any, home: Path) -> Settings:
    """The plugin's settings, read again at each call as the host does."""
    get = getattr(ctx, "get_config", None)
    if get is not None:
        return Settings.parse({key: get(key) for key in SETTINGS})
    load = _probe("hermes_cli.config", "load_config")
    try:
        config = load() if load is not None else _yaml(home / "config.yaml")
        entry = config["plugins"]["entries"][PLUGIN]
        return Settings.parse(entry.get("settings") or {})
    except (KeyError, TypeError, AttributeError):
        return Settings()


def _yaml(path: Path) -> Any:
    if not path.is_file():
        return {}
    try:
        import yaml

        return yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except Exception as error:  # an unreadable config.yaml costs the settings, not the search
        logger.warning("%s could not be read: %s", path.name, type(error).__name__)
        return {}


@dataclass(frozen=True, slots=True)
class Host:
    """Everything one call needs from outside (see `search.Surroundings`)."""

    home: Path
    profile: str
    settings: Settings
    redact: Callable[[str], str] | None
    connect: Callable[..., sqlite3.Connection]

    def find_roots(self, cwd: str) -> Roots | None:
        return _roots.setdefault(self.home, RepoRoots())(cwd)

    def junk_root(self, path: str) -> bool:
        """A repository that is nobody's project: a home folder, or anything below HERMES_HOME."""
        real, home = os.path.realpath(path), os.path.realpath(self.home)
        return os.path.normcase(real) in _no_workspace() or real == home or real.startswith(home + os.sep)

    def junk_cwd(self, path: str) -> bool:
        """A folder that is nobody's project; one below HERMES_HOME may be somebody's notes."""
        real = os.path.normcase(os.path.realpath(path))
        return real in _no_workspace() or real == os.path.normcase(os.path.realpath(self.home))


def _no_workspace() -> frozenset[str]:
    """The same folders the desktop's sidebar leaves out, in both POSIX spellings on every system."""
    home = os.path.realpath(os.path.expanduser("~"))
    folders = (os.sep, home, os.path.dirname(home), "/home", "/Users")
    return frozenset(os.path.normcase(os.path.realpath(folder)) for folder in folders)


def current(ctx: Any = None, home: Path | None = None) -> Host:
    """The surroundings of this call."""
    home = (home or hermes_home()).expanduser()
    # 0.20 and 0.22 keep a register of connections, so that they never close the file under one.
    connect = _probe("hermes_cli.sqlite_safe_read", "connect_tracked") or sqlite3.connect
    return Host(home, profile_name(home), read_settings(ctx, home), redactor(), connect)


def arguments(args: Any) -> Mapping[str, Any]:
    """A tool call's arguments; anything but an object counts as none."""
    return args if isinstance(args, Mapping) else {}
