"""List conversations of one or all profiles, for people. Reads only; nothing is written anywhere.

A filter looks at every conversation, never at the first page only. Each profile costs a
few statements, however many conversations it has; messages are counted for what is shown.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from .answers import Redact, when
from .attribution import HOME, ProjectRef
from .errors import BadArgument, StateUnreadable, UnknownProject
from .scope import Caller, Disk, Everywhere, choose_project, owner, reading, shown_id
from .state import Session, State, is_file
from .text import fold, one_line, said

DEFAULT = "default"  # what the host calls the profile without a name
WITHIN_S = 20.0  # seconds for one profile
FIRST_CHARS = 4_000  # characters of a first message that the filter looks at
FIRST_BYTES = 200_000  # of one with attachments, which cannot be read in part
FIRST_ROWS = 2_000  # first messages read at once
PATH_CHARS = 400


class Place(Disk, Protocol):
    """What listing needs of a home (see `host.Host`)."""

    @property
    def redact(self) -> Redact | None: ...


@dataclass(frozen=True, slots=True)
class Conversation:
    """A lineage: its first and its newest row. `last`: seconds since the epoch; `cwd` as attribution takes it."""

    root: Session
    tip: Session
    title: str
    cwd: str
    last: float


def homes(root: Path) -> list[tuple[str, Path]]:
    """(profile, home) of the default home and of each profile below it that has a state.db.

    `root` is any of them. The default one comes first and is named "", as `host.profile_name` does.
    """
    base = root.parent.parent if root.parent.name == "profiles" else root
    try:
        below = sorted(path for path in (base / "profiles").iterdir() if not path.name.startswith("."))
    except OSError:
        below = []
    found = [("", base), *((path.name, path) for path in below)]
    return [(name, home) for name, home in found if _has_state(home)]


def _has_state(home: Path) -> bool:
    try:
        return is_file(home / "state.db")
    except OSError:
        return True  # reading it will tell what is wrong


def sessions(
    homes: Iterable[tuple[str, Path]],
    disk_for: Callable[[Path], Place],
    *,
    project: str | None = None,
    query: str | None = None,
    limit: int = 50,
    hidden: bool = False,
    archived: bool = False,
    within: float = WITHIN_S,
) -> dict[str, Any]:
    """Conversations of these homes, the newest first; a compression lineage is one, a branch another.

    `query`: words that must all stand in title, folder, id, project or first user message.
    `project`: id, slug, name or path, or `home`; a profile without such a project lists nothing.
    `within`: seconds for each profile. In the answer, `last` is the time of the newest stored message, and
    `messages` counts what user and assistant said, live or compacted (a copy that a compaction made counts
    as well); `left_out` counts what else matched; `problems` names the profiles that could not be read.
    Raises `BadArgument`, `AmbiguousProject`, and `UnknownProject` when no profile has the project.
    """
    if limit < 1:
        raise BadArgument("`limit` is a whole number from 1 on.")
    words = fold(query or "").split()
    rows: list[tuple[float, dict[str, Any]]] = []
    total, read, redacted = 0, 0, True
    left_out = Counter[str]()
    problems: list[dict[str, str]] = []
    unknown: list[UnknownProject] = []
    for name, home in homes:
        place = disk_for(home)
        redacted = redacted and place.redact is not None
        try:
            with reading(place, time.monotonic() + within) as (state, everywhere):
                found = _conversations(state, everywhere)
                if project:
                    key = _named(project, everywhere).key
                    found = [c for c in found if project_of(c.root.id, everywhere).key == key]
                if words:
                    found = _matching(words, found, state, everywhere)
                kept, others = _visible(found, everywhere, hidden=hidden, archived=archived)
                shown = _shown(name or DEFAULT, kept[:limit], state, everywhere, place.redact)
        except StateUnreadable as error:
            problems.append({"profile": name or DEFAULT, "message": one_line(error.message, 300)})
        except UnknownProject as error:
            unknown.append(error)
        else:
            read += 1
            total += len(kept)
            left_out += others
            rows += shown
    if unknown and not read:
        raise max(unknown, key=lambda error: len(error.extra.get("candidates", ())))
    rows = sorted(rows, key=lambda row: -row[0])[:limit]
    answer: dict[str, Any] = {"sessions": [row for _, row in rows], "total": total, "shown": len(rows)}
    if left_out:
        answer["left_out"] = dict(left_out)
    if problems:
        answer["problems"] = problems
    if not redacted:
        answer["redacted"] = False
    return answer


def own(caller: Caller, state: State, everywhere: Everywhere, query: str | None = None) -> list[tuple[str, str]]:
    """The conversations of a chat itself, the newest first: id and title of each, "" without one.

    `query`: words that must all stand in id, title or first user message; folder and project are the owner's.
    """
    words = fold(query or "").split()
    members = {root: everywhere.lineages.members(root) for root in everywhere.readable(caller)}
    titles = state.titles([m for each in members.values() for m in each])
    first = _first_said(state, everywhere, list(members)) if words else {}
    found = []
    for root, rows in members.items():
        title = str(next((titles[m] for m in reversed(rows) if m in titles), ""))
        fields = fold("\n".join((title, *rows))) + "\n" + first.get(root, "")
        if all(word in fields for word in words):
            found.append((shown_id(rows[-1]), title))
    return found[::-1]


def _named(project: str, everywhere: Everywhere) -> ProjectRef:
    return HOME if project.strip().casefold() == "home" else choose_project(project, owner(), everywhere)


def _conversations(state: State, everywhere: Everywhere) -> list[Conversation]:
    """Every conversation, the newest first."""
    titles = state.titles(everywhere.by_id)
    # An index holds all that is asked here. A rewound message counts too: taking it back was an activity.
    newest = dict(state.rows("SELECT m.session_id, max(m.timestamp) FROM messages m GROUP BY m.session_id"))
    found = []
    for root in everywhere.roots:
        members = everywhere.lineages.members(root)
        title = next((titles[m] for m in reversed(members) if m in titles), "")
        last = max(_seconds(newest.get(m)) or _seconds(everywhere.by_id[m].started_at) for m in members)
        cwd = everywhere.lineages.place(root)[0]
        found.append(Conversation(everywhere.by_id[root], everywhere.by_id[members[-1]], str(title), cwd, last))
    return sorted(found, key=lambda c: (-c.last, c.tip.id))


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _matching(
    words: Sequence[str], found: list[Conversation], state: State, everywhere: Everywhere
) -> list[Conversation]:
    """Those in which all words stand. First messages are read only where they decide."""
    missing: dict[str, list[str]] = {}  # root -> the words that title, folder, ids and project do not hold
    for c in found:
        ref, members = project_of(c.root.id, everywhere), everywhere.lineages.members(c.root.id)
        fields = fold("\n".join((c.title, c.cwd, ref.name, ref.id, *members)))
        missing[c.root.id] = [word for word in words if word not in fields]
    first = _first_said(state, everywhere, [root for root, left in missing.items() if left])
    return [c for c in found if all(word in first.get(c.root.id, "") for word in missing[c.root.id])]


def _first_said(state: State, everywhere: Everywhere, roots: Sequence[str]) -> dict[str, str]:
    """What a user said first in each of these conversations, folded, as far as the filter looks."""
    content = f"""CASE WHEN instr(m.content, char(0)) = 0 THEN substr(m.content, 1, {FIRST_CHARS})
        WHEN length(CAST(m.content AS BLOB)) <= {FIRST_BYTES} THEN m.content END"""
    sql = f"""SELECT j.value, (SELECT {content} FROM messages m WHERE m.session_id = j.value AND m.role = 'user'
            AND {state.shown()} ORDER BY m.timestamp, m.id LIMIT 1) FROM json_each(?) j"""
    members = [m for root in roots for m in everywhere.lineages.members(root)]
    first: dict[str, str] = {}
    for start in range(0, len(members), FIRST_ROWS):
        for session_id, stored in state.rows(sql, (json.dumps(members[start : start + FIRST_ROWS]),)):
            root = everywhere.lineages.root(session_id)
            if root not in first and (text := said("user", stored)):
                first[root] = fold(text[:FIRST_CHARS])
    return first


def _visible(
    found: list[Conversation], everywhere: Everywhere, *, hidden: bool, archived: bool
) -> tuple[list[Conversation], Counter[str]]:
    """What is listed, and how much is left out by its flag."""
    kept: list[Conversation] = []
    others = Counter[str]()
    for c in found:
        if everywhere.is_hidden(c.root.id) and not hidden:
            others["hidden"] += 1
        elif c.tip.archived and not archived:
            others["archived"] += 1
        else:
            kept.append(c)
    return kept, others


def _shown(
    profile: str, found: Sequence[Conversation], state: State, everywhere: Everywhere, redact: Redact | None
) -> list[tuple[float, dict[str, Any]]]:
    members = {c.root.id: everywhere.lineages.members(c.root.id) for c in found}
    counts = _counts(state, [m for each in members.values() for m in each])
    rows: list[tuple[float, dict[str, Any]]] = []
    for c in found:
        ref = project_of(c.root.id, everywhere)
        row: dict[str, Any] = {
            "profile": profile,
            "session_id": shown_id(c.tip.id),
            "title": one_line(redact(c.title) if redact and c.title else c.title),
            "project": {"kind": ref.kind, "id": one_line(ref.id, PATH_CHARS), "name": one_line(ref.name)},
            "cwd": one_line(c.cwd, PATH_CHARS),
            "messages": sum(counts.get(m, 0) for m in members[c.root.id]),
            "last": when(c.last),
            "source": one_line(c.tip.source),
        }
        if c.tip.id != c.root.id:
            row["root_id"] = shown_id(c.root.id)
        if parent := parent_of(c.root):
            row["child"] = shown_id(parent)
        if c.tip.archived:
            row["archived"] = True
        if everywhere.is_hidden(c.root.id):
            row["hidden"] = True
        rows.append((c.last, row))
    return rows


def _counts(state: State, session_ids: Sequence[str]) -> dict[str, int]:
    sql = f"""SELECT m.session_id, count(*) FROM json_each(?) j CROSS JOIN messages m ON m.session_id = j.value
        WHERE m.role IN ('user', 'assistant') AND m.content <> '' AND {state.shown()} GROUP BY m.session_id"""
    return dict(state.rows(sql, (json.dumps(list(session_ids)),)))


def project_of(session_id: str, everywhere: Everywhere) -> ProjectRef:
    """The project of a conversation; that of the one it works for where a subagent's row has no folder."""
    seen: set[str] = set()
    row = everywhere.by_id[everywhere.lineages.root(session_id)]
    while not any(everywhere.lineages.place(row.id)) and (row.delegate_from or row.source == "subagent"):
        seen.add(row.id)
        parent = everywhere.by_id.get(row.delegate_from) or everywhere.by_id.get(row.parent_id)
        if parent is None or parent.id in seen:
            break
        row = parent
    return everywhere.ref(row.id)


def parent_of(session: Session) -> str:
    """The conversation that a branch was taken from or that a subagent works for, else ""."""
    if session.reset_from and session.reset_from == session.parent_id:
        return ""  # begun anew, not a part of the other
    return session.delegate_from or session.branched_from or session.parent_id
