"""Time and size of the vector store beside the bare SQL it stands on, for 100k chunks and for 10k of them.

    python bench/vectors.py [--chunks 100000] [--dim 512] [--rounds 15] [--folder FOLDER]

Bare is one plain clustered table in ideal order (conversation, model, message, offset, int8 vector) joined
from the scope, and sqlite-vec's cosine over it. The store answers the same with its own keys and places. All
alternate in one run, warm; medians of CPU and wall time in ms. Vectors are random, 100 to a conversation,
those of one conversation a little alike. Recall is against exact float32.
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
from typing import Any

import apsw
import numpy as np
from common import load

PER = 100  # chunks of a conversation
BATCH = 64

load()
store_module = importlib.import_module("project_history_recall.vectors")
Place, Plan = store_module.Place, store_module.Plan
Owner, Store = store_module.Owner, store_module.Store


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
        measure(folder, args.chunks // PER, args.dim, args.rounds)
    finally:
        if not args.folder:
            shutil.rmtree(folder)


def measure(folder: Path, conversations: int, dim: int, rounds: int) -> None:
    roots = [f"20260901_{n:06d}_a1b2" for n in range(conversations)]
    path = folder / "embeddings.db"
    store = Store(path)
    fp = store.model("bench", dim)
    content = conversations * PER * (dim + 16)
    print(f"{conversations * PER} chunks of {dim} dimensions, {conversations} conversations, {store.backend}")

    print(f"\nplan, {conversations} conversations        {timed(lambda: plan(store, fp, roots)):8.1f} s")
    print(f"claim and store, batches of {BATCH}       {timed(lambda: pay(store, fp, roots, dim)):8.1f} s")
    print(f"file / (vectors + keys)              {path.stat().st_size / content:8.2f}")
    seconds = timed(store.tidy)
    size = path.stat().st_size
    each = size / conversations / PER
    print(f"... after tidy ({seconds:.1f} s)               {size / content:8.2f}   {each:.0f} bytes a chunk")
    for name in ("stamps", "owed", "coverage"):
        cpu, _ = alternate({name: lambda name=name: getattr(store, name)(fp, roots[:200])}, rounds)  # type: ignore[misc]
        print(f"{name + ' of 200 conversations':37}{cpu[name]:8.1f} ms")

    bare = build_bare(folder / "bare.db", roots, dim)
    numpy_store = Store(path, extension=False)
    query = np.random.default_rng(99).standard_normal(dim).astype(np.float32)
    scaled = np.rint(query / np.abs(query).max() * 127).astype(np.int8).tobytes()
    columns = "bare   store   ratio   numpy"
    print(f"\nms a query                           CPU: {columns} | wall: {columns}")
    for scope in (roots, roots[:: max(1, conversations // 100)][:100], roots[:12]):
        for k in (10, 200):
            calls: dict[str, Callable[[], Any]] = {
                "bare": lambda scope=scope, k=k: search_bare(bare, scope, scaled, k),  # type: ignore[misc]
                "store": lambda scope=scope, k=k: store.nearest(fp, scope, query, k),  # type: ignore[misc]
                "numpy": lambda scope=scope, k=k: numpy_store.nearest(fp, scope, query, k),  # type: ignore[misc]
            }
            assert calls["store"]() == calls["numpy"]()
            cpu, wall = alternate(calls, rounds)
            print(
                f"{len(scope) * PER:6d} chunks in scope, k = {k:3d}      "
                + " | ".join(
                    f"{t['bare']:10.2f} {t['store']:7.2f} {t['store'] / t['bare']:7.2f} {t['numpy']:7.2f}"
                    for t in (cpu, wall)
                )
            )
    print(f"\nrecall@10 of int8 against float32    {recall(store, fp, roots[:200], dim):8.3f}")

    store.keep(roots[::2])
    print(f"\nhalf of the conversations swept      {path.stat().st_size / content * 2:8.2f}")
    seconds = timed(store.tidy)
    print(f"... after tidy ({seconds:.1f} s)               {path.stat().st_size / content * 2:8.2f}")
    store.close()
    numpy_store.close()
    bare.close()


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


def alternate(calls: dict[str, Callable[[], Any]], rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """Medians of CPU and wall time in ms, each call once a round."""
    cpu: dict[str, list[float]] = {name: [] for name in calls}
    wall: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start, processor = time.perf_counter(), time.process_time()
            call()
            cpu[name].append(1000 * (time.process_time() - processor))
            wall[name].append(1000 * (time.perf_counter() - start))
    return tuple({n: statistics.median(t) for n, t in times.items()} for times in (cpu, wall))  # type: ignore[return-value]


main()
