"""Run by a host's python: ask that host's own `session_search`, through its tool registry.

    python ask_core.py JOB OUT

The home is grown through the host's own `SessionDB`, message by message in order of time, in a folder that is thrown
away; a question with a `before` is asked at that moment, so that no host sees the future, whether it can filter by
time or not. A question with `only` is asked in a home that holds nothing but that project.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

PAGE = 10  # the most conversations the tool returns


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    groups: dict[str | None, list[dict[str, Any]]] = defaultdict(list)
    for ask in job["asks"]:
        groups[ask["only"]].append(ask)
    answers: dict[str, Any] = {}
    for only, asks in groups.items():
        sessions = [s for s in job["sessions"] if only is None or s["project"] == only]
        answers.update(grow_and_ask(sessions, asks))
    Path(sys.argv[2]).write_text(json.dumps(answers), encoding="utf-8")


def grow_and_ask(sessions: list[dict[str, Any]], asks: list[dict[str, Any]]) -> dict[str, Any]:
    """Answers by ask id: hits (conversation, anchor, messages shown), milliseconds and characters."""
    waiting = sorted(
        ((m["t"], at, n, s, m) for at, s in enumerate(sessions) for n, m in enumerate(s["messages"])),
        key=lambda row: row[:3],
    )
    answers: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        os.environ["HERMES_HOME"] = str(home)
        from hermes_state import SessionDB
        from tools import session_search_tool  # noqa: F401  (registers the tool)
        from tools.registry import registry

        db = SessionDB(home / "state.db")
        names: dict[int, str] = {}
        known: set[str] = set()
        at = 0
        for ask in sorted(asks, key=lambda a: a["before"] or float("inf")):
            while at < len(waiting) and waiting[at][0] < (ask["before"] or float("inf")):
                _, _, _, session, message = waiting[at]
                if session["id"] not in known:
                    known.add(session["id"])
                    db.create_session(session["id"], source="cli", cwd=str(home / session["project"]))
                row = db.append_message(
                    session["id"], message["role"], content=message["content"], timestamp=message["t"]
                )
                names[row] = message["id"]
                at += 1
            began = time.perf_counter()
            raw = registry.dispatch("session_search", {"query": ask["text"], "limit": PAGE}, db=db)
            cost = 1000 * (time.perf_counter() - began)
            found = json.loads(raw).get("results") or []
            answers[ask["id"]] = {"ms": cost, "chars": len(raw), "hits": [hit(result, names) for result in found]}
        db.close()
    return answers


def hit(result: dict[str, Any], names: dict[int, str]) -> dict[str, Any]:
    shown = [m.get("id") for part in ("bookend_start", "messages", "bookend_end") for m in result.get(part) or []]
    return {
        "session": result["session_id"],
        "message": names.get(result["match_message_id"]),
        "shown": [names[i] for i in shown if i in names],
    }


main()
