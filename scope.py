"""Who calls, what they may see, and the conversations one search is about.

Everything here is decided from one reading of the session rows, before anything
is ranked. The project boundary is for relevance and an argument crosses it; the
chat and profile boundaries are for privacy and no argument does.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, KeysView, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Protocol

from .attribution import HOME, Attribution, Project, ProjectRef, Roots, path_key
from .config_schema import Settings
from .errors import (
    AmbiguousProject,
    AmbiguousSession,
    HomeNotSearched,
    NoSession,
    NotInProject,
    StateUnreadable,
    UnknownProject,
    UnknownSession,
)
from .state import Connect, Lineages, Session, State, explain, read_projects, read_sessions
from .text import one_line

OWNER_SURFACES = frozenset({"desktop", "tui", "cli", "acp", "oneshot", "api_server"})
WEBHOOKS = frozenset({"webhook", "msgraph_webhook"})
INTERNAL = frozenset({"subagent", "tool", "kanban"})  # never conversations of a person

CANDIDATES = 6
MAX_NAME = 4_096  # characters; what is longer names nothing

Titles = Callable[[Iterable[str]], dict[str, str]]


class Reach(IntEnum):
    """How much of the profile a caller may read; the strictest evidence counts."""

    NOTHING = 0
    OWN_CHAT = 1
    PROFILE = 2


@dataclass(frozen=True, slots=True)
class Live:
    """What the host says of the running turn; "" where it says nothing.

    `session_id` is the row that calls. `ui_session_id` is set inside a desktop
    or TUI turn only. The others are the messaging gateway's.
    """

    session_id: str = ""
    platform: str = ""
    source: str = ""
    chat_type: str = ""
    user_id: str = ""
    session_key: str = ""
    ui_session_id: str = ""


@dataclass(frozen=True, slots=True)
class Caller:
    """`session_id` is the calling row, `acting_id` the row a subagent acts for (else the same)."""

    session_id: str
    acting_id: str
    reach: Reach
    session_key: str


@dataclass(frozen=True, slots=True)
class Scope:
    """The rows a search may read, and what it may say of the rest.

    `rows` holds every readable row by id; `conversations` counts lineages.
    `hidden` and `no_folder` count conversations left out, for owners only.
    """

    caller: Caller
    project: ProjectRef
    rows: dict[str, Session]
    conversations: int
    hidden: int
    no_folder: int
    everywhere: Everywhere


class Conversations:
    """What the session rows of a profile say by themselves, whosever they are. Never changed once made.

    internal: roots of no person's conversations: subagents, tools and kanban workers
    kept: roots of those whose messages may be found at all, in their order
    standing: (cwd, repository root) to the roots of the conversations there, the internal ones left out
    """

    def __init__(self, sessions: Sequence[Session]) -> None:
        self.lineages = Lineages(sessions)
        self.roots = self.lineages.roots()
        root = self.lineages.root
        self.internal = frozenset(root(s.id) for s in sessions if s.source in INTERNAL or s.delegate_from)
        self.hidden = frozenset(root(s.id) for s in sessions if s.hidden)
        out = self.internal | self.hidden
        self.kept = dict.fromkeys(one for one in self.roots if one not in out).keys()
        self.standing: dict[tuple[str, str], list[str]] = {}
        for one in self.roots:
            if one not in self.internal:
                self.standing.setdefault(self.lineages.place(one), []).append(one)


class Everywhere:
    """All conversations of a profile with their projects, as one caller may see them."""

    def __init__(self, conversations: Conversations, attribution: Attribution, projects: list[Project]) -> None:
        self._conversations = conversations
        self.lineages = conversations.lineages
        self.by_id = self.lineages.by_id
        self.roots = conversations.roots
        self.projects = projects
        self._attribution = attribution

    def ref(self, session_id: str) -> ProjectRef:
        """The project of the conversation a row belongs to."""
        return self._attribution.resolve(*self.lineages.place(session_id))

    def standing(self) -> Iterator[tuple[ProjectRef, list[str]]]:
        """The roots of people's conversations, by where they stand; a project may come more than once."""
        for place, roots in self._conversations.standing.items():
            yield self._attribution.resolve(*place), roots

    def at(self, folder: str) -> ProjectRef:
        """The project a conversation standing in `folder` would belong to."""
        return self._attribution.resolve(folder, None)

    def is_internal(self, root: str) -> bool:
        """Subagents, tools and kanban workers: no conversation of a person."""
        return root in self._conversations.internal

    def is_hidden(self, root: str) -> bool:
        return root in self._conversations.hidden

    def kept(self) -> KeysView[str]:
        """Roots of the conversations whose messages may be found at all."""
        return self._conversations.kept

    def readable(self, caller: Caller) -> Iterable[str]:
        """Roots of the conversations this caller may read, whatever their project."""
        for root in self.roots:
            if not self.is_internal(root) and not self.is_hidden(root) and self.may_read(caller, root):
                yield root

    def may_read(self, caller: Caller, session_id: str) -> bool:
        if caller.reach is Reach.PROFILE:
            return True
        if caller.reach is Reach.NOTHING:
            return False
        root = self.lineages.root(session_id)
        if root == self.lineages.root(caller.acting_id):
            return True
        return bool(caller.session_key) and all(
            self.by_id[m].session_key == caller.session_key for m in self.lineages.members(root)
        )


class Disk(Protocol):
    """Where a call reads, and how the disk decides what belongs to whom (see `host.Host`)."""

    @property
    def home(self) -> Path: ...
    @property
    def connect(self) -> Connect: ...
    def find_roots(self, cwd: str) -> Roots | None: ...
    def junk_root(self, path: str) -> bool: ...
    def junk_cwd(self, path: str) -> bool: ...


# What was made of a home's session rows last. The rows are read anew for every call; seldom have they changed.
_known: dict[Path, tuple[list[tuple[Any, ...]], Conversations]] = {}
MAX_KNOWN = 4  # homes


def _conversations(home: Path, rows: list[tuple[Any, ...]]) -> Conversations:
    known = _known.get(home)
    if known is not None and known[0] == rows:
        return known[1]
    made = Conversations(read_sessions(rows))
    while len(_known) >= MAX_KNOWN and home not in _known:
        _known.pop(next(iter(_known)), None)
    _known[home] = (rows, made)
    return made


@contextlib.contextmanager
def reading(disk: Disk, deadline: float) -> Iterator[tuple[State, Everywhere]]:
    """The rows of a home and whose they are, as they are now. Raises `StateUnreadable`."""
    with State(disk.home, deadline=deadline, connect=disk.connect) as state:
        try:
            projects = read_projects(disk.home, disk.connect)
            attribution = Attribution(
                projects,
                disk.find_roots,
                junk_root=disk.junk_root,
                junk_cwd=disk.junk_cwd,
                exists=os.path.isdir,
            )
            yield state, Everywhere(_conversations(disk.home, state.session_rows()), attribution, projects)
        except sqlite3.Error as error:
            raise StateUnreadable(explain(error)) from error


def identify(live: Live, everywhere: Everywhere, settings: Settings) -> Caller:
    """The caller: the strictest of the live variables, the calling row and its delegating ancestors."""
    if not live.session_id:
        raise NoSession("The host did not say which conversation calls; call this from inside a conversation.")
    row = everywhere.by_id.get(live.session_id)
    if row is None:
        raise NoSession(f"Conversation {live.session_id[:80]!r} is not stored here yet; try again after this turn.")
    chain = [row]
    while chain[-1].delegate_from or chain[-1].source == "subagent":
        parent = everywhere.by_id.get(chain[-1].delegate_from) or everywhere.by_id.get(chain[-1].parent_id)
        if parent is None or parent in chain:
            break
        chain.append(parent)
    acting = chain[-1]
    evidence = [
        _reach(r.source, r.user_id, r.chat_type, settings) for r in chain if r.source != "subagent"
    ]
    # 0.19 does not say what kind of chat is live; the row does.
    chat_type = live.chat_type or acting.chat_type
    evidence += [_reach(live.platform, live.user_id, chat_type, settings)] if live.platform else []
    evidence += [_reach(live.source, live.user_id, chat_type, settings)] if live.source else []
    reach = min(evidence, default=Reach.OWN_CHAT)
    if live.ui_session_id and (not live.platform or live.platform in OWNER_SURFACES):
        reach = Reach.PROFILE  # a desktop may continue any conversation
    key = acting.session_key
    if live.platform and live.platform not in OWNER_SURFACES and live.session_key:
        key = live.session_key if key in ("", live.session_key) else ""
    return Caller(row.id, acting.id, reach, key)


def _reach(surface: str, user_id: str, chat_type: str, settings: Settings) -> Reach:
    surface = surface.lower()
    if surface in WEBHOOKS:
        return Reach.NOTHING
    if surface in OWNER_SURFACES:
        return Reach.PROFILE
    if chat_type == "dm" and user_id and f"{surface}:{user_id}" in settings.owner_chats:
        return Reach.PROFILE
    return Reach.OWN_CHAT


def owner() -> Caller:
    """The person at the command line: everything of the profile, no conversation of their own."""
    return Caller("", "", Reach.PROFILE, "")


def choose_project(named: str | None, caller: Caller, everywhere: Everywhere) -> ProjectRef:
    """The project a search is about: the named one, or the caller's own."""
    if named is None:
        return everywhere.ref(caller.acting_id) if caller.acting_id else HOME
    if caller.reach is not Reach.PROFILE:
        raise UnknownProject("From a chat only the chat's own conversations can be searched: leave `project` out.")
    name = named.strip()[:MAX_NAME]
    if name.casefold() == "home":
        raise HomeNotSearched(
            "Home holds conversations without a folder and is not searched; name a project, or leave `project` out."
        )
    projects = [p for p in everywhere.projects if not p.archived]
    for matches in (
        [p for p in projects if p.id == name],
        [p for p in projects if p.slug == name.lower()],
        [p for p in projects if p.name.strip().casefold() == name.casefold()],
    ):
        if len(matches) > 1:
            raise AmbiguousProject(
                f"{len(matches)} projects are named {name[:80]!r}: use one of these ids.",
                candidates=[{"id": p.id, "name": p.name, "folder": p.primary_path} for p in matches[:CANDIDATES]],
            )
        if matches:
            p = matches[0]
            return ProjectRef("explicit", p.id, p.name, p.id, p.primary_path or "")
    automatic = {
        ref.key: ref for root in everywhere.readable(caller) if (ref := everywhere.ref(root)).kind == "auto"
    }
    if (key := f"auto:{path_key(name)}") in automatic:
        return automatic[key]
    named_so = [ref for ref in automatic.values() if ref.name.casefold() == name.casefold()]
    if len(named_so) == 1:
        return named_so[0]
    if named_so:
        raise AmbiguousProject(
            f"{len(named_so)} repositories are named {name[:80]!r}: use one of these paths.",
            candidates=[{"id": ref.id, "name": ref.name} for ref in named_so[:CANDIDATES]],
        )
    archived = any(name in (p.id, p.slug, p.name) for p in everywhere.projects if p.archived)
    raise UnknownProject(
        f"Project {name[:80]!r} is archived and owns no conversations."
        if archived
        else f"No project has the id, slug, name or path {name[:80]!r}; these exist.",
        candidates=with_conversations(caller, everywhere),
    )


def with_conversations(caller: Caller, everywhere: Everywhere) -> list[dict[str, Any]]:
    """The projects that own most of what this caller may read, for an answer that asks for a name."""
    counts: dict[str, tuple[ProjectRef, int]] = {}
    for root in everywhere.readable(caller):
        ref = everywhere.ref(root)
        if ref.kind != "home":
            counts[ref.key] = (ref, counts.get(ref.key, (ref, 0))[1] + 1)
    most = sorted(counts.values(), key=lambda pair: -pair[1])[:CANDIDATES]
    return [{"id": ref.id, "name": ref.name, "conversations": count} for ref, count in most]


def session_token(given: str) -> str:
    """The id in `ID`, `ID#message`, `@session:ID` or `@session:profile/ID`."""
    token = given.strip().removeprefix("@session:").rpartition("/")[2]
    return token.partition("#")[0].strip()


def shown_id(session_id: str) -> str:
    """An id as answers write it. Clients of the API server choose their own, of any characters."""
    return one_line(session_id, 400)


class Ids:
    """Some rows' ids, looked up as they are written: whole, by a beginning, or as an answer shows them."""

    def __init__(self, ids: Iterable[str]) -> None:
        self._sorted = sorted(ids)
        self._shown: dict[str, list[str]] | None = None

    def matching(self, given: str) -> list[str]:
        """The one that is meant, or all that begin so."""
        tokens = _readings(given)
        for token in tokens:
            at = bisect_left(self._sorted, token)
            found = []
            while at < len(self._sorted) and self._sorted[at].startswith(token):
                found.append(self._sorted[at])
                at += 1
            if found:
                return found[:1] if found[0] == token else found
        if self._shown is None:
            self._shown = {}
            for session_id in self._sorted:
                self._shown.setdefault(shown_id(session_id), []).append(session_id)
        return next((self._shown[token] for token in tokens if token in self._shown), [])


def _readings(given: str) -> list[str]:
    """What of `[@session:][profile/]ID[#message]` may be the id, the longest first: it may hold any of these itself."""
    linked = given.strip().removeprefix("@session:")
    whole = [given.strip(), linked, linked.partition("/")[2]]
    cut = [token.rpartition("#")[0].strip() for token in whole]
    return list(dict.fromkeys(filter(None, [*whole, *cut, session_token(given)])))


def choose_session(given: str, caller: Caller, everywhere: Everywhere, titles: Titles) -> str:
    """The root of the one readable conversation a whole id or unique prefix names."""
    token = session_token(given)
    readable = Ids(m for root in everywhere.readable(caller) for m in everywhere.lineages.members(root))
    roots = sorted({everywhere.lineages.root(m) for m in readable.matching(given)})
    if len(roots) == 1:
        return roots[0]
    if not roots:
        raise UnknownSession(f"No conversation you may read has an id beginning with {token[:80]!r}.")
    named = titles(roots[:CANDIDATES])
    raise AmbiguousSession(
        f"{len(roots)} conversations begin with {token[:80]!r}: give more of the id.",
        candidates=[{"session_id": r, "title": named.get(r, "")} for r in roots[:CANDIDATES]],
    )


def resolve(
    caller: Caller,
    everywhere: Everywhere,
    ref: ProjectRef,
    *,
    session: str | None = None,
    exclude: Sequence[str] = (),
    titles: Titles = lambda _: {},
) -> Scope:
    """The scope of one search in project `ref`. Raises the errors of `choose_session`."""
    owners = caller.reach is Reach.PROFILE
    roots, hidden, no_folder = set[str](), 0, 0
    for at, there in everywhere.standing():
        if at.kind == "home":
            no_folder += len(there)
        elif at.key == ref.key:
            may = {root for root in there if owners or everywhere.may_read(caller, root)}
            roots |= may & everywhere.kept()
            hidden += len(may - everywhere.kept())
    if session is not None and ref.kind != "home":
        root = choose_session(session, caller, everywhere, titles)
        if root not in roots:
            at = everywhere.ref(root)
            where = "Home" if at.kind == "home" else f"project {at.name[:80]!r}" if owners else "another project"
            hint = f"; add `project: {at.id[:400]!r}` to read it" if owners and at.kind != "home" else ""
            raise NotInProject(f"That conversation belongs to {where}, not to this project{hint}.")
        roots = {root}
    left_out, ids = set[str](), Ids(everywhere.by_id if exclude else ())
    for given in dict.fromkeys(exclude):
        found = ids.matching(given)
        # One that names nothing, or too much, excludes nothing.
        if len({everywhere.lineages.root(s) for s in found}) == 1:
            left_out |= everywhere.lineages.with_branches(found[0])
    rows = {
        m: everywhere.by_id[m] for root in roots for m in everywhere.lineages.members(root) if m not in left_out
    }
    return Scope(
        caller,
        ref,
        rows,
        len({everywhere.lineages.root(m) for m in rows}),
        hidden if owners else 0,
        no_folder if owners else 0,
        everywhere,
    )


def via(session: Session, name: str | None) -> str:
    """Where text comes from that others may have written, or "" for the owner's own surfaces."""
    if session.source in OWNER_SURFACES or session.source == "cron":
        return ""
    return " ".join(part for part in (session.source, session.chat_type, name or "") if part)
