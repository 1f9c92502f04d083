"""Every word of a real home is found from its own project, from no other, and the hidden ones never.

The home is filled by each real host and attributed by that host's own sidebar; the calls go
through its own registry.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from demo import hosts
from tests import homes

DATABASES = ("state.db", "projects.db")

# Where the sidebar of an older host differs from that of 0.22, which is the contract. In these the
# plugin gives the answer of 0.22 in every host.
NULL_CWD = "its rotation leaves the new row without a cwd, and its sidebar looks at that row alone"
NO_PARENT = "its subagents' rows are without a cwd"
GONE = "its sidebar makes a project of a folder that is gone"
ROOT_ALONE = "its sidebar leaves out rows without a cwd"
SPELLING = "its sidebar takes two Unicode spellings of one path for two"
NO_GUESS = "its sidebar does not take `<repository>-<anything>` for a worktree"
DIFFERENT = {
    "0.19": {
        "chain root": NULL_CWD,
        "chain middle": NULL_CWD,
        "chain tip": NULL_CWD,
        "branch": NULL_CWD,
        "branch rotated": NULL_CWD,
        "subagent of lin": NO_PARENT,
        "delegate of lin": NO_PARENT,
        "deleted elsewhere": GONE,
        "windows path": GONE,
        "decomposed name": SPELLING,
        "root alone": ROOT_ALONE,
        "taken for a worktree": NO_GUESS,
        "caller old": NO_GUESS,
    },
    "0.20": {"decomposed name": SPELLING, "root alone": ROOT_ALONE},
    "0.22": {},
}


@dataclass(frozen=True, slots=True)
class Asked:
    """The answers by calling project and word, and the home's files before the first call and after the last."""

    answers: dict[tuple[str, str], homes.Answer]
    before: dict[str, tuple[int, str]]
    after: dict[str, tuple[int, str]]
    calls: int


@pytest.fixture(scope="module")
def home(host: hosts.Host, probe: homes.Probe, tmp_path_factory: pytest.TempPathFactory) -> homes.Home:
    base = tmp_path_factory.mktemp("needles")
    made = homes.make(probe, base / "home", base / "work")
    hosts.install_plugin(made.path)
    return made


@pytest.fixture(scope="module")
def asked(host: hosts.Host, home: homes.Home) -> Asked:
    """Every word asked for from every project, and on to a thousand calls."""
    with homes.agent(host, home.path, home.path.parent / "printed") as agent:
        before = homes.files(home.path)
        answers = {
            (caller.name, word): agent.ask(caller.id, query=word)
            for word in home.words(*homes.FOUND, *homes.TOOL_OUTPUT, *homes.NEVER)
            for caller in home.callers
        }
        while agent.calls < 1_000:
            agent.ask(home["caller tea"].id, query="刷新令牌 refund", context=5, limit=20)
    return Asked(answers, before, homes.files(home.path), agent.calls)


@pytest.fixture(scope="module")
def agent(host: hosts.Host, home: homes.Home, asked: Asked) -> Iterator[homes.Agent]:
    """For what else is asked, once the thousand calls are over."""
    with homes.agent(host, home.path, home.path.parent / "printed-later") as running:
        yield running


def test_the_sidebar_differs_from_that_of_0_22_in_these_conversations_only(host: hosts.Host, home: homes.Home) -> None:
    different = {c.name for c in home.conversations.values() if home.owners[c.id] != c.project}
    assert different == set(DIFFERENT[host.name])


def test_every_word_is_found_from_its_own_project(home: homes.Home, asked: Asked) -> None:
    missed = []
    for word in home.words(*homes.FOUND):
        said = home.saying(word)
        (caller,) = (c for c in home.callers if c.project == said[0].project)
        hits = homes.hits(asked.answers[caller.name, word], word)
        if not any(hit["session_id"] in {c.id for c in said} for hit in hits):
            missed.append((word, said[0].name, asked.answers[caller.name, word]))
    assert not missed


def test_no_word_is_found_from_another_project(home: homes.Home, asked: Asked) -> None:
    strayed = []
    for word in home.words(*homes.FOUND, *homes.TOOL_OUTPUT):
        project = home.saying(word)[0].project
        strayed += [
            (word, caller.name, asked.answers[caller.name, word])
            for caller in home.callers
            if caller.project != project and homes.mentions(asked.answers[caller.name, word], word)
        ]
    assert not strayed


def test_a_call_from_home_says_why_it_finds_nothing(home: homes.Home, asked: Asked) -> None:
    for (caller, word), answer in asked.answers.items():
        if home[caller].project == "home:":
            assert (answer["success"], answer["results"], answer["project"]["kind"]) == (True, [], "home"), word


def test_no_hidden_word_is_in_any_answer(home: homes.Home, asked: Asked) -> None:
    shown = [
        (hidden, caller, query, answer)
        for (caller, query), answer in asked.answers.items()
        for hidden in home.words(*homes.NEVER)
        if homes.mentions(answer, hidden)
    ]
    assert not shown


@pytest.mark.parametrize("word", ["output-first-line", "output-beside-secret"])
def test_tool_output_is_found_as_tool_output(home: homes.Home, agent: homes.Agent, word: str) -> None:
    (said,) = home.saying(word)
    (caller,) = (c for c in home.callers if c.project == said.project)
    answer = agent.ask(caller.id, query=word, mode="keyword")
    assert [hit["role"] for hit in homes.hits(answer, word)] == ["tool"]
    assert not [hidden for hidden in home.words(*homes.NEVER) if homes.mentions(answer, hidden)]


def test_tool_output_is_nowhere_but_in_tool_messages(home: homes.Home, asked: Asked) -> None:
    for answer in asked.answers.values():
        for hit in answer.get("results", []):
            for message in (hit, *hit.get("context", [])):
                said = message.get("snippet", "") + message.get("text", "")
                assert "output-" not in said or message["role"] == "tool", answer


def test_words_of_a_chat_say_where_they_come_from(home: homes.Home, asked: Asked) -> None:
    for word in home.words(*homes.FOUND):
        said = home.saying(word)
        for hit in homes.hits(asked.answers["caller tea", word], word):
            assert ("via" in hit) == any(c.chat for c in said), (word, hit)


def test_words_of_an_archived_conversation_say_so(home: homes.Home, asked: Asked) -> None:
    for word in ("needle-archived", "针脚旧事"):
        assert [hit["archived"] for hit in homes.hits(asked.answers["caller tea", word], word)] == [True]


def test_no_hidden_word_stands_around_any_message(home: homes.Home, agent: homes.Agent) -> None:
    """Reading on from every row there is, shown or not, and with the widest context."""
    shown = []
    for caller in (home["caller tea"], home["caller ledger"]):
        answers = [agent.ask(caller.id, around_message_id=row) for row in range(1, home.rows + 1)]
        answers += [agent.ask(caller.id, query=word, context=5, limit=20) for word in home.words(*homes.FOUND)]
        shown += [a for a in answers if any(homes.mentions(a, word) for word in home.words(*homes.NEVER))]
        assert any(answer.get("results") for answer in answers)
    assert not shown


def test_a_thousand_calls_change_no_byte(home: homes.Home, asked: Asked) -> None:
    assert asked.calls >= 1_000
    for name in DATABASES:
        assert asked.after[name] == asked.before[name]


def left_by_reading(home: Path) -> set[str]:
    """What SQLite leaves beside a file that it only read.

    For a WAL file its `-shm` and a `-wal` of no bytes, until the next writer closes; for others nothing.
    """
    wal = [name for name in DATABASES if homes.is_wal(home / name)]
    return {f"{name}{ending}" for name in wal for ending in ("-shm", "-wal")}


def beside(files: dict[str, tuple[int, str]]) -> set[str]:
    return {name for name in files if name.startswith(tuple(f"{name}-" for name in DATABASES))}


def test_what_lies_beside_the_databases_is_what_sqlite_leaves(home: homes.Home, asked: Asked) -> None:
    left = left_by_reading(home.path)
    assert beside(asked.after) == left
    assert {name for name in asked.after if "/" not in name} - set(asked.before) <= left
    assert all(asked.after[name][0] == 0 for name in left if name.endswith("-wal"))


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_either_journal_is_read_without_a_trace(
    host: hosts.Host, home: homes.Home, journal: str, tmp_path: Path
) -> None:
    copy = tmp_path / "home"
    shutil.copytree(home.path, copy)
    for name in DATABASES:
        with closing(sqlite3.connect(copy / name)) as conn:
            assert conn.execute(f"PRAGMA journal_mode = {journal}").fetchone() == (journal,)
    before = homes.files(copy)
    with homes.agent(host, copy, tmp_path / "printed") as agent:
        answers = [agent.ask(home["caller tea"].id, query=word) for word in home.words("needle-chain")]
    after = homes.files(copy)
    assert all(answer["results"] for answer in answers)
    assert [after[name] for name in DATABASES] == [before[name] for name in DATABASES]
    assert beside(after) == left_by_reading(copy)
    assert all(after[name][0] == 0 for name in beside(after) if name.endswith("-wal"))
