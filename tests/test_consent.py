"""Consent: what counts as a person's yes, for exactly what, and what never does."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import random
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from project_history_recall import consent
from project_history_recall.attribution import HOME, ProjectRef
from project_history_recall.config_schema import Endpoint
from project_history_recall.consent import (
    POLICY,
    ConsentNotKept,
    ConsentRequired,
    ConsentWithdrawn,
    Decision,
    Declined,
    Grant,
    Grants,
    Key,
    Permit,
    decide,
    permit,
)

from tests.probes import consent_worker

REMOTE = Endpoint("https://api.example.com/v1", "embed-1", 512)
LOOPBACK = Endpoint("http://localhost:11434/v1", "bge-m3")
FORWARDED = Endpoint("http://localhost:11434/v1", "embed:120b-cloud")
ATLAS = ProjectRef("explicit", "p_atlas", "Atlas", "p_atlas", "/w/atlas")
BOREALIS = ProjectRef("explicit", "p_borealis", "Borealis", "p_borealis", "/w/borealis")
AUTO = ProjectRef("auto", "/w/loose", "loose", "auto:w/loose", "/w/loose")
KEY = Key.of(REMOTE, ATLAS, ["/w/atlas", "/w/notes"])
OTHER = Key.of(REMOTE, BOREALIS, ["/w/borealis"])
NOON = 1_800_000_000.0
ROOTS = ["s_first", "s_second"]

posix = pytest.mark.skipif(os.name != "posix", reason="owners, modes and pipes of a POSIX system")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "plugin-data" / "project-history-recall"


def grants_of(home: Path, machine: str = "this machine") -> Grants:
    """As a process that has just begun sees them."""
    return Grants(home, home / ".cache", machine)


@pytest.fixture
def grants(home: Path) -> Grants:
    return grants_of(home)


@pytest.fixture
def given(grants: Grants) -> Grant:
    return grants.give(KEY, ROOTS)


def grant_file(home: Path, key: Key = KEY) -> Path:
    return home / "grants" / key.name


def seal_file(home: Path, key: Key = KEY) -> Path:
    return home / ".cache" / "seals" / key.name


def a_grant(key: Key = KEY, **changed: Any) -> Grant:
    fields = {"granted_at": NOON, "conversations": frozenset(ROOTS), "seal": "5eal"}
    return Grant(**{**asdict(key), **fields, **changed})


# -- the decision ----------------------------------------------------------------


def test_a_server_on_this_machine_needs_no_grant() -> None:
    assert decide(LOOPBACK, Key.of(LOOPBACK, ATLAS), None) is Decision.ALLOW


def test_a_model_that_a_local_server_forwards_needs_one() -> None:
    assert decide(FORWARDED, Key.of(FORWARDED, ATLAS), None) is Decision.ASK


def test_without_a_grant_a_person_is_asked() -> None:
    assert decide(REMOTE, KEY, None) is Decision.ASK


def test_the_grant_for_exactly_this_allows() -> None:
    assert decide(REMOTE, KEY, a_grant()) is Decision.ALLOW


@pytest.mark.parametrize(
    "changed",
    [
        {"endpoint_url": "https://api.example.com/v2"},
        {"endpoint_url": "https://api.example.org/v1"},
        {"model": "embed-2"},
        {"dimensions": None},
        {"dimensions": 256},
        {"project": "p_borealis"},
        {"folders": (*KEY.folders, "w/salaries")},
        {"folders": KEY.folders[:1]},
        {"folders": ()},
        {"policy": POLICY + 1},
    ],
    ids=str,
)
def test_any_single_difference_asks_again(grants: Grants, given: Grant, changed: dict[str, Any]) -> None:
    key = replace(KEY, **changed)
    endpoint = Endpoint(key.endpoint_url, key.model, key.dimensions)
    assert decide(endpoint, key, given) is Decision.ASK
    assert decide(endpoint, key, grants.load(key)) is Decision.ASK
    # ... and the grant there is does not lend itself to a request for something else
    assert decide(REMOTE, KEY, replace(given, **changed)) is Decision.ASK


def test_a_new_policy_of_ours_asks_everybody_again(monkeypatch: pytest.MonkeyPatch, given: Grant) -> None:
    monkeypatch.setattr(consent, "POLICY", POLICY + 1)
    assert decide(REMOTE, KEY, given) is Decision.ASK


@pytest.mark.parametrize("endpoint", [replace(REMOTE, model="embed-2"), replace(REMOTE, dimensions=None), FORWARDED])
def test_a_key_made_for_another_endpoint_asks(given: Grant, endpoint: Endpoint) -> None:
    assert decide(endpoint, KEY, given) is Decision.ASK


def test_every_field_of_a_key_is_compared() -> None:
    """So that a field added to `Key` one day is not forgotten in `Grant.key`."""
    for name, value in asdict(KEY).items():
        other: Any = value + 1 if isinstance(value, int) else value * 2
        changed: dict[str, Any] = {name: other}
        assert a_grant().key == KEY
        assert replace(a_grant(), **changed).key != KEY, name


def test_home_has_no_key() -> None:
    with pytest.raises(ValueError, match="Home"):
        Key.of(REMOTE, HOME)


def test_the_folders_of_a_key_have_one_spelling() -> None:
    spelt = Key.of(REMOTE, ATLAS, ["/w/notes/", "/w/atlas", "/w//atlas", "/w/notes"])
    assert spelt == KEY
    assert Key.of(REMOTE, ATLAS, ["C:\\W\\Atlas"]) == Key.of(REMOTE, ATLAS, ["c:/w/atlas/"])


def test_an_automatic_project_has_its_root_for_a_folder() -> None:
    assert Key.of(REMOTE, AUTO).folders == ("w/loose",)


# -- which conversations ---------------------------------------------------------


def test_a_grant_admits_what_it_lists_and_what_began_after_it() -> None:
    grant = a_grant()
    assert grant.admits("s_first", NOON - 9e9)
    assert grant.admits("s_new", NOON + 1)


@pytest.mark.parametrize("started_at", [NOON - 1, NOON, 0.0, None, float("nan"), float("inf"), float("-inf")])
def test_a_conversation_that_was_moved_in_since_is_not_admitted(started_at: float | None) -> None:
    assert not a_grant().admits("s_moved", started_at)


def test_a_clock_that_goes_back_after_the_grant_admits_less(monkeypatch: pytest.MonkeyPatch, grants: Grants) -> None:
    monkeypatch.setattr(time, "time", lambda: NOON)
    grant = grants.give(KEY, ROOTS)
    monkeypatch.setattr(time, "time", lambda: NOON - 365 * 86_400)
    assert grants.load(KEY) == grant
    assert not grant.admits("s_new", NOON - 365 * 86_400 + 60)


def test_a_clock_that_had_gone_back_before_the_grant_makes_no_old_conversation_young(
    monkeypatch: pytest.MonkeyPatch, grants: Grants
) -> None:
    monkeypatch.setattr(time, "time", lambda: NOON - 365 * 86_400)
    grant = grants.give(KEY, ROOTS, newest=NOON)
    assert not grant.admits("s_elsewhere", NOON)
    assert grant.admits("s_new", NOON + 1)


# -- the files -------------------------------------------------------------------


def test_a_grant_is_there_for_the_next_process(home: Path, given: Grant) -> None:
    assert grants_of(home).load(KEY) == given
    assert given.conversations == frozenset(ROOTS)


@posix
def test_a_grant_and_its_seal_are_the_users_alone(home: Path, given: Grant) -> None:
    for file in (grant_file(home), seal_file(home)):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


@posix
def test_a_grant_is_the_users_alone_from_its_first_byte(
    home: Path, grants: Grants, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = []
    real = os.replace

    def replaced(old: Path, new: Path) -> None:
        modes.append(stat.S_IMODE(old.stat().st_mode))
        real(old, new)

    monkeypatch.setattr(os, "replace", replaced)
    before = os.umask(0)
    try:
        grants.give(KEY, ROOTS)
    finally:
        os.umask(before)
    assert modes == [0o600, 0o600]


def test_nothing_is_written_before_somebody_agrees(home: Path, grants: Grants) -> None:
    assert grants.load(KEY) is None
    assert grants.listed() == []
    assert grants.revoke() == 0
    assert not home.exists()


def test_another_yes_takes_the_place_of_the_first(home: Path, grants: Grants, given: Grant) -> None:
    wider = replace(KEY, folders=(*KEY.folders, "w/salaries"))
    again = grants.give(wider, ["s_third"])
    assert grants.load(wider) == again
    assert [again] == grants.listed()
    assert decide(REMOTE, KEY, grants.load(KEY)) is Decision.ASK
    assert again.seal != given.seal
    assert len(list((home / "grants").iterdir())) == 1


@pytest.mark.parametrize("name", ["../../x", "/etc/passwd", "..", "", "a\0b", "x" * 5_000, "CON", "emoji 🦄", "\udc80"])
def test_no_project_name_leads_out_of_the_folder(tmp_path: Path, home: Path, grants: Grants, name: str) -> None:
    key = replace(KEY, project=name)
    grant = grants.give(key, ROOTS)
    assert grants.load(key) == grant
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert {file.parent for file in files} == {home, home / "grants", home / ".cache" / "seals"}
    assert all(file.stem.isalnum() and len(file.stem) == 64 for file in files if file.suffix == ".json")


def test_conversations_moved_in_with_a_yes_join_the_grant(grants: Grants, given: Grant) -> None:
    grants.admit(KEY, ["s_moved"])
    now = grants.load(KEY)
    assert now is not None
    assert now == replace(given, conversations=given.conversations | {"s_moved"})


@pytest.mark.parametrize("key", [KEY, replace(KEY, folders=("w/salaries",))])
def test_nothing_joins_a_grant_that_does_not_stand(grants: Grants, key: Key) -> None:
    if key != KEY:
        grants.give(KEY, ROOTS)
    with pytest.raises(ConsentWithdrawn):
        grants.admit(key, ["s_moved"])
    assert "s_moved" not in {root for grant in grants.listed() for root in grant.conversations}


# -- what brings a grant back: nothing --------------------------------------------


def backup(home: Path, to: Path) -> None:
    """Copy all but the cache folder, as the host's own backup does."""
    shutil.copytree(home, to, ignore=shutil.ignore_patterns(".cache"))


def test_a_backup_restored_after_a_revocation_grants_nothing(home: Path, tmp_path: Path, grants: Grants) -> None:
    grants.give(KEY, ROOTS)
    backup(home, tmp_path / "backup")
    grants.revoke()
    shutil.copytree(tmp_path / "backup", home, dirs_exist_ok=True)
    assert grant_file(home).exists()
    assert grants_of(home).load(KEY) is None
    assert grants.listed() == []


def test_a_backup_restored_over_a_narrower_yes_does_not_widen_it(home: Path, tmp_path: Path, grants: Grants) -> None:
    grants.give(KEY, [*ROOTS, "s_private"])
    backup(home, tmp_path / "backup")
    grants.revoke()
    grants.give(KEY, ROOTS)
    shutil.copytree(tmp_path / "backup", home, dirs_exist_ok=True)
    assert grants_of(home).load(KEY) is None


def test_a_backup_restored_where_nothing_changed_leaves_the_grant_as_it_was(
    home: Path, tmp_path: Path, grants: Grants, given: Grant
) -> None:
    backup(home, tmp_path / "backup")
    shutil.copytree(tmp_path / "backup", home, dirs_exist_ok=True)
    assert grants_of(home).load(KEY) == given


def test_a_whole_home_on_another_machine_grants_nothing(home: Path, given: Grant) -> None:
    assert grants_of(home, "another machine").load(KEY) is None
    assert grants_of(home, "another machine").listed() == []


def test_a_profile_copied_to_be_another_one_takes_no_consent_with_it(home: Path, tmp_path: Path, given: Grant) -> None:
    shutil.copytree(tmp_path / "plugin-data", tmp_path / "other" / "plugin-data")
    assert grants_of(tmp_path / "other" / home.relative_to(tmp_path)).load(KEY) is None


@posix
def test_the_same_home_by_way_of_a_link_is_the_same(home: Path, tmp_path: Path, given: Grant) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "plugin-data")
    assert grants_of(tmp_path / "link" / home.name).load(KEY) == given


def test_a_grant_under_another_grants_name_grants_nothing(home: Path, grants: Grants, given: Grant) -> None:
    shutil.copy(grant_file(home), grant_file(home, OTHER))
    shutil.copy(seal_file(home), seal_file(home, OTHER))
    assert grants.load(OTHER) is None
    assert grants.listed() == [given]


def test_a_file_written_by_hand_grants_nothing(home: Path, grants: Grants) -> None:
    grants.give(OTHER, ROOTS)
    grant_file(home).write_bytes(a_grant().dumps())
    seal_file(home).write_bytes(hashlib.sha256(a_grant().dumps()).hexdigest().encode())
    assert grants.load(KEY) is None


# -- damage ----------------------------------------------------------------------


@pytest.mark.parametrize("which", [grant_file, seal_file])
def test_a_file_cut_anywhere_is_no_grant(
    home: Path, grants: Grants, given: Grant, which: Callable[[Path], Path]
) -> None:
    whole = which(home).read_bytes()
    for length in range(len(whole)):
        which(home).write_bytes(whole[:length])
        assert grants.load(KEY) is None, length
    which(home).write_bytes(whole)
    assert grants.load(KEY) == given


@pytest.mark.parametrize("which", [grant_file, seal_file])
def test_a_file_with_any_byte_changed_is_no_grant(
    home: Path, grants: Grants, given: Grant, which: Callable[[Path], Path]
) -> None:
    whole, chance = which(home).read_bytes(), random.Random(7)
    for at in range(len(whole)):
        which(home).write_bytes(whole[:at] + bytes([whole[at] ^ chance.randrange(1, 256)]) + whole[at + 1 :])
        assert grants.load(KEY) is None, at


@pytest.mark.parametrize("seed", range(40))
def test_files_of_junk_are_no_grants(home: Path, grants: Grants, given: Grant, seed: int) -> None:
    chance = random.Random(seed)
    files = (grant_file(home), seal_file(home))
    for file in files if seed % 2 else files[:1]:
        file.write_bytes(chance.randbytes(chance.randrange(2_000)))
    assert grants.load(KEY) is None
    assert grants.listed() == []


@pytest.mark.parametrize("which", [grant_file, seal_file])
def test_a_missing_file_is_no_grant(home: Path, grants: Grants, given: Grant, which: Callable[[Path], Path]) -> None:
    which(home).unlink()
    assert grants.load(KEY) is None


ODD: dict[str, list[Any]] = {
    "endpoint_url": [None, 1, ["https://api.example.com/v1"]],
    "model": [None, {}],
    "dimensions": ["512", 512.0, True, []],
    "project": [None, 0],
    "folders": [None, "w/atlas", [1], [["w/atlas"]], {"w/atlas": 1}],
    "policy": [None, "1", 1.0, True],
    "granted_at": [None, "0", float("nan"), float("inf"), [], 10**400],
    "conversations": [None, "s_first", [None], [["s_first"]], {}],
    "seal": [None, 5],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in ODD.items() for value in values])
def test_a_field_of_another_kind_is_no_grant(name: str, value: object) -> None:
    fields = json.loads(a_grant().dumps())
    assert Grant.loads(json.dumps({**fields, name: value}).encode()) is None
    del fields[name]
    assert Grant.loads(json.dumps(fields).encode()) is None


def test_a_grant_reads_back_as_it_was_written() -> None:
    for grant in (a_grant(), a_grant(dimensions=None, folders=(), project="\udc80 🦄"), a_grant(granted_at=0.0)):
        assert Grant.loads(grant.dumps()) == grant


@pytest.mark.parametrize(
    "data", [b"", b"null", b"[]", b"[" * 200_000, b"{" * 9, b'"\xff"', b"\xff\xfe{}", b"9" * 9_999, b'{"a":NaN}']
)
def test_what_is_no_grant_at_all_is_none(data: bytes) -> None:
    assert Grant.loads(data) is None


def test_a_field_too_many_is_no_grant() -> None:
    assert Grant.loads(json.dumps({**json.loads(a_grant().dumps()), "surprise": 1}).encode()) is None


def test_a_file_beyond_all_measure_is_not_read(
    home: Path, grants: Grants, given: Grant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consent, "MAX_BYTES", grant_file(home).stat().st_size)
    assert grants.load(KEY) == given
    monkeypatch.setattr(consent, "MAX_BYTES", grant_file(home).stat().st_size - 1)
    assert grants.load(KEY) is None


def test_a_yes_too_long_to_be_read_back_is_not_kept(grants: Grants, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consent, "MAX_BYTES", 900)
    with pytest.raises(ConsentNotKept):
        grants.give(KEY, [f"s_{number:06}" for number in range(100)])
    assert grants.load(KEY) is None


@posix
@pytest.mark.parametrize("which", [grant_file, seal_file])
def test_a_link_is_no_grant(home: Path, grants: Grants, given: Grant, which: Callable[[Path], Path]) -> None:
    which(home).rename(home / "elsewhere")
    which(home).symlink_to(home / "elsewhere")
    assert grants.load(KEY) is None


@posix
@pytest.mark.parametrize("which", [grant_file, seal_file])
def test_a_folder_that_is_a_link_holds_no_grant_and_nothing_in_it_is_deleted(
    home: Path, grants: Grants, given: Grant, which: Callable[[Path], Path]
) -> None:
    folder, moved = which(home).parent, home / "elsewhere"
    folder.rename(moved)
    folder.symlink_to(moved)
    assert grants.load(KEY) is None
    grants.revoke()
    assert (moved / KEY.name).exists()
    with pytest.raises(ConsentNotKept):
        grants.give(KEY, ROOTS)


@posix
@pytest.mark.parametrize("which", [grant_file, seal_file])
@pytest.mark.parametrize("mode", [0o602, 0o620, 0o666])
def test_a_file_that_others_may_write_is_no_grant(
    home: Path, grants: Grants, given: Grant, which: Callable[[Path], Path], mode: int
) -> None:
    which(home).chmod(mode)
    assert grants.load(KEY) is None


@posix
@pytest.mark.parametrize("which", [grant_file, seal_file])
def test_a_folder_that_others_may_write_holds_no_grant(
    home: Path, grants: Grants, given: Grant, which: Callable[[Path], Path]
) -> None:
    which(home).parent.chmod(0o777)
    assert grants.load(KEY) is None
    which(home).parent.chmod(0o700)
    assert grants.load(KEY) == given


@posix
def test_a_file_of_another_user_is_no_grant(
    home: Path, grants: Grants, given: Grant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert grants.load(KEY) is None


@posix
@pytest.mark.parametrize("which", [grant_file, seal_file])
def test_a_pipe_is_no_grant_and_nobody_waits_for_it(
    home: Path, grants: Grants, given: Grant, which: Callable[[Path], Path]
) -> None:
    which(home).unlink()
    os.mkfifo(which(home))
    assert grants.load(KEY) is None


def test_a_folder_in_the_place_of_a_file_is_no_grant(home: Path, grants: Grants, given: Grant) -> None:
    grant_file(home).unlink()
    grant_file(home).mkdir()
    assert grants.load(KEY) is None


# -- writing that fails ------------------------------------------------------------


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], None]:
    """Let the `nth` call of one of the module's ways to the disk fail, and every later one."""

    def fail(name: str, nth: int) -> None:
        real, calls = getattr(consent, name), iter(range(1, 99))

        def act(*args: Any) -> None:
            if next(calls) >= nth:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(*args)

        monkeypatch.setattr(consent, name, act)

    return fail


@pytest.mark.parametrize("nth", [1, 2])
def test_a_yes_that_cannot_be_kept_is_none(grants: Grants, failing: Callable[[str, int], None], nth: int) -> None:
    failing("_replace", nth)
    with pytest.raises(ConsentNotKept) as told:
        grants.give(KEY, ROOTS)
    assert os.strerror(errno.ENOSPC) in told.value.message
    assert grants.load(KEY) is None


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), PermissionError(errno.EACCES, "no")], ids=str)
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_yes_that_the_disk_refuses_leaves_no_half_of_a_file(
    home: Path, grants: Grants, given: Grant, monkeypatch: pytest.MonkeyPatch, error: OSError, call: str
) -> None:
    def refuses(*_: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuses)
        with pytest.raises(ConsentNotKept):
            grants.give(KEY, ["s_new"])
    assert [file.name for file in (home / "grants").iterdir()] == [KEY.name]
    assert grants.load(KEY) == given


def test_a_yes_waits_for_another_process_no_longer_than_it_said(
    home: Path, grants: Grants, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(0.0, consent.LOCK_S / 4)
    with grants._locked(), monkeypatch.context() as patch:
        patch.setattr(consent, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _: None, time=float))
        with pytest.raises(ConsentNotKept, match="kept"):
            grants.give(KEY, ROOTS)
    assert next(clock) > consent.LOCK_S
    assert grants.load(KEY) is None


def test_a_crash_between_the_grant_and_its_seal_leaves_neither_the_old_yes_nor_the_new(
    grants: Grants, given: Grant, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    real = consent._replace

    def killed_at_the_seal(path: Path, data: bytes) -> None:
        if path.parent.name == "seals":
            raise Killed
        real(path, data)

    monkeypatch.setattr(consent, "_replace", killed_at_the_seal)
    with pytest.raises(Killed):
        grants.give(KEY, ["s_new"])
    assert grants.load(KEY) is None


def test_a_file_half_written_by_a_crash_is_in_nobodys_way(home: Path, grants: Grants, given: Grant) -> None:
    for file in (grant_file(home), seal_file(home)):
        file.with_name(f".{file.name}.new").write_bytes(b"half")
    assert grants.load(KEY) == given
    again = grants.give(KEY, ["s_new"])
    assert grants.load(KEY) == again
    assert [file.name for file in (home / "grants").iterdir()] == [KEY.name]


def test_when_only_the_seal_could_be_deleted_the_grant_is_gone_all_the_same(
    home: Path, grants: Grants, given: Grant, failing: Callable[[str, int], None]
) -> None:
    failing("_unlink", 2)
    with pytest.raises(ConsentNotKept):
        grants.revoke()
    assert grant_file(home).exists()
    assert grants.load(KEY) is None


def test_a_revocation_that_failed_is_not_taken_for_one(
    grants: Grants, given: Grant, failing: Callable[[str, int], None]
) -> None:
    failing("_unlink", 1)
    with pytest.raises(ConsentNotKept) as told:
        grants.revoke()
    assert "may still stand" in told.value.message
    assert grants.load(KEY) == given


# -- revoking ----------------------------------------------------------------------


@pytest.fixture
def three(grants: Grants) -> list[Key]:
    """Atlas at two endpoints, Borealis at one."""
    keys = [KEY, replace(KEY, model="embed-2"), OTHER]
    for key in keys:
        grants.give(key, ROOTS)
    return keys


def test_the_list_names_every_grant_oldest_first(grants: Grants, three: list[Key]) -> None:
    assert [grant.key for grant in grants.listed()] == three


@pytest.mark.parametrize(
    ("what", "count", "left"),
    [(None, 3, []), ("p_atlas", 2, [2]), ("p_borealis", 1, [0, 1]), (KEY, 1, [1, 2]), ("p_none", 0, [0, 1, 2])],
)
def test_a_revocation_takes_what_it_names(
    home: Path, grants: Grants, three: list[Key], what: Key | str | None, count: int, left: list[int]
) -> None:
    assert grants.revoke(what) == count
    assert [grant.key for grant in grants_of(home).listed()] == [three[number] for number in left]
    assert sorted(file.name for file in (home / ".cache" / "seals").iterdir()) == sorted(three[n].name for n in left)


def test_a_grant_revoked_for_its_project_goes_whatever_folders_it_had(grants: Grants, given: Grant) -> None:
    assert grants.revoke(replace(KEY, folders=("w/salaries",))) == 1
    assert grants.load(KEY) is None


@posix
def test_a_revocation_takes_a_grant_too_that_does_not_count_just_now(home: Path, grants: Grants, given: Grant) -> None:
    grant_file(home).chmod(0o666)
    assert grants.revoke("p_atlas") == 0
    grants.give(OTHER, ROOTS)
    assert not seal_file(home).exists()
    assert not grant_file(home).exists()


def test_revoking_all_takes_seals_whose_grants_are_missing(home: Path, tmp_path: Path, grants: Grants) -> None:
    grants.give(KEY, ROOTS)
    backup(home, tmp_path / "backup")
    grant_file(home).unlink()
    assert grants.revoke() == 0
    shutil.copytree(tmp_path / "backup", home, dirs_exist_ok=True)
    assert grants.load(KEY) is None


# -- several processes ---------------------------------------------------------------


def run_together(home: Path, *jobs: tuple[str, int]) -> list[int]:
    """Processes that begin at one moment; what each of them says."""
    command = [sys.executable, consent_worker.__file__, str(home)]
    started = [
        subprocess.Popen(
            [*command, doing, str(times), f"p{n}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for n, (doing, times) in enumerate(jobs)
    ]
    try:
        for process in started:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        said = [process.communicate(timeout=120)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0] * len(started)
    return [int(text) for text in said]


def test_processes_that_give_at_once_leave_one_grant_that_counts(home: Path) -> None:
    assert run_together(home, ("give", 15), ("give", 15), ("give", 15)) == [15, 15, 15]
    (left,) = grants_of(home, consent_worker.MACHINE).listed()
    assert left.conversations <= {f"p{n}-14" for n in range(3)}
    assert [file.name for file in (home / "grants").iterdir()] == [consent_worker.KEY.name]


def test_conversations_moved_in_by_two_processes_are_all_admitted(home: Path) -> None:
    grants = grants_of(home, consent_worker.MACHINE)
    grants.give(consent_worker.KEY, [])
    assert run_together(home, ("admit", 15), ("admit", 15)) == [0, 0]
    grant = grants.load(consent_worker.KEY)
    assert grant is not None
    assert grant.conversations == {f"p{n}-{number}" for n in range(2) for number in range(15)}


def test_nothing_outlives_a_revocation_whoever_was_at_work(home: Path) -> None:
    grants = grants_of(home, consent_worker.MACHINE)
    grants.give(consent_worker.KEY, [])
    run_together(home, ("admit", 40), ("revoke", 5), ("admit", 40))
    assert grants.load(consent_worker.KEY) is None
    assert list((home / ".cache" / "seals").iterdir()) == []


# -- the permit ------------------------------------------------------------------------


def test_nothing_is_permitted_before_a_person_agrees(grants: Grants) -> None:
    with pytest.raises(ConsentRequired) as told:
        permit(REMOTE, [KEY], grants)
    assert told.value.keys == (KEY,)
    assert told.value.code == "consent_required"
    assert "api.example.com" in told.value.message


def test_a_permit_follows_a_grant(grants: Grants, given: Grant) -> None:
    permitted = permit(REMOTE, [KEY], grants)
    assert permitted.endpoint == REMOTE
    permitted.check()


def test_the_callers_own_project_has_to_be_granted_too(grants: Grants, given: Grant) -> None:
    with pytest.raises(ConsentRequired) as told:
        permit(REMOTE, [KEY, OTHER], grants)
    assert told.value.keys == (OTHER,)
    grants.give(OTHER, [])
    permit(REMOTE, [KEY, OTHER, KEY], grants).check()


def test_a_permit_for_nothing_is_none(grants: Grants, given: Grant) -> None:
    with pytest.raises(ConsentRequired):
        permit(REMOTE, [], grants)


def test_a_folder_added_since_is_not_permitted(grants: Grants, given: Grant) -> None:
    with pytest.raises(ConsentRequired):
        permit(REMOTE, [replace(KEY, folders=(*KEY.folders, "w/salaries"))], grants)


def test_a_server_on_this_machine_is_permitted_without_a_file(home: Path, grants: Grants) -> None:
    permitted = permit(LOOPBACK, [Key.of(LOOPBACK, ATLAS)], grants)
    permitted.check()
    assert permitted.admits("p_atlas", "s_any", None)
    assert not home.exists()


def test_a_permit_is_made_nowhere_else() -> None:
    with pytest.raises(TypeError):
        Permit(REMOTE, {}, None, made_by=None)


def test_a_revocation_in_another_process_ends_the_permit(home: Path, grants: Grants, given: Grant) -> None:
    permitted = permit(REMOTE, [KEY], grants)
    grants_of(home).revoke("p_atlas")
    with pytest.raises(ConsentWithdrawn):
        permitted.check()


def test_one_of_two_grants_revoked_ends_the_permit(grants: Grants, given: Grant) -> None:
    grants.give(OTHER, [])
    permitted = permit(REMOTE, [KEY, OTHER], grants)
    grants.revoke(OTHER)
    with pytest.raises(ConsentWithdrawn):
        permitted.check()


def test_a_permit_does_not_live_on_through_a_later_grant(grants: Grants, given: Grant) -> None:
    """What was collected under the first yes may be more than the second one is about."""
    permitted = permit(REMOTE, [KEY], grants)
    grants.revoke()
    grants.give(KEY, [])
    with pytest.raises(ConsentWithdrawn):
        permitted.check()


def test_a_permit_tells_which_conversations_may_be_sent(grants: Grants, given: Grant) -> None:
    permitted = permit(REMOTE, [KEY], grants)
    assert permitted.admits("p_atlas", "s_first", 0.0)
    assert permitted.admits("p_atlas", "s_new", given.granted_at + 1)
    assert not permitted.admits("p_atlas", "s_moved", 0.0)
    assert not permitted.admits("p_borealis", "s_first", 0.0)


def test_a_conversation_moved_in_with_a_yes_is_sent_from_the_next_request_on(grants: Grants, given: Grant) -> None:
    permitted = permit(REMOTE, [KEY], grants)
    grants.admit(KEY, ["s_moved"])
    permitted.check()
    assert permitted.admits("p_atlas", "s_moved", 0.0)


# -- the request, and who was asked -------------------------------------------------------


def test_a_request_has_the_same_name_in_every_process(home: Path, grants: Grants) -> None:
    name = grants.request_id(KEY)
    assert grants_of(home).request_id(replace(KEY)) == name
    assert len(name) == 8
    assert set(name) <= set("0123456789abcdef")


def test_another_request_has_another_name(home: Path, grants: Grants) -> None:
    wider = replace(KEY, folders=(*KEY.folders, "w/salaries"))
    names = [grants.request_id(key) for key in (KEY, OTHER, wider, replace(KEY, model="embed-2"))]
    names += [grants_of(home, "another machine").request_id(KEY), grants_of(home / "profile").request_id(KEY)]
    assert len(set(names)) == len(names)


def test_one_prompt_a_conversation_and_a_request() -> None:
    declined, home = Declined(), Path("/home")
    assert declined.first(home, "s_now", KEY)
    assert not declined.first(home, "s_now", KEY)
    assert (home, "s_now", KEY) in declined
    for other in ((Path("/other"), "s_now", KEY), (home, "s_later", KEY), (home, "s_now", OTHER)):
        assert other not in declined
        assert declined.first(*other)


def test_where_nobody_was_there_the_question_stays_open() -> None:
    declined, home = Declined(), Path("/home")
    declined.first(home, "s_now", KEY)
    declined.again(home, "s_now", KEY)
    assert (home, "s_now", KEY) not in declined
    assert declined.first(home, "s_now", KEY)


def test_of_threads_that_ask_at_once_one_asks() -> None:
    declined, gate, firsts = Declined(), threading.Barrier(16), []

    def ask() -> None:
        gate.wait()
        firsts.append(declined.first(Path("/home"), "s_now", KEY))

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(firsts) == [False] * 15 + [True]
