"""The hosts' environments: made once, by whoever comes first, and blind to the person's own Hermes and keys."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from demo import hosts


def executable(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any Python but the running one."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    return tmp_path


def test_the_running_python_is_taken_when_it_fits(machine: Path) -> None:
    assert hosts.find_python([f"{sys.version_info[0]}.{sys.version_info[1]}"]) == Path(sys.executable)


@pytest.mark.skipif(os.name == "nt", reason="stands in for Python with a shell script")
def test_a_python_that_does_not_run_is_passed_over(machine: Path) -> None:
    executable(machine / "bin" / "python3.99", "exit 127")
    real = executable(machine / "pyenv" / "versions" / "3.99.1" / "bin" / "python", "echo 3.99.1")
    assert hosts.find_python(["3.99"]) == real


def test_a_missing_python_is_named(machine: Path) -> None:
    with pytest.raises(hosts.NoInterpreter, match=r"3\.98 or 3\.99"):
        hosts.find_python(["3.98", "3.99"])


def test_an_environment_is_made_once_and_a_half_made_one_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHR_CACHE", str(tmp_path / "cache"))
    where = hosts.cache_dir() / "it"
    builds: list[bool] = []

    def build() -> None:
        assert not where.exists()
        (where / hosts.BIN).mkdir(parents=True)
        (where / hosts.BIN / hosts.PYTHON).touch()
        builds.append(True)
        if len(builds) == 1:
            raise hosts.InstallFailed("no network")

    with pytest.raises(hosts.InstallFailed):
        hosts._ready(where, "making it", build)
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: hosts._ready(where, "making it", build), range(4)))
    assert set(made) == {where / hosts.BIN / hosts.PYTHON}
    assert len(builds) == 2


@pytest.mark.skipif(os.name == "nt", reason="POSIX modes")
def test_the_cache_is_its_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHR_CACHE", str(tmp_path / "cache"))
    assert hosts.cache_dir().stat().st_mode & 0o777 == 0o700


def test_a_host_sees_nothing_of_the_persons_own_hermes_or_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped = (
        "HERMES_SESSION_ID", "TERMINAL_CWD", "PYTHONPATH", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "MY_TOKEN",
        "some_secret", "https_proxy", "GIT_DIR", "XDG_CONFIG_HOME", "VIRTUAL_ENV",
    )  # fmt: skip
    for name in dropped:
        monkeypatch.setenv(name, "theirs")
    env = hosts.child_env(hosts.HOSTS[0], tmp_path / "home", EXTRA="mine")
    assert "theirs" not in env.values()
    assert env["EXTRA"] == "mine"
    assert env["HERMES_HOME"] == str(tmp_path / "home")
    assert env["HOME"] == str(tmp_path / "userhome")


def test_the_home_of_a_profiles_user_is_no_profile(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "profiles" / "p2").mkdir(parents=True)
    assert hosts.child_env(hosts.HOSTS[0], home / "profiles" / "p2")["HOME"] == str(tmp_path / "userhome")
    assert os.listdir(home / "profiles") == ["p2"]


def test_what_is_shipped_is_what_hermes_loads() -> None:
    names = {path.as_posix() for path in hosts.shipped()}
    assert {"__init__.py", "search.py", "plugin.yaml", "pyproject.toml", "LICENSE"} <= names
    assert not [name for name in names if name.startswith(("demo/", "tests/", "bench/", "."))]


def test_enabling_the_plugin_keeps_the_rest_of_a_config(tmp_path: Path) -> None:
    given = {"model": "m", "plugins": {"enabled": ["other"], "isolation": "host"}}
    hosts.install_plugin(tmp_path, config=given)
    written = json.loads((tmp_path / "config.yaml").read_text("utf-8"))
    assert written == {"model": "m", "plugins": {"enabled": ["other", hosts.PLUGIN], "isolation": "host"}}
    assert given["plugins"] == {"enabled": ["other"], "isolation": "host"}


@pytest.mark.parametrize(("required", "code", "processes"), [("", 0, "0"), ("1", 1, "0"), ("1", 1, "2")])
def test_a_run_without_a_required_host_has_failed(
    host: hosts.Host, repo_root: Path, required: str, code: int, processes: str
) -> None:
    """One test of one host: the two others were not run at all. Several processes count as one."""
    test = f"{repo_root}/tests/test_hosts.py::test_the_first_sentence_fits_the_catalogue[{host.name}]"
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-p", "no:cacheprovider", "-n", processes, test],
        env=os.environ | {"PHR_REQUIRE_HOSTS": required, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=repo_root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"Hermes {host.name}: 1 passed" in done.stdout
    assert done.returncode == code, done.stdout
