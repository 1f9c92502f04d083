"""Whatever becomes of what is ours: a sound answer with the words' hits, and an index that is whole again soon.

`embeddings.db` is a cache: damage costs what was embedded and is told. The journal of moves is not: what can be read
of it counts, and a move is carried out and taken back whatever stands in it.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

apsw = pytest.importorskip("apsw")
pytest.importorskip("numpy")

from project_history_recall import host, indexing, locks, move, semantic, vectors  # noqa: E402
from project_history_recall.indexing import Indexer, store_path  # noqa: E402
from project_history_recall.state import State  # noqa: E402
from project_history_recall.vectors import Store  # noqa: E402

from tests.faults.damage import (  # noqa: E402
    HITS,
    IS_ROOT,
    Copies,
    ask,
    ask_and_compare,
    ask_in_turn,
    folder_of_nobody,
    fresh,
    hits,
    nobody,
    seeds,
    spoken,
    told,
)
from tests.faults.tools import LONG, checked, moved, turn  # noqa: E402
from tests.probes.index_worker import MadeUp, everywhere  # noqa: E402
from tests.small import Answer, SmallHome  # noqa: E402

posix = pytest.mark.skipif(os.name == "nt", reason="forks, signals and modes")
forks = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
ASIDE = "embeddings.db.aside"


@pytest.fixture(autouse=True)
def _made_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An embedder that costs nothing and means nothing, and no work in the background, which would be by chance."""
    monkeypatch.setattr(semantic, "LocalEmbedder", MadeUp)
    monkeypatch.setattr(semantic, "start_worker", lambda *_: True)
    with fresh():
        yield


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Copies:
    """A home whose projects are indexed, made once."""
    base = tmp_path_factory.mktemp("indexed")
    with pytest.MonkeyPatch.context() as patch, fresh():
        patch.setattr(semantic, "LocalEmbedder", MadeUp)
        home = with_meaning(base / "home")
        assert ask(home.path)["semantic_status"] == "ready"
    return Copies(home.path, base)


def with_meaning(path: Path) -> SmallHome:
    return spoken(path, embedding_provider="local", index_budget_s=5)


def a_new_process() -> None:
    """From now on nothing is known of before."""
    with fresh():
        pass


def more(home: Path) -> None:
    """Something new is said in every conversation, so that each is looked at anew."""
    path = SmallHome.__new__(SmallHome)
    path.path, path.clock = home, 1_790_000_000.0
    for session in ("talk", "small", "other", "caller"):
        path.say(session, f"And one thing more, in {session}.")


def contents(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """What an index holds, in an order of its own, once it has proved whole."""
    with closing(apsw.Connection(str(path))) as db:
        assert list(db.execute("PRAGMA integrity_check")) == [("ok",)]
        join = "FROM {} t JOIN conversation c USING (conv)"
        return {
            "vec": list(db.execute(f"SELECT root, key, v {join.format('vec')} ORDER BY 1, 2")),
            "place": list(db.execute(f"SELECT root, key, message_id, offset {join.format('place')} ORDER BY 3, 4, 2")),
            "planned": list(db.execute(f"SELECT root, stamp, contents {join.format('planned')} ORDER BY 1")),
            "debt": list(db.execute(f"SELECT root, key {join.format('debt')} ORDER BY 1, 2")),
        }


def as_if_new(home: Path) -> bool:
    """Whether the index of a home holds what one begun now would."""
    roots = ("caller", "talk", "small")
    other = Store(home / "another.db")
    with State(home) as state:
        all_ = everywhere(state)
        there = [root for root in roots if root in all_.kept()]
        Indexer(other, MadeUp()).catch_up(state, all_, there, {}, lambda: False)
    other.close()
    new, now = contents(other.path), contents(store_path(home))
    other.path.unlink()
    return new == {table: [row for row in rows if row[0] in there] for table, rows in now.items()}


def is_sound(answer: Answer) -> None:
    """An answer to who asks for herons in the middle of whatever happened."""
    assert hits(answer) >= HITS, told(answer)
    assert answer["semantic_status"] in ("ready", "partial", "indexing", "unavailable")
    if answer["semantic_status"] != "ready":
        assert answer["semantic_detail"]


# --- killed -----------------------------------------------------------------------------------------


def life(home: Path) -> None:
    """All that happens to an index: begun, added to, edited, branched from, swept, tidied, some of it forgotten."""
    small = SmallHome.__new__(SmallHome)
    small.path, small.clock = home, 1_790_000_000.0
    ask(home)
    more(home)
    small.write("UPDATE messages SET active = 0 WHERE session_id = 'small' AND id % 5 = 0")
    small.session("branch", parent="talk", model_config={"_branched_from": "talk"})
    small.talk("branch", "Where do the herons nest?", "Nobody knows.")
    ask(home)
    small.write("DELETE FROM messages WHERE session_id = 'small'")
    small.write("DELETE FROM sessions WHERE id = 'small'")
    indexing._swept.clear()
    ask(home)
    store = semantic.open_store(home)
    store.forget(["talk"])
    ask(home)
    store.forget(None)
    ask(home)


class Killed:
    """An exec tracer that counts the statements, and kills the process before the `nth`."""

    def __init__(self, nth: int) -> None:
        self.count, self._nth = 0, nth

    def __call__(self, cursor: object, sql: str, bindings: object) -> bool:
        self.count += 1
        if self.count == self._nth:
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    def watch(self, connection: Any) -> None:
        connection.exec_trace = self


def lived(home: Path, nth: int) -> int:
    """Live it in a child that is killed before the `nth` statement; how it ended, as `waitpid` says."""
    child = os.fork()
    if child == 0:
        code = 3
        try:
            killed = Killed(nth)
            apsw.connection_hooks.append(killed.watch)
            life(home)
            (home / "statements").write_text(str(killed.count))
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@posix
@forks
def test_killed_at_any_statement_it_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    """Every fourth one or so, each by PHR_LONG=1."""
    base = Copies(with_meaning(tmp_path / "home").path, tmp_path)
    whole = base.another()
    assert lived(whole, 0) == 0
    statements = int((whole / "statements").read_text())
    assert statements > 200
    dice = random.Random(0)
    chosen = range(1, statements + 1) if LONG else sorted(dice.sample(range(1, statements + 1), 60))
    journals = 0
    for nth in chosen:
        home = base.another()
        assert lived(home, nth) == -signal.SIGKILL, nth
        journals += (store_path(home).parent / "embeddings.db-journal").exists()
        is_sound(ask_and_compare(home))
        answer = ask_and_compare(home)
        assert (answer["semantic_status"], answer.get("semantic_detail")) == ("ready", None), nth
        assert as_if_new(home), nth
        assert not (store_path(home).parent / ASIDE).exists(), "a kill damages nothing"
        a_new_process()
    assert journals, "some were killed in the middle of a write"


# --- damaged ----------------------------------------------------------------------------------------


def goes_on(home: Path) -> str:
    """Whatever was done to the index: the answer now, and after a while. What was told of it."""
    first = ask_and_compare(home)
    is_sound(first)
    more(home)
    second = ask_and_compare(home)
    is_sound(second)
    last = ask_and_compare(home)
    assert last["semantic_status"] == "ready", last
    assert hits(last) >= HITS
    details = "".join(a.get("semantic_detail", "") for a in (first, second, last))
    set_aside = (store_path(home).parent / ASIDE).exists()
    assert set_aside == ("it was set aside as" in details), details
    assert contents(store_path(home))["debt"] == []
    a_new_process()
    assert "semantic_detail" not in ask_and_compare(home)
    a_new_process()
    return details


def test_random_bytes_at_random_places_cost_the_index_at_most(indexed: Copies) -> None:
    home = indexed.another()
    healthy = store_path(home).read_bytes()
    state = (home / "state.db").read_bytes()
    used = [at for at, byte in enumerate(healthy) if byte]
    rebuilt = 0
    for seed in seeds(25, 200):
        dice = random.Random(seed)
        content = bytearray(healthy)
        for _ in range(dice.choice((1, 10, 200))):
            at = dice.choice(used if dice.random() < 0.9 else used[:40])  # now and then in the header
            junk = dice.randbytes(dice.choice((1, 4, 64, 4096)))
            content[at : at + len(junk)] = junk
        (home / "state.db").write_bytes(state)
        (store_path(home).parent / ASIDE).unlink(missing_ok=True)
        store_path(home).write_bytes(content[: len(healthy)])
        rebuilt += "rebuilt" in goes_on(home)
    assert rebuilt > 5


def test_cut_off_anywhere_it_is_begun_anew(indexed: Copies) -> None:
    home = indexed.another()
    healthy = store_path(home).read_bytes()
    state = (home / "state.db").read_bytes()
    dice = random.Random(0)
    lengths = {0, 1, 50, 99, 100, *range(0, len(healthy), vectors.PAGE_BYTES)}
    lengths |= {dice.randrange(len(healthy)) for _ in seeds(8, 150)}
    for length in sorted(lengths):
        (home / "state.db").write_bytes(state)
        (store_path(home).parent / ASIDE).unlink(missing_ok=True)
        store_path(home).write_bytes(healthy[:length])
        said = goes_on(home)
        if length <= 1:  # to SQLite such a file is a new one
            assert said == ""
        elif length <= len(healthy) - vectors.PAGE_BYTES:
            assert "rebuilt" in said


def newer(path: Path) -> None:
    with closing(apsw.Connection(str(path))) as db:
        db.execute("PRAGMA user_version = 99")


def of_another_program(path: Path) -> None:
    path.unlink()
    with closing(apsw.Connection(str(path))) as db:
        db.execute("CREATE TABLE vec(something); INSERT INTO vec VALUES (1)")


def without(table: str) -> Callable[[Path], None]:
    def drop(path: Path) -> None:
        with closing(apsw.Connection(str(path))) as db:
            db.execute(f"DROP TABLE {table}")

    return drop


def filled_with(sql: str) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        with closing(apsw.Connection(str(path))) as db:
            db.execute("PRAGMA ignore_check_constraints = ON")
            db.execute(sql)

    return spoil


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (newer, "was written by a newer version of this plugin"),
        (of_another_program, "is damaged"),
        (lambda path: path.write_bytes(b"just text"), "is damaged"),
        (lambda path: path.write_bytes(os.urandom(100_000)), "is damaged"),
        *((without(t), "is damaged") for t in ("model", "conversation", "planned", "place", "vec", "debt")),
        (filled_with("UPDATE vec SET v = zeroblob(3)"), "is damaged"),
        (filled_with("UPDATE vec SET v = zeroblob(length(v))"), "is damaged"),
    ],
    ids=["newer", "another's", "text", "junk", "no model", "no conversation", "no planned", "no place", "no vec",
         "no debt", "short vectors", "zero vectors"],
)  # fmt: skip
def test_a_file_that_is_not_as_ours_is_set_aside_and_told(
    indexed: Copies, harm: Callable[[Path], None], says: str
) -> None:
    home = indexed.another()
    harm(store_path(home))
    assert f"The search index {says}: it was set aside as {ASIDE} and is being rebuilt." in goes_on(home)


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM place", "DELETE FROM vec", "DELETE FROM planned", "UPDATE planned SET stamp = 'x'",
        "UPDATE planned SET contents = 100000", "UPDATE place SET message_id = message_id + 1000000",
        "UPDATE place SET offset = -5, length = 1 << 40", "UPDATE OR IGNORE place SET message_id = 6",
        "DELETE FROM model",
        "INSERT INTO debt(conv, fp, key, seq, owner, lease, tries) SELECT conv, fp, key, 0, 'x|1|1|1', 1e18, 99"
        " FROM vec",
    ],
)  # fmt: skip
def test_rows_that_say_what_is_not_so_cost_no_word_and_show_nothing_foreign(indexed: Copies, sql: str) -> None:
    """Nothing in such a file tells that it is wrong; what was said is found by its words, and no more than that."""
    home = indexed.another()
    filled_with(sql)(store_path(home))
    for mode in ("hybrid", "semantic", "keyword"):
        assert ask_and_compare(home, mode=mode)["success"]
    is_sound(ask_and_compare(home))
    more(home)
    is_sound(ask_and_compare(home))


# --- whose it is ------------------------------------------------------------------------------------


@posix
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o666])
def test_an_index_of_somebody_else_costs_the_meaning_at_most(mode: int) -> None:
    if not IS_ROOT:
        pytest.skip("only root can give a file away")
    with folder_of_nobody() as base:
        home = with_meaning(base / "home").path
        with fresh():
            assert ask(home)["semantic_status"] == "ready"
        for file in home.rglob("*"):
            file.chmod(0o755 if file.is_dir() else 0o644)
        home.chmod(0o755)
        store_path(home).chmod(mode)
        more(home)
        before = store_path(home).read_bytes()
        with nobody():
            answer = ask_and_compare(home)
        is_sound(answer)
        assert answer["semantic_status"] == "unavailable"
        assert "cannot be read or written" in answer["semantic_detail"]
        assert store_path(home).read_bytes() == before


@posix
def test_an_index_that_may_only_be_read_still_answers() -> None:
    with folder_of_nobody() as base:
        home = with_meaning(base / "home").path
        with fresh():
            ask(home)
        folder = store_path(home).parent
        for file in home.rglob("*"):
            if IS_ROOT:
                os.chown(file, 65534, 65534)
            file.chmod(0o755 if file.is_dir() else 0o644)
        home.chmod(0o755)
        store_path(home).chmod(0o400)
        folder.chmod(0o500)
        with nobody():
            answer = ask_and_compare(home)
            assert answer["semantic_status"] == "ready"
            is_sound(answer)
            assert "semantic" in {hit["score_source"] for hit in ask(home, "weir", mode="semantic")["results"]}
        more(home)
        with nobody():
            answer = ask_and_compare(home)
        is_sound(answer)
        assert answer["semantic_status"] == "unavailable"
        assert [file.name for file in folder.iterdir()] == ["embeddings.db"]


@pytest.mark.parametrize("place", ["plugin-data", "plugin-data/project-history-recall/.cache", "the file itself"])
def test_something_else_in_its_place_costs_the_meaning(tmp_path: Path, place: str) -> None:
    home = with_meaning(tmp_path / "home").path
    if place == "the file itself":
        store_path(home).mkdir(parents=True)
    else:
        (home / place).parent.mkdir(parents=True, exist_ok=True)
        (home / place).write_text("in the way")
    answer = ask_and_compare(home)
    is_sound(answer)
    assert answer["semantic_status"] == "unavailable"
    assert "cannot be read or written" in answer["semantic_detail"]


# --- several at once --------------------------------------------------------------------------------


def test_processes_that_ask_for_the_first_time_at_once_index_it_once(tmp_path: Path, repo_root: Path) -> None:
    home = with_meaning(tmp_path / "home").path
    command = [sys.executable, "-P", str(repo_root / "tests" / "probes" / "fault_first.py"), str(home)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    env = {**os.environ, "HERMES_HOME": str(home)}
    started = [subprocess.Popen(command, env=env, **pipes) for _ in range(4)]
    for process in started:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
    for process in started:
        assert process.stdin
        process.stdin.write(b"go\n")
        process.stdin.flush()
    for process in started:
        is_sound(checked(process.communicate()[0].decode()))
        assert process.returncode == 0
    embedded = (home / "embedded").read_text().split()
    assert ask_and_compare(home)["semantic_status"] == "ready"
    assert as_if_new(home)
    queries = len(started)
    assert len(embedded) - queries == len(contents(store_path(home))["vec"]), "each text once"
    assert len(list(store_path(home).parent.iterdir())) == 1


@posix
@forks
def test_a_fork_of_a_process_that_has_searched_searches_too(indexed: Copies) -> None:
    """Parent and children at once; no other thread is in SQLite at the fork, for which SQLite itself is not made."""
    home = indexed.another()
    ask(home)
    assert semantic.open_store(home)._connection is not None, "the file is open when the process forks"
    children = []
    for _ in range(6):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for mode in ("hybrid", "semantic"):
                    is_sound(ask(home, mode=mode))
                code = 0
            finally:
                os._exit(code)
        children.append(child)
        is_sound(ask(home))
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 6
    more(home)
    ask(home)
    assert as_if_new(home)


@posix
@forks
def test_a_fork_while_another_thread_holds_a_lock_of_ours_hangs_nothing(indexed: Copies) -> None:
    """Python copies a held lock as held, and nobody in the child would let go of it."""
    home = indexed.another()
    ask(home)
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with contextlib.ExitStack() as stack:
            for lock in list(locks._all):
                stack.enter_context(lock)
            held.set()
            go_on.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(60)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(30)
            is_sound(ask(home))
            indexing.stop_workers()
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    go_on.set()
    holder.join()
    assert code == 0
    is_sound(ask(home))


@posix
@forks
def test_a_child_that_forked_inside_a_lock_lets_go_of_it() -> None:
    lock = locks.ForkLock()
    child = 1
    with lock:
        child = os.fork()
    if child == 0:
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with lock:
        pass


def test_sixteen_threads_that_ask_at_once_are_all_answered(tmp_path: Path) -> None:
    home = with_meaning(tmp_path / "home").path
    start, failed, answers = threading.Barrier(16), list[str](), list[Answer]()

    def work() -> None:
        start.wait(60)
        for mode in ("hybrid", "semantic", "keyword", "hybrid"):
            try:
                answers.append(ask_in_turn(mode=mode))
                is_sound(answers[-1])
            except BaseException as error:
                failed.append(repr(error))

    threads = [threading.Thread(target=work) for _ in range(16)]
    with turn(home):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failed == []
    assert len(answers) == 64
    assert len(semantic._stores) == 1
    assert ask(home)["semantic_status"] == "ready"
    assert as_if_new(home)


# --- the journal of moves ---------------------------------------------------------------------------


@pytest.fixture
def desk(tmp_path: Path) -> SmallHome:
    """A home with folders, in which `talk` was moved three times, and `caller` once by the same hand."""
    home = spoken(tmp_path / "home")
    for name, key in (("atlas", "p_atlas"), ("borealis", "p_borealis")):
        (tmp_path / name).mkdir()
        home.write("UPDATE projects SET primary_path = ? WHERE id = ?", [(str(tmp_path / name), key)], "projects.db")
        home.write("UPDATE project_folders SET path = ? WHERE project_id = ?", [(str(tmp_path / name), key)],
                   "projects.db")  # fmt: skip
        home.write("UPDATE sessions SET cwd = ? WHERE cwd = ?", [(str(tmp_path / name), f"/src/{name}")])
    for project in ("Borealis", "Atlas", "Borealis", "Atlas"):
        assert checked(moved(home, {"project": project, "session_id": "talk"}, task="caller"))["moved"]
    path = journal(home)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[1].replace(b'"session": "talk"', b'"session": "caller"'), *lines]))
    return home


def journal(home: SmallHome) -> Path:
    return host.data_folder(home.path) / move.JOURNAL


def stands(home: SmallHome) -> str:
    with State(home.path) as state:
        return next(s.cwd for s in state.sessions() if s.id == "talk")


def is_no_obstacle(home: SmallHome, folders: Sequence[str]) -> bool:
    """Search, undo, move and undo again over whatever stands in the journal; whether the first undo found its move."""
    assert hits(ask_and_compare(home.path)) >= HITS
    before = stands(home)
    undone = checked(moved(home, {"undo": True, "session_id": "talk"}, task="caller"))
    assert undone["success"] or undone["error"] in ("nothing_to_undo", "cannot_undo"), undone
    assert stands(home) in folders
    assert undone["success"] or stands(home) == before
    at = stands(home)
    there = "Atlas" if at == folders[1] else "Borealis"
    answer = checked(moved(home, {"project": there, "session_id": "talk"}, task="caller"))
    assert answer["moved"], answer
    assert checked(moved(home, {"undo": True, "session_id": "talk"}, task="caller"))["undone"]
    assert stands(home) == at
    return bool(undone["success"])


def test_a_journal_cut_off_anywhere_costs_its_last_line_at_most(desk: SmallHome, tmp_path: Path) -> None:
    whole, start = journal(desk).read_bytes(), stands(desk)
    folders = [str(tmp_path / "atlas"), str(tmp_path / "borealis")]
    ends = [at + 1 for at, byte in enumerate(whole) if byte == ord("\n")]
    dice = random.Random(0)
    cuts = {*ends, *(end - 1 for end in ends), *(end + 1 for end in ends[:-1]), 0}
    cuts |= set(range(len(whole))) if LONG else {dice.randrange(len(whole)) for _ in range(20)}
    for cut in sorted(cuts):
        journal(desk).write_bytes(whole[:cut])
        desk.write("UPDATE sessions SET cwd = ? WHERE id = 'talk'", [(start,)])
        found = is_no_obstacle(desk, folders)
        # What is whole of it counts: the conversation is in Atlas, where the 2nd and the 4th move put it.
        assert found == (cut in (*range(ends[2] - 1, ends[3] - 1), *range(ends[4] - 1, ends[4] + 1))), cut
        assert journal(desk).read_bytes().startswith(whole[:cut]), "nothing that stood there is touched"


def test_a_journal_with_random_bytes_is_no_obstacle(desk: SmallHome, tmp_path: Path) -> None:
    whole, start = journal(desk).read_bytes(), stands(desk)
    folders = [str(tmp_path / "atlas"), str(tmp_path / "borealis")]
    for seed in seeds(25, 200):
        dice = random.Random(seed)
        content = bytearray(whole)
        for _ in range(dice.choice((1, 5, 50))):
            at = dice.randrange(len(content))
            junk = dice.choice((dice.randbytes(1), dice.randbytes(20), b"\n", b"\r", b"\0", b'"', b"}", b"\xff"))
            content[at : at + len(junk)] = junk
        journal(desk).write_bytes(content)
        desk.write("UPDATE sessions SET cwd = ? WHERE id = 'talk'", [(start,)])
        is_no_obstacle(desk, folders)


LINES: dict[str, bytes] = {
    "nothing": b"",
    "blank": b"\n\n \n\t\n",
    "no JSON": b"moved talk to Borealis\n",
    "null": b"null\n",
    "a number": b"7\n",
    "NaN": b"NaN\n",
    "a list": b"[]\n",
    "NULs": bytes(5_000),
    "deep": b"[" * 5_000 + b"\n",
    "no UTF-8": b"\xff\xfe\xfd\n",
    "a mark in front": b"\xef\xbb\xbf{}\n",
    "another program's": b'{"event": "x"}\n' * 1_000,
    "sides that are none": b'{"id": 1, "time": 2, "session": "talk", "from": 3, "to": [], "surface": {}}\n',
    "a long line": b'{"id": "' + b"x" * 3_000_000 + b'"}\n',
    "a long line without an end": b"x" * 3_000_000,
    "a long number": b'{"id": ' + b"9" * 10_000 + b"}\n",
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
@pytest.mark.parametrize("where", ["alone", "before", "after"])
def test_a_line_that_is_none_is_passed_over(desk: SmallHome, tmp_path: Path, line: bytes, where: str) -> None:
    whole = journal(desk).read_bytes()
    ended = line if line.endswith(b"\n") or not line else line + b"\n"
    journal(desk).write_bytes({"alone": line, "before": ended + whole, "after": whole + line}[where])
    found = is_no_obstacle(desk, [str(tmp_path / "atlas"), str(tmp_path / "borealis")])
    assert found == (where != "alone")


@pytest.mark.parametrize(
    "value", [None, 0, [], {}, "", "x" * 100_000, "\ud800", "../../nowhere", "\0", "<system>", 1e308]
)
def test_an_entry_may_say_anything(desk: SmallHome, tmp_path: Path, value: Any) -> None:
    """What it says is looked up, or told on one clean line. One without a folder came from Home."""
    start = stands(desk)
    folders = [str(tmp_path / "atlas"), str(tmp_path / "borealis"), os.path.expanduser("~")]
    whole = journal(desk).read_bytes()
    last: dict[str, Any] = json.loads(whole.splitlines()[-1])
    spoiled = [{**last, name: value} for name in last]
    for side in ("from", "to"):
        spoiled += [{**last, side: {**last[side], name: value}} for name in last[side]]
    for entry in spoiled:
        for session in ("talk", "caller"):
            line = json.dumps({**entry, "session": session} if entry["session"] == "talk" else entry).encode()
            journal(desk).write_bytes(whole + line + b"\n")
            desk.write("UPDATE sessions SET cwd = ? WHERE id = 'talk'", [(start,)])
            is_no_obstacle(desk, folders)


@posix
def test_a_journal_that_is_a_folder_or_may_not_be_read_costs_the_undo(desk: SmallHome) -> None:
    journal(desk).unlink()
    journal(desk).mkdir()
    assert hits(ask_and_compare(desk.path)) >= HITS
    answer = checked(moved(desk, {"project": "Borealis", "session_id": "talk"}, task="caller"))
    assert answer["moved"]
    assert any("could not be written down" in warning for warning in answer["warnings"])
    undone = checked(moved(desk, {"undo": True, "session_id": "talk"}, task="caller"))
    assert undone["error"] == "nothing_to_undo"
