"""What people do to the vectors by hand: bring all of them up to date, or drop them.

An endpoint gets what its grants admit and nothing else, as in a search; who asks
for an index is not asked for a consent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from . import agreement
from .attribution import ProjectRef
from .config_schema import Settings
from .consent import ConsentRequired, permit
from .embeddings import Embedder, EmbedderUnavailable, LocalEmbedder
from .endpoint import EndpointEmbedder, model_name
from .errors import RecallError
from .indexing import Indexer, store_path
from .scope import Disk, Everywhere, reading
from .search import Surroundings
from .semantic import open_store
from .state import State
from .vectors import Coverage, Store

LOOK_S = 0.25  # between two looks at how far it is
READING_S = 20.0


class Disabled(RecallError):
    code = "disabled"


@dataclass(frozen=True, slots=True)
class Job:
    """An embedder and the conversations it is to embed, newest first."""

    embedder: Embedder
    roots: Sequence[str]


@dataclass(frozen=True, slots=True)
class Done:
    """How far an indexing is: conversations planned and in all, their pieces, texts embedded just now.

    `waiting` are the names of projects that nobody agreed to send, `held` counts conversations of the others
    that were moved in since.
    """

    planned: int
    conversations: int
    coverage: Coverage
    new: int
    waiting: Sequence[str] = ()
    held: int = 0
    stopped: bool = False


def model_of(settings: Settings) -> str:
    """How the fingerprint of the embedder begins that the settings name; "" for none."""
    if settings.embedding_provider == "local":
        return LocalEmbedder.fingerprint
    return model_name(settings.endpoint) if settings.endpoint else ""


def owned(everywhere: Everywhere, key: str | None) -> list[str]:
    """Conversations of one project, or of every one (None), newest first. Home has none that are searched."""
    roots = [
        root
        for root in everywhere.kept()
        if everywhere.ref(root).kind != "home" and key in (None, everywhere.ref(root).key)
    ]
    return sorted(roots, key=lambda root: -everywhere.by_id[everywhere.lineages.members(root)[-1]].started_at)


@dataclass(slots=True)
class Work:
    """What there is to do in a home, and what of it waits for a person."""

    jobs: list[Job] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    held: int = 0


def planned(surroundings: Surroundings, everywhere: Everywhere, key: str | None) -> Work:
    """The work of one project or of all (None). Raises `EmbedderUnavailable` when nothing can be sent at all."""
    roots = owned(everywhere, key)
    settings = surroundings.settings
    if settings.embedding_provider == "local":
        return Work([Job(LocalEmbedder(), roots)])
    if settings.endpoint is None:
        raise EmbedderUnavailable(" ".join(settings.problems) or "No endpoint is set.")
    if settings.endpoint.needs_grant and surroundings.redact is None:
        raise EmbedderUnavailable("Without Hermes nothing can be redacted, and nothing is sent anywhere.")
    projects: dict[str, tuple[ProjectRef, list[str]]] = {}
    for root in roots:
        ref = everywhere.ref(root)
        projects.setdefault(ref.key, (ref, []))[1].append(root)
    work = Work()
    for ref, theirs in projects.values():
        try:
            keys = [agreement.key_of(settings.endpoint, ref, everywhere)]
            allowed = permit(settings.endpoint, keys, agreement.grants_of(surroundings))
        except ConsentRequired:
            work.waiting.append(ref.name)
            continue
        sent = [r for r in theirs if allowed.admits(ref.key, r, everywhere.by_id[r].started_at)]
        work.held += len(theirs) - len(sent)
        embedder = EndpointEmbedder(
            endpoint=settings.endpoint,
            permit=allowed,
            api_key=surroundings.api_key(),
            verify=surroundings.trust(settings.endpoint.base_url),
        )
        work.jobs.append(Job(embedder, sent))
    return work


def fill(
    surroundings: Surroundings, choose: Callable[[Everywhere], str | None], told: Callable[[Done], None]
) -> Done:
    """Embed what is owed in the project that `choose` names (None: all), saying now and then how far it is.

    A Ctrl-C here is no loss: the claims are given back, and the answer says that it stopped.
    Raises `RecallError` when the store or the embedder cannot work.
    """
    with reading(surroundings, time.monotonic() + READING_S) as (_, everywhere):
        work = planned(surroundings, everywhere, choose(everywhere))
    store = open_store(surroundings.home)
    stop = threading.Event()
    begun: list[tuple[Indexer, Job]] = []
    failed: list[BaseException] = []

    def pay() -> None:
        try:
            with State(surroundings.home, connect=surroundings.connect) as state:
                for job in work.jobs:
                    if stop.is_set():
                        return
                    indexer = Indexer(store, job.embedder, surroundings.redact)
                    begun.append((indexer, job))
                    indexer.work(state, everywhere, job.roots, stop, pause=0.0)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=pay, name="project-history-recall index")
    stopped = False
    try:
        thread.start()
        while thread.is_alive():
            thread.join(LOOK_S)
            told(_how_far(store, work, begun))
    except KeyboardInterrupt:
        stopped = True
    finally:
        stop.set()
        thread.join()
    if failed:
        raise failed[0]
    if not stopped and store.keep(everywhere.kept()):
        store.tidy()
    return _how_far(store, work, begun, stopped)


def _how_far(store: Store, work: Work, begun: Sequence[tuple[Indexer, Job]], stopped: bool = False) -> Done:
    begun = list(begun)  # the other thread adds to it
    counts = [store.coverage(indexer.fp, job.roots) for indexer, job in begun]
    return Done(
        planned=sum(len(store.stamps(indexer.fp, job.roots)) for indexer, job in begun),
        conversations=sum(len(job.roots) for job in work.jobs),
        coverage=Coverage(*(sum(each) for each in zip(*counts, strict=True))) if counts else Coverage(0, 0, 0),
        new=sum(indexer.encoded for indexer, _ in begun),
        waiting=work.waiting,
        held=work.held,
        stopped=stopped,
    )


def forget(disk: Disk, everywhere: Everywhere, key: str | None) -> int:
    """Drop the vectors of one project's conversations, or all there are (None); returns how many conversations.

    Hidden ones too. Nothing is created where there is no index.
    """
    if not store_path(disk.home).exists():
        return 0
    roots = [root for root in everywhere.roots if key in (None, everywhere.ref(root).key)]
    open_store(disk.home).forget(None if key is None else roots)
    return len(roots)
