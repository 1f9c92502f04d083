"""Move a conversation to another project, and its working directory with it; take that back.

Nothing here writes a row. The host's own `session.workspace.move` does, reached
through callables, and a move counts only when the row read back afterwards belongs
to the project. Every move is one line of an append-only journal; undo reads it.
The row is the only truth: the journal says where a conversation was put, never
where it is.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from .agreement import Ask, Sendable, sendable
from .agreement import Place as Consents
from .attribution import HOME, ProjectRef
from .errors import (
    AlreadyThere,
    AmbiguousFolder,
    BadArgument,
    CannotUndo,
    FolderMissing,
    MoveFailed,
    NotAllowedHere,
    NotConfirmed,
    NothingToUndo,
    ProjectHasNoFolder,
    RecallError,
    UnknownSession,
    UnsupportedHere,
)
from .request import flag, string
from .scope import Caller, Disk, Everywhere, Reach, choose_project, choose_session, reading, shown_id
from .state import State
from .text import one_line

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

DEADLINE_S = 23.0  # for the lock and the calls; ending a gateway and reading back come after it
RETRY_LEAST_S = 5.0  # without that much time left there is no second attempt
LOOK_S = 2.0  # for reading back
LOCK_POLL_S = 0.05
JOURNAL = "moves.jsonl"

# A call of the host's method: its parameters and a `time.monotonic()` instant in, the JSON-RPC answer out.
# Raises MoveFailed when there is none.
Call = Callable[[Mapping[str, str], float], Mapping[str, Any]]


class Surroundings(Disk, Consents, Protocol):
    """Where a move reads, and where consents lie (see `host.Host`)."""


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of `project_session_move`, parsed."""

    project: str | None
    session: str | None
    undo: bool

    @classmethod
    def parse(cls, args: Mapping[str, Any]) -> Request:
        project, session, undo = string(args, "project"), string(args, "session_id"), flag(args, "undo")
        if undo and project:
            raise BadArgument("`undo` takes the last move back; it goes without `project`.")
        if not undo and not project:
            raise BadArgument("Name the project to move to in `project` (id, slug, name, or home), or say `undo`.")
        return cls(project, session, undo)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a conversation stands: the columns of the row that decides, and whose that is."""

    project: ProjectRef
    cwd: str
    branch: str
    git_repo_root: str

    def told(self) -> dict[str, Any]:
        project = {"kind": self.project.kind, "id": self.project.id, "name": self.project.name}
        return {
            "project": {k: one_line(v, 400 if k == "id" else 80) for k, v in project.items()},
            "cwd": one_line(self.cwd, 400),
            "branch": one_line(self.branch),
            "git_repo_root": one_line(self.git_repo_root, 400),
        }


@dataclass(frozen=True, slots=True)
class MovePlan:
    """What is to be done. `keys` are the rows to move, in this order; the last is the tip.

    `own` is true for the calling conversation; `live_key` is what its session goes by while it
    is live. `undoes` is the journal id of the move taken back. `sendable` is there when the
    target's texts may be sent to an endpoint: then a person is asked first.
    """

    keys: tuple[str, ...]
    live_key: str
    folder: str
    target: ProjectRef
    before: Place
    own: bool
    undoes: str
    warnings: tuple[str, ...]
    sendable: Sendable | None = None

    @property
    def session_id(self) -> str:
        return self.keys[-1]


@dataclass(frozen=True, slots=True)
class Ways:
    """What the host lends a move.

    `loaded` calls the gateway of this very process and is there inside a desktop or
    TUI turn only; `live_key` is the row that turn's session goes by. `child` calls a
    short-lived gateway over the same home. `terminal_cwd` is the folder the next
    command of a session live in this process starts in. `folder` holds the journal.
    `ask` puts a question to the person in front of the call.
    """

    folder: Path
    surface: str = ""
    loaded: Call | None = None
    live_key: str = ""
    child: Call | None = None
    terminal_cwd: Callable[[str], str | None] = lambda _: None
    ask: Ask = lambda *_: "nobody_present"

    @property
    def journal(self) -> Journal:
        return Journal(self.folder / JOURNAL)


def run(
    args: Mapping[str, Any],
    surroundings: Surroundings,
    identify: Callable[[Everywhere], Caller],
    ways: Ways,
    *,
    task: str = "",
    dry_run: bool = False,
) -> dict[str, Any]:
    """Answer one call. `task` is the row whose agent makes it, when the host names one."""
    request = Request.parse(args)
    deadline = time.monotonic() + DEADLINE_S

    def planned() -> MovePlan:
        with reading(surroundings, deadline) as (state, everywhere):
            caller = identify(everywhere)
            check_caller(caller, everywhere, task)
            given = request.session
            root = everywhere.lineages.root(caller.acting_id)
            if given is not None:
                root = choose_session(given, caller, everywhere, state.titles)
            elif not caller.acting_id:
                raise BadArgument("Name the conversation to move.")
            decided = plan(request, root, caller, everywhere, _before(state, everywhere, root), ways)
            return replace(decided, sendable=sendable(decided.target, root, surroundings, state, everywhere))

    first = planned()
    if dry_run:
        return _answer(first, first.target, None, moved=False, followed=False)
    if first.sendable:
        _ask(first.sendable, ways)
        deadline = time.monotonic() + DEADLINE_S
    with locked(ways.folder, deadline):
        # Planned again: another move may have been carried out, or a consent given, in between.
        last = planned()
        if last.sendable and not (first.sendable and first.target.key == last.target.key):
            raise NotConfirmed("The texts of that project may be sent away by now: try again, and a person is asked.")
        answer = _carry_out(last, surroundings, ways, deadline)
    if last.sendable:
        last.sendable.admit()
    return answer


def _ask(sendable: Sendable, ways: Ways) -> None:
    match ways.ask(*sendable.question):
        case "accepted":
            return
        case "declined":
            raise NotConfirmed("The user does not want it sent, so it was not moved.")
    raise NotConfirmed(
        f"{sendable.warning} Only a person can agree to that, and none could be asked here: move it from a"
        " conversation at the desktop, the TUI or the terminal."
    )


# -- deciding ---------------------------------------------------------------


def check_caller(caller: Caller, everywhere: Everywhere, task: str) -> None:
    """Raise NotAllowedHere unless a person's own conversation, or a person, asks."""
    if caller.reach is not Reach.PROFILE:
        raise NotAllowedHere(
            "Nothing is moved from chats, webhooks or scheduled runs: the owner can do it from the desktop, the TUI,"
            " the command line, or a direct chat listed in `owner_chats`."
        )
    if not caller.session_id:
        return  # a person at the command line
    lineages = everywhere.lineages
    if caller.session_id != caller.acting_id or everywhere.is_internal(lineages.root(caller.session_id)):
        raise NotAllowedHere("A subagent moves nothing: let the conversation that started it make the move.")
    if lineages.root(task) != lineages.root(caller.session_id):
        raise NotAllowedHere("Call this tool directly: from inside a program or a subagent nothing is moved.")


def plan(
    request: Request, root: str, caller: Caller, everywhere: Everywhere, before: Place, ways: Ways
) -> MovePlan:
    """Decide what a move of the conversation `root` takes, or raise why it cannot be."""
    own = bool(caller.acting_id) and root == everywhere.lineages.root(caller.acting_id)
    if request.undo:
        target, folder, undoes, warnings = _undo_target(root, everywhere, before, ways)
    else:
        assert request.project
        target, folder = _target(request.project, caller, everywhere)
        undoes, warnings = "", list[str]()
        if everywhere.ref(root).key == target.key:
            raise AlreadyThere(
                f"That conversation is in {_named(target)} already (it stands in {before.cwd or 'no folder'})."
            )
    if own and ways.loaded is None:
        tip = _keys(root, everywhere)[-1]
        raise UnsupportedHere(
            "This conversation's own agent would go on working in the old folder here, so it is not moved. It can be"
            " moved from the desktop or TUI of Hermes 0.20 or newer, or, once closed, from another conversation or"
            f" with `project-history-recall move`; `hermes --resume {tip}` then starts in the new folder."
        )
    if ways.loaded is None and ways.child is None:
        raise UnsupportedHere(
            "Hermes is not installed in this Python, and only Hermes itself moves a conversation: run this in its"
            " environment, or move it from the Hermes desktop."
        )
    branches = sum(len(everywhere.lineages.branches.get(m, [])) for m in everywhere.lineages.members(root))
    if branches:
        warnings.append(f"Branches taken from it stay where they are ({branches}).")
    if everywhere.by_id[root].source == "acp":
        warnings.append("An editor that opens it again puts its own folder back.")
    keys = _keys(root, everywhere, *((ways.live_key, caller.session_id) if own else ()))
    live_key = ways.live_key if own else keys[-1]
    return MovePlan(keys, live_key, folder, target, before, own, undoes, tuple(warnings))


def _target(named: str, caller: Caller, everywhere: Everywhere) -> tuple[ProjectRef, str]:
    """The project a name means, and the folder a conversation of it is moved to."""
    if named.casefold() == "home":
        folder = os.path.expanduser("~")
        at = everywhere.at(folder)
        if at.kind != "home":
            raise AmbiguousFolder(f"The home directory belongs to {_named(at)}: what stands there is not in Home.")
        return HOME, folder
    ref = choose_project(named, caller, everywhere)
    folder = ref.id
    if ref.kind == "explicit":
        project = next(p for p in everywhere.projects if p.id == ref.id)
        folder = project.primary_path or next(iter(project.folders), "")
        if not folder:
            raise ProjectHasNoFolder(f"{_named(ref)} has no folder: add one to it first.")
    if not os.path.isdir(folder):
        raise FolderMissing(f"{folder} is not a folder on this machine: restore it, or change the project's folder.")
    at = everywhere.at(folder)
    if at.key != ref.key:
        raise AmbiguousFolder(
            f"{folder} belongs to {_named(at)} by {at.because or 'its place'}, so a conversation moved there would not"
            f" be in {_named(ref)}: move it to {_named(at)}, or give the project a folder of its own."
        )
    return at, folder


def _undo_target(
    root: str, everywhere: Everywhere, before: Place, ways: Ways
) -> tuple[ProjectRef, str, str, list[str]]:
    """Where the last move of a conversation came from, if the conversation is still where it was put."""
    last = ways.journal.last(everywhere.lineages.members(root))
    if last is None:
        raise NothingToUndo("No move of that conversation is left to take back.")
    if before.cwd != last.to.cwd:
        raise CannotUndo(
            f"It was moved to {last.to.cwd} and now stands in {before.cwd or 'no folder'}: something else has moved it"
            " since. Name the project it belongs to in `project`."
        )
    homeless = not (last.source.cwd or last.source.root)
    folder = os.path.expanduser("~") if homeless else last.source.cwd or last.source.root
    if not os.path.isabs(folder) or not os.path.isdir(folder):
        raise CannotUndo(f"It came from {folder}, which is gone: name another project in `project`.")
    target, warnings = everywhere.at(folder), list[str]()
    if homeless and target.kind != "home":
        raise CannotUndo(f"It had no folder, and the home directory belongs to {_named(target)} now.")
    if (target.kind, target.id) != (last.source.kind, last.source.project):
        warnings.append(f"The folder it came from belongs to {_named(target)} by now.")
    return target, folder, last.id, warnings


def _keys(root: str, everywhere: Everywhere, *live: str) -> tuple[str, ...]:
    """The rows to move: those the live session goes by, and the end of the lineage.

    After a compression that began a new row in mid-turn the live session still goes by
    the old one: moving either alone leaves the two apart.
    """
    members = everywhere.lineages.members(root)
    parents = {everywhere.by_id[m].parent_id for m in members}
    ends = [m for m in members if m not in parents] or members[-1:]
    keys = [key for key in live if key in members and key not in ends]
    return tuple(dict.fromkeys([*keys, *ends]))


def _named(ref: ProjectRef) -> str:
    return "Home" if ref.kind == "home" else f"project {one_line(ref.name)!r}"


# -- acting -----------------------------------------------------------------


class Seen(NamedTuple):
    """What was read back: the rows moved, where the conversation stands now, and whether all agree."""

    place: Place
    rows: Mapping[str, Row]
    ended: bool


def _carry_out(plan: MovePlan, surroundings: Disk, ways: Ways, deadline: float) -> dict[str, Any]:
    call = ways.loaded or ways.child
    assert call is not None
    for attempt in (1, 2):
        failure, answered = _call(plan, call, deadline)
        seen = _look(plan, surroundings)
        terminal = ways.terminal_cwd(plan.live_key) if ways.loaded else None
        wrong = _disagreement(plan, answered, seen, terminal) if failure is None else failure.message
        if not wrong or attempt == 2 or deadline - time.monotonic() < RETRY_LEAST_S:
            break
    warnings = list(plan.warnings)
    changed = (seen.place.project.key, seen.place.cwd) != (plan.before.project.key, plan.before.cwd)
    if changed and seen.place.project.key == plan.target.key:
        warnings += _journalled(plan, seen, ways)
    if wrong:
        now = [{"session_id": key, "cwd": row.cwd} for key, row in seen.rows.items()]
        raise MoveFailed(
            f"{wrong} The conversation is in {_named(seen.place.project)} now, in {seen.place.cwd or 'no folder'}.",
            now=now,
        )
    followed = terminal == seen.place.cwd
    if plan.own:
        warnings.append("Processes already running keep the old folder; the next command starts in the new one.")
    elif not followed and not seen.ended:
        warnings.append(
            "If that conversation is open in a running Hermes, its agent keeps working in the old folder until it is"
            f" resumed (hermes --resume {plan.session_id})."
        )
    return _answer(plan, plan.target, seen.place, moved=True, followed=followed, warnings=warnings)


def _call(plan: MovePlan, call: Call, deadline: float) -> tuple[RecallError | None, str]:
    """Have the host move every row; what went wrong, and the folder it says they stand in now.

    Raises what a second attempt would not change, as long as nothing was moved.
    """
    folder = ""
    for key in plan.keys:
        try:
            answer = call({"session_key": key, "cwd": plan.folder}, deadline)
            error, result = answer.get("error"), answer.get("result")
            if isinstance(error, Mapping):
                if error.get("code") == 4007 and key != plan.session_id:
                    continue  # the live key of a session without a row of that name
                raise refusal(error)
            if not isinstance(result, Mapping) or not isinstance(result.get("cwd"), str):
                raise MoveFailed("The host's answer to the move could not be read.")
            folder = result["cwd"]
        except RecallError as failure:
            if folder or isinstance(failure, MoveFailed):
                return failure, folder
            raise
    return None, folder


def refusal(error: Mapping[str, Any]) -> RecallError:
    """The host's JSON-RPC error as ours, with what to do about it."""
    code, said = error.get("code"), one_line(str(error.get("message") or ""), 200)
    if code == -32601:
        return UnsupportedHere(
            "This version of Hermes cannot move a conversation (0.20 and newer can): upgrade it, or begin a new"
            " conversation in the project's folder. Nothing was changed."
        )
    if code == 4007:
        return UnknownSession("The host no longer has that conversation. Nothing was changed.")
    if code == 4017:
        return FolderMissing(f"The host cannot enter the project's folder ({said}). Nothing was changed.")
    if code == 4064:
        return MoveFailed(f"The host does not know the profile of this conversation ({said}). Nothing was changed.")
    if code == 5007:
        return MoveFailed(f"The host could not write the conversation's row ({said}): try again in a moment.")
    if code == 5035:
        return MoveFailed("The host's backend is being replaced: try again in a moment.")
    return MoveFailed(f"The host refused the move ({code}: {said}).")


def _disagreement(plan: MovePlan, folder: str, seen: Seen, terminal: str | None) -> str:
    """What of the reading back is not as the host's answer says, or ""."""
    if any(row.cwd != folder for row in seen.rows.values()) or seen.place.cwd != folder:
        return "The row does not stand in the new folder: something else moved it at the same time."
    if seen.place.project.key != plan.target.key:
        return f"The host moved it to {folder}, but the row does not belong to {_named(plan.target)}."
    if terminal != folder and (plan.own or terminal is not None):
        return "The row was moved, but the agent's terminal did not follow: `undo` takes the move back."
    return ""


def _journalled(plan: MovePlan, seen: Seen, ways: Ways) -> list[str]:
    """Write the move down; a warning when that is not to be had."""
    moved = Entry(
        id=secrets.token_hex(6),
        time=datetime.now().astimezone().isoformat(timespec="seconds"),
        session=plan.session_id,
        source=Site.of(plan.before),
        to=Site.of(seen.place),
        surface=ways.surface,
        undoes=plan.undoes,
    )
    try:
        ways.journal.append(moved)
    except OSError as error:
        return [f"The move could not be written down ({error.strerror}), so undo will not know it."]
    return []


def _answer(
    plan: MovePlan,
    target: ProjectRef,
    after: Place | None,
    *,
    moved: bool,
    followed: bool,
    warnings: Collection[str] = (),
) -> dict[str, Any]:
    to = after or Place(target, plan.folder, "", "")
    sent = [plan.sendable.warning] if plan.sendable else []
    answer: dict[str, Any] = {
        "success": True,
        "moved": moved,
        "session_id": shown_id(plan.session_id),
        "from": plan.before.told(),
        "to": to.told(),
        "agent_followed": followed,
        "warnings": [one_line(w, 400) for w in [*(warnings or plan.warnings), *sent]],
    }
    if plan.undoes:
        answer["undone"] = True
    return answer


# -- reading ----------------------------------------------------------------


class Row(NamedTuple):
    cwd: str
    branch: str
    git_repo_root: str
    ended: bool



def _rows(state: State, ids: Collection[str]) -> dict[str, Row]:
    cwd, branch, root = (
        f"coalesce(s.{name}, '')" if name in state.columns.sessions else "''"
        for name in ("cwd", "git_branch", "git_repo_root")
    )
    ended = "s.ended_at IS NOT NULL" if "ended_at" in state.columns.sessions else "0"
    found = state.rows(
        f"""SELECT s.id, {cwd}, {branch}, {root}, {ended}
            FROM json_each(?) j CROSS JOIN sessions s ON s.id = j.value""",
        (json.dumps(list(ids)),),
    )
    return {row[0]: Row(row[1], row[2], row[3], bool(row[4])) for row in found}


def _before(state: State, everywhere: Everywhere, root: str) -> Place:
    members = everywhere.lineages.members(root)
    rows = _rows(state, members)
    decides = next((rows[m] for m in reversed(members) if m in rows and (rows[m].cwd or rows[m].git_repo_root)), None)
    row = decides or Row("", "", "", False)
    return Place(everywhere.ref(root), row.cwd, row.branch, row.git_repo_root)


def _look(plan: MovePlan, surroundings: Disk) -> Seen:
    # A deadline of its own: what the host did is worth knowing even when it took too long.
    with reading(surroundings, time.monotonic() + LOOK_S) as (state, everywhere):
        root = everywhere.lineages.root(plan.session_id)
        if root not in everywhere.by_id:
            raise UnknownSession("The conversation was deleted while it was being moved.")
        rows = _rows(state, plan.keys)
        return Seen(_before(state, everywhere, root), rows, all(row.ended for row in rows.values()))


# -- the journal ------------------------------------------------------------


class Site(NamedTuple):
    """A place as the journal keeps it."""

    kind: str
    project: str
    name: str
    cwd: str
    root: str

    @classmethod
    def of(cls, place: Place) -> Site:
        ref = place.project
        return cls(ref.kind, ref.id, ref.name, place.cwd, place.git_repo_root)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line. `time` is ISO 8601 with its zone; `undoes` is the id of the move it took back."""

    id: str
    time: str
    session: str
    source: Site
    to: Site
    surface: str
    undoes: str = ""

    def line(self) -> bytes:
        row = {
            "id": self.id,
            "time": self.time,
            "session": self.session,
            "from": self.source._asdict(),
            "to": self.to._asdict(),
            "surface": self.surface,
        }
        return json.dumps({**row, "undoes": self.undoes} if self.undoes else row).encode() + b"\n"

    @classmethod
    def read(cls, line: bytes) -> Entry | None:
        """None for a line that is no entry: torn, or somebody else's."""
        try:
            row = json.loads(line)
            source, to = (Site(*(str(row[side][name]) for name in Site._fields)) for side in ("from", "to"))
            names = ("id", "time", "session", "surface")
            key, when, session, surface = (str(row[name]) for name in names)
            return cls(key, when, session, source, to, surface, str(row.get("undoes", "")))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None


@dataclass(frozen=True, slots=True)
class Journal:
    """The moves of a home, oldest first. Written under the lock, read by anybody."""

    path: Path

    def append(self, entry: Entry) -> None:
        """Add one line, on the disk when this returns. Raises OSError."""
        new = not self.path.exists()
        file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            size = os.fstat(file).st_size
            # What a crash left half written stays a line of its own.
            torn = size > 0 and _last_byte(file, size) != b"\n"
            os.write(file, (b"\n" if torn else b"") + entry.line())
            os.fsync(file)
        finally:
            os.close(file)
        if new and sys.platform != "win32":
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def of(self, members: Collection[str]) -> list[Entry]:
        """What was done to one conversation, given its rows."""
        try:
            lines = self.path.read_bytes().splitlines()
        except OSError:
            return []
        entries = (Entry.read(line) for line in lines)
        return [entry for entry in entries if entry and entry.session in members]

    def last(self, members: Collection[str]) -> Entry | None:
        """The last move of a conversation that was not taken back."""
        entries = self.of(members)
        undone = {entry.undoes for entry in entries}
        return next((e for e in reversed(entries) if not e.undoes and e.id not in undone), None)


def _last_byte(file: int, size: int) -> bytes:
    os.lseek(file, size - 1, os.SEEK_SET)
    return os.read(file, 1)


def drifted(journal: Journal, caller: Caller, everywhere: Everywhere) -> dict[str, Any] | None:
    """That the calling conversation is not in the project it was last moved to, and no move says why."""
    if caller.reach is not Reach.PROFILE or not caller.acting_id:
        return None
    entries = journal.of(everywhere.lineages.members(caller.acting_id))
    if not entries:
        return None
    was, ref = entries[-1].to, everywhere.ref(caller.acting_id)
    if (was.kind, was.project) == (ref.kind, ref.id):
        return None
    told: dict[str, Any] = {
        "from": {"kind": one_line(was.kind), "id": one_line(was.project, 400), "name": one_line(was.name)},
        "since": one_line(entries[-1].time, 30),
    }
    if was.kind != "explicit" or any(p.id == was.project and not p.archived for p in everywhere.projects):
        told["put_back"] = {"tool": "project_session_move", "project": one_line(was.project or "home", 400)}
    return told


# -- the lock ---------------------------------------------------------------


@contextlib.contextmanager
def locked(folder: Path, deadline: float) -> Iterator[None]:
    """Hold the home's moves against every other thread and process. Raises MoveFailed when it takes too long."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(folder / "moves.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise MoveFailed(
            f"The folder for the journal of moves cannot be written ({error.strerror}). Nothing was changed."
        ) from error
    try:
        while not _lock(file):
            if time.monotonic() > deadline:
                raise MoveFailed("Another move is still going on: try again in a moment. Nothing was changed.")
            time.sleep(LOCK_POLL_S)
        yield
    finally:
        os.close(file)  # and with it the lock


def _lock(file: int) -> bool:
    """Whether the lock was free and is ours now."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
