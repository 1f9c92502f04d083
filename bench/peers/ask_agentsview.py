"""agentsview, a browser of agents' sessions that reads Hermes' state.db itself: `pip install agentsview`.

    python ask_agentsview.py JOB OUT PROGRAM STATE_DB

A copy of the home's state.db is synced into a fresh archive, embedded by the encoder of `encoder.py`, and asked over
its HTTP API; `mode` of an ask is agentsview's own: `fts`, `terms` or `hybrid`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

sys.path.append(str(Path(__file__).resolve().parent.parent.parent))

from bench.peers.encoder import DIMENSION, NAME, serving

DEPTH = 200
CONFIG = """
[vector]
enabled = true

[vector.embeddings]
model = "{model}"
dimension = {dimension}

[vector.embeddings.servers.local]
endpoint = "{url}"
"""


def main() -> None:
    job_file, out, program, state_db = sys.argv[1:5]
    job = json.loads(Path(job_file).read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder, serving() as url:
        home = Path(folder)
        (home / ".hermes").mkdir()
        (home / "data").mkdir()
        shutil.copyfile(state_db, home / ".hermes" / "state.db")
        (home / "data" / "config.toml").write_text(CONFIG.format(model=NAME, dimension=DIMENSION, url=url), "utf-8")
        env = {
            "PATH": os.environ["PATH"],
            "HOME": folder,
            "TMPDIR": folder,
            "AGENTSVIEW_DATA_DIR": f"{folder}/data",
            "AGENTSVIEW_TELEMETRY_ENABLED": "0",
            "DO_NOT_TRACK": "1",
        }
        with closing(socket.socket()) as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        served = [program, "serve", "--no-browser", "--no-update-check", "--port", str(port)]
        with subprocess.Popen(served, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
            try:
                base = f"http://127.0.0.1:{port}/api/v1/search/content"
                call = until_it_answers(base, home / "data" / "config.toml")
                subprocess.run([program, "embeddings", "build"], env=env, check=True, stdout=subprocess.DEVNULL)
                answers = ask_all(call, job)
            finally:
                server.terminate()
    Path(out).write_text(json.dumps(answers), encoding="utf-8")


def until_it_answers(base: str, config: Path) -> Any:
    """The call that searches, once the server has synced and answers it."""

    def call(**query: Any) -> dict[str, Any]:
        token = re.search(r'auth_token = "([^"]+)"', config.read_text("utf-8"))
        request = urllib.request.Request(f"{base}?{urlencode(query)}")
        request.add_header("Authorization", f"Bearer {token[1] if token else ''}")
        request.add_header("X-AgentsView-Search-Intent", "semantic")  # semantic and hybrid are refused without
        with urllib.request.urlopen(request, timeout=60) as response:
            answer: dict[str, Any] = json.load(response)
            return answer

    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with suppress(urllib.error.URLError, OSError):
            call(pattern="ready", mode="fts", limit=1)
            return call
        time.sleep(0.2)
    raise SystemExit("agentsview did not come up")


def ask_all(call: Any, job: dict[str, Any]) -> dict[str, Any]:
    messages = {s["id"]: [m["id"] for m in s["messages"]] for s in job["sessions"]}
    answers: dict[str, Any] = {}
    for ask in job["asks"]:
        began = time.perf_counter()
        try:
            found = searched(call, ask["text"], ask["mode"])
        except urllib.error.HTTPError:  # a lone quote is a syntax error there; a person would write it again
            found = searched(call, ask["text"].replace('"', " "), ask["mode"])
        cost = 1000 * (time.perf_counter() - began)
        answers[ask["id"]] = {"ms": cost, "hits": [hit(match, messages) for match in found["matches"]]}
    return answers


def searched(call: Any, text: str, mode: str) -> dict[str, Any]:
    # Left to itself it passes over conversations of one message and those it takes for automatic.
    kinds = dict.fromkeys(("include_one_shot", "include_automated", "include_children"), "true")
    found: dict[str, Any] = call(pattern=text, mode=mode, limit=DEPTH, **kinds)
    return found


def hit(match: dict[str, Any], messages: dict[str, list[str]]) -> dict[str, Any]:
    session = match["session_id"].removeprefix("hermes:")
    ids = messages[session]
    first, last = match.get("ordinal_range") or [match["ordinal"]] * 2
    return {"session": session, "message": ids[match["ordinal"]], "shown": ids[first : last + 1]}


if __name__ == "__main__":
    main()
