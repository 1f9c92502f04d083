"""Real HTTP servers on this machine: they write down what they are asked and answer as a test says."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True)
class Asked:
    """A request as it came over the wire."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Call(BaseHTTPRequestHandler):
    """One request being answered. `over` is set when the server ends: what drips until then ends too."""

    protocol_version = "HTTP/1.1"
    over: threading.Event
    asked: Asked

    def answer(self, status: int, body: bytes | str, **headers: str) -> None:
        """A whole response; `Retry_After="1"` is a header."""
        content = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in {"Content_Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    def begin(self, status: int = 200, **headers: str) -> None:
        """The head of a response whose end is the end of the connection."""
        self.send_response(status)
        for name, value in {"Connection": "close", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def hang_up(self) -> None:
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing on stderr."""


class Server:
    """`with Server(reply) as server:`; `server.asked` holds the requests that came, `server.lines` the connections."""

    def __init__(self, reply: Callable[[Call], None], *, tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[Asked] = []
        self.lines = 0
        self.over = threading.Event()
        self._open: set[socket.socket] = set()
        outer, self.reply = self, reply

        class Handler(Call):
            over = outer.over

            def setup(self) -> None:
                outer.lines += 1
                outer._open.add(self.request)
                super().setup()

            def handle(self) -> None:
                try:
                    super().handle()
                except OSError:  # the client has gone, or never trusted us
                    self.close_connection = True

            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline(65_537)
                if not self.raw_requestline or not self.parse_request():
                    self.close_connection = True
                    return
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.asked = Asked(self.command, self.path, dict(self.headers.items()), body)
                outer.asked.append(self.asked)
                outer.reply(self)

            def finish(self) -> None:
                try:
                    super().finish()
                except OSError:
                    self.close_connection = True
                outer._open.discard(self.request)

        class Quiet(ThreadingHTTPServer):
            daemon_threads = False
            block_on_close = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A connection that failed is the client's affair."""

        self._server = Quiet(("127.0.0.1", 0), Handler)
        self._tls = tls is not None
        if tls is not None:
            # The handshake is the handler thread's, or one client that stalls would stop them all.
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.over.set()
        self._server.shutdown()
        self._thread.join()
        for line in list(self._open):  # a client may keep an idle one for as long as it likes
            with contextlib.suppress(OSError):
                socket.socket.shutdown(line, socket.SHUT_RDWR)
        self._server.server_close()
