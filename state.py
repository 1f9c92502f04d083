"""Read-only rows of state.db and projects.db: sessions, lineages, messages.

Only SELECT, only `mode=ro`, only the standard library's sqlite3: another SQLite
library in the host's process would drop the host's locks. Every statement is
fetched whole at once, because an open cursor makes the host's commit fail under
a DELETE journal. Columns are looked up at each open, never assumed by version.
"""

from __future__ import annotations

import contextlib
import json
import logging
import random
import re
import sqlite3
import stat
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .attribution import Project
from .errors import StateUnreadable

Connect = Callable[..., sqlite3.Connection]

BUSY_MS = 5_000  # that one statement waits for a writer, unless the call's deadline comes first
NAP_S = (0.001, 0.01)  # SQLite's own naps are of 0.1 s, and quick writers slip past them
IO_RETRIES, IO_NAP_S = 3, 0.05
PROJECTS_S = 1.5  # that a writer of projects.db is waited for
MAX_CONTENT = 200_000  # characters of one message read at once

_INDEXED = re.compile(r"(?:CROSS )?(FROM|JOIN) (messages m|sessions s)\b(?: INDEXED BY \w+)?")

logger = logging.getLogger(__name__)


class Session(NamedTuple):
    """A row of `sessions`. `*_from` are the markers in `model_config`; times are epoch seconds."""

    id: str
    source: str
    session_key: str
    user_id: str
    chat_type: str
    parent_id: str
    end_reason: str
    cwd: str
    git_repo_root: str
    archived: int
    hidden: int
    branched_from: str
    delegate_from: str
    reset_from: str
    started_at: float


SESSION_COLUMNS = (
    "id", "source", "session_key", "user_id", "chat_type", "parent_session_id", "end_reason", "cwd", "git_repo_root",
    "archived", "hidden", "started_at", "model_config",
)  # fmt: skip


class Message(NamedTuple):
    """A row of `messages` as it is stored; `text.said` makes it readable."""

    id: int
    session_id: str
    role: str
    content: object
    timestamp: float
    active: int
    compacted: int


class Columns(NamedTuple):
    sessions: frozenset[str]
    messages: frozenset[str]


class State:
    """One connection to a home's state.db for one call. Use it as a context manager.

    `deadline` is a `time.monotonic()` instant, which may be moved: a statement still
    running then is interrupted and raises `sqlite3.OperationalError: interrupted`, and
    nobody waits for a writer any longer. `damaged` says that an index of the file was of
    no use: its tables are then read from first to last.
    """

    def __init__(self, home: Path, *, deadline: float | None = None, connect: Connect = sqlite3.connect) -> None:
        self.home = home
        self.path = home / "state.db"
        self.deadline = deadline
        self.damaged = False
        self._connect = connect
        try:
            there = is_file(self.path)
        except OSError as error:
            raise StateUnreadable(explain(error)) from error
        if not there:
            raise StateUnreadable(f"There is no state.db in {home.name}: no conversation has been stored yet.")
        self._db = self._open("mode=ro")
        try:
            self.columns = self._read_columns()
        except sqlite3.Error as error:
            self._db.close()
            if not self._readable_without_wal(error):
                raise StateUnreadable(explain(error)) from error
            self._db = self._open("mode=ro&immutable=1")
            try:
                self.columns = self._read_columns()
            except sqlite3.Error as again:
                self._db.close()
                raise StateUnreadable(explain(again)) from again
        except BaseException:
            self._db.close()
            raise

    def __enter__(self) -> State:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()

    def _open(self, query: str) -> sqlite3.Connection:
        # as_uri() quotes `?`, `#`, `%` and spaces; an f-string would open another file.
        uri = f"{self.path.resolve().as_uri()}?{query}"
        try:
            db = self._connect(uri, uri=True, isolation_level=None, timeout=0, check_same_thread=False)
        except sqlite3.Error as error:
            raise StateUnreadable(explain(error)) from error
        db.execute("PRAGMA temp_store=MEMORY")
        if self.deadline is not None:
            db.set_progress_handler(self._over, 20_000)
        return db

    def _over(self) -> bool:
        return self.deadline is not None and time.monotonic() > self.deadline

    def _readable_without_wal(self, error: sqlite3.Error) -> bool:
        # A WAL file in a folder we may not write to, or on a full disk, has no -shm to share.
        # Without anything in a -wal there is nothing a plain read of the file could miss.
        name, log = getattr(error, "sqlite_errorname", ""), Path(f"{self.path}-wal")
        if name in ("SQLITE_IOERR_SHMSIZE", "SQLITE_IOERR_SHMOPEN"):  # it has just made an empty log
            return not (log.exists() and log.stat().st_size)
        return name in ("SQLITE_READONLY_DIRECTORY", "SQLITE_CANTOPEN") and not log.exists()

    def _read_columns(self) -> Columns:
        found = []
        for table in ("sessions", "messages"):
            names = frozenset(row[0] for row in self.rows(f"SELECT name FROM pragma_table_info('{table}')"))
            if not names:
                raise StateUnreadable(f"state.db has no table {table!r} yet: start a conversation first.")
            found.append(names)
        missing = {"id", "source", "parent_session_id", "started_at"} - found[0]
        missing |= {"id", "session_id", "role", "content", "timestamp"} - found[1]
        if missing:
            raise StateUnreadable(f"state.db lacks {', '.join(sorted(missing))}: this Hermes is not supported.")
        return Columns(*found)

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[Any]:
        """All rows of a statement; waits a moment for a busy writer. Raises `sqlite3.Error`."""
        until = time.monotonic() + BUSY_MS / 1000
        failed = 0
        while True:
            try:
                return self._db.execute(sql, params).fetchall()
            except (MemoryError, UnicodeDecodeError) as error:
                # A damaged page may name any size, and SQLite's own word on it be no text.
                raise sqlite3.DatabaseError("malformed, or out of memory") from error
            except sqlite3.OperationalError as error:
                if "UTF-8" in str(error) and self._db.text_factory is str:
                    # Some other program wrote it; the rest is still read.
                    self._db.text_factory = _any_text
                    continue
                # A full-text table that could not be opened for a writer says so by its code alone.
                busy = "locked" in str(error) or getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
                failed += "disk I/O error" in str(error)
                if not (busy or 0 < failed <= IO_RETRIES) or time.monotonic() >= until or self._over():
                    raise
                time.sleep(random.uniform(*NAP_S) if busy else IO_NAP_S)
            except sqlite3.DatabaseError as error:
                unindexed = _INDEXED.sub(r"\1 \2 NOT INDEXED", sql)
                if "malformed" not in str(error) or unindexed == sql:
                    raise
                if not self.damaged:
                    logger.warning("state.db is damaged; what can be read of it is read without its indexes")
                sql, self.damaged = unindexed, True

    def _column(self, table: str, name: str, default: str) -> str:
        # SQLite keeps a value of any kind in a column of any kind.
        kind = "TEXT" if default == "''" else "INTEGER"
        there = name in getattr(self.columns, table)
        return f"coalesce(CAST({table[0]}.{name} AS {kind}), {default})" if there else default

    def session_rows(self) -> list[tuple[Any, ...]]:
        """The columns of every session row that `conversations` reads, as they are stored."""
        names = [name if name in self.columns.sessions else "NULL" for name in SESSION_COLUMNS]
        if "model_config" in self.columns.sessions:  # only those that carry a marker are of use
            names[-1] = """CASE WHEN instr(s.model_config, '_from"') > 0 THEN s.model_config END"""
        return self.rows(f"SELECT {', '.join(names)} FROM sessions s")

    def sessions(self) -> list[Session]:
        """Every session row, oldest first."""
        return read_sessions(self.session_rows())

    def titles(self, ids: Iterable[str]) -> dict[str, str]:
        """Titles of these sessions, where they have one."""
        if "title" not in self.columns.sessions:
            return {}
        return dict(
            self.rows(
                "SELECT s.id, s.title FROM json_each(?) j CROSS JOIN sessions s ON s.id = j.value"
                " WHERE s.title IS NOT NULL AND s.title <> ''",
                (_json_list(ids),),
            )
        )

    def chat_names(self, ids: Iterable[str]) -> dict[str, str]:
        """The chats' own names of these sessions, where the host keeps them."""
        if "display_name" not in self.columns.sessions:
            return {}
        return dict(
            self.rows(
                "SELECT s.id, s.display_name FROM json_each(?) j CROSS JOIN sessions s ON s.id = j.value"
                " WHERE s.display_name IS NOT NULL",
                (_json_list(ids),),
            )
        )

    def live_or_compacted(self) -> str:
        """SQL: the row `m` was not rewound or superseded."""
        if "active" not in self.columns.messages:
            return "1"
        compacted = " OR m.compacted = 1" if "compacted" in self.columns.messages else ""
        return f"(m.active = 1{compacted})"

    def shown(self) -> str:
        """SQL: a person saw the row `m` and it was the owner's own talk (facts of the display columns)."""
        clauses = [self.live_or_compacted()]
        if "observed" in self.columns.messages:
            clauses.append("coalesce(m.observed, 0) = 0")
        if "display_kind" in self.columns.messages:
            clauses.append("coalesce(m.display_kind, '') IN ('', 'steer')")
        if "display_metadata" in self.columns.messages:
            clauses.append(
                "CASE WHEN instr(m.display_metadata, 'model_only') > 0 AND json_valid(m.display_metadata)"
                " THEN coalesce(json_extract(m.display_metadata, '$.model_only'), 0) ELSE 0 END = 0"
            )
        return " AND ".join(clauses)

    def message_columns(self) -> str:
        # A stored list ends at a NUL for length(), so its bytes are counted as well.
        content = f"""CASE WHEN length(m.content) > {MAX_CONTENT} THEN substr(m.content, 1, {MAX_CONTENT})
            WHEN length(CAST(m.content AS BLOB)) > {20 * MAX_CONTENT} THEN NULL ELSE m.content END"""
        active = self._column("messages", "active", "1")
        compacted = self._column("messages", "compacted", "0")
        return f"m.id, m.session_id, m.role, {content}, coalesce(CAST(m.timestamp AS REAL), 0), {active}, {compacted}"

    def messages(self, ids: Iterable[int]) -> dict[int, Message]:
        """Those of these messages that a person may still see, read from the live rows."""
        sql = f"""SELECT {self.message_columns()} FROM json_each(?) j CROSS JOIN messages m ON m.id = j.value
            WHERE {self.shown()}"""
        return {row[0]: Message._make(row) for row in self.rows(sql, (_json_list(ids),))}

    def around(self, session_ids: Sequence[str], message_id: int, count: int, *, newer: bool) -> list[Message]:
        """Up to `count` user and assistant rows next to a message within these sessions, nearest first."""
        compare, order = (">", "ASC") if newer else ("<", "DESC")
        sql = f"""SELECT m.id FROM json_each(?) j CROSS JOIN messages m ON m.session_id = j.value
            WHERE m.id {compare} ? AND m.role IN ('user', 'assistant') AND m.content <> '' AND {self.shown()}
            ORDER BY m.id {order} LIMIT ?"""
        ids = [row[0] for row in self.rows(sql, (_json_list(session_ids), message_id, count))]
        found = self.messages(ids)
        return [found[i] for i in ids if i in found]

    def conversation(self, session_ids: Sequence[str]) -> list[Message]:
        """The user and assistant messages of these rows that a person may still see, oldest first."""
        sql = f"""SELECT {self.message_columns()} FROM json_each(?) j CROSS JOIN messages m ON m.session_id = j.value
            WHERE m.role IN ('user', 'assistant') AND m.content <> '' AND {self.shown()} ORDER BY m.id"""
        return [Message._make(row) for row in self.rows(sql, (_json_list(session_ids),))]

    def order(self, session_ids: Sequence[str]) -> list[tuple[str, int]]:
        """(session, message id) of what `conversation` would give, without reading the texts."""
        sql = f"""SELECT m.session_id, m.id FROM json_each(?) j CROSS JOIN messages m ON m.session_id = j.value
            WHERE m.role IN ('user', 'assistant') AND {self.live_or_compacted()} ORDER BY m.id"""
        return [(row[0], row[1]) for row in self.rows(sql, (_json_list(session_ids),))]

    def counts(self, session_ids: Sequence[str]) -> dict[str, str]:
        """Of each of these sessions that has rows, as a text: how many, and the sum of their ids, live ones twice.

        From the index alone where it covers it, and a session at a time: GROUP BY would sort every row.
        """
        active = "m.active" if "active" in self.columns.messages else "1"
        sql = f"""SELECT j.value, (SELECT count(*) || ' ' || sum(m.id * (coalesce({active}, 0) + 1))
                FROM messages m WHERE m.session_id = j.value) FROM json_each(?) j"""
        return {session_id: told for session_id, told in self.rows(sql, (_json_list(session_ids),)) if told}

    def said_counts(self, session_ids: Sequence[str]) -> list[tuple[str, int]]:
        """(session, messages) of what user and assistant said in these sessions, rewound rows left out."""
        sql = f"SELECT m.session_id, count(*) {self._said} GROUP BY 1"
        return [(row[0], row[1]) for row in self.rows(sql, (_json_list(session_ids),))]

    def said_lengths(self, session_ids: Sequence[str]) -> list[tuple[str, int, int]]:
        """The same with their characters. Every text is read for it; multipart ones count in bytes."""
        length = "CASE WHEN length(m.content) THEN length(m.content) ELSE length(CAST(m.content AS BLOB)) END"
        sql = f"SELECT m.session_id, count(*), sum({length}) {self._said} GROUP BY 1"
        return [(row[0], row[1], row[2] or 0) for row in self.rows(sql, (_json_list(session_ids),))]

    @property
    def _said(self) -> str:
        return f"""FROM json_each(?) j CROSS JOIN messages m ON m.session_id = j.value
            WHERE m.role IN ('user', 'assistant') AND {self.live_or_compacted()}"""

    def excerpt(self, message_id: int, pattern: str, before: Sequence[str] = ()) -> str:
        """The part of a very long message around the first place of `pattern` (lower case), its cut ends marked.

        Nothing is taken from where the first of the texts `before` stands.
        """
        room = MAX_CONTENT // 2
        rows = self.rows(
            f"""SELECT substr(content, start, {room}), start > 1, start + {room} <= length(content)
                FROM (SELECT content, max(1, instr(lower(content), ?) - {room // 2}) AS start
                      FROM (SELECT substr(m.content, 1, coalesce(
                                (SELECT min(nullif(instr(m.content, j.value), 0)) - 1 FROM json_each(?) j),
                                length(m.content))) AS content
                            FROM messages m WHERE m.id = ?))""",
            (pattern, json.dumps(before), message_id),
        )
        piece, cut_before, cut_after = rows[0] if rows else ("", 0, 0)
        return ("… " if cut_before else "") + str(piece or "") + (" …" if cut_after else "")

    def live_contents(self, session_id: str) -> list[tuple[str, object]]:
        """(role, content) of what a conversation's agent still has before it."""
        active = "m.active = 1" if "active" in self.columns.messages else "1"
        sql = f"SELECT m.role, m.content FROM messages m WHERE m.session_id = ? AND {active}"
        return [(role, content) for role, content in self.rows(sql, (session_id,)) if role in ("user", "assistant")]

    def has_table(self, name: str) -> bool:
        return bool(self.rows("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)))

    def meta(self, key: str) -> str | None:
        """A value of `state_meta`, None when it or the table is missing."""
        with contextlib.suppress(sqlite3.Error):
            found = self.rows("SELECT value FROM state_meta WHERE key = ?", (key,))
            return str(found[0][0]) if found else None
        return None


def read_sessions(rows: Iterable[Sequence[Any]]) -> list[Session]:
    """What `State.session_rows` gives, oldest first; a row without a proper id is none."""
    return sorted((_session(row) for row in rows if isinstance(row[0], str)), key=lambda s: (s.started_at, s.id))


def _session(row: Sequence[Any]) -> Session:
    # SQLite keeps a value of any kind in a column of any kind.
    *texts, cwd, git_repo_root = (value if isinstance(value, str) else _as_text(value) for value in row[:9])
    paths = ("" if "\0" in path else path for path in (cwd, git_repo_root))  # the system would raise over such a one
    flags = (int(abs(_number(value)) >= 1) for value in row[9:11])
    markers = _markers(row[12]) if row[12] else ("", "", "")
    return Session._make((*texts, *paths, *flags, *markers, float(_number(row[11]))))


def _as_text(value: Any) -> str:
    return "" if value is None else _any_text(value) if isinstance(value, bytes) else str(value)


def _number(value: Any) -> float:
    """As SQLite casts it: what a text begins with."""
    if isinstance(value, int | float):
        return value
    found = re.match(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", _as_text(value)[:40])
    return float(found.group()) if found else 0.0


def _markers(config: Any) -> tuple[str, str, str]:
    """`_branched_from`, `_delegate_from` and `_reset_from`; broken JSON has none."""
    try:
        read = json.loads(config)
        found = [read.get(f"_{name}_from") for name in ("branched", "delegate", "reset")]
    except (ValueError, TypeError, AttributeError, RecursionError):
        return "", "", ""
    branched, delegate, reset = ("" if f is None else f if isinstance(f, str) else json.dumps(f) for f in found)
    return branched, delegate, reset


def _any_text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _json_list(values: Iterable[Any]) -> str:
    return json.dumps(list(values))


def explain(error: Exception) -> str:
    """A sentence for a person about why a database could not be read."""
    text = str(error).lower()
    if "locked" in text or "busy" in text:
        return "state.db is busy with a long write; try again in a moment."
    if "not a database" in text or "malformed" in text:
        return "state.db is damaged; `hermes doctor` can check it. Nothing was changed."
    if "no such table" in text:
        return "state.db holds no conversations yet."
    if "interrupted" in text:
        return "state.db was too slow to read in time; narrow the search or try again."
    if "unable to open" in text or "readonly" in text or "permission" in text:
        return "state.db cannot be opened: check the permissions of the folder and the file."
    return f"state.db cannot be read ({type(error).__name__}: {text[:120]})."


def is_file(path: Path) -> bool:
    """Whether a file is there. OSError when that may not be known, where `Path.is_file` of Python 3.14 says no."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def read_projects(home: Path, connect: Connect = sqlite3.connect) -> list[Project]:
    """The projects of a home, oldest first; none when projects.db does not exist yet."""
    path = home / "projects.db"
    try:
        if not is_file(path) or path.stat().st_size == 0:
            return []
        db = connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=PROJECTS_S)
        try:
            db.text_factory = _any_text
            return _projects(db)
        finally:
            db.close()
    except (MemoryError, UnicodeDecodeError) as error:  # see `State.rows`
        raise StateUnreadable(explain(sqlite3.DatabaseError("malformed")).replace("state.db", "projects.db")) from error
    except (sqlite3.Error, OSError) as error:
        raise StateUnreadable(explain(error).replace("state.db", "projects.db")) from error


def _projects(db: sqlite3.Connection) -> list[Project]:
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()}
    if not {"projects", "project_folders"} <= tables:
        return []
    columns = {
        (table, row[1])
        for table in ("projects", "project_folders")
        for row in db.execute(f"PRAGMA table_info({table})").fetchall()
    }
    archived = "archived" if ("projects", "archived") in columns else "0"
    primary = "CAST(primary_path AS TEXT)" if ("projects", "primary_path") in columns else "NULL"
    orders = [o for o in ("is_primary DESC", "added_at") if ("project_folders", o.split()[0]) in columns]
    folders: defaultdict[str, list[str]] = defaultdict(list)
    for project_id, folder in db.execute(
        "SELECT project_id, CAST(path AS TEXT) FROM project_folders"
        f" WHERE path IS NOT NULL ORDER BY {', '.join(orders) or 1}"
    ).fetchall():
        folders[project_id].append(folder)
    # The host's own order: equal times stay in rowid order there as here.
    rows = db.execute(
        f"""SELECT id, coalesce(CAST(slug AS TEXT), ''), CAST(name AS TEXT), {archived}, {primary}
            FROM projects WHERE typeof(id) = 'text' ORDER BY created_at"""
    ).fetchall()
    return [Project(r[0], r[1], r[2] or r[0], bool(r[3]), tuple(folders[r[0]]), r[4]) for r in rows]


class Lineages:
    """Which rows are one conversation: compression continues it in a new row.

    An edge counts when the parent ended by compression and the child is no
    branch, reset, delegate or tool session of that parent (continuations inherit
    the markers of their ancestors, so only a marker naming the parent counts).
    """

    def __init__(self, sessions: Sequence[Session]) -> None:
        self.by_id = {s.id: s for s in sessions}
        self._root: dict[str, str] = {}  # only of rows that continue another
        self._members: dict[str, list[str]] = {}  # only of conversations of several rows
        self.branches: defaultdict[str, list[str]] = defaultdict(list)
        for s in sessions:
            if not s.parent_id:
                continue
            if s.branched_from == s.parent_id:
                self.branches[s.parent_id].append(s.id)
            self._walk(s)
        continued = set(self._root.values())
        if continued:
            for s in sessions:  # oldest first
                root = self._root.get(s.id, s.id)
                if root in continued:
                    self._members.setdefault(root, []).append(s.id)

    def _walk(self, session: Session) -> None:
        """Note the root of a row and of all rows on the way there; a circle ends where it closes."""
        seen: set[str] = set()
        while session.id not in self._root:
            seen.add(session.id)
            parent = self.by_id.get(session.parent_id)
            if parent is None or parent.id in seen or not continues(session, parent):
                break
            session = parent
        root = self._root.get(session.id, session.id)
        self._root.update(dict.fromkeys(seen - {root}, root))

    def root(self, session_id: str) -> str:
        """The first row of the conversation a row belongs to."""
        return self._root.get(session_id, session_id)

    def members(self, session_id: str) -> list[str]:
        """The conversation's rows, oldest first."""
        return self._members.get(self._root.get(session_id, session_id), [session_id])

    def place(self, session_id: str) -> tuple[str, str]:
        """(cwd, repository root) that decide for the conversation: its newest row that has one."""
        for member in reversed(self.members(session_id)):
            session = self.by_id.get(member)
            if session and (session.cwd or session.git_repo_root):
                return session.cwd, session.git_repo_root
        return "", ""

    def roots(self) -> list[str]:
        """The first row of every conversation."""
        return [s for s in self.by_id if s not in self._root]

    def with_branches(self, session_id: str) -> set[str]:
        """The conversation's rows and those of every branch taken from it."""
        todo, found = [session_id], set[str]()
        while todo:
            for member in self.members(todo.pop()):
                if member not in found:
                    found.add(member)
                    todo += self.branches.get(member, [])
        return found


def continues(session: Session, parent: Session) -> bool:
    """Whether a row continues its parent's conversation after a compression."""
    markers = (session.branched_from, session.delegate_from, session.reset_from)
    return parent.end_reason == "compression" and session.source != "tool" and parent.id not in markers
