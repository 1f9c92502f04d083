"""What all tests share: the package under its name, the real hosts, and a count of what ran in each."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
# At the end: the root's own modules must hide nobody's (`keyword` is in the standard library too).
sys.path.append(str(ROOT))

from demo import hosts  # noqa: E402


def _import_root_as(name: str) -> None:
    """Import the root folder, whatever it is called, as the package `name`."""
    spec = importlib.util.spec_from_file_location(
        name, ROOT / "__init__.py", submodule_search_locations=[str(ROOT)]
    )
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


_import_root_as("project_history_recall")


@pytest.fixture(scope="session")
def repo_root() -> Path:
    return ROOT


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
def host_python() -> Callable[[hosts.Host], Path]:
    """The Python of a host's environment, by host; that test is skipped by name where no Python runs it."""

    def python(wanted: hosts.Host) -> Path:
        try:
            return hosts.environment(wanted)
        except hosts.NoInterpreter as missing:
            pytest.skip(f"Hermes {wanted.name}: {missing}")

    return python


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
        if {"host", "host_python"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.host)


# --- what ran in which host -------------------------------------------------------------------------

_ran: Counter[tuple[str, str]] = Counter()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    where = getattr(item, "callspec", None)
    told = report.when == "call" or report.outcome != "passed"
    if told and where and isinstance(wanted := where.params.get("host"), hosts.Host):
        _ran[wanted.name, report.outcome] += 1
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for host in hosts.HOSTS:
        counts = {outcome: n for (name, outcome), n in sorted(_ran.items()) if name == host.name}
        told = ", ".join(f"{n} {outcome}" for outcome, n in counts.items()) or "nothing ran"
        terminalreporter.write_line(f"Hermes {host.name}: {told}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """With PHR_REQUIRE_HOSTS, a run in which a whole host was skipped has failed."""
    required = os.environ.get("PHR_REQUIRE_HOSTS") and session.exitstatus == pytest.ExitCode.OK
    if required and not all(_ran[host.name, "passed"] for host in hosts.HOSTS):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
