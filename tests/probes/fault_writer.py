"""Write through the host's own SessionDB while threads of the same process search. Arguments: journal, searches.

Reports the commits and what failed of them, the answers that lacked a hit, and the locks on state.db that this
process held, each with how it was held, before and after searches.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import probing

journal, searches = sys.argv[1], int(sys.argv[2])
STATE = probing.HOME / "state.db"
if journal == "wal":  # a host keeps what it finds
    with closing(sqlite3.connect(STATE)) as made:
        made.execute("PRAGMA journal_mode = WAL")
        made.execute("CREATE TABLE IF NOT EXISTS made (x)")
        made.commit()

from hermes_state import SessionDB  # noqa: E402

WORK = probing.HOME.parent / "work"
probing.remember(
    probing.HOME, {"now": (WORK, "Where were we?"), "past": (WORK, "The heron nests in the alders by the weir.")}
)
assert probing.load(), "the host did not find the plugin"


def locks() -> list[str]:
    """The locks on the database and what lies beside it, as the kernel tells them."""
    inodes = {str(os.stat(f"{STATE}{end}").st_ino) for end in ("", "-shm", "-wal") if Path(f"{STATE}{end}").exists()}
    found = []
    for line in Path("/proc/locks").read_text().splitlines():
        _, kind, _, how, pid, file, begin, end = line.replace("-> ", "").split()[:8]
        if file.rpartition(":")[2] in inodes and int(pid) in (os.getpid(), -1):
            found.append(f"{kind} {how} {file.rpartition(':')[2]} {begin}-{end}")
    return sorted(found)


def ask(mode: str) -> dict[str, Any]:
    text = probing.dispatch({"query": "heron", "mode": mode}, session_id="now", task_id="now")
    answer: dict[str, Any] = json.loads(text)
    return answer


db = SessionDB(STATE)
failures: list[str] = []
bad: list[str] = []
commits, asked = 0, 0
stop = threading.Event()


def write() -> None:
    global commits
    while not stop.is_set() or (commits < 60 and len(failures) < 60):
        try:
            db.append_message("past", "assistant", content=f"note {commits}")
            commits += 1
        except Exception as error:
            failures.append(repr(error))
        stop.wait(0.002)


def search(number: int) -> None:
    global asked
    for turn in range(searches // 3):
        answer = ask(("keyword", "hybrid", "semantic")[(number + turn) % 3])
        asked += 1
        found = [hit["snippet"] for hit in answer.get("results", [])]
        if not any("heron" in text for text in found):
            bad.append(json.dumps(answer)[:500])


# Held between two commits (a WAL alone knows such locks), and within one.
held, kept = list[str](), list[str]()
db.append_message("past", "user", content="begun")
held += locks()
ask("hybrid")
kept += locks()

writer = threading.Thread(target=write)
writer.start()
threads = [threading.Thread(target=search, args=(number,)) for number in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
stop.set()
writer.join()

connection = db._conn
connection.execute("BEGIN IMMEDIATE")
held += [f"within {lock}" for lock in locks()]
ask("hybrid")
kept += [f"within {lock}" for lock in locks()]
connection.execute("ROLLBACK")
db.close()

with closing(sqlite3.connect(STATE)) as read:
    rows = read.execute("SELECT count(*) FROM messages WHERE content LIKE 'note %'").fetchone()[0]
    integrity = read.execute("PRAGMA integrity_check").fetchone()[0]
probing.report(
    failures=failures[:5], commits=commits, rows=rows, bad=bad[:3], searches=asked, integrity=integrity,
    held=held, kept=kept,
)  # fmt: skip
