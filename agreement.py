"""What a person is told before anything is sent to an endpoint, and what their yes then covers.

A request is for one project, and stands for what `consent.Key` holds. Its id is
derived and nothing is kept of it: whoever hears one looks through all projects
for the one it means. Texts for people come from the settings and the rows alone,
never from an argument. Nothing here asks anybody; the host does, and its answer
is handed in.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from .attribution import ProjectRef
from .config_schema import Endpoint, Settings
from .consent import Decision, Declined, Grant, Grants, Key, decide
from .scope import Caller, Everywhere, Reach
from .state import State
from .text import one_line

Said = Literal["accepted", "declined", "nobody_present"]
Ask = Callable[[str, str], Said]  # a short question and what lies behind it, in; raises nothing

SENDS = "what you and the assistant said there, cut into pieces and with known secrets taken out, and search queries"
KEEPS = "tool output, system prompts, files, other projects, hidden conversations; titles and names"
COUNT_S = 1.0  # for counting the characters of a project
COUNTED_AT_ONCE = 50
KEPT_S = 60.0
FOLDERS = 6  # told one by one

declined = Declined()
_measured: dict[str, tuple[float, list[Folder]]] = {}  # by request id, which no two homes share


class Place(Protocol):
    """Where grants lie, and on which machine (see `host.Host`)."""

    @property
    def home(self) -> Path: ...
    @property
    def settings(self) -> Settings: ...
    def machine_id(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Folder:
    """What of a project stands in one folder. `characters` is about right where not all could be counted in time."""

    path: str
    conversations: int
    messages: int
    characters: int


@dataclass(frozen=True, slots=True)
class Request:
    """One project whose texts an endpoint would get. `roots` are its conversations now."""

    endpoint: Endpoint
    project: ProjectRef
    key: Key
    id: str
    roots: tuple[str, ...]

    def give(self, grants: Grants, everywhere: Everywhere) -> Grant:
        """Keep the yes. Raises `ConsentNotKept`."""
        newest = max((row.started_at for row in everywhere.by_id.values()), default=0.0)
        return grants.give(self.key, self.roots, newest=newest)


def grants_of(place: Place) -> Grants:
    folder = place.home / "plugin-data" / "project-history-recall"
    return Grants(folder, folder / ".cache", place.machine_id())


def key_of(endpoint: Endpoint, project: ProjectRef, everywhere: Everywhere) -> Key:
    """Raises ValueError for Home."""
    folders = next((p.folders for p in everywhere.projects if p.id == project.id), ())
    return Key.of(endpoint, project, folders if project.kind == "explicit" else ())


def keys_of(endpoint: Endpoint, project: ProjectRef, caller: Caller, everywhere: Everywhere) -> tuple[Key, ...]:
    """Of a searched project and, for the query, of the calling conversation's own when it has one."""
    refs = [project, *([everywhere.ref(caller.acting_id)] if caller.acting_id else [])]
    return tuple(dict.fromkeys(key_of(endpoint, ref, everywhere) for ref in refs if ref.kind != "home"))


def requests(
    endpoint: Endpoint, grants: Grants, everywhere: Everywhere, only: Iterable[Key] | None = None
) -> list[Request]:
    """The projects that would need a yes: without a grant, or with conversations that came in since.

    `only` restricts them to those of some keys.
    """
    if not endpoint.needs_grant:
        return []
    wanted = None if only is None else set(only)
    owned: dict[str, list[str]] = {}
    refs: dict[str, ProjectRef] = {}
    for root in everywhere.kept():
        ref = everywhere.ref(root)
        if ref.kind != "home":
            refs[ref.key] = ref
            owned.setdefault(ref.key, []).append(root)
    found = []
    for project, roots in owned.items():
        key = key_of(endpoint, refs[project], everywhere)
        if wanted is not None and key not in wanted:
            continue
        grant = grants.load(key)
        stands = decide(endpoint, key, grant) is Decision.ALLOW and grant is not None
        if stands and grant and all(grant.admits(root, everywhere.by_id[root].started_at) for root in roots):
            continue
        found.append(Request(endpoint, refs[project], key, grants.request_id(key), tuple(roots)))
    return found


def told(request: Request, state: State, everywhere: Everywhere) -> dict[str, Any]:
    """What the answer of a search says of a request, for owners only."""
    folders = measure(request, state, everywhere)
    shown = [
        {
            "folder": one_line(f.path, 200),
            "conversations": f.conversations,
            "messages": f.messages,
            "characters": f.characters,
        }
        for f in folders[:FOLDERS]
    ]
    return {
        "request_id": request.id,
        "provider": one_line(request.endpoint.base_url, 200),
        "model": one_line(request.endpoint.model),
        "project": one_line(request.project.name),
        "sends": SENDS,
        "does_not_send": KEEPS,
        "folders": shown,
        **({"more_folders": len(folders) - FOLDERS} if len(folders) > FOLDERS else {}),
    }


def question(request: Request, state: State, everywhere: Everywhere) -> tuple[str, str]:
    """The same as a person is asked it: the question, and what it means."""
    folders = measure(request, state, everywhere)
    messages, characters = sum(f.messages for f in folders), sum(f.characters for f in folders)
    where = one_line(request.endpoint.base_url, 120)
    return (
        f"Send this project's conversations to {one_line(request.endpoint.host)}?",
        f"Project {one_line(request.project.name)!r}: {len(request.roots)} conversations, {messages} messages, about"
        f" {characters} characters in {len(folders)} folder{'s' * (len(folders) != 1)}, and its new ones, would go to"
        f" {where} (model {one_line(request.endpoint.model)}) to be searched by meaning. Sent: {SENDS}."
        f" Not sent: {KEEPS}. Any Allow is remembered; `/project-history consent revoke` takes it back.",
    )


def measure(request: Request, state: State, everywhere: Everywhere) -> list[Folder]:
    """How much a yes would cover, by folder, the largest first; characters extrapolated when time is short.

    Kept for a minute: every search tells it while a request stands open.
    """
    at, known = _measured.get(request.id, (0.0, []))
    if request.id and time.monotonic() - at < KEPT_S and known:
        return known
    counts, characters, sample = dict[str, int](), 0, 0
    rows = {m: root for root in request.roots for m in everywhere.lineages.members(root)}
    for session, messages in state.said_counts(list(rows)):
        counts[rows[session]] = counts.get(rows[session], 0) + messages
    until, names = time.monotonic() + COUNT_S, list(rows)
    for start in range(0, len(names), COUNTED_AT_ONCE):
        if time.monotonic() > until:
            break
        try:
            for _, messages, length in state.said_lengths(names[start : start + COUNTED_AT_ONCE]):
                sample += messages
                characters += length
        except sqlite3.OperationalError:  # the time of the whole call is up
            break
    each = characters / sample if sample else 0.0
    found: dict[str, list[int]] = {}
    for root in request.roots:
        ref = everywhere.ref(root)
        folder = found.setdefault(ref.because or ref.id, [0, 0])
        folder[0] += 1
        folder[1] += counts.get(root, 0)
    folders = [Folder(path, n, messages, round(messages * each)) for path, (n, messages) in found.items()]
    folders.sort(key=lambda f: (-f.messages, f.path))
    if request.id:
        _measured[request.id] = (time.monotonic(), folders)
    return folders


# -- within a search -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Questions:
    """What a person is to be asked before a search, read from the rows and held without them: they may take long."""

    wanted: Sequence[Request]
    texts: Sequence[tuple[str, str]]
    caller: Caller
    place: Place
    everywhere: Everywhere

    def put(self, ask: Ask) -> str:
        """Ask for each, once a conversation; a sentence on how it came out. Raises `ConsentNotKept`."""
        if not self.wanted:
            return "There is nothing to agree to: what would be sent is agreed to already."
        if self.caller.reach is not Reach.PROFILE or self.caller.session_id != self.caller.acting_id:
            return "Nobody was asked: only the owner can agree, at the desktop, the TUI or the terminal."
        home, session = self.place.home, self.caller.session_id
        for request, text in zip(self.wanted, self.texts, strict=True):
            if not declined.first(home, session, request.key):
                return "The user was asked already in this conversation and did not agree. Do not ask again."
            said = ask(*text)
            if said == "declined":
                return "The user declined: nothing was sent. Do not ask again in this conversation."
            declined.again(home, session, request.key)
            if said == "nobody_present":
                return f"Nobody could be asked here. The user can type `/project-history allow {request.id}`."
            request.give(grants_of(self.place), self.everywhere)
        return f"The user agreed: this project's texts are sent to {self.wanted[0].endpoint.host} from now on."


def hint(wanted: Sequence[Request]) -> str:
    """What an agent can do about requests that stand open."""
    ids = " and ".join(f"`/project-history allow {request.id}`" for request in wanted)
    return (
        "To search by meaning with it, tell the user what would be sent (`consent`), and when they agree call again"
        f" with `ask_semantic_consent: true`, which asks them; or they type {ids}."
    )


# -- within a move ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sendable:
    """A conversation that a move would bring under a grant, and how to ask a person and keep their yes."""

    question: tuple[str, str]
    warning: str
    admit: Callable[[], object]


def sendable(
    target: ProjectRef, root: str, place: Place, state: State, everywhere: Everywhere
) -> Sendable | None:
    """What a move of `root` into `target` makes sendable; None where nothing becomes so."""
    endpoint = place.settings.endpoint
    if endpoint is None or not endpoint.needs_grant or target.kind == "home":
        return None
    grants, key = grants_of(place), key_of(endpoint, target, everywhere)
    grant = grants.load(key)
    if decide(endpoint, key, grant) is Decision.ASK or grant is None or root in grant.conversations:
        return None
    moved = Request(endpoint, target, key, "", (root,))
    folders = measure(moved, state, everywhere)
    messages, characters = sum(f.messages for f in folders), sum(f.characters for f in folders)
    what = f"{messages} messages (about {characters} characters) may then be sent to {one_line(endpoint.host)}"
    return Sendable(
        (
            f"Move a conversation into project {one_line(target.name)!r}, whose texts are sent away?",
            f"Its {what}, which a person agreed to for that project. Sent: {SENDS}. Not sent: {KEEPS}."
            " `/project-history consent revoke` takes the agreement back.",
        ),
        f"Its {what}.",
        lambda: grants.admit(key, [root]),
    )
