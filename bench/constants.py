"""What each constant of the fusion is worth, on both halves of the evaluation sets.

    python bench/constants.py EVAL_FOLDER [--sets locomo,cjk,bilingual,realmem] [--chunk 48] [--context 150]

Every query runs once through `search.run`; what the two legs brought is kept, and `fusion.fuse` orders it again
under other constants. One is changed at a time; the first row is the one in use. Constants are chosen on the odd
queries, the even ones are the report. Whole orders count here, not pages of 20. `--chunk` and `--context` embed
everything anew with pieces of that many tokens and characters of context.
"""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path
from typing import Any

from common import Ranks, evaluation_home, lines, load
from quality import Quiet, asked, first, index

load()
fusion: Any = importlib.import_module("project_history_recall.fusion")
search: Any = importlib.import_module("project_history_recall.search")
embeddings: Any = importlib.import_module("project_history_recall.embeddings")

VARIANTS: dict[str, dict[str, Any]] = {
    "in use": {},
    "K = 2": {"K": 2},
    "K = 10": {"K": 10},
    "K = 60": {"K": 60},
    "semantic weight 0.3": {"SEMANTIC_WEIGHT": 0.3},
    "semantic weight 0.7": {"SEMANTIC_WEIGHT": 0.7},
    "semantic weight 1.0": {"SEMANTIC_WEIGHT": 1.0},
    "no gate": {"GATE": (-2.0, -1.0)},
    "gate 0.05 to 0.2": {"GATE": (0.05, 0.2)},
    "gate 0.2 to 0.5": {"GATE": (0.2, 0.5)},
    "no neighbours": {"NEIGHBOURS": (0.0, 0.0)},
    "neighbours 0.3, 0.1": {"NEIGHBOURS": (0.3, 0.1)},
    "no conversation": {"CONVERSATION": 0.0},
    "conversation 0.6": {"CONVERSATION": 0.6},
    "no coverage": {"COVERAGE_FLOOR": 1e6},
    "coverage floor 0": {"COVERAGE_FLOOR": 0.0},
}
Case = tuple[list[Any], set[Any], bool]  # what the legs brought, the gold, and whether conversations are the unit


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    options.add_argument("--sets", default="bilingual,cjk,locomo,realmem")
    options.add_argument("--chunk", type=int, default=embeddings.CHUNK_TOKENS)
    options.add_argument("--context", type=int, default=embeddings.CONTEXT_CHARS)
    args = options.parse_args()
    embeddings.CHUNK_TOKENS, embeddings.CONTEXT_CHARS = args.chunk, args.context
    embeddings.LocalEmbedder.fingerprint += f"-{args.chunk}-{args.context}"
    for prefix in args.sets.split(","):
        cases: list[Case] = []
        for folder in sorted(p for p in args.folder.iterdir() if p.name.startswith(prefix)):
            cases += collect(folder)
        print(f"\n{prefix}: {len(cases)} queries, chunk {args.chunk}, context {args.context}")
        print(f"{'':22} odd: any@1 any@5 any@10 MRR     even: any@1 any@5 any@10 MRR")
        for name, changed in VARIANTS.items():
            print(f"{name:22}      {row(cases[1::2], changed)}          {row(cases[::2], changed)}", flush=True)


def collect(folder: Path) -> list[Case]:
    """What both legs bring for each query of a set (RealMem: over the user's whole history)."""
    package, whole = load(), folder.name.startswith("realmem")
    home = evaluation_home(folder, one_project=whole)
    rows = json.loads((home / "map.json").read_text(encoding="utf-8"))
    surroundings = Quiet(package.host.current(home=home))
    index(home, surroundings)
    kept: list[Any] = []
    original = fusion.fuse

    def keep(candidates: Any, **weights: Any) -> Any:
        kept[:] = candidates
        return original(candidates, **weights)

    cases: list[Case] = []
    search.fuse = keep
    try:
        for query in lines(folder / "queries.jsonl"):
            kept.clear()
            search.run(asked(query, "hybrid", one_project=whole), surroundings, lambda _: package.scope.owner())
            gold = query["gold_sessions"] if whole else [rows[m] for m in query["gold_messages"]]
            cases.append((list(kept), set(gold), whole))
    finally:
        search.fuse = original
    return cases


def row(cases: list[Case], changed: dict[str, Any]) -> str:
    before = {name: getattr(fusion, name) for name in changed}
    for name, value in changed.items():
        setattr(fusion, name, value)
    try:
        ranks: list[int | None] = []
        for candidates, gold, whole in cases:
            order = fusion.fuse(candidates, semantic_weight=fusion.SEMANTIC_WEIGHT) if candidates else []
            roots = {c.id: c.root for c in candidates}
            units = list(dict.fromkeys(roots[i] for i, _ in order)) if whole else [i for i, _ in order]
            ranks.append(first(units, gold))
        return Ranks(ranks).row()
    finally:
        for name, value in before.items():
            setattr(fusion, name, value)


if __name__ == "__main__":
    main()
