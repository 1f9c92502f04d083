"""Ask for consent in every kind of turn the host knows, with an `o` for yes waiting on stdin, and report each answer.

Each case runs in a thread and a context of its own, as a turn does, and is reported as [what was said, how often
somebody was shown the question]. The host's own ways are used throughout: its session variables, its registers of
who answers, its command line's panel. Only the person is ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import probing
import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
package = sys.modules["project_history_recall"] = types.ModuleType("project_history_recall")
package.__path__ = [str(ROOT)]

from project_history_recall import host  # noqa: E402

PIPED = b"o\n" * 200
_end, _start = os.pipe()
os.write(_start, PIPED)
os.close(_start)
os.dup2(_end, 0)
sys.stdin = os.fdopen(0, "r", closefd=False)

CONFIG = probing.HOME / "config.yaml"
BEFORE = yaml.safe_load(CONFIG.read_text("utf-8")) if CONFIG.exists() else {}
IMPATIENT = {"approvals": {"timeout": 1}, "delegation": {"subagent_auto_approve": True}}
CONFIG.write_text(json.dumps({**BEFORE, **IMPATIENT}), "utf-8")  # before the host's modules read it

from gateway.session_context import clear_session_vars, set_session_vars  # noqa: E402
from tools import approval, delegate_tool, skill_provenance, terminal_tool  # noqa: E402

cli = import_module("cli")  # of no types, like all of the host

# 0.22 has some of it in a module of its own.
keys = sys.modules.get("tools.approval_context", approval)

KEY = "agent:main:desktop:probe"
MESSAGE, DESCRIPTION = "Send the texts of Atlas to api.example.com?", "project-history-recall asks"
TUI = {"HERMES_GATEWAY_SESSION": "1", "HERMES_EXEC_ASK": "1", "HERMES_INTERACTIVE": "1"}
DESKTOP = {"source": "desktop", "session_key": KEY, "session_id": "s_now", "ui_session_id": "ui-1"}
TELEGRAM = {"platform": "telegram", "session_key": KEY, "session_id": "s_now"}
asked: list[str] = []
answers: dict[str, Any] = {}


def in_a_turn(act: Callable[[], Any], setup: Callable[[contextlib.ExitStack], None], env: dict[str, str]) -> Any:
    """What `act` gives in a thread and a context of its own, with `env` added meanwhile."""
    result: list[Any] = []

    def turn() -> None:
        with contextlib.ExitStack() as stack:
            setup(stack)
            result.append(act())

    with mock.patch.dict(os.environ, env):
        thread = threading.Thread(target=contextvars.Context().run, args=(turn,))
        thread.start()
        thread.join()
    return result[0] if result else "nothing: the turn failed"


def bind(stack: contextlib.ExitStack, **variables: Any) -> None:
    stack.callback(clear_session_vars, set_session_vars(**variables))
    stack.callback(keys.reset_current_session_key, keys.set_current_session_key(KEY))


def listen(stack: contextlib.ExitStack, choice: str | None) -> None:
    """A client that is shown the question, and answers it unless `choice` is None."""

    def shown(data: dict[str, Any]) -> None:
        asked.append(data["command"])
        if choice == "broken":
            raise ConnectionError
        if choice is not None:
            approval.resolve_gateway_approval(KEY, choice)

    approval.register_gateway_notify(KEY, shown)
    stack.callback(approval.unregister_gateway_notify, KEY)


def terminal(stack: contextlib.ExitStack, choice: str | None, *, app: Any = "an open prompt") -> None:
    """The command line's own panel, before somebody who chooses as soon as it is painted."""
    window = cli.HermesCLI.__new__(cli.HermesCLI)

    def paint(*_: Any, **__: Any) -> None:
        state = window._approval_state
        if state and not state.get("seen"):
            state["seen"] = True
            asked.append(state["command"])
            if choice is not None:
                state["response_queue"].put(choice)

    window.__dict__.update(
        _app=app, _approval_lock=threading.Lock(), _approval_state=None, _approval_deadline=0, _paint_now=paint,
        _invalidate=paint, _persist_prompt_summary=lambda *_, **__: None, _ring_bell=lambda *_, **__: None,
        _should_exit=False,
    )  # fmt: skip
    panel(stack, window._approval_callback)


def panel(stack: contextlib.ExitStack, callback: Any) -> None:
    terminal_tool.set_approval_callback(callback)
    stack.callback(terminal_tool.set_approval_callback, None)


def case(name: str, *setups: Callable[[contextlib.ExitStack], None], env: dict[str, str] | None = None) -> None:
    before = len(asked)

    def setup(stack: contextlib.ExitStack) -> None:
        for one in setups:
            one(stack)

    said = in_a_turn(lambda: host.ask_person(MESSAGE, DESCRIPTION), setup, env or {})
    answers[name] = [said, len(asked) - before]


def desktop(stack: contextlib.ExitStack) -> None:
    bind(stack, **DESKTOP)


def telegram(stack: contextlib.ExitStack) -> None:
    bind(stack, **TELEGRAM)


def client(choice: str | None) -> Callable[[contextlib.ExitStack], None]:
    return lambda stack: listen(stack, choice)


def person(choice: str | None, **more: Any) -> Callable[[contextlib.ExitStack], None]:
    return lambda stack: terminal(stack, choice, **more)


def failing_panel(command: str, description: str, **_: Any) -> str:
    raise ConnectionError


def editor(command: str, description: str, **_: Any) -> str:
    asked.append(command)
    return "session"


def subagent(stack: contextlib.ExitStack) -> None:
    panel(stack, delegate_tool._get_subagent_approval_callback())


def review(stack: contextlib.ExitStack) -> None:
    token = skill_provenance.set_current_write_origin("background_review")
    stack.callback(skill_provenance.reset_current_write_origin, token)


def session_yolo(stack: contextlib.ExitStack) -> None:
    approval.enable_session_yolo(KEY)
    stack.callback(approval.disable_session_yolo, KEY)


def process_yolo(stack: contextlib.ExitStack) -> None:
    stack.enter_context(mock.patch.object(approval, "_YOLO_MODE_FROZEN", True))


def mode_off(stack: contextlib.ExitStack) -> None:
    before = CONFIG.read_text("utf-8")
    stack.callback(CONFIG.write_text, before, "utf-8")
    CONFIG.write_text(json.dumps({"approvals": {"timeout": 1, "mode": "off"}}), "utf-8")


def delegated(stack: contextlib.ExitStack) -> None:
    from agent.delegation_context import delegated_child_context

    stack.enter_context(delegated_child_context("s_child"))


typed: dict[str, bool] = {}


def typing(name: str, *setups: Callable[[contextlib.ExitStack], None], env: dict[str, str] | None = None) -> None:
    def setup(stack: contextlib.ExitStack) -> None:
        for one in setups:
            one(stack)

    typed[name] = in_a_turn(host.surface_is_bound, setup, env or {})


def unbound(stack: contextlib.ExitStack) -> None:
    clear_session_vars(set_session_vars(**DESKTOP))


@contextlib.contextmanager
def at_a_terminal() -> Iterator[None]:
    import pty

    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "r", closefd=True) as stdin, mock.patch.object(sys, "stdin", stdin):
        yield
    os.close(ours)


def with_a_prompt(act: Callable[[], None]) -> None:
    """Run `act` in a thread beside an open prompt, as the command line runs its commands."""
    application, into, out = (import_module(f"prompt_toolkit.{name}") for name in ("application", "input", "output"))
    with into.create_pipe_input() as typing_in:
        app = application.Application(input=typing_in, output=out.DummyOutput())

        def beside() -> None:
            act()
            app.loop.call_soon_threadsafe(app.exit)

        app.run(pre_run=threading.Thread(target=beside).start, handle_sigint=False)


async def in_a_loop(name: str) -> None:
    typed[name] = host.surface_is_bound()


def main() -> None:
    # A person answers.
    for choice in ("once", "session", "always", "deny", None, "broken"):
        case(f"desktop {choice}", desktop, client(choice), env=TUI)
    case("chat once", telegram, client("once"))
    case("chat deny", telegram, client("deny"))
    for choice in ("once", "session", "always", "deny", None):
        case(f"terminal {choice}", person(choice), env={"HERMES_INTERACTIVE": "1"})
    case("editor", lambda stack: panel(stack, editor))

    # Nobody is there.
    case("bare")
    case("bare interactive", env={"HERMES_INTERACTIVE": "1"})
    case("one-shot", env={"HERMES_YOLO_MODE": "1", "HERMES_SINGLE_QUERY_SESSION": "1"})
    case("desktop without a client", desktop, env=TUI)
    case("chat without a client", telegram)
    case("a panel that fails", lambda stack: panel(stack, failing_panel))
    case("-q with the panel of 0.19", person("once", app=None), env={"HERMES_INTERACTIVE": "1"})
    case("-q", person("once"), env={"HERMES_INTERACTIVE": "1", "HERMES_SINGLE_QUERY_SESSION": "1"})

    # Somebody would say yes, but not as a person in this turn.
    case("cron", person("once"), env={"HERMES_CRON_SESSION": "1"})
    case("cron bare", env={"HERMES_CRON_SESSION": "1"})
    case("cron of a chat", telegram, client("once"), env={"HERMES_CRON_SESSION": "1"})
    case("board worker", person("once"), env={"HERMES_KANBAN_TASK": "t_1"})
    for platform in ("webhook", "msgraph_webhook", "api_server"):
        variables: dict[str, Any] = {**TELEGRAM, "platform": platform}
        case(platform, partial(bind, **variables), client("once"))
    case("subagent of a terminal", subagent, env={"HERMES_INTERACTIVE": "1"})
    case("subagent of a desktop", desktop, client("once"), subagent, env=TUI)
    case("review of a desktop", desktop, client("once"), review, env=TUI)
    case("session yolo", desktop, client("once"), session_yolo, env=TUI)
    case("process yolo", person("once"), process_yolo, env={"HERMES_INTERACTIVE": "1"})
    case("mode off, desktop", desktop, client("once"), mode_off, env=TUI)
    case("mode off, terminal", person("once"), mode_off, env={"HERMES_INTERACTIVE": "1"})
    case("mode off, bare", mode_off)
    if callable(host._probe("agent.delegation_context", "delegated_child_context")):
        case("delegated, desktop", desktop, client("once"), delegated, env=TUI)
        case("delegated, terminal", person("once"), delegated, env={"HERMES_INTERACTIVE": "1"})
        case(
            "cron of this turn alone",
            lambda stack: bind(stack, **DESKTOP, cron_session="1"), client("once"), env=TUI,
        )  # fmt: skip
    with mock.patch.object(approval, "is_approval_bypass_active", side_effect=RuntimeError):
        case("the host fails", desktop, client("once"), env=TUI)

    # Who typed a slash command.
    typing("a desktop", desktop, env=TUI)
    typing("a chat", telegram)
    typing("a pipe")
    typing("a pipe, interactive", env={"HERMES_INTERACTIVE": "1"})
    typing("a key in the environment", env={"HERMES_SESSION_KEY": KEY, **TUI})
    typing("a session that has ended", unbound, env=TUI)
    typing("a webhook", lambda stack: bind(stack, **{**TELEGRAM, "platform": "webhook"}))
    typing("cron", telegram, env={"HERMES_CRON_SESSION": "1"})
    typing("a subagent", desktop, subagent, env=TUI)
    typing("one-shot", desktop, env={"HERMES_SINGLE_QUERY_SESSION": "1"})

    with_a_prompt(lambda: typing("a pipe into the prompt", env={"HERMES_INTERACTIVE": "1"}))
    if os.name == "posix":
        with at_a_terminal():
            typing("a terminal without a prompt", env={"HERMES_INTERACTIVE": "1"})
            with_a_prompt(lambda: typing("a terminal", env={"HERMES_INTERACTIVE": "1"}))
            with_a_prompt(lambda: typing("a terminal, one-shot", env={"HERMES_SINGLE_QUERY_SESSION": "1"}))
            with_a_prompt(lambda: asyncio.run(in_a_loop("a gateway's loop in a terminal")))

    left = b"".join(iter(lambda: os.read(0, 4_096), b""))

    # What the `o` would have done without the wrapper: the proof that it could be read.
    _end, _start = os.pipe()
    os.write(_start, PIPED)
    os.close(_start)
    os.dup2(_end, 0)
    sys.stdin = os.fdopen(0, "r", closefd=False)
    bare = host._probe_either("request_elicitation_consent", "tools.approval", "tools.approval_prompt")
    with contextlib.redirect_stdout(sys.stderr):
        unwrapped = in_a_turn(lambda: bare(MESSAGE, DESCRIPTION, surface="probe"), lambda stack: None, {})
    probing.report(
        answers=answers, typed=typed, read=len(PIPED) - len(left), unwrapped=unwrapped,
        questions=sorted(set(asked)), machines=[host.machine_id(), host.machine_id()],
    )  # fmt: skip


if __name__ == "__main__":
    main()
