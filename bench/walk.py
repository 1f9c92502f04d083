"""Search a project of 60,000 messages again and again from an empty index until everything is embedded.

    python bench/walk.py [--messages 60000] [--home HOME] [--every 20]

Prints for each call its time, the status, and how many hits were found by meaning: the first answer is to hold
some already, no answer may take longer than 8 s, and the status walks from indexing or partial to ready.
"""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path

from common import load
from quality import Quiet
from speed import big_home

QUERIES = ("how did we fix the retry of the token store", "支付 退款 报错怎么处理的", "ECONNRESET", "deploy rollback")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--messages", type=int, default=60_000)
    options.add_argument("--home", type=Path, help="a home made by big_home.py with one scope of all its sessions")
    options.add_argument("--every", type=float, default=20.0, help="seconds between two calls")
    args = options.parse_args()
    sessions = args.messages // 80
    home = args.home or big_home(args.messages, str(sessions))
    shutil.rmtree(home / "plugin-data", ignore_errors=True)
    package = load()
    surroundings = Quiet(package.host.current(home=home))
    surroundings.settings = package.config_schema.Settings()
    began, number, slowest = time.monotonic(), 0, 0.0
    print(f"{args.messages} messages, {sessions} conversations\n{'at':>6} {'took':>5} status    by meaning  detail")
    while True:
        query = QUERIES[number % len(QUERIES)]
        started = time.monotonic()
        answer = package.search.run(
            {"query": query, "project": f"scope-{sessions}"}, surroundings, lambda _: package.scope.owner()
        )
        took = time.monotonic() - started
        slowest, number = max(slowest, took), number + 1
        meant = sum(hit["score_source"] != "keyword" for hit in answer["results"])
        status = answer["semantic_status"]
        detail = answer.get("semantic_detail", "")
        print(f"{started - began:6.0f} {took:5.1f} {status:9} {meant:10}  {detail}", flush=True)
        if status in ("ready", "unavailable"):
            break
        time.sleep(args.every)
    print(f"slowest call {slowest:.1f} s of {number}")


if __name__ == "__main__":
    main()
