"""A client of a host's own gateway process, and a model that makes several calls in one turn."""

from __future__ import annotations

import json
import queue
import secrets
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo import hosts
from demo.model import MODEL, ScriptedModel, Turn

ASKED, REPLY = "Go on.", "That is done."
PATIENCE_S = 120

Answer = dict[str, Any]
Step = tuple[str, Mapping[str, Any]]


@dataclass(slots=True)
class Script(Turn):
    """One question: the calls the model makes one after the other, and what each came back with.

    `aside` are the calls it makes when the host has it review the conversation afterwards.
    """

    steps: Sequence[Step] = ()
    aside: Sequence[Step] = ()
    results: list[str] = field(default_factory=list)
    reviewed: queue.SimpleQueue[list[str]] = field(default_factory=queue.SimpleQueue)

    def message(self, request: Mapping[str, Any]) -> dict[str, Any]:
        offered = {tool["function"]["name"] for tool in request.get("tools") or []}
        if not offered:  # a side task of the host, such as naming the conversation
            return {"role": "assistant", "content": self.title}
        asked, results = latest(request["messages"])
        steps = self.steps if ASKED in asked else self.aside
        if len(results) < len(steps):
            return call(offered, *steps[len(results)])
        if ASKED in asked:
            self.results = results
        else:
            self.reviewed.put(results)
        return {"role": "assistant", "content": self.reply}


def call(offered: set[str], name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The message that calls a tool, through the host's `tool_call` where it is not offered itself."""
    if name not in offered:
        name, arguments = "tool_call", {"name": name, "arguments": dict(arguments)}
    function = {"name": name, "arguments": json.dumps(arguments)}
    # Hosts drop the result of an id that the conversation has seen before.
    numbered = {"index": 0, "id": f"call_{secrets.token_hex(4)}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [numbered]}


def latest(messages: Sequence[Mapping[str, Any]]) -> tuple[str, list[str]]:
    """What the user last said, and what the tools said since."""
    asked, said = "", list[str]()
    for message in messages:
        if message["role"] == "user":
            asked, said = str(message["content"]), []
        elif message["role"] == "tool":
            said.append(str(message["content"]))
    return asked, said


def script(*steps: Step, aside: Sequence[Step] = ()) -> Script:
    return Script("", {}, REPLY, "A title", steps=steps, aside=aside)


def settings(model: ScriptedModel) -> dict[str, Any]:
    """A config.yaml for a home whose agents talk to `model`."""
    return {
        "model": {
            "provider": "custom",
            "default": MODEL,
            "base_url": model.base_url,
            "api_key": "none",
            "context_length": 200_000,
        },
        "security": {"allow_lazy_installs": False, "tirith_enabled": False},
        "sessions": {"auto_prune": False},
    }


class Gateway:
    """One JSON object a line, both ways: requests and their answers, and events in between."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._frames: queue.SimpleQueue[Answer | None] = queue.SimpleQueue()
        self._sent = 0
        self.events: list[Answer] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith("{"):
                self._frames.put(json.loads(line))
        self._frames.put(None)

    def _until(self, wanted: Callable[[Answer], bool]) -> Answer:
        while True:
            frame = self._frames.get(timeout=PATIENCE_S)
            assert frame is not None, "the gateway ended"
            if frame.get("method") == "event":
                self.events.append(frame["params"])
            if wanted(frame):
                return frame

    def call(self, method: str, **params: Any) -> Answer:
        """The whole answer to a request: `result` or `error`."""
        self._sent += 1
        number = f"r{self._sent}"
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        assert self._process.stdin
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._until(lambda frame: frame.get("id") == number and "method" not in frame)

    def result(self, method: str, **params: Any) -> Any:
        answer = self.call(method, **params)
        assert "error" not in answer, answer
        return answer["result"]

    def wait_for(self, kind: str) -> Answer:
        """The next event of a kind."""
        frame = self._until(lambda f: f.get("method") == "event" and f["params"]["type"] == kind)
        event: Answer = frame["params"]
        return event

    def ask(self, session_id: str, text: str = ASKED) -> None:
        """Say something in a session and wait until its turn has ended."""
        self.result("prompt.submit", session_id=session_id, text=text)
        self.wait_for("message.complete")

    def informed(self, session_id: str) -> list[str]:
        """The folders that `session.info` events have told of a session."""
        told = [e["payload"] for e in self.events if e["type"] == "session.info" and e["session_id"] == session_id]
        return [info["cwd"] for info in told if "cwd" in info]


@contextmanager
def gateway(host: hosts.Host, home: Path, errors: Path, **extra: str) -> Iterator[Gateway]:
    """A running gateway of `host` over `home`; what it prints goes to the file `errors`."""
    with errors.open("w") as printed:
        process = subprocess.Popen(
            [str(hosts.environment(host)), "-P", "-m", "tui_gateway.entry"],
            env=hosts.child_env(host, home, **extra), cwd=home, text=True, encoding="utf-8",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=printed,
        )  # fmt: skip
        with process:
            try:
                running = Gateway(process)
                running.wait_for("gateway.ready")
                yield running
            finally:
                assert process.stdin
                process.stdin.close()
                process.wait(60)


def owner_in_sidebar(tree: Answer, session_id: str) -> str | None:
    """The id of the project under which `projects.tree` lists a conversation, None for nowhere."""
    for project in tree["projects"]:
        if session_id in [row["id"] for row in project.get("previewSessions", [])]:
            return str(project["id"])
    return None
