"""How often the right message is on the page: any@1, any@5, any@10 and MRR for each evaluation set and mode.

    python bench/quality.py EVAL_FOLDER [--modes keyword,semantic,hybrid] [--sets locomo,cjk] [--half odd|even]

EVAL_FOLDER holds one folder a set with `sessions.jsonl` and `queries.jsonl`. Every query runs through the
plugin's own `search.run` with `context` 0, `limit` 20 and `max_result_chars` 60000. *message* counts the gold
messages, *conversation* the gold sessions by their best message; RealMem's `before` is honoured and it is asked
twice: within the query's project, and over the whole history of the user (all of it one project).

Where hybrid was measured beside its legs, the last table is the paired difference to the better leg of each set,
with the 95% interval of 2,000 bootstrap samples over the queries: noise is what reaches zero.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from common import Difference, Ranks, evaluation_home, evaluation_sets, lines, load


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    options.add_argument("--modes", default="keyword,semantic,hybrid")
    options.add_argument("--sets", default="")
    options.add_argument("--half", choices=("odd", "even"), help="only these queries of each set")
    args = options.parse_args()
    wanted = [s for s in args.sets.split(",") if s]
    sets = [p for p in evaluation_sets(args.folder) if not wanted or any(p.name.startswith(w) for w in wanted)]
    found: dict[str, dict[str, list[int | None]]] = {}
    print(f"{'set':42} {'mode':8} queries any@1 any@5 any@10 MRR   ms/query")
    for folder in sets:
        for mode in args.modes.split(","):
            for name, ranks, cost in measure(folder, mode, args.half):
                print(f"{name:42} {mode:8} {len(ranks.of):7} {ranks.row()} {cost:8.1f}", flush=True)
                found.setdefault(name, {})[mode] = ranks.of
                if name.startswith("realmem"):
                    pool = found.setdefault("realmem pooled, " + name.split(", ", 1)[1], {})
                    pool.setdefault(mode, []).extend(ranks.of)
    for name, by_mode in found.items():
        for mode, ranks_of in by_mode.items() if "pooled" in name else ():
            print(f"{name:42} {mode:8} {len(ranks_of):7} {Ranks(ranks_of).row()}")
    if {"keyword", "semantic", "hybrid"} <= set(args.modes.split(",")):
        print(f"\nhybrid minus the better leg\n{'set':42} any@5                    any@10")
        for name, by_mode in found.items():
            print(f"{name:42} {difference(by_mode, 5)}  {difference(by_mode, 10)}")


def difference(by_mode: dict[str, list[int | None]], k: int) -> Difference:
    """Hybrid minus the better leg at any@k, paired by query, with its 95% bootstrap interval."""
    leg = max(("keyword", "semantic"), key=lambda mode: Ranks(by_mode[mode]).any_at(k))
    pairs = [(hit(h, k) - hit(o, k)) for h, o in zip(by_mode["hybrid"], by_mode[leg], strict=True)]
    dice = random.Random(1)
    means = sorted(mean(dice.choices(pairs, k=len(pairs))) for _ in range(2_000))
    return Difference(mean(pairs), means[49], means[1949])


def hit(rank: int | None, k: int) -> int:
    return int(rank is not None and rank <= k)


def mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))


def measure(folder: Path, mode: str, half: str | None = None) -> list[tuple[str, Ranks, float]]:
    """(name, ranks, milliseconds a query) for each way a set is asked."""
    queries = lines(folder / "queries.jsonl")
    if half:
        queries = queries[half == "odd" :: 2]
    if not folder.name.startswith("realmem"):
        found = ask(folder, queries, mode, one_project=False)
        rows = [(f"{folder.name}, message", found[0], found[2])]
        for kind in dict.fromkeys(q.get("kind") for q in queries if q.get("kind")):
            some = [r for r, q in zip(found[0].of, queries, strict=True) if q["kind"] == kind]
            rows.append((f"{folder.name}, {kind}", Ranks(some), found[2]))
        return rows
    same = [{**q, "gold_sessions": q["gold_same_project"]} for q in queries if q["gold_same_project"]]
    whole = ask(folder, queries, mode, one_project=True)
    project = ask(folder, same, mode, one_project=False)
    return [
        (f"{folder.name}, whole history", whole[1], whole[2]),
        (f"{folder.name}, same project", project[1], project[2]),
    ]


def ask(
    folder: Path, queries: list[dict[str, Any]], mode: str, *, one_project: bool
) -> tuple[Ranks, Ranks, float]:
    """Ranks by message and by conversation, and milliseconds a query."""
    package = load()
    home = evaluation_home(folder, one_project=one_project)
    rows = json.loads((home / "map.json").read_text(encoding="utf-8"))
    surroundings = Quiet(package.host.current(home=home))
    if mode != "keyword":
        index(home, surroundings)
    by_message: list[int | None] = []
    by_conversation: list[int | None] = []
    began = time.perf_counter()
    for query in queries:
        args = asked(query, mode, one_project=one_project)
        answer = package.search.run(args, surroundings, lambda _: package.scope.owner())
        ids = [hit["message_id"] for hit in answer["results"]]
        sessions = list(dict.fromkeys(hit["session_id"] for hit in answer["results"]))
        by_message.append(first(ids, {rows[m] for m in query["gold_messages"]}))
        by_conversation.append(first(sessions, set(query["gold_sessions"])))
    cost = 1000 * (time.perf_counter() - began) / max(1, len(queries))
    return Ranks(by_message), Ranks(by_conversation), cost


def index(home: Path, surroundings: Any) -> int:
    """Embed everything of a home; returns how many texts that took."""
    package = load()
    store = package.semantic.open_store(home)
    with package.state.State(home) as state:
        projects = package.state.read_projects(home)
        attribution = package.attribution.Attribution(projects, surroundings.find_roots)
        everywhere = package.scope.Everywhere(package.scope.Conversations(state.sessions()), attribution, projects)
        indexer = package.indexing.Indexer(store, package.embeddings.LocalEmbedder())
        indexer.catch_up(state, everywhere, everywhere.roots, {}, lambda: False)
        done: int = indexer.encoded
        return done


def asked(query: dict[str, Any], mode: str, *, one_project: bool) -> dict[str, Any]:
    """The tool's arguments for a query of a set."""
    project = "all" if one_project else query["project"]
    args = {"query": query["query"], "mode": mode, "limit": 20, "context": 0, "project": project}
    if query["before"]:
        args["before"] = datetime.fromtimestamp(query["before"], UTC).isoformat()
    return args


def first(found: list[Any], gold: set[Any]) -> int | None:
    return next((i for i, one in enumerate(found, 1) if one in gold), None)


class Quiet:
    """The host's surroundings with a wide page and without redaction: what is measured is the ranking."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.redact = None
        self.settings = load().config_schema.Settings(max_result_chars=60_000)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


if __name__ == "__main__":
    main()
