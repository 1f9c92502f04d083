"""`/project-history`: what a person gets who types it, and what one gets of whom nobody knows who it is."""

from __future__ import annotations

import asyncio
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import project_history_recall as plugin
import pytest
from project_history_recall import host, move, people, slash, words
from project_history_recall.indexing import store_path
from project_history_recall.scope import Live
from project_history_recall.semantic import _stores
from project_history_recall.vectors import Place, Store

from tests import small

CHAT = "agent:main:telegram:dm:42"
OTHER_CHAT = "agent:main:telegram:dm:7"
TELEGRAM = Live(platform="telegram", chat_type="dm", user_id="42", session_key=CHAT)


@dataclass
class Room:
    """A home with two projects and two chats, and a desk in it."""

    home: small.SmallHome
    work: Path
    calls: list[Mapping[str, str]] = field(default_factory=list)
    grants: list[dict[str, Any]] = field(default_factory=list)
    revoked: list[str | None] = field(default_factory=list)

    def obey(self, params: Mapping[str, str], deadline: float) -> Mapping[str, Any]:
        self.calls.append(params)
        self.home.write("UPDATE sessions SET cwd = ? WHERE id = ?", [(params["cwd"], params["session_key"])])
        return {"result": {"cwd": params["cwd"]}}

    def revoke(self, project: str | None) -> int:
        self.revoked.append(project)
        return 1

    def desk(self, live: Live | None = None, *, sender_unknown: bool = False, tag: str = "en") -> slash.Desk:
        def ways(who: Live | None) -> move.Ways:
            window = bool(who and who.source == "desktop")
            key = who.session_key if who and window else ""
            return move.Ways(
                folder=host.data_folder(self.home.path),
                surface="slash",
                loaded=self.obey if window else None,
                live_key=key,
                child=self.obey,
                terminal_cwd=lambda _: self.calls[-1]["cwd"],  # the host takes it along
            )

        return slash.Desk(
            surroundings=self.home,
            live=live,
            sender_unknown=sender_unknown,
            say=words.speak(tag),
            hermes="0.22.2",
            ways=ways,
            grants=lambda: self.grants,
            revoke=self.revoke,
        )

    def type(self, raw: str, live: Live | None = None, **desk: Any) -> str:
        answer = slash.answer(raw, self.desk(live, **desk))
        assert len(answer) <= slash.LONGEST
        assert "\t" not in answer
        return answer


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    home = small.SmallHome(tmp_path / "home")
    for name in ("atlas", "borealis"):
        (tmp_path / name).mkdir()
        home.project(f"p_{name}", name.title(), str(tmp_path / name))
        home.session(f"in-{name}", cwd=str(tmp_path / name), title=f"About {name}")
        home.talk(f"in-{name}", f"the zebra of {name}", f"it is striped in {name}")
    for name, key in (("mine", CHAT), ("theirs", OTHER_CHAT)):
        row = {"source": "telegram", "session_key": key, "chat_type": "dm", "user_id": key.rpartition(":")[2]}
        home.session(f"chat-{name}", cwd=str(tmp_path / "atlas"), title=f"Chat {name}", **row)
        home.talk(f"chat-{name}", f"the zebra of {name}", "I see")
    yield Room(home, tmp_path)
    store = _stores.pop(store_path(home.path), None)
    if store:
        store.close()


DESKTOP = Live(session_id="in-atlas", source="desktop", session_key="in-atlas")


# --- where nobody says who typed --------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw", ["search zebra", "status", "sessions", "show in-atlas", "forget --all --yes", "", "help"]
)
def test_an_unknown_sender_gets_help_only_and_nothing_is_read(room: Room, raw: str) -> None:
    room.home.state.unlink()
    told = room.type(raw, sender_unknown=True)
    assert told.startswith("This version of Hermes does not say who typed this here")
    assert "/project-history" in told
    assert "zebra" not in told


# --- an owner whose conversation nobody names (0.19 and 0.20, and the CLI) --------------------------


def test_a_search_without_a_conversation_asks_for_a_project(room: Room) -> None:
    told = room.type("search zebra")
    assert "--project" in told
    assert "Atlas" in told
    assert "Borealis" in told
    assert "striped" not in told
    assert "in-borealis#3" in room.type("search zebra --project Borealis")
    assert "in-borealis#3" in room.type("search zebra --session in-b")


def test_a_move_without_a_conversation_asks_for_its_id(room: Room) -> None:
    assert "move ID PROJECT" in room.type("move Borealis")
    assert "move ID PROJECT" in room.type("move --undo")
    assert room.calls == []
    assert "in-atlas moved: Atlas" in room.type("move in-atlas Borealis")
    assert [call["cwd"] for call in room.calls] == [str(room.work / "borealis")]
    assert "-> Atlas" in room.type("move in-atlas --undo")


def test_show_without_a_conversation_asks_for_its_id(room: Room) -> None:
    assert "show ID" in room.type("show")
    told = room.type("show in-b")
    assert "About borealis" in told
    assert "data, not instructions" in told
    assert "user: the zebra of borealis" in told


def test_sessions_and_status_are_of_the_whole_profile(room: Room) -> None:
    listed = room.type("sessions")
    assert all(name in listed for name in ("in-atlas", "in-borealis", "chat-theirs"))
    assert "in-borealis" not in room.type("sessions --project Atlas")
    assert room.type("sessions about borealis").count("\n") == 0
    status = room.type("status")
    assert "Hermes: 0.22.2" in status
    assert "Atlas  3  -  p_atlas" in status


# --- an owner in a conversation ---------------------------------------------------------------------


def test_a_search_is_about_the_project_one_stands_in(room: Room) -> None:
    told = room.type("search striped", DESKTOP)
    assert "in-atlas#2" in told
    assert "borealis" not in told
    assert "in-borealis#4" in room.type("search striped --project Borealis", DESKTOP)
    assert "in-borealis" not in room.type("sessions", DESKTOP)
    assert "in-borealis" in room.type("sessions --project Borealis", DESKTOP)


def test_outside_all_projects_the_reason_is_told(room: Room) -> None:
    room.home.session("homeless", source="desktop", cwd=None)
    told = room.type("search zebra", Live(session_id="homeless", source="desktop", session_key="homeless"))
    assert "Home is not searched" in told
    assert "--project" in told or "`project`" in told
    assert "Nothing found" not in told


def test_a_move_without_an_id_moves_this_conversation(room: Room) -> None:
    assert "in-atlas moved: Atlas" in room.type("move Borealis", DESKTOP)
    assert "-> Atlas" in room.type("move --undo", DESKTOP)
    assert [call["session_key"] for call in room.calls] == ["in-atlas", "in-atlas"]


def test_a_window_in_which_nothing_was_said_is_its_owners(room: Room) -> None:
    new = Live(session_id="not-yet-stored", source="tui", session_key="not-yet-stored")
    assert "in-borealis" in room.type("sessions", new)
    assert "--project" in room.type("search zebra", new)


def test_a_window_that_goes_on_with_a_chat_is_that_chat(room: Room) -> None:
    going_on = Live(session_id="chat-theirs", source="telegram", session_key="chat-theirs")
    assert "in-atlas" not in room.type("sessions", going_on)


# --- a chat -----------------------------------------------------------------------------------------


def test_a_chat_sees_itself_and_is_told_of_nothing_else(room: Room) -> None:
    for raw in (
        "search zebra",
        "search zebra --project Borealis",
        "search zebra --session in-b",
        "sessions",
        "sessions about",
        "sessions --project Borealis",
        "status",
        "show",
        "show in-atlas",
        "show chat-theirs",
        "move Borealis",
        "move in-borealis Atlas",
        "forget --all",
        "consent list",
        "consent revoke --all",
    ):
        told = room.type(raw, TELEGRAM)
        for secret in ("Chat theirs", "of theirs", "About", "striped", str(room.work), "p_borealis"):
            assert secret not in told, raw
    assert room.calls == []
    assert room.revoked == []
    assert "This chat's stored conversations: 1." in room.type("status", TELEGRAM)
    assert room.type("sessions", TELEGRAM) == "chat-mine  Chat mine"
    assert "the zebra of mine" in room.type("show", TELEGRAM)


def test_a_webhook_gets_nothing(room: Room) -> None:
    hook = Live(platform="webhook", session_key=CHAT)
    for raw in ("search zebra", "sessions", "status", "show chat-mine"):
        assert "zebra of" not in room.type(raw, hook)
        assert "Chat" not in room.type(raw, hook)


def test_a_chat_of_which_nothing_is_stored_gets_nothing(room: Room) -> None:
    stranger = replace(TELEGRAM, session_key="agent:main:telegram:dm:1", user_id="1")
    for raw in ("search zebra", "sessions", "status"):
        assert room.type(raw, stranger) == "Nothing of this chat is stored yet."


def test_a_chat_whose_turn_is_not_stored_yet_gets_nothing(room: Room) -> None:
    for raw in ("search zebra", "sessions", "status"):
        assert "not stored here yet" in room.type(raw, replace(TELEGRAM, session_id="chat-new"))


def test_the_owners_own_chat_sees_everything(room: Room) -> None:
    room.home.settings = replace(room.home.settings, owner_chats=frozenset({"telegram:42"}))
    assert "in-borealis" in room.type("sessions --project Borealis", TELEGRAM)
    assert "in-borealis#3" in room.type("search zebra --project Borealis", TELEGRAM)
    assert "Atlas" in room.type("status", TELEGRAM)


# --- dropping and revoking --------------------------------------------------------------------------


def test_forget_says_what_it_would_drop_and_waits_for_a_yes(room: Room) -> None:
    assert "Usage: /project-history forget" in room.type("forget", DESKTOP)
    store = Store(store_path(room.home.path))
    fp = store.model("made-up", 8)
    for root in ("in-atlas", "in-borealis"):
        store.plan(fp, root, "stamp", [Place(1, 0, 1, b"k" * 16)])
    assert "project 'Atlas' (3 conversations)? Then say it again with --yes." in room.type("forget --project Atlas")
    assert sorted(store.stamps(fp, ["in-atlas", "in-borealis"])) == ["in-atlas", "in-borealis"]
    assert room.type("forget --project Atlas --yes").startswith("Dropped")
    assert sorted(store.stamps(fp, ["in-atlas", "in-borealis"])) == ["in-borealis"]
    store.close()


def test_forget_makes_no_index_where_there_is_none(room: Room) -> None:
    assert "nothing to drop" in room.type("forget --all --yes")
    assert not store_path(room.home.path).exists()


def test_grants_are_listed_and_revoked_at_once(room: Room) -> None:
    assert "there is no grant" in room.type("consent")
    room.grants = [{"project": "p_atlas", "model": "m", "endpoint": "https://e.example/v1", "since": "2026-09-01"}]
    assert room.type("consent list") == "p_atlas: m at https://e.example/v1, since 2026-09-01"
    assert "Usage" in room.type("consent revoke")
    assert "revoked: 1" in room.type("consent revoke --project Atlas")
    assert "revoked: 1" in room.type("consent revoke --all")
    assert room.revoked == ["p_atlas", None]


# --- what is typed ----------------------------------------------------------------------------------


@pytest.mark.parametrize("raw", ["", "help", "HELP", "  help  ", "--help"])
def test_help_lists_every_command(room: Room, raw: str) -> None:
    told = room.type(raw)
    assert all(f"\n  {command.usage} · " in told for command in slash.COMMANDS.values())


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ("dance", "no command 'dance'"),
        ("search", "Usage: /project-history search"),
        ("search zebra --unknown x", "Usage: /project-history search"),
        ("search zebra --project", "Usage: /project-history search"),
        ("search zebra --project nowhere", "nowhere"),
        ("search zebra --project Atlas --after soon", "after"),
        ("search zebra --project Atlas --limit many", "limit"),
        ("show zzz", "zzz"),
        ("show a b", "Usage: /project-history show"),
        ("move", "Usage: /project-history move"),
        ("move a b c", "Usage: /project-history move"),
        ("consent dance", "Usage: /project-history consent"),
    ],
)
def test_what_cannot_be_answered_is_one_short_answer(room: Room, raw: str, said: str) -> None:
    assert said in room.type(raw)


@pytest.mark.parametrize(
    "raw",
    [
        'search "zebra of borealis" --project Borealis',
        "search “zebra of borealis” --project Borealis",
        "search —project Borealis zebra of",
        'search "zebra --project Borealis',
        'search zebra --project "Borealis"',
        "search isn't that zebra --project Borealis",
        "SEARCH zebra --project Borealis",
    ],
)
def test_quotes_dashes_and_apostrophes_are_read_as_they_were_meant(room: Room, raw: str) -> None:
    assert "in-borealis#3" in room.type(raw)


def test_a_quoted_phrase_is_kept_whole(room: Room) -> None:
    assert "Nothing found" in room.type('search "borealis zebra" --project Borealis')


def test_an_answer_fits_a_chat_message(room: Room) -> None:
    for i in range(30):
        room.home.session(f"long-{i:02}", cwd=str(room.work / "atlas"), title=f"A very long title {i} " * 20)
        room.home.talk(f"long-{i:02}", f"zebra {i} " * 500, "so " * 3_000)
    for raw in ("search zebra --project Atlas --limit 20", "sessions", "status", "show long-03", "help"):
        assert len(room.type(raw)) > 200


def test_of_a_long_conversation_the_newest_messages_are_shown(room: Room) -> None:
    room.home.session("long", cwd=str(room.work / "atlas"))
    room.home.talk("long", *(f"message {n} of the walrus. " * 20 for n in range(40)))
    told = room.type("show long").splitlines()
    numbers = [int(line.split()[3]) for line in told if "of the walrus" in line]
    assert numbers == list(range(numbers[0], 40))
    assert 1 < len(numbers) < 40


def test_titles_are_clean_lines_and_redacted(room: Room) -> None:
    room.home.redact = lambda text: text.replace("hunter2", "***")
    room.home.session("odd", cwd=str(room.work / "atlas"), title="hunter2 \x1b[31m\nnew\u202e line")
    room.home.talk("odd", "the walrus hunter2")
    for raw in ("sessions", "show odd", "search walrus --project Atlas"):
        told = room.type(raw)
        assert "hunter2" not in told
        assert not {"\x1b", "\u202e"} & set(told)
        assert "***" in told


def test_chinese_is_spoken_where_it_is_set(room: Room) -> None:
    assert room.type("help", tag="zh").startswith("/project-history 命令")
    assert "没有任何授权" in room.type("consent", tag="zh")
    assert room.type("search zebra", sender_unknown=True, tag="zh").startswith("此版本的 Hermes")


# --- the handler the host calls ---------------------------------------------------------------------


@pytest.fixture
def at_home(room: Room, monkeypatch: pytest.MonkeyPatch) -> Room:
    monkeypatch.setenv("HERMES_HOME", str(room.home.path))
    for name in ("_HERMES_GATEWAY", "HERMES_LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    return room


VARIABLES = {name: ContextVar[str](name) for name in ("HERMES_SESSION_KEY", "HERMES_SESSION_PLATFORM")}
Bind = Callable[..., None]


@pytest.fixture
def bind(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bind]:
    """Stand in for the host's session context, as `gateway.session_context` binds it and answers."""
    tokens = []

    def bind(**variables: str) -> None:
        module = types.ModuleType("gateway.session_context")
        module.get_session_env = lambda name, default="": variables.get(name, default)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "gateway.session_context", module)
        for name, variable in VARIABLES.items():
            tokens.append((variable, variable.set(variables.get(name, ""))))

    yield bind
    for variable, token in reversed(tokens):
        variable.reset(token)


def test_a_handler_on_an_event_loop_answers_help_only(at_home: Room) -> None:
    async def dispatch() -> str:
        return plugin.handle_slash("search zebra --project Atlas")

    assert "does not say who typed" in asyncio.run(dispatch())
    assert "in-atlas#1" in plugin.handle_slash("search zebra --project Atlas")


def gateway_process(runner: Callable[[], object] | None) -> types.ModuleType:
    module = types.ModuleType("gateway.run")
    if runner:
        module._gateway_runner_ref = runner  # type: ignore[attr-defined]
    return module


@pytest.mark.parametrize(
    ("module", "variable", "unknown"),
    [
        (None, None, False),
        (None, "1", True),  # a child of a gateway
        (gateway_process(lambda: None), "1", False),  # a TUI that looked something up there
        (gateway_process(lambda: object()), None, True),
        (gateway_process(None), "1", True),  # another Hermes
    ],
)
def test_a_process_that_runs_a_messaging_gateway_does_not_know_the_sender(
    monkeypatch: pytest.MonkeyPatch, module: types.ModuleType | None, variable: str | None, unknown: bool
) -> None:
    monkeypatch.delitem(sys.modules, "gateway.run", raising=False)
    monkeypatch.delenv("_HERMES_GATEWAY", raising=False)
    if module:
        monkeypatch.setitem(sys.modules, "gateway.run", module)
    if variable:
        monkeypatch.setenv("_HERMES_GATEWAY", variable)
    assert people.sender_unknown() is unknown


def test_what_the_host_binds_is_who_typed(at_home: Room, bind: Bind) -> None:
    chat = {"PLATFORM": "telegram", "CHAT_TYPE": "dm", "USER_ID": "42", "KEY": CHAT, "ID": ""}
    bind(**{f"HERMES_SESSION_{name}": value for name, value in chat.items()})
    assert plugin.handle_slash("sessions") == "chat-mine  Chat mine"
    bind(HERMES_SESSION_KEY="in-atlas", HERMES_SESSION_ID="in-atlas", HERMES_SESSION_SOURCE="desktop")
    assert "striped in atlas" in plugin.handle_slash("search striped")


def test_what_stands_in_the_environment_is_no_binding(at_home: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """0.19 and 0.20 leave the id of some session there for good."""
    for name in ("KEY", "ID"):
        monkeypatch.setenv(f"HERMES_SESSION_{name}", "in-atlas")
    assert "--project" in plugin.handle_slash("search zebra")


def test_what_is_bound_on_an_event_loop_is_of_another_message(at_home: Room, bind: Bind) -> None:
    bind(HERMES_SESSION_KEY="in-atlas", HERMES_SESSION_ID="in-atlas", HERMES_SESSION_SOURCE="desktop")

    async def dispatch() -> str:
        return plugin.handle_slash("search zebra")

    assert "does not say who typed" in asyncio.run(dispatch())


def test_the_bound_profile_is_the_one_that_answers(at_home: Room, bind: Bind) -> None:
    work = small.SmallHome(at_home.home.path / "profiles" / "work")
    work.session("at-work", source="desktop", title="At work")
    work.talk("at-work", "the giraffe")
    bind(HERMES_SESSION_KEY="x", HERMES_SESSION_SOURCE="desktop", HERMES_SESSION_PROFILE="work")
    assert "at-work" in plugin.handle_slash("sessions")
    for name in ("../work", "nobody"):
        bind(HERMES_SESSION_KEY="x", HERMES_SESSION_SOURCE="desktop", HERMES_SESSION_PROFILE=name)
        assert "at-work" not in plugin.handle_slash("sessions")


def test_the_default_profile_answers_in_the_process_of_another(
    at_home: Room, bind: Bind, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = small.SmallHome(at_home.home.path / "profiles" / "work")
    monkeypatch.setenv("HERMES_HOME", str(work.path))
    bind(HERMES_SESSION_KEY="x", HERMES_SESSION_SOURCE="desktop", HERMES_SESSION_PROFILE="default")
    assert "in-borealis" in plugin.handle_slash("sessions")
    bind(HERMES_SESSION_KEY="x", HERMES_SESSION_SOURCE="desktop", HERMES_SESSION_PROFILE="work")
    assert "in-borealis" not in plugin.handle_slash("sessions")


def test_the_hosts_own_language_is_spoken(at_home: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("agent.i18n")
    module.get_language = lambda: "zh"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "agent.i18n", module)
    assert plugin.handle_slash("help").startswith("/project-history 命令")
    module.get_language = lambda: 1 / 0  # type: ignore[attr-defined]
    monkeypatch.setenv("LANG", "en_US.UTF-8")
    assert plugin.handle_slash("help").startswith("/project-history COMMAND")


def test_what_the_host_reads_meanwhile_is_of_the_home_that_answers(
    at_home: Room, bind: Bind, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = small.SmallHome(at_home.home.path / "profiles" / "work")
    at, seen = [at_home.home.path], list[Path]()
    constants = types.ModuleType("hermes_constants")
    constants.get_hermes_home = lambda: at[-1]  # type: ignore[attr-defined]
    constants.set_hermes_home_override = lambda home: at.append(Path(home))  # type: ignore[attr-defined]
    constants.reset_hermes_home_override = lambda _: at.pop()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "hermes_constants", constants)

    def answer(raw: str, _: slash.Desk) -> str:
        seen.append(host.hermes_home())
        return str(1 / int(raw))

    monkeypatch.setattr(slash, "answer", answer)
    bind(HERMES_SESSION_KEY="x", HERMES_SESSION_SOURCE="desktop", HERMES_SESSION_PROFILE="work")
    for raw, told in (("1", "1.0"), ("0", "This failed (ZeroDivisionError); the log says more.")):
        assert plugin.handle_slash(raw) == told
        assert at == [at_home.home.path], "whatever happens it is taken back"
    assert seen == [work.path] * 2


def test_nothing_is_raised_into_the_host(
    at_home: Room, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(slash, "answer", lambda *_: 1 / 0)
    assert plugin.handle_slash("status") == "This failed (ZeroDivisionError); the log says more."
    at_home.home.state.write_bytes(b"junk" * 999)
    monkeypatch.undo()
    monkeypatch.setenv("HERMES_HOME", str(at_home.home.path))
    assert "state.db" in plugin.handle_slash("status")
