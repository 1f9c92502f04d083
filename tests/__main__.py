"""Run all checks: ruff, mypy and pytest. `python3 tests [--fast] [--long] [--coverage] [arguments for pytest]`

Needs Python 3.11 or newer and git, nothing else: the tools and the real hosts are installed
once, into the user's cache folder. Exits with 1 if a check failed.

--fast      leaves the hosts out
--long      tries more: every statement, 200 seeds, 1,000 searches under load (see tests/faults)
--coverage  ends with the branches of the package that no test took (see docs/coverage.md)
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036  (said in words, where an older Python would trip over syntax)
    sys.exit(f"Python 3.11 or newer is needed; this is {sys.version.split()[0]}.")

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))  # at the end: the root's own modules must hide nobody's

from demo import hosts  # noqa: E402

# In every process of the suite, those it starts among them; the hosts' own have no such tool.
COVERAGE = """
[run]
branch = true
parallel = true
data_file = {data}
source = {root}
omit = {root}/*/*
patch = _exit
[report]
exclude_also =
    if TYPE_CHECKING
    \\.\\.\\.$
"""
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
TREES = ("demo", "tests", "bench")
OPTIONS = ("--fast", "--long", "--coverage")
SCRIPTS = ("demo", "bench", "tests/probes")


def main(arguments: list[str]) -> int:
    options = {a for a in arguments if a in OPTIONS}
    fast = "--fast" in options
    python = tools()
    if not fast:
        prepare_hosts()
    checks = {
        "ruff": ruff(python),
        "mypy": mypy(python),
        "pytest": pytest(python, [a for a in arguments if a not in OPTIONS], options),
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
    return run("ruff", [str(python), "-P", "-m", "ruff", "check", "--cache-dir", str(cache("ruff")), "."], ROOT)


def mypy(python: Path) -> int:
    """Check the root as the package `project_history_recall`, and beside it the trees that use it."""
    # A tree of links, because mypy takes a module's name from its folder's, and the root may have any.
    tree = cache("mypy")
    for old in tree.iterdir():
        if old.is_symlink():
            old.unlink()
        elif old.name in ("project_history_recall", "scripts"):
            shutil.rmtree(old)
    link(ROOT.glob("*.py"), tree / "project_history_recall")
    trees = [name for name in TREES if any((ROOT / name).rglob("*.py"))]
    link((ROOT / name for name in trees), tree)
    # What is run as a script finds its neighbours by their bare names.
    link((file for name in SCRIPTS for file in (ROOT / name).glob("*.py")), tree / "scripts")
    packages = [part for name in ["project_history_recall", *trees] for part in ("-p", name)]
    options = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(tree / ".cache")]
    return run("mypy", [str(python), "-P", "-m", "mypy", *options, *packages], tree, MYPYPATH=str(tree / "scripts"))


def link(files: Iterable[Path], folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for file in files:
        (folder / file.name).unlink(missing_ok=True)
        (folder / file.name).symlink_to(file, target_is_directory=file.is_dir())


def pytest(python: Path, arguments: list[str], options: set[str]) -> int:
    # -P: the same, where Python would put the current folder first. A file's tests stay in one process.
    command = [str(python), "-P", "-m", "pytest", "-o", f"cache_dir={cache('pytest')}", "-n", "auto"]
    command += ["--dist", "loadfile", *(["-m", "not host"] if "--fast" in options else []), *arguments]
    variables = {"PHR_LONG": "1"} if "--long" in options else {}
    if "--coverage" not in options:
        return run("pytest", command, ROOT, **variables)
    rules = cache("coverage") / "rules"
    for old in rules.parent.iterdir():
        old.unlink()
    rules.write_text(COVERAGE.format(data=rules.parent / "data", root=ROOT), encoding="utf-8")
    failed = run("pytest", command, ROOT, COVERAGE_PROCESS_START=str(rules), **variables)
    for step in (["combine", "-q"], ["report", "--show-missing", "--skip-covered"]):
        run(f"coverage {step[0]}", [str(python), "-P", "-m", "coverage", *step, f"--rcfile={rules}"], ROOT)
    return failed


def run(name: str, command: list[str], cwd: Path, **variables: str) -> int:
    print(f"\n== {name}", flush=True)
    env = os.environ | {"PYTHONPYCACHEPREFIX": str(cache("pycache"))} | variables
    return subprocess.run(command, cwd=cwd, env=env, check=False).returncode


def cache(tool: str) -> Path:
    """The cache folder of `tool` for this clone."""
    folder = hosts.cache_dir() / "checks" / hashlib.sha256(str(ROOT).encode()).hexdigest()[:12] / tool
    folder.mkdir(parents=True, exist_ok=True)
    return folder


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
