"""Small homes for unit tests: state.db and projects.db as Hermes 0.19, 0.20 and 0.22 lay them out.

Only the columns that recall reads, but the hosts' own tables, views, triggers and index of the
full-text search. `homes.py` has the real thing.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from project_history_recall import search
from project_history_recall.attribution import Roots
from project_history_recall.config_schema import Settings
from project_history_recall.scope import Live, identify

LAYOUTS = ("0.19", "0.20", "0.22")
ATLAS, BOREALIS = "/src/atlas", "/src/borealis"
START = 1_780_000_000.0  # the first message; each later one comes a minute after

# A tool or command that reads its settings itself searches by words only, as `SmallHome.settings` says.
WORDS_ONLY = "plugins: {entries: {project-history-recall: {settings: {embedding_provider: none}}}}"

Answer = dict[str, Any]

_SESSIONS = """
CREATE TABLE sessions (
    id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT, session_key TEXT, chat_type TEXT, display_name TEXT,
    model_config TEXT, system_prompt TEXT, parent_session_id TEXT, started_at REAL NOT NULL, end_reason TEXT,
    cwd TEXT, git_repo_root TEXT, title TEXT, archived INTEGER NOT NULL DEFAULT 0 {hidden});
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT NULL, content TEXT,
    tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL, reasoning TEXT, observed INTEGER DEFAULT 0,
    active INTEGER NOT NULL DEFAULT 1, compacted INTEGER NOT NULL DEFAULT 0, api_content TEXT {display});
CREATE INDEX idx_messages_session ON messages(session_id, timestamp);
CREATE INDEX idx_messages_session_active ON messages(session_id, active, timestamp);
CREATE TABLE state_meta (key TEXT PRIMARY KEY, value TEXT);
"""
_PROJECTS = """
CREATE TABLE projects (
    id TEXT PRIMARY KEY, slug TEXT NOT NULL UNIQUE, name TEXT NOT NULL, primary_path TEXT,
    created_at INTEGER NOT NULL, archived INTEGER NOT NULL DEFAULT 0);
CREATE TABLE project_folders (
    project_id TEXT NOT NULL, path TEXT NOT NULL, is_primary INTEGER NOT NULL DEFAULT 0, added_at INTEGER NOT NULL,
    PRIMARY KEY (project_id, path));
"""
# 0.19 copies the texts into its index.
_JOINED = "COALESCE(new.content, '') || ' ' || COALESCE(new.tool_name, '') || ' ' || COALESCE(new.tool_calls, '')"
_OWN_CONTENT = f"""
CREATE VIRTUAL TABLE messages_fts USING fts5(content);
CREATE TRIGGER messages_fts_insert AFTER INSERT ON messages BEGIN
    INSERT INTO messages_fts(rowid, content) VALUES (new.id, {_JOINED}); END;
CREATE VIRTUAL TABLE messages_fts_trigram USING fts5(content, tokenize='trigram');
CREATE TRIGGER messages_fts_trigram_insert AFTER INSERT ON messages BEGIN
    INSERT INTO messages_fts_trigram(rowid, content) VALUES (new.id, {_JOINED}); END;
"""
_OVER_MESSAGES = """
CREATE VIRTUAL TABLE messages_fts USING fts5(content, tool_name, tool_calls, content='messages', content_rowid='id');
CREATE TRIGGER messages_fts_insert AFTER INSERT ON messages BEGIN
    INSERT INTO messages_fts(rowid, content, tool_name, tool_calls)
    VALUES (new.id, new.content, new.tool_name, new.tool_calls); END;
CREATE VIEW messages_fts_trigram_src AS
    SELECT id, role, content, tool_name, tool_calls FROM messages WHERE role <> 'tool';
CREATE VIRTUAL TABLE messages_fts_trigram USING fts5(content, tool_name, tool_calls,
    content='messages_fts_trigram_src', content_rowid='id', tokenize='trigram');
CREATE TRIGGER messages_fts_trigram_insert AFTER INSERT ON messages WHEN new.role <> 'tool' BEGIN
    INSERT INTO messages_fts_trigram(rowid, content, tool_name, tool_calls)
    VALUES (new.id, new.content, new.tool_name, new.tool_calls); END;
"""
_SHORT = "CASE WHEN {0}role = 'tool' THEN substr(COALESCE({0}content, ''), 1, 8192) ELSE {0}content END"
_PERSONS = (
    "source NOT IN ('cron', 'subagent') AND json_extract(COALESCE(model_config, '{}'), '$._delegate_from') IS NULL"
)
_OVER_VIEWS = f"""
CREATE VIEW messages_fts_src AS SELECT id, {_SHORT.format("")} AS content, tool_name, tool_calls FROM messages;
CREATE VIRTUAL TABLE messages_fts USING fts5(content, tool_name, tool_calls,
    content='messages_fts_src', content_rowid='id');
CREATE TRIGGER messages_fts_insert AFTER INSERT ON messages BEGIN
    INSERT INTO messages_fts(rowid, content, tool_name, tool_calls)
    VALUES (new.id, {_SHORT.format("new.")}, new.tool_name, new.tool_calls); END;
CREATE VIEW messages_fts_trigram_src AS
    SELECT m.id, m.role, m.content, m.tool_name FROM messages m JOIN sessions s ON s.id = m.session_id
    WHERE m.role <> 'tool' AND s.id IN (SELECT id FROM sessions WHERE {_PERSONS});
CREATE VIRTUAL TABLE messages_fts_trigram USING fts5(content, tool_name,
    content='messages_fts_trigram_src', content_rowid='id', tokenize='trigram');
CREATE TRIGGER messages_fts_trigram_insert AFTER INSERT ON messages
WHEN new.role <> 'tool' AND EXISTS (SELECT 1 FROM sessions WHERE id = new.session_id AND {_PERSONS}) BEGIN
    INSERT INTO messages_fts_trigram(rowid, content, tool_name) VALUES (new.id, new.content, new.tool_name); END;
"""
SCHEMA = {
    "0.19": _SESSIONS.format(hidden="", display="") + _OWN_CONTENT,
    "0.20": _SESSIONS.format(
        hidden=", hidden INTEGER NOT NULL DEFAULT 0", display=", display_kind TEXT, display_metadata TEXT"
    )
    + _OVER_MESSAGES,
    "0.22": _SESSIONS.format(
        hidden=", hidden INTEGER NOT NULL DEFAULT 0", display=", display_kind TEXT, display_metadata TEXT"
    )
    + _OVER_VIEWS,
}


@dataclass(slots=True)
class SmallHome:
    """A HERMES_HOME with an empty state.db and projects.db. Every write is committed and closed."""

    path: Path
    layout: str = "0.22"
    journal: str = "delete"
    settings: Settings = field(default_factory=lambda: Settings(embedding_provider="none"))
    redact: Callable[[str], str] | None = None
    profile: str = ""
    key: str | None = None
    clock: float = START

    def __post_init__(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        self.script(f"PRAGMA journal_mode={self.journal};{SCHEMA[self.layout]}")
        self.script(_PROJECTS, "projects.db")
        (self.path / "config.yaml").write_text(WORDS_ONLY)

    @property
    def state(self) -> Path:
        return self.path / "state.db"

    def budget(self, characters: int) -> None:
        """Set how long an answer may be."""
        self.settings = replace(self.settings, max_result_chars=characters)

    # What a search needs from outside (`search.Surroundings`).

    @property
    def home(self) -> Path:
        return self.path

    @property
    def connect(self) -> Callable[..., sqlite3.Connection]:
        return sqlite3.connect

    def machine_id(self) -> str:
        return "a-machine"

    def api_key(self) -> str | None:
        return self.key

    def trust(self, url: str) -> bool:
        return True

    def find_roots(self, cwd: str) -> Roots | None:
        return None

    def junk_root(self, path: str) -> bool:
        return False

    def junk_cwd(self, path: str) -> bool:
        return False

    # Writing.

    def write(self, sql: str, rows: Iterable[Sequence[Any]] = ((),), file: str = "state.db") -> int:
        """Run a statement for each of `rows`; the id of the last row that it inserted."""
        with self._open(file) as db, db:
            last = 0
            for row in rows:
                last = db.execute(sql, row).lastrowid or 0
            return last

    def script(self, sql: str, file: str = "state.db") -> None:
        with self._open(file) as db:
            db.executescript(sql)

    def _open(self, file: str) -> closing[sqlite3.Connection]:
        db = sqlite3.connect(self.path / file)
        db.execute("PRAGMA synchronous=OFF")  # nothing here outlives its test
        return closing(db)

    def project(self, id: str, name: str, *folders: str, slug: str | None = None, archived: bool = False) -> str:
        self.clock += 60
        values = (id, slug or id.removeprefix("p_"), name, folders[0] if folders else None, self.clock, archived)
        self.write("INSERT INTO projects VALUES (?, ?, ?, ?, ?, ?)", [values], "projects.db")
        listed = [(id, folder, place == 0, self.clock + place) for place, folder in enumerate(folders)]
        self.write("INSERT INTO project_folders VALUES (?, ?, ?, ?)", listed, "projects.db")
        return id

    def session(
        self, id: str, *, source: str = "cli", cwd: str | None = ATLAS, parent: str | None = None, **columns: Any
    ) -> str:
        """A row of `sessions`; a dict among the columns is stored as JSON."""
        self.clock += 60
        self._insert(
            "sessions",
            {"id": id, "source": source, "cwd": cwd, "parent_session_id": parent, "started_at": self.clock} | columns,
        )
        return id

    def say(self, session: str, content: object, role: str = "user", **columns: Any) -> int:
        """A row of `messages`; a list or dict as content is stored as the hosts store it."""
        self.clock += 60
        if isinstance(content, list | dict):
            content = "\0json:" + json.dumps(content)
        row = {"session_id": session, "role": role, "content": content, "timestamp": self.clock} | columns
        return self._insert("messages", row)

    def talk(self, session: str, *contents: str) -> list[int]:
        """Messages of user and assistant in turn."""
        return [self.say(session, text, ("user", "assistant")[i % 2]) for i, text in enumerate(contents)]

    def fill(self, session: str, texts: Iterable[str], role: str = "user") -> None:
        """Many messages at once."""
        rows = []
        for text in texts:
            self.clock += 60
            rows.append((session, role, text, self.clock))
        self.write("INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, ?)", rows)

    def _insert(self, table: str, row: dict[str, Any]) -> int:
        values = [json.dumps(v) if isinstance(v, dict) else v for v in row.values()]
        marks = ", ".join("?" for _ in values)
        return self.write(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", [values])

    # Asking.

    def ask(self, query: str | None = None, *, caller: str = "caller", live: Live | None = None, **args: Any) -> Answer:
        """The answer to a search from a conversation. Raises `RecallError`."""
        given = args if query is None else {"query": query, **args}
        at = live or Live(session_id=caller)
        return search.run(given, self, lambda everywhere: identify(at, everywhere, self.settings))


def furnished(path: Path, layout: str = "0.22", journal: str = "delete") -> SmallHome:
    """A home with two projects, and a calling conversation, `caller`, in the first."""
    home = SmallHome(path, layout, journal)
    home.project("p_atlas", "Atlas", ATLAS)
    home.project("p_borealis", "Borealis", BOREALIS)
    home.session("caller")
    return home


def ids(answer: Answer) -> list[int]:
    """The message ids of an answer's hits, in order."""
    return [hit["message_id"] for hit in answer["results"]]


def size(answer: Answer) -> int:
    """Characters of the JSON that the caller gets."""
    return len(json.dumps(answer, ensure_ascii=False))
