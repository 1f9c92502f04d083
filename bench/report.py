"""The report of `python3 bench`: measures row by row, then writes bench/report/README.md and its pictures."""

from __future__ import annotations

import argparse
import os
import platform
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import against
import anatomy
import hybrid
import loading
import matplotlib.pyplot as plt
import quality
import scale
import speed
import throughput
from common import Ranks, evaluation_sets

import vectors
from demo import hosts

OUT = Path(__file__).resolve().parent / "report"
MESSAGES = 200_000


class Table(NamedTuple):
    """What a figure stands for, row by row; the first row is its head."""

    title: str
    rows: list[tuple[str, ...]]

    def __str__(self) -> str:
        head, *body = ("| " + " | ".join(row) + " |" for row in self.rows)
        return "\n".join((f"## {self.title}\n", head, "|" + "---|" * len(self.rows[0]), *body, ""))


class Figure(NamedTuple):
    """A number beside its bar; `holds` is None where it is only told."""

    what: str
    bar: str
    measured: str
    holds: bool | None
    command: str


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path, nargs="?", help="the evaluation sets")
    options.add_argument("--rounds", type=int, default=15)
    args = options.parse_args()
    OUT.mkdir(exist_ok=True)
    figures: list[Figure] = []
    tables: list[str] = []
    began = time.monotonic()
    for part in (
        loaded(args.rounds), keyword(args.rounds), nearest(args.rounds), hybrid_call(args.rounds), indexing(),
        growth(args.rounds), parts(args.rounds), *((found(args.folder), ahead(args.folder)) if args.folder else ()),
    ):  # fmt: skip
        for one in part:
            if isinstance(one, Table):
                tables.append(str(one))
                continue
            print(f"{'' if one.holds is None else 'holds ' if one.holds else 'SHORT '}{one.what}: {one.measured}")
            figures.append(one)
    write(figures, tables, time.monotonic() - began)


# --- the rows ---------------------------------------------------------------------------------------


def loaded(rounds: int) -> Iterator[Figure | Table]:
    for row in loading.measure(rounds):
        yield Figure(
            f"loading in Hermes {row.host}, beside an empty plugin with two tools", "1.3x",
            f"{row.ratio:.2f}x ({row.ours:.0f} and {row.empty:.0f} ms of CPU, {row.none:.0f} without any)",
            row.ratio <= 1.3, "loading.py",
        )  # fmt: skip


def keyword(rounds: int) -> Iterator[Figure | Table]:
    rows = list(speed.rows(speed.big_home(MESSAGES), rounds))
    for scope in (12, 200, 2000):
        some = [row for row in rows if row.scope == scope]
        worst = max(some, key=lambda row: row.over)
        yield Figure(
            f"keyword call, 200,000 messages, {scope:,} conversations", "2x bare + 5 ms",
            f"{min(r.whole for r in some):.0f} to {max(r.whole for r in some):.0f} ms, "
            f"{statistics.median(r.whole / r.bare for r in some):.2f}x bare (worst: {worst.whole:.1f} of "
            f"{worst.bare:.1f} ms, {worst.query})",
            worst.over <= 0, "speed.py",
        )  # fmt: skip
    cjk = max(row.whole for row in rows if row.scope == 2000 and "中文" in row.query)
    yield Figure("... Chinese, 2,000 conversations", "150 ms", f"{cjk:.0f} ms", cjk <= 150, "speed.py")
    picture_keyword(rows)
    heads = ("conversations", "query", "hits", "bare ms", "whole ms", "ratio")
    yield Table(
        "Keyword call beside its own statements, 200,000 messages",
        [heads, *((f"{r.scope:,}", r.query, str(r.hits), f"{r.bare:.1f}", f"{r.whole:.1f}", f"{r.whole / r.bare:.2f}")
                  for r in rows)],
    )  # fmt: skip


def nearest(rounds: int) -> Iterator[Figure | Table]:
    with tempfile.TemporaryDirectory(prefix="vectors-") as folder:
        report = vectors.measure(Path(folder), 100_000, 512, rounds)
    for row in report.queries:
        if row.k == 200:
            yield Figure(
                f"vectors, {row.scope:,} of {report.chunks:,} chunks in scope, beside bare SQL", "1.3x",
                f"{row.store / row.bare:.2f}x ({row.store:.1f} of {row.bare:.1f} ms); first search of a process "
                f"{row.cold / row.bare:.2f}x",
                row.store / row.bare <= 1.3, "vectors.py",
            )  # fmt: skip
    heads = ("in scope", "nearest", "bare SQL ms", "store ms", "ratio", "first search ms", "numpy, nothing held ms")
    yield Table(
        f"Vector store beside bare SQL, {report.chunks:,} pieces of 512 dimensions",
        [heads, *((f"{q.scope:,}", str(q.k), f"{q.bare:.1f}", f"{q.store:.1f}", f"{q.store / q.bare:.2f}",
                   f"{q.cold:.1f}", f"{q.numpy:.1f}") for q in report.queries)],
    )  # fmt: skip
    near = report.recall
    yield Figure("recall@10 of int8 against float32", "0.98", f"{near:.3f}", near >= 0.98, "vectors.py")
    yield Figure(
        "index file / (vectors + keys), half of it swept", "1.25x", f"{report.packed:.2f}x", report.packed <= 1.25,
        "vectors.py",
    )  # fmt: skip


def hybrid_call(rounds: int) -> Iterator[Figure | Table]:
    rows = list(hybrid.measure(speed.big_home(MESSAGES), rounds))
    worst = max(row.ratio for row in rows)
    yield Figure(
        "hybrid call, 200 conversations of 200,000 messages, beside the sum of its legs", "1.15x",
        f"{worst:.2f}x at most ({', '.join(f'{row.hybrid:.0f}' for row in rows)} ms)", worst <= 1.15, "hybrid.py",
    )  # fmt: skip
    heads = ("query", "keyword ms", "semantic ms", "hybrid ms", "hybrid / sum", "without the catch-up ms")
    yield Table(
        "Hybrid call, scope of 200 sessions among 200,000 messages",
        [heads, *((r.query, f"{r.keyword:.1f}", f"{r.semantic:.1f}", f"{r.hybrid:.1f}", f"{r.ratio:.2f}",
                   f"{r.off:.1f}") for r in rows)],
    )  # fmt: skip
    over = statistics.median(row.hybrid - row.off for row in rows)
    yield Figure("nothing new to index, 200 conversations", "10 ms", f"{over:.1f} ms", over <= 10, "hybrid.py")


def indexing() -> Iterator[Figure | Table]:
    ratio = throughput.measure(speed.big_home(MESSAGES), 3)
    yield Figure("indexing beside the bare encoder", "0.85x", f"{ratio:.2f}x", ratio >= 0.85, "throughput.py")


def growth(rounds: int) -> Iterator[Figure | Table]:
    calls = list(scale.calls(rounds))
    tenfold, most = (20_000, 200_000, 1.3), (200_000, 1_000_000, 2.0)
    for scope, (few, many, bar) in ((12, tenfold), (200, tenfold), (200, most)):
        for mode in ("keyword", "hybrid"):
            some = [call for call in calls if call.scope == scope and call.mode == mode]
            if not some:
                continue
            grown = statistics.median(call.growth(few, many) for call in some)
            yield Figure(
                f"{mode} call, {scope} conversations: {many:,} messages beside {few:,}", f"{bar}x",
                f"{grown:.2f}x ({', '.join(f'{c.times[many]:.0f} of {c.times[few]:.0f}' for c in some)} ms)",
                grown <= bar, "scale.py",
            )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        stores = list(scale.stores(1_000_000, rounds, Path(folder)))
    alone, large = (next(s for s in stores if (s.scope, s.chunks) == (10_000, n)) for n in (10_000, 1_000_000))
    for name in ("warm", "cold"):
        ratio = getattr(large, name) / getattr(alone, name)
        yield Figure(
            f"vectors, 10,000 chunks in a store of 1,000,000, beside the same alone ({name})", "1.3x",
            f"{ratio:.2f}x ({getattr(large, name):.1f} of {getattr(alone, name):.1f} ms)", ratio <= 1.3, "scale.py",
        )  # fmt: skip
    whole = stores[-1]
    yield Figure(
        "vectors, all 1,000,000 chunks in scope", "",
        f"{whole.warm:.0f} ms, first search of a process {whole.cold:.0f}", None, "scale.py",
    )  # fmt: skip
    picture_growth(calls, stores)
    heads = ("conversations", "mode", "query", *(f"{n:,}" for n in scale.HOMES))
    yield Table(
        "The same call in homes of so many messages, ms",
        [heads, *((f"{c.scope:,}", c.mode, c.query, *(f"{c.times[n]:.1f}" if n in c.times else "" for n in scale.HOMES))
                  for c in calls)],
    )  # fmt: skip
    heads = ("in scope", "in the store", "warm ms", "first search of a process ms")
    yield Table(
        "Vectors compared in stores of so many pieces",
        [heads, *((f"{s.scope:,}", f"{s.chunks:,}", f"{s.warm:.1f}", f"{s.cold:.1f}") for s in stores)],
    )


def parts(rounds: int) -> Iterator[Figure | Table]:
    found = anatomy.measure(speed.big_home(MESSAGES), rounds)
    picture_anatomy(found)
    yield Table("One hybrid call, part by part, ms", anatomy.table(found))
    for one in found:
        yield Figure(
            f"one hybrid call taken apart: {one.query}", "", f"{one.whole:.0f} ms; bare statements of its keyword leg "
            f"{one.bare_keywords:.0f}, its vectors read once {one.vectors:.1f} ms", None, "anatomy.py",
        )  # fmt: skip


BARS = {
    "locomo, message": ("hybrid", (0.38, 0.67, 0.77, 0.51)),
    "realmem pooled, whole history": ("hybrid", (0.39, 0.69, 0.82, 0.52)),
    "realmem pooled, same project": ("hybrid", (0.48, None, None, 0.64)),
    "cjk-literal, message": ("keyword", (None, 0.97, None, None)),
    "cjk-literal, question": ("keyword", (None, 0.95, None, None)),
}
NAMES = ("any@1", "any@5", "any@10", "MRR")


def found(folder: Path) -> Iterator[Figure | Table]:
    ranks: dict[str, dict[str, list[int | None]]] = {}
    for one in evaluation_sets(folder):
        for mode in ("keyword", "semantic", "hybrid"):
            for name, found, _ in quality.measure(one, mode):
                if name.startswith("realmem"):
                    name = "realmem pooled, " + name.split(", ", 1)[1]
                ranks.setdefault(name, {}).setdefault(mode, []).extend(found.of)
    for name, (mode, bars) in BARS.items():
        if name in ranks:
            at = Ranks(ranks[name][mode])
            reached = at.figures()
            yield Figure(
                f"{name}, {len(at.of)} queries, {mode}",
                ", ".join(f"{n} {bar:.2f}" for n, bar in zip(NAMES, bars, strict=True) if bar is not None),
                at.row("/"),
                all(bar is None or round(value, 3) >= bar for value, bar in zip(reached, bars, strict=True)),
                "quality.py",
            )
    if "bilingual, message" in ranks:
        meant, both = (Ranks(ranks["bilingual, message"][mode]).any_at(5) for mode in ("semantic", "hybrid"))
        yield Figure(
            "paraphrases among 1,600 others, hybrid any@5 beside semantic", "0.85x",
            f"{both / max(meant, 1e-9):.2f}x ({both:.3f} and {meant:.3f})", both >= 0.85 * meant, "quality.py",
        )  # fmt: skip
    modes = ("keyword", "semantic", "hybrid")
    yield Table(
        "Found: any@1/5/10/MRR on a page of 20",
        [("set", "queries", *modes),
         *((name, str(len(by_mode["hybrid"])), *(Ranks(by_mode[mode]).row("/") for mode in modes))
           for name, by_mode in ranks.items())],
    )  # fmt: skip
    for name, by_mode in ranks.items():
        if not name.startswith("bilingual") and ("pooled" in name or name.endswith("message")):
            level = [quality.difference(by_mode, k) for k in (5, 10)]
            yield Figure(
                f"{name}: hybrid minus its better leg, any@5 and any@10", "not below 0 beyond noise",
                ", ".join(map(str, level)), all(round(d.high, 3) >= 0 for d in level), "quality.py",
            )  # fmt: skip


def ahead(folder: Path) -> Iterator[Figure | Table]:
    """Beside the history search of Hermes itself, asked in each host in its stronger form (see against.py)."""
    folders = evaluation_sets(folder)
    for one in folders:
        against.ask_plugin(one, 1)
        for host in hosts.HOSTS:
            against.ask_core(host, one, 1)
    for name, parts in against.grouped(folders, 1).items():
        ours, theirs = against.score_plugin(parts), against.score_others(parts, hosts.HOSTS, ())
        assert ours is not None
        for place in dict.fromkeys(place for _, place in theirs):
            some = {f"{host}, {form}": scores for (host, at), by_form in theirs.items() if at == place
                    for form, scores in by_form.items()}  # fmt: skip
            strongest, other = against.stronger(some)
            gains = [against.difference(ours.of(metric), other.of(metric)) for metric in against.METRICS]
            alone = ", which is given the project" if place == "alone" else ""
            yield Figure(
                f"{name}: hybrid minus Hermes' own search{alone} ({strongest})", "ahead beyond noise",
                "; ".join(f"{m} {gain}" for m, gain in zip(against.METRICS, gains, strict=True)),
                all(gain.low > 0 for gain in gains), "against.py",
            )  # fmt: skip


# --- pictures and words -----------------------------------------------------------------------------


def picture_keyword(rows: Sequence[speed.Row]) -> None:
    figure, axes = plt.subplots(figsize=(8, 4))
    marks = {12: "o", 200: "s", 2000: "^"}
    for scope, mark in marks.items():
        some = [row for row in rows if row.scope == scope]
        axes.plot([r.bare for r in some], [r.whole for r in some], mark, label=f"{scope:,} conversations")
    bare = sorted(row.bare for row in rows)
    axes.plot(bare, [2 * ms + 5 for ms in bare], ":", color="grey", label="bar: 2x bare + 5 ms")
    axes.plot(bare, bare, "-", color="lightgrey", label="limit: bare SQL")
    title = "Keyword calls beside their own SQL, 200,000 messages"
    axes.set_xscale("log")
    axes.set_yscale("log")
    labels(axes, "its statements run bare, ms", "keyword call, ms", title)
    save(figure, "keyword.png")


def picture_growth(calls: Sequence[scale.Call], stores: Sequence[scale.Nearest]) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2))
    for call in calls:
        if call.query == "question":
            style = "--" if call.mode == "hybrid" else "-"
            left.plot(list(call.times), list(call.times.values()), style, marker="o",
                      label=f"{call.mode}, {call.scope:,} conversations")  # fmt: skip
    left.set_xscale("log")
    left.set_ylim(bottom=0)
    labels(left, "messages in the home", "ms", "One call as the home around it grows")
    for chunks in sorted({s.chunks for s in stores}):
        some = [s for s in stores if s.chunks == chunks]
        (line,) = right.plot([s.scope for s in some], [s.warm for s in some], "o-", label=f"of {chunks:,}")
        right.plot([s.scope for s in some], [s.cold for s in some], "x:", color=line.get_color())
    limit = anatomy.copying()
    scopes = sorted({s.scope for s in stores})
    least = [1000 * s * 512 / limit for s in scopes]
    right.plot(scopes, least, "-", color="lightgrey", label="limit: memory read once")
    right.set_xscale("log")
    right.set_yscale("log")
    labels(right, "chunks in scope (dotted: first search of a process)", "ms", "Vectors compared")
    save(figure, "growth.png")


def picture_anatomy(found: Sequence[anatomy.Anatomy]) -> None:
    figure, axes = plt.subplots(figsize=(9, 3.4))
    names = [f"query {n}" for n in range(1, len(found) + 1)]
    left = [0.0] * len(found)
    for number, part in enumerate((*anatomy.PARTS, anatomy.REST)):
        widths = [one.parts[part][0] for one in found]
        axes.barh(names, widths, left=left, label=part, color=f"C{number}")
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("ms")
    axes.set_title("One hybrid call: 200 conversations among 200,000 messages")
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    save(figure, "anatomy.png")


def labels(axes: Any, x: str, y: str, title: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title)
    axes.legend(fontsize=7)


def save(figure: Any, name: str) -> None:
    figure.tight_layout()
    figure.savefig(OUT / name, dpi=90, metadata={"Software": None})
    plt.close(figure)


def write(figures: Sequence[Figure], tables: Sequence[str], seconds: float) -> None:
    said = {None: "", True: "yes", False: "**no**"}
    rows = "\n".join(f"| {f.what} | {f.bar} | {f.measured} | {said[f.holds]} | `{f.command}` |" for f in figures)
    short, all_ = (sum(f.holds in some for f in figures) for some in ((False,), (False, True)))
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    text = f"""# Every number beside its bar

Made by `python3 bench EVAL_FOLDER` on {datetime.now(UTC):%Y-%m-%d} in {seconds / 60:.0f} minutes, on {machine},
SQLite {sqlite3.sqlite_version}. Times are medians of one run, warm; read ratios. Short of their bar: {short} of {all_}.
What was tried, what the limits are, and how the constants were chosen: [../README.md](../README.md).

| what | bar | measured | holds | command |
|---|---|---|---|---|
{rows}

![keyword calls](keyword.png)

![growth](growth.png)

![where the time of one hybrid call goes](anatomy.png)

"""
    (OUT / "README.md").write_text("\n".join((text, *tables)), encoding="utf-8")


if __name__ == "__main__":
    main()
