"""The commands for people in the three real hosts: from a shell, typed in a window, and typed in a chat."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from demo import hosts
from tests import homes
from tests.gateways import Gateway, gateway

WORDS_ONLY = {"plugins": {"entries": {hosts.PLUGIN: {"settings": {"embedding_provider": "none"}}}}}
KNOWN, STRANGER = "42", "7"  # who writes in a chat


@dataclass(frozen=True, slots=True)
class Place:
    """A home with the plugin and conversations in two projects."""

    host: hosts.Host
    home: Path
    work: Path

    def run(self, *arguments: str, home: Path | None = None) -> subprocess.CompletedProcess[str]:
        """`hermes ...`, from the first project's folder."""
        command = hosts.environment(self.host).with_name(self.host.command)
        return subprocess.run(
            [str(command), *arguments], env=hosts.child_env(self.host, home or self.home, LANG="C.UTF-8"),
            cwd=self.work / "alpha", stdin=subprocess.DEVNULL, capture_output=True, text=True, encoding="utf-8",
            timeout=180, check=False,
        )  # fmt: skip

    def told(self, *arguments: str) -> Any:
        """The one JSON document of `hermes project-history ... --json`."""
        done = self.run("project-history", *arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def place(host: hosts.Host, probe: homes.Probe, tmp_path_factory: pytest.TempPathFactory) -> Place:
    base = tmp_path_factory.mktemp("commands")
    home, work = base / "home", base / "work"
    for name in ("alpha", "beta"):
        (work / name).mkdir(parents=True)
    hosts.install_plugin(home, config=WORDS_ONLY)
    stored = {
        "s_alpha": [f"{work / 'alpha'}/", "cli", "The ZEBRA7431 of alpha."],
        "s_beta": [f"{work / 'beta'}/", "cli", "The ZEBRA7431 of beta."],
    }
    probe("stored", home, json.dumps(stored))
    return Place(host, home, work)


# --- from a shell -----------------------------------------------------------------------------------


def test_the_host_lists_the_command_among_its_own(place: Place) -> None:
    """Its bare `--help` loads no plugin, in all three; what it says of a command it does not know lists them."""
    done = place.run("project-history", "--help")
    assert done.returncode == 0
    assert " project-history [-h] COMMAND" in done.stdout
    for command in ("status", "search", "sessions", "show", "index", "move", "forget", "consent", "doctor"):
        assert f"\n    {command} " in done.stdout
    wrong = place.run("project-histories")
    assert wrong.returncode == 2
    assert "project-history" in wrong.stderr.replace("project-histories", "")


def test_status_and_search_run_there_with_the_hosts_own_redactor(place: Place) -> None:
    status = place.told("status")
    assert status["hermes"].startswith(place.host.name)
    assert {p["name"]: p["conversations"] for p in status["projects"]} == {"alpha": 1, "beta": 1}
    found = place.told("search", "ZEBRA7431")
    assert [hit["session_id"] for hit in found["results"]] == ["s_alpha"]
    assert "redacted" not in found
    assert [hit["session_id"] for hit in place.told("search", "ZEBRA7431", "--project", "beta")["results"]] == [
        "s_beta"
    ]
    assert "ZEBRA7431 of beta" in place.run("project-history", "show", "s_beta").stdout


def test_nothing_of_the_host_is_written_by_reading(place: Place) -> None:
    def stored() -> dict[str, Any]:
        return {name: facts for name, facts in homes.files(place.home).items() if name.endswith((".db", ".yaml"))}

    before = stored()
    for arguments in (["status"], ["sessions", "--all-profiles"], ["show", "s_alpha"], ["consent", "list"]):
        place.told(*arguments)
    assert stored() == before


def test_what_cannot_be_answered_ends_the_host_with_the_same_code(place: Place) -> None:
    for code, arguments in ((1, ["show", "zzz"]), (2, ["search"]), (2, ["dance"]), (1, ["index"])):
        done = place.run("project-history", *arguments)
        assert (done.returncode, "Traceback" in done.stderr) == (code, False), arguments
        assert done.stdout == ""


def test_the_hosts_own_profile_flag_chooses_the_home(place: Place, probe: homes.Probe) -> None:
    p2 = place.home / "profiles" / "p2"
    hosts.install_plugin(p2, config=WORDS_ONLY)
    probe("stored", p2, json.dumps({"s_p2": [f"{place.work / 'alpha'}/", "cli", "The giraffe of p2."]}))
    listed = place.told("sessions", "--profile", "p2")["sessions"]
    assert [(row["session_id"], row["profile"]) for row in listed] == [("s_p2", "p2")]
    both = place.told("sessions", "--all-profiles")["sessions"]
    assert {(row["session_id"], row["profile"]) for row in both} == {
        ("s_p2", "p2"), ("s_alpha", "default"), ("s_beta", "default")
    }  # fmt: skip


def test_the_doctor_finds_everything_in_its_place(place: Place) -> None:
    checks = {check["name"]: check for check in place.told("doctor")["checks"]}
    assert [checks[name]["state"] for name in ("Plugin", "Toolset", "Conversations", "Settings")] == ["ok"] * 4
    assert checks["Hermes"]["detail"].startswith(place.host.name)


def test_the_hosts_language_is_spoken(place: Place, tmp_path: Path) -> None:
    home = tmp_path / "home"
    hosts.install_plugin(home, config=WORDS_ONLY | {"display": {"language": "zh"}})
    done = place.run("project-history", "consent", "list", home=home)
    assert "没有任何授权" in done.stdout


# --- typed in a window ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Window:
    """A window of a gateway that stands in the first project, and the row of its conversation."""

    client: Gateway
    sid: str
    key: str

    def type(self, arguments: str) -> str:
        call = {"name": "project-history", "arg": arguments, "session_id": self.sid}
        answer = self.client.result("command.dispatch", **call)
        assert answer["type"] == "plugin"
        return str(answer["output"])


@pytest.fixture(scope="module")
def window(place: Place, probe: homes.Probe, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    with gateway(place.host, place.home, tmp_path_factory.mktemp("window") / "printed", LANG="C.UTF-8") as client:
        made = client.result("session.create", cwd=str(place.work / "alpha"), cols=80, source="desktop")
        key = made["stored_session_id"]
        probe(
            "stored", place.home, json.dumps({key: [str(place.work / "alpha"), "desktop", "The HERON7431 of alpha."]})
        )
        yield Window(client, made["session_id"], key)


def test_help_of_a_window_lists_the_slash_command(place: Place, window: Window) -> None:
    """0.19 and 0.20 list the commands of plugins while one types, not in the catalogue."""
    if place.host.name == "0.22":
        assert "/project-history" in [pair[0] for pair in window.client.result("commands.catalog")["pairs"]]
    completed = window.client.result("complete.slash", text="/project-h")["items"]
    assert any("project-history" in item["text"] for item in completed)


def test_a_window_answers_through_both_ways_of_its_host(place: Place, window: Window) -> None:
    assert window.type("help").startswith("/project-history COMMAND")
    assert "s_beta#" in window.type("search ZEBRA7431 --project beta")
    asked = {"command": "/project-history sessions --project beta", "session_id": window.sid}
    executed = window.client.result("slash.exec", **asked)["output"]
    assert "s_beta" in executed
    assert "s_alpha" not in executed


def test_only_where_the_host_binds_the_session_it_is_known(place: Place, window: Window) -> None:
    search, show = window.type("search 7431"), window.type("show")
    if place.host.name == "0.22":
        assert f"{window.key}#" in search
        assert "s_alpha#" in search
        assert "of beta" not in search
        assert "HERON7431 of alpha" in show
    else:
        assert "name a project with --project. These exist: alpha, beta" in search
        assert "show ID" in show


def test_a_window_moves_itself_only_where_it_is_known(place: Place, window: Window) -> None:
    told = window.type("move beta")
    if place.host.name != "0.22":
        assert "move ID PROJECT" in told
        return
    assert f"{window.key} moved: alpha" in told
    assert "the next command starts in the new one" in told
    assert "of beta" in window.type("search ZEBRA7431")
    assert "-> alpha" in window.type("move --undo")


def test_a_window_moves_another_conversation_and_takes_it_back(place: Place, window: Window) -> None:
    told = window.type("move s_beta alpha")
    if place.host.name == "0.19":
        assert "cannot move a conversation" in told
        return
    assert "s_beta moved: beta" in told
    assert "-> beta" in window.type("move s_beta --undo")


# --- typed in a chat --------------------------------------------------------------------------------


LINES = ["help", "sessions", "search 7431", "show s_alpha", "show", "move s_alpha beta", "forget --all --yes", "status"]


@pytest.fixture(scope="module")
def chats(place: Place, probe: homes.Probe) -> dict[str, Any]:
    """What two people got in direct chats, through the gateway's own handling of a message; one has a past there."""
    typed = [text for who in (KNOWN, STRANGER) for line in LINES for text in (f"/project-history {line}", who)]
    return probe("commands", place.home, f"s_chat={KNOWN}", *typed)


def test_the_menus_of_chats_list_the_slash_command(chats: dict[str, Any]) -> None:
    (entry,) = [entry for entry in chats["listed"] if entry[0] == "project-history"]
    about = "Search, read and move this project's past conversations"
    assert entry[1:] == [about, "search|status|sessions|show|move|help"]


def test_a_chat_learns_nothing_of_the_owners_conversations(place: Place, chats: dict[str, Any]) -> None:
    assert all(isinstance(answer, str) and answer for answer in chats["answers"])
    for answer in chats["answers"]:
        for secret in ("ZEBRA7431", "HERON7431", "alpha", "beta", str(place.work)):
            assert secret not in answer.replace("'s_alpha'", "")
        assert place.host.name == "0.22" or "does not say who typed this" in answer


def test_a_chat_whose_sender_the_host_tells_sees_itself(place: Place, chats: dict[str, Any]) -> None:
    told = dict(zip([f"{who} {line}" for who in (KNOWN, STRANGER) for line in LINES], chats["answers"], strict=True))
    assert "/project-history COMMAND" in told[f"{KNOWN} help"]
    if place.host.name == "0.22":
        assert told[f"{KNOWN} sessions"].startswith("s_chat")
        assert "The owl 7431 of a chat." in told[f"{KNOWN} show"]
        assert told[f"{STRANGER} sessions"] == told[f"{STRANGER} show"] == "Nothing of this chat is stored yet."
        assert told[f"{KNOWN} status"] == "This chat's stored conversations: 1."
        for line in ("move s_alpha beta", "forget --all --yes"):
            assert "nly" in told[f"{KNOWN} {line}"] or "Nothing is moved" in told[f"{KNOWN} {line}"]
