"""How a call grows with what lies outside its scope, and with what lies inside: whole homes, and bare stores.

    python bench/scale.py [--rounds 9] [--chunks 1000000]

Calls: the same project sizes in homes of 10,000 to 1,000,000 messages, each call in turn in every home of one run;
medians in ms. Hybrid calls where the scope is embedded (the first run embeds it). Stores: `nearest` for 10,000 chunks
in a store of their own and in one of `--chunks`, and for all of them; warm, and cold as a new process finds it.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from common import load
from hybrid import Scope
from speed import QUERIES, big_home

HOMES = {10_000: "12,100", 20_000: "12,200", 200_000: "12,200,2000", 1_000_000: "12,200,2000"}
ASKED = ("two words", "question", "中文 question")
PER = 100


class Call(NamedTuple):
    """One query in one scope: {messages of the home: median ms}."""

    scope: int
    mode: str
    query: str
    times: dict[int, float]

    def growth(self, few: int, many: int) -> float:
        return self.times[many] / self.times[few]


def calls(rounds: int) -> Iterator[Call]:
    for scope in (12, 200, 2000):
        homes = {n: big_home(n, scopes) for n, scopes in HOMES.items() if str(scope) in scopes.split(",")}
        asked = {n: Scope(home, f"scope-{scope}") for n, home in homes.items()}
        modes = ["keyword"]
        if scope == 200:
            for one in asked.values():
                one.embed()
            modes.append("hybrid")
        for mode in modes:
            for query in ASKED:
                some: dict[int, Callable[[], Any]]
                some = {n: partial(one.call, QUERIES[query], mode) for n, one in asked.items()}
                yield Call(scope, mode, query, alternate(some, rounds))


class Nearest(NamedTuple):
    """`nearest` with k = 200: chunks in scope and in the store, and medians in ms."""

    scope: int
    chunks: int
    warm: float
    cold: float


def stores(chunks: int, rounds: int, folder: Path) -> Iterator[Nearest]:
    import numpy as np

    import vectors

    query = np.random.default_rng(99).standard_normal(512).astype(np.float32)
    sizes = {10_000: [10_000], 100_000: [10_000, 100_000], chunks: [10_000, 100_000, chunks]}
    made = {size: vectors.build(folder / f"{size}.db", size, 512) for size in sizes}
    warm: dict[tuple[int, int], Callable[[], Any]] = {}
    cold: dict[tuple[int, int], Callable[[], Any]] = {}
    for size, scopes in sizes.items():
        store, fp, roots = made[size]
        for scope in scopes:
            some = roots[:: max(1, size // scope)][: scope // PER]
            warm[scope, size] = lambda store=store, fp=fp, some=some: store.nearest(fp, some, query, 200)  # type: ignore[misc]
            cold[scope, size] = lambda store=store, fp=fp, some=some: (  # type: ignore[misc]
                store._held.clear(), store.nearest(fp, some, query, 200)
            )  # fmt: skip
    warmed: dict[tuple[int, int], float] = {}
    for scope in sizes[chunks]:  # the scopes of one store share its room in memory
        warmed |= alternate({key: call for key, call in warm.items() if key[0] == scope}, rounds)
    chilled = alternate(cold, max(3, rounds // 3))
    for scope, size in warm:
        yield Nearest(scope, size, warmed[scope, size], chilled[scope, size])
    for store, _, _ in made.values():
        store.close()


def alternate(some: dict[Any, Callable[[], Any]], rounds: int) -> dict[Any, float]:
    """Medians in ms, each call once a round, after one that is not counted."""
    times: dict[Any, list[float]] = {key: [] for key in some}
    for number in range(rounds + 1):
        for key, call in some.items():
            took = timed(call)
            if number:
                times[key].append(took)
    return {key: statistics.median(all_) for key, all_ in times.items()}


def timed(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - began)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--chunks", type=int, default=1_000_000)
    args = options.parse_args()
    load()
    print("scope  mode     query          " + "".join(f"{n:>11}" for n in HOMES))
    for call in calls(args.rounds):
        times = "".join(f"{call.times[n]:11.1f}" if n in call.times else " " * 11 for n in HOMES)
        print(f"{call.scope:5}  {call.mode:8} {call.query:14} {times}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="scale-"))
    try:
        print("\nchunks in scope  in store     warm     cold")
        for row in stores(args.chunks, args.rounds, folder):
            print(f"{row.scope:15} {row.chunks:9} {row.warm:8.1f} {row.cold:8.1f}", flush=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
