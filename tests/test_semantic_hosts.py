"""The search by meaning in the real hosts: through their own dispatch, over rows that they wrote."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from demo import hosts
from tests import homes
from tests.paraphrases import PAIRS, WAYS

Answer = dict[str, Any]
SYMBOL = "rehash_credentials"
SAID_OF_IT = f"It is {SYMBOL}() that raises ERR_7431 there."
DATABASES = ("state.db", "projects.db")


@dataclass(frozen=True)
class Asked:
    """A home, what was answered from it, and its files before and after."""

    home: Path
    answers: dict[str, Answer]
    before: dict[str, tuple[int, str]]
    after: dict[str, tuple[int, str]]
    printed: str


def furnish(probe: homes.Probe, base: Path, **settings: object) -> Path:
    """In alpha each of the pairs was said in a conversation of its own, in beta the very questions."""
    home, work = base / "home", base / "work"
    for name in ("alpha", "beta"):
        (work / name).mkdir(parents=True)
    hosts.install_plugin(home, config={"plugins": {"entries": {hosts.PLUGIN: {"settings": settings}}}})
    alpha, beta = f"{work / 'alpha'}/", f"{work / 'beta'}/"
    rows = {f"s_{n}": [alpha, "cli", said] for n, (said, _, _) in enumerate(PAIRS)}
    rows["s_symbol"] = [alpha, "cli", SAID_OF_IT]
    rows["s_now"] = [alpha, "cli", "Where were we?"]
    for n, (_, *questions) in enumerate(PAIRS):
        rows |= {f"s_beta_{n}_{m}": [beta, "cli", question] for m, question in enumerate(questions)}
    probe("stored", home, json.dumps(rows))
    return home


@pytest.fixture(scope="module")
def asked(host: hosts.Host, probe: homes.Probe, tmp_path_factory: pytest.TempPathFactory) -> Asked:
    """Every question in both modes, once everything is indexed; the symbol; and what beta has of it."""
    base = tmp_path_factory.mktemp("meaning")
    home = furnish(probe, base, index_budget_s=5)
    before = homes.files(home)
    with homes.agent(host, home, base / "printed") as agent:
        answers = {"first": ready(agent)}
        for mode in ("hybrid", "semantic"):
            for questions in WAYS.values():
                answers |= {
                    f"{mode} {q}": agent.ask("s_now", query=q, mode=mode, context=0) for _, q in questions
                }
        answers["symbol"] = agent.ask("s_now", query=SYMBOL)
        answers["asked for a symbol"] = agent.ask(
            "s_now", query=f"where does {SYMBOL}() raise for stored passwords"
        )
        answers["beta"] = agent.ask("s_now", query=PAIRS[5][2], project="beta")
        answers["keyword"] = agent.ask("s_now", query=SYMBOL, mode="keyword")
    return Asked(home, answers, before, homes.files(home), (base / "printed").read_text())


def ready(agent: homes.Agent) -> Answer:
    """The first answer of a process that finds everything embedded: its background may take a moment."""
    for _ in range(120):
        answer = agent.ask("s_now", query="Is it all there?")
        if answer["semantic_status"] not in ("indexing", "partial"):
            return answer
        time.sleep(0.5)
    return answer


def sessions(answer: Answer) -> list[str]:
    return [hit["session_id"] for hit in answer["results"]]


def test_everything_is_embedded_in_the_end(asked: Asked) -> None:
    assert {answer["semantic_status"] for answer in asked.answers.values()} == {"ready"}


@pytest.mark.parametrize("mode", ["hybrid", "semantic"])
@pytest.mark.parametrize("way", WAYS)
def test_a_paraphrase_is_found(asked: Asked, mode: str, way: str) -> None:
    found = [sessions(asked.answers[f"{mode} {query}"]) for _, query in WAYS[way]]
    assert sum(f"s_{n}" in one[:3] for (n, _), one in zip(WAYS[way], found, strict=True)) >= 3
    assert sum(one[0] == f"s_{n}" for (n, _), one in zip(WAYS[way], found, strict=True)) >= 2


def test_a_hit_says_that_its_meaning_was_found(asked: Asked) -> None:
    answers = [asked.answers[f"semantic {query}"] for questions in WAYS.values() for _, query in questions]
    assert {hit["score_source"] for answer in answers for hit in answer["results"]} <= {"semantic", "both"}


def test_an_exact_symbol_comes_first(asked: Asked) -> None:
    for question in ("symbol", "asked for a symbol", "keyword"):
        first = asked.answers[question]["results"][0]
        assert first["session_id"] == "s_symbol", question
        assert first["score_source"] == ("keyword" if question == "keyword" else "both")


def test_nearer_messages_of_another_project_never_appear(asked: Asked) -> None:
    strayed = {
        question: answer
        for question, answer in asked.answers.items()
        if question != "beta" and any(session.startswith("s_beta") for session in sessions(answer))
    }
    assert not strayed
    assert (
        sessions(asked.answers["beta"])[0] == "s_beta_5_1"
    )  # where they are, the question itself is nearest


def test_the_databases_of_the_host_are_as_they_were(asked: Asked) -> None:
    for name in DATABASES:
        assert asked.after[name] == asked.before[name]
    for name in asked.after.keys() - asked.before.keys():
        assert not name.endswith(("-wal", "-journal")) or asked.after[name][0] == 0, name


@pytest.mark.skipif(sys.platform == "win32", reason="modes")
def test_what_it_wrote_is_the_owners_only(asked: Asked) -> None:
    data = asked.home / "plugin-data"
    written = [name for name in asked.after if name.startswith("plugin-data")]
    assert written == [f"plugin-data/{hosts.PLUGIN}/.cache/embeddings.db"]
    for path in (data / hosts.PLUGIN, *data.rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_no_text_is_stored_with_the_vectors(asked: Asked) -> None:
    stored = (asked.home / "plugin-data" / hosts.PLUGIN / ".cache" / "embeddings.db").read_bytes()
    for said, *questions in PAIRS:
        for text in (said, *questions, SYMBOL):
            assert text[:12].encode() not in stored


def test_nothing_failed_on_the_way(asked: Asked) -> None:
    assert "Traceback" not in asked.printed


def test_with_no_time_in_a_search_the_background_does_it_all(
    host: hosts.Host, probe: homes.Probe, tmp_path: Path
) -> None:
    home = furnish(probe, tmp_path, index_budget_s=0)
    with homes.agent(host, home, tmp_path / "printed") as agent:
        first = agent.ask("s_now", query=PAIRS[5][2])
        assert first["semantic_status"] == "indexing"
        assert ready(agent)["semantic_status"] == "ready"
        assert "s_5" in sessions(agent.ask("s_now", query=PAIRS[5][2]))
    assert "Traceback" not in (tmp_path / "printed").read_text()


def test_switched_off_it_writes_nothing(host: hosts.Host, probe: homes.Probe, tmp_path: Path) -> None:
    home = furnish(probe, tmp_path, embedding_provider="none")
    with homes.agent(host, home, tmp_path / "printed") as agent:
        answer = agent.ask("s_now", query=SYMBOL)
    assert answer["semantic_status"] == "disabled"
    assert sessions(answer) == ["s_symbol"]
    assert not (home / "plugin-data").exists()
