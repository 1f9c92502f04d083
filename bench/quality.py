"""How often the right message is on the page: any@1, any@5, any@10 and MRR for each evaluation set.

    python bench/quality.py EVAL_FOLDER [--mode keyword] [--sets locomo,cjk-literal] [--show-misses]

EVAL_FOLDER holds one folder a set with `sessions.jsonl` and `queries.jsonl`. Every query runs through the
plugin's own `search.run` with `context` 0, `limit` 20 and `max_result_chars` 60000. *message* counts the gold
messages, *conversation* the gold sessions by their best message; RealMem's `before` is honoured and it is asked
twice: within the query's project, and over the whole history of the user (all of it one project).
"""

from __future__ import annotations

import argparse
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from common import Ranks, evaluation_home, lines, load


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    options.add_argument("--mode", default="keyword")
    options.add_argument("--sets", default="")
    options.add_argument("--show-misses", action="store_true")
    args = options.parse_args()
    wanted = [s for s in args.sets.split(",") if s]
    sets = sorted(p for p in args.folder.iterdir() if (p / "queries.jsonl").exists())
    pooled: dict[str, list[int | None]] = {}
    print(f"mode {args.mode}\n{'set':42} queries any@1 any@5 any@10 MRR   ms/query")
    for folder in sets:
        if wanted and not any(folder.name.startswith(w) for w in wanted):
            continue
        for name, ranks, cost in measure(folder, args.mode, args.show_misses):
            print(f"{name:42} {len(ranks.of):7} {ranks.row()} {cost:8.1f}", flush=True)
            if name.startswith("realmem"):
                pooled.setdefault("realmem pooled, " + name.split(", ", 1)[1], []).extend(ranks.of)
    for name, found in pooled.items():
        print(f"{name:42} {len(found):7} {Ranks(found).row()}")


def measure(folder: Path, mode: str, show_misses: bool = False) -> list[tuple[str, Ranks, float]]:
    """(name, ranks, milliseconds a query) for each way a set is asked."""
    queries = lines(folder / "queries.jsonl")
    if not folder.name.startswith("realmem"):
        found = ask(folder, queries, mode, one_project=False, show_misses=show_misses)
        rows = [(f"{folder.name}, message", found[0], found[2])]
        for kind in dict.fromkeys(q.get("kind") for q in queries if q.get("kind")):
            some = [r for r, q in zip(found[0].of, queries, strict=True) if q["kind"] == kind]
            rows.append((f"{folder.name}, {kind}", Ranks(some), found[2]))
        return rows
    same = [{**q, "gold_sessions": q["gold_same_project"]} for q in queries if q["gold_same_project"]]
    whole = ask(folder, queries, mode, one_project=True, show_misses=show_misses)
    project = ask(folder, same, mode, one_project=False, show_misses=show_misses)
    return [
        (f"{folder.name}, whole history", whole[1], whole[2]),
        (f"{folder.name}, same project", project[1], project[2]),
    ]


def ask(
    folder: Path, queries: list[dict[str, Any]], mode: str, *, one_project: bool, show_misses: bool
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
        args = {
            "query": query["query"],
            "mode": mode,
            "limit": 20,
            "context": 0,
            "project": "all" if one_project else query["project"],
        }
        if query["before"]:
            args["before"] = datetime.fromtimestamp(query["before"], UTC).isoformat()
        answer = package.search.run(args, surroundings, lambda _: package.scope.owner())
        ids = [hit["message_id"] for hit in answer["results"]]
        sessions = list(dict.fromkeys(hit["session_id"] for hit in answer["results"]))
        by_message.append(first(ids, {rows[m] for m in query["gold_messages"]}))
        by_conversation.append(first(sessions, set(query["gold_sessions"])))
        if show_misses and query["gold_messages"] and (by_message[-1] or 99) > 5:
            print(f"  {by_message[-1]} {query['query']!r} -> {query['gold_messages'][:3]}")
    cost = 1000 * (time.perf_counter() - began) / max(1, len(queries))
    return Ranks(by_message), Ranks(by_conversation), cost


def index(home: Path, surroundings: Any) -> int:
    """Embed everything of a home; returns how many texts that took."""
    package = load()
    store = package.semantic.open_store(home)
    with package.state.State(home) as state:
        projects = package.state.read_projects(home)
        attribution = package.attribution.Attribution(projects, surroundings.find_roots)
        everywhere = package.scope.Everywhere(state.sessions(), attribution, projects)
        indexer = package.indexing.Indexer(store, package.embeddings.LocalEmbedder())
        indexer.catch_up(state, everywhere, everywhere.roots, {}, lambda: False)
        done: int = indexer.encoded
        return done


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
