"""Pieces a second that indexing stores, beside the bare encoder on the same texts. Bar: at least 0.85 of it.

    python bench/throughput.py [--messages 200000] [--rounds 3] [--home HOME]

Indexing reads the rows of a scope of 12 sessions, cleans and cuts them, claims, embeds and stores, into an empty
store each time; the bare encoder embeds the same texts in batches of the same size. CPU seconds, alternating.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from common import load
from quality import Quiet
from speed import big_home

load()
indexing: Any = importlib.import_module("project_history_recall.indexing")
vectors: Any = importlib.import_module("project_history_recall.vectors")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--messages", type=int, default=200_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--home", type=Path, help="a home made by big_home.py")
    args = options.parse_args()
    print(f"ratio {measure(args.home or big_home(args.messages), args.rounds):.2f}")


def measure(home: Path, rounds: int) -> float:
    """Pieces a second of CPU that are stored, by those that the bare encoder gives."""
    package = load()
    surroundings = Quiet(package.host.current(home=home))
    embedder = package.embeddings.LocalEmbedder()
    embedder.encode(["ready"])
    ratios = []
    with package.state.State(home) as state:
        projects = package.state.read_projects(home)
        attribution = package.attribution.Attribution(projects, surroundings.find_roots)
        conversations = package.scope.Conversations(state.sessions())
        everywhere = package.scope.Everywhere(conversations, attribution, projects)
        roots = [root for root in everywhere.roots if everywhere.ref(root).name == "scope-12"]
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as folder:
                store = vectors.Store(Path(folder) / "embeddings.db")
                indexer = indexing.Indexer(store, embedder)
                began = time.process_time()
                indexer.catch_up(state, everywhere, roots, {}, lambda: False)
                indexed = time.process_time() - began
                store.close()
            texts = list({p.key: p.text for root in roots for p in indexer.read(state, everywhere, root)}.values())
            began = time.process_time()
            for start in range(0, len(texts), embedder.batch):
                embedder.encode(texts[start : start + embedder.batch])
            bare = time.process_time() - began
            ratios.append(bare / indexed)
            print(f"{indexer.encoded} pieces: {indexer.encoded / indexed:.0f} a second, bare {len(texts) / bare:.0f}")
    return statistics.median(ratios)


if __name__ == "__main__":
    main()
