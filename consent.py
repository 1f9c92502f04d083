"""What a person has agreed to send away, kept so that only a person's yes counts. Sends nothing, asks nobody.

A grant is for one endpoint, one model, one project with the folders it had, and
one version of what is sent. It is a file, and beside it, in the cache folder
that backups leave out, stands its seal: the hash of the file, of this machine
and of this place. Without that seal a grant is none, so a file that comes back
from a backup, goes to another machine or is written by hand agrees to nothing.
Whatever cannot be read exactly is no grant either, and never an error.

A program that runs as the same user can write both files; nothing here holds
against that. What holds: no argument of a tool and no recalled text is a yes.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import secrets
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from .attribution import ProjectRef, path_key
from .config_schema import Endpoint
from .errors import RecallError
from .locks import ForkLock

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

POLICY = 1  # what is sent: redacted pieces of user and assistant text, and queries. Another number asks again.
MAX_BYTES = 8_000_000  # of a grant; room for about 250,000 conversations
LOCK_S = 10.0
READING_S = 1.0  # to wait for a writer: a search has little time
LOCK_POLL_S = 0.02
BUSY_S = 1.0  # Windows replaces no file while somebody reads it


class ConsentRequired(RecallError):
    """A text may not be sent yet. `keys` says for which of them a person has to be asked."""

    code = "consent_required"

    def __init__(self, message: str, keys: tuple[Key, ...]) -> None:
        super().__init__(message)
        self.keys = keys


class ConsentWithdrawn(RecallError):
    """A grant that was there is there no more: nothing further is sent."""

    code = "consent_required"


class ConsentNotKept(RecallError):
    """The disk refused: a yes that cannot be kept is none, and a grant may still stand."""

    code = "consent_not_kept"


@dataclass(frozen=True, slots=True)
class Key:
    """What is consented to, as one value; any difference asks again.

    endpoint_url, model, dimensions: as in `Endpoint`.
    project: `ProjectRef.key`.
    folders: path keys of the project's folders, sorted, each once; an automatic project's is its root.
    """

    endpoint_url: str
    model: str
    dimensions: int | None
    project: str
    folders: tuple[str, ...]
    policy: int = POLICY

    @classmethod
    def of(cls, endpoint: Endpoint, project: ProjectRef, folders: Iterable[str] = ()) -> Key:
        """For a project as it is now; `folders` are an explicit project's. Raises ValueError for Home."""
        if project.kind == "home":
            raise ValueError("Home is no project: nothing of it is sent.")
        paths = {path_key(folder) for folder in ([project.id] if project.kind == "auto" else folders)} - {""}
        return cls(endpoint.base_url, endpoint.model, endpoint.dimensions, project.key, tuple(sorted(paths)))

    @property
    def name(self) -> str:
        """The grant's file name, without the folders: they change, and then the same file says what they were."""
        return _digest([self.endpoint_url, self.model, self.dimensions, self.project, self.policy]) + ".json"


@dataclass(frozen=True, slots=True)
class Grant:
    """A person's yes. `seal` is random, so no two grants are alike.

    granted_at: seconds since the epoch.
    conversations: roots of the lineages that were the project's then, or were moved in with a yes of their own.
    """

    endpoint_url: str
    model: str
    dimensions: int | None
    project: str
    folders: tuple[str, ...]
    policy: int
    granted_at: float
    conversations: frozenset[str]
    seal: str

    @property
    def key(self) -> Key:
        return Key(self.endpoint_url, self.model, self.dimensions, self.project, self.folders, self.policy)

    def admits(self, root: str, started_at: float | None) -> bool:
        """Whether the yes covers a conversation: it was listed, or began later. An older one was moved in since."""
        if root in self.conversations:
            return True
        return started_at is not None and math.isfinite(started_at) and started_at > self.granted_at

    def dumps(self) -> bytes:
        return json.dumps({**asdict(self), "conversations": sorted(self.conversations)}).encode("ascii")

    @classmethod
    def loads(cls, data: bytes) -> Grant | None:
        """None for anything but what `dumps` makes."""
        try:
            match json.loads(data):
                case {
                    "endpoint_url": str(url),
                    "model": str(model),
                    "dimensions": int() | None as dimensions,
                    "project": str(project),
                    "folders": [*folders],
                    "policy": int(policy),
                    "granted_at": float(granted_at),
                    "conversations": [*conversations],
                    "seal": str(seal),
                    **rest,
                } if not rest:
                    pass
                case _:
                    return None
        except (ValueError, RecursionError):
            return None
        if not all(isinstance(text, str) for text in [*folders, *conversations]) or not math.isfinite(granted_at):
            return None
        if isinstance(policy, bool) or isinstance(dimensions, bool):
            return None
        listed = frozenset(conversations)
        return cls(url, model, dimensions, project, tuple(folders), policy, granted_at, listed, seal)


class Decision(Enum):
    ALLOW = "allow"
    ASK = "ask"


def decide(endpoint: Endpoint, key: Key, grant: Grant | None) -> Decision:
    """Whether texts of `key` may go to `endpoint`. Pure; anything odd is ASK."""
    if not endpoint.needs_grant:
        return Decision.ALLOW
    asked = (key.endpoint_url, key.model, key.dimensions, key.policy)
    if asked != (endpoint.base_url, endpoint.model, endpoint.dimensions, POLICY) or not key.project:
        return Decision.ASK
    return Decision.ALLOW if isinstance(grant, Grant) and grant.key == key else Decision.ASK


class Grants:
    """The grants of one home, given on this machine. Cheap to build; opens nothing until asked.

    `folder` is the plugin's own and `cache_folder` its `.cache`; grants lie in `grants` below the one, seals in
    `seals` below the other. `machine` is any text that no other machine has (see `host.machine_id`).
    """

    def __init__(self, folder: Path, cache_folder: Path, machine: str) -> None:
        self._grants = folder / "grants"
        self._seals = cache_folder / "seals"
        self._lockfile = folder / "grants.lock"
        # The place counts too: a profile copied to be another one takes no consent with it.
        self._here = _digest([machine, os.path.normcase(os.path.realpath(folder))])

    def load(self, key: Key) -> Grant | None:
        """The grant for this project, endpoint, model and policy; `decide` then compares the folders."""
        grant = self._read(key.name)
        return grant if grant is not None and replace(key, folders=grant.folders) == grant.key else None

    def listed(self) -> list[Grant]:
        """Every grant that counts, oldest first."""
        found = [grant for name in _names(self._grants) if (grant := self._read(name)) is not None]
        return sorted(found, key=lambda grant: grant.granted_at)

    def request_id(self, key: Key) -> str:
        """What a person types to grant this key: 8 hex digits, the same in every process of this home.

        Nothing pending is stored: whoever hears an id computes those of all projects and looks which it is.
        """
        return _digest([self._here, asdict(key)])[:8]

    def give(self, key: Key, conversations: Iterable[str], *, newest: float = 0.0) -> Grant:
        """Keep a person's yes, in the place of an earlier one.

        `conversations` are the roots that are the project's now. `newest` is the latest start of any
        conversation of the home: were the clock behind it, conversations older than the yes would look younger.
        Raises `ConsentNotKept`; then nothing new is granted.
        """
        granted_at = max(time.time(), float(newest))
        grant = Grant(
            **asdict(key), granted_at=granted_at, conversations=frozenset(conversations), seal=secrets.token_hex(16)
        )
        with _telling("The consent could not be kept, and nothing is sent"), self._locked():
            self._write(grant)
        return grant

    def admit(self, key: Key, conversations: Iterable[str]) -> Grant:
        """Add conversations that a person moved in to a grant that stands.

        Raises `ConsentWithdrawn` when it stands no longer, and `ConsentNotKept`.
        """
        with _telling("The consent could not be kept; nothing more is sent than before"), self._locked():
            grant = self._look(key.name)
            if grant is None or grant.key != key:
                raise ConsentWithdrawn("The consent for this project was withdrawn meanwhile.")
            grant = replace(grant, conversations=grant.conversations | frozenset(conversations))
            self._write(grant)
        return grant

    def revoke(self, what: Key | str | None = None) -> int:
        """Withdraw: the grants of a key, those of a project (by `ProjectRef.key`), or all. Returns how many counted.

        What cannot be read well enough to say whose it is goes too. Raises `ConsentNotKept` when one may still stand.
        """
        if not self._named(what):
            return 0
        with _telling("A consent could not be withdrawn and may still stand"), self._locked():
            count = 0
            for name in self._named(what):
                written = Grant.loads(_read(self._grants / name, anyone=True) or b"")
                if isinstance(what, str) and written is not None and written.project != what:
                    continue
                count += self._look(name) is not None
                for folder in self._folders():  # the seal first: without it the rest is nothing
                    _unlink(folder / name)
            return count

    def _folders(self) -> list[Path]:
        """Where to delete. A folder that is a link is somebody else's, and nothing in it counts."""
        return [folder for folder in (self._seals, self._grants) if not folder.is_symlink()]

    def _named(self, what: Key | str | None) -> list[str]:
        """The names that are there, of seals and of grants; of a key its own alone."""
        names = {name for folder in self._folders() for name in _names(folder)}
        return sorted(names & {what.name} if isinstance(what, Key) else names)

    def _read(self, name: str) -> Grant | None:
        """The grant of a name, or None; looked at twice where somebody may be writing it just now."""
        grant = self._look(name)
        if grant is None and (self._grants / name).exists() and (self._seals / name).exists():
            with contextlib.suppress(OSError), self._locked(READING_S, os.O_RDONLY):
                grant = self._look(name)
        return grant

    def _look(self, name: str) -> Grant | None:
        """What a grant file says if its seal fits."""
        if not (_is_ours(self._grants) and _is_ours(self._seals)):
            return None
        data = _read(self._grants / name)
        seal = _read(self._seals / name)
        if data is None or seal != self._seal(data):
            return None
        grant = Grant.loads(data)
        return grant if grant is not None and grant.key.name == name else None

    def _seal(self, data: bytes) -> bytes:
        return hashlib.sha256(self._here.encode() + data).hexdigest().encode()

    def _write(self, grant: Grant) -> None:
        data, name = grant.dumps(), grant.key.name
        if len(data) > MAX_BYTES:
            raise OSError(errno.EFBIG, "it lists too many conversations")
        for folder in (self._grants, self._seals):
            _make(folder)
            if not _is_ours(folder):
                raise OSError(errno.EPERM, f"its folder {folder.name} is not this user's alone")
        # Between the two the seal is the earlier grant's and fits neither: a crash here leaves no grant.
        _replace(self._grants / name, data)
        try:
            _replace(self._seals / name, self._seal(data))
        except OSError:
            with contextlib.suppress(OSError):
                _unlink(self._seals / name)
            raise

    @contextlib.contextmanager
    def _locked(self, wait_s: float = LOCK_S, flags: int = os.O_RDWR | os.O_CREAT) -> Iterator[None]:
        """Hold the grants of this home against every writer in another thread or process. Raises OSError."""
        if flags & os.O_CREAT:
            _make(self._lockfile.parent)
        file = os.open(self._lockfile, flags | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            until = time.monotonic() + wait_s
            while not _lock(file):
                if time.monotonic() > until:
                    raise OSError(errno.EBUSY, "another process is at it")
                time.sleep(LOCK_POLL_S)
            yield
        finally:
            os.close(file)  # and with it the lock


_PERMITTED = object()


class Permit:
    """That texts of certain projects may go to one endpoint, as long as the grants for it stand.

    Only `permit` makes one, after it has found a grant for every project; an embedder that sends anything takes
    it and calls `check` before each request. Building one elsewhere is a fault of the code that does.
    """

    __slots__ = ("_grants", "_held", "endpoint")

    def __init__(
        self, endpoint: Endpoint, held: Mapping[Key, Grant], grants: Grants | None, *, made_by: object
    ) -> None:
        if made_by is not _PERMITTED:
            raise TypeError("A permit is made by consent.permit alone.")
        self.endpoint = endpoint
        self._held = dict(held)
        self._grants = grants

    def check(self) -> None:
        """Read the grants again. Raises `ConsentWithdrawn` when one is gone, even if another was given since."""
        if self._grants is None:
            return
        for key, held in self._held.items():
            grant = self._grants.load(key)
            if decide(self.endpoint, key, grant) is Decision.ASK or grant is None or grant.seal != held.seal:
                raise ConsentWithdrawn("The consent to send this project's texts was withdrawn; nothing more is sent.")
            self._held[key] = grant  # conversations may have been moved in with a yes of their own

    def admits(self, project: str, root: str, started_at: float | None) -> bool:
        """Whether a conversation of a project (`ProjectRef.key`) may be sent, by the grants as last read."""
        if self._grants is None:
            return True
        return any(key.project == project and grant.admits(root, started_at) for key, grant in self._held.items())


def permit(endpoint: Endpoint, keys: Iterable[Key], grants: Grants) -> Permit:
    """A permit to send texts of `keys` to `endpoint`. Raises `ConsentRequired` unless a person agreed to each.

    A query needs the searched project's key and that of the calling conversation's own. An endpoint that needs
    no grant gets its permit without a file being read.
    """
    if not endpoint.needs_grant:
        return Permit(endpoint, {}, None, made_by=_PERMITTED)
    wanted = tuple(dict.fromkeys(keys))
    found = {key: grants.load(key) for key in wanted}
    held = {key: g for key, g in found.items() if g is not None and decide(endpoint, key, g) is Decision.ALLOW}
    missing = tuple(key for key in wanted if key not in held)
    if missing or not wanted:
        raise ConsentRequired(f"Nothing is sent to {endpoint.host} before a person agrees to it.", missing)
    return Permit(endpoint, held, grants, made_by=_PERMITTED)


class Declined:
    """Who has been asked already, in this process: one prompt a home, conversation and key.

    It grows by a person's answers alone, so it stays small.
    """

    def __init__(self) -> None:
        self._asked: set[tuple[Path, str, Key]] = set()
        self._lock = ForkLock()

    def first(self, home: Path, session_id: str, key: Key) -> bool:
        """Whether to ask now; from then on it is asked already, whichever thread comes next."""
        with self._lock:
            before = len(self._asked)
            self._asked.add((home, session_id, key))
            return len(self._asked) > before

    def again(self, home: Path, session_id: str, key: Key) -> None:
        """Nobody was there to be asked, or the yes was withdrawn later: asking is open once more."""
        with self._lock:
            self._asked.discard((home, session_id, key))

    def __contains__(self, asked: tuple[Path, str, Key]) -> bool:
        with self._lock:
            return asked in self._asked


# -- files that are this user's alone ------------------------------------------


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode("ascii")).hexdigest()


@contextlib.contextmanager
def _telling(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConsentNotKept(f"{what} ({error.strerror or type(error).__name__}).") from error


def _is_alone(status: os.stat_result) -> bool:
    """Owned by this user and written by nobody else. Windows has neither to tell."""
    if sys.platform == "win32":
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _is_ours(folder: Path) -> bool:
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and _is_alone(status)


def _make(folder: Path) -> None:
    """Create a folder, and what is missing above it, for this user alone. Raises OSError."""
    for missing in reversed([at for at in (folder, *folder.parents) if not at.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(".json") and not name.startswith("."))
    except OSError:
        return []


def _read(path: Path, *, anyone: bool = False) -> bytes | None:
    """A small regular file of this user's (or of anyone's); None for a link, a pipe and all that fails."""
    # Without O_NONBLOCK opening a pipe waits for its writer.
    flags = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
    try:
        if path.is_symlink():  # where there is no O_NOFOLLOW
            return None
        file = os.open(path, flags)
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES or not (anyone or _is_alone(status)):
                return None
            with open(file, "rb", closefd=False) as reading:
                data = reading.read(MAX_BYTES + 1)
        finally:
            os.close(file)
    except (OSError, ValueError):
        return None
    return data if len(data) <= MAX_BYTES else None


def _replace(path: Path, data: bytes) -> None:
    """Write a file of mode 0600 in one step, on the disk when this returns; under the lock. Raises OSError."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)  # what a crash left
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    file = os.open(new, flags, 0o600)
    try:
        with open(file, "wb") as writing:
            writing.write(data)
            writing.flush()
            os.fsync(file)
        _patiently(lambda: os.replace(new, path))
    except BaseException:
        with contextlib.suppress(OSError):
            new.unlink()
        raise
    _sync(path.parent)


def _unlink(path: Path) -> None:
    """Remove a file for good. Raises OSError when it is still there."""
    with contextlib.suppress(FileNotFoundError):
        _patiently(path.unlink)
        _sync(path.parent)


def _patiently(act: Callable[[], None]) -> None:
    until = time.monotonic() + BUSY_S
    while True:
        try:
            return act()
        except PermissionError:
            if sys.platform != "win32" or time.monotonic() > until:
                raise
            time.sleep(LOCK_POLL_S)


def _sync(folder: Path) -> None:
    if sys.platform != "win32":
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def _lock(file: int) -> bool:
    """Whether the lock was free and is ours now. Raises OSError where there are no locks."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True
