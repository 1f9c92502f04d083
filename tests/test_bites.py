"""What only a deliberate breakage of the code showed to be untested (see test_breakages.py)."""

from __future__ import annotations

import os
import sys
import threading
import time
import types
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("apsw")
pytest.importorskip("numpy")

from project_history_recall import host, move, semantic
from project_history_recall.held import HELD_BYTES, Held
from project_history_recall.keywords import KeywordLeg
from project_history_recall.scope import Live
from project_history_recall.semantic import SemanticLeg
from project_history_recall.text import WITHHELD
from project_history_recall.vectors import Store

from tests import small, test_move, test_remote
from tests.faults.tools import all_mean_the_same
from tests.servers import Server
from tests.test_vectors import DIM, fill, texts_of, vector

fresh, home, server, desk = test_remote.fresh, test_remote.home, test_remote.server, test_move.desk

# --- scope first, then rank -------------------------------------------------------------------------


def test_better_words_of_another_project_take_no_place_of_ours(tmp_path: Path) -> None:
    """One of ours is better than all of theirs, so that something is found whichever comes first, rank or scope."""
    home = small.furnished(tmp_path)
    home.session("theirs", cwd=small.BOREALIS)
    home.fill("theirs", [f"zebra crossing {n}" for n in range(600)])
    home.session("ours")
    best = home.say("ours", "zebra")
    others = [home.say("ours", f"{'a long talk about everything ' * 20} zebra {n}") for n in range(5)]
    assert set(small.ids(home.ask("zebra", limit=20))) == {best, *others}


@pytest.mark.parametrize(
    ("room", "extension"),
    [(HELD_BYTES, True), (0, True), (0, False)],
    ids=["in memory", "by the extension", "by numpy"],
)
def test_nearer_pieces_of_other_conversations_take_no_place_of_ours(tmp_path: Path, room: int, extension: bool) -> None:
    store = Store(tmp_path / "embeddings.db", extension=extension)
    store._held = Held(room)
    try:
        fp = store.model("m", DIM)
        fill(store, fp, "ours", ["something far"])
        fill(store, fp, "theirs", ["the query", *texts_of("theirs", 20)])
        store.nearest(fp, ["ours", "theirs"], vector("the query"), 1)  # where there is room, both are in memory
        assert [near.root for near in store.nearest(fp, ["ours"], vector("the query"), 1)] == ["ours"]
    finally:
        store.close()


# --- looked at again before it is shown --------------------------------------------------------------


@pytest.fixture
def similar() -> Iterator[None]:
    with all_mean_the_same():
        yield


@pytest.mark.parametrize(
    "change", ["session_id = 'away'", "active = 0", "display_kind = 'hidden'"], ids=["moved", "rewound", "hidden"]
)
@pytest.mark.parametrize("leg", [KeywordLeg, SemanticLeg], ids=["words", "meaning"])
def test_what_is_taken_away_between_ranking_and_reading_is_not_shown(
    tmp_path: Path,
    similar: None,
    monkeypatch: pytest.MonkeyPatch,
    leg: type[KeywordLeg] | type[SemanticLeg],
    change: str,
) -> None:
    home = small.furnished(tmp_path)
    home.settings, home.redact = replace(home.settings, embedding_provider="local"), str
    home.session("away", cwd=small.BOREALIS)
    home.session("here")
    gone, kept = home.say("here", "the zebra of monday"), home.say("here", "the zebra of tuesday")
    query = "zebra" if leg is KeywordLeg else "anything"
    assert {gone, kept} <= set(small.ids(home.ask(query)))
    find: Any = leg.find

    def then_taken(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = find(self, *args, **kwargs)
        home.write(f"UPDATE messages SET {change} WHERE id = ?", [(gone,)])
        return found

    monkeypatch.setattr(leg, "find", then_taken)
    assert small.ids(home.ask(query, context=5)) == [kept]


# --- other people's chats ----------------------------------------------------------------------------


def test_a_conversation_that_went_on_in_another_chat_is_shown_to_neither(tmp_path: Path) -> None:
    """One row for one chat and one for the other: who reads it reads what was said in both."""
    home = small.furnished(tmp_path)
    chat: dict[str, Any] = {"source": "telegram", "chat_type": "group"}
    home.session("begun", session_key="one", end_reason="compression", **chat)
    home.session("continued", session_key="two", parent="begun", **chat)
    home.say("begun", "the zebra of one")
    home.say("continued", "the zebra of two")
    for key in ("one", "two"):
        home.session(f"now {key}", session_key=key, **chat)
        live = Live(f"now {key}", platform="telegram", chat_type="group", session_key=key)
        assert home.ask("zebra", live=live)["results"] == []
    assert len(home.ask("zebra")["results"]) == 2, "the owner reads both"


def test_a_chat_without_a_key_finds_what_it_said_itself_and_nothing_else(tmp_path: Path) -> None:
    home = small.furnished(tmp_path)
    for name in ("chat", "other"):
        home.session(name, source="telegram", chat_type="group")
    own = home.say("chat", "the zebra of monday", active=0, compacted=1)
    home.say("other", "the zebra of tuesday")
    live = Live("chat", platform="telegram", chat_type="group")
    assert small.ids(home.ask("zebra", live=live)) == [own]


@pytest.mark.parametrize(
    ("row", "live"),
    [
        ({"source": "cli"}, {"source": "telegram", "session_key": "one"}),
        ({"source": "telegram", "session_key": "two"}, {"platform": "telegram", "session_key": "one"}),
        ({"source": "cli"}, {"platform": "telegram", "session_key": "two", "ui_session_id": "tab1"}),
    ],
    ids=["a chat's source on an owner's row", "the key of another chat", "a window that a chat's turn inherited"],
)
def test_where_the_evidence_of_who_calls_disagrees_the_strictest_counts(
    tmp_path: Path, row: dict[str, str], live: dict[str, str]
) -> None:
    home = small.furnished(tmp_path)
    home.session("now", **row)
    home.session("one", source="telegram", session_key="one")
    home.session("owner's")
    for name in ("one", "owner's"):
        home.say(name, f"the zebra of {name}")
    assert home.ask("zebra", live=Live("now", **live))["results"] == []


def test_a_chat_in_an_automatic_project_is_not_told_its_path(tmp_path: Path) -> None:
    """The id of such a project is its folder on the owner's disk."""
    (tmp_path / "loose").mkdir()
    home = small.furnished(tmp_path / "home")
    home.session("chat", source="telegram", chat_type="group", session_key="one", cwd=str(tmp_path / "loose"))
    live = Live("chat", platform="telegram", chat_type="group", session_key="one")
    told = home.ask("zebra", live=live)
    assert (told["project"]["kind"], told["project"]["name"]) == ("auto", "loose")
    assert str(tmp_path) not in str(told)


# --- what is sent and kept ---------------------------------------------------------------------------


def test_a_secret_in_a_query_is_not_sent(home: small.SmallHome, server: Server) -> None:
    test_remote.agree(home)
    test_remote.ask(home, f"storage with {test_remote.SECRET}")
    assert "storage with [secret]" in test_remote.texts(server)
    assert not any(test_remote.SECRET in text for text in test_remote.texts(server))


def test_a_conversation_that_came_in_is_not_sent_because_it_was_owed_where_it_was(
    home: small.SmallHome, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its former project was agreed to, but there was no time: its pieces are owed, and a search here hits them."""
    test_remote.agree(home)
    monkeypatch.setattr(semantic, "start_worker", lambda *_: True)
    settings = home.settings
    home.settings = replace(settings, index_budget_s=0)
    test_remote.agree(home, query="slow", project="Borealis")
    home.settings = settings
    home.write("UPDATE sessions SET cwd = ? WHERE id = 'away'", [[small.ATLAS]])
    assert test_remote.ask(home, "slow")["results"][0]["session_id"] == "away"
    assert not any("borealis" in text for text in test_remote.texts(server))
    (store,) = semantic._stores.values()
    assert list(store._db.execute("SELECT 1 FROM debt")), "they are owed all the while"


def test_a_subagent_that_types_the_id_of_a_request_agrees_to_nothing(home: small.SmallHome) -> None:
    home.session("sub", source="subagent", parent="caller", model_config={"_delegate_from": "caller"})
    said = test_remote.type_it(home, f"allow {test_remote.request_of(home)}", live=Live("sub"))
    assert "Only a person" in said
    assert test_remote.ask(home)["semantic_status"] == "consent_required"


@pytest.mark.parametrize("name", ["redact_for_egress", "redact_sensitive_text"])
def test_a_redactor_that_fails_lets_no_text_through(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def fails(text: str, **_: Any) -> str:
        raise RuntimeError("no rules")

    module = types.ModuleType("agent.redact")
    setattr(module, name, fails)
    monkeypatch.setitem(sys.modules, "agent.redact", module)
    redact = host.redactor()
    assert redact is not None
    assert redact("the password is hunter2") == WITHHELD


@pytest.mark.skipif(os.name == "nt", reason="forks")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_lets_go_of_its_parents_connection(tmp_path: Path) -> None:
    """SQLite forbids a connection to be carried across a fork, and does not notice it."""
    store = Store(tmp_path / "embeddings.db")
    try:
        child = os.fork()
        if child == 0:
            os._exit(0 if store._connection is None else 3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert store._connection is not None, "the parent goes on with it"
    finally:
        store.close()


# --- moves -------------------------------------------------------------------------------------------


def test_a_subagent_whose_parent_is_gone_moves_nothing(desk: test_move.Desk) -> None:
    desk.home.session("orphan", source="subagent", parent="deleted", cwd=desk.path("atlas"))
    assert desk.refused("Borealis", session_id="other", caller="orphan").code == "not_allowed_here"
    assert desk.wire.requests == []


def test_a_move_that_waited_for_another_is_planned_again(desk: test_move.Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[str] = []
    waits = threading.Event()
    monkeypatch.setattr(move, "time", Waits(waits))
    waiting = threading.Thread(target=lambda: refused.append(desk.refused("Borealis", session_id="other").code))
    with move.locked(desk.folder, time.monotonic() + 60):
        waiting.start()
        assert waits.wait(60)
        desk.put("other", desk.path("borealis"))  # the other move
    waiting.join()
    assert refused == ["already_there"]
    assert desk.wire.requests == []


class Waits:
    """The clock of a move, that says when somebody waits for the lock."""

    monotonic = staticmethod(time.monotonic)

    def __init__(self, waits: threading.Event) -> None:
        self._waits = waits

    def sleep(self, seconds: float) -> None:
        self._waits.set()
        time.sleep(seconds)
