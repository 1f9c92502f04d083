"""The plugin in each of the three real hosts: loaded, shown to the model, called, checked by the host."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from demo import hosts

Probe = Callable[..., dict[str, Any]]
TOOL = "project_history_search"
HEAVY = {"numpy", "httpx", "apsw", "sqlite_vec", "yaml"}
# Every surface where a plugin's tool in `project` is offered to the model, by default.
SURFACES = ("cli", "telegram", "discord", "slack", "cron", "acp", "api_server", "webhook", "desktop", "tui")


@pytest.fixture(scope="module")
def home(host: hosts.Host, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the plugin's folder in it, enabled."""
    folder = tmp_path_factory.mktemp("folder") / "home"
    hosts.install_plugin(folder)
    return folder


@pytest.fixture(scope="module")
def loaded(probe: Probe, home: Path) -> dict[str, Any]:
    return probe("load", home)


@pytest.fixture(scope="module")
def loaded_from_pip(
    probe: Probe, host: hosts.Host, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    home = tmp_path_factory.mktemp("pip") / "home"
    hosts.enable_plugin(home)
    return probe("load", home, with_plugin=True)


def test_it_is_loaded_from_the_plugins_folder(loaded: dict[str, Any], home: Path) -> None:
    said = loaded["said"]
    assert (said["enabled"], said["error"], said["kind"], said["source"]) == (
        True,
        None,
        "standalone",
        "user",
    )
    assert Path(loaded["file"]).is_relative_to(home / "plugins" / hosts.PLUGIN)


def test_it_is_loaded_from_the_pip_entry_point(loaded_from_pip: dict[str, Any]) -> None:
    said = loaded_from_pip["said"]
    assert (said["enabled"], said["error"], said["source"]) == (True, None, "entrypoint")
    assert loaded_from_pip["module"].split(".")[0] == "project_history_recall"
    assert "site-packages" in loaded_from_pip["file"]


def test_its_tool_is_registered_in_the_project_toolset(
    loaded: dict[str, Any], loaded_from_pip: dict[str, Any]
) -> None:
    for facts in (loaded, loaded_from_pip):
        assert facts["toolset"] == "project"
        assert facts["schema"]["name"] == TOOL


def test_loading_opens_no_file_no_socket_no_process_and_no_thread(loaded: dict[str, Any]) -> None:
    assert loaded["touched"] == []


def test_registering_imports_nothing_heavy(probe: Probe, home: Path) -> None:
    added = {name.partition(".")[0] for name in probe("bare", home, home / "plugins" / hosts.PLUGIN)["added"]}
    assert "project_history_recall" in added
    assert not added & HEAVY


def test_a_careless_plugin_would_be_noticed(probe: Probe, tmp_path: Path) -> None:
    """The two tests above see what they claim to see."""
    home = tmp_path / "home"
    hosts.install_plugin(home)
    folder = home / "plugins" / hosts.PLUGIN
    (folder / "__init__.py").write_text(
        "import pathlib, sqlite3, threading, yaml\n"
        "def register(ctx):\n"
        "    pathlib.Path(__file__).read_text()\n"
        "    sqlite3.connect(':memory:').close()\n"
        "    threading.Thread(target=int).start()\n"
    )
    seen = " ".join(probe("load", home)["touched"])
    assert "open" in seen
    assert "sqlite3.connect" in seen
    assert "thread" in seen
    assert "yaml" in probe("bare", home, folder)["added"]


def test_the_model_is_shown_the_tool_on_every_surface(
    probe: Probe, host: hosts.Host, home: Path, loaded: dict[str, Any]
) -> None:
    surfaces = probe("surfaces", home)["surfaces"]
    assert sorted(surfaces) == sorted(SURFACES)
    for name, shown in surfaces.items():
        assert "project" in shown["toolsets"], name
        if host.name == "0.20":  # it defers every plugin's tools
            assert TOOL not in shown["tools"], name
            assert shown["listed"] == [f"- {TOOL}: {first_sentence(loaded)}"], name
        else:
            assert TOOL in shown["tools"], name


def test_the_first_sentence_fits_the_catalogue(loaded: dict[str, Any]) -> None:
    assert len(first_sentence(loaded)) <= 60


def first_sentence(loaded: dict[str, Any]) -> str:
    return re.split(r"(?<=[.!?])\s", loaded["schema"]["description"], maxsplit=1)[0]


# --- calls ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def called(probe: Probe, host: hosts.Host, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    base = tmp_path_factory.mktemp("calls")
    hosts.install_plugin(base / "home")
    return probe("dispatch", base / "home", base / "workspace")


def answer_of(raw: str) -> dict[str, Any]:
    """A well-formed answer of the tool: an object whose first key is the notice."""
    assert "[TOOL_ERROR]" not in raw
    answer: dict[str, Any] = json.loads(raw)
    assert next(iter(answer)) == "notice"
    assert isinstance(answer["success"], bool)
    return answer


@pytest.mark.parametrize("way", ["registry", "agent", "unknown keywords"])
def test_a_call_finds_the_past_of_its_own_project_only(called: dict[str, Any], way: str) -> None:
    answer = answer_of(called["answers"][way])
    assert answer["success"] is True
    assert [hit["session_id"] for hit in answer["results"]] == ["s_past"]
    assert "ZEBRA7431" in answer["results"][0]["snippet"]


@pytest.mark.parametrize("way", ["no session", "strange session"])
def test_a_call_from_nowhere_finds_nothing(called: dict[str, Any], way: str) -> None:
    assert not answer_of(called["answers"][way]).get("results")


def test_a_bad_call_is_answered_and_never_raised(called: dict[str, Any]) -> None:
    for args, raw in called["bad"].items():
        answer = answer_of(raw)
        assert answer["success"] or (answer["error"] and answer["message"]), args


def test_each_profile_of_one_process_finds_its_own(probe: Probe, tmp_path: Path) -> None:
    home = tmp_path / "home"
    for profile in (home, home / "profiles" / "p2"):
        hosts.install_plugin(profile)
    for name, raw in probe("profiles", home, tmp_path / "workspace")["found"]:
        assert [hit["session_id"] for hit in answer_of(raw)["results"]] == [f"{name}_past"]


# --- the host's own checks --------------------------------------------------------------------------


def plugins_command(host: hosts.Host, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = hosts.environment(host).with_name(host.command)
    return subprocess.run(
        [str(script), "plugins", *arguments], env=hosts.child_env(host, home), cwd=home,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
