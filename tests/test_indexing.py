"""Keeping the vectors of a home up to date: what costs an embedding, what does not, and who pays."""

from __future__ import annotations

import contextvars
import json
import os
import random
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

apsw = pytest.importorskip("apsw")
pytest.importorskip("numpy")

from project_history_recall import indexing  # noqa: E402
from project_history_recall.embeddings import EmbedderUnavailable, Piece, plain  # noqa: E402
from project_history_recall.indexing import FIRST_BATCH, NEAR, Indexer, Progress, beside, start_worker  # noqa: E402
from project_history_recall.state import State  # noqa: E402
from project_history_recall.vectors import MAX_TRIES, Coverage, Store  # noqa: E402

from tests.probes.index_worker import MadeUp, Settings, everywhere  # noqa: E402
from tests.small import BOREALIS, LAYOUTS, SmallHome, furnished  # noqa: E402

WORKER = Path(__file__).parent / "probes" / "index_worker.py"
BATCH = MadeUp.batch
# Sentences of one piece each, so that messages can be counted.
TALK = [
    "Why does the nightly import double every invoice?",
    "Two machines take the lock, and both of them run it.",
    "Then let us use a lease with a version.",
    "Done: the lease is in, and the import ran once.",
    "Does the old lock file go away?",
    "Yes, with the next release.",
]


def never() -> bool:
    return False


def always() -> bool:
    return True


def after(checks: int) -> Callable[[], bool]:
    """Time that is up after so many looks at the clock."""
    left = iter(range(checks))
    return lambda: next(left, None) is None


@dataclass
class Index:
    """The index of a home, brought forward as a search would: a new indexer each time."""

    home: SmallHome
    store: Store
    embedder: MadeUp = field(default_factory=MadeUp)
    redact: Callable[[str], str] | None = None

    @property
    def fp(self) -> int:
        return self.store.model(self.embedder.fingerprint, self.embedder.dim)

    def bring(
        self,
        hits: dict[str, list[int]] | None = None,
        over: Callable[[], bool] = never,
        roots: Sequence[str] = (),
    ) -> Progress:
        with State(self.home.path) as state:
            all_ = everywhere(state)
            known = list(roots) or [r for r in reversed(all_.roots) if r in all_.kept()]
            return Indexer(self.store, self.embedder, self.redact).catch_up(
                state, all_, known, hits or {}, over
            )

    def cost(self, **how: Any) -> int:
        """How many texts were embedded to bring it forward."""
        before = len(self.embedder.texts)
        assert self.bring(**how).complete
        return len(self.embedder.texts) - before

    def newly(self) -> list[str]:
        """The texts that were."""
        before = len(self.embedder.texts)
        self.bring()
        return self.embedder.texts[before:]

    def start_worker(self, roots: Sequence[str] = ()) -> threading.Thread:
        with State(self.home.path) as state:
            all_ = everywhere(state)
        known = list(roots or all_.kept())
        start_worker(self.home.path, self.store, self.embedder, self.redact, self.home.connect, all_, known)
        return indexing._workers[self.home.path][0]

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """What is stored, in an order of its own."""
        with closing(apsw.Connection(str(self.store.path))) as db:
            assert list(db.execute("PRAGMA integrity_check")) == [("ok",)]
            join = "FROM {} t JOIN conversation c USING (conv)"
            return {
                "vec": list(db.execute(f"SELECT root, key, v {join.format('vec')} ORDER BY 1, 2")),
                "place": list(
                    db.execute(
                        f"SELECT root, key, message_id, offset, length {join.format('place')} ORDER BY 3, 4"
                    )
                ),
                "planned": list(
                    db.execute(f"SELECT root, stamp, contents {join.format('planned')} ORDER BY 1")
                ),
                "debt": list(
                    db.execute(f"SELECT root, key, owner, tries {join.format('debt')} ORDER BY 1, 2")
                ),
            }

    def messages(self, table: str = "place") -> set[int]:
        """The messages that have a place."""
        return {row[2] for row in self.rows()[table]}

    def roots(self) -> set[str]:
        return {row[0] for rows in self.rows().values() for row in rows} - {"caller"}


@pytest.fixture
def home(tmp_path: Path) -> SmallHome:
    return furnished(tmp_path / "home")


@pytest.fixture
def index(home: SmallHome) -> Iterator[Index]:
    store = Store(indexing.store_path(home.path))
    yield Index(home, store)
    indexing.stop_workers()
    indexing._workers.clear()
    store.close()


@pytest.fixture
def talk(home: SmallHome) -> list[int]:
    """A conversation, `talk`, of one piece a message."""
    home.session("talk")
    return home.talk("talk", *TALK)


# --- what costs an embedding ------------------------------------------------------------------------


def test_a_conversation_costs_one_embedding_a_piece(index: Index, talk: list[int]) -> None:
    assert index.cost() == len(TALK)
    assert index.messages() == set(talk)
    assert [text.endswith(plain(said)) for text, said in zip(index.embedder.texts, TALK, strict=True)] == [
        True
    ] * 6


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_any_number_of_conversations_is_planned(index: Index, home: SmallHome, more: int) -> None:
    """Each of them once, whether or not they fill the last transaction."""
    count = 2 * indexing.PLAN_GROUP + more
    for n in range(count):
        home.session(f"talk-{n}")
        home.say(f"talk-{n}", f"The number {n} is what this is about.")
    assert index.cost() == count
    assert len([root for root in index.roots() if root.startswith("talk-")]) == count
    assert index.cost() == 0


def test_nothing_new_costs_and_writes_nothing(index: Index, talk: list[int]) -> None:
    index.cost()
    before = index.store.path.read_bytes()
    assert index.cost() == 0
    assert index.cost(hits={"talk": talk}) == 0
    assert index.store.path.read_bytes() == before


def test_a_new_message_costs_its_own_pieces_only(index: Index, home: SmallHome, talk: list[int]) -> None:
    index.cost()
    home.say("talk", "Is there a test for it?")
    (text,) = index.newly()
    assert text == plain(f"{TALK[-1]} Is there a test for it?")


def test_an_edit_costs_the_new_rows_and_drops_the_old(index: Index, home: SmallHome, talk: list[int]) -> None:
    index.cost()
    home.write("UPDATE messages SET active = 0 WHERE id >= ?", [[talk[4]]])
    new = home.talk("talk", "Does the new lease expire?", "After an hour.")
    assert index.cost() == 2
    assert index.messages() == {*talk[:4], *new}
    assert len(index.rows()["vec"]) == 6


def test_an_edit_in_the_middle_costs_what_carries_it_as_context_too(
    index: Index, home: SmallHome, talk: list[int]
) -> None:
    index.cost()
    home.write("DELETE FROM messages WHERE id = ?", [[talk[2]]])
    (text,) = index.newly()
    assert text == plain(f"{TALK[1]} {TALK[3]}")
    assert index.messages() == {*talk} - {talk[2]}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_compaction_in_place_costs_nothing(tmp_path: Path, layout: str) -> None:
    home = furnished(tmp_path / "home", layout)
    home.session("talk")
    talk = home.talk("talk", *TALK)
    index = Index(home, Store(indexing.store_path(home.path)))
    assert index.cost() == len(TALK)
    carried = talk[-2:]
    home.write("UPDATE messages SET active = 0, compacted = 1 WHERE id = ?", [[i] for i in talk])
    if layout == "0.22":  # the originals of what is carried on are superseded there
        home.write("UPDATE messages SET compacted = 0 WHERE id = ?", [[i] for i in carried])
    home.say("talk", "[CONTEXT COMPACTION: REFERENCE ONLY] The import was doubled.", "assistant")
    copies = home.talk("talk", *TALK[-2:])
    assert index.cost() == 0
    assert index.messages() == ({*talk[:-2], *copies} if layout == "0.22" else set(talk))
    assert len(index.rows()["vec"]) == len(TALK)
    index.store.close()


def test_rotation_costs_nothing(index: Index, home: SmallHome, talk: list[int]) -> None:
    index.cost()
    home.write("UPDATE sessions SET end_reason = 'compression' WHERE id = 'talk'")
    home.session("talk-2", parent="talk")
    home.talk("talk-2", *TALK[-2:])
    assert index.cost() == 0
    home.say("talk-2", "And on it goes.")
    assert index.cost() == 1
    assert {row[0] for row in index.rows()["vec"]} == {"talk"}  # one conversation


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE sessions SET archived = 1 WHERE id = 'talk'",
        f"UPDATE sessions SET cwd = '{BOREALIS}' WHERE id = 'talk'",
        "UPDATE sessions SET cwd = NULL, git_repo_root = '/src/elsewhere', title = 'New' WHERE id = 'talk'",
        "UPDATE messages SET active = 0, compacted = 1",
    ],
    ids=["archive", "move", "move and rename", "flags"],
)
def test_what_changes_no_text_costs_nothing(
    index: Index, home: SmallHome, talk: list[int], change: str
) -> None:
    assert index.cost() == len(TALK)
    stored = index.rows()["vec"]
    home.write(change)
    assert index.cost() == 0
    assert index.rows()["vec"] == stored


def test_rows_that_come_back_after_a_rewind_cost_again_only_once(
    index: Index, home: SmallHome, talk: list[int]
) -> None:
    index.cost()
    home.write("UPDATE messages SET active = 0 WHERE id >= ?", [[talk[4]]])
    assert index.cost() == 0
    home.write("UPDATE messages SET active = 1 WHERE id >= ?", [[talk[4]]])
    assert index.cost() == 2


def branch(home: SmallHome, *said: str) -> None:
    home.session("branch", parent="talk", model_config={"_branched_from": "talk"})
    home.talk("branch", *said)


def test_a_branch_costs_the_message_at_its_seam_at_most(
    index: Index, home: SmallHome, talk: list[int]
) -> None:
    index.cost()
    branch(home, *TALK[:4])
    assert index.cost() == 0
    home.say("branch", "What if there were no lock?")
    assert index.cost() == 1
    assert len([row for row in index.rows()["vec"] if row[0] == "branch"]) == 5


@pytest.mark.parametrize(
    "hits", [{}, {"talk": [1]}, {"branch": [7], "talk": [1]}], ids=["none", "there", "both"]
)
def test_a_branch_that_is_indexed_with_its_parent_costs_no_more(
    index: Index, home: SmallHome, talk: list[int], hits: dict[str, list[int]]
) -> None:
    branch(home, *TALK[:4], "What if there were no lock?")
    assert index.cost(hits=hits) == len(TALK) + 1


@pytest.mark.parametrize("role", ["tool", "system"])
def test_only_what_people_and_assistants_said_is_embedded(index: Index, home: SmallHome, role: str) -> None:
    home.session("talk")
    home.say("talk", "Some output", role)
    home.say("talk", "")
    home.say("talk", "<think>secretly</think>", "assistant")
    assert index.cost() == 0


def test_a_message_of_several_parts_is_embedded(index: Index, home: SmallHome) -> None:
    home.session("talk")
    home.say(
        "talk",
        [{"type": "text", "text": "The gauge is red."}, {"type": "image_url", "image_url": {"url": "x"}}],
    )
    assert index.newly() == ["the gauge is red"]


# --- what goes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM messages WHERE session_id = 'talk'; DELETE FROM sessions WHERE id = 'talk'",
        "UPDATE sessions SET hidden = 1 WHERE id = 'talk'",
        "UPDATE sessions SET source = 'subagent' WHERE id = 'talk'",
    ],
    ids=["deleted", "hidden", "internal"],
)
def test_a_conversation_that_nobody_may_find_is_swept(
    index: Index, home: SmallHome, talk: list[int], change: str
) -> None:
    home.session("other")
    home.talk("other", "This one stays.")
    index.cost()
    home.script(change)
    index.bring()
    assert index.roots() == {"other"}


@pytest.mark.parametrize(
    "change",
    ["DELETE FROM messages WHERE id >= ?", "UPDATE messages SET active = 0 WHERE id >= ?"],
    ids=["deleted", "rewound"],
)
def test_messages_that_nobody_may_find_are_swept(
    index: Index, home: SmallHome, talk: list[int], change: str
) -> None:
    index.cost()
    home.write(change, [[talk[3]]])
    assert index.cost() == 0
    assert index.messages() == set(talk[:3])
    assert len(index.rows()["vec"]) == 3


def test_a_sweep_gives_the_space_back(index: Index, home: SmallHome) -> None:
    for name in ("big", "small"):
        home.session(name)
    home.fill("big", (f"Sentence number {n} of many." for n in range(6_000)))
    home.fill("small", ["Hello."])
    index.cost()
    before = index.store.path.stat().st_size
    home.script("DELETE FROM messages WHERE session_id = 'big'; DELETE FROM sessions WHERE id = 'big'")
    index.bring()
    assert index.store.path.stat().st_size < before / 2


def test_a_search_that_sees_nothing_gone_does_not_sweep(
    index: Index, home: SmallHome, talk: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    index.cost()
    swept: list[int] = []
    monkeypatch.setattr(Store, "keep", lambda _, roots: swept.append(len(roots)))
    index.bring()
    home.session("newer")
    index.bring()
    assert swept == []
    home.script("UPDATE sessions SET hidden = 1 WHERE id = 'talk'")
    index.bring()
    assert len(swept) == 1
    monkeypatch.setattr(indexing, "SWEEP_S", 0.0)  # another process may have seen one come and go
    index.bring()
    assert len(swept) == 2


@pytest.mark.parametrize(("rate", "size"), [(0, FIRST_BATCH), (1, 1), (60, 36), (10_000, BATCH)])
def test_a_batch_is_as_large_as_fits_between_two_looks_at_the_clock(
    index: Index, monkeypatch: pytest.MonkeyPatch, rate: float, size: int
) -> None:
    monkeypatch.setattr(Indexer, "rate", rate)
    assert Indexer(index.store, index.embedder)._batch() == size


def test_bringing_one_project_forward_sweeps_none_of_another(
    index: Index, home: SmallHome, talk: list[int]
) -> None:
    home.session("other", cwd=BOREALIS)
    home.talk("other", "This one stays.")
    index.cost()
    index.bring(roots=["talk"])
    assert {"talk", "other"} <= index.roots()


# --- in which order ---------------------------------------------------------------------------------


@pytest.fixture
def three(home: SmallHome) -> dict[str, list[int]]:
    """Three conversations of twenty messages, `c0` the oldest."""
    made = {}
    for name in ("c0", "c1", "c2"):
        home.session(name)
        made[name] = home.talk(name, *(f"{name} says sentence {n}." for n in range(20)))
    return made


def spoken(texts: list[str]) -> list[str]:
    """The last words of what was embedded: "c0 17"."""
    return [f"{words[-4]} {words[-1]}" for words in map(str.split, texts)]


def test_hits_and_what_lies_beside_them_come_first_then_the_newest(
    index: Index, three: dict[str, list[int]]
) -> None:
    index.bring(hits={"c0": [three["c0"][10]], "c1": [three["c1"][0]]})
    said = spoken(index.embedder.texts)
    first = 2 * NEAR + 1
    assert set(said[:first]) == {f"c0 {n}" for n in range(10 - NEAR, 10 + NEAR + 1)}
    assert set(said[first : first + NEAR + 1]) == {f"c1 {n}" for n in range(NEAR + 1)}
    rest = said[first + NEAR + 1 :]
    assert rest[:20] == [f"c2 {n}" for n in range(20)]
    assert Counter(said) == Counter(f"{c} {n}" for c in three for n in range(20))


def test_when_the_time_is_short_the_hits_are_what_is_embedded(
    index: Index, three: dict[str, list[int]]
) -> None:
    progress = index.bring(hits={"c0": [three["c0"][10]]}, over=after(1))  # enough for a batch
    assert {text.split()[0] for text in spoken(index.embedder.texts)} == {"c0"}
    assert progress.coverage == Coverage(have=2 * NEAR + 1, owed=20 - 2 * NEAR - 1, abandoned=0)
    assert progress.unplanned == 3  # two of ours, and the caller
    assert 0 < progress.share < 1


@pytest.mark.parametrize("hits", [{}, {"c0": [1]}], ids=["no hits", "hits"])
def test_with_no_time_at_all_nothing_is_embedded(
    index: Index, three: dict[str, list[int]], hits: dict[str, list[int]]
) -> None:
    progress = index.bring(hits=hits, over=always)
    assert index.embedder.texts == []
    assert not progress.complete
    assert progress.share == 0


def test_little_by_little_it_is_complete(index: Index, home: SmallHome, three: dict[str, list[int]]) -> None:
    home.fill("c1", (f"c1 goes on with sentence {n}." for n in range(3 * BATCH)))
    shares = [index.bring(over=after(2)).share]
    while shares[-1] < 1:
        shares.append(index.bring(over=after(2)).share)
    assert len(shares) > 2
    assert shares == sorted(shares)
    assert index.bring().complete
    assert len(index.embedder.texts) == len(set(index.embedder.texts)) == 60 + 3 * BATCH


def test_beside_takes_the_best_hit_first_and_nothing_twice() -> None:
    known = [Piece(m, part, 1, "", bytes([m, part])) for m in range(1, 12) for part in (0, 1)]
    keys = beside(known, [5, 6, 99])
    assert keys[:2] == [b"\5\0", b"\5\1"]
    assert len(keys) == len(set(keys))
    assert {key[0] for key in keys} == set(range(5 - NEAR, 6 + NEAR + 1))
    assert beside(known, [99]) == beside([], [1]) == []


def test_a_hit_in_a_conversation_with_nothing_left_to_embed_costs_no_reading(
    index: Index, three: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    index.cost()
    monkeypatch.setattr(Indexer, "read", lambda *_: pytest.fail("a conversation was read"))
    assert index.bring(hits={"c0": three["c0"]}).complete


# --- together ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [True, False], ids=["one store", "a store each"])
def test_two_threads_share_the_work(index: Index, home: SmallHome, shared: bool) -> None:
    for c in range(6):
        home.session(f"c{c}")
        home.fill(f"c{c}", (f"Sentence {n} of conversation {c}." for n in range(100)))
    other = Index(home, index.store if shared else Store(index.store.path))
    both = threading.Barrier(2)

    def bring(one: Index) -> None:
        both.wait()
        while not one.bring().complete:
            pass

    threads = [threading.Thread(target=bring, args=[one]) for one in (index, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other.store.close()
    texts = index.embedder.texts + other.embedder.texts
    assert len(texts) == len(set(texts)) == 600
    assert index.store.coverage(index.fp, [f"c{c}" for c in range(6)]) == Coverage(600, 0, 0)


def crowded(path: Path) -> SmallHome:
    home = furnished(path)
    for c in range(8):
        home.session(f"c{c}")
        home.fill(f"c{c}", (f"Sentence {n} of conversation {c}." for n in range(80)))
    return home


def run(home: SmallHome, settings: Settings) -> tuple[dict[str, int], list[str]]:
    """How the processes ended, and what they embedded."""
    done = subprocess.run(
        [sys.executable, str(WORKER), str(home.path), settings.argument()],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told: dict[str, int] = json.loads(done.stdout)
    return told, (home.path / "embedded").read_text().split()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_three_processes_embed_nothing_twice(tmp_path: Path) -> None:
    home = crowded(tmp_path / "home")
    _, texts = run(home, Settings(workers=3, pause=0.01))
    assert len(texts) == len(set(texts)) == 640
    index = Index(home, Store(indexing.store_path(home.path)))
    assert index.cost() == 0
    index.store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("seed", [1])
def test_killed_fifty_times_it_ends_as_if_nobody_had_been(tmp_path: Path, seed: int) -> None:
    home, calm = crowded(tmp_path / "home"), crowded(tmp_path / "calm")
    told, texts = run(home, Settings(workers=2, kills=50, pause=0.05, seed=seed))
    assert told["deaths"] > 25
    assert len(texts) <= 640 + told["deaths"] * BATCH  # each death loses a batch at most
    undisturbed, disturbed = (Index(h, Store(indexing.store_path(h.path))) for h in (calm, home))
    assert undisturbed.cost() == 640
    assert disturbed.cost() == 0
    assert disturbed.rows() == undisturbed.rows()
    for one in (undisturbed, disturbed):
        one.store.close()


# --- what cannot be embedded ------------------------------------------------------------------------


class Choking(MadeUp):
    """Raises on any batch with this word in it."""

    def __init__(self, word: str, error: Exception) -> None:
        super().__init__()
        self.word, self.error, self.choked = word, error, 0

    def encode(self, texts: Sequence[str]) -> Any:
        if any(self.word in text for text in texts):
            self.choked += 1
            raise self.error
        return super().encode(texts)


def test_a_text_that_fails_is_tried_alone_and_given_up(index: Index, home: SmallHome) -> None:
    home.session("talk")
    home.talk("talk", *TALK[:3], "The poison is here.", *TALK[3:])
    index.embedder = Choking("poison", ValueError("no"))
    for _ in range(MAX_TRIES + 2):
        progress = index.bring()
    # The message itself, and the one that carries it as context.
    assert progress.coverage == Coverage(have=5, owed=0, abandoned=2)
    assert progress.complete
    assert index.embedder.choked == 1 + 2 * MAX_TRIES  # once together
    index.bring()
    assert index.embedder.choked == 1 + 2 * MAX_TRIES
    assert index.store.errors(index.fp, ["talk"]) == {"ValueError": 2}


def test_a_vector_that_cannot_be_stored_is_given_up_alone(
    index: Index, home: SmallHome, talk: list[int]
) -> None:
    class Blank(MadeUp):
        def encode(self, texts: Sequence[str]) -> Any:
            vectors = super().encode(texts)
            vectors[[i for i, text in enumerate(texts) if text.endswith("release")]] = float("nan")
            return vectors

    index.embedder = Blank()
    for _ in range(MAX_TRIES + 2):
        progress = index.bring()
    assert progress.coverage == Coverage(have=len(TALK) - 1, owed=0, abandoned=1)


def test_a_text_that_was_given_up_is_tried_again_when_it_changes(index: Index, home: SmallHome) -> None:
    home.session("talk")
    at = home.say("talk", "The poison is here.")
    index.embedder = Choking("poison", ValueError("no"))
    for _ in range(MAX_TRIES + 1):
        index.bring()
    home.write("UPDATE messages SET active = 0 WHERE id = ?", [[at]])
    home.say("talk", "The cure is here.")
    assert index.bring().coverage == Coverage(have=1, owed=0, abandoned=0)


def test_an_embedder_that_is_not_there_counts_against_no_text(index: Index, talk: list[int]) -> None:
    index.embedder = Choking("import", EmbedderUnavailable("not installed"))
    for _ in range(MAX_TRIES + 2):
        with pytest.raises(EmbedderUnavailable):
            index.bring()
    assert {row[2:] for row in index.rows()["debt"]} == {(None, 0)}  # no owner, no try
    index.embedder = MadeUp()
    assert index.cost() == len(TALK)


# --- redaction --------------------------------------------------------------------------------------


def hide(text: str) -> str:
    return text.replace("sk-12345", "[key]")


def test_what_is_embedded_is_redacted_first(index: Index, home: SmallHome, talk: list[int]) -> None:
    home.say("talk", "The key is sk-12345.")
    index.redact = hide
    index.cost()
    assert not any("12345" in text for text in index.embedder.texts)
    assert index.embedder.texts[-1].endswith("the key is key")


def test_a_redacted_text_has_another_key(index: Index, home: SmallHome, talk: list[int]) -> None:
    home.say("talk", "The key is sk-12345.")
    index.cost()
    bare = {row[1] for row in index.rows()["vec"]}
    index.redact = hide
    assert index.cost() == 1  # the others are the same text as before
    redacted = {row[1] for row in index.rows()["vec"]}
    assert len(redacted) == len(bare) == len(TALK) + 1
    assert len(redacted - bare) == 1


def test_what_another_process_planned_without_a_redactor_is_paid_with_one(
    index: Index, home: SmallHome, talk: list[int]
) -> None:
    home.say("talk", "The key is sk-12345.")
    index.bring(hits={"talk": talk}, over=always)  # planned, and nothing embedded
    index.redact = hide
    assert index.bring().complete
    assert not any("12345" in text for text in index.embedder.texts)


# --- the background worker --------------------------------------------------------------------------


def test_the_worker_finishes_what_a_search_began(index: Index, three: dict[str, list[int]]) -> None:
    index.bring(over=always)
    index.start_worker().join(30)
    assert len(index.embedder.texts) == len(set(index.embedder.texts)) == 60
    assert index.cost() == 0


def test_the_worker_too_embeds_a_branch_once(index: Index, home: SmallHome, talk: list[int]) -> None:
    branch(home, *TALK[:4], "What if there were no lock?")
    index.bring(hits={"talk": talk, "branch": [7]}, over=always)
    index.start_worker(["branch", "talk"]).join(30)
    assert len(index.embedder.texts) == len(TALK) + 1
    assert index.cost() == 0


def test_the_worker_lives_in_the_context_of_its_call(index: Index, talk: list[int]) -> None:
    profile = contextvars.ContextVar("profile", default="default")
    seen = set()

    class Asking(MadeUp):
        def encode(self, texts: Sequence[str]) -> Any:
            seen.add(profile.get())
            return super().encode(texts)

    index.embedder = Asking()

    def call() -> threading.Thread:
        profile.set("work")
        return index.start_worker()

    contextvars.copy_context().run(call).join(30)
    assert seen == {"work"}


class Waiting(MadeUp):
    """Says when it embeds, and goes on when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.let = threading.Event(), threading.Event()

    def encode(self, texts: Sequence[str]) -> Any:
        self.begun.set()
        assert self.let.wait(30)
        return super().encode(texts)


def test_there_is_one_worker_a_home(index: Index, talk: list[int]) -> None:
    index.embedder = embedder = Waiting()
    first = index.start_worker()
    assert embedder.begun.wait(30)
    assert index.start_worker() is first
    embedder.let.set()
    first.join(30)
    assert index.start_worker() is not first


def test_a_worker_that_is_stopped_gives_its_claims_back(index: Index, home: SmallHome) -> None:
    home.session("talk")
    home.fill("talk", (f"Sentence {n} of many." for n in range(3 * BATCH)))
    index.embedder = embedder = Waiting()
    worker = index.start_worker()
    assert embedder.begun.wait(30)
    assert {row[2] is None for row in index.rows()["debt"]} == {True, False}
    indexing.stop_workers(0)
    embedder.let.set()
    worker.join(30)
    assert not worker.is_alive()
    assert len(embedder.texts) == FIRST_BATCH  # the batch it had begun
    assert [row[2:] for row in index.rows()["debt"]] == [(None, 0)] * (3 * BATCH - FIRST_BATCH)


def test_a_search_goes_round_what_the_worker_has_in_hand(index: Index, home: SmallHome) -> None:
    home.session("talk")
    home.fill("talk", (f"Sentence {n} of many." for n in range(3 * BATCH)))
    index.embedder = embedder = Waiting()
    worker = index.start_worker()
    assert embedder.begun.wait(30)
    searching = Index(home, index.store)
    assert searching.bring().coverage == Coverage(have=3 * BATCH - FIRST_BATCH, owed=FIRST_BATCH, abandoned=0)
    embedder.let.set()
    worker.join(30)
    assert searching.bring().complete
    assert not set(searching.embedder.texts) & set(embedder.texts)


@pytest.mark.parametrize("error", [EmbedderUnavailable("gone"), KeyError("bug")])
def test_a_worker_that_fails_ends_quietly(index: Index, talk: list[int], error: Exception) -> None:
    index.embedder = Choking("import", error)
    worker = index.start_worker()
    worker.join(30)
    assert not worker.is_alive()
    assert all(row[2] is None for row in index.rows()["debt"])


@pytest.mark.parametrize(
    ("error", "level"), [(EmbedderUnavailable("gone"), "INFO"), (sqlite3.OperationalError("interrupted"), "INFO"),
                         (KeyError("bug"), "ERROR")]
)  # fmt: skip
def test_why_a_worker_ended_is_in_the_log(
    index: Index,
    talk: list[int],
    error: Exception,
    level: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(*_: Any) -> None:
        raise error

    monkeypatch.setattr(Indexer, "work", fails)
    with caplog.at_level("INFO", indexing.__name__):
        index.start_worker().join(30)
    assert [(record.levelname, "background indexing" in record.message) for record in caplog.records] == [(level, True)]


def test_a_worker_whose_home_is_gone_ends_quietly(index: Index, home: SmallHome, talk: list[int]) -> None:
    with State(home.path) as state:
        all_ = everywhere(state)
    home.state.unlink()
    start_worker(home.path, index.store, index.embedder, None, home.connect, all_, ["talk"])
    indexing._workers[home.path][0].join(30)
    assert index.embedder.texts == []


# --- any history ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_to_the_rows_the_index_is_that_of_a_fresh_one(
    index: Index, home: SmallHome, tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    names = ["c0", "c1", "c2"]
    for name in names:
        home.session(name)
    for step in range(25):
        name = dice.choice(names)
        match dice.randrange(6):
            case 0 | 1 | 2:
                home.talk(name, *(f"{dice.choice(TALK)} {n}" for n in range(dice.randint(1, 4))))
            case 3:
                home.write(
                    "UPDATE messages SET active = 0, compacted = ? WHERE session_id = ? AND id % 3 = ?",
                    [[dice.randint(0, 1), name, step % 3]],
                )
            case 4:
                home.write("DELETE FROM messages WHERE session_id = ? AND id % 4 = ?", [[name, step % 4]])
            case 5:
                index.bring(over=after(dice.randint(0, 4)))
    index.bring()
    fresh = Index(home, Store(tmp_path / "fresh.db"))
    assert fresh.bring().complete
    assert index.rows() == fresh.rows()
    fresh.store.close()
