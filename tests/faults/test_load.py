"""Many searches at once, while the host writes, the index grows and a conversation is moved back and forth.

A thousand of them with PHR_LONG=1.
"""

from __future__ import annotations

import gc
import itertools
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytest.importorskip("apsw")
pytest.importorskip("numpy")

import project_history_recall as plugin
from project_history_recall import semantic

from tests import homes
from tests.faults.damage import FOREIGN, fresh, hits, spoken, told
from tests.faults.tools import LONG, checked, turn
from tests.probes.index_worker import MadeUp
from tests.small import ATLAS, BOREALIS, Answer, SmallHome

SEARCHES = 1_000 if LONG else 100
THREADS = 8
PACE_S = 0.02  # 50 messages a second
MOVE_S = 0.05
WANDERING = "the heron that wanders is a cormorant"
MODES = ("keyword", "hybrid", "semantic")


@dataclass
class Whereabouts:
    """Where the wandering conversation was, as far as who moves it can tell.

    Each move is written down as (before its commit, after it, where to): in between it is in the old project
    or in the new one, and nobody outside can say which.
    """

    moves: list[tuple[float, float, str]] = field(default_factory=list)

    def during(self, start: float, end: float) -> set[str]:
        """The projects it may have been in at some instant from `start` to `end`."""
        last, found = "", set[str]()
        for began, ended, to in list(self.moves):
            if began > end:
                break
            if ended < start:
                last = to  # over before the interval begins
            else:
                found.add(to)
        return found | {last} if last else found


@dataclass
class Load:
    """A home under load: who writes to it, and what failed."""

    home: SmallHome
    where: Whereabouts = field(default_factory=Whereabouts)
    stop: threading.Event = field(default_factory=threading.Event)
    failures: list[str] = field(default_factory=list)
    written: int = 0

    def write(self) -> None:
        """The host: a message every 20 ms, each a commit of its own."""
        with closing(sqlite3.connect(self.home.state, timeout=10)) as db:
            while not self.stop.wait(PACE_S):
                try:
                    with db:
                        db.execute(
                            "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('busy', ?, ?, ?)",
                            (("user", "assistant")[self.written % 2], f"Note {self.written} of today.", time.time()),
                        )
                    self.written += 1
                except sqlite3.Error as error:
                    self.failures.append(f"a write: {error!r}")

    def move(self) -> None:
        """Somebody who cannot decide."""
        with closing(sqlite3.connect(self.home.state, timeout=10)) as db:
            for to, folder in itertools.cycle((("p_borealis", BOREALIS), ("p_atlas", ATLAS))):
                began = time.monotonic()
                try:
                    with db:
                        db.execute("UPDATE sessions SET cwd = ? WHERE id = 'wanderer'", (folder,))
                except sqlite3.Error as error:
                    self.failures.append(f"a move: {error!r}")
                    continue
                self.where.moves.append((began, time.monotonic(), to))
                if self.stop.wait(MOVE_S):
                    return

    def judge(self, answer: Answer, caller: str, start: float, end: float) -> None:
        """Note what is wrong with an answer."""
        project, other = ("p_atlas", "p_borealis") if caller == "caller" else ("p_borealis", "p_atlas")
        if not answer["success"] or "keyword_detail" in answer or answer["semantic_status"] == "unavailable":
            details = [answer.get(name) for name in ("keyword_detail", "semantic_detail")]
            self.failures.append(f"an answer: {told(answer)} {details}")
            return
        may = self.where.during(start, end)
        foreign, own = (FOREIGN, "alders") if caller == "caller" else ("alders", FOREIGN)
        if homes.mentions(answer, foreign) or answer["project"]["id"] != project:
            self.failures.append(f"{caller} was told of {foreign}")
        # Every hit is of one snapshot, the one that counted the conversations.
        counted = answer["sessions_in_scope"] - {"caller": 4, "reader": 2}[caller]
        seen = homes.mentions(answer, "cormorant")
        if (project if counted else other) not in may:
            self.failures.append(f"the wanderer was in {may}, and {project} counted it: {counted}")
        if counted not in (0, 1) or seen > counted:
            self.failures.append(f"it was found, and {counted} more conversations counted")
        # The made-up meaning of the embedder finds anything first; the words find what was asked for.
        if answer["mode"] == "keyword" and (seen != counted or not homes.mentions(answer, own)):
            self.failures.append(f"counted: {counted}, found: {seen}, and of one's own: {hits(answer)}")

    def search(self, numbers: Iterator[int]) -> None:
        for number in numbers:
            caller, mode = ("caller", "reader")[number % 2], MODES[number // 2 % 3]
            start = time.monotonic()
            try:
                text = plugin.handle_search(
                    {"query": "heron", "mode": mode, "limit": 20, "context": 0}, session_id=caller
                )
                self.judge(checked(text), caller, start, time.monotonic())
            except BaseException as error:
                self.failures.append(repr(error))


def used() -> tuple[int, int, int]:
    """Open files, threads and resident pages of this process; where the system does not tell, zeros."""
    gc.collect()
    own = Path(f"/proc/{os.getpid()}")
    if not own.exists():
        return 0, threading.active_count(), 0
    resident = int((own / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 2**20
    return len(list((own / "fd").iterdir())), threading.active_count(), resident


def run(load: Load, searches: int) -> None:
    """So many searches from eight threads, beside the writer and the mover."""
    load.stop.clear()
    beside = [threading.Thread(target=load.write), threading.Thread(target=load.move)]
    numbers = iter(range(searches))
    lock = threading.Lock()

    def shared() -> Iterator[int]:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            yield number

    searching = [threading.Thread(target=load.search, args=(shared(),)) for _ in range(THREADS)]
    for thread in beside:
        thread.start()
    while not load.where.moves:
        time.sleep(0.001)
    for thread in searching:
        thread.start()
    for thread in searching:
        thread.join()
    load.stop.set()
    for thread in beside:
        thread.join()


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_under_load_each_answer_is_right_at_one_instant_of_it_and_nothing_piles_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, journal: str
) -> None:
    """A hit's project is the one it had at an instant between the question and the answer, and the same instant
    counts the conversations: what was in the project all along is there, what was not is not."""
    monkeypatch.setattr(semantic, "LocalEmbedder", MadeUp)
    home = spoken(tmp_path / "home", journal=journal, embedding_provider="local", index_budget_s=0.2)
    home.session("reader", cwd=BOREALIS)
    home.say("reader", "And where were we here?")
    home.session("busy")
    home.say("busy", "Good morning.")
    home.session("wanderer", cwd=None)
    home.say("wanderer", WANDERING)
    load = Load(home)
    with fresh(), turn(home.path):
        with closing(sqlite3.connect(home.state)) as keeper:  # as a host that stays: the log is not begun anew
            keeper.execute("SELECT count(*) FROM sessions").fetchall()
            run(load, 4 * THREADS)  # everything is imported and every cache filled
            before = used()
            run(load, SEARCHES)
            after = used()
        assert load.failures[:3] == []
        assert load.written > 0
        assert len(load.where.moves) > 10
        moving = [to for _, _, to in load.where.moves]
        assert {"p_atlas", "p_borealis"} == set(moving)
        assert after[0] <= before[0] + 2, "open files"
        assert after[1] <= before[1] + 1, "threads: one worker in the background"
        assert after[2] <= before[2] + 40, "MB of memory"
    with closing(sqlite3.connect(home.state)) as db:
        said = db.execute("SELECT count(*) FROM messages WHERE content LIKE 'Note %'").fetchone()[0]
        assert said == load.written
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    with fresh(), turn(home.path):
        answer = checked(plugin.handle_search({"query": "heron", "limit": 20}, session_id="caller"))
        assert hits(answer)


def test_these_whereabouts_are_told_as_the_test_needs_them() -> None:
    where = Whereabouts([(1.0, 1.1, "a"), (2.0, 2.5, "b"), (3.0, 3.1, "a")])
    assert where.during(1.2, 1.9) == {"a"}
    assert where.during(1.2, 2.0) == {"a", "b"}
    assert where.during(2.1, 2.2) == {"a", "b"}, "in the middle of a move it may be in either"
    assert where.during(2.6, 2.9) == {"b"}
    assert where.during(0.5, 3.05) == {"a", "b"}
