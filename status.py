"""How things stand in a home: its projects, its index, its grants. Reads only, the index too.

The index is opened read-only here: `vectors.Store` creates what is missing and
sets aside what is damaged, which nobody asked for who only wants to look.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from .embeddings import lacking
from .indexing import store_path
from .scope import Caller, Everywhere
from .search import Surroundings
from .text import one_line
from .vectors import MAX_TRIES

DEADLINE_S = 20.0
PACKAGE = "apsw>=3.51.3"


class Indexed(NamedTuple):
    """Of one conversation: how many pieces it has, how many of them are owed a vector, were given up."""

    pieces: int
    owed: int
    abandoned: int


@dataclass(frozen=True, slots=True)
class Index:
    """What stands in `embeddings.db`. `reason` says why it cannot be read; `conversations` is by lineage root."""

    path: Path
    size: int = 0
    reason: str = ""
    conversations: Mapping[str, Indexed] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)

    @property
    def begun(self) -> bool:
        return self.size > 0

    def of(self, roots: Iterable[str]) -> dict[str, Any]:
        """The sum over some conversations; `share` is the part that can be found by meaning, 0 to 1."""
        wanted = list(roots)
        known = [self.conversations[root] for root in wanted if root in self.conversations]
        pieces, owed, abandoned = (sum(each) for each in zip(*known, strict=True)) if known else (0, 0, 0)
        have = pieces - owed - abandoned
        share = (have / pieces if pieces else 1.0) * len(known) / len(wanted) if wanted else 1.0
        return {"pieces": have, "owed": owed, "abandoned": abandoned, "share": round(share, 4)}


def look(home: Path, model: str = "") -> Index:
    """The index of a home as it stands for the models whose fingerprint begins so: one, or all of them."""
    path = store_path(home)
    try:
        size = path.stat().st_size
    except OSError:
        return Index(path)
    try:
        import apsw
    except ImportError:
        return Index(path, size, lacking(PACKAGE))
    try:
        db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    except apsw.Error as error:
        return Index(path, size, one_line(str(error)))
    try:
        db.set_busy_timeout(3_000)
        known = db.execute("SELECT fp, fingerprint FROM model")
        fps = [fp for fp, fingerprint in known if str(fingerprint).startswith(model)]
        wanted = (json.dumps(fps), MAX_TRIES)
        rows = db.execute(
            """SELECT c.root, sum(p.contents), coalesce(sum(d.owed), 0), coalesce(sum(d.abandoned), 0)
                FROM planned p JOIN conversation c ON c.conv = p.conv
                LEFT JOIN (SELECT conv, fp, sum(tries < ?2) AS owed, sum(tries >= ?2) AS abandoned
                    FROM debt GROUP BY conv, fp) d ON d.conv = p.conv AND d.fp = p.fp
                WHERE p.fp IN (SELECT value FROM json_each(?1)) GROUP BY c.root""",
            wanted,
        )
        conversations = {str(root): Indexed(*map(int, counts)) for root, *counts in rows}
        failed = db.execute(
            """SELECT error, count(*) FROM debt WHERE error IS NOT NULL
                AND fp IN (SELECT value FROM json_each(?)) GROUP BY error ORDER BY count(*) DESC LIMIT 5""",
            wanted[:1],
        )
        return Index(path, size, "", conversations, {one_line(str(kind)): int(n) for kind, n in failed})
    except (apsw.Error, TypeError, ValueError) as error:
        return Index(path, size, one_line(str(error)))
    finally:
        db.close()


def unsound(path: Path) -> str:
    """What SQLite finds wrong with the index; "" when it is sound."""
    import apsw

    try:
        db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            db.set_busy_timeout(3_000)
            found = [str(row[0]) for row in db.execute("PRAGMA integrity_check(1)")]
        finally:
            db.close()
    except apsw.Error as error:
        return one_line(str(error))
    return "" if found == ["ok"] else one_line(found[0] if found else "no answer")


def projects(everywhere: Everywhere, caller: Caller, index: Index) -> list[dict[str, Any]]:
    """The projects that own what this caller may read, most conversations first; Home last."""
    owned: dict[str, list[str]] = {}
    for root in everywhere.readable(caller):
        owned.setdefault(everywhere.ref(root).key, []).append(root)
    told = []
    for roots in owned.values():
        ref = everywhere.ref(roots[0])
        row: dict[str, Any] = {"kind": ref.kind, "id": one_line(ref.id, 400), "name": one_line(ref.name)}
        row["conversations"] = len(roots)
        if ref.kind != "home" and index.begun:
            row["index"] = index.of(roots)
        told.append(row)
    return sorted(told, key=lambda row: (row["kind"] == "home", -row["conversations"], row["name"]))


def gather(
    surroundings: Surroundings,
    everywhere: Everywhere,
    caller: Caller,
    index: Index,
    *,
    hermes: str,
    grants: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Everything `status` tells, as JSON has it."""
    settings = surroundings.settings
    listed = projects(everywhere, caller, index)
    inside = [root for root in everywhere.readable(caller) if everywhere.ref(root).kind != "home"]
    told: dict[str, Any] = {
        "home": str(surroundings.home),
        "profile": surroundings.profile or "default",
        "hermes": hermes or None,
        "provider": settings.embedding_provider,
    }
    if settings.endpoint is not None:
        told["endpoint"] = {"base_url": settings.endpoint.base_url, "model": one_line(settings.endpoint.model)}
    told["projects"] = listed
    told["index"] = {"path": str(index.path), "bytes": index.size, **index.of(inside)}
    if index.reason:
        told["index"]["unreadable"] = index.reason
    told["grants"] = list(grants)
    told["problems"] = list(settings.problems)
    told["errors"] = dict(index.errors)
    return told


def deadline() -> float:
    return time.monotonic() + DEADLINE_S
