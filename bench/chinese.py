"""What each way to read a Chinese query is worth: any@1/5/10/MRR of the keyword leg and of hybrid, odd and even halves.

    python bench/chinese.py EVAL_FOLDER [--sets cjk-literal,bilingual]

A query's Chinese runs are cut at the words a question is made of, and each part is looked for by its pairs of
characters. The others: not cut; by threes, as the host's own index has them; whole, as they are written; and by single
characters. ms is a query of the keyword leg.
"""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from common import load
from quality import measure

load()
keywords = importlib.import_module("project_history_recall.keywords")
Terms = list[tuple[str, tuple[Any, ...]]]


def parts(run: str) -> list[str]:
    return [p for p in keywords._CUT.split(run) if len(p) > 1] or [run]


def by(size: int) -> Callable[[str], Terms]:
    """Each part by its runs of so many characters; a shorter part whole."""

    def cjk(run: str) -> Terms:
        kind = "gram" if size < 3 else "literal"
        return [
            (p, tuple(keywords.Term(kind, p[i : i + size]) for i in range(max(1, len(p) - size + 1))))
            if len(p) >= size else (p, (keywords.Term("gram", p),))
            for p in parts(run)
        ]  # fmt: skip

    return cjk


def whole(run: str) -> Terms:
    return [(p, (keywords.Term("literal" if len(p) > 2 else "gram", p),)) for p in parts(run)]


READINGS: dict[str, tuple[str, Any]] = {
    "in use": ("_cjk", keywords._cjk),
    "not cut": ("_CUT", re.compile("(?!)")),
    "by threes": ("_cjk", by(3)),
    "whole": ("_cjk", whole),
    "single characters": ("_cjk", by(1)),
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    options.add_argument("--sets", default="cjk-literal")
    args = options.parse_args()
    print(f"{'reading':18} {'set':26} {'mode':8} odd                     even                      ms")
    for reading, (name, value) in READINGS.items():
        with mock.patch.object(keywords, name, value):
            for folder in (args.folder / one for one in args.sets.split(",")):
                for mode in ("keyword", "hybrid"):
                    odd, even = (measure(folder, mode, half) for half in ("odd", "even"))
                    for (title, ranks, _), (_, other, ms) in zip(odd, even, strict=True):
                        figures = f"{ranks.row()} {other.row()}"
                        print(f"{reading:18} {title:26} {mode:8} {figures} {ms:6.1f}", flush=True)


if __name__ == "__main__":
    main()
