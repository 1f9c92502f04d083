"""state.db is read whatever state it is in, and is the same afterwards."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from project_history_recall import state as state_module
from project_history_recall.errors import StateUnreadable
from project_history_recall.state import MAX_CONTENT, Lineages, Session, State, read_projects

from tests import small

IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
NOBODY = 65534
each_layout = pytest.mark.parametrize("layout", small.LAYOUTS)
each_journal = pytest.mark.parametrize("journal", ["wal", "delete", "truncate", "persist"])


def made(path: Path, layout: str = "0.22", journal: str = "delete") -> small.SmallHome:
    """A home with one conversation of two messages."""
    home = small.furnished(path, layout, journal)
    home.session("a", title="Login")
    home.talk("a", "fix the login", "it is fixed")
    return home


def contents(state: State, count: int = 10) -> list[object]:
    return [m.content for m in state.messages(range(1, count)).values()]


def files(folder: Path) -> dict[str, str]:
    """Every file of a folder and the hash of its bytes."""
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir()) if p.is_file()}


@contextmanager
def unchanged(folder: Path, leaves: frozenset[str] = frozenset()) -> Iterator[None]:
    """Afterwards the folder holds the same files with the same bytes, and beside them only `leaves`, empty or not."""
    before = files(folder)
    yield
    after = files(folder)
    assert {name: after.get(name) for name in before} == before
    assert set(after) - set(before) == leaves


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "BUSY_MS", 30)
    monkeypatch.setattr(state_module, "PROJECTS_S", 0.03)


# --- opening ----------------------------------------------------------------------------------------


@each_layout
@each_journal
def test_every_journal_mode_is_read_and_not_a_byte_is_changed(tmp_path: Path, layout: str, journal: str) -> None:
    made(tmp_path, layout, journal)
    # What SQLite itself leaves beside a WAL file that nobody has open: an index and an empty log.
    leaves = {"state.db-shm", "state.db-wal"} if journal == "wal" else set()
    with unchanged(tmp_path, frozenset(leaves)), State(tmp_path) as state:
        assert [s.id for s in state.sessions()] == ["caller", "a"]
        assert contents(state) == ["fix the login", "it is fixed"]
    if leaves:
        assert (tmp_path / "state.db-wal").stat().st_size == 0


def test_a_live_wal_writer_is_seen_at_once_and_never_waits(tmp_path: Path) -> None:
    home = made(tmp_path, journal="wal")
    with closing(sqlite3.connect(home.state, isolation_level=None, timeout=0)) as writer, State(tmp_path) as state:
        assert len(contents(state)) == 2
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("INSERT INTO messages (session_id, role, content, timestamp) VALUES ('a', 'user', 'more', 1)")
        assert len(contents(state)) == 2, "not yet committed"
        writer.execute("COMMIT")
        assert len(contents(state)) == 3
        assert state.rows("SELECT count(*) FROM messages") == [(3,)]
        writer.execute("DELETE FROM messages WHERE content = 'more'")  # would raise if it had to wait


@pytest.mark.parametrize("journal", ["delete", "truncate", "persist"])
def test_a_writer_commits_while_a_state_is_open(tmp_path: Path, journal: str) -> None:
    home = made(tmp_path, journal=journal)
    with closing(sqlite3.connect(home.state, timeout=0)) as writer, State(tmp_path) as state:
        state.sessions()
        with writer:  # no cursor of ours is left open, so nothing is locked
            writer.execute("INSERT INTO messages (session_id, role, content, timestamp) VALUES ('a', 'user', 'x', 1)")
        assert len(contents(state)) == 3


def test_a_long_write_is_told_after_a_bounded_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = made(tmp_path)
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    with closing(sqlite3.connect(home.state, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StateUnreadable, match="busy"):
            State(tmp_path)
        assert max(waits) <= 0.01, "short naps: quick writers slip past long ones"
        writer.execute("ROLLBACK")
    with State(tmp_path) as state:
        assert len(contents(state)) == 2


def test_nobody_waits_for_a_writer_beyond_the_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each statement may wait for one; all of them together no longer than the call has."""
    home = made(tmp_path)
    monkeypatch.setattr(state_module, "BUSY_MS", 3_600_000)
    with State(tmp_path) as state, closing(sqlite3.connect(home.state, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        naps = 0

        def nap(_: float) -> None:
            nonlocal naps
            naps += 1
            if naps == 5:
                state.deadline = time.monotonic() - 1

        monkeypatch.setattr(time, "sleep", nap)
        for _ in range(3):
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                state.sessions()
        assert naps == 5
        writer.execute("ROLLBACK")


@pytest.mark.parametrize(("message", "naps"), [("disk I/O error", 3), ("no such table: x", 0)])
def test_an_error_that_may_pass_is_tried_a_few_times_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: str, naps: int
) -> None:
    made(tmp_path)
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    with State(tmp_path) as state:

        class Failing:
            def execute(self, *_: object) -> None:
                raise sqlite3.OperationalError(message)

        with monkeypatch.context() as patch:
            patch.setattr(state, "_db", Failing())
            with pytest.raises(sqlite3.OperationalError, match=message):
                state.sessions()
    assert waits == [state_module.IO_NAP_S] * naps


def test_a_write_that_ends_in_time_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = made(tmp_path)
    with closing(sqlite3.connect(home.state, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        monkeypatch.setattr(time, "sleep", lambda _: writer.in_transaction and writer.execute("ROLLBACK"))
        with State(tmp_path) as state:
            assert len(contents(state)) == 2


def test_an_index_that_a_writer_keeps_from_being_opened_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = made(tmp_path)
    matching = "SELECT rowid FROM messages_fts WHERE messages_fts MATCH 'login'"
    with closing(sqlite3.connect(home.state, isolation_level=None)) as writer, State(tmp_path) as state:
        state.sessions()  # the schema is known, and the index not yet opened
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError, match="vtable constructor failed"):
            state._db.execute(matching)
        monkeypatch.setattr(time, "sleep", lambda _: writer.in_transaction and writer.execute("ROLLBACK"))
        assert state.rows(matching) == [(1,)]


@pytest.mark.parametrize(
    "name", ["a b", "100%", "what?", "c#", "%20", "a?mode=rwc", "项目 甲", "é", "'quoted'", "a&b=c"]
)
def test_a_path_is_no_uri(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name / "home"
    made(folder)
    with unchanged(folder), unchanged(tmp_path), unchanged(tmp_path / name), State(folder) as state:
        assert len(contents(state)) == 2
        assert [p.id for p in read_projects(folder)] == ["p_atlas", "p_borealis"]


def test_a_relative_home_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path / "home")
    monkeypatch.chdir(tmp_path)
    with State(Path("home")) as state:
        assert len(contents(state)) == 2
    assert len(read_projects(Path("home"))) == 2


def test_a_linked_home_is_read(tmp_path: Path) -> None:
    made(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with State(tmp_path / "link") as state:
        assert len(contents(state)) == 2


# name: (what is done to a good state.db, what its error says)
DAMAGES: dict[str, tuple[Callable[[small.SmallHome], Any], str]] = {
    "missing": (lambda home: home.state.unlink(), "no state.db"),
    "a folder": (
        lambda home: home.state.rename(home.state.with_name("x")).with_name("state.db").mkdir(),
        "no state.db",
    ),
    "empty": (lambda home: home.state.write_bytes(b""), "no table 'sessions'"),
    "junk": (lambda home: home.state.write_bytes(b"not a database at all " * 500), "damaged"),
    "a few bytes": (lambda home: home.state.write_bytes(b"SQLite"), "damaged"),
    "a header alone": (lambda home: os.truncate(home.state, 100), "damaged"),
    "cut off": (lambda home: os.truncate(home.state, 4096 * 2), "damaged"),
    "zeroed": (lambda home: home.state.write_bytes(bytes(home.state.stat().st_size)), "damaged"),
    "without sessions": (lambda home: home.write("DROP TABLE sessions"), "no table 'sessions'"),
    "without messages": (lambda home: home.write("DROP TABLE messages"), "no table 'messages'"),
    "without a column": (lambda home: home.write("ALTER TABLE messages RENAME content TO c"), "lacks content"),
    "without ids": (
        lambda home: home.script("DROP TABLE sessions; CREATE TABLE sessions (name TEXT)"),
        "lacks id, parent_session_id, source, started_at",
    ),
}


@pytest.mark.parametrize(("damage", "said"), DAMAGES.values(), ids=DAMAGES)
def test_what_cannot_be_read_is_told_in_words_and_left_as_it_is(
    tmp_path: Path, damage: Callable[[small.SmallHome], Any], said: str
) -> None:
    home = made(tmp_path)
    home.script("DROP VIEW messages_fts_src; DROP VIEW messages_fts_trigram_src")  # they would forbid some damage
    damage(home)
    with unchanged(tmp_path):
        with pytest.raises(StateUnreadable) as caught:
            State(tmp_path)
        assert said in caught.value.message
        assert str(tmp_path) not in caught.value.message, "no path is told"


def test_a_home_that_is_not_there_is_told_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(StateUnreadable, match=r"no state\.db"):
        State(tmp_path / "nowhere")
    assert read_projects(tmp_path / "nowhere") == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_page_is_an_error_or_an_answer_and_nothing_else(tmp_path: Path, seed: int) -> None:
    home = made(tmp_path)
    rng = random.Random(seed)
    page = rng.randrange(1, home.state.stat().st_size // 4096)
    data = bytearray(home.state.read_bytes())
    data[page * 4096 : page * 4096 + 4096] = rng.randbytes(4096)
    home.state.write_bytes(data)
    with unchanged(tmp_path):
        try:
            with State(tmp_path) as state:
                state.sessions()
                contents(state)
        except (StateUnreadable, sqlite3.Error):
            pass


INDEXES = ("idx_messages_session", "idx_messages_session_active", "sqlite_autoindex_sessions_1")


@pytest.mark.parametrize("indexes", [*INDEXES, "all"])
@each_layout
def test_a_damaged_index_of_the_rows_is_gone_round_and_told(tmp_path: Path, layout: str, indexes: str) -> None:
    home = made(tmp_path, layout)
    with closing(sqlite3.connect(home.state)) as db:
        roots = dict(db.execute("SELECT name, rootpage FROM sqlite_master WHERE type = 'index'").fetchall())
    with home.state.open("r+b") as file:
        for name in INDEXES if indexes == "all" else (indexes,):
            file.seek(4096 * (roots[name] - 1))
            file.write(b"junk" * 1024)
    with unchanged(tmp_path):
        answer = home.ask("login")
        assert [hit["message_id"] for hit in answer["results"]] == [1]
        told = "index is damaged" in answer.get("keyword_detail", "")
        assert told == (indexes in ("idx_messages_session_active", "all")), "the one that finds the rows"
        with State(tmp_path) as state:
            assert len(state.conversation(["a"])) == 2
            assert [m.content for m in state.around(["a"], 1, 5, newer=True)] == ["it is fixed"]
            assert state.titles(["a"]) == {"a": "Login"}
            assert state.live_contents("a") == [("user", "fix the login"), ("assistant", "it is fixed")]
            assert state.said_counts(["a"]) == [("a", 2)]


def test_a_word_of_sqlite_that_is_no_text_is_damage_and_nothing_else(tmp_path: Path) -> None:
    home = made(tmp_path)
    content = home.state.read_bytes()
    name = b"idx_messages_session_active"
    home.state.write_bytes(content.replace(name, b"\xc4" * len(name), 1))
    with contextlib.suppress(StateUnreadable), State(tmp_path) as state:
        assert len(contents(state)) == 2


def test_a_crashed_write_is_not_seen_and_its_journal_left(tmp_path: Path) -> None:
    home = made(tmp_path)
    script = """if True:
        import os, sqlite3, sys
        db = sqlite3.connect(sys.argv[1], isolation_level=None)
        db.execute("PRAGMA cache_size=1")
        db.execute("BEGIN")
        for i in range(200):
            db.execute("INSERT INTO messages (session_id, role, content, timestamp) VALUES ('a', 'user', ?, 1)",
                       (str(i) * 3000,))
        os._exit(1)"""
    subprocess.run([sys.executable, "-P", "-c", script, str(home.state)], check=False)
    assert (tmp_path / "state.db-journal").exists()
    with unchanged(tmp_path), contextlib.suppress(StateUnreadable), State(tmp_path) as state:
        assert len(contents(state)) == 2


def test_a_crashed_wal_is_read_with_its_last_commit(tmp_path: Path) -> None:
    home = made(tmp_path, journal="wal")
    script = """if True:
        import os, sqlite3, sys
        db = sqlite3.connect(sys.argv[1])
        with db:
            db.execute("INSERT INTO messages (session_id, role, content, timestamp) VALUES ('a', 'user', 'last', 1)")
        os._exit(1)"""
    subprocess.run([sys.executable, "-P", "-c", script, str(home.state)], check=False)
    database, log = home.state.read_bytes(), (tmp_path / "state.db-wal").read_bytes()
    with State(tmp_path) as state:
        assert contents(state)[-1] == "last"
    assert (home.state.read_bytes(), (tmp_path / "state.db-wal").read_bytes()) == (database, log)


# --- without the right to write, or to read ---------------------------------------------------------

AS_NOBODY = """if True:
    import importlib.util, os, sys
    root, home, uid = sys.argv[1:]
    spec = importlib.util.spec_from_file_location("phr", root + "/__init__.py", submodule_search_locations=[root])
    sys.modules["phr"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    from pathlib import Path
    from phr.errors import StateUnreadable
    from phr.state import State, read_projects
    if int(uid):
        for become in (os.setresgid, os.setresuid):
            become(int(uid), int(uid), int(uid))
    try:
        with State(Path(home)) as state:
            print("read", len(state.messages([1, 2])), len(read_projects(Path(home))))
    except StateUnreadable as error:
        print("told", error.message)"""


def as_nobody(root: Path, home: Path) -> str:
    """What somebody without rights gets of a home: "read MESSAGES PROJECTS" or "told WHY"."""
    for folder in (home, *home.parents):  # pytest's own folders are private
        if folder.stat().st_uid == os.geteuid() and folder != home and str(folder).startswith("/tmp/pytest"):
            folder.chmod(0o755)
    command = [sys.executable, "-P", "-c", AS_NOBODY, str(root), str(home), str(NOBODY if IS_ROOT else 0)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_folder_that_may_only_be_read_is_read(tmp_path: Path, repo_root: Path, journal: str) -> None:
    folder = tmp_path / "home"
    made(folder, journal=journal)
    folder.chmod(0o555)
    try:
        with unchanged(folder):
            assert as_nobody(repo_root, folder) == "read 2 2"
    finally:
        folder.chmod(0o755)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_a_wal_that_cannot_be_shared_is_never_read_without_its_log(tmp_path: Path, repo_root: Path) -> None:
    folder = tmp_path / "home"
    home = made(folder, journal="wal")
    with closing(sqlite3.connect(home.state)) as writer:  # keeps the log
        with writer:
            writer.execute("UPDATE messages SET content = 'changed'")
        (folder / "state.db-shm").chmod(0)
        folder.chmod(0o555)
        try:
            with unchanged(folder):
                assert as_nobody(repo_root, folder).startswith(("told state.db", "read 2"))
        finally:
            folder.chmod(0o755)
            (folder / "state.db-shm").chmod(0o600)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
@pytest.mark.parametrize("locked", ["state.db", "."])
def test_what_may_not_be_read_is_told(tmp_path: Path, repo_root: Path, locked: str) -> None:
    folder = tmp_path / "home"
    made(folder)
    mode = (folder / locked).stat().st_mode
    (folder / locked).chmod(0)
    try:
        assert "permissions" in as_nobody(repo_root, folder)
    finally:
        (folder / locked).chmod(mode)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_a_damaged_file_in_a_folder_that_may_only_be_read_is_told(tmp_path: Path, repo_root: Path) -> None:
    folder = tmp_path / "home"
    home = made(folder, journal="wal")
    os.truncate(home.state, 4096 * 2)
    folder.chmod(0o555)
    try:
        with unchanged(folder):
            assert "damaged" in as_nobody(repo_root, folder)
    finally:
        folder.chmod(0o755)


@pytest.mark.skipif(os.name == "nt", reason="Windows limits no files")
@pytest.mark.parametrize(("damaged", "logged"), [(False, False), (False, True), (True, False)])
def test_on_a_full_disk_a_file_without_a_log_is_read(tmp_path: Path, damaged: bool, logged: bool) -> None:
    """SQLite finds no room for the memory that readers of a log share."""
    import resource

    home = made(tmp_path, journal="wal")
    if damaged:
        os.truncate(home.state, 4096 * 2)
    if logged:
        (tmp_path / "state.db-wal").write_bytes(b"what another process wrote")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    told = ""
    try:
        with State(tmp_path) as state:
            read = contents(state)
    except StateUnreadable as error:
        read, told = [], error.message
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(read) == (0 if damaged or logged else 2)
    assert bool(told) == (damaged or logged)


# --- columns that are not there ---------------------------------------------------------------------

OPTIONAL = {
    "sessions": ["user_id", "session_key", "chat_type", "display_name", "model_config", "end_reason", "cwd",
                 "git_repo_root", "title", "archived", "hidden"],
    "messages": ["tool_calls", "tool_name", "observed", "active", "compacted", "display_kind", "display_metadata"],
}  # fmt: skip


def bare(path: Path, sessions: list[str], messages: list[str]) -> Path:
    """A state.db with the columns that every Hermes had, and these."""
    with closing(sqlite3.connect(path / "state.db")) as db, db:
        more = "".join(f", {name}" for name in sessions)
        db.execute(f"CREATE TABLE sessions (id TEXT PRIMARY KEY, source, parent_session_id, started_at{more})")
        more = "".join(f", {name} DEFAULT {'1' if name == 'active' else 'NULL'}" for name in messages)
        db.execute(f"CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id, role, content, timestamp{more})")
        db.execute("INSERT INTO sessions (id, source, started_at) VALUES ('a', 'cli', 5)")
        db.execute("INSERT INTO messages (session_id, role, content, timestamp) VALUES ('a', 'user', 'one', 1)")
        db.execute("INSERT INTO messages (session_id, role, content, timestamp) VALUES ('a', 'user', 'two', 2)")
    return path


@pytest.mark.parametrize("seed", range(20))
def test_any_columns_that_are_there_are_enough(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    kept = {t: [c for c in columns if seed and rng.random() < 0.5] for t, columns in OPTIONAL.items()}
    with State(bare(tmp_path, kept["sessions"], kept["messages"])) as state:
        assert [(s.id, s.source, s.cwd, s.hidden, s.delegate_from) for s in state.sessions()] == [
            ("a", "cli", "", 0, "")
        ]
        assert contents(state) == ["one", "two"]
        assert [m.content for m in state.around(["a"], 1, 5, newer=True)] == ["two"]
        assert state.live_contents("a") == [("user", "one"), ("user", "two")]
        assert state.titles(["a"]) == state.chat_names(["a"]) == {}
        assert state.meta("fts_stale") is None


def test_a_schema_that_changes_between_statements_is_the_old_or_the_new(tmp_path: Path) -> None:
    home = made(tmp_path, "0.19")
    with State(tmp_path) as state:
        assert len(contents(state)) == 2
        home.script("ALTER TABLE messages ADD COLUMN display_kind TEXT; ALTER TABLE sessions ADD COLUMN hidden INTEGER")
        assert len(contents(state)) == 2
        assert len(state.sessions()) == 2
    with State(tmp_path) as state:
        assert {"display_kind"} <= state.columns.messages


def test_text_that_is_no_utf8_costs_itself_alone(tmp_path: Path) -> None:
    home = made(tmp_path)
    home.write("UPDATE messages SET content = CAST(x'66c3286f' AS TEXT) WHERE id = 1")
    home.write("UPDATE sessions SET title = CAST(x'66c3286f' AS TEXT) WHERE id = 'a'")
    with State(tmp_path) as state:
        assert contents(state)[1] == "it is fixed"
        assert "a" in state.titles(["a"])


# --- sessions and projects --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config", ["", "{", "[]", "null", '"_branched_from"', '{"_branched_from": null}', '{"x_from": 1}', "\0json:"]
)
def test_a_model_config_without_a_marker_has_none(tmp_path: Path, config: str) -> None:
    home = small.SmallHome(tmp_path)
    home.session("a", model_config=config)
    with State(tmp_path) as state:
        found = state.sessions()[0]
    assert (found.branched_from, found.delegate_from, found.reset_from) == ("", "", "")


def test_markers_flags_and_columns_are_read(tmp_path: Path) -> None:
    home = small.SmallHome(tmp_path)
    config = {"_branched_from": "b", "_delegate_from": "d", "_reset_from": "r", "temperature": 0.5}
    home.session("a", model_config=config, archived=1, hidden=1, session_key="k", user_id="u", chat_type="dm")
    with State(tmp_path) as state:
        found = state.sessions()[0]
    assert (found.branched_from, found.delegate_from, found.reset_from) == ("b", "d", "r")
    assert (found.archived, found.hidden, found.session_key, found.user_id, found.chat_type) == (1, 1, "k", "u", "dm")


def test_projects_come_oldest_first_with_their_primary_folder_first(tmp_path: Path) -> None:
    home = small.SmallHome(tmp_path)
    home.project("p_b", "Second by name", "/b/one", "/b/two")
    home.project("p_a", "First by name", archived=True)
    found = read_projects(tmp_path)
    assert [(p.id, p.folders, p.primary_path, p.archived) for p in found] == [
        ("p_b", ("/b/one", "/b/two"), "/b/one", False),
        ("p_a", (), None, True),
    ]


def test_projects_of_old_are_read(tmp_path: Path) -> None:
    home = small.SmallHome(tmp_path)
    home.script(
        "DROP TABLE projects; CREATE TABLE projects (id TEXT, slug TEXT, name TEXT, created_at INTEGER);"
        "INSERT INTO projects VALUES ('p', 's', NULL, 1)",
        "projects.db",
    )
    assert [(p.id, p.name, p.archived) for p in read_projects(tmp_path)] == [("p", "p", False)]


@pytest.mark.parametrize("content", [None, b"", b"junk" * 1000])
def test_without_projects_there_are_none_and_damaged_ones_are_told(tmp_path: Path, content: bytes | None) -> None:
    file = small.SmallHome(tmp_path).path / "projects.db"
    file.unlink() if content is None else file.write_bytes(content)
    with unchanged(tmp_path):
        if content:
            with pytest.raises(StateUnreadable, match=r"projects\.db is damaged"):
                read_projects(tmp_path)
        else:
            assert read_projects(tmp_path) == []


def test_a_word_of_projects_db_that_is_no_text_is_damage(tmp_path: Path) -> None:
    home = made(tmp_path)
    home.script("CREATE INDEX idx_names ON projects(name)", "projects.db")
    file = tmp_path / "projects.db"
    file.write_bytes(file.read_bytes().replace(b"idx_names", b"\xc4" * 9, 1))
    with unchanged(tmp_path), pytest.raises(StateUnreadable, match=r"projects\.db is damaged"):
        read_projects(tmp_path)


def test_tables_that_go_while_they_are_read_are_told(tmp_path: Path) -> None:
    home = made(tmp_path)
    home.script("DROP VIEW messages_fts_src; DROP VIEW messages_fts_trigram_src")  # they would forbid it
    with State(tmp_path) as state:
        home.write("DROP TABLE sessions")
        with pytest.raises(sqlite3.OperationalError) as caught:
            state.sessions()
    assert state_module.explain(caught.value) == "state.db holds no conversations yet."


# --- lineages ---------------------------------------------------------------------------------------


def session(id: str, parent: str = "", *, ended: str = "", **more: str) -> Session:
    row: dict[str, Any] = dict.fromkeys(Session._fields, "")
    row |= {"id": id, "source": "cli", "parent_id": parent, "end_reason": ended}
    return Session(**row | {"archived": 0, "hidden": 0, "started_at": 0.0} | more)


def test_a_compression_goes_on_in_a_new_row() -> None:
    lineages = Lineages([session("a", ended="compression"), session("b", "a", ended="compression"), session("c", "b")])
    assert lineages.members("b") == ["a", "b", "c"]
    assert {lineages.root(s) for s in "abc"} == {"a"}
    assert list(lineages.roots()) == ["a"]


@pytest.mark.parametrize(
    "child",
    [
        session("b", "a", branched_from="a"),
        session("b", "a", delegate_from="a"),
        session("b", "a", reset_from="a"),
        session("b", "a", source="tool"),
        session("b", "gone"),
        session("b", "b"),
        session("b"),
    ],
    ids=["branch", "delegate", "reset", "tool", "missing parent", "its own parent", "no parent"],
)
def test_other_children_are_conversations_of_their_own(child: Session) -> None:
    lineages = Lineages([session("a", ended="compression"), child])
    assert lineages.members("a") == ["a"]
    assert lineages.members("b") == ["b"]


@pytest.mark.parametrize("ended", ["", "user_exit", "new_session", "branched"])
def test_only_a_compression_is_gone_on_from(ended: str) -> None:
    assert Lineages([session("a", ended=ended), session("b", "a")]).members("a") == ["a"]


@pytest.mark.parametrize("marker", ["branched_from", "delegate_from", "reset_from"])
def test_a_marker_inherited_from_an_ancestor_breaks_nothing(marker: str) -> None:
    chain = [
        session("a", ended="compression"),
        session("b", "a", ended="compression", **{marker: "a"}),
        session("c", "b", ended="compression", **{marker: "a"}),
        session("d", "c", **{marker: "a"}),
    ]
    assert Lineages(chain).members("d") == ["b", "c", "d"]


def test_two_rows_may_go_on_from_one() -> None:
    lineages = Lineages([session("a", ended="compression"), session("b", "a"), session("c", "a")])
    assert lineages.members("c") == ["a", "b", "c"]


@pytest.mark.parametrize("order", ["in order", "backwards", "shuffled"])
def test_a_chain_of_1200_is_one_conversation(order: str) -> None:
    chain = [session("s0", ended="compression")]
    chain += [session(f"s{i}", f"s{i - 1}", ended="compression") for i in range(1, 1_200)]
    if order == "backwards":
        chain.reverse()
    if order == "shuffled":
        random.Random(1).shuffle(chain)
    lineages = Lineages(chain)
    assert list(lineages.roots()) == ["s0"]
    assert len(lineages.members("s600")) == 1_200


@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_a_circle_ends_and_is_one_conversation(length: int) -> None:
    circle = [session(f"s{i}", f"s{(i + 1) % length}", ended="compression") for i in range(length)]
    lineages = Lineages(circle)
    assert len({lineages.root(s.id) for s in circle}) == 1
    assert sorted(lineages.members("s0")) == sorted(s.id for s in circle)


def test_branches_and_their_branches_belong_to_what_they_were_taken_from() -> None:
    lineages = Lineages(
        [
            session("a", ended="compression"),
            session("a2", "a"),
            session("b", "a", branched_from="a", ended="compression"),
            session("b2", "b", branched_from="a"),
            session("c", "b2", branched_from="b2"),
            session("other"),
        ]
    )
    assert lineages.with_branches("a2") == {"a", "a2", "b", "b2", "c"}
    assert lineages.with_branches("b") == {"b", "b2", "c"}
    assert lineages.with_branches("c") == {"c"}


def test_a_circle_of_branches_ends() -> None:
    lineages = Lineages([session("a", "b", branched_from="b"), session("b", "a", branched_from="a")])
    assert lineages.with_branches("a") == lineages.with_branches("b") == {"a", "b"}


def test_the_newest_row_with_a_place_decides() -> None:
    chain = [
        session("a", ended="compression", cwd="/one", git_repo_root="/one"),
        session("b", "a", ended="compression", cwd="/two"),
        session("c", "b"),
    ]
    assert Lineages(chain).place("a") == ("/two", "")
    assert Lineages([session("x")]).place("x") == ("", "")


# --- which messages count ---------------------------------------------------------------------------

# name: (columns of a row, whether it counts)
FLAGS: dict[str, tuple[dict[str, Any], bool]] = {
    "live": ({}, True),
    "summarised away": ({"active": 0, "compacted": 1}, True),
    "rewound": ({"active": 0, "compacted": 0}, False),
    "observed": ({"observed": 1}, False),
    "observed and summarised away": ({"observed": 1, "active": 0, "compacted": 1}, False),
    "observed unset": ({"observed": None}, True),
}
DISPLAYS: dict[str, tuple[dict[str, Any], bool]] = {
    "": ({"display_kind": ""}, True),
    "steer": ({"display_kind": "steer"}, True),
    **{
        kind: ({"display_kind": kind}, False)
        for kind in (
            "hidden", "model_switch", "personality_switch", "process_complete", "async_delegation_complete",
            "auto_continue", "internal_notification", "failed_turn", "a kind of tomorrow",
        )
    },
    "model only": ({"display_metadata": {"model_only": True}}, False),
    "not model only": ({"display_metadata": {"model_only": False}}, True),
    "model only in a value": ({"display_metadata": {"note": "model_only"}}, True),
    "broken metadata": ({"display_metadata": '{"model_only": tru'}, True),
    "other metadata": ({"display_metadata": {"a": 1}}, True),
}  # fmt: skip


@pytest.mark.parametrize(
    ("layout", "columns", "counts"),
    [
        pytest.param(layout, *row, id=f"{layout}, {name}")
        for layout in small.LAYOUTS
        for name, row in (FLAGS if layout == "0.19" else FLAGS | DISPLAYS).items()
    ],
)
def test_a_row_counts_by_its_flags(tmp_path: Path, layout: str, columns: dict[str, Any], counts: bool) -> None:
    home = small.furnished(tmp_path, layout)
    first, row = home.say("caller", "first"), home.say("caller", "second", **columns)
    with State(tmp_path) as state:
        assert (row in state.messages([first, row])) == counts
        assert [m.id for m in state.around(["caller"], first, 5, newer=True)] == [row] * counts


def test_a_flag_that_flips_is_read_live(tmp_path: Path) -> None:
    home = made(tmp_path)
    with State(tmp_path) as state:
        assert len(contents(state)) == 2
        home.write("UPDATE messages SET active = 0 WHERE id = 2")
        assert len(contents(state)) == 1
        home.write("DELETE FROM messages")
        assert contents(state) == []


# --- neighbours and long messages -------------------------------------------------------------------


def test_neighbours_come_nearest_first_over_the_rows_of_a_conversation(tmp_path: Path) -> None:
    home = small.furnished(tmp_path)
    home.session("a", end_reason="compression")
    one, two = home.talk("a", "one", "two")
    home.say("a", "output", "tool")
    home.say("a", "", "assistant")
    home.say("caller", "elsewhere")
    home.session("b", parent="a")
    three, four = home.talk("b", "three", "four")
    with State(tmp_path) as state:
        assert [m.id for m in state.around(["a", "b"], two, 9, newer=True)] == [three, four]
        assert [m.id for m in state.around(["a", "b"], three, 9, newer=False)] == [two, one]
        assert [m.id for m in state.around(["a", "b"], one, 2, newer=True)] == [two, three]
        assert state.around(["a", "b"], one, 9, newer=False) == []
        assert state.around(["a", "b"], one, 0, newer=True) == []


def test_thousands_of_ids_are_asked_for_at_once(tmp_path: Path) -> None:
    home = made(tmp_path)
    home.fill("a", (str(i) for i in range(3_000)))
    with State(tmp_path) as state:
        assert len(state.messages(range(1, 3_003))) == 3_002
        assert len(state.around([f"none{i}" for i in range(50_000)] + ["a"], 1, 5, newer=True)) == 5


@pytest.mark.parametrize("at", [0, MAX_CONTENT // 2, MAX_CONTENT, 3 * MAX_CONTENT])
@pytest.mark.parametrize("fill", ["x ", "归属"])
def test_of_a_long_message_the_beginning_is_read_and_any_place_on_demand(tmp_path: Path, at: int, fill: str) -> None:
    home = small.furnished(tmp_path)
    row = home.say("caller", (fill * (at // 2 + 1))[:at] + "Needle" + fill * 100_000)
    with State(tmp_path) as state:
        assert len(str(state.messages([row])[row].content)) == MAX_CONTENT
        piece = state.excerpt(row, "needle")
    assert "Needle" in piece
    assert len(piece) <= MAX_CONTENT // 2 + 4
    assert piece.startswith("… ") == (at > MAX_CONTENT // 4)
    assert piece.endswith(" …")


CHANGES = {
    "a row more": "INSERT INTO messages(session_id, role, content, timestamp) VALUES ('a', 'user', 'new', 9)",
    "a row less": "DELETE FROM messages WHERE id = 2",
    "the newest gone": "DELETE FROM messages WHERE id = 4",
    "one rewound": "UPDATE messages SET active = 0 WHERE id = 2",
    "the newest rewound": "UPDATE messages SET active = 0 WHERE id = 4",
    "one taken back": "UPDATE messages SET active = 1 WHERE id = 1",
    "all rewound": "UPDATE messages SET active = 0",
    "one rewound for another": "UPDATE messages SET active = 2 - id WHERE id IN (1, 2)",
    "all gone": "DELETE FROM messages",
    "all of unknown state": "UPDATE messages SET active = NULL",
}


@pytest.mark.parametrize("layout", small.SCHEMA)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_a_sessions_rows_come_to_changes_when_they_do(tmp_path: Path, layout: str, change: str) -> None:
    home = small.SmallHome(tmp_path, layout)
    # A host in the middle of a migration has rows of which it does not say yet whether they are live.
    schema = "UPDATE sqlite_master SET sql = replace(sql, 'active INTEGER NOT NULL', 'active INTEGER')"
    home.script(f"PRAGMA writable_schema = ON; {schema}; PRAGMA writable_schema = RESET;")
    home.session("a")
    for n in range(4):
        home.say("a", f"message {n}", active=int(n > 0))
    with State(tmp_path) as state:
        before = state.counts(["a", "none"])
    assert list(before) == ["a"]
    home.script(change)
    with State(tmp_path) as state:
        after = state.counts(["a", "none"])
    assert after != before
    assert list(after) == ([] if change == CHANGES["all gone"] else ["a"])


def test_an_excerpt_of_nothing_is_nothing(tmp_path: Path) -> None:
    home = made(tmp_path)
    empty = home.say("a", None)
    with State(tmp_path) as state:
        assert state.excerpt(empty, "x") == state.excerpt(999, "x") == ""


def test_a_huge_stored_list_is_left_out_of_memory(tmp_path: Path) -> None:
    home = small.furnished(tmp_path)
    row = home.say("caller", [{"type": "image_url", "image_url": {"url": "x" * 25 * MAX_CONTENT}}])
    with State(tmp_path) as state:
        assert state.messages([row])[row].content is None


def test_a_statement_still_running_at_the_deadline_is_interrupted(tmp_path: Path) -> None:
    home = made(tmp_path)
    home.fill("a", (str(i) for i in range(400)))
    with (
        State(tmp_path, deadline=time.monotonic()) as state,
        pytest.raises(sqlite3.OperationalError, match="interrupted"),
    ):
        state.rows("SELECT count(*) FROM messages a, messages b, messages c")


def test_a_connection_is_closed_whatever_happens(tmp_path: Path) -> None:
    opened: list[sqlite3.Connection] = []

    def connect(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        opened.append(sqlite3.connect(*args, **kwargs))
        return opened[-1]

    home = made(tmp_path)
    with State(tmp_path, connect=connect), pytest.raises(sqlite3.Error):
        opened[0].execute("SELECT nonsense")
    home.state.write_bytes(b"junk" * 1000)
    with pytest.raises(StateUnreadable):
        State(tmp_path, connect=connect)
    for connection in opened:
        with pytest.raises(sqlite3.ProgrammingError):
            connection.execute("SELECT 1")
