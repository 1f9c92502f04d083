"""Run all checks: ruff, mypy and pytest. `python3 tests [--fast] [arguments for pytest]`

Needs Python 3.11 or newer and git, nothing else: the tools and the real hosts are installed
once, into the user's cache folder. `--fast` leaves the hosts out. Exits with 1 if a check failed.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036  (said in words, where an older Python would trip over syntax)
    sys.exit(f"Python 3.11 or newer is needed; this is {sys.version.split()[0]}.")

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))  # at the end: `keyword` is in the standard library too

from demo import hosts  # noqa: E402

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
TREES = ("demo", "tests", "bench")


def main(arguments: list[str]) -> int:
    fast = "--fast" in arguments
    python = tools()
    if not fast:
        prepare_hosts()
    checks = {
        "ruff": ruff(python),
        "mypy": mypy(python),
        "pytest": pytest(python, [a for a in arguments if a != "--fast"], fast),
    }
    failed = [name for name, code in checks.items() if code]
    print(f"\nfailed: {', '.join(failed)}" if failed else "\nall checks passed", flush=True)
    return 1 if failed else 0


def tools() -> Path:
    """The Python of the suite's own environment: the project's dependencies and its `dev` extra."""
    project = hosts.project()
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    return hosts.venv("tests", hosts.find_python(PYTHONS), wanted)


def prepare_hosts() -> None:
    """Install the hosts before pytest, which would hide that it takes a while."""
    for host in hosts.HOSTS:
        try:
            hosts.environment(host)
        except hosts.NoInterpreter as missing:
            print(f"Hermes {host.name} is left out: {missing}", flush=True)


def ruff(python: Path) -> int:
    return run(
        "ruff", [str(python), "-P", "-m", "ruff", "check", "--cache-dir", str(cache("ruff")), "."], ROOT
    )


def mypy(python: Path) -> int:
    """Check the root as the package `project_history_recall`, and beside it the trees that use it."""
    # Links, because the root may have any name, and mypy derives a module's name from its folder's.
    tree = cache("mypy")
    package = tree / "project_history_recall"
    package.mkdir(exist_ok=True)
    for old in [*package.iterdir(), *(tree / name for name in TREES)]:
        old.unlink(missing_ok=True)
    for module in ROOT.glob("*.py"):
        (package / module.name).symlink_to(module)
    targets = ["project_history_recall"]
    for name in TREES:
        if any((ROOT / name).rglob("*.py")):
            (tree / name).symlink_to(ROOT / name, target_is_directory=True)
            targets.append(name)
    packages = [part for name in targets for part in ("-p", name)]
    config = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(tree / ".cache")]
    return run("mypy", [str(python), "-P", "-m", "mypy", *config, *packages], tree)


def pytest(python: Path, arguments: list[str], fast: bool) -> int:
    chosen = ["-m", "not host"] if fast else []
    # -P: the root's `keyword.py` must not be found before the standard library's.
    command = [str(python), "-P", "-m", "pytest", "-o", f"cache_dir={cache('pytest')}", *chosen, *arguments]
    return run("pytest", command, ROOT)


def run(name: str, command: list[str], cwd: Path) -> int:
    print(f"\n== {name}", flush=True)
    env = os.environ | {"PYTHONPYCACHEPREFIX": str(cache("pycache"))}
    return subprocess.run(command, cwd=cwd, env=env, check=False).returncode


def cache(tool: str) -> Path:
    """The cache folder of `tool` for this clone."""
    folder = hosts.cache_dir() / "checks" / hashlib.sha256(str(ROOT).encode()).hexdigest()[:12] / tool
    folder.mkdir(parents=True, exist_ok=True)
    return folder


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
