"""The vectors of a home's messages, and what is still owed: `embeddings.db`, a cache that can be rebuilt.

It stores ids, offsets, hashes and int8 vectors; no text. A vector is kept once per
content and conversation, so that a row copied or moved within its conversation costs
nothing; `place` says where each content stands. The conversations of a search are
joined first and their vectors compared one by one: exact, and no index to maintain. Those
searched last stay in memory (`held.py`); what has no room there is compared in SQL.

The ledger (`debt`) holds a row for each content that is owed a vector, and only while
it is owed. Vector in and row out share one transaction, guarded by the owner of the
claim, so that two processes never store a thing twice and a kill loses at most the
batch that was running. What failed, or was in the hands of a process that died, is
from then on claimed alone: one bad text takes none of its neighbours with it.

Only apsw opens this file, and apsw opens no other: two SQLite libraries on one file in
one process drop each other's locks. A rollback journal, not WAL, so that network
disks need no detecting.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import heapq
import importlib
import itertools
import json
import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from .errors import RecallError
from .held import KEY_BYTES, Far, Held, Unusable, Vectors, nearest

if TYPE_CHECKING:
    import apsw
    from numpy.typing import NDArray

P = ParamSpec("P")
T = TypeVar("T")

LEASE_S = 180.0  # how long a claim stands when nobody can tell whether its owner lives
MAX_TRIES = 3  # failures or deaths alone, after which a content is abandoned
BUSY_MS = 3_000
# A row of a clustered table must be below a quarter of a page or it spills: 4096 dimensions take 4.5 times
# their size in pages of 16 KB, 1.14 in these; 512 dimensions take 1.04 in either.
PAGE_BYTES = 32_768
CACHE_KIB = 8_192
SPARE = 1.09  # of what the file would be after a VACUUM, until when it is not worth one
MIN_APSW = (3, 51, 3)  # before it, SQLite can lose a WAL that another process reset
CHECKED_BYTES = 64_000_000  # up to which a file is checked as a whole when a process first opens it: 1 ms a MB

# One entry a version (PRAGMA user_version); never edit one that was released.
MIGRATIONS = (
    """
    CREATE TABLE model(
        fp INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL, dim INTEGER NOT NULL CHECK (dim > 0)) STRICT;
    CREATE TABLE conversation(conv INTEGER PRIMARY KEY, root TEXT NOT NULL UNIQUE) STRICT;
    CREATE TABLE planned(
        conv INTEGER NOT NULL, fp INTEGER NOT NULL, stamp TEXT NOT NULL, contents INTEGER NOT NULL,
        PRIMARY KEY (conv, fp)) WITHOUT ROWID, STRICT;
    CREATE TABLE place(
        conv INTEGER NOT NULL, fp INTEGER NOT NULL, key BLOB NOT NULL, message_id INTEGER NOT NULL,
        offset INTEGER NOT NULL, length INTEGER NOT NULL,
        PRIMARY KEY (conv, fp, key, message_id, offset)) WITHOUT ROWID, STRICT;
    CREATE TABLE vec(
        conv INTEGER NOT NULL, fp INTEGER NOT NULL, key BLOB NOT NULL, v BLOB NOT NULL,
        PRIMARY KEY (conv, fp, key)) WITHOUT ROWID, STRICT;
    CREATE TABLE debt(
        conv INTEGER NOT NULL, fp INTEGER NOT NULL, key BLOB NOT NULL, seq INTEGER NOT NULL,
        owner TEXT, lease REAL, alone INTEGER NOT NULL DEFAULT 0, suspect INTEGER NOT NULL DEFAULT 0,
        tries INTEGER NOT NULL DEFAULT 0, error TEXT,
        PRIMARY KEY (conv, fp, key)) WITHOUT ROWID, STRICT;
    CREATE INDEX claimed ON debt(owner, lease) WHERE owner IS NOT NULL;
    """,
)


class StoreUnavailable(RecallError):
    """The store cannot be used now. `reason` is one of `apsw_missing`, `apsw_too_old`, `numpy_missing`,
    `unwritable`, `busy`, `disk_full`; the message names the remedy."""

    code = "unavailable"

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Place(NamedTuple):
    """Where a content stands: `length` characters of a message from `offset` on.

    `key` is the 16-byte hash of exactly what is embedded, its context included.
    """

    message_id: int
    offset: int
    length: int
    key: bytes


class Plan(NamedTuple):
    """Where all contents of a conversation stand now.

    `stamp` is the caller's, to know a conversation that has not changed since;
    `copy_from` are conversations that may hold the same contents: a branch's parent.
    """

    root: str
    stamp: str
    places: Sequence[Place]
    copy_from: Sequence[str] = ()


class Near(NamedTuple):
    """A place and its cosine distance to a query: 0 is the same direction, 2 the opposite."""

    root: str
    message_id: int
    offset: int
    length: int
    distance: float


class Coverage(NamedTuple):
    """Of the contents of some conversations: how many have a vector, are owed one, were given up."""

    have: int
    owed: int
    abandoned: int


class _Damaged(Exception):
    """The file is none of ours, or no longer; `why` completes "The search index ..."."""

    def __init__(self, why: str = "is damaged") -> None:
        super().__init__(why)
        self.why = why


# --- who claims -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Owner:
    """One worker: boot and pid namespace, pid and start name its process beyond doubt, `nonce` the worker."""

    machine: str
    pid: int
    started: str
    nonce: str

    def __str__(self) -> str:
        return "|".join((self.machine, str(self.pid), self.started, self.nonce))

    @classmethod
    def current(cls) -> Owner:
        """A new owner in this process; each thread that claims takes its own."""
        pid = os.getpid()
        return cls(_machine(), pid, _started(pid), os.urandom(4).hex())

    @staticmethod
    def gone(text: str) -> bool:
        """Whether the process of a stored owner is provably dead; where none can tell, the lease decides."""
        machine, _, rest = text.partition("|")
        pid, _, rest = rest.partition("|")
        started = rest.partition("|")[0]
        if not machine or machine != _machine() or not started or not pid.isdecimal():
            return False
        return _started(int(pid)) != started


def _machine() -> str:
    """This boot and pid namespace; "" where the system does not tell."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot}:{os.readlink(f'/proc/{os.getpid()}/ns/pid')}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """When a process started, in ticks since boot; "" when there is none (a zombie is none)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return "" if fields[0] in (b"Z", b"X") else fields[19].decode("ascii")
    except (OSError, IndexError):
        return ""


# --- forks ------------------------------------------------------------------------------------------

# SQLite's own memory of which locks this process holds is copied into a forked child, where they are not
# held. So a fork waits for the running statements to end, and the child opens the file anew.
_stores: weakref.WeakSet[Store] = weakref.WeakSet()
_forking = threading.local()
_creating = threading.Lock()


def _before_fork() -> None:
    _forking.held = list(_stores)
    for store in _forking.held:
        store._lock.acquire()


def _after_fork_in_parent() -> None:
    while _forking.held:
        _forking.held.pop()._lock.release()


def _after_fork_in_child() -> None:
    while _forking.held:
        store = _forking.held.pop()
        store._release_connection()
        store._lock.release()


@functools.cache
def _watch_forks() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=_before_fork,
            after_in_parent=_after_fork_in_parent,
            after_in_child=_after_fork_in_child,
        )


# --- the store --------------------------------------------------------------------------------------


def _guarded(method: Callable[Concatenate[Store, P], T]) -> Callable[Concatenate[Store, P], T]:
    """Run a method alone, on an open file; once more on a new file if this one turns out to be damaged."""

    @functools.wraps(method)
    def call(self: Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
        import apsw

        with self._lock:
            for last in (False, True):
                try:
                    self._open()
                    return method(self, *args, **kwargs)
                except (apsw.Error, OSError, UnicodeDecodeError, _Damaged) as error:
                    self._mend(error, last)
        raise AssertionError("unreachable")

    return call


class Store:
    """One home's `embeddings.db`. Threads may share it: one works at a time.

    Creates the file (0600) and the folders above it that are missing (0700). Every
    method raises `StoreUnavailable` when the file cannot be used; a file that is
    damaged or of a newer version is renamed to `*.aside`, a new one begun, and the
    method answers from that, with a word in `detail`. Another process notices and
    follows. Conversations are named by their lineage root, models by the number
    that `model` gives.

    detail: "", or a sentence on a file that was set aside
    backend: "sqlite-vec", or "numpy" when the extension does not load (or `extension` is False)
    """

    def __init__(self, path: Path, *, extension: bool = True) -> None:
        self.path = path
        self.detail = ""
        self.backend = ""
        self._extension = extension
        self._lock = threading.Lock()
        self._connection: apsw.Connection | None = None
        self._file = (0, 0)
        self._sound = (0, 0)  # the file that was checked
        self._models: dict[int, tuple[str, int]] = {}
        self._held = Held()
        _require_libraries()
        _watch_forks()
        _stores.add(self)
        self._check()

    def close(self) -> None:
        """Let go of the file. The next call opens it again."""
        with self._lock:
            self._release_connection()

    @_guarded
    def _check(self) -> None:
        """Open the file."""

    # --- models and plans ---

    @_guarded
    def model(self, fingerprint: str, dim: int) -> int:
        """The number of a model with vectors of `dim` values. It is the same in every file."""
        digest = hashlib.blake2b(f"{dim}:{fingerprint}".encode(), digest_size=4).digest()
        fp = int.from_bytes(digest) & 0x7FFFFFFF
        self._models[fp] = (fingerprint, dim)
        self._know_models()
        return fp

    @_guarded
    def width(self, fingerprint: str) -> int | None:
        """How many values the vectors of a model have here; None when there are none yet."""
        widths = [dim for (dim,) in self._db.execute("SELECT dim FROM model WHERE fingerprint = ?", (fingerprint,))]
        _must_be(int, widths)
        return widths[-1] if widths else None

    @_guarded
    def stamps(self, fp: int, roots: Sequence[str]) -> dict[str, str]:
        """The stamp each conversation was last planned with; those never planned are left out."""
        stamps = dict(
            self._db.execute(
                """SELECT c.root, p.stamp FROM json_each(?1) j CROSS JOIN conversation c ON c.root = j.value
                    CROSS JOIN planned p ON p.conv = c.conv AND p.fp = ?2""",
                (_json(roots), fp),
            )
        )
        _must_be(str, stamps.values())
        return stamps

    def plan(
        self, fp: int, root: str, stamp: str, places: Sequence[Place], copy_from: Sequence[str] = ()
    ) -> int:
        """Say where the contents of a conversation stand now; returns how many are owed a vector.

        The places are replaced, vectors and debts of contents that stand nowhere any more
        dropped, missing vectors copied from `copy_from`, the rest owed. Saying the same
        again changes nothing.
        """
        return self.plan_all(fp, [Plan(root, stamp, places, copy_from)])

    def plan_all(self, fp: int, plans: Iterable[Plan]) -> int:
        """`plan` for many conversations in one transaction, which waits for the disk once.

        Newest first is best: vectors made in that order then fill the table's pages (the
        file is 1.2 times its vectors, the other way round twice, until it is tidied).
        Raises ValueError, and plans none, when a key has not 16 bytes or two places are one.
        """
        plans = list(plans)
        for plan in plans:
            if any(len(place.key) != KEY_BYTES for place in plan.places):
                raise ValueError(f"a key has {KEY_BYTES} bytes")
            places = set(plan.places)
            if len({(p.key, p.message_id, p.offset) for p in places}) < len(places):
                raise ValueError("a content stands at one place with two lengths")
        return self._plan_all(fp, plans)

    @_guarded
    def _plan_all(self, fp: int, plans: Sequence[Plan]) -> int:
        with self._transaction():
            return sum(self._plan(fp, plan) for plan in plans)

    def _plan(self, fp: int, plan: Plan) -> int:
        db = self._db
        now = set(plan.places)
        order: dict[bytes, int] = {}  # contents in the order of their first message
        for place in sorted(now):
            order.setdefault(place.key, len(order))
        db.execute("INSERT INTO conversation(root) VALUES (?) ON CONFLICT DO NOTHING", (plan.root,))
        conv = self._conv(plan.root)

        stored = db.execute(
            "SELECT message_id, offset, length, key FROM place WHERE conv = ? AND fp = ?", (conv, fp)
        )
        before = {Place._make(row) for row in stored}
        db.executemany(
            "DELETE FROM place WHERE conv = ? AND fp = ? AND key = ? AND message_id = ? AND offset = ?",
            [(conv, fp, p.key, p.message_id, p.offset) for p in before - now],
        )
        db.executemany(
            "INSERT INTO place(conv, fp, key, message_id, offset, length) VALUES (?, ?, ?, ?, ?, ?)",
            [(conv, fp, p.key, p.message_id, p.offset, p.length) for p in now - before],
        )
        placed = {p.key for p in before}
        dropped = [(conv, fp, key) for key in placed - order.keys()]
        db.executemany("DELETE FROM vec WHERE conv = ? AND fp = ? AND key = ?", dropped)
        if dropped or plan.copy_from:
            self._held.drop(fp, conv)
        db.executemany("DELETE FROM debt WHERE conv = ? AND fp = ? AND key = ?", dropped)

        debts = {key for (key,) in db.execute("SELECT key FROM debt WHERE conv = ? AND fp = ?", (conv, fp))}
        _must_be(bytes, debts)
        missing = sorted(debts | (order.keys() - placed))
        for source in plan.copy_from:
            copied = db.executemany(
                """INSERT INTO vec(conv, fp, key, v) SELECT ?, v.fp, v.key, v.v FROM conversation c
                    CROSS JOIN vec v ON v.conv = c.conv AND v.fp = ? AND v.key = ? WHERE c.root = ?
                    RETURNING key""",
                [(conv, fp, key, source) for key in missing],
            )
            found = {key for (key,) in copied}
            missing = [key for key in missing if key not in found]
        db.executemany(
            "DELETE FROM debt WHERE conv = ? AND fp = ? AND key = ?",
            [(conv, fp, key) for key in debts.difference(missing)],
        )
        db.executemany(
            """INSERT INTO debt(conv, fp, key, seq) VALUES (?, ?, ?, ?)
                ON CONFLICT DO UPDATE SET seq = excluded.seq WHERE seq <> excluded.seq""",
            [(conv, fp, key, order[key]) for key in missing],
        )
        db.execute(
            """INSERT INTO planned(conv, fp, stamp, contents) VALUES (?, ?, ?, ?)
                ON CONFLICT DO UPDATE SET stamp = excluded.stamp, contents = excluded.contents
                WHERE stamp <> excluded.stamp OR contents <> excluded.contents""",
            (conv, fp, plan.stamp, len(order)),
        )
        return self._number(
            "SELECT count(*) FROM debt WHERE conv = ? AND fp = ? AND tries < ?", (conv, fp, MAX_TRIES)
        )

    @_guarded
    def coverage(self, fp: int, roots: Sequence[str]) -> Coverage:
        """How far these conversations are; those never planned count for nothing."""
        ((contents, debts, abandoned),) = self._db.execute(
            """SELECT coalesce(sum(p.contents), 0),
                coalesce(sum((SELECT count(*) FROM debt d WHERE d.conv = p.conv AND d.fp = p.fp)), 0),
                coalesce(sum((SELECT count(*) FROM debt d
                    WHERE d.conv = p.conv AND d.fp = p.fp AND d.tries >= ?3)), 0)
                FROM json_each(?1) j CROSS JOIN conversation c ON c.root = j.value
                CROSS JOIN planned p ON p.conv = c.conv AND p.fp = ?2""",
            (_json(roots), fp, MAX_TRIES),
        )
        return Coverage(contents - debts, debts - abandoned, abandoned)

    # --- the ledger ---

    @_guarded
    def owed(self, fp: int, roots: Sequence[str]) -> dict[str, list[bytes]]:
        """The keys that a claim could get now, by conversation in the order asked, each in message order.

        Neither those abandoned nor those in the hands of an owner who may live.
        """
        if self._lost(time.time()):
            with self._transaction():
                self._take_back(time.time())
        keys: dict[str, list[bytes]] = {}
        rows = self._db.execute(
            """SELECT c.root, d.key FROM json_each(?1) j CROSS JOIN conversation c ON c.root = j.value
                CROSS JOIN debt d ON d.conv = c.conv AND d.fp = ?2
                WHERE d.owner IS NULL AND d.tries < ?3 ORDER BY j.key, d.seq""",
            (_json(roots), fp, MAX_TRIES),
        )
        for root, key in rows:
            keys.setdefault(root, []).append(key)
        _must_be(bytes, itertools.chain.from_iterable(keys.values()))
        return keys

    @_guarded
    def claim(
        self, fp: int, me: Owner, root: str, keys: Sequence[bytes], now: float | None = None
    ) -> list[bytes]:
        """Those of `keys` that are mine from now on, in the order given.

        Fresh ones together; when none is fresh, one alone of those that failed or whose
        owner died (fewest tries first). What anybody holds, `me` included, is not given
        again. `now`: seconds since the epoch.
        """
        now = time.time() if now is None else now
        with self._transaction() as db:
            self._take_back(now)
            rows = list(
                db.execute(
                    """SELECT d.conv, d.key, d.suspect FROM json_each(?1) j
                        CROSS JOIN conversation c ON c.root = ?2
                        CROSS JOIN debt d ON d.conv = c.conv AND d.fp = ?3 AND d.key = unhex(j.value)
                        WHERE d.owner IS NULL AND d.tries < ?4 ORDER BY d.suspect, d.tries, j.key""",
                    (_json(key.hex() for key in keys), root, fp, MAX_TRIES),
                )
            )
            mine = [(conv, key) for conv, key, suspect in rows if not suspect]
            mine = mine or [(conv, key) for conv, key, _ in rows[:1]]
            db.executemany(
                "UPDATE debt SET owner = ?, lease = ?, alone = ? WHERE conv = ? AND fp = ? AND key = ?",
                [(str(me), now + LEASE_S, int(len(mine) == 1), conv, fp, key) for conv, key in mine],
            )
        return [key for _, key in mine]

    @_guarded
    def done(
        self, fp: int, me: Owner, root: str, vectors: Sequence[tuple[bytes, NDArray[Any]]]
    ) -> int:
        """Store vectors, each (dim,) float, and strike their debts; returns how many were still mine.

        A claim lost meanwhile (its lease ran out and another took over) stores nothing.
        Raises ValueError, and stores none, when one is zero, not finite or of another width.
        """
        scaled = self._scaled(fp, [vector for _, vector in vectors])
        rows = sorted(zip((key for key, _ in vectors), scaled, strict=True))
        stored = 0
        with self._transaction() as db:
            conv = self._conv(root)
            for key, v in rows:
                mine = db.execute(
                    "DELETE FROM debt WHERE conv = ? AND fp = ? AND key = ? AND owner = ? RETURNING 1",
                    (conv, fp, key, str(me)),
                )
                if list(mine):
                    db.execute(
                        """INSERT INTO vec(conv, fp, key, v) VALUES (?, ?, ?, ?)
                            ON CONFLICT DO UPDATE SET v = excluded.v""",
                        (conv, fp, key, v),
                    )
                    stored += 1
            if stored:
                self._held.drop(fp, conv)
        return stored

    @_guarded
    def fail(self, fp: int, me: Owner, root: str, keys: Sequence[bytes], error: str) -> None:
        """Give back what could not be embedded. It counts against a key only if that was claimed alone;
        the others will be. `error`: one line, no text of a message."""
        with self._transaction() as db:
            conv = self._conv(root)
            db.executemany(
                """UPDATE debt SET owner = NULL, lease = NULL, suspect = 1, tries = tries + alone, alone = 0,
                    error = ? WHERE conv = ? AND fp = ? AND key = ? AND owner = ?""",
                [(error[:200], conv, fp, key, str(me)) for key in keys],
            )

    @_guarded
    def release(self, fp: int, me: Owner) -> None:
        """Give back all that is mine, as if it had never been claimed: an orderly exit."""
        with self._transaction() as db:
            db.execute(
                "UPDATE debt SET owner = NULL, lease = NULL, alone = 0 WHERE owner = ? AND fp = ?",
                (str(me), fp),
            )

    @_guarded
    def errors(self, fp: int, roots: Sequence[str]) -> dict[str, int]:
        """Why contents of these conversations were abandoned: error to how many, the most frequent first."""
        return dict(
            self._db.execute(
                """SELECT coalesce(d.error, ''), count(*) FROM json_each(?1) j
                    CROSS JOIN conversation c ON c.root = j.value
                    CROSS JOIN debt d ON d.conv = c.conv AND d.fp = ?2
                    WHERE d.tries >= ?3 GROUP BY 1 ORDER BY 2 DESC, 1""",
                (_json(roots), fp, MAX_TRIES),
            )
        )

    def _lost(self, now: float) -> list[tuple[str, float]]:
        """The claims (owner, lease) whose owner is gone or has had its time.

        A lease further ahead than any could be was written by a clock that has been set back.
        """
        claims = list(self._db.execute("SELECT DISTINCT owner, lease FROM debt WHERE owner IS NOT NULL"))
        return [
            (owner, lease)
            for owner, lease in claims
            if not isinstance(lease, float) or not now <= lease <= now + 2 * LEASE_S or Owner.gone(owner)
        ]

    def _take_back(self, now: float) -> None:
        self._db.executemany(
            """UPDATE debt SET owner = NULL, lease = NULL, suspect = 1, tries = tries + alone, alone = 0,
                error = 'its worker died or took too long' WHERE owner = ? AND lease IS ?""",
            self._lost(now),
        )

    # --- search ---

    @_guarded
    def nearest(self, fp: int, roots: Sequence[str], query: NDArray[Any], k: int) -> list[Near]:
        """The `k` contents of these conversations nearest to a query vector, (dim,) float, best first.

        Each at every place where it stands, so there may be more than `k`; one content in
        two conversations counts twice. Both backends give the same distances in the same
        order. Raises ValueError when the query is zero, not finite or of another width.
        """
        (scaled,) = self._scaled(fp, [query])
        if k <= 0 or not roots:
            return []
        with self._transaction("BEGIN") as db:
            self._held.follow(self._number("PRAGMA data_version", ()))
            names = dict(
                db.execute(
                    "SELECT c.conv, c.root FROM json_each(?) j CROSS JOIN conversation c ON c.root = j.value",
                    (_json(roots),),
                )
            )
            held = self._held.take(fp, names)
            try:
                rest = self._hold(fp, names, held, len(scaled))
                best = nearest(held, scaled, k)
                if rest:
                    search = self._by_extension if self.backend == "sqlite-vec" else self._by_numpy
                    best = heapq.nsmallest(k, best + search(fp, rest, scaled, k))
            except Unusable:
                raise _Damaged from None
            rows = db.execute(
                """SELECT j.key, p.message_id, p.offset, p.length FROM json_each(?1) j
                    CROSS JOIN place p ON p.conv = j.value ->> 0 AND p.fp = ?2
                    AND p.key = unhex(j.value ->> 1) ORDER BY j.key, p.message_id, p.offset""",
                (json.dumps([(conv, key.hex()) for _, conv, key in best]), fp),
            )
            found = [
                Near(names[best[n].conv], message_id, offset, length, best[n].distance)
                for n, message_id, offset, length in rows
            ]
        _must_be(int, (value for near in found for value in near[1:4]))
        return found

    def _hold(self, fp: int, wanted: Collection[int], held: dict[int, Vectors], dim: int) -> list[int]:
        """Read what of `wanted` is not in `held` yet, and hold it too; returns those there was no room for."""
        missing = [conv for conv in wanted if conv not in held]
        for number, conv in enumerate(missing):
            rows = list(self._db.execute("SELECT key, v FROM vec WHERE conv = ? AND fp = ?", (conv, fp)))
            vectors = Vectors.of(rows, dim)
            if not self._held.keep(fp, conv, vectors, wanted):
                return missing[number:]
            held[conv] = vectors
        return []

    def _by_extension(self, fp: int, convs: Sequence[int], query: bytes, k: int) -> list[Far]:
        # Without vec_int8() a blob is silently read as float32.
        rows = self._db.execute(
            """SELECT vec_distance_cosine(vec_int8(v.v), vec_int8(?3)) AS distance, v.conv, v.key
                FROM json_each(?1) j CROSS JOIN vec v ON v.conv = j.value AND v.fp = ?2
                ORDER BY distance, v.conv, v.key LIMIT ?4""",
            (_json(convs), fp, query, k),
        )
        best = [Far._make(row) for row in rows]
        if best and best[0].distance is None:  # a zero vector; NULL sorts first
            raise _Damaged
        return best

    def _by_numpy(self, fp: int, convs: Sequence[int], query: bytes, k: int) -> list[Far]:
        """The same without the extension, a conversation in memory at a time."""
        best: list[Far] = []
        for conv in convs:
            rows = list(self._db.execute("SELECT key, v FROM vec WHERE conv = ? AND fp = ?", (conv, fp)))
            best = heapq.nsmallest(k, best + nearest({conv: Vectors.of(rows, len(query))}, query, k))
        return best

    def _scaled(self, fp: int, vectors: Sequence[NDArray[Any]]) -> list[bytes]:
        """Vectors as int8, each scaled so that its largest value is 127: cosine knows no length."""
        import numpy as np

        _, dim = self._models.get(fp) or self._stored_model(fp)
        scaled = []
        for vector in vectors:
            v = np.asarray(vector, np.float64)
            if v.shape != (dim,):
                raise ValueError(f"a vector of shape {v.shape}, expected ({dim},)")
            largest = np.abs(v).max()
            if not np.isfinite(largest) or largest == 0:
                raise ValueError("a vector that is zero or not finite")
            scaled.append(np.rint(v / largest * 127).astype(np.int8).tobytes())
        return scaled

    # --- what goes ---

    def keep(self, roots: Iterable[str]) -> int:
        """Drop every conversation that is not among these (it was deleted); returns the rows dropped."""
        return self._keep(_json(roots))

    @_guarded
    def _keep(self, roots: str) -> int:
        others = "SELECT conv FROM conversation WHERE root NOT IN (SELECT value FROM json_each(?))"
        return self._drop([conv for (conv,) in self._db.execute(others, (roots,))])

    def keep_models(self, fps: Iterable[int]) -> int:
        """Drop what belongs to any model but these (replaced ones); returns the rows dropped."""
        return self._keep_models(_json(fps))

    @_guarded
    def _keep_models(self, fps: str) -> int:
        replaced = "fp NOT IN (SELECT value FROM json_each(?))"
        if not self._number(f"SELECT count(*) FROM model WHERE {replaced}", (fps,)):
            return 0
        self._held.clear()
        with self._transaction() as db:
            before = db.total_changes()
            for table in ("place", "vec", "debt", "planned", "model"):
                db.execute(f"DELETE FROM {table} WHERE {replaced}", (fps,))
            return db.total_changes() - before

    @_guarded
    def forget(self, roots: Sequence[str] | None) -> int:
        """Drop these conversations (None: every one) and give the space back; returns the rows dropped."""
        convs = None
        if roots is not None:
            these = "SELECT c.conv FROM json_each(?) j CROSS JOIN conversation c ON c.root = j.value"
            convs = [conv for (conv,) in self._db.execute(these, (_json(roots),))]
        dropped = self._drop(convs)
        self._aside.unlink(missing_ok=True)
        self._vacuum()
        return dropped

    @_guarded
    def tidy(self) -> None:
        """Give unused space back if there is enough of it: call it when nothing is owed, and after a sweep.

        Keeps the file within 1.25 times its vectors and keys (and a page for each table).
        0.1 s for 30 MB; it waits for another time when another process is reading, or the disk is full.
        """
        packed = 10 * PAGE_BYTES  # what is left of the last page of each table and index
        counts = self._db.execute(
            "SELECT m.dim, sum(p.contents) FROM model m CROSS JOIN planned p ON p.fp = m.fp GROUP BY m.fp"
        )
        for dim, contents in counts:  # with those still owed: their room is not to be given back
            row = dim + KEY_BYTES + 17
            spills = row > PAGE_BYTES // 4
            packed += contents * (row + PAGE_BYTES if spills else PAGE_BYTES // (PAGE_BYTES // row))
        packed += 42 * self._number("SELECT count(*) FROM place", ())
        packed += 90 * self._number("SELECT count(*) FROM debt", ())
        if PAGE_BYTES * self._number("PRAGMA page_count", ()) > SPARE * packed:
            self._vacuum()

    def _drop(self, convs: Sequence[int] | None) -> int:
        if convs is not None and not convs:
            return 0
        # Without a WHERE nothing is looked up, and nothing missed should the file be out of order.
        which = "" if convs is None else "WHERE conv IN (SELECT value FROM json_each(?))"
        bindings = () if convs is None else (_json(convs),)
        self._held.clear()
        with self._transaction() as db:
            before = db.total_changes()
            for table in ("place", "vec", "debt", "planned", "conversation"):
                db.execute(f"DELETE FROM {table} {which}", bindings)
            dropped = db.total_changes() - before
        self._aside.unlink(missing_ok=True)  # it may hold the same vectors
        return dropped

    def _vacuum(self) -> None:
        import apsw

        # Not now, then: what was deleted is already overwritten (secure_delete).
        with contextlib.suppress(apsw.BusyError, apsw.LockedError, apsw.FullError, apsw.IOError):
            self._db.execute("VACUUM")

    # --- the file ---

    @property
    def _db(self) -> apsw.Connection:
        assert self._connection is not None
        return self._connection

    @property
    def _aside(self) -> Path:
        return self.path.with_name(self.path.name + ".aside")

    @contextlib.contextmanager
    def _transaction(self, begin: str = "BEGIN IMMEDIATE") -> Iterator[apsw.Connection]:
        """Immediate by default: what is read decides what is written, so nobody may write between."""
        db = self._db
        try:
            db.execute(begin)
            yield db
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise

    def _number(self, sql: str, bindings: tuple[Any, ...]) -> int:
        """The one number that a statement answers."""
        ((number,),) = self._db.execute(sql, bindings)
        return int(number)

    def _conv(self, root: str) -> int | None:
        for (conv,) in self._db.execute("SELECT conv FROM conversation WHERE root = ?", (root,)):
            return int(conv)
        return None

    def _stored_model(self, fp: int) -> tuple[str, int]:
        for fingerprint, dim in self._db.execute("SELECT fingerprint, dim FROM model WHERE fp = ?", (fp,)):
            return str(fingerprint), int(dim)
        raise ValueError(f"no model has the number {fp}")

    def _know_models(self) -> None:
        """Write the models of this process that the file does not know (yet, or since it was replaced)."""
        known = dict(self._db.execute("SELECT fp, dim FROM model"))
        for fp, (fingerprint, dim) in self._models.items():
            if fp not in known:
                self._db.execute(
                    "INSERT INTO model VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (fp, fingerprint, dim)
                )

    def _open(self) -> None:
        """Make sure that the connection is to the file that stands at the path now."""
        if self._connection is not None and _identity(self.path) == self._file:
            return
        self._release_connection()
        with _creating:
            _create(self.path)
        self._file = _identity(self.path)
        try:
            self._connect()
        except BaseException:
            self._release_connection()
            raise

    def _connect(self) -> None:
        import apsw

        self._connection = db = apsw.Connection(str(self.path))
        db.set_busy_handler(_patience())
        # The first two count only before the first table is made.
        for pragma in (
            f"page_size = {PAGE_BYTES}", "auto_vacuum = NONE", "journal_mode = DELETE",
            "synchronous = NORMAL", "secure_delete = ON", f"cache_size = -{CACHE_KIB}",
        ):  # fmt: skip
            db.execute(f"PRAGMA {pragma}")
        version = self._number("PRAGMA user_version", ())
        if version > len(MIGRATIONS):
            raise _Damaged("was written by a newer version of this plugin")
        if version < 0:
            raise _Damaged
        # Rows out of order are not met where one looks for them, and nothing says so; a quick check neither.
        if self._sound != self._file and os.stat(self.path).st_size <= CHECKED_BYTES:
            if list(db.execute("PRAGMA integrity_check(1)")) != [("ok",)]:
                raise _Damaged
            self._sound = self._file
        if version < len(MIGRATIONS):
            with self._transaction():
                for number in range(self._number("PRAGMA user_version", ()), len(MIGRATIONS)):
                    db.execute(MIGRATIONS[number])
                    db.execute(f"PRAGMA user_version = {number + 1}")
        self._know_models()
        self.backend = "sqlite-vec" if self._extension and _load_extension(db) else "numpy"

    def _release_connection(self) -> None:
        db, self._connection = self._connection, None
        self._held.clear()
        if db is not None:
            db.close()

    def _mend(self, error: Exception, last: bool) -> None:
        """After an error: return if another try is worth it, the file having been replaced; else raise."""
        replaced = _identity(self.path) != self._file and not isinstance(error, OSError)
        self._release_connection()
        if not last and replaced:
            return
        if not last and self._is_damage(error):
            try:
                self._set_aside(error.why if isinstance(error, _Damaged) else "is damaged")
            except OSError as failed:
                error = failed
            else:
                return
        raise self._unavailable(error) from error

    def _is_damage(self, error: Exception) -> bool:
        """Whether the file itself is the trouble; where an error does not tell, a check of it does."""
        import apsw

        match error:
            case OSError() | apsw.BusyError() | apsw.LockedError() | apsw.FullError():
                return False
            case apsw.CorruptError() | apsw.NotADBError() | UnicodeDecodeError() | _Damaged():
                return True
            case apsw.SQLError():  # no such table, say: the schema is not ours
                return True
            case apsw.ReadOnlyError():  # its header says so when neither the file nor the folder does
                return os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK)
        check = "integrity_check" if isinstance(error, apsw.ConstraintError) else "quick_check"
        try:
            db = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
            with contextlib.closing(db):
                return list(db.execute(f"PRAGMA {check}(1)")) != [("ok",)]
        except (apsw.CorruptError, apsw.NotADBError):
            return True
        except apsw.Error:
            return False

    def _unavailable(self, error: Exception) -> StoreUnavailable:
        import apsw

        where = self.path.parent
        match error:
            case apsw.BusyError() | apsw.LockedError():
                return StoreUnavailable("busy", "The search index is being written; try again in a moment.")
            case apsw.FullError() | OSError(errno=errno.ENOSPC | errno.EDQUOT):
                return StoreUnavailable("disk_full", f"The disk is full: free some space for {where}.")
        return StoreUnavailable("unwritable", f"The index in {where} cannot be read or written ({error}).")

    def _set_aside(self, why: str) -> None:
        os.replace(self.path, self._aside)
        for suffix in ("-journal", "-wal", "-shm"):  # they belong to that file
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        self.detail = f"The search index {why}: it was set aside as {self._aside.name} and is being rebuilt."


def _require_libraries() -> None:
    """Raises `StoreUnavailable` with the command that installs what is missing."""
    least = ".".join(map(str, MIN_APSW))
    command = f"python -m pip install 'apsw>={least}' numpy sqlite-vec"
    try:
        import apsw
    except ImportError as error:
        raise StoreUnavailable("apsw_missing", f"Meaning search needs apsw: {command}") from error
    version = apsw.sqlite_lib_version()
    if tuple(map(int, version.split(".")[:3])) < MIN_APSW:
        raise StoreUnavailable(
            "apsw_too_old",
            f"Meaning search needs apsw with SQLite {least} or later, not {version}: {command}",
        )
    try:
        import numpy  # noqa: F401
    except ImportError as error:
        raise StoreUnavailable("numpy_missing", f"Meaning search needs numpy: {command}") from error


def _load_extension(db: apsw.Connection) -> bool:
    """Load sqlite-vec and try it: a library that loads may still not work."""
    import apsw

    try:
        library = importlib.import_module("sqlite_vec").loadable_path()
        db.enable_load_extension(True)
        db.load_extension(library)
        question = "SELECT vec_distance_cosine(vec_int8(?), vec_int8(?))"
        ((distance,),) = db.execute(question, (b"\1\2" * 8, b"\2\1" * 8))
    except (ImportError, AttributeError, OSError, apsw.Error):
        return False
    finally:
        db.enable_load_extension(False)
    return isinstance(distance, float) and abs(distance - 0.2) < 1e-6


def _patience() -> Callable[[int], bool]:
    """A busy handler for up to `BUSY_MS`; SQLite's own naps for 0.1 s, and quick writers slip past it."""
    since = 0.0

    def wait(tries: int) -> bool:
        nonlocal since
        if tries == 0:
            since = time.monotonic()
        time.sleep(random.uniform(0.001, 0.01))
        return time.monotonic() - since < BUSY_MS / 1000

    return wait


def _create(path: Path) -> None:
    """Make an empty file of mode 0600, before SQLite opens it: its journal inherits the mode."""
    missing = [folder for folder in path.parents if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
    try:
        # A file that is there already is never opened here: closing it would drop the locks on it.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        if path.stat().st_mode & 0o077 and os.name == "posix":
            path.chmod(0o600)


def _identity(path: Path) -> tuple[int, int]:
    """Which file stands at the path; (0, 0) for none."""
    try:
        status = os.stat(path)
    except OSError:
        return (0, 0)
    return status.st_dev, status.st_ino


def _must_be(kind: type, values: Iterable[object]) -> None:
    if not all(isinstance(value, kind) for value in values):
        raise _Damaged


def _json(values: Iterable[object]) -> str:
    return json.dumps(list(dict.fromkeys(values)))
