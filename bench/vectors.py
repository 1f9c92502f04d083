"""Time and size of the vector store beside the bare SQL it stands on, for 100k chunks and for 10k of them.

    python bench/vectors.py [--chunks 100000] [--dim 512] [--rounds 15] [--folder FOLDER]

Bare is one plain clustered table in ideal order (conversation, model, message, offset, int8 vector) joined
from the scope, and sqlite-vec's cosine over it. The store answers the same with its own keys and places: from
memory, as every search after the first; cold, as the first; and by numpy with nothing in memory. All alternate in
one run; medians of wall time in ms. Vectors are random, 100 to a conversation, those of one conversation a little
alike. Recall is against exact float32.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import numpy as np
from common import load

PER = 100  # chunks of a conversation
BATCH = 64

load()
store_module = importlib.import_module("project_history_recall.vectors")
held = importlib.import_module("project_history_recall.held")
Place, Plan = store_module.Place, store_module.Plan
Owner, Store = store_module.Owner, store_module.Store


class Query(NamedTuple):
    """One scope: medians of wall time in ms, k = 10 and k = 200. `cold` is the first search of a process."""

    scope: int
    k: int
    bare: float
    store: float
    cold: float
    numpy: float


class Report(NamedTuple):
    """`fresh`, `tidied`, `swept`, `packed`: the file by its vectors and keys; `recall`: at 10, against float32."""

    chunks: int
    queries: list[Query]
    fresh: float
    tidied: float
    swept: float
    packed: float
    recall: float


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    options = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    options.add_argument("--chunks", type=int, default=100_000)
    options.add_argument("--dim", type=int, default=512)
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--folder", type=Path, help="where to build; default a temporary folder")
    args = options.parse_args()
    folder = args.folder or Path(tempfile.mkdtemp(prefix="vectors-"))
    try:
        measure(folder, args.chunks, args.dim, args.rounds)
    finally:
        if not args.folder:
            shutil.rmtree(folder)


def build(path: Path, chunks: int, dim: int) -> tuple[Any, int, list[str]]:
    """(store, number of its model, conversations) of a new store with that many chunks."""
    roots = [f"20260901_{n:06d}_a1b2" for n in range(chunks // PER)]
    store = Store(path)
    fp = store.model("bench", dim)
    print(f"{chunks} chunks: planned in {timed(lambda: plan(store, fp, roots)):.1f} s", end=", ", flush=True)
    print(f"claimed and stored by {BATCH} in {timed(lambda: pay(store, fp, roots, dim)):.1f} s", flush=True)
    return store, fp, roots


def measure(folder: Path, chunks: int, dim: int, rounds: int) -> Report:
    path = folder / "embeddings.db"
    store, fp, roots = build(path, chunks, dim)
    content = chunks * (dim + 16)
    fresh = path.stat().st_size / content
    store.tidy()
    tidied = path.stat().st_size / content
    print(f"{dim} dimensions, {store.backend}; file / (vectors + keys) {fresh:.2f}, after tidy {tidied:.2f}")
    for name in ("stamps", "owed", "coverage"):
        took = alternate({name: lambda name=name: getattr(store, name)(fp, roots[:200])}, rounds)  # type: ignore[misc]
        print(f"{name} of 200 conversations {took[name]:.1f} ms")

    bare = build_bare(folder / "bare.db", roots, dim)
    numpy_store = Store(path, extension=False)  # and no room in memory: the slowest way there is
    numpy_store._held = held.Held(0)
    cold_store = Store(path)
    query = np.random.default_rng(99).standard_normal(dim).astype(np.float32)
    scaled = np.rint(query / np.abs(query).max() * 127).astype(np.int8).tobytes()
    queries = []
    print("\nchunks in scope    k     bare    store   ratio     cold    numpy")
    for scope in (roots, roots[:: max(1, len(roots) // 100)][:100], roots[:12]):
        for k in (10, 200):

            def cold(scope: list[str] = scope, k: int = k) -> Any:
                cold_store._held.clear()
                return cold_store.nearest(fp, scope, query, k)

            calls: dict[str, Callable[[], Any]] = {
                "bare": lambda scope=scope, k=k: search_bare(bare, scope, scaled, k),  # type: ignore[misc]
                "store": lambda scope=scope, k=k: store.nearest(fp, scope, query, k),  # type: ignore[misc]
                "cold": cold,
                "numpy": lambda scope=scope, k=k: numpy_store.nearest(fp, scope, query, k),  # type: ignore[misc]
            }
            assert calls["store"]() == calls["numpy"]() == calls["cold"]()
            queries.append(one := Query(len(scope) * PER, k, **alternate(calls, rounds)))
            times = f"{one.bare:8.2f} {one.store:8.2f} {one.store / one.bare:7.2f} {one.cold:8.2f} {one.numpy:8.2f}"
            print(f"{one.scope:15} {k:4} {times}", flush=True)
    near = recall(store, fp, roots[:200], dim)
    store.keep(roots[::2])
    swept = path.stat().st_size / content * 2
    store.tidy()
    packed = path.stat().st_size / content * 2
    print(f"\nrecall@10 of int8 against float32 {near:.3f}; half swept: file {swept:.2f}, after tidy {packed:.2f}")
    for one_store in (store, numpy_store, cold_store, bare):
        one_store.close()
    return Report(chunks, queries, fresh, tidied, swept, packed, near)


def key(root: str, n: int) -> bytes:
    return hashlib.blake2b(f"{root} {n}".encode(), digest_size=16).digest()


def made(number: int, dim: int) -> Any:
    """The vectors of a conversation: (PER, dim) float32."""
    dice = np.random.default_rng(number)
    return dice.standard_normal((PER, dim), np.float32) + 0.3 * dice.standard_normal(dim, np.float32)


def plan(store: Any, fp: int, roots: list[str]) -> None:
    for start in range(0, len(roots), 50):
        some = enumerate(roots[start : start + 50], start)
        store.plan_all(
            fp, [Plan(r, "1", [Place(PER * n + i, 0, 150, key(r, i)) for i in range(PER)]) for n, r in some]
        )


def pay(store: Any, fp: int, roots: list[str], dim: int) -> None:
    me = Owner.current()
    for number, root in enumerate(roots):
        by_key = dict(zip((key(root, n) for n in range(PER)), made(number, dim), strict=True))
        keys = list(by_key)
        for start in range(0, PER, BATCH):
            mine = store.claim(fp, me, root, keys[start : start + BATCH])
            store.done(fp, me, root, [(k, by_key[k]) for k in mine])


def build_bare(path: Path, roots: list[str], dim: int) -> apsw.Connection:
    db = apsw.Connection(str(path))
    sqlite_vec = importlib.import_module("sqlite_vec")
    db.enable_load_extension(True)
    db.load_extension(sqlite_vec.loadable_path())
    db.execute("PRAGMA page_size = 32768; PRAGMA synchronous = OFF")
    db.execute(
        """CREATE TABLE session(skey INTEGER PRIMARY KEY, session_id TEXT NOT NULL UNIQUE);
        CREATE TABLE chunk(skey INTEGER, fp INTEGER, message_id INTEGER, off INTEGER, len INTEGER, hash BLOB,
            v BLOB NOT NULL, PRIMARY KEY (skey, fp, message_id, off)) WITHOUT ROWID"""
    )
    with db:
        for number, root in enumerate(roots):
            v = made(number, dim)
            rows = np.rint(v / np.abs(v).max(1, keepdims=True) * 127).astype(np.int8)
            db.execute("INSERT INTO session VALUES (?, ?)", (number, root))
            db.executemany(
                "INSERT INTO chunk VALUES (?, 1, ?, 0, 150, ?, ?)",
                [(number, PER * number + n, key(root, n), rows[n].tobytes()) for n in range(PER)],
            )
    db.execute("VACUUM")
    return db


def search_bare(db: apsw.Connection, roots: Iterable[str], query: bytes, k: int) -> list[Any]:
    return list(
        db.execute(
            """SELECT s.session_id, c.message_id, c.off, vec_distance_cosine(vec_int8(c.v), vec_int8(?2)) AS d
                FROM json_each(?1) j CROSS JOIN session s ON s.session_id = j.value
                CROSS JOIN chunk c ON c.skey = s.skey AND c.fp = 1
                WHERE length(c.v) = length(?2) ORDER BY d LIMIT ?3""",
            (json.dumps(list(roots)), query, k),
        )
    )


def recall(store: Any, fp: int, roots: list[str], dim: int) -> float:
    every = np.concatenate([made(number, dim) for number in range(len(roots))])
    exact = every / np.linalg.norm(every, axis=1, keepdims=True)
    shares = []
    for n in range(30):
        query = np.random.default_rng(10**6 + n).standard_normal(dim).astype(np.float32)
        best = set(np.argsort(-(exact @ query))[:10].tolist())
        shares.append(len(best & {near.message_id for near in store.nearest(fp, roots, query, 10)}) / 10)
    return statistics.mean(shares)


def timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def alternate(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Medians of wall time in ms, each call once a round."""
    wall: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            wall[name].append(1000 * timed(call))
    return {name: statistics.median(times) for name, times in wall.items()}


if __name__ == "__main__":
    main()
