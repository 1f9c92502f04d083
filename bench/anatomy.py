"""Where the time of one hybrid call goes, and what the machine would need at the least for its two big parts.

    python bench/anatomy.py [--messages 200000] [--rounds 15] [--home HOME]

A scope of 200 sessions, embedded first. Each part is timed without the parts inside it, and beside it the time it
spends in SQL of the host's database and with how many statements. Medians of warm calls in ms. The limits: the
keyword leg's statements run bare, and the scope's vectors read once at the speed the machine copies memory.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from hybrid import QUERIES, Scope
from speed import big_home, record, run_bare

PARTS = {
    "whose conversations these are": (
        "state.State.__init__", "state.State.session_rows", "scope._conversations", "scope.read_projects",
        "search.choose_project", "search.resolve",
    ),
    "words matched and weighed": ("keywords.KeywordLeg.prepare", "keywords.KeywordLeg.find", "search._keyword_hits"),
    "query embedded": ("semantic.query_vector",),
    "what is new in the scope": ("indexing.Indexer.catch_up",),
    "vectors compared": ("vectors.Store.nearest",),
    "may it be shown": ("keywords.KeywordLeg.eligible",),
    "both legs ranked": ("search._rank",),
    "page, context, ends": ("search._page", "search._topic", "search._extras"),
    "answer written": ("search.fit",),
}  # fmt: skip
REST = "everything else"


@dataclass
class Times:
    """Of one call, by part: ms without the parts inside, ms of that in SQL, statements."""

    own: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    sql: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    statements: dict[str, int] = field(default_factory=lambda: defaultdict(int))


@contextmanager
def watched() -> Iterator[Callable[[Callable[[], Any]], Times]]:
    """Time the parts of calls made through what this gives."""
    times = Times()
    stack: list[list[Any]] = []  # the parts that are running: name, seconds of those inside

    def part(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            stack.append([name, 0.0])
            began = time.perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                took = time.perf_counter() - began
                times.own[name] += 1000 * (took - stack.pop()[1])
                if stack:
                    stack[-1][1] += took

        return timed

    def rows(original: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                where = stack[-1][0] if stack else REST
                times.sql[where] += 1000 * (time.perf_counter() - began)
                times.statements[where] += 1

        return timed

    def call(work: Callable[[], Any]) -> Times:
        nonlocal times
        times = Times()
        part(REST, work)()
        return times

    with ExitStack() as patches:
        for name, places in PARTS.items():
            for place in places:
                replace(patches, place, lambda original, name=name: part(name, original))  # type: ignore[misc]
        replace(patches, "state.State.rows", rows)
        yield call


def replace(patches: ExitStack, place: str, wrap: Callable[[Any], Any]) -> None:
    module, *names = place.split(".")
    owner: Any = importlib.import_module(f"project_history_recall.{module}")
    for name in names[:-1]:
        owner = getattr(owner, name)
    patches.enter_context(mock.patch.object(owner, names[-1], wrap(getattr(owner, names[-1]))))


@dataclass(frozen=True, slots=True)
class Anatomy:
    """Of one query, medians: {part: (ms, ms in SQL, statements)}, and the limits in ms."""

    query: str
    parts: dict[str, tuple[float, float, int]]
    whole: float
    bare_keywords: float
    vectors: float
    bytes_compared: int


def measure(home: Path, rounds: int) -> list[Anatomy]:
    scope = Scope(home)
    scope.embed()
    speed, content = copying(), scope.vector_bytes()
    found = []
    for query in QUERIES:
        statements = record(scope.package, lambda query=query: scope.call(query, "keyword"))
        taken, bare = [], []
        with watched() as call:
            for _ in range(rounds):
                taken.append(call(lambda query=query: scope.call(query, "hybrid")))  # type: ignore[misc]
                began = time.perf_counter()
                run_bare(home, statements)
                bare.append(1000 * (time.perf_counter() - began))
        parts = {
            name: (
                statistics.median(t.own[name] for t in taken),
                statistics.median(t.sql[name] for t in taken),
                statistics.median_high([t.statements[name] for t in taken]),
            )
            for name in (*PARTS, REST)
        }
        whole = statistics.median(sum(t.own.values()) for t in taken)
        found.append(Anatomy(query, parts, whole, statistics.median(bare), 1000 * content / speed, content))
    return found


def copying() -> float:
    """Bytes a second that this machine reads and writes again, one thread, past its caches."""
    import numpy as np

    block = np.ones(1 << 28, np.int8)
    target = np.empty_like(block)
    best = 0.0
    for _ in range(5):
        began = time.perf_counter()
        np.copyto(target, block)
        best = max(best, len(block) / (time.perf_counter() - began))
    return best


def table(found: list[Anatomy]) -> list[tuple[str, ...]]:
    """A row a part, a column a query; the first row is the head."""
    rows = [("part", *(a.query for a in found))]
    for name in (*PARTS, REST):
        cells = (a.parts[name] for a in found)
        rows.append(
            (name, *(f"{ms:.1f}" + (f" (SQL {sql:.1f} in {count})" if count else "") for ms, sql, count in cells))
        )
    rows.append(("whole", *(f"{a.whole:.1f}" for a in found)))
    rows.append(("limit: the keyword call's statements, bare", *(f"{a.bare_keywords:.1f}" for a in found)))
    limits = (f"{a.vectors:.2f} ({a.bytes_compared / 1e6:.1f} MB)" for a in found)
    return [*rows, ("limit: the vectors read once", *limits)]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--messages", type=int, default=200_000)
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--home", type=Path, help="a home made by big_home.py")
    args = options.parse_args()
    for row in table(measure(args.home or big_home(args.messages), args.rounds)):
        print(" | ".join(row))


if __name__ == "__main__":
    main()
