"""Homes that get damaged, and what holds of every answer from one.

In `talk`, of the caller's project, the herons were spoken of; in `other`, of another project, too, with a word
that no answer may hold. `ask` asks for them as a host does.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import project_history_recall as plugin
from project_history_recall import indexing, semantic

from tests import homes
from tests.faults.tools import LONG, checked, configure, turn
from tests.small import BOREALIS, Answer, SmallHome, furnished

IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
NOBODY = 65534
FOREIGN = "kingfisher"
SAID = (
    "Where do the herons nest?",
    "The heron nests in the alders by the weir, 鹭鸶 as the sign says.",
    "Let us fix src/heron.py, it raises ERR_7431.",
    "Done: the lease is in, and the import ran once.",
)
HITS = {2, 3, 4}  # the ids of those that say so


def seeds(count: int, long: int) -> range:
    """The seeds of a test that throws dice: `count`, or `long` with PHR_LONG."""
    return range(long if LONG else count)


def spoken(path: Path, layout: str = "0.22", journal: str = "delete", **settings: Any) -> SmallHome:
    """A home in which the herons were spoken of. Keyword search alone, unless the settings say otherwise."""
    home = furnished(path, layout, journal)
    home.say("caller", "Where were we?")  # 1
    home.session("talk", title="Herons")
    home.talk("talk", *SAID)  # 2-5
    home.session("other", cwd=BOREALIS)
    home.talk("other", f"The heron and the {FOREIGN} are here.", f"No, the {FOREIGN} is not a heron.")  # 6, 7
    home.say("talk", "grep: heron.py:12", "tool")  # 8
    home.fill("other", (f"{FOREIGN} {n} " + "and more of it " * 20 for n in range(60)))
    home.session("small", title="Small talk")
    home.fill("small", (f"Remark {n}. " + "So it goes on. " * 20 for n in range(30)), "assistant")
    configure(home, **settings)
    return home


@dataclass(frozen=True)
class Copies:
    """One home made once, and copies of it to be damaged."""

    made: Path
    into: Path

    def another(self) -> Path:
        path = Path(tempfile.mkdtemp(dir=self.into)) / "home"
        shutil.copytree(self.made, path)
        return path


def of_the_host(home: Path) -> dict[str, bytes | None]:
    """The bytes of the host's databases. Not while this process has one open: it would lose its locks."""
    names = ("state.db", "state.db-wal", "state.db-journal", "projects.db")
    return {name: (home / name).read_bytes() if (home / name).is_file() else None for name in names}


def ask(home: Path, query: str = "heron", *, caller: str = "caller", **args: Any) -> Answer:
    """The answer to a question; whatever it is, it is sound and tells nothing of another project."""
    with turn(home):
        return ask_in_turn(query, caller=caller, **args)


def ask_in_turn(query: str = "heron", *, caller: str = "caller", **args: Any) -> Answer:
    """The same in a turn that is open: it is of the environment, which the threads of a test share."""
    answer = checked(plugin.handle_search({"query": query, "limit": 20, **args}, session_id=caller))
    assert not homes.mentions(answer, FOREIGN)
    return answer


def ask_and_compare(home: Path, query: str = "heron", **args: Any) -> Answer:
    """The same, once it is seen that it changed nothing of the host's. An empty log may appear beside a WAL file."""
    before = of_the_host(home)
    answer = ask(home, query, **args)
    after = of_the_host(home)
    if before["state.db-wal"] is None and after["state.db-wal"] == b"":
        after["state.db-wal"] = None
    assert after == before
    return answer


def hits(answer: Answer) -> set[int]:
    return {hit["message_id"] for hit in answer.get("results", [])}


def told(answer: Answer) -> str:
    """What an answer that could not be given says, else ""."""
    return "" if answer["success"] else f"{answer['error']}: {answer['message']}"


def rows(database: Path) -> dict[str, list[Any]] | None:
    """All sessions and messages as SQLite reads them from first to last, without an index; None where it cannot."""
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as db:
            return {
                table: db.execute(f"SELECT * FROM {table} NOT INDEXED").fetchall() for table in ("sessions", "messages")
            }
    except (sqlite3.Error, MemoryError, UnicodeDecodeError):
        return None


def an_index_lies(database: Path) -> bool:
    """Whether an index of the rows is wrong and nothing in it says so: then nobody can tell but by reading all."""
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as db:
        for index, table, columns in (
            ("idx_messages_session_active", "messages", "session_id, active, timestamp, rowid"),
            ("idx_messages_session", "messages", "session_id, timestamp, rowid"),
            ("sqlite_autoindex_sessions_1", "sessions", "id, rowid"),
        ):
            try:
                by_index = db.execute(
                    f"SELECT {columns} FROM {table} INDEXED BY {index} WHERE {columns.partition(',')[0]} >= ''"
                ).fetchall()
            except (sqlite3.Error, MemoryError):
                continue
            if sorted(by_index) != sorted(db.execute(f"SELECT {columns} FROM {table} NOT INDEXED").fetchall()):
                return True
    return False


@contextmanager
def fresh() -> Iterator[None]:
    """Nothing is kept afterwards, as in a new process."""
    yield
    indexing.stop_workers()
    indexing._workers.clear()
    for store in semantic._stores.values():
        store.close()
    semantic._stores.clear()


@contextmanager
def folder_of_nobody() -> Iterator[Path]:
    """A folder that anybody may write in, outside of what is private to who runs the tests."""
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    folder.chmod(0o777)
    try:
        yield folder
    finally:
        for place, _, names in os.walk(folder):
            Path(place).chmod(0o700)
            for name in names:
                (Path(place) / name).chmod(0o600)
        shutil.rmtree(folder)


@contextmanager
def nobody() -> Iterator[None]:
    """The rest runs as a user whom modes bind: root is bound by none."""
    become = os.seteuid if IS_ROOT else print
    become(NOBODY)
    try:
        yield
    finally:
        become(0)
