"""Search a home when a line comes in, with a made-up embedder, and print the answer. Argument: HOME.

A line of `HOME/embedded` for each text that was embedded, in whatever process.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent.parent))

from demo import hosts

plugin = hosts.load_package()

from project_history_recall import indexing, semantic  # noqa: E402

from tests.probes.index_worker import MadeUp  # noqa: E402

log = os.open(Path(sys.argv[1]) / "embedded", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
setattr(semantic, "LocalEmbedder", lambda: MadeUp(log))  # noqa: B010
print("ready", flush=True)
sys.stdin.readline()
print(plugin.handle_search({"query": "heron", "limit": 20}, session_id="caller"))
indexing.stop_workers()
