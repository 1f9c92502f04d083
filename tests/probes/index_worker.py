"""Index a home with a made-up embedder: alone, several processes at once, or processes that are killed.

    index_worker.py HOME SETTINGS     prints how it came out, as JSON

A line of `HOME/embedded` for each text that was embedded, in whatever process.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import time
import types
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = "project_history_recall"
if PACKAGE not in sys.modules:  # run as a script: what indexing needs, nothing of a host
    package = sys.modules[PACKAGE] = types.ModuleType(PACKAGE)
    package.__path__ = [str(ROOT)]

import numpy as np  # noqa: E402
from project_history_recall import vectors  # noqa: E402
from project_history_recall.attribution import Attribution  # noqa: E402
from project_history_recall.embeddings import LOCAL  # noqa: E402
from project_history_recall.indexing import Indexer, store_path  # noqa: E402
from project_history_recall.scope import Conversations, Everywhere  # noqa: E402
from project_history_recall.state import State, read_projects  # noqa: E402
from project_history_recall.vectors import Store  # noqa: E402


@dataclass(frozen=True)
class Settings:
    workers: int = 1
    kills: int = 0
    pause: float = 0.0  # seconds a batch takes at most, besides the work
    seed: int = 0

    def argument(self) -> str:
        return json.dumps(asdict(self))


class MadeUp:
    """A vector for each text, the same in every process, that means nothing. `log` gets a line a text."""

    fingerprint, dim, batch, chunking = "made-up", 16, 64, LOCAL

    def __init__(self, log: int = -1, pause: float = 0.0, seed: int = 0) -> None:
        self.texts: list[str] = []
        self._log, self._pause, self._dice = log, pause, random.Random(seed)

    def encode(self, texts: Sequence[str]) -> Any:
        self.texts += texts
        if self._log >= 0:
            os.write(
                self._log, b"".join(hashlib.sha256(t.encode()).hexdigest().encode() + b"\n" for t in texts)
            )
        time.sleep(self._pause * self._dice.random())
        rows = [hashlib.shake_256(text.encode()).digest(self.dim) for text in texts]
        values = (
            np.array([np.frombuffer(row, np.int8) for row in rows], np.float32).reshape(-1, self.dim) + 0.5
        )
        return values / np.linalg.norm(values, axis=1, keepdims=True)


def everywhere(state: State) -> Everywhere:
    """All conversations, attributed by their folders alone."""
    projects = read_projects(state.home)
    return Everywhere(Conversations(state.sessions()), Attribution(projects, lambda _: None), projects)


def work(home: Path, settings: Settings, seed: int) -> None:
    """Index until nothing is left."""
    log = os.open(home / "embedded", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    indexer = Indexer(Store(store_path(home)), MadeUp(log, settings.pause, seed))
    with State(home) as state:
        all_ = everywhere(state)
        while not indexer.catch_up(state, all_, all_.roots, {}, lambda: False).complete:
            time.sleep(0.005)  # the rest is in others' hands


def run(home: Path, settings: Settings) -> dict[str, int]:
    """Keep so many workers at work until nothing is left to do; kill some at random moments."""
    # On a slow machine one text may be in hand at three of the kills; none of them is its fault.
    vectors.MAX_TRIES = 1 + settings.kills
    dice = random.Random(settings.seed)
    alive: list[int] = []
    deaths = 0

    def start() -> None:
        seed = dice.getrandbits(32)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                work(home, settings, seed)
                code = 0
            finally:
                os._exit(code)
        alive.append(child)

    def reap(child: int) -> None:
        nonlocal deaths
        alive.remove(child)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code not in (0, -signal.SIGKILL):
            raise SystemExit(f"a worker ended with {code}")
        deaths += code != 0

    for _ in range(settings.workers):
        start()
    for _ in range(settings.kills):
        time.sleep(dice.uniform(0.002, 0.1))
        victim = dice.choice(alive)
        os.kill(victim, signal.SIGKILL)
        reap(victim)
        start()
    while alive:
        reap(alive[0])
    return {"deaths": deaths}


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]), Settings(**json.loads(sys.argv[2])))))
