"""Mnemosyne, the memory most often named beside Hermes: `pip install mnemosyne-hermes` in an environment of its own.

    python ask_mnemosyne.py JOB OUT PYTHON

Its Hermes plugin stores every turn by `BeamMemory.remember` and answers `mnemosyne_recall` by `BeamMemory.recall`;
here the same two calls are made. Kinder than the plugin's defaults: whole messages instead of their first 500
characters, one importance for both roles, and every conversation may be recalled from every other.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

DEPTH = 200


def main() -> None:
    """Serve the encoder, and run `inside()` in Mnemosyne's own Python against it."""
    sys.path.append(str(Path(__file__).resolve().parent.parent.parent))
    from bench.peers.encoder import DIMENSION, NAME, serving

    job, out, python = sys.argv[1:4]
    with tempfile.TemporaryDirectory() as folder, serving() as url:
        env = {
            "PATH": os.environ["PATH"],
            "HOME": folder,
            "HERMES_HOME": f"{folder}/hermes",
            "MNEMOSYNE_DATA_DIR": f"{folder}/data",
            "MNEMOSYNE_EMBEDDING_API_URL": url,
            "MNEMOSYNE_EMBEDDING_MODEL": NAME,
            "MNEMOSYNE_EMBEDDING_DIM": str(DIMENSION),
            "TMPDIR": folder,
        }
        subprocess.run([python, __file__, job, out, "--inside"], env=env, check=True)


def inside() -> None:
    beam = importlib.import_module("mnemosyne.core.beam")
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    memory = beam.BeamMemory(session_id="bench", db_path=Path(os.environ["MNEMOSYNE_DATA_DIR"]) / "mnemosyne.db")
    messages: dict[str, tuple[str, str]] = {}
    for session in job["sessions"]:
        for message in session["messages"]:
            if not message["content"].strip():
                continue
            stored = memory.remember(message["content"], scope="global", dedupe=False)
            messages[stored] = (session["id"], message["id"])
    answers: dict[str, Any] = {}
    for ask in job["asks"]:
        # Left to itself it keeps conversations out of its search by meaning, and throws away what only that has found:
        # the filter and the setting, read at every call, let both in.
        if ask["meaning"]:
            os.environ["MNEMOSYNE_LEXICAL_GATE_MIN"] = "0"
        else:
            os.environ.pop("MNEMOSYNE_LEXICAL_GATE_MIN", None)
        source = "conversation" if ask["meaning"] else None
        began = time.perf_counter()
        found = memory.recall(ask["text"], top_k=DEPTH, source=source)
        cost = 1000 * (time.perf_counter() - began)
        hits = [messages[row["id"]] for row in found if row["id"] in messages]
        answers[ask["id"]] = {"ms": cost, "hits": [{"session": s, "message": m, "shown": [m]} for s, m in hits]}
    Path(sys.argv[2]).write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    inside() if sys.argv[-1] == "--inside" else main()
