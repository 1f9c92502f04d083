"""Call the tool through the host's real registry, well and badly, and report every answer as it came."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import probing

BAD: list[dict[str, Any]] = [
    {},
    {"query": ""},
    {"query": None},
    {"query": 42},
    {"query": ["a", "list"]},
    {"query": "\ud800 half a character"},
    {"query": "word", "limit": "many"},
    {"query": "word", "limit": None},
    {"query": "word", "context": {}},
    {"query": "word", "mode": "psychic"},
    {"query": "word", "after": "someday"},
    {"query": "word", "session_id": 7},
    {"query": "word", "project": ["alpha"]},
    {"query": "word", "exclude_session_ids": 3},
    {"query": "word", "around_message_id": "none"},
    {"query": "word", "surprise": True},
]
BAD_MOVES: list[dict[str, Any]] = [
    {},
    {"project": None},
    {"project": 42},
    {"project": "nowhere"},
    {"project": "beta", "session_id": 7},
    {"project": "beta", "session_id": "s_none"},
    {"undo": "perhaps"},
]

workspace = Path(sys.argv[1])
probing.load()
probing.remember(
    probing.HOME,
    {
        "s_past": (workspace / "alpha", "We double-booked the refund because of ZEBRA7431 in the callback."),
        "s_now": (workspace / "alpha", "Where were we?"),
        "s_other": (workspace / "beta", "ZEBRA7431 is something else here."),
    },
)
caller: dict[str, Any] = {"task_id": "s_now", "session_id": "s_now", "user_task": None}
good = {"query": "ZEBRA7431"}

from model_tools import handle_function_call  # noqa: E402  (after the plugins, as in a running host)
from tools.registry import registry  # noqa: E402

answers = {
    "registry": probing.dispatch(good, **caller),
    "agent": handle_function_call(probing.TOOL, good, task_id="s_now", session_id="s_now"),
    "unknown keywords": probing.dispatch(good, **caller, tool_call_id="call_1", parent_agent=None, newcomer=1),
    "no session": probing.dispatch(good),
    "strange session": probing.dispatch(good, task_id="s_none", session_id="s_none", user_task=None),
}
bad = {repr(args): probing.dispatch(args, **caller) for args in BAD}
for args in BAD_MOVES if registry.get_entry("project_session_move") else []:
    bad[f"move {args!r}"] = probing.dispatch(args, tool="project_session_move", **caller)
with mock.patch.object(sqlite3, "connect", side_effect=RuntimeError("boom")):
    bad["a failure nobody foresaw"] = probing.dispatch(good, **caller)
for leftover in ("state.db-wal", "state.db-shm"):
    (probing.HOME / leftover).unlink(missing_ok=True)
(probing.HOME / "state.db").write_bytes(b"this is no database" * 999)
bad["a state.db of junk"] = probing.dispatch(good, **caller)
probing.report(answers=answers, bad=bad)
