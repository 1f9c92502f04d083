"""What all tests share: the package under its name, the real hosts, and a count of what ran in each."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
# At the end: the root's own modules must hide nobody's.
sys.path.append(str(ROOT))

from demo import hosts  # noqa: E402

# Settled now: a test that moves HOME must not have its hosts installed anew.
os.environ["PHR_CACHE"] = str(hosts.cache_dir())


hosts.load_package()


class PlainFolders:
    """Collect every folder as one: pytest would import the root again, as a package of tests by the folder's name."""

    @staticmethod
    def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector:
        folder: pytest.Collector = pytest.Dir.from_parent(parent, path=path)
        return folder


def pytest_configure(config: pytest.Config) -> None:
    # A plugin of its own: a conftest's hooks are not asked about the folders above it.
    config.pluginmanager.register(PlainFolders())


@pytest.fixture(scope="session")
def repo_root() -> Path:
    return ROOT


_opened: list[sqlite3.Connection] = []
sys.addaudithook(lambda event, args: _opened.append(args[0]) if event == "sqlite3.connect/handle" else None)


@pytest.fixture(autouse=True)
def every_connection_is_closed() -> Iterator[None]:
    """Fail a test that leaves a database open. (Python says so itself only from 3.13 on.)"""
    _opened.clear()
    yield
    left = [connection for connection in _opened if is_open(connection)]
    _opened.clear()
    for connection in left:
        connection.close()
    assert not left, f"{len(left)} connections were left open"


def is_open(connection: sqlite3.Connection) -> bool:
    try:
        return connection.total_changes >= 0
    except sqlite3.ProgrammingError:
        return False


# --- the real hosts ---------------------------------------------------------------------------------

Probe = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session", params=hosts.HOSTS, ids=lambda host: host.name)
def host(request: pytest.FixtureRequest) -> hosts.Host:
    """Each real host in turn, its environment ready; skipped by name where no Python runs it."""
    wanted: hosts.Host = request.param
    try:
        hosts.environment(wanted)
    except hosts.NoInterpreter as missing:
        pytest.skip(f"Hermes {wanted.name}: {missing}")
    return wanted


@pytest.fixture(scope="session")
def host_python(host: hosts.Host) -> Path:
    return hosts.environment(host)


@pytest.fixture(scope="session")
def probe(host: hosts.Host) -> Probe:
    """Run a file of tests/probes in the host's Python, over a home, and return what it reported."""

    def run(name: str, home: Path, *arguments: object, with_plugin: bool = False) -> dict[str, Any]:
        python = hosts.environment(host, with_plugin=with_plugin)
        script = ROOT / "tests" / "probes" / f"{name}.py"
        done = subprocess.run(
            [str(python), str(script), *map(str, arguments)],
            env=hosts.child_env(host, home), cwd=home, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{name} in Hermes {host.name}:\n{done.stdout}\n{done.stderr}"
        reported: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return reported

    return run


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what runs in a host, for `-m "not host"`."""
    for item in items:
        if "host" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.host)


# --- what ran in which host -------------------------------------------------------------------------

IN_HOST = "host"
_ran: Counter[tuple[Any, str]] = Counter()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    where = getattr(item, "callspec", None)
    if where and isinstance(wanted := where.params.get("host"), hosts.Host):
        report.user_properties.append((IN_HOST, wanted.name))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count where the run is summed up, whichever process ran the test."""
    if report.when == "call" or report.outcome != "passed":
        _ran.update((name, report.outcome) for key, name in report.user_properties if key == IN_HOST)


def _missing() -> list[str]:
    """With PHR_REQUIRE_HOSTS, the hosts in which no test passed."""
    required = hosts.HOSTS if os.environ.get("PHR_REQUIRE_HOSTS") else ()
    return [host.name for host in required if not _ran[host.name, "passed"]]


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput"):
        return  # one of several that pytest-xdist runs: it has seen a part only
    if _missing() and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for host in hosts.HOSTS:
        counts = [f"{n} {outcome}" for (name, outcome), n in sorted(_ran.items()) if name == host.name]
        terminalreporter.write_line(f"Hermes {host.name}: {', '.join(counts) or 'nothing ran'}")
    if missing := _missing():
        terminalreporter.write_line(f"FAILED: nothing passed in Hermes {', '.join(missing)}", red=True)
