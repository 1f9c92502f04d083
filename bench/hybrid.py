"""Time of a hybrid call beside its legs, and of the catch-up when there is nothing new, in a scope of 200 sessions.

    python bench/hybrid.py [--messages 200000] [--rounds 15] [--home HOME]

The scope is embedded first. All calls alternate in one run, warm; medians in ms. The catch-up is measured against
the same hybrid call with it left out; the query is embedded in every call that searches by meaning.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from common import load
from quality import Quiet
from speed import big_home

QUERIES = ("how did we fix the retry of the token store", "上次回调重复入账怎么修的", "token retry")


class Scope:
    """One project of a home made by big_home.py, to be asked as the tool asks."""

    def __init__(self, home: Path, project: str = "scope-200") -> None:
        self.package = load()
        self.home, self.project = home, project
        self.surroundings = Quiet(self.package.host.current(home=home))
        self.surroundings.settings = self.package.config_schema.Settings()

    def call(self, query: str, mode: str) -> dict[str, Any]:
        args = {"query": query, "mode": mode, "project": self.project}
        answer: dict[str, Any] = self.package.search.run(args, self.surroundings, lambda _: self.package.scope.owner())
        return answer

    def embed(self) -> float:
        """Ask until everything is embedded; how many seconds that took."""
        began = time.monotonic()
        while self.call(QUERIES[0], "hybrid")["semantic_status"] != "ready":
            time.sleep(5)
        return time.monotonic() - began

    def vector_bytes(self) -> int:
        """What the vectors of this project come to, in bytes."""
        store = self.package.semantic.open_store(self.home)
        with self.package.state.State(self.home) as state:
            projects = self.package.state.read_projects(self.home)
            attribution = self.package.attribution.Attribution(projects, self.surroundings.find_roots)
            conversations = self.package.scope.Conversations(state.sessions())
            everywhere = self.package.scope.Everywhere(conversations, attribution, projects)
            roots = [root for root in everywhere.roots if everywhere.ref(root).name == self.project]
        embedder = self.package.embeddings.LocalEmbedder
        have: int = store.coverage(store.model(embedder.fingerprint, embedder.dim), roots).have
        return have * int(embedder.dim)


class Row(NamedTuple):
    """One query, medians in ms; `off` is hybrid with the catch-up left out."""

    query: str
    keyword: float
    semantic: float
    hybrid: float
    off: float

    @property
    def ratio(self) -> float:
        return self.hybrid / (self.keyword + self.semantic)


def measure(home: Path, rounds: int) -> Iterator[Row]:
    scope = Scope(home)
    scope.embed()
    catch_up = scope.package.indexing.Indexer.catch_up
    for query in QUERIES:
        times: dict[str, list[float]] = {}
        for _ in range(rounds):
            for name in ("keyword", "semantic", "hybrid", "off"):
                if name == "off":
                    scope.package.indexing.Indexer.catch_up = nothing_new(scope.package)
                try:
                    started = time.perf_counter()
                    scope.call(query, "hybrid" if name == "off" else name)
                    times.setdefault(name, []).append(1000 * (time.perf_counter() - started))
                finally:
                    scope.package.indexing.Indexer.catch_up = catch_up
        yield Row(query, *(statistics.median(times[name]) for name in ("keyword", "semantic", "hybrid", "off")))


def nothing_new(package: Any) -> Any:
    """A catch-up that only says the scope is complete."""
    done = package.indexing.Progress(package.vectors.Coverage(1, 0, 0), 0, 1, 0.0)
    return lambda *_: done


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--messages", type=int, default=200_000)
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--home", type=Path, help="a home made by big_home.py")
    args = options.parse_args()
    print(f"{'query':46} keyword semantic  hybrid  ratio  without catch-up")
    for row in measure(args.home or big_home(args.messages), args.rounds):
        times = f"{row.keyword:7.1f} {row.semantic:8.1f} {row.hybrid:7.1f} {row.ratio:6.2f} {row.off:17.1f}"
        print(f"{row.query:46} {times}", flush=True)


if __name__ == "__main__":
    main()
