"""The ledger: what is owed is embedded once, whoever dies on the way, and what cannot be is given up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

apsw = pytest.importorskip("apsw")
np = pytest.importorskip("numpy")

from project_history_recall import vectors  # noqa: E402
from project_history_recall.vectors import LEASE_S, MAX_TRIES, Coverage, Owner, Place, Store  # noqa: E402

from tests.probes.ledger_worker import BATCH, DIM, Settings, embed, key, plan  # noqa: E402

WORKER = Path(__file__).parent / "probes" / "ledger_worker.py"
NOW = 1_800_000_000.0
ELSEWHERE = Owner("another machine", 4711, "99", "n0")  # nobody here can tell whether it lives

can_tell = pytest.mark.skipif(not Owner.current().started, reason="needs /proc to tell who is dead")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "embeddings.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    store = Store(path)
    yield store
    store.close()


def owe(store: Store, count: int = 6, root: str = "c0") -> tuple[int, list[bytes]]:
    """A conversation that owes so many contents; (model, its keys in message order)."""
    fp, keys = store.model("test", DIM), [key(root, n) for n in range(count)]
    store.plan(fp, root, "1", [Place(n, 0, 1, k) for n, k in enumerate(keys)])
    return fp, keys


def pay(keys: list[bytes]) -> list[tuple[bytes, Any]]:
    return [(k, embed(k)) for k in keys]


# --- claims -----------------------------------------------------------------------------------------


def test_what_is_claimed_and_done_is_no_longer_owed(store: Store) -> None:
    fp, keys = owe(store)
    me = Owner.current()
    assert store.owed(fp, ["c0"]) == {"c0": keys}
    assert store.claim(fp, me, "c0", [keys[4], keys[1], keys[4], b"unknown"]) == [keys[4], keys[1]]
    assert store.owed(fp, ["c0"]) == {"c0": [keys[0], keys[2], keys[3], keys[5]]}
    assert store.coverage(fp, ["c0"]) == Coverage(have=0, owed=6, abandoned=0)
    assert store.done(fp, me, "c0", pay([keys[4]])) == 1
    assert store.done(fp, me, "c0", pay([keys[4]])) == 0, "it was paid"
    assert store.coverage(fp, ["c0"]) == Coverage(have=1, owed=5, abandoned=0)


def test_keys_are_owed_in_message_order_and_conversations_in_the_order_asked(store: Store) -> None:
    fp = store.model("test", DIM)
    for root in ("a", "b"):
        spots = [(7, 3), (2, 0), (7, 0), (5, 9)]
        store.plan(fp, root, "1", [Place(m, at, 1, key(root, 10 * m + at)) for m, at in spots])
    owed = store.owed(fp, ["b", "nobody", "a"])
    assert list(owed) == ["b", "a"]
    assert owed["a"] == [key("a", 20), key("a", 59), key("a", 70), key("a", 73)]


def test_nobody_gets_what_another_holds(store: Store) -> None:
    fp, keys = owe(store)
    me, you = Owner.current(), Owner.current()
    assert me != you
    assert store.claim(fp, me, "c0", keys[:3]) == keys[:3]
    assert store.claim(fp, me, "c0", keys[:3]) == [], "nor twice what it holds itself"
    assert store.claim(fp, you, "c0", keys) == keys[3:]
    assert store.owed(fp, ["c0"]) == {}
    assert store.done(fp, you, "c0", pay(keys)) == 3
    store.fail(fp, you, "c0", keys, "not yours")
    assert store.done(fp, me, "c0", pay(keys)) == 3
    assert store.coverage(fp, ["c0"]) == Coverage(have=6, owed=0, abandoned=0)


def test_models_and_conversations_owe_apart(store: Store) -> None:
    fp, keys = owe(store)
    other = store.model("other", DIM)
    store.plan(other, "c0", "1", [Place(1, 0, 1, keys[0])])
    me = Owner.current()
    assert store.claim(other, me, "c1", keys) == []
    assert store.claim(other, me, "c0", keys) == [keys[0]]
    assert store.owed(fp, ["c0"]) == {"c0": keys}


def test_an_orderly_exit_costs_nothing(store: Store) -> None:
    fp, keys = owe(store)
    for _ in range(MAX_TRIES + 2):
        me = Owner.current()
        assert store.claim(fp, me, "c0", keys) == keys
        store.release(fp, me)
        assert store.claim(fp, me, "c0", keys[:1]) == keys[:1]
        store.release(fp, me)
    assert store.owed(fp, ["c0"]) == {"c0": keys}
    assert store.errors(fp, ["c0"]) == {}


def test_a_conversation_replanned_under_a_claim_takes_only_what_it_still_owes(store: Store) -> None:
    fp, keys = owe(store)
    me = Owner.current()
    store.claim(fp, me, "c0", keys)
    store.plan(fp, "c0", "2", [Place(n, 0, 1, k) for n, k in enumerate(keys[2:])])
    assert store.done(fp, me, "c0", pay(keys)) == 4
    store.claim(fp, me, "c0", keys)
    store.keep([])
    assert store.done(fp, me, "c0", pay(keys)) == 0
    assert store.coverage(fp, ["c0"]) == Coverage(0, 0, 0)


# --- what fails -------------------------------------------------------------------------------------


def test_a_failed_batch_is_tried_again_one_by_one_and_counts_against_none(store: Store) -> None:
    fp, keys = owe(store, 4)
    me = Owner.current()
    store.fail(fp, me, "c0", store.claim(fp, me, "c0", keys[:3]), "refused")
    assert store.claim(fp, me, "c0", keys) == [keys[3]], "what is fresh goes first"
    for k in keys[:3]:
        assert store.claim(fp, me, "c0", keys) == [k]
    assert store.done(fp, me, "c0", pay(keys)) == 4


def test_exactly_the_bad_ones_are_abandoned(store: Store) -> None:
    fp, keys = owe(store, 12)
    bad, me = {keys[3], keys[4], keys[9]}, Owner.current()
    tried: Counter[bytes] = Counter()
    while owed := store.owed(fp, ["c0"]):
        mine = store.claim(fp, me, "c0", owed["c0"][:5])
        tried.update(mine)
        if bad.intersection(mine):
            store.fail(fp, me, "c0", mine, "refused")
        else:
            store.done(fp, me, "c0", pay(mine))
    assert store.coverage(fp, ["c0"]) == Coverage(have=9, owed=0, abandoned=3)
    assert store.errors(fp, ["c0"]) == {"refused": 3}
    assert all(tried[k] in ((MAX_TRIES, MAX_TRIES + 1) if k in bad else (1, 2)) for k in keys)
    assert store.claim(fp, me, "c0", keys) == []
    # Nor does saying again where they stand revive them.
    store.plan(fp, "c0", "2", [Place(n, 0, 1, k) for n, k in enumerate(keys)])
    assert store.owed(fp, ["c0"]) == {}
    assert {near.message_id for near in store.nearest(fp, ["c0"], embed(keys[0]), 99)}.isdisjoint({3, 4, 9})


def test_the_one_that_failed_less_often_goes_first(store: Store) -> None:
    fp, keys = owe(store, 3)
    me = Owner.current()
    store.fail(fp, me, "c0", store.claim(fp, me, "c0", keys), "together")
    order = []
    while mine := store.claim(fp, me, "c0", keys):
        order += mine
        store.fail(fp, me, "c0", mine, "alone")
    assert order == keys * MAX_TRIES


# --- owners and leases ------------------------------------------------------------------------------


def test_a_lease_that_ran_out_passes_to_another_one_by_one(store: Store) -> None:
    fp, keys = owe(store, 3)
    me = Owner.current()
    assert store.claim(fp, ELSEWHERE, "c0", keys, NOW) == keys
    assert store.claim(fp, me, "c0", keys, NOW + LEASE_S - 1) == []
    assert store.claim(fp, me, "c0", keys, NOW + LEASE_S + 1) == [keys[0]]
    assert store.done(fp, ELSEWHERE, "c0", pay(keys)) == 0, "it came too late"
    assert store.done(fp, me, "c0", pay(keys)) == 1


def test_a_clock_set_back_a_year_locks_nothing_for_ever(store: Store) -> None:
    fp, keys = owe(store, 3)
    year = 365 * 86_400
    store.claim(fp, ELSEWHERE, "c0", keys, NOW + year)
    assert store.claim(fp, Owner.current(), "c0", keys, NOW) == [keys[0]]
    # A clock that is a little off is none of that.
    store.claim(fp, ELSEWHERE, "c0", keys[1:], NOW + LEASE_S / 2)
    assert store.claim(fp, Owner.current(), "c0", keys[1:], NOW) == [keys[2]]


def test_one_that_outlives_every_lease_alone_is_abandoned(store: Store) -> None:
    fp, keys = owe(store, 1)
    for turn in range(MAX_TRIES):
        assert store.claim(fp, ELSEWHERE, "c0", keys, NOW + turn * (LEASE_S + 1)) == keys
    assert store.claim(fp, ELSEWHERE, "c0", keys, NOW + 99 * LEASE_S) == []
    assert store.coverage(fp, ["c0"]) == Coverage(have=0, owed=0, abandoned=1)
    assert list(store.errors(fp, ["c0"])) == ["its worker died or took too long"]


@can_tell
def test_a_dead_process_is_told_from_a_living_one() -> None:
    me = Owner.current()
    assert not Owner.gone(str(me))
    assert Owner.gone(str(replace(me, started="1"))), "another process has its pid"
    assert not Owner.gone(str(replace(me, started="1", machine="another boot or container")))
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19]
    theirs = str(replace(me, pid=child.pid, started=started))
    assert not Owner.gone(theirs)
    child.kill()
    until = time.monotonic() + 5
    while not Owner.gone(theirs) and time.monotonic() < until:
        time.sleep(0.01)
    assert Owner.gone(theirs), "a zombie is dead"
    child.communicate()
    assert Owner.gone(theirs)


@pytest.mark.parametrize("text", ["", "x", "|||", "||1|2|3", "nobody|x|y|z", str(ELSEWHERE)])
def test_of_whom_nothing_is_known_nobody_says_that_it_died(text: str) -> None:
    assert not Owner.gone(text)


def test_without_proc_only_the_lease_decides(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    monkeypatch.setattr(vectors, "_machine", lambda: "")
    monkeypatch.setattr(vectors, "_started", lambda pid: "")
    fp, keys = owe(store, 2)
    store.claim(fp, Owner.current(), "c0", keys, NOW)
    assert store.claim(fp, Owner.current(), "c0", keys, NOW + 1) == []
    assert store.claim(fp, Owner.current(), "c0", keys, NOW + LEASE_S + 1) == [keys[0]]


# --- real processes, really killed ------------------------------------------------------------------

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the workers are forked and killed")


def run(path: Path, settings: Settings) -> dict[str, int]:
    command = [sys.executable, str(WORKER), str(path), "run", settings.argument()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    report: dict[str, int] = json.loads(done.stdout)
    return report


def stored(path: Path) -> dict[tuple[str, bytes], bytes]:
    """What the file holds, once it has proved sound."""
    db = apsw.Connection(str(path))
    try:
        assert list(db.execute("PRAGMA integrity_check")) == [("ok",)]
        assert list(db.execute("SELECT count(*) FROM debt WHERE owner IS NOT NULL")) == [(0,)]
        found = db.execute("SELECT c.root, v.key, v.v FROM vec v JOIN conversation c ON c.conv = v.conv")
        return {(root, k): v for root, k, v in found}
    finally:
        db.close()


def wanted(settings: Settings) -> dict[tuple[str, bytes], bytes]:
    """What an undisturbed run leaves."""
    never = {*settings.bad, *settings.deadly}
    return {
        (root, k): np.rint(embed(k)).astype(np.int8).tobytes()
        for root in settings.roots()
        for k, n in settings.keys(root).items()
        if n not in never
    }


def worked_on(path: Path) -> Counter[str]:
    return Counter(path.with_suffix(".log").read_text().splitlines())


def test_two_processes_share_the_work_and_do_nothing_twice(path: Path) -> None:
    settings = Settings(conversations=6, pause=0.01)
    assert run(path, settings) == {"deaths": 0, "have": 360, "owed": 0, "abandoned": 0}
    assert stored(path) == wanted(settings)
    assert set(worked_on(path).values()) == {1}


@can_tell
def test_killed_at_random_it_ends_as_if_undisturbed(path: Path) -> None:
    settings = Settings(conversations=10, texts=40, kills=20, pause=0.02)
    report = run(path, settings)
    assert report["deaths"] == 20
    assert (report["have"], report["owed"], report["abandoned"]) == (400, 0, 0)
    assert stored(path) == wanted(settings)
    twice = {text: times for text, times in worked_on(path).items() if times > 1}
    assert len(twice) <= report["deaths"] * BATCH, "a kill costs the running batch and no more"


@can_tell
def test_bad_and_deadly_texts_are_given_up_and_no_others(path: Path) -> None:
    settings = Settings(conversations=2, texts=40, bad=[7, 30, 31], deadly=[20], kills=3, pause=0.01)
    report = run(path, settings)
    assert (report["have"], report["owed"], report["abandoned"]) == (2 * 36, 0, 2 * 4)
    assert stored(path) == wanted(settings)
    store = Store(path)
    fp = store.model("test", DIM)
    errors = store.errors(fp, settings.roots())
    assert (set(errors), sum(errors.values())) == ({"refused", "its worker died or took too long"}, 8)
    assert store.owed(fp, settings.roots()) == {}
    store.close()


def test_a_kill_within_a_transaction_is_rolled_back(path: Path, store: Store) -> None:
    settings = Settings(conversations=2, texts=40)
    fp = plan(store, settings)
    me = Owner.current()
    mine = store.claim(fp, me, "c0", list(settings.keys("c0")))
    child = os.fork()
    if child == 0:
        try:
            store._open()
            db = store._db
            db.execute("PRAGMA cache_size = 1; PRAGMA cache_spill = 1; BEGIN IMMEDIATE; DELETE FROM place")
            db.execute("UPDATE debt SET error = hex(randomblob(3000)); DELETE FROM vec")
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert Path(f"{path}-journal").exists()
    assert store.done(fp, me, "c0", pay(mine)) == 40
    assert not Path(f"{path}-journal").exists()
    assert len(store.nearest(fp, ["c0"], embed(mine[0]), 99)) == 40
    assert store.coverage(fp, ["c0", "c1"]) == Coverage(have=40, owed=40, abandoned=0)
    assert store.detail == ""
