"""A model on loopback that asks for the tool it was told to, and keeps what came back.

It speaks just enough of the OpenAI chat API for the agent loop of Hermes: the model
list, and completions, whole or streamed. Everything else in the demo is real.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

MODEL = "scripted"


@dataclass(slots=True)
class Turn:
    """One question: the call to make, and what the agent loop handed back for it.

    `reply` ends the question, and `title` is for a host that asks its model for one.
    `offered` is how the loop showed the tool: "direct", "deferred" (behind the host's
    `tool_call`), or empty while no request carried it.
    """

    tool: str
    arguments: Mapping[str, Any]
    reply: str
    title: str = ""
    offered: str = ""
    result: str | None = None

    def message(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The assistant message that answers `request`."""
        offered = {tool["function"]["name"] for tool in request.get("tools") or []}
        if not offered:  # a side task of the host, such as naming the conversation
            return {"role": "assistant", "content": self.title}
        results = _results(request["messages"])
        if results:
            self.result = results[-1]
            return {"role": "assistant", "content": self.reply}
        if self.tool in offered:
            self.offered, name, arguments = "direct", self.tool, dict(self.arguments)
        elif "tool_call" in offered and self.tool in json.dumps(request["tools"]):
            self.offered, name = "deferred", "tool_call"
            arguments = {"name": self.tool, "arguments": dict(self.arguments)}
        else:
            return {"role": "assistant", "content": f"No tool named {self.tool} was offered."}
        call = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
        return {
            "role": "assistant",
            "content": None,
            # A new id each time: 0.20 drops the result of one that a resumed conversation has seen before.
            "tool_calls": [{"index": 0, "id": f"call_{secrets.token_hex(4)}", "type": "function", "function": call}],
        }


def _results(messages: list[dict[str, Any]]) -> list[str]:
    """The tool messages since the last thing the user said."""
    results: list[str] = []
    for message in messages:
        if message["role"] == "user":
            results.clear()
        elif message["role"] == "tool":
            results.append(str(message["content"]))
    return results


class ScriptedModel:
    """The server. `with ScriptedModel() as model:` then set `model.turn` before each question."""

    def __init__(self) -> None:
        self.turn = Turn("", {}, "")
        model = self

        class Handler(_Handler):
            def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
                return model.turn.message(request)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> ScriptedModel:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the demo prints what matters."""

    def do_GET(self) -> None:
        if self.path.rstrip("/").endswith("/models"):
            model = {"id": MODEL, "object": "model", "context_length": 200_000}
            self._send(200, "application/json", json.dumps({"object": "list", "data": [model]}))
        else:  # hosts probe for other kinds of server
            self._send(404, "application/json", "{}")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self.path.endswith("/chat/completions"):
            self._send(404, "application/json", "{}")
            return
        request = json.loads(body)
        message = self.answer(request)
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        base = {"id": "chatcmpl-demo", "created": 0, "model": MODEL}
        if not request.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": finish}
            whole = base | {"object": "chat.completion", "choices": [choice], "usage": usage}
            self._send(200, "application/json", json.dumps(whole))
            return
        chunks: list[dict[str, Any]] = [
            {"choices": [{"index": 0, "delta": message, "finish_reason": None}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
            {"choices": [], "usage": usage},
        ]
        lines = [json.dumps(base | {"object": "chat.completion.chunk"} | chunk) for chunk in chunks]
        self._send(200, "text/event-stream", "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]))

    def _send(self, status: int, kind: str, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
