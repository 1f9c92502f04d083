"""Processes that work on one store, and are killed.

    ledger_worker.py DB first N        open the file when a line comes in; say what came of it
    ledger_worker.py DB run SETTINGS   fork workers that embed all texts of `Settings`, killing some

The texts, and the vectors that stand for embedding them, follow from their numbers alone.
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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = "project_history_recall"
if PACKAGE not in sys.modules:  # run as a script: the store and what it imports, nothing else
    package = sys.modules[PACKAGE] = types.ModuleType(PACKAGE)
    package.__path__ = [str(ROOT)]

import numpy as np  # noqa: E402
from project_history_recall import vectors  # noqa: E402
from project_history_recall.vectors import Owner, Place, Plan, Store  # noqa: E402

DIM, BATCH = 32, 8


@dataclass(frozen=True)
class Settings:
    conversations: int = 6
    texts: int = 60  # of each conversation
    workers: int = 2
    kills: int = 0
    pause: float = 0.0  # seconds a batch takes at most, besides the work
    bad: list[int] = field(default_factory=list)  # texts of every conversation that raise
    deadly: list[int] = field(default_factory=list)  # texts that take their process with them
    seed: int = 0

    def roots(self) -> list[str]:
        return [f"c{n}" for n in range(self.conversations)]

    def keys(self, root: str) -> dict[bytes, int]:
        return {key(root, n): n for n in range(self.texts)}

    def argument(self) -> str:
        return json.dumps(asdict(self))


def key(root: str, n: int) -> bytes:
    return hashlib.blake2b(f"{root} {n}".encode(), digest_size=16).digest()


def embed(k: bytes) -> Any:
    """(DIM,) float32 of whole numbers up to 127, the same in every process."""
    values = np.frombuffer(hashlib.shake_256(k).digest(DIM), np.int8).astype(np.float32)
    values[0] = 127
    return np.maximum(values, -127)


def plan(store: Store, settings: Settings) -> int:
    fp = store.model("test", DIM)
    store.plan_all(
        fp,
        [
            Plan(root, "1", [Place(n, 0, 1, k) for k, n in settings.keys(root).items()])
            for root in settings.roots()
        ],
    )
    return fp


def work(store: Store, fp: int, settings: Settings, log: int, seed: int) -> None:
    """Embed what is owed until nothing is. A line in `log` for each text that was worked on."""
    dice, me = random.Random(seed), Owner.current()
    numbers = {root: settings.keys(root) for root in settings.roots()}
    while store.coverage(fp, settings.roots()).owed:
        owed = store.owed(fp, settings.roots())
        if not owed:
            time.sleep(0.005)  # all in others' hands
            continue
        root = dice.choice(sorted(owed))
        mine = store.claim(fp, me, root, owed[root][:BATCH])
        try:
            for k in mine:
                if numbers[root][k] in settings.bad:
                    raise ValueError("refused")
                if numbers[root][k] in settings.deadly:
                    os.kill(os.getpid(), signal.SIGKILL)
            os.write(log, b"".join(b"%s %d\n" % (root.encode(), numbers[root][k]) for k in mine))
            time.sleep(settings.pause * dice.random())
            store.done(fp, me, root, [(k, embed(k)) for k in mine])
        except ValueError as error:
            store.fail(fp, me, root, mine, str(error))
    store.release(fp, me)


def run(path: Path, settings: Settings) -> None:
    """Keep so many workers at work until nothing is left to do; kill some at random moments."""
    if not settings.bad and not settings.deadly:
        # On a slow machine one text may be in hand at three of the kills; none of them is its fault.
        vectors.MAX_TRIES = 1 + settings.kills
    dice = random.Random(settings.seed)
    store = Store(path)
    fp = plan(store, settings)
    log = os.open(path.with_suffix(".log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    alive: list[int] = []
    deaths = 0

    def start() -> None:
        seed = dice.getrandbits(32)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                work(store, fp, settings, log, seed)
                code = 0
            finally:
                os._exit(code)
        alive.append(child)

    def reap(child: int) -> bool:
        """Whether it ended because nothing was left to do."""
        nonlocal deaths
        alive.remove(child)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code not in (0, -signal.SIGKILL):
            raise SystemExit(f"a worker ended with {code}")
        deaths += code != 0
        return code == 0

    for _ in range(settings.workers):
        start()
    for _ in range(settings.kills):
        time.sleep(dice.uniform(0.005, 0.06))
        victim = dice.choice(alive)
        os.kill(victim, signal.SIGKILL)
        reap(victim)
        start()
    while alive:
        if not reap(alive[0]):
            start()
    covered = store.coverage(fp, settings.roots())
    store.close()
    print(json.dumps({"deaths": deaths, **covered._asdict()}))


def first(path: Path, number: str) -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    store = Store(path)
    fp = store.model("test", DIM)
    store.plan(fp, f"c{number}", "1", [Place(1, 0, 1, key("c", int(number)))])
    print(repr(store.detail), store.coverage(fp, [f"c{number}"]).owed)
    store.close()


if __name__ == "__main__":
    if sys.argv[2] == "first":
        first(Path(sys.argv[1]), sys.argv[3])
    else:
        run(Path(sys.argv[1]), Settings(**json.loads(sys.argv[3])))
