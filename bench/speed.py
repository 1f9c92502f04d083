"""Time of a keyword call beside its own statements run bare, for scopes of 12, 200 and 2000 sessions.

    python bench/speed.py [--messages 200000] [--rounds 15] [--home HOME]

The whole call is `search.run` as the tool makes it (redaction left out); bare is a connection that runs the
statements this call issued, in order, and fetches their rows. Both alternate in one run, warm; medians in ms.
"""

from __future__ import annotations

import argparse
import shutil
import sqlite3
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from common import ROOT, host, load
from quality import Quiet

from demo import hosts

QUERIES = {
    "two words": "token retry",
    "question": "how did we fix the retry of the token store after the timeout",
    "rare symbol": "ECONNRESET",
    "path": "src/auth/oauth_client.py",
    "中文 question": "上次回调重复入账怎么修的",
    "中文 words": "支付退款 监控告警",
    "nothing": "zzyzxqua",
}


class Row(NamedTuple):
    """One query in one scope, medians in ms."""

    scope: int
    query: str
    hits: int
    bare: float
    whole: float

    @property
    def over(self) -> float:
        """By how much it is above twice the bare statements plus 5 ms."""
        return self.whole - 2 * self.bare - 5


def rows(home: Path, rounds: int) -> Iterator[Row]:
    for scope in (12, 200, 2000):
        for name, query in QUERIES.items():
            bare, whole, hits = measure(home, f"scope-{scope}", query, rounds)
            yield Row(scope, name, hits, bare, whole)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--messages", type=int, default=200_000)
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--home", type=Path, help="a home made by big_home.py")
    args = options.parse_args()
    print(f"{args.messages} messages, Python's SQLite {sqlite3.sqlite_version}, median of {args.rounds}, warm, ms")
    print(f"{'scope':>6} {'query':16} {'hits':>4} {'bare':>7} {'whole':>7} {'ratio':>6} {'over 2x+5':>9}")
    for row in rows(args.home or big_home(args.messages), args.rounds):
        times = f"{row.bare:7.1f} {row.whole:7.1f} {row.whole / row.bare:6.2f} {max(0.0, row.over):9.1f}"
        print(f"{row.scope:6} {row.query:16} {row.hits:4} {times}", flush=True)


def big_home(messages: int, scopes: str = "12,200,2000") -> Path:
    home = hosts.cache_dir() / "bench" / f"big-{messages}-{scopes.replace(',', '-')}"
    if not (home / "map.json").exists():
        shutil.rmtree(home, ignore_errors=True)
        wanted = host()
        print(f"building {home.name} ...", flush=True)
        script = [str(hosts.environment(wanted)), str(ROOT / "bench" / "big_home.py"), str(home), str(messages), scopes]
        subprocess.run(script, env=hosts.child_env(wanted, home), check=True, capture_output=True)
    return home


def measure(home: Path, project: str, query: str, rounds: int) -> tuple[float, float, int]:
    """Medians (bare, whole) in ms and the number of hits."""
    package = load()
    surroundings = Quiet(package.host.current(home=home))
    surroundings.settings = package.config_schema.Settings()
    args = {"query": query, "project": project, "mode": "keyword"}

    def call() -> dict[str, Any]:
        answer: dict[str, Any] = package.search.run(args, surroundings, lambda _: package.scope.owner())
        return answer

    statements = record(package, call)
    bare, whole, answer = [], [], {}
    for _ in range(rounds):
        began = time.perf_counter()
        answer = call()
        whole.append(1000 * (time.perf_counter() - began))
        began = time.perf_counter()
        run_bare(home, statements)
        bare.append(1000 * (time.perf_counter() - began))
    return statistics.median(bare), statistics.median(whole), len(answer["results"])


def record(package: Any, call: Any) -> list[tuple[str, Any]]:
    """The statements one call issues, with their values."""
    kept: list[tuple[str, Any]] = []
    original = package.state.State.rows

    def rows(self: Any, sql: str, params: Any = ()) -> Any:
        kept.append((sql, params))
        return original(self, sql, params)

    package.state.State.rows = rows
    try:
        call()
    finally:
        package.state.State.rows = original
    return kept


def run_bare(home: Path, statements: list[tuple[str, Any]]) -> None:
    db = sqlite3.connect(f"{(home / 'state.db').as_uri()}?mode=ro", uri=True, isolation_level=None)
    db.execute("PRAGMA temp_store=MEMORY")
    for sql, params in statements:
        db.execute(sql, params).fetchall()
    db.close()


if __name__ == "__main__":
    main()
