"""The plugin beside what people would use instead: Hermes' own history search, and two peers from PyPI.

    python bench/against.py EVAL_FOLDER [--sets locomo,cjk] [--hosts 0.19,0.22] [--peers agentsview] [--every 8]

Every contestant gets the same conversations and the same questions; its pages are kept in the cache folder and the
tables are made from them, so that a second run only asks what is new (the plugin itself after any change to it).

- *plugin*: `search.run` as in `quality.py`, hybrid, 20 hits, within the question's project.
- *Hermes 0.x*: that host's own `session_search` through its tool registry, 10 conversations (its most), in a home
  that is grown to the moment of the question (`peers/ask_core.py`). *asked* is the question as it is, *words* its
  content words with OR between them. It knows no projects: *alone* is the same search in a home that holds nothing
  but the question's project, which no user has: it takes the scope away from the comparison.
- *agentsview*, *mnemosyne*: see `peers/`; both search by meaning with the plugin's own encoder, over all
  conversations, 200 deep. What was said later than the question, and for *alone* in other projects, is struck out.

A page is ten. By *message* a hit counts when it is a gold message (for Hermes: the message it matched), and *shown*
says how often a gold message stood anywhere in the text returned (RealMem names none), *chars* how long that text was
on average. By *conversation* each counts once, at its best hit. Foreign is the share of hits from other projects,
empty the share of questions without a hit, ms the median.

The second table is plugin minus the stronger form of each other, paired by question, with the 95% interval of 2,000
bootstrap samples; `*` marks those that do not reach zero.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from common import ROOT, Difference, evaluation_home, evaluation_sets, lines, load
from quality import Quiet, asked, index

from demo import hosts

PAGE = 10
SAMPLES = 2_000
PEERS = Path(__file__).resolve().parent / "peers"
AGENTSVIEW = "agentsview==0.46.1"
MNEMOSYNE = "mnemosyne-hermes==0.7.6"
METRICS = ("any@5", "MRR", "nDCG@10")

STOP = frozenset(
    """a about after again all also am an and any are as at be because been before but by can could did do does doing
    don down each else even ever few for from get go got had has have having he her here hers him his how i if in into
    is it its just let like ll me more most much my no nor not now of off ok on once one only or other our out over own
    re really s same she should so some such t than that the their them then there these they thing things this those
    through to too under until up us ve very was we well were what when where which while who whom why will with would
    yes yet you your yours""".split()
)
CHINESE_STOP = re.compile(
    "什么|怎么样|怎么|怎样|为什么|为何|哪里|哪儿|哪些|哪个|多少|几个|是不是|有没有|能不能|可以|我们|你们|他们|咱们|"
    "之前|以前|上次|后来|当时|那个|这个|那次|这次|一下|一个|关于|提到|说过|记得|[的了吗呢吧啊是在有和与我你他她它这那就都也还要会把被让给跟对从到过着里说]"
)


def content_words(text: str) -> list[str]:
    """What a person who writes the search by hand would keep of a question."""
    kept: list[str] = []
    for run in re.findall(r"[\u3400-\u9fff]+|[^\W\u3400-\u9fff]+", text):
        if "\u3400" <= run[0] <= "\u9fff":
            kept += [part for part in CHINESE_STOP.split(run) if part]
        elif len(run) > 1 and run.lower() not in STOP:
            kept.append(run)
    return list(dict.fromkeys(kept)) or [text]


# --- what is asked ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Case:
    """One way a set is asked: its questions, how hits count, and whether the plugin keeps to the project."""

    name: str
    folder: Path
    queries: list[dict[str, Any]]
    unit: str
    whole: bool = False


def cases(folder: Path, every: int) -> list[Case]:
    queries = lines(folder / "queries.jsonl")[::every]
    if not folder.name.startswith("realmem"):
        return [Case(f"{folder.name}, by {unit}", folder, queries, unit) for unit in ("message", "conversation")]
    same = [{**q, "gold_sessions": q["gold_same_project"]} for q in queries if q["gold_same_project"]]
    return [
        Case("realmem, whole history", folder, queries, "conversation", whole=True),
        Case("realmem, same project", folder, same, "conversation"),
    ]


@dataclass(frozen=True, slots=True)
class Said:
    """Whose and when: each message's moment, each conversation's project."""

    moments: dict[str, float]
    projects: dict[str, str]


@cache
def said(folder: Path) -> Said:
    sessions = lines(folder / "sessions.jsonl")
    return Said({m["id"]: m["t"] for s in sessions for m in s["messages"]}, {s["id"]: s["project"] for s in sessions})


# --- the contestants: pages of hits, kept in the cache -----------------------------------------------

Page = dict[str, Any]  # {"ms": float, "chars": int, "hits": [{"session", "message", "shown": [...]}]}
Ask = dict[str, Any]


def kept(contestant: str, folder: Path, asks: list[Ask], answer: Callable[[list[Ask]], dict[str, Page]]) -> None:
    """Answer those `asks` that the cache lacks, and keep them there."""
    file = pages_file(contestant, folder)
    have: dict[str, Page] = json.loads(file.read_text("utf-8")) if file.exists() else {}
    if missing := [ask for ask in asks if ask["id"] not in have]:
        print(f"{contestant}, {folder.name}: {len(missing)} to ask ...", file=sys.stderr, flush=True)
        began = time.monotonic()
        have.update(answer(missing))
        file.parent.mkdir(parents=True, exist_ok=True)
        scratch = file.with_suffix(".new")
        scratch.write_text(json.dumps(have), "utf-8")
        scratch.replace(file)
        print(f"{contestant}, {folder.name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def pages_file(contestant: str, folder: Path) -> Path:
    content = hashlib.sha256(b"".join((folder / f"{n}.jsonl").read_bytes() for n in ("sessions", "queries")))
    return hosts.cache_dir() / "bench" / "against" / contestant / f"{folder.name}-{content.hexdigest()[:12]}.json"


def plugin() -> str:
    """The plugin's name here: any change of its code is another contestant."""
    code = b"".join(file.read_bytes() for file in sorted(ROOT.glob("*.py")))
    return f"plugin-{hashlib.sha256(code).hexdigest()[:12]}"


def ask_plugin(folder: Path, every: int) -> None:
    for case in cases(folder, every):
        where = "whole" if case.whole else "project"
        asks = [{**q, "id": f"{where} {q['id']}"} for q in case.queries]

        def answer(missing: list[Ask], whole: bool = case.whole) -> dict[str, Page]:
            package = load()
            home = evaluation_home(folder, one_project=whole)
            names = {row: name for name, row in json.loads((home / "map.json").read_text("utf-8")).items()}
            surroundings = Quiet(package.host.current(home=home))
            index(home, surroundings)
            pages: dict[str, Page] = {}
            for query in missing:
                args = asked(query, "hybrid", one_project=whole)
                began = time.perf_counter()
                found = package.search.run(args, surroundings, lambda _: package.scope.owner())
                cost = 1000 * (time.perf_counter() - began)
                hits = [(hit["session_id"], names[hit["message_id"]]) for hit in found["results"]]
                pages[query["id"]] = {
                    "ms": cost,
                    "chars": len(json.dumps(found, ensure_ascii=False)),
                    "hits": [{"session": s, "message": m, "shown": [m]} for s, m in hits],
                }
            return pages

        kept(plugin(), folder, asks, answer)


def ask_core(host: hosts.Host, folder: Path, every: int) -> None:
    asks = []
    for query in unique(folder, every):
        for form, text in (("asked", query["query"]), ("words", " OR ".join(content_words(query["query"])))):
            for only in (None, query["project"]):
                where = "alone" if only else "all"
                asks.append(
                    {"id": f"{form} {where} {query['id']}", "text": text, "before": query["before"], "only": only}
                )

    def answer(missing: list[Ask]) -> dict[str, Page]:
        with tempfile.TemporaryDirectory() as scratch:
            command = [str(hosts.environment(host)), str(PEERS / "ask_core.py")]
            return run(command, missing, folder, env=hosts.child_env(host, Path(scratch) / "home"))

    kept(f"hermes-{host.name}", folder, asks, answer)


def ask_agentsview(folder: Path, every: int) -> None:
    asks = []
    for query in unique(folder, every):
        words = " ".join(content_words(query["query"]))
        for mode, form, text in (
            ("fts", "asked", query["query"]), ("fts", "words", words), ("terms", "words", words),
            ("hybrid", "asked", query["query"]), ("hybrid", "words", words),
        ):  # fmt: skip
            asks.append({"id": f"{mode}-{form} all {query['id']}", "text": text, "mode": mode})

    def answer(missing: list[Ask]) -> dict[str, Page]:
        python = hosts.venv("peer-agentsview", Path(sys.executable), [AGENTSVIEW])
        home = evaluation_home(folder, one_project=False)
        command = [*offline(), sys.executable, str(PEERS / "ask_agentsview.py")]
        return run(command, missing, folder, str(python.with_name("agentsview")), str(home / "state.db"))

    kept("agentsview", folder, asks, answer)


def ask_mnemosyne(folder: Path, every: int) -> None:
    asks = []
    for query in unique(folder, every):
        words = " ".join(content_words(query["query"]))
        forms = {"asked": query["query"], "words": words, "meaning-asked": query["query"], "meaning-words": words}
        asks += [
            {"id": f"{form} all {query['id']}", "text": text, "meaning": form.startswith("meaning")}
            for form, text in forms.items()
        ]

    def answer(missing: list[Ask]) -> dict[str, Page]:
        python = hosts.venv("peer-mnemosyne", loads_extensions(), [MNEMOSYNE])
        command = [*offline(), sys.executable, str(PEERS / "ask_mnemosyne.py")]
        return run(command, missing, folder, str(python))

    kept("mnemosyne", folder, asks, answer)


def unique(folder: Path, every: int) -> list[dict[str, Any]]:
    return list({q["id"]: q for case in cases(folder, every) for q in case.queries}.values())


def run(
    command: list[str], asks: list[Ask], folder: Path, *more: str, env: dict[str, str] | None = None
) -> dict[str, Page]:
    """What an adapter in `peers/` answers, run as a process of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        job, out = Path(scratch) / "job.json", Path(scratch) / "out.json"
        job.write_text(json.dumps({"sessions": lines(folder / "sessions.jsonl"), "asks": asks}), "utf-8")
        done = subprocess.run([*command, str(job), str(out), *more], env=env, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-3000:]}")
        answers: dict[str, Page] = json.loads(out.read_text("utf-8"))
        return answers


@cache
def offline() -> tuple[str, ...]:
    """What to put before a command to leave it nothing but a loopback; empty where the system cannot."""
    inside = ("unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "-")
    if shutil.which("unshare") and not subprocess.run([*inside, "true"], capture_output=True).returncode:
        return inside
    print("peers run with the network as it is: no namespaces here", file=sys.stderr)
    return ()


def loads_extensions() -> Path:
    """A Python whose sqlite3 loads extensions: without one Mnemosyne has no vector search."""
    test = "import ensurepip, sqlite3; sqlite3.Connection.enable_load_extension"
    for name in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3", shutil.which("python3")):
        if name and not subprocess.run([name, "-c", test], capture_output=True).returncode:
            return Path(name)
    raise SystemExit("no Python here loads SQLite extensions; leave mnemosyne out with --peers")


# --- scores -----------------------------------------------------------------------------------------


@dataclass
class Scores:
    """A contestant's scores on a case, a list entry a question."""

    ranks: list[int | None] = field(default_factory=list)
    gain: list[float] = field(default_factory=list)
    shown: list[bool] = field(default_factory=list)
    foreign: list[float] = field(default_factory=list)
    empty: list[bool] = field(default_factory=list)
    ms: list[float] = field(default_factory=list)
    chars: list[int] = field(default_factory=list)

    def of(self, metric: str) -> list[float]:
        if metric == "nDCG@10":
            return self.gain
        if metric == "MRR":
            return [1 / r if r else 0.0 for r in self.ranks]
        k = int(metric.removeprefix("any@"))
        return [float(r is not None and r <= k) for r in self.ranks]

    def row(self) -> str:
        figures = [mean(self.of(m)) for m in ("any@1", "any@5", "any@10", "MRR", "nDCG@10")]
        figures += [mean(self.shown), mean(self.foreign), mean(self.empty)]
        chars = f"{mean(self.chars):8.0f}" if any(self.chars) else f"{'-':>8}"
        return "".join(f"{f:8.3f}" for f in figures) + f"{statistics.median(self.ms):8.1f}{chars}"

    def add(self, case: Case, query: dict[str, Any], page: Page, *, alone: bool) -> None:
        facts = said(case.folder)
        hits = [
            hit for hit in page["hits"]
            if not (query["before"] and hit["message"] and facts.moments[hit["message"]] >= query["before"])
            and not (alone and facts.projects[hit["session"]] != query["project"])
        ]  # fmt: skip
        gold = set(query["gold_messages"] if case.unit == "message" else query["gold_sessions"])
        units = list(dict.fromkeys(hit["message" if case.unit == "message" else "session"] for hit in hits))[:PAGE]
        right = [i for i, unit in enumerate(units, 1) if unit in gold]
        best = sum(1 / math.log2(i + 1) for i in range(1, min(PAGE, len(gold)) + 1))
        self.ranks.append(right[0] if right else None)
        self.gain.append(sum(1 / math.log2(i + 1) for i in right) / best if best else 0.0)
        # The page as its reader sees it: the first ten hits, or all the hits of its first ten conversations.
        page_hits = hits[:PAGE] if case.unit == "message" else [h for h in hits if h["session"] in units]
        self.shown.append(bool({m for h in page_hits for m in h["shown"]} & set(query["gold_messages"])))
        away = [facts.projects[h["session"]] != query["project"] for h in page_hits]
        self.foreign.append(mean(away) if away and not case.whole else 0.0)
        self.empty.append(not hits)
        self.ms.append(page["ms"])
        self.chars.append(page.get("chars", 0))  # the peers are asked 200 deep: their length would say nothing


def score(case_parts: list[Case], contestant: str, prefix: str, *, alone: bool = False) -> Scores | None:
    """Scores over the parts of a case (RealMem's users); None when a question has no page yet."""
    scores = Scores()
    for part in case_parts:
        pages = read_pages(pages_file(contestant, part.folder))
        for query in part.queries:
            page = pages.get(f"{prefix} {query['id']}")
            if page is None:
                return None
            scores.add(part, query, page, alone=alone)
    return scores


@cache
def read_pages(file: Path) -> dict[str, Page]:
    """The pages in `file`, read once: tables are made when all is asked."""
    pages: dict[str, Page] = json.loads(file.read_text("utf-8")) if file.exists() else {}
    return pages


def mean(values: Iterable[float]) -> float:
    rows = list(values)
    return sum(rows) / max(1, len(rows))


# --- tables -----------------------------------------------------------------------------------------


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    options.add_argument("--sets", default="", help="only sets whose names begin so")
    options.add_argument("--hosts", default="0.19,0.20,0.22")
    options.add_argument("--peers", default="agentsview,mnemosyne")
    options.add_argument("--every", type=int, default=1, help="ask every so-manieth query of each set only")
    options.add_argument("--tables", action="store_true", help="ask nothing: tables of what the cache holds")
    args = options.parse_args()
    starts = tuple(s for s in args.sets.split(",") if s) or ("",)
    folders = [p for p in evaluation_sets(args.folder) if p.name.startswith(starts)]
    wanted = [h for h in hosts.HOSTS if h.name in args.hosts.split(",")]
    peers = {"agentsview": ask_agentsview, "mnemosyne": ask_mnemosyne}
    named = [p for p in args.peers.split(",") if p]
    for folder in () if args.tables else folders:
        ask_plugin(folder, args.every)
        for host in wanted:
            ask_core(host, folder, args.every)
        for peer in named:
            peers[peer](folder, args.every)
    for name, parts in grouped(folders, args.every).items():
        table(name, parts, wanted, named)


def grouped(folders: Iterable[Path], every: int) -> dict[str, list[Case]]:
    """The parts of each case: RealMem's users are asked one by one and counted as one set."""
    parts: dict[str, list[Case]] = {}
    for folder in folders:
        for case in cases(folder, every):
            parts.setdefault(case.name, []).append(case)
    return parts


def score_plugin(parts: list[Case]) -> Scores | None:
    return score(parts, plugin(), "whole" if parts[0].whole else "project")


def score_others(
    parts: list[Case], wanted: Iterable[hosts.Host], peers: Iterable[str]
) -> dict[tuple[str, str], dict[str, Scores]]:
    """(contestant, place) -> form -> scores."""
    one_project = all(len(set(said(p.folder).projects.values())) == 1 for p in parts)
    places = ("all",) if parts[0].whole or one_project else ("all", "alone")
    rows: dict[tuple[str, str], dict[str, Scores]] = {}
    for host in wanted:
        for place in places:
            for form in ("asked", "words"):
                add(rows, f"Hermes {host.name}", place, form, score(parts, f"hermes-{host.name}", f"{form} {place}"))
    forms = {
        "agentsview": ("fts-asked", "fts-words", "terms-words", "hybrid-asked", "hybrid-words"),
        "mnemosyne": ("asked", "words", "meaning-asked", "meaning-words"),
    }
    for peer in peers:
        for place in places:
            for form in forms[peer]:
                add(rows, peer, place, form, score(parts, peer, f"{form} all", alone=place == "alone"))
    return rows


def table(name: str, parts: list[Case], wanted: list[hosts.Host], peers: list[str]) -> None:
    ours, rows = score_plugin(parts), score_others(parts, wanted, peers)
    count = sum(len(p.queries) for p in parts)
    print(f"\n{name}: {count} questions")
    heads = ("any@1", "any@5", "any@10", "MRR", "nDCG@10", "shown", "foreign", "empty")
    print(f"{'':34}" + "".join(f"{h:>8}" for h in heads) + f"{'ms':>8}{'chars':>8}")
    if ours:
        print(f"{'plugin':34}{ours.row()}")
    for (contestant, place), by_form in rows.items():
        for form, scores in by_form.items():
            print(f"{f'{contestant}, {form}' + (', alone' if place == 'alone' else ''):34}{scores.row()}")
    if ours:
        print(f"{'plugin minus the stronger form of':34}" + "".join(f"{m:>27}" for m in METRICS))
        for (contestant, place), by_form in rows.items():
            form, other = stronger(by_form)
            label = f"{contestant}, {form}" + (", alone" if place == "alone" else "")
            gains = [difference(ours.of(m), other.of(m)) for m in METRICS]
            marked = (f"{gain}{'*' if gain.low > 0 or gain.high < 0 else ' '}" for gain in gains)
            print(f"{label:34}" + "".join(f"{gain:>27}" for gain in marked), flush=True)


def add(
    rows: dict[tuple[str, str], dict[str, Scores]], contestant: str, place: str, form: str, scores: Scores | None
) -> None:
    if scores:
        rows.setdefault((contestant, place), {})[form] = scores
    else:
        print(f"{contestant}, {form}, {place}: not all asked, left out", file=sys.stderr)


def stronger(by_form: dict[str, Scores]) -> tuple[str, Scores]:
    return max(by_form.items(), key=lambda item: mean(item[1].of("MRR")))


def difference(ours: list[float], theirs: list[float]) -> Difference:
    import numpy as np

    pairs = np.asarray(ours) - np.asarray(theirs)
    dice = np.random.default_rng(1)
    means = np.sort([pairs[dice.integers(0, len(pairs), len(pairs))].mean() for _ in range(SAMPLES)])
    return Difference(pairs.mean(), means[round(0.025 * SAMPLES) - 1], means[round(0.975 * SAMPLES) - 1])


if __name__ == "__main__":
    main()
