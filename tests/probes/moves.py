"""A desktop's backend in one process, as far as moves go: the host's real gateway module, sessions live in it, calls.

One line of JSON in, one out. `op` says what is wanted:

    live    begin a session in `cwd` (of `profile`), with its row: `sid` and `key`
    call    call `tool` with `args` as the agent of `session_id` would; `vars`, `current`, `home` as for `serve`
    rpc     put a request with `params` to the gateway as it is
    rotate  go on with the conversation `key` in a new row, as a compression in mid-turn does
    rounds  move `session_id` from `window` to each of `projects` in turn, `count` times; as many threads as lists
    cwd     the folder the next command of the session `key` would start in
"""

from __future__ import annotations

import contextvars
import inspect
import json
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import probing
from gateway import session_context
from hermes_constants import set_hermes_home_override
from hermes_state import SessionDB
from tools import terminal_tool
from tui_gateway import server

BINDABLE = inspect.signature(session_context.set_session_vars).parameters
MOVE = "project_session_move"


def request(method: str, **params: Any) -> dict[str, Any]:
    answer: dict[str, Any] = server.handle_request({"jsonrpc": "2.0", "id": "p1", "method": method, "params": params})
    return answer


def live(cwd: str, **more: str) -> dict[str, Any]:
    made = request("session.create", cwd=cwd, cols=80, source="desktop", **more)["result"]
    server._ensure_session_db_row(server._sessions[made["session_id"]])
    return {"sid": made["session_id"], "key": made["stored_session_id"]}


def bind(wanted: dict[str, Any]) -> None:
    if wanted.get("home"):
        set_hermes_home_override(wanted["home"])
        probing.load()
    if wanted.get("vars"):
        session_context.set_session_vars(**{k: v for k, v in wanted["vars"].items() if k in BINDABLE})
    if wanted.get("current"):
        session_context.set_current_session_id(wanted["current"])


def call(tool: str, args: dict[str, Any], **wanted: Any) -> dict[str, Any]:
    bind(wanted)
    names = {name: wanted[name] for name in ("session_id", "task_id") if wanted.get(name)}
    answer: dict[str, Any] = json.loads(probing.dispatch(args, tool=tool, **names))
    return answer


def window(made: dict[str, str]) -> dict[str, str]:
    """What a desktop binds for a turn of a live session."""
    return {"session_key": made["key"], "source": "desktop", "ui_session_id": made["sid"]}


def rotate(key: str) -> str:
    db = SessionDB(probing.HOME / "state.db")
    child = f"{key}_next"
    db.publish_compression_child(
        parent_session_id=key, child_session_id=child, source="desktop", model_config=None,
        messages=[{"role": "user", "content": "[CONTEXT SUMMARY]: so far"}], require_compression_lease=False,
    )  # fmt: skip
    db.close()
    return child


def rounds(session_id: str, made: dict[str, str], projects: list[list[str]], count: int) -> list[Any]:
    """Every answer, as [folder] of a move or the code of a refusal, in the order each thread got them."""
    start = threading.Barrier(len(projects))
    told: list[Any] = []

    def thread(names: list[str]) -> None:
        for n in range(count):
            start.wait(60)
            args = {"project": names[n % len(names)], "session_id": session_id}
            agent = {"session_id": made["key"], "task_id": made["key"], "vars": window(made)}
            answer = contextvars.copy_context().run(partial(call, MOVE, args, **agent))
            told.append([answer["to"]["cwd"]] if answer["success"] else answer["error"])

    threads = [threading.Thread(target=thread, args=(names,)) for names in projects]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return told


OPS: dict[str, Callable[..., Any]] = {
    "live": live,
    "call": lambda **wanted: contextvars.copy_context().run(call, **wanted),
    "rpc": lambda method="session.workspace.move", **params: request(method, **params["params"]),
    "rotate": rotate,
    "rounds": rounds,
    "cwd": lambda key: terminal_tool.get_session_cwd(key),
}

assert probing.load(), "the host did not find the plugin"
probing.report(ready=True)
for line in sys.stdin:
    wanted = json.loads(line)
    probing.report(said=OPS[wanted.pop("op")](**wanted))
    os.environ.pop("HERMES_SESSION_ID", None)
