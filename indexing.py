"""Keep the vectors of a project's messages up to date: a little inside a search, the rest in the background.

A conversation is planned again when its rows changed: its pieces are placed in
the store, which owes a vector for each content it does not have yet. Debts are
paid in batches under a budget, what the query is near to first, then the newest
conversations. Two processes on one home share the debts, never one twice; the
worker owns nothing but its claims.
"""

from __future__ import annotations

import atexit
import contextvars
import hashlib
import json
import logging
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterable, KeysView, Sequence
from dataclasses import dataclass
from pathlib import Path

from .embeddings import BatchRefused, Embedder, Piece, pieces
from .errors import RecallError
from .locks import ForkLock
from .scope import Everywhere
from .state import Connect, State
from .text import WITHHELD, said
from .vectors import Coverage, Owner, Place, Plan, Store

REFUSALS = 12  # batches in a row that an endpoint refused, after which it is the endpoint's fault
FIRST_BATCH = 16  # before anybody knows how long a text takes
BATCH_S = 0.6  # seconds a batch may take: the clock is asked between batches only
SWEEP_S = 600.0  # after which a sweep is made again though this process saw nothing go
NEAR = 3  # messages beside a keyword hit that are embedded with it
PLAN_GROUP = 25  # conversations planned in one transaction
WORKER_PAUSE_S = 0.02  # between the background worker's batches: the host comes first

logger = logging.getLogger(__name__)

Redact = Callable[[str], str]
Over = Callable[[], bool]  # whether the time is up, or somebody said stop

# What was there at this process's last sweep of a store, and when that was.
_swept: weakref.WeakKeyDictionary[Store, tuple[KeysView[str], float]] = weakref.WeakKeyDictionary()


def store_path(home: Path) -> Path:
    """Where the vectors of a home lie: a cache, left out of the host's backups."""
    return home / "plugin-data" / "project-history-recall" / ".cache" / "embeddings.db"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a scope is. `unplanned` counts conversations not looked at yet; `rate` pieces a second."""

    coverage: Coverage
    unplanned: int
    conversations: int
    rate: float

    @property
    def complete(self) -> bool:
        return not self.unplanned and not self.coverage.owed

    @property
    def share(self) -> float:
        """The part of the scope that can be found by meaning, 0 to 1; a guess while conversations are unplanned."""
        planned = self.conversations - self.unplanned
        if not planned:
            return 0.0
        owed = self.coverage.owed
        known = self.coverage.have + owed + self.coverage.abandoned
        return (self.coverage.have / known if known else 1.0) * planned / self.conversations


class Indexer:
    """The vectors of one home with one embedder. Each thread that works uses its own.

    `encoded` counts the texts this one embedded, `withheld` the messages its redactor failed on: they are
    not embedded. Raises `EmbedderUnavailable` when only the embedder can say how wide its vectors are and does not.
    """

    def __init__(self, store: Store, embedder: Embedder, redact: Redact | None = None) -> None:
        self._store = store
        self._embedder = embedder
        self._redact = redact
        self._me = Owner.current()
        self.fp = model_of(store, embedder)
        self.encoded = 0
        self.withheld = 0
        self._refused = 0
        self._timed = 0
        self._spent = 0.0

    @property
    def rate(self) -> float:
        """Pieces a second so far in this indexer, 0 before the second batch: the first loads the model."""
        return self._timed / self._spent if self._spent else 0.0

    def stale(self, state: State, everywhere: Everywhere, roots: Sequence[str]) -> dict[str, str]:
        """The stamps of those of these conversations whose rows changed since they were planned."""
        known = self._store.stamps(self.fp, roots)
        now = self._stamps(state, everywhere, roots)
        return {root: stamp for root, stamp in now.items() if known.get(root) != stamp}

    def _stamps(self, state: State, everywhere: Everywhere, roots: Sequence[str]) -> dict[str, str]:
        # Who has no redactor plans other contents, which who has one cannot pay.
        kind = "redacted:" if self._redact else ""
        return {root: kind + stamp for root, stamp in stamps(state, everywhere, roots).items()}

    def plan(
        self, state: State, everywhere: Everywhere, stale: dict[str, str], over: Over
    ) -> dict[str, list[Piece]]:
        """Plan changed conversations in this order until the time is up; returns their pieces."""
        planned: dict[str, list[Piece]] = {}
        group: list[Plan] = []
        for root, stamp in stale.items():
            if (planned or group) and over():
                break
            planned[root] = self.read(state, everywhere, root)
            places = [Place(p.message_id, p.offset, p.length, p.key) for p in planned[root]]
            group.append(Plan(root, stamp, places, relatives(everywhere, root)))
            if len(group) >= PLAN_GROUP:
                self._store.plan_all(self.fp, group)
                group = []
        if group:
            self._store.plan_all(self.fp, group)
        return planned

    def read(self, state: State, everywhere: Everywhere, root: str) -> list[Piece]:
        """The pieces of a conversation as its rows are now, copies left out."""
        seen: set[str] = set()
        talk: list[tuple[int, str]] = []
        for message in state.conversation(everywhere.lineages.members(root)):
            text = said(message.role, message.content)
            if text and self._redact:
                text = self._redact(text)
                if text == WITHHELD:
                    self.withheld += 1
                    continue
            if text and text not in seen:
                seen.add(text)
                talk.append((message.id, text))
        return pieces(talk, self._embedder.chunking)

    def _known(
        self, state: State, everywhere: Everywhere, root: str, planned: dict[str, list[Piece]]
    ) -> list[Piece]:
        """The pieces of a conversation that is about to be paid."""
        if relatives(everywhere, root):  # they may have vectors by now, which planning again copies
            planned.update(self.plan(state, everywhere, self._stamps(state, everywhere, [root]), lambda: False))
        return planned.get(root) or self.read(state, everywhere, root)

    def pay(self, root: str, known: Sequence[Piece], keys: Iterable[bytes], over: Over, pause: float = 0.0) -> bool:
        """Embed these contents of a conversation until the time is up; False then."""
        texts = {piece.key: piece.text for piece in known}
        todo = list(dict.fromkeys(key for key in keys if key in texts))
        while todo:
            if over():
                return False
            size = self._batch()
            mine = self._store.claim(self.fp, self._me, root, todo[:size])
            if not mine:
                todo = todo[size:]
                continue
            self._embed(root, mine, texts)
            taken = set(mine)
            todo = [key for key in todo if key not in taken]
            if pause:
                time.sleep(pause)
        return True

    def _batch(self) -> int:
        most = self._embedder.batch
        return max(1, min(most, int(self.rate * BATCH_S))) if self.rate else min(most, FIRST_BATCH)

    def _embed(self, root: str, keys: Sequence[bytes], texts: dict[bytes, str]) -> None:
        began = time.monotonic()
        try:
            vectors = self._embedder.encode([texts[key] for key in keys])
            self._store.done(self.fp, self._me, root, list(zip(keys, vectors, strict=True)))
        except BatchRefused as error:
            self._refused += 1
            if self._refused > REFUSALS:
                self._store.release(self.fp, self._me)
                raise
            self._failed(root, keys, error)
            return
        except RecallError:  # nobody's fault but the embedder's or the store's: no attempt is counted
            self._store.release(self.fp, self._me)
            raise
        except Exception as error:
            self._failed(root, keys, error)
            return
        self._refused = 0
        if self.encoded:
            self._timed += len(keys)
            self._spent += time.monotonic() - began
        self.encoded += len(keys)

    def _failed(self, root: str, keys: Sequence[bytes], error: Exception) -> None:
        logger.warning("%d pieces could not be embedded: %s", len(keys), type(error).__name__)
        self._store.fail(self.fp, self._me, root, keys, type(error).__name__)

    def catch_up(
        self,
        state: State,
        everywhere: Everywhere,
        roots: Sequence[str],
        hits: dict[str, list[int]],
        over: Over,
    ) -> Progress:
        """Bring a scope forward until the time is up: `hits` (conversation to message ids) and what lies
        beside them first, then the newest conversations. Returns how far it is."""
        stale = self.stale(state, everywhere, roots)
        order = [*(r for r in hits if r in stale), *(r for r in roots if r in stale and r not in hits)]
        first = {r: stale[r] for r in order if r in hits}
        planned = self.plan(state, everywhere, first, over) if first else {}
        owed = self._store.owed(self.fp, list(hits)) if hits else {}
        in_time = True
        for root, ids in hits.items():
            if not in_time or not owed.get(root):
                continue
            known = planned[root] = self._known(state, everywhere, root, planned)
            waiting = set(owed[root])
            in_time = self.pay(root, known, [k for k in beside(known, ids) if k in waiting], over)
        rest = [r for r in order if r not in planned]
        for start in range(0, len(rest), PLAN_GROUP):
            if over():
                break
            some = rest[start : start + PLAN_GROUP]
            planned.update(self.plan(state, everywhere, {r: stale[r] for r in some}, over))
            for root in some:
                if root not in planned:
                    continue
                known = self._known(state, everywhere, root, planned)
                if not self.pay(root, known, [p.key for p in known], over):
                    break
        if not over():
            for root, keys in self._store.owed(self.fp, roots).items():
                known = self._known(state, everywhere, root, planned)
                if not self.pay(root, known, keys, over):
                    break
        if not over():
            self.sweep(everywhere)
        unplanned = sum(1 for r in stale if r not in planned)
        return Progress(self._store.coverage(self.fp, roots), unplanned, len(roots), self.rate)

    def sweep(self, everywhere: Everywhere) -> None:
        """Drop what was embedded of conversations that were deleted or hidden, as soon as one is seen to be gone."""
        kept = everywhere.kept()
        last = _swept.get(self._store)
        if last and (last[0] is kept or last[0] <= kept) and time.monotonic() - last[1] < SWEEP_S:
            return
        if self._store.keep(kept):
            self._store.tidy()
        _swept[self._store] = (kept, time.monotonic())

    def work(
        self,
        state: State,
        everywhere: Everywhere,
        roots: Sequence[str],
        stop: threading.Event,
        pause: float = WORKER_PAUSE_S,
    ) -> None:
        """Pay everything that is owed in a scope, with a pause between batches. The background's whole life."""
        try:
            stale = self.stale(state, everywhere, roots)
            for root in roots:
                if stop.is_set():
                    return
                planned = self.plan(state, everywhere, {root: stale[root]}, stop.is_set) if root in stale else {}
                owed = self._store.owed(self.fp, [root]).get(root)
                if not owed:
                    continue
                known = self._known(state, everywhere, root, planned)
                self.pay(root, known, owed, stop.is_set, pause)
            self._store.tidy()  # the next search sweeps: it knows which conversations there are by then
        finally:
            self._store.release(self.fp, self._me)


def model_of(store: Store, embedder: Embedder) -> int:
    """The number of a model in the store. An endpoint's width is what it was, or what a first word shows it to be."""
    dim = embedder.dim or store.width(embedder.fingerprint)
    return store.model(embedder.fingerprint, dim or len(embedder.encode(["ready"])[0]))


def beside(known: Sequence[Piece], ids: Sequence[int]) -> list[bytes]:
    """The keys of these messages, best first, and of those within `NEAR` of them."""
    order = list(dict.fromkeys(piece.message_id for piece in known))
    at = {message_id: i for i, message_id in enumerate(order)}
    keys: dict[int, list[bytes]] = {}
    for piece in known:
        keys.setdefault(piece.message_id, []).append(piece.key)
    wanted: dict[bytes, None] = {}
    for message_id in ids:
        here = at.get(message_id)
        if here is None:
            continue
        for step in sorted(range(-NEAR, NEAR + 1), key=abs):
            if 0 <= here + step < len(order):
                wanted.update(dict.fromkeys(keys[order[here + step]]))
    return list(wanted)


def relatives(everywhere: Everywhere, root: str) -> list[str]:
    """The conversation a branch was taken from, and the branches taken: they hold the same contents."""
    lineages = everywhere.lineages
    kin = [everywhere.by_id[root].branched_from]
    kin += [branch for member in lineages.members(root) for branch in lineages.branches.get(member, ())]
    return list(dict.fromkeys(lineages.root(i) for i in kin if i in everywhere.by_id))


def stamps(state: State, everywhere: Everywhere, roots: Sequence[str]) -> dict[str, str]:
    """For each conversation what changes when its rows do: how many, which, and which of them live."""
    members = {root: everywhere.lineages.members(root) for root in roots}
    counts = state.counts([m for ms in members.values() for m in ms])
    found = {}
    for root, rows in members.items():
        told = [(m, counts[m]) for m in rows if m in counts]
        found[root] = hashlib.blake2b(json.dumps(told).encode(), digest_size=12).hexdigest()
    return found


# -- the background worker --------------------------------------------------


_workers: dict[Path, tuple[threading.Thread, threading.Event]] = {}
_lock = ForkLock()


def start_worker(
    home: Path,
    store: Store,
    embedder: Embedder,
    redact: Redact | None,
    connect: Connect,
    everywhere: Everywhere,
    roots: Sequence[str],
) -> bool:
    """Go on in the background, at most one worker a home; whether one is at work now."""

    def work() -> None:
        try:
            with State(home, connect=connect) as state:
                Indexer(store, embedder, redact).work(state, everywhere, roots, stop)
        except (RecallError, sqlite3.Error) as error:
            logger.info("background indexing ended: %s", error)
        except Exception:
            logger.exception("background indexing failed")

    with _lock:
        at_work = _workers.get(home)
        if at_work and at_work[0].is_alive():
            return True
        if not _workers:
            atexit.register(stop_workers, 2.0)
        stop = threading.Event()
        # The profile of this call is in its context variables; a bare thread would lose it.
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(work,), name="project-history-recall", daemon=True)
        _workers[home] = (thread, stop)
        thread.start()
    return True


def stop_workers(timeout: float = 5.0) -> None:
    """Ask every worker to end and wait: an orderly exit gives its claims back."""
    with _lock:
        running = list(_workers.values())
    for _, stop in running:
        stop.set()
    for thread, _ in running:
        thread.join(timeout)
