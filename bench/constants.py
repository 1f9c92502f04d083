"""What each constant of the fusion is worth, on both halves of the evaluation sets.

    python bench/constants.py EVAL_FOLDER [--sets locomo,cjk,bilingual,realmem] [--chunk 48] [--context 150]

Every query runs once through `search.run` with `limit` 20; what the two legs brought is kept, and `fusion.fuse`
and `fusion.share` make the page again under other constants. One is changed at a time; the first row is the one in
use. Constants are chosen on the odd queries, the even ones are the report. `--chunk` and `--context` embed everything
anew with pieces of that many tokens and characters of context.
"""

from __future__ import annotations

import argparse
import importlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common import Ranks, evaluation_home, lines, load
from quality import Quiet, asked, first, index

load()
fusion: Any = importlib.import_module("project_history_recall.fusion")
search: Any = importlib.import_module("project_history_recall.search")
embeddings: Any = importlib.import_module("project_history_recall.embeddings")

LIMIT = 20
VARIANTS: dict[str, dict[str, Any]] = {
    "in use": {},
    "semantic weight 0.4": {"SEMANTIC_WEIGHT": 0.4},
    "semantic weight 0.6": {"SEMANTIC_WEIGHT": 0.6},
    "semantic weight 1.0": {"SEMANTIC_WEIGHT": 1.0},
    "sharpness 1": {"SHARPNESS": 1.0},
    "sharpness 2": {"SHARPNESS": 2.0},
    "no gate": {"GATE": (-2.0, -1.0)},
    "gate 0.1 to 0.3": {"GATE": (0.1, 0.3)},
    "gate 0.2 to 0.5": {"GATE": (0.2, 0.5)},
    "no neighbours": {"NEIGHBOURS": (0.0, 0.0)},
    "neighbours 0.3, 0.1": {"NEIGHBOURS": (0.3, 0.1)},
    "no conversation": {"CONVERSATION": 0.0},
    "conversation 0.6": {"CONVERSATION": 0.6},
    "conversation 1.0": {"CONVERSATION": 1.0},
    "conversation 2.0": {"CONVERSATION": 2.0},
    "not together": {"TOGETHER": 0.0},
    "together 1.0": {"TOGETHER": 1.0},
    "no coverage": {"COVERAGE_FLOOR": 1e6},
    "coverage floor 0": {"COVERAGE_FLOOR": 0.0},
    "4 a conversation": {"PER_CONVERSATION": 4},
    "2 a conversation": {"PER_CONVERSATION": 2},
    "yields to 0.3": {"YIELDS": 0.3},
    "yields to 0.5": {"YIELDS": 0.5},
}


@dataclass
class Case:
    """What the legs brought for a query, which of them are duplicates, the gold, and whether conversations count."""

    gold: set[Any]
    by_conversation: bool
    candidates: list[Any] = field(default_factory=list)
    distinct: set[int] = field(default_factory=set)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    options.add_argument("--sets", default="bilingual,cjk,locomo,realmem")
    options.add_argument("--chunk", type=int, default=embeddings.LOCAL.tokens)
    options.add_argument("--context", type=int, default=embeddings.LOCAL.context)
    args = options.parse_args()
    if (args.chunk, args.context) != (embeddings.LOCAL.tokens, embeddings.LOCAL.context):
        embeddings.LocalEmbedder.chunking = embeddings.Chunking(args.chunk, args.context, plainly=True)
        embeddings.LocalEmbedder.fingerprint += f"-{args.chunk}-{args.context}"
    for prefix in args.sets.split(","):
        folders = sorted(p for p in args.folder.iterdir() if p.name.startswith(prefix))
        for one_project in (True, False) if prefix == "realmem" else (False,):
            cases = [case for folder in folders for case in collect(folder, one_project=one_project)]
            name = prefix if prefix != "realmem" else "realmem, whole history" if one_project else "realmem, project"
            print(f"\n{name}: {len(cases)} queries, chunk {args.chunk}, context {args.context}")
            print(f"{'':22} odd: any@1 any@5 any@10 MRR     even: any@1 any@5 any@10 MRR")
            for variant, changed in VARIANTS.items():
                print(f"{variant:22}      {row(cases[1::2], changed)}          {row(cases[::2], changed)}", flush=True)


def collect(folder: Path, *, one_project: bool) -> list[Case]:
    """What both legs bring for each query of a set."""
    package, conversations = load(), folder.name.startswith("realmem")
    home = evaluation_home(folder, one_project=one_project)
    rows = json.loads((home / "map.json").read_text(encoding="utf-8"))
    surroundings = Quiet(package.host.current(home=home))
    index(home, surroundings)
    queries = lines(folder / "queries.jsonl")
    if conversations and not one_project:
        queries = [{**q, "gold_sessions": q["gold_same_project"]} for q in queries if q["gold_same_project"]]
    cases: list[Case] = []
    fuse, share = search.fuse, search.share

    def keep(candidates: Any, **weights: Any) -> Any:
        cases[-1].candidates = list(candidates)
        return fuse(candidates, **weights)

    def distinct(ranked: Any, root_of: Any, limit: int) -> Any:
        told = list(ranked)
        cases[-1].distinct = {i for i, _ in told}
        return share(told, root_of, limit)

    search.fuse, search.share = keep, distinct
    try:
        for query in queries:
            gold = query["gold_sessions"] if conversations else [rows[m] for m in query["gold_messages"]]
            cases.append(Case(set(gold), conversations))
            args = asked(query, "hybrid", one_project=one_project)
            search.run(args, surroundings, lambda _: package.scope.owner())
    finally:
        search.fuse, search.share = fuse, share
    return cases


def row(cases: list[Case], changed: dict[str, Any]) -> str:
    before = {name: getattr(fusion, name) for name in changed}
    for name, value in changed.items():
        setattr(fusion, name, value)
    try:
        ranks: list[int | None] = []
        for case in cases:
            roots = {c.id: c.root for c in case.candidates}
            order = fusion.fuse(case.candidates, semantic_weight=fusion.SEMANTIC_WEIGHT) if case.candidates else []
            page = fusion.share((pair for pair in order if pair[0] in case.distinct), roots.__getitem__, LIMIT)
            units = list(dict.fromkeys(roots[i] for i in page.ids)) if case.by_conversation else page.ids
            ranks.append(first(units, case.gold))
        return Ranks(ranks).row()
    finally:
        for name, value in before.items():
            setattr(fusion, name, value)


if __name__ == "__main__":
    main()
