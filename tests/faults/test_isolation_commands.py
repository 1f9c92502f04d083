"""Who finds what by typing `/project-history`: the callers of test_isolation.py, through each command.

What a host binds for a command is less than for a tool call. A window of 0.22 names its conversation, a chat
of 0.22 its key and who typed; 0.19 and 0.20 name nothing, and of their chats not even who typed is known.
tests/test_cli_hosts.py types into the real windows and chats.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import types
from collections.abc import Callable, Iterator
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import project_history_recall as plugin
import pytest
from project_history_recall import agreement, host, scope, slash, status

from tests.faults.test_isolation import (
    ATLAS,
    CALLERS,
    EVERYWHERE,
    NOBODYS,
    PROJECTS,
    SAID,
    TELEGRAM,
    Who,
    World,
    folders,
    make,
    needle,
    who,
)
from tests.faults.tools import FENCE, UNSEEN, all_mean_the_same, configure, obey, turn
from tests.small import LAYOUTS, SmallHome

for package in ("apsw", "numpy"):
    pytest.importorskip(package)

ROOM = 60_000  # characters of an answer here, so that none is cut
MADE_UP = "zz-nobody"  # begins no id
OWNERS_ONLY = "Only the owner may do that, from the desktop, the TUI or a terminal."
NOT_MOVED = "Nothing is moved from chats, webhooks or scheduled runs"

# --- who types --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Typist:
    """A caller as the host tells of it when it types; `by_key`: the chat's key alone, as 0.22 does."""

    row: str
    who: Who
    by_key: bool

    @property
    def acting(self) -> str:
        """The conversation it types in, or that started it."""
        return str(self.who.row.get("parent", f"call-{self.row}"))

    @property
    def key(self) -> str:
        """Of the chat whose conversations it may read; "" for none."""
        row = {**self.who.binds, **CALLERS.get(self.acting.removeprefix("call-"), self.who).row, **self.who.row}
        return str(row.get("session_key", ""))

    @property
    def nothing(self) -> bool:
        """Whether it is a webhook, which reads nothing at all."""
        return self.key == "k-hook"

    @property
    def said(self) -> dict[str, str]:
        """What is bound: for a command no window, and a key always."""
        bound = {name: value for name, value in self.who.binds.items() if name != "ui_session_id"}
        named = {} if self.by_key else {"session_id": f"call-{self.row}"}
        return {"session_key": f"call-{self.row}", **bound, **named}

    @property
    def chats(self) -> set[str]:
        """What was said in its own chat, in Home too."""
        said = {name for name, (_, row) in SAID.items() if self.key and row.get("session_key") == self.key}
        return set() if self.nothing else said

    @property
    def own(self) -> set[str]:
        """The ids of what a chat may read: its own conversations and the one that types."""
        if self.nothing:
            return set()
        theirs = {f"call-{name}" for name, c in CALLERS.items() if self.key and c.row.get("session_key") == self.key}
        return {self.acting, *theirs, *(f"id-{said}" for said in self.chats)}


WHO = {
    **CALLERS,
    # Where no window is bound the row decides.
    "desktop that goes on with a chat": who(
        "atlas", "explicit", {"zhao"}, owner=False, binds={"source": "desktop"}, **TELEGRAM["zhao"]
    ),
}
TYPISTS = {
    **{name: Typist(name, caller, by_key=False) for name, caller in WHO.items()},
    **{
        f"{name}, by its key": Typist(name, caller, by_key=True)
        for name, caller in WHO.items()
        if caller.binds.get("session_key") and caller.row.get("session_key")
    },
}
CHATS = [name for name, typist in TYPISTS.items() if not typist.who.owner]
OWNERS = [name for name, typist in TYPISTS.items() if typist.who.owner]
each_typist = pytest.mark.parametrize("name", TYPISTS)
each_chat = pytest.mark.parametrize("name", CHATS)
each_owner = pytest.mark.parametrize("name", OWNERS)

BOUND = {name: ContextVar[str](name) for name in ("HERMES_SESSION_KEY", "HERMES_SESSION_PLATFORM")}


def type_in(home: SmallHome, raw: str, **said: str) -> str:
    """The answer to a command; `said` is what the host binds to it, by the names of `scope.Live`."""

    def call() -> str:
        for name, variable in BOUND.items():
            variable.set(os.environ.get(name, ""))
        return plugin.handle_slash(raw)

    def move(params: Any, deadline: float) -> Any:
        return obey(home, params)

    with turn(home.path, **said), mock.patch.object(host, "gateway_child", return_value=move):
        os.environ["HERMES_LANGUAGE"] = "en"
        os.environ.pop("_HERMES_GATEWAY", None)
        told = copy_context().run(call)
    assert told
    assert "This failed" not in told
    assert not UNSEEN.search(told)
    assert not FENCE.search(told)
    return told


@dataclass(frozen=True, slots=True)
class Room:
    """A world in which people type."""

    world: World

    def type(self, name: str, raw: str) -> str:
        """What somebody is answered, once nothing of others is seen to be told."""
        typist, home = TYPISTS[name], self.world.home
        if typist.by_key:  # the newest conversation of a chat stands for it
            home.write(
                "UPDATE sessions SET started_at = (SELECT max(started_at) + 1 FROM sessions) WHERE id = ?",
                [(f"call-{typist.row}",)],
            )
        told = type_in(home, raw, **typist.said)
        if not typist.who.owner:
            self.tells_of_itself_alone(typist, told, raw)
        return told

    def tells_of_itself_alone(self, typist: Typist, told: str, raw: str) -> None:
        """No word, id, title or name of another conversation, no other project, no path."""
        others = (set(SAID) | NOBODYS) - typist.chats
        secrets = [secret for n in others for secret in (needle(n), f"title-{n}.", f"chat-{n}.", f"id-{n}")]
        secrets += ["Nested", "Harbour", "repository", "plain", "p_", str(self.world.home.path.parent)]
        assert not [secret for secret in secrets if secret in told and secret not in raw], told
        assert {i for i in ids_told(told) if i not in raw} <= typist.own, told
        if typist.nothing or not (typist.chats or typist.who.kind == "explicit"):
            assert "Atlas" not in told or "Atlas" in raw

    def refuses(self, name: str, command: str) -> Callable[[str], str]:
        """What a command with `{}` for an id or a name must tell of a given one: what it tells of one made up."""
        told = self.type(name, command.format(MADE_UP))
        assert not found(told)
        return lambda given: told.replace(MADE_UP, given)


def ids_told(told: str) -> set[str]:
    """The ids among the columns."""
    columns = [column.partition("#")[0] for line in told.splitlines() for column in line.split("  ")]
    return {column for column in columns if column.startswith(("id-", "call-"))}


def said_there(told: str) -> set[str]:
    """The conversations of people in an owner's list."""
    return {i.removeprefix("id-") for i in ids_told(told) if i.startswith("id-")} - NOBODYS


def found(told: str) -> set[str]:
    """The conversations whose words stand in an answer."""
    return {name for name in (*SAID, *NOBODYS, "p2") if needle(name) in told}


@pytest.fixture(scope="module", autouse=True)
def uncut() -> Iterator[None]:
    """Answers of any length, and half of the time they take."""
    with (
        all_mean_the_same(),
        mock.patch.object(slash, "LONGEST", ROOM),
        mock.patch.object(slash, "READ_CHARS", ROOM),
        mock.patch.object(slash, "MOST_ROWS", 99),
        # A call looks in vain for Hermes many times, and reads as YAML what `configure` writes as JSON.
        mock.patch.object(host, "_probe", return_value=None),
        mock.patch.object(host, "_yaml", lambda path: json.loads(path.read_text("utf-8"))),
    ):
        yield


@pytest.fixture(scope="module", params=LAYOUTS)
def every(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Room:
    """One of each layout."""
    return Room(make(tmp_path_factory.mktemp("commands"), request.param))


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Room:
    """For what the layout makes no difference to."""
    return Room(make(tmp_path_factory.mktemp("commands"), LAYOUTS[-1]))


# One of each kind: the owner's, here, in another project and in Home; chats, here and in Home; nobody's.
ASKED = [
    "atlas", "nested", "nowhere", "lin", "zhao", "group", "hook", "lin at home", "zhao at home", "subagent", "hidden",
]  # fmt: skip


def asked_of(typist: Typist) -> list[str]:
    """Of an owner every other one: those are all its own."""
    return ASKED[::2] if typist.who.owner else ASKED


# --- search -----------------------------------------------------------------------------------------


@each_typist
def test_each_typist_finds_its_own_and_no_more(every: Room, name: str) -> None:
    typist = TYPISTS[name]
    # What nobody said is found by its meaning alone.
    for words, mode in (("heron", "keyword"), ("heron", "hybrid"), ("unsaid", "semantic")):
        told = every.type(name, f"search {words} --mode {mode} --limit 20")
        assert found(told) == typist.who.finds, mode
        assert (told == OWNERS_ONLY) == typist.nothing


@each_typist
def test_a_conversation_is_searched_by_those_who_may_read_it(room: Room, name: str) -> None:
    typist, command = TYPISTS[name], 'search heron --mode keyword --session "{}"'
    refused = room.refuses(name, command)
    for said in asked_of(typist):
        told = room.type(name, command.format(f"id-{said}"))
        # Which project an owner stands in does not matter when it names one; what has no project is not searched.
        may = said in EVERYWHERE if typist.who.owner else said in typist.who.finds
        assert found(told) == ({said} if may else set()), said
        if not typist.who.owner and said not in typist.chats:
            assert told == refused(f"id-{said}"), "as if it did not exist"


@each_owner
def test_an_owner_names_another_project(room: Room, name: str) -> None:
    paths = {n: str(room.world.work / n) for n in ("repository", "plain")}
    for project, said in PROJECTS.items():
        assert found(room.type(name, f"search heron --mode keyword --limit 20 --project {project}")) == said
        listed = room.type(name, f"sessions --project {paths.get(project, project.upper())}")
        assert said_there(listed) == said - {"archived"}


@each_chat
def test_a_chat_names_no_project_and_is_not_told_which_exist(room: Room, name: str) -> None:
    for command in ("search heron --project {}", "sessions --project {}"):
        refused = room.refuses(name, command)
        assert "leave `project` out" in refused("") or TYPISTS[name].nothing
        for project in ("Atlas", "p_nested", str(room.world.work / "plain"), "home"):
            assert room.type(name, command.format(project)) == refused(project)


# --- show -------------------------------------------------------------------------------------------


@each_typist
def test_a_conversation_is_shown_whole_to_those_who_may_read_it(room: Room, name: str) -> None:
    typist, command = TYPISTS[name], 'show "{}"'
    refused = room.refuses(name, command)
    for said in asked_of(typist):
        told = room.type(name, command.format(f"id-{said}"))
        if typist.who.owner or said in typist.chats:
            assert found(told) == {said}
            assert told.count(needle(said)) == 2, "with what lies beside it"
        else:
            assert told == refused(f"id-{said}"), "as if it did not exist"


@each_chat
def test_no_message_is_shown_by_its_number_where_it_does_not_stand(room: Room, name: str) -> None:
    typist, last = TYPISTS[name], {said: row for row, said in room.world.messages.items()}
    own = min(typist.own, default="call-chat")
    for said in ("atlas", "lin", "zhao at home", "hidden"):
        for at in (f"id-{said}", own):
            told = room.type(name, f'show "{at}#{last[said]}"')
            if said in typist.chats and at == f"id-{said}":
                assert found(told) == {said}
            else:
                assert not found(told)
                made_up = room.type(name, f'show "{at}#987654"')
                assert told == made_up.replace("987654", str(last[said])), "as if it did not exist"


def test_what_was_taken_back_is_shown_to_nobody(room: Room) -> None:
    (row,) = [row for row, said in room.world.messages.items() if said == "taken back"]
    assert found(room.type("explicit project", "show id-atlas")) == {"atlas"}
    assert "holds no message" in room.type("explicit project", f"show id-atlas#{row}")


@each_typist
def test_what_one_types_in_is_shown_without_an_id(room: Room, name: str) -> None:
    typist, told = TYPISTS[name], room.type(name, "show")
    assert ids_told(told) == (set() if typist.nothing else {typist.acting})


@each_chat
def test_the_beginning_of_many_ids_is_that_of_a_chats_own(room: Room, name: str) -> None:
    typist = TYPISTS[name]
    for raw in ("show id-", "search heron --session id-"):
        told = room.type(name, raw)
        assert ids_told(told) - {"id-"} <= {f"id-{said}" for said in typist.chats}
        assert (f"{len(typist.chats)} conversations begin with 'id-'" in told) == (len(typist.chats) > 1)


# --- sessions and status ----------------------------------------------------------------------------


@each_typist
def test_sessions_lists_a_chats_own_and_an_owners_project(every: Room, name: str) -> None:
    typist, told = TYPISTS[name], every.type(name, "sessions")
    if typist.who.owner:
        all_of_it = set(SAID) - NOBODYS if typist.who.kind == "home" else typist.who.finds
        assert said_there(told) == all_of_it - {"archived"}
    else:
        assert ids_told(told) == typist.own
        assert (told == OWNERS_ONLY) == typist.nothing


@each_typist
def test_status_counts_a_chats_own_and_all_of_an_owners(room: Room, name: str) -> None:
    typist, told = TYPISTS[name], room.type(name, "status")
    if typist.who.owner:
        assert all(f"\n{project} " in told for project in PROJECTS)
    elif typist.nothing:
        assert told == OWNERS_ONLY
    else:
        assert told == f"This chat's stored conversations: {len(typist.own)}."


def test_a_compressed_conversation_of_a_chat_is_listed_once_by_its_newest_row(tmp_path: Path) -> None:
    home = SmallHome(tmp_path / "home")
    configure(home)
    home.session("first", title="About tea", end_reason="compression", **TELEGRAM["lin"])
    home.say("first", "the kettle")
    home.session("second", title="About\ttea, again", parent="first", **TELEGRAM["lin"])
    home.session("other", **TELEGRAM["lin"])
    chat = TYPISTS["chat, by its key"].said
    assert type_in(home, "sessions", **chat) == "other  (no title)\nsecond  About tea, again"
    for words in ("kettle", "AGAIN tea", "first"):
        assert type_in(home, f"sessions {words}", **chat) == "second  About tea, again"


def test_more_than_is_listed_is_told(tmp_path: Path) -> None:
    home = SmallHome(tmp_path / "home")
    configure(home)
    for number in range(4):
        home.session(f"s{number}", title=f"tea {number}", **TELEGRAM["lin"])
    with mock.patch.object(slash, "MOST_ROWS", 3):
        told = type_in(home, "sessions", **TYPISTS["chat, by its key"].said).splitlines()
        assert told[3:] == ["3 of 4 shown; words of a title or a message narrow it."]
        assert len(type_in(home, "sessions tea", **TYPISTS["chat, by its key"].said).splitlines()) == 4


def test_an_owner_is_told_which_words_come_from_chats(room: Room) -> None:
    told = room.type("explicit project", "search heron --mode keyword --limit 20").splitlines()
    for name in (*TELEGRAM, "atlas"):
        (head,) = [line for line in told if line.startswith(f"id-{name}#")]
        shown = room.type("explicit project", f"show id-{name}").splitlines()[0]
        for line in (head, shown):
            assert line.endswith(f"chat-{name}.)") == (name in TELEGRAM), line


def test_a_chat_that_names_a_conversation_of_its_own_elsewhere_is_not_told_of_projects(tmp_path: Path) -> None:
    """It named none, so it is not told to leave one out."""
    world = make(tmp_path, LAYOUTS[-1])
    world.home.session("mine", cwd=str(world.work / "harbour"), **TELEGRAM["lin"])
    world.home.say("mine", "a heron of my own")
    told = type_in(world.home, "search heron --session mine", **TYPISTS["chat"].said)
    assert "leave `project` out" not in told
    assert "Harbour" not in told


@each_chat
def test_words_find_a_chats_own_conversations_and_say_nothing_of_others_or_of_the_disk(room: Room, name: str) -> None:
    typist = TYPISTS[name]
    nothing = OWNERS_ONLY if typist.nothing else "No conversation found."
    for said in ("lin", "zhao at home", "group", "atlas"):
        for words in (f"title-{said}.", needle(said)):  # in a title, in what was said first
            told = room.type(name, f"sessions {words}")
            assert ids_told(told) == ({f"id-{said}"} if said in typist.chats else set())
            assert said in typist.chats or told == nothing
    for words in (str(room.world.work), "atlas", "Atlas", "p_atlas"):
        assert room.type(name, f"sessions {words}") == nothing


# --- what changes something -------------------------------------------------------------------------


@each_typist
def test_a_conversation_is_moved_by_owners_only_and_only_one_that_they_may_read(room: Room, name: str) -> None:
    typist, before = TYPISTS[name], folders(room.world)
    refused = room.refuses(name, 'move "{}" Harbour')
    for said in ("deep", "zhao at home", "subagent", "hidden"):
        told = room.type(name, f'move "id-{said}" Harbour')
        if typist.who.moves and said not in NOBODYS:
            assert f"id-{said} moved: " in told
            assert folders(room.world) == {**before, f"id-{said}": str(room.world.work / "harbour")}
            room.world.home.write("UPDATE sessions SET cwd = ? WHERE id = ?", [(before[f"id-{said}"], f"id-{said}")])
        elif typist.who.owner:
            assert "subagent moves nothing" in told or "No conversation you may read" in told
        else:
            assert told == refused(f"id-{said}"), "whether it exists or not"
            assert told.startswith(NOT_MOVED) or told == OWNERS_ONLY
        assert folders(room.world) == before
    for raw in ("move Harbour", "move --undo"):
        told = room.type(name, raw)
        assert typist.who.owner or told.startswith(NOT_MOVED) or told == OWNERS_ONLY
        assert folders(room.world) == before


@each_chat
def test_a_chat_drops_no_vectors_whatever_it_names(room: Room, name: str) -> None:
    room.type("explicit project", "search heron")
    before = status.look(room.world.home.path).conversations
    assert {"id-atlas", "id-lin"} <= set(before)
    for what in ("--all", "--all --yes", "--project Atlas --yes", f"--project {MADE_UP}"):
        assert room.type(name, f"forget {what}") == OWNERS_ONLY
    assert status.look(room.world.home.path).conversations == before


@pytest.mark.parametrize("name", ["explicit project", "home", "owner's chat, by its key"])
def test_an_owner_drops_the_vectors_of_the_project_named(room: Room, name: str) -> None:
    room.type("nested project", "search heron")
    room.type(name, "search heron --project Atlas")
    assert "project 'Atlas'" in room.type(name, "forget --project Atlas")
    assert {"id-atlas", "id-nested"} <= set(status.look(room.world.home.path).conversations)
    assert room.type(name, "forget --project Atlas --yes").startswith("Dropped")
    left = set(status.look(room.world.home.path).conversations)
    assert "id-nested" in left
    assert not left & {f"id-{said}" for said in ATLAS}


# --- what may be sent -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Remote:
    """A room with an endpoint elsewhere, to which Atlas may be sent and Nested not yet."""

    room: Room
    asked: str  # the id of the request that stands open

    def grants(self) -> dict[str, bytes]:
        folder = host.data_folder(self.room.world.home.path)
        return {str(path): path.read_bytes() for path in folder.rglob("*.json")}


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Remote:
    room = Room(make(tmp_path_factory.mktemp("remote"), LAYOUTS[-1]))
    home = room.world.home
    endpoint = {"embedding_base_url": "https://embeddings.example/v1", "embedding_model": "a-model"}
    configure(home, embedding_provider="endpoint", owner_chats=["telegram:4100"], **endpoint)
    with turn(home.path):
        place = host.current()
        assert place.settings.endpoint
        with scope.reading(place, time.monotonic() + 9) as (_, everywhere):
            wanted = agreement.requests(place.settings.endpoint, agreement.grants_of(place), everywhere)
    asked = {request.project.name: request.id for request in wanted}
    assert room.type("explicit project", f"allow {asked['Atlas']}").startswith("Agreed")
    return Remote(room, asked["Nested"])


@each_chat
def test_a_chat_agrees_to_nothing_and_takes_nothing_back(remote: Remote, name: str) -> None:
    before = remote.grants()
    assert before
    for raw in (
        f"allow {remote.asked}", "allow 0123abcd", "consent list", "consent revoke --all",
        "consent revoke --project Atlas", f"consent revoke --project {MADE_UP}",
    ):  # fmt: skip
        assert remote.room.type(name, raw) == OWNERS_ONLY, raw
    assert remote.grants() == before
    for raw in ("status", "search heron --mode keyword"):
        told = remote.room.type(name, raw)
        assert "embeddings.example" not in told
        assert remote.asked not in told


@each_owner
def test_an_owner_agrees_and_takes_it_back_unless_a_subagent_would(remote: Remote, name: str) -> None:
    room, before = remote.room, remote.grants()
    assert "embeddings.example" in room.type(name, "consent list")
    told = room.type(name, f"allow {remote.asked}")
    person = TYPISTS[name].who.moves and "api server" not in name  # where no person types
    assert told.startswith("Agreed" if person else "Only a person")
    assert (remote.grants() != before) == person
    assert room.type(name, "consent revoke --project Nested") == (
        f"Grants revoked: {int(person)}. Nothing more is sent."
    )
    assert remote.grants() == before


# --- who cannot be told -----------------------------------------------------------------------------

EVERYTHING = [
    "", "help", "search heron --project Atlas", 'search heron --session "id-lin"', "status", "sessions", "show",
    "show id-atlas", "show id-atlas#1", "move id-atlas Harbour", "move --undo", "forget --all --yes",
    "consent list", "consent revoke --all", "allow 0123abcd", "dance",
]  # fmt: skip


def type_on_the_gateways_loop(home: SmallHome, raw: str, **said: str) -> str:
    async def dispatch() -> str:
        return type_in(home, raw, **said)

    return asyncio.run(dispatch())


def type_beside_a_gateway(home: SmallHome, raw: str) -> str:
    gateway = types.ModuleType("gateway.run")
    gateway._gateway_runner_ref = object  # type: ignore[attr-defined]
    with mock.patch.dict(sys.modules, {"gateway.run": gateway}):
        return type_in(home, raw)


def test_a_sender_nobody_knows_is_answered_help_and_the_same_help_to_everything(room: Room) -> None:
    """Chats of 0.19 and 0.20; what is bound on the gateway's loop is of another message."""
    home, before, told = room.world.home, folders(room.world), set[str]()
    for raw in EVERYTHING:
        told |= {type_on_the_gateways_loop(home, raw), type_beside_a_gateway(home, raw)}
        told |= {type_on_the_gateways_loop(home, raw, **TYPISTS[name].said) for name in ("desktop", "owner's chat")}
    (only,) = told
    assert only.startswith("This version of Hermes does not say who typed this here, so only help is answered.")
    assert all(command.usage in only for command in slash.COMMANDS.values())
    assert not found(only)
    assert folders(room.world) == before


def test_an_owner_whose_conversation_nobody_names_names_it(room: Room) -> None:
    """A terminal, and the windows of 0.19 and 0.20."""
    home, before = room.world.home, folders(room.world)
    asked = type_in(home, "search heron")
    assert not found(asked)
    assert all(project in asked for project in PROJECTS)
    assert type_in(home, "show") == "Give the conversation's id: show ID."
    for raw in ("move Harbour", "move --undo"):
        assert "give its id" in type_in(home, raw)
    assert folders(room.world) == before
    for project, theirs in PROJECTS.items():
        assert found(type_in(home, f"search heron --limit 20 --project {project}")) == theirs
    for said in EVERYWHERE:
        assert found(type_in(home, f'search heron --session "id-{said}"')) == {said}
    assert found(type_in(home, "show id-zhao")) == {"zhao"}
    assert "No conversation you may read" in type_in(home, "search heron --session id-hidden")


@pytest.mark.parametrize("name", ["chat, by its key", "group, by its key", "webhook, by its key"])
def test_a_chat_of_which_nothing_is_stored_is_told_that_whatever_it_types(room: Room, name: str) -> None:
    stranger = {**TYPISTS[name].said, "session_key": "k-stranger", "user_id": "1"}
    for raw in EVERYTHING[2:-1]:
        assert type_in(room.world.home, raw, **stranger) == "Nothing of this chat is stored yet.", raw


# --- the other profile, and a home that cannot be read ----------------------------------------------


def test_profiles_never_mix(room: Room) -> None:
    """The same folder, the same ids and the same chat, in another profile."""
    world = room.world
    other = SmallHome(world.home.path / "profiles" / "p2", world.home.layout)
    other.project("p_atlas", "Atlas", str(world.work / "atlas"))
    other.session("id-atlas", cwd=str(world.work / "atlas"))
    other.session("id-chat", cwd=str(world.work / "atlas"), **TELEGRAM["lin"])
    for session in ("id-atlas", "id-chat"):
        other.talk(session, f"the heron of {needle('p2')}", f"beside {needle('p2')}")
    configure(other, embedding_provider="local")
    chat = TYPISTS["chat, by its key"].said
    for said in ({}, {"session_id": "id-atlas", "session_key": "id-atlas", "source": "tui"}, chat):
        for mode in ("keyword", "semantic", "hybrid"):
            project = "" if said else " --project Atlas"
            assert found(type_in(other, f"search heron --mode {mode}{project}", **said)) == {"p2"}
        assert ids_told(type_in(other, "sessions", **said)) <= {"id-atlas", "id-chat"}
        for written in ("id-deep", "@session:default/id-deep"):
            for command in ("search heron --session", "show"):
                assert "No conversation" in type_in(other, f"{command} {written}", **said)
        assert found(type_in(other, "show id-chat", **said)) == {"p2"}
    assert "No conversation" in type_in(other, "move id-deep Atlas")
    assert "p2" not in found(room.type("explicit project", "search heron --limit 20"))
    assert "p2" not in found(room.type("chat, by its key", "search heron --limit 20"))


def test_a_home_that_cannot_be_read_says_so_without_its_path(tmp_path: Path) -> None:
    home = SmallHome(tmp_path / "home")
    configure(home)
    home.state.write_bytes(b"junk" * 999)
    for raw in EVERYTHING[2:-1]:
        told = type_in(home, raw, **TYPISTS["chat, by its key"].said)
        assert "state.db is damaged" in told
        assert str(tmp_path) not in told
