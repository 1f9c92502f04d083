"""Answer calls of the tool for as long as somebody asks: one line of JSON in, one out.

A request has `args` and may have `session_id` (what the agent passes), `vars` (what the surface binds,
by the names of the host's `set_session_vars`), `current` (the row the host says is current, as for
calls from inside `execute_code`) and `home` (another profile's). Each is answered in a context of its own.
"""

from __future__ import annotations

import contextvars
import inspect
import json
import os
import sys
from typing import Any

import probing
from gateway import session_context
from hermes_constants import set_hermes_home_override

BINDABLE = inspect.signature(session_context.set_session_vars).parameters


def answer(request: dict[str, Any]) -> str:
    if request.get("home"):
        set_hermes_home_override(request["home"])
        probing.load()  # 0.20 and 0.22 keep one manager for each home
    if request.get("vars"):
        session_context.set_session_vars(**{k: v for k, v in request["vars"].items() if k in BINDABLE})
    if request.get("current"):
        session_context.set_current_session_id(request["current"])
    session_id = request.get("session_id")
    calling = {"task_id": session_id, "session_id": session_id, "user_task": None} if session_id else {}
    return probing.dispatch(request["args"], **calling)


assert probing.load(), "the host did not find the plugin"
probing.report(ready=True)
for line in sys.stdin:
    probing.report(answer=contextvars.copy_context().run(answer, json.loads(line)))
    os.environ.pop("HERMES_SESSION_ID", None)  # `current` is written there too
