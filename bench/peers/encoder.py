"""The embedded encoder behind an OpenAI-compatible `/v1/embeddings` on the loopback, for peers that want a model.

So a peer's search by meaning is measured with the very vectors the plugin has, and nothing is downloaded.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent.parent))

from bench.common import load

DIMENSION = 512
NAME = "universal-sentence-encoder-multilingual"


class Embeddings(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    embedder: Any
    lock = threading.Lock()

    def do_POST(self) -> None:
        wanted = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        texts = [wanted] if isinstance(wanted, str) else wanted
        with self.lock:
            vectors = self.embedder.encode(texts)
        data = [{"object": "embedding", "index": i, "embedding": v.tolist()} for i, v in enumerate(vectors)]
        body = json.dumps({"object": "list", "model": NAME, "data": data, "usage": {"total_tokens": 0}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving() -> Iterator[str]:
    """The base URL of a running encoder."""
    Embeddings.embedder = load().embeddings.LocalEmbedder()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Embeddings)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
