"""Who may read what: every kind of caller, in every real host.

What a surface binds goes through the host's own `set_session_vars`, and each call through its registry.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demo import hosts
from tests import homes

PROJECT_WORD = "needle-chain-root"  # said by the owner, in the project all callers stand in
OWNER_CHATS = ["telegram:4100", "telegram:4101"]  # the owner's own, and Lin's; not Zhao's


@pytest.fixture(scope="module")
def home(host: hosts.Host, probe: homes.Probe, tmp_path_factory: pytest.TempPathFactory) -> homes.Home:
    base = tmp_path_factory.mktemp("callers")
    made = homes.make(probe, base / "home", base / "work")
    hosts.install_plugin(made.path)
    return made


@pytest.fixture(scope="module")
def p2(probe: homes.Probe, home: homes.Home) -> homes.Home:
    """A second profile of the same user, at work in the same folder."""
    made = homes.make(probe, home.path / "profiles" / "p2", home.path.parent / "work", "little")
    hosts.install_plugin(made.path)
    return made


@pytest.fixture(scope="module")
def agent(host: hosts.Host, home: homes.Home, p2: homes.Home) -> Iterator[homes.Agent]:
    """The default profile, with no chat that is the owner's own."""
    with homes.agent(host, home.path, home.path.parent / "printed") as running:
        yield running


@pytest.fixture(scope="module")
def listing_agent(host: hosts.Host, home: homes.Home, p2: homes.Home) -> Iterator[homes.Agent]:
    """The same with `OWNER_CHATS` in its settings."""
    copy = home.path.parent / "listing" / "home"
    shutil.copytree(home.path, copy)
    settings = {"entries": {hosts.PLUGIN: {"settings": {"owner_chats": OWNER_CHATS}}}}
    hosts.enable_plugin(copy, {"plugins": settings})
    with homes.agent(host, copy, copy.parent / "printed") as running:
        yield running


def bound(caller: homes.Conversation) -> dict[str, Any]:
    """What the messaging gateway binds for a chat's turn."""
    assert caller.chat
    return {"vars": {"platform": caller.chat["source"], **caller.chat, "source": ""}}


def surface(name: str, session_id: str) -> dict[str, Any]:
    """What the surface `name` binds for a turn of an owner's conversation."""
    return {
        "desktop": {"vars": {"session_key": session_id, "source": "desktop", "ui_session_id": "tab1"}},
        "tui": {"vars": {"session_key": session_id, "source": "tui", "ui_session_id": "tab1"}},
        "acp": {"vars": {"session_key": session_id, "session_id": session_id}},
        "api_server": {"vars": {"platform": "api_server", "chat_id": "c1", "session_id": session_id}},
        "cron": {"vars": {"platform": "", "chat_id": "", "cron_session": "1"}},
    }.get(name, {"current": session_id})


# --- owners -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["desktop", "tui", "caller tea", "oneshot", "acp", "api_server"])
def test_an_owner_finds_the_whole_project(agent: homes.Agent, home: homes.Home, name: str) -> None:
    caller = home[name]
    for word in (PROJECT_WORD, "needle-zhao-before", "needle-group-now", "needle-from-cron"):
        answer = agent.ask(caller.id, surface(name, caller.id), query=word)
        assert homes.hits(answer, word), word
        assert answer["project"]["kind"] == "explicit"


def test_an_owner_reads_where_the_text_of_a_chat_comes_from(agent: homes.Agent, home: homes.Home) -> None:
    caller = home["desktop"]
    for word, who in (("needle-zhao-before", "赵敏"), ("needle-group-before", "Tea tasters")):
        (hit,) = homes.hits(agent.ask(caller.id, surface("desktop", caller.id), query=word), word)
        assert who in hit["via"]


def test_an_owner_may_name_another_project(agent: homes.Agent, home: homes.Home) -> None:
    for project in (home["nested project"].project.removeprefix("explicit:"), "Tea API", "tea-api"):
        answer = agent.ask(home["desktop"].id, query="needle-path-nested-project", project=project)
        assert homes.hits(answer, "needle-path-nested-project"), project


def test_an_owner_in_home_is_told_how_to_name_a_project(agent: homes.Agent, home: homes.Home) -> None:
    answer = agent.ask(home["caller home"].id, query=PROJECT_WORD)
    assert (answer["success"], answer["results"], answer["project"]["kind"]) == (True, [], "home")
    assert homes.mentions(answer, "茶铺点单")


def test_a_subagent_of_an_owner_finds_what_its_parent_finds(agent: homes.Agent, home: homes.Home) -> None:
    for name in ("subagent", "delegate"):
        assert homes.hits(agent.ask(home[name].id, query=PROJECT_WORD), PROJECT_WORD), name


def test_a_call_from_inside_a_program_is_that_of_the_current_row(agent: homes.Agent, home: homes.Home) -> None:
    answer = agent.ask(None, {"current": home["caller tea"].id}, query=PROJECT_WORD)
    assert homes.hits(answer, PROJECT_WORD)


def test_a_desktop_that_goes_on_with_a_chat_is_an_owner(agent: homes.Agent, home: homes.Home) -> None:
    caller = home["lin now"]
    answer = agent.ask(caller.id, surface("desktop", caller.id), query=PROJECT_WORD)
    assert homes.hits(answer, PROJECT_WORD)


# --- nobody -----------------------------------------------------------------------------------------


def test_without_a_session_there_is_no_answer(agent: homes.Agent) -> None:
    answer = agent.ask(None, query=PROJECT_WORD)
    assert (answer["success"], answer["error"]) == (False, "no_session")
    assert "results" not in answer


def test_an_unknown_session_reads_nothing(agent: homes.Agent) -> None:
    answer = agent.ask("20260101_000000_ffffff", query=PROJECT_WORD)
    assert (answer["success"], answer["error"]) == (False, "no_session")
    assert not homes.mentions(answer, "needle-")


# --- chats ------------------------------------------------------------------------------------------


def attempts(home: homes.Home) -> Iterator[dict[str, Any]]:
    """What somebody who wants to read others might try."""
    for c in home.conversations.values():
        yield {"query": c.words[-1]}
        yield {"query": PROJECT_WORD, "session_id": c.id}
    for project in {c.project.partition(":")[2] for c in home.conversations.values()} | {
        "茶铺点单", "Tea API", "tea-api", "Old blog", "home", "no such project",
    }:  # fmt: skip
        yield {"query": PROJECT_WORD, "project": project}
    yield {"query": "today", "session_id": f"@session:{home['chain tip'].id}"}
    yield {"query": "today", "session_id": "2026"}
    yield {"query": "today", "exclude_session_ids": [c.id for c in home.conversations.values()]}
    yield {"query": "what did we order before", "limit": 20, "context": 5}
    yield from ({"around_message_id": row} for row in range(1, home.rows + 1, 3))


def of_others(home: homes.Home, caller: homes.Conversation) -> set[str]:
    """What an answer to `caller` may not hold: what others said, who they are, where they work."""
    key = (caller.chat or {}).get("session_key")
    own = [c for c in home.conversations.values() if c.id == caller.id or (c.chat or {}).get("session_key", "") == key]
    others = [c for c in home.conversations.values() if c not in own]
    words = {word for c in others for word in c.words} - {word for c in own for word in c.words}
    names = {value for c in others if c.chat for value in (c.chat["chat_name"], c.chat["session_key"])}
    names -= {(caller.chat or {}).get("chat_name", "")}
    projects = {c.project.partition(":")[2] for c in others if c.project != caller.project}
    projects -= {"", str(home.path.parent / "work" / "tea-shop")}  # where the chat itself stands
    titles = {
        "退款回调重复入账", "数据库锁排查", "接口限流方案", "Cents or yuan?", "hidden-title", "部署密钥", "Whole log",
    }  # fmt: skip
    folders = {"services/api", "tea-shop-old", "tea-shopping", "ledger", "old-blog", "notes", "café"}
    return words | names | projects | titles | folders | {c.id for c in others} | {"Tea API", "Café menu", "Old blog"}


TELLING = {"elsewhere", "excluded", "drifted"}


def leaks(agent: homes.Agent, home: homes.Home, caller: homes.Conversation, binding: dict[str, Any]) -> list[Any]:
    """The attempts whose answers tell `caller` anything of others, with what they tell."""
    forbidden = of_others(home, caller)
    found = []
    for args in attempts(home):
        answer = agent.ask(caller.id, binding, **args)
        told = TELLING & set(answer) | {text for text in forbidden if homes.mentions(answer, text)}
        # What the caller typed may come back in an error.
        told -= {text for text in told if any(text in str(value) for value in args.values())}
        if told or answer.get("sessions_in_scope", 0) > 2:
            found.append((args, sorted(told), answer.get("sessions_in_scope")))
    return found


@pytest.mark.parametrize("who", ["lin", "zhao", "me", "group"])
def test_a_chat_finds_its_own_past(agent: homes.Agent, home: homes.Home, who: str) -> None:
    caller, word = home[f"{who} now"], f"needle-{who}-before"
    answer = agent.ask(caller.id, bound(caller), query=word)
    assert [hit["session_id"] for hit in homes.hits(answer, word)] == [home[f"{who} before"].id]
    assert answer["sessions_in_scope"] == 2


@pytest.mark.parametrize("who", ["lin", "zhao", "me", "group", "webhook"])
def test_a_chat_is_told_nothing_of_anybody_else(agent: homes.Agent, home: homes.Home, who: str) -> None:
    caller = home[f"{who} now"]
    assert not leaks(agent, home, caller, bound(caller))


@pytest.mark.parametrize("project", ["Tea API", "tea-api", "茶铺点单", "no such project"])
def test_a_chat_cannot_name_a_project(agent: homes.Agent, home: homes.Home, project: str) -> None:
    caller = home["lin now"]
    answer = agent.ask(caller.id, bound(caller), query=PROJECT_WORD, project=project)
    assert (answer["success"], answer["error"]) == (False, "unknown_project")
    assert "candidates" not in answer


def test_a_chat_cannot_tell_whether_an_id_of_others_exists(agent: homes.Agent, home: homes.Home) -> None:
    """An answer about somebody else's id is the answer about no id at all."""
    caller, nobody = home["lin now"], "20260101_000000_ffffff"

    def said(about: str, **args: Any) -> str:
        return str(agent.ask(caller.id, bound(caller), query="needle-lin-before", **args)).replace(about, "ID")

    for other in (home["zhao before"].id, home["chain tip"].id, home["home from cli"].id):
        assert said(other, session_id=other) == said(nobody, session_id=nobody)
        assert said(other, exclude_session_ids=[other]) == said(nobody, exclude_session_ids=[nobody])
        assert said(other, project=other) == said(nobody, project=nobody)
    assert said("1", around_message_id=1) == said("999999", around_message_id=999_999)


def test_a_chat_in_home_is_told_no_names(agent: homes.Agent, home: homes.Home) -> None:
    caller = home["home from telegram"]
    answer = agent.ask(caller.id, bound(caller), query=PROJECT_WORD)
    assert (answer["success"], answer["results"], answer["project"]["kind"]) == (True, [], "home")
    assert not leaks(agent, home, caller, bound(caller))


@pytest.mark.parametrize("name", ["subagent of lin", "delegate of lin"])
@pytest.mark.parametrize("tells", [True, False], ids=["bound", "unbound"])
def test_a_subagent_of_a_chat_is_that_chat(agent: homes.Agent, home: homes.Home, name: str, tells: bool) -> None:
    """The variables of its parent's turn reach its thread in 0.20 and 0.22, not in 0.19."""
    caller, chat = home[name], home["lin now"]
    binding = bound(chat) if tells else {}
    answer = agent.ask(caller.id, binding, query="needle-lin-before")
    assert homes.hits(answer, "needle-lin-before")
    for word in (PROJECT_WORD, "needle-zhao-before", "needle-group-before", "needle-me-before"):
        assert not homes.mentions(agent.ask(caller.id, binding, query=word), word)


def test_a_chat_that_calls_from_an_owners_row_is_a_chat(agent: homes.Agent, home: homes.Home) -> None:
    """The strictest of what is known counts."""
    answer = agent.ask(home["caller tea"].id, bound(home["lin now"]), query=PROJECT_WORD)
    assert not homes.mentions(answer, PROJECT_WORD)


def test_a_webhook_finds_nothing(agent: homes.Agent, home: homes.Home) -> None:
    caller = home["webhook now"]
    for word in ("needle-webhook-before", PROJECT_WORD):
        for binding in (bound(caller), {}):
            assert not homes.mentions(agent.ask(caller.id, binding, query=word), word)


def test_a_scheduled_run_reads_nobody(agent: homes.Agent, home: homes.Home) -> None:
    caller = home["cron"]
    assert not leaks(agent, home, caller, surface("cron", caller.id))


# --- the owner's own chats --------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["me", "lin"])
def test_a_listed_direct_chat_is_an_owner(listing_agent: homes.Agent, home: homes.Home, who: str) -> None:
    caller = home[f"{who} now"]
    assert homes.hits(listing_agent.ask(caller.id, bound(caller), query=PROJECT_WORD), PROJECT_WORD)
    (hit,) = homes.hits(listing_agent.ask(caller.id, bound(caller), query="needle-zhao-now"), "needle-zhao-now")
    assert "赵敏" in hit["via"]


def test_a_subagent_of_a_listed_chat_is_an_owner(listing_agent: homes.Agent, home: homes.Home) -> None:
    answer = listing_agent.ask(home["subagent of lin"].id, bound(home["lin now"]), query=PROJECT_WORD)
    assert homes.hits(answer, PROJECT_WORD)


@pytest.mark.parametrize("who", ["zhao", "group", "webhook"])
def test_nobody_else_becomes_an_owner_by_the_list(listing_agent: homes.Agent, home: homes.Home, who: str) -> None:
    """Zhao is not listed; in the group sits a listed user, and others."""
    caller = home[f"{who} now"]
    assert not leaks(listing_agent, home, caller, bound(caller))


# --- profiles ---------------------------------------------------------------------------------------


def test_a_profile_finds_its_own(agent: homes.Agent, p2: homes.Home) -> None:
    answer = agent.ask(p2["caller tea"].id, {"home": str(p2.path)}, query="needle-other-profile")
    assert homes.hits(answer, "needle-other-profile")
    assert answer["results"][0]["link"] == f"@session:p2/{p2['other profile'].id}"


def test_a_profile_finds_nothing_of_another(agent: homes.Agent, home: homes.Home, p2: homes.Home) -> None:
    there = {"home": str(p2.path)}
    for args in attempts(home):
        answer = agent.ask(p2["caller tea"].id, there, **args)
        assert not [w for w in home.words(*homes.FOUND, *homes.NEVER) if homes.mentions(answer.get("results"), w)]
        assert not homes.mentions(answer, "Tea API") or args.get("project") == "Tea API"


def test_another_profile_cannot_be_named(agent: homes.Agent, home: homes.Home, p2: homes.Home) -> None:
    caller, word = home["caller tea"], "needle-other-profile"
    stranger = p2["other profile"].id
    assert not homes.mentions(agent.ask(caller.id, query=word), word)
    for project in (p2["other profile"].project.removeprefix("auto:"), "p2"):
        assert not homes.mentions(agent.ask(caller.id, query=word, project=project), word)
    for session in (stranger, f"@session:p2/{stranger}"):
        answer = agent.ask(caller.id, query=word, session_id=session)
        assert (answer["success"], answer["error"]) == (False, "unknown_session")


def test_a_session_of_one_profile_is_unknown_in_another(agent: homes.Agent, home: homes.Home, p2: homes.Home) -> None:
    answer = agent.ask(home["chain root"].id, {"home": str(p2.path)}, query=PROJECT_WORD)
    assert (answer["success"], answer["error"]) == (False, "no_session")


def test_every_printed_line_is_quiet(agent: homes.Agent, home: homes.Home) -> None:
    """No needle in what the host's process printed: logs are read by others too."""
    printed = Path(home.path.parent / "printed").read_text("utf-8")
    assert not [word for word in home.words(*homes.FOUND, *homes.NEVER) if word in printed]
