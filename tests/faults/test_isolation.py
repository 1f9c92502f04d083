"""Who finds what: every kind of caller, through every door of the tools, by words that one conversation alone says.

`CALLERS` is the table: read it beside the rules for projects (Home is not searched, the deepest folder owns)
and for chats (other people's chats stay theirs). tests/test_callers.py asks the same of the real hosts'
surfaces; here each caller meets each conversation through each door.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import homes
from tests.faults.tools import all_mean_the_same, checked, configure, moved, searched
from tests.small import LAYOUTS, Answer, SmallHome

for package in ("apsw", "numpy"):
    pytest.importorskip(package)

BUDGET = 60_000

# --- what is said, and where -----------------------------------------------------------------------

# Each conversation: where it stands, and its row. Each says "heron" and words of its own.
TELEGRAM: dict[str, dict[str, Any]] = {
    "lin": {"source": "telegram", "session_key": "k-lin", "user_id": "7", "chat_type": "dm"},
    "zhao": {"source": "telegram", "session_key": "k-zhao", "user_id": "8", "chat_type": "dm"},
    "group": {"source": "telegram", "session_key": "k-group", "user_id": "8", "chat_type": "group"},
    "own": {"source": "telegram", "session_key": "k-own", "user_id": "4100", "chat_type": "dm"},
    "hook": {"source": "webhook", "session_key": "k-hook", "user_id": "9", "chat_type": "dm"},
}
SAID: dict[str, tuple[str | None, dict[str, Any]]] = {
    "atlas": ("atlas", {}),
    "deep": ("atlas/src", {}),
    "archived": ("atlas", {"archived": 1}),
    "scheduled": ("atlas", {"source": "cron"}),
    "api": ("atlas", {"source": "api_server"}),
    "nested": ("atlas/nested", {}),
    "auto": ("repository/lib", {}),
    "plain": ("plain", {}),
    "nowhere": (None, {}),
    # Chats that somebody moved into Atlas, and the same chats where the host leaves them: in Home.
    **{who: ("atlas", row) for who, row in TELEGRAM.items()},
    **{f"{who} at home": (None, row) for who, row in TELEGRAM.items()},
    # Nobody's: never found by anybody.
    "subagent": ("atlas", {"source": "subagent", "parent": "id-atlas"}),
    "delegate": ("atlas", {"parent": "id-atlas", "model_config": {"_delegate_from": "id-atlas"}}),
    "kanban": ("atlas", {"source": "kanban"}),
}
ATLAS = {"atlas", "deep", "archived", "scheduled", "api", *TELEGRAM}  # what an owner finds there
PROJECTS = {"Atlas": ATLAS, "Nested": {"nested"}, "repository": {"auto"}, "plain": {"plain"}}
EVERYWHERE = set().union(*PROJECTS.values())  # what an owner may read where it names the project
NOBODYS = {"subagent", "delegate", "kanban", "taken back", "hidden"}


# --- who asks --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Who:
    """A calling row: where it stands and what it is, what its surface binds, and what it should find.

    `finds` is its own project's; an `owner` may name the others and move conversations.
    """

    stands: str | None
    kind: str
    finds: frozenset[str]
    row: dict[str, Any]
    binds: dict[str, str]
    owner: bool
    moves: bool


def who(stands: str | None, kind: str, finds: set[str], *, owner: bool = True, moves: bool | None = None,
        binds: dict[str, str] | None = None, **row: Any) -> Who:  # fmt: skip
    return Who(stands, kind, frozenset(finds), row, binds or {}, owner, owner if moves is None else moves)


def bound(name: str) -> dict[str, str]:
    """What the messaging gateway binds for a chat's turn."""
    row = TELEGRAM[name]
    return {"platform": row["source"], **{k: row[k] for k in ("session_key", "user_id", "chat_type")}}


SUBAGENT: dict[str, Any] = {"source": "subagent"}
WINDOW = {"source": "desktop", "ui_session_id": "tab1"}
CALLERS = {
    # Owners: their project, whole, the chats in it too; nothing of Home; the deepest folder owns.
    "explicit project": who("atlas", "explicit", ATLAS),
    "below its folder": who("atlas/src", "explicit", ATLAS),
    "nested project": who("atlas/nested", "explicit", {"nested"}),
    "auto": who("repository", "auto", {"auto"}),
    "cwd only": who("plain", "auto", {"plain"}),
    "home": who(None, "home", set()),
    "api server": who("atlas", "explicit", ATLAS, source="api_server", binds={"platform": "api_server"}),
    "api server at home": who(None, "home", set(), source="api_server", binds={"platform": "api_server"}),
    "desktop": who("atlas", "explicit", ATLAS, source="desktop", binds=WINDOW),
    "desktop that goes on with a chat": who("atlas", "explicit", ATLAS, binds=WINDOW, **TELEGRAM["zhao"]),
    "owner's chat": who("atlas", "explicit", ATLAS, binds=bound("own"), **TELEGRAM["own"]),
    "owner's chat at home": who(None, "home", set(), binds=bound("own"), **TELEGRAM["own"]),
    # Subagents act for the conversation that started them, and move nothing.
    "subagent": who(None, "explicit", ATLAS, moves=False, parent="call-explicit project", **SUBAGENT),
    "delegate": who(
        None, "explicit", ATLAS, moves=False, parent="call-explicit project",
        model_config={"_delegate_from": "call-explicit project"},
    ),
    "subagent of a chat": who(None, "explicit", {"lin"}, owner=False, parent="call-chat", **SUBAGENT),
    "subagent of a chat, bound": who(
        None, "explicit", {"lin"}, owner=False, binds=bound("lin"), parent="call-chat", **SUBAGENT
    ),
    # Chats: their own past in the project they were moved into; nothing of Home, nobody else's, no other project.
    "chat": who("atlas", "explicit", {"lin"}, owner=False, binds=bound("lin"), **TELEGRAM["lin"]),
    "chat, not bound": who("atlas", "explicit", {"lin"}, owner=False, **TELEGRAM["lin"]),
    "second chat": who("atlas", "explicit", {"zhao"}, owner=False, binds=bound("zhao"), **TELEGRAM["zhao"]),
    "chat at home": who(None, "home", set(), owner=False, binds=bound("lin"), **TELEGRAM["lin"]),
    "group": who("atlas", "explicit", {"group"}, owner=False, binds=bound("group"), **TELEGRAM["group"]),
    "group with the owner in it": who(
        "atlas", "explicit", {"group"}, owner=False, binds={**bound("group"), "user_id": "4100"},
        **{**TELEGRAM["group"], "user_id": "4100"},
    ),
    "chat from an owner's row": who("atlas", "explicit", {"zhao"}, owner=False, binds=bound("zhao")),
    "scheduled run": who("atlas", "explicit", set(), owner=False, source="cron"),
    "webhook": who("atlas", "explicit", set(), owner=False, binds=bound("hook"), **TELEGRAM["hook"]),
    "webhook, not bound": who("atlas", "explicit", set(), owner=False, **TELEGRAM["hook"]),
}  # fmt: skip
each_caller = pytest.mark.parametrize("name", CALLERS)


@dataclass(frozen=True, slots=True)
class World:
    home: SmallHome
    work: Path
    messages: dict[int, str]  # message id -> the conversation that says it


def needle(name: str) -> str:
    return f"needle-{re.sub('[^a-z0-9]', '-', name)}."


def make(path: Path, layout: str) -> World:
    work = path / "work"
    for folder in ("atlas/src", "atlas/nested", "repository/.git", "repository/lib", "plain", "harbour"):
        (work / folder).mkdir(parents=True)
    (work / "repository/.git/HEAD").write_text("ref: refs/heads/main\n")
    for folder in ("objects", "refs"):
        (work / "repository/.git" / folder).mkdir()
    home = SmallHome(path / "home", layout)
    home.project("p_atlas", "Atlas", str(work / "atlas"))
    home.project("p_nested", "Nested", str(work / "atlas/nested"))
    home.project("p_harbour", "Harbour", str(work / "harbour"))
    messages = {}

    def talk(name: str, stands: str | None, row: dict[str, Any]) -> None:
        cwd = str(work / stands) if stands else None
        home.session(f"id-{name}", cwd=cwd, title=f"title-{name}.", display_name=f"chat-{name}.", **row)
        for row_id in home.talk(f"id-{name}", f"the heron of {needle(name)}", f"beside {needle(name)}"):
            messages[row_id] = name

    for name, (stands, row) in SAID.items():
        talk(name, stands, row)
    if layout != "0.19":
        talk("hidden", "atlas", {"hidden": 1})
    messages[home.say("id-atlas", f"heron {needle('taken back')}", active=0)] = "taken back"
    for name, caller in CALLERS.items():
        home.session(f"call-{name}", cwd=str(work / caller.stands) if caller.stands else None, **caller.row)
        if name == "chat":  # its own words now, which it has before it
            home.say("call-chat", "the heron now")
    home.write("UPDATE sessions SET parent_session_id = 'call-chat' WHERE id LIKE 'call-subagent of a chat%'")
    configure(
        home, max_result_chars=BUDGET, owner_chats=["telegram:4100"], embedding_provider="local", index_budget_s=5
    )
    return World(home, work, messages)


@pytest.fixture(scope="module", params=LAYOUTS)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One of each layout."""
    with all_mean_the_same():
        yield make(tmp_path_factory.mktemp("isolation"), request.param)


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """For the doors behind which the layout makes no difference."""
    with all_mean_the_same():
        yield make(tmp_path_factory.mktemp("isolation"), LAYOUTS[-1])


def ask(world: World, name: str, **args: Any) -> Answer:
    answer = checked(searched(world.home, args, f"call-{name}", **CALLERS[name].binds), BUDGET)
    tells_nothing_of_others(world, name, answer, args)
    return answer


def tells_nothing_of_others(world: World, name: str, answer: Answer, args: dict[str, Any]) -> None:
    """To a chat: no word, id, title or name of another conversation, no other project, no path."""
    caller = CALLERS[name]
    text = json.dumps(answer, ensure_ascii=False)
    others = (EVERYWHERE | NOBODYS | set(SAID)) - caller.finds if not caller.owner else NOBODYS
    known = {n for n in others if n.partition(" ")[0] in {f.partition(" ")[0] for f in caller.finds}}
    told = [n for n in others - known for n in (needle(n), f"title-{n}.", f"chat-{n}.", f'"id-{n}"') if n in text]
    given = json.dumps(args)
    assert not [t for t in told if t not in given], answer
    if not caller.owner:
        assert not [
            p for p in ("Nested", "Harbour", "repository", "plain", str(world.work)) if p in text and p not in given
        ]
        assert not {"elsewhere", "excluded", "drifted", "candidates"} & set(answer)
        assert answer.get("sessions_in_scope", 0) <= len(caller.finds) + 3, "its own, the calling rows among them"


def found(answer: Answer) -> set[str]:
    """The conversations whose words stand anywhere in an answer."""
    return {name for name in (*SAID, *NOBODYS, "p2") if homes.mentions(answer, needle(name))}


def all_pages(world: World, name: str, **args: Any) -> set[str]:
    """What is found by asking on with `next` until there is no more."""
    seen = set[str]()
    for _ in range(20):
        answer = ask(world, name, **args)
        seen |= found(answer)
        if "next" not in answer:
            return seen
        args |= answer["next"]
    raise AssertionError("no end of pages")


# --- searching --------------------------------------------------------------------------------------


@each_caller
@pytest.mark.parametrize("mode", ["keyword", "semantic", "hybrid"])
def test_each_caller_finds_its_own_and_no_more(world: World, name: str, mode: str) -> None:
    caller = CALLERS[name]
    for context in (0, 5):
        first = ask(world, name, query="heron", mode=mode, limit=20, context=context)
        assert first["project"]["kind"] == caller.kind
        assert all_pages(world, name, query="heron", mode=mode, limit=20, context=context) == caller.finds
    if mode != "keyword" and caller.finds:
        assert first["semantic_status"] == "ready"
        assert {hit["score_source"] for hit in first["results"]} & {"semantic", "both"}, "its meaning was looked for"


@each_caller
def test_each_conversation_s_own_words_are_found_by_those_who_may(newest: World, name: str) -> None:
    for said in (*SAID, *NOBODYS):
        for query in (needle(said), f'"{needle(said)}"'):
            answer = ask(newest, name, query=query, mode="keyword", context=2)
            assert homes.mentions(answer.get("results"), needle(said)) == (said in CALLERS[name].finds), said


@each_caller
def test_reading_on_begins_only_where_a_caller_may_read(newest: World, name: str) -> None:
    for row, said in newest.messages.items():
        answer = ask(newest, name, around_message_id=row)
        may = said in CALLERS[name].finds
        assert bool(answer.get("results")) == may, said
        assert found(answer) == ({said} if may else set())
        assert may or answer.get("error") == "not_in_project" or CALLERS[name].kind == "home"


@each_caller
def test_a_conversation_is_named_only_by_who_may_read_it(newest: World, name: str) -> None:
    caller = CALLERS[name]
    for said in (*SAID, "hidden"):
        for written in (f"id-{said}", f"@session:id-{said}", f"@session:p2/id-{said}"):
            answer = ask(newest, name, query="heron", session_id=written, mode="keyword")
            if caller.kind == "home":
                assert answer["results"] == []
            elif said in caller.finds:
                assert found(answer) == {said}
            elif caller.owner and said not in NOBODYS:
                assert answer["error"] == "not_in_project"
            else:
                assert answer["error"] in ("unknown_session", "not_in_project")
                assert answer["error"] == "unknown_session" or said in chat_of(name)


def chat_of(name: str) -> set[str]:
    """The conversations of a caller's own chat, in Home too."""
    key = {"subagent of a chat": "k-lin", "subagent of a chat, bound": "k-lin"}.get(name)
    key = key or CALLERS[name].row.get("session_key") or CALLERS[name].binds.get("session_key")
    return {said for said, (_, row) in SAID.items() if key and row.get("session_key") == key and key != "k-hook"}


@each_caller
def test_another_project_is_named_by_owners_only(newest: World, name: str) -> None:
    paths = {"repository": str(newest.work / "repository"), "plain": str(newest.work / "plain")}
    for project, said in PROJECTS.items():
        for written in (project, paths.get(project, project.upper())):
            for mode in ("keyword", "semantic", "hybrid"):
                answer = ask(newest, name, query="heron", project=written, mode=mode, limit=20)
                if not CALLERS[name].owner:
                    assert (answer["error"], answer.get("candidates")) == ("unknown_project", None)
                    continue
                assert found(answer) == said
                own = CALLERS[name].finds == said
                assert ("widened" in answer["project"]) == (not own), "an owner is told that it looks elsewhere"


def test_an_owner_is_told_which_words_come_from_chats(world: World) -> None:
    answer = ask(world, "explicit project", query="heron", mode="keyword", limit=20)
    hits = [hit for hit in answer["results"] if hit["session_id"].startswith("id-")]
    said = {hit["session_id"].removeprefix("id-"): hit.get("via", "") for hit in hits}
    assert {name for name, via in said.items() if via} == set(TELEGRAM)
    for name in TELEGRAM:
        assert said[name].endswith(f"chat-{name}.")


# --- the other profile ------------------------------------------------------------------------------


def test_profiles_never_mix(world: World) -> None:
    """The same folder, the same ids, another profile: each finds its own through every door."""
    path = world.home.path / "profiles" / "p2"
    other = SmallHome(path, world.home.layout)
    other.project("p_atlas", "Atlas", str(world.work / "atlas"))
    for session in ("id-atlas", "call-p2"):
        other.session(session, cwd=str(world.work / "atlas"))
    own = other.talk("id-atlas", f"the heron of {needle('p2')}", f"beside {needle('p2')}")
    configure(other, max_result_chars=BUDGET, embedding_provider="local", index_budget_s=5)
    for mode in ("keyword", "semantic", "hybrid"):
        for args in ({}, {"project": "Atlas"}, {"session_id": "id-atlas"}, {"session_id": "@session:default/id-atlas"}):
            answer = checked(searched(other, {"query": "heron", "mode": mode, "context": 5, **args}, "call-p2"), BUDGET)
            assert found(answer) == {"p2"}
            assert answer["results"][0]["link"] == "@session:p2/id-atlas"
    for row in world.messages:
        answer = checked(searched(other, {"around_message_id": row}, "call-p2"), BUDGET)
        assert found(answer) == ({"p2"} if row in own else set())
    for args in ({"query": "heron", "project": "Nested"}, {"query": "heron", "session_id": "id-deep"}):
        assert not found(checked(searched(other, args, "call-p2")))
    assert checked(searched(other, {"query": "heron"}, "call-explicit project"))["error"] == "no_session"
    assert "p2" not in all_pages(world, "explicit project", query="heron", limit=20)
    assert checked(moved(other, {"project": "Harbour"}, "call-p2"))["error"] == "unknown_project"
    refused = checked(moved(other, {"project": "home", "session_id": "id-deep"}, "call-p2", task="call-p2"))
    assert refused["error"] == "unknown_session"


# --- moving -----------------------------------------------------------------------------------------


@each_caller
def test_a_conversation_is_moved_by_owners_only_and_only_one_that_they_may_read(newest: World, name: str) -> None:
    caller, before = CALLERS[name], folders(newest)
    for said in (*SAID, "hidden"):
        args = {"project": "Harbour", "session_id": f"id-{said}"}
        answer = checked(moved(newest.home, args, f"call-{name}", task=f"call-{name}", **caller.binds))
        if not caller.moves:
            assert answer["error"] == "not_allowed_here"
            assert f"title-{said}" not in json.dumps(answer)
        elif said in NOBODYS:
            assert answer["error"] == "unknown_session"
        else:
            assert answer["moved"] is True
            moved_to = {**before, f"id-{said}": str(newest.work / "harbour")}
            assert folders(newest) == moved_to
            newest.home.write("UPDATE sessions SET cwd = ? WHERE id = ?", [(before[f"id-{said}"], f"id-{said}")])
        assert folders(newest) == before


@each_caller
def test_nobody_moves_its_own_conversation_where_its_agent_would_not_follow(newest: World, name: str) -> None:
    caller, before = CALLERS[name], folders(newest)
    answer = checked(moved(newest.home, {"project": "Harbour"}, f"call-{name}", task=f"call-{name}", **caller.binds))
    assert answer["error"] == ("unsupported_here" if caller.moves else "not_allowed_here")
    assert folders(newest) == before


@each_caller
def test_a_moved_conversation_is_found_where_it_went_and_nowhere_else(newest: World, name: str) -> None:
    """In all three modes: its vectors stay, the scope decides."""
    caller = CALLERS[name]
    newest.home.write("UPDATE sessions SET cwd = ? WHERE id = 'id-deep'", [(str(newest.work / "plain"),)])
    try:
        for mode in ("keyword", "semantic", "hybrid"):
            finds = caller.finds - {"deep"} | ({"deep"} if name == "cwd only" else set())
            assert all_pages(newest, name, query="heron", mode=mode, limit=20, context=5) == finds
    finally:
        newest.home.write("UPDATE sessions SET cwd = ? WHERE id = 'id-deep'", [(str(newest.work / "atlas/src"),)])


def folders(world: World) -> dict[str, str | None]:
    with world.home._open("state.db") as db:
        return dict(db.execute("SELECT id, cwd FROM sessions"))
