"""Time of a hybrid call beside its legs, and of the catch-up when there is nothing new, in a scope of 200 sessions.

    python bench/hybrid.py [--messages 200000] [--rounds 15] [--home HOME]

The scope is embedded first. All calls alternate in one run, warm; medians in ms. The catch-up is measured against
the same hybrid call with it left out; the query is embedded in every call that searches by meaning.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

from common import load
from quality import Quiet
from speed import big_home

QUERIES = ("how did we fix the retry of the token store", "上次回调重复入账怎么修的", "token retry")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--messages", type=int, default=200_000)
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--home", type=Path, help="a home made by big_home.py")
    args = options.parse_args()
    home = args.home or big_home(args.messages)
    package = load()
    surroundings = Quiet(package.host.current(home=home))
    surroundings.settings = package.config_schema.Settings()

    def call(query: str, mode: str) -> dict[str, Any]:
        answer: dict[str, Any] = package.search.run(
            {"query": query, "mode": mode, "project": "scope-200"}, surroundings, lambda _: package.scope.owner()
        )
        return answer

    began = time.monotonic()
    while call(QUERIES[0], "hybrid")["semantic_status"] != "ready":
        time.sleep(5)
    print(f"embedded in {time.monotonic() - began:.0f} s")
    catch_up = package.indexing.Indexer.catch_up
    print(f"{'query':46} keyword semantic  hybrid  ratio  without catch-up")
    for query in QUERIES:
        times: dict[str, list[float]] = {}
        for _ in range(args.rounds):
            for name in ("keyword", "semantic", "hybrid", "off"):
                mode = "hybrid" if name == "off" else name
                if name == "off":
                    package.indexing.Indexer.catch_up = nothing_new(package)
                try:
                    started = time.perf_counter()
                    call(query, mode)
                    times.setdefault(name, []).append(1000 * (time.perf_counter() - started))
                finally:
                    package.indexing.Indexer.catch_up = catch_up
        k, s, h, off = (statistics.median(times[name]) for name in ("keyword", "semantic", "hybrid", "off"))
        print(f"{query:46} {k:7.1f} {s:8.1f} {h:7.1f} {h / (k + s):6.2f} {off:17.1f}", flush=True)


def nothing_new(package: Any) -> Any:
    """A catch-up that only says the scope is complete."""
    done = package.indexing.Progress(package.vectors.Coverage(1, 0, 0), 0, 1, 0.0)
    return lambda *_: done


if __name__ == "__main__":
    main()
