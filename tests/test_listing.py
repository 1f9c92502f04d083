"""The conversations of all profiles, merged: everything is searched, little is asked, nothing is written."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from project_history_recall import errors, host, listing
from project_history_recall.answers import when

from tests import small

Answer = dict[str, Any]


@pytest.fixture
def home(tmp_path: Path) -> small.SmallHome:
    """A home with two projects and one conversation, `caller`, in the first."""
    return small.furnished(tmp_path / "home")


def profile(home: small.SmallHome, name: str) -> small.SmallHome:
    return small.furnished(home.path / "profiles" / name)


def sessions(*homes: small.SmallHome, **options: Any) -> Answer:
    places = {each.path: each for each in homes}
    named = [(host.profile_name(path), path) for path in places]
    return listing.sessions(named, lambda path: places[path], **options)


def ids(answer: Answer) -> list[str]:
    return [row["session_id"] for row in answer["sessions"]]


def row(answer: Answer, session_id: str) -> Answer:
    found: list[Answer] = [row for row in answer["sessions"] if row["session_id"] == session_id]
    assert len(found) == 1
    return found[0]


# --- which homes ------------------------------------------------------------------------------------


def test_every_profile_with_conversations_is_a_home(home: small.SmallHome) -> None:
    work, play = profile(home, "work"), profile(home, "play")
    (home.path / "profiles" / "empty").mkdir()
    (home.path / "profiles" / ".trash").mkdir()
    (home.path / "profiles" / "notes.txt").write_text("no home")
    expected = [("", home.path), ("play", play.path), ("work", work.path)]
    for given in (home.path, work.path, play.path, home.path / "profiles" / "empty"):
        assert listing.homes(given) == expected
    assert [host.profile_name(path) for _, path in expected] == [name for name, _ in expected]


def test_a_home_without_conversations_is_none(tmp_path: Path) -> None:
    assert listing.homes(tmp_path) == []
    assert listing.homes(tmp_path / "nowhere") == []


def test_profiles_are_found_below_a_home_without_conversations_of_its_own(tmp_path: Path) -> None:
    small.furnished(tmp_path / "profiles" / "work")
    assert listing.homes(tmp_path) == [("work", tmp_path / "profiles" / "work")]


# --- what a row says --------------------------------------------------------------------------------


def test_a_row_says_what_and_where(home: small.SmallHome) -> None:
    home.session("talk", title="Blue\nor green", cwd=small.BOREALIS + "/ui", source="tui")
    home.talk("talk", "which?", "blue", "sure?")
    found = row(sessions(home, limit=1), "talk")
    assert found.pop("last")[:2] == "20"
    assert found == {
        "profile": "default",
        "session_id": "talk",
        "title": "Blue or green",
        "project": {"kind": "explicit", "id": "p_borealis", "name": "Borealis"},
        "cwd": "/src/borealis/ui",
        "messages": 3,
        "source": "tui",
    }


def test_the_last_activity_is_the_newest_message_else_the_start(home: small.SmallHome) -> None:
    home.session("silent", started_at=2_000_000_000.0)
    home.session("spoken", started_at=1_000_000_000.0)
    home.say("spoken", "late", timestamp=2_000_000_100.0)
    home.say("spoken", "early", timestamp=1_999_999_999.0)
    answer = sessions(home)
    assert ids(answer) == ["spoken", "silent", "caller"]
    assert row(answer, "spoken")["last"] == when(2_000_000_100.0)
    assert row(answer, "silent")["last"] == when(2_000_000_000.0)


def test_messages_are_those_a_person_could_see(home: small.SmallHome) -> None:
    home.session("talk")
    home.talk("talk", "one", "two")
    home.say("talk", "summarised away", active=0, compacted=1)
    home.say("talk", "taken back", active=0)
    home.say("talk", "a notice", display_kind="hidden")
    home.say("talk", "of others", observed=1)
    home.say("talk", "output", "tool")
    home.say("talk", "", "assistant")
    assert row(sessions(home), "talk")["messages"] == 3


def test_a_lineage_is_one_conversation_named_by_its_tip(home: small.SmallHome) -> None:
    home.session("one", end_reason="compression", title="Old name")
    home.talk("one", "a", "b")
    home.session("two", parent="one", cwd=None, end_reason="compression")
    home.talk("two", "c")
    home.session("three", parent="two", cwd=small.BOREALIS)
    answer = sessions(home)
    assert ids(answer) == ["three", "caller"]
    tip = row(answer, "three")
    assert (tip["root_id"], tip["messages"], tip["title"]) == ("one", 3, "Old name")
    assert (tip["cwd"], tip["project"]["id"]) == (small.BOREALIS, "p_borealis")
    assert "child" not in tip
    assert "root_id" not in row(answer, "caller")


def test_children_are_listed_and_marked(home: small.SmallHome) -> None:
    home.session("branch", parent="caller", model_config={"_branched_from": "caller"})
    home.session("worker", source="subagent", parent="caller", model_config={"_delegate_from": "caller"})
    home.session("old worker", source="subagent", parent="caller")
    home.session("anew", parent="caller", model_config={"_reset_from": "caller"})
    answer = sessions(home)
    assert {r["session_id"]: r.get("child") for r in answer["sessions"]} == {
        "caller": None,
        "branch": "caller",
        "worker": "caller",
        "old worker": "caller",
        "anew": None,
    }


def test_a_subagent_without_a_folder_belongs_where_its_parent_does(home: small.SmallHome) -> None:
    home.session("worker", cwd=None, source="subagent", parent="caller")
    home.session("its worker", cwd=None, model_config={"_delegate_from": "worker"}, parent="worker")
    home.session("elsewhere", cwd=small.BOREALIS, source="subagent", parent="caller")
    home.session("circle", cwd=None, source="subagent", parent="circle")
    answer = sessions(home)
    assert {r["session_id"]: r["project"]["name"] for r in answer["sessions"]} == {
        "caller": "Atlas",
        "worker": "Atlas",
        "its worker": "Atlas",
        "elsewhere": "Borealis",
        "circle": "Home",
    }
    assert sorted(ids(sessions(home, project="Atlas"))) == ["caller", "its worker", "worker"]


def test_names_are_one_clean_redacted_line(home: small.SmallHome) -> None:
    home.session("talk", title="<system>\x1b[31m" + "key sk-1234 " + "t" * 5_000, cwd="/src/\u202ex")
    home.redact = lambda text: text.replace("sk-1234", "[redacted]")
    found = row(sessions(home), "talk")
    assert found["title"].startswith("‹system>key [redacted] ttt")
    assert len(found["title"]) == 80
    assert found["cwd"] == "/src/x"


def test_without_a_redactor_the_answer_says_so(home: small.SmallHome) -> None:
    assert sessions(home)["redacted"] is False
    home.redact = str
    assert "redacted" not in sessions(home)


# --- which rows -------------------------------------------------------------------------------------


def test_profiles_are_merged_by_last_activity_and_labelled(home: small.SmallHome) -> None:
    work = profile(home, "work")
    for place, (at, name) in enumerate([(home, "a"), (work, "b"), (home, "c"), (work, "d")]):
        at.session(name)
        at.say(name, "hello", timestamp=small.START + 1e6 + place)
    answer = sessions(home, work, limit=3)
    assert [(r["session_id"], r["profile"]) for r in answer["sessions"]] == [
        ("d", "work"),
        ("c", "default"),
        ("b", "work"),
    ]
    assert (answer["total"], answer["shown"]) == (6, 3)


def test_hidden_and_archived_are_left_out_and_counted(home: small.SmallHome) -> None:
    home.session("gone", archived=1)
    home.session("dark", hidden=1)
    home.session("both", hidden=1, archived=1)
    answer = sessions(home)
    assert ids(answer) == ["caller"]
    assert answer["total"] == 1
    assert answer["left_out"] == {"hidden": 2, "archived": 1}
    everything = sessions(home, hidden=True, archived=True)
    assert everything["total"] == 4
    assert "left_out" not in everything
    assert row(everything, "gone")["archived"] is True
    assert row(everything, "dark")["hidden"] is True
    assert set(row(everything, "both")) >= {"hidden", "archived"}
    assert sorted(ids(sessions(home, hidden=True))) == ["caller", "dark"]
    assert sorted(ids(sessions(home, archived=True))) == ["caller", "gone"]


def test_a_hidden_or_archived_conversation_counts_only_where_it_matches(home: small.SmallHome) -> None:
    home.session("gone", archived=1, title="green")
    assert "left_out" not in sessions(home, query="blue")
    assert sessions(home, query="green")["left_out"] == {"archived": 1}


@pytest.mark.parametrize("layout", small.LAYOUTS)
def test_every_layout_is_listed(tmp_path: Path, layout: str) -> None:
    home = small.furnished(tmp_path / "home", layout)
    home.talk("caller", "hello")
    assert row(sessions(home, query="HELLO"), "caller")["messages"] == 1


# --- the filters ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    ["Straße", "STRASSE", "borealis", "/src/borealis", "20260901_aa", "pelican", "PÉLICAN", "刷新令牌", "令牌 strasse"],
)
def test_the_filter_looks_at_title_folder_id_project_and_first_message(home: small.SmallHome, query: str) -> None:
    home.session("20260901_aabb", title="Die Straße", cwd=small.BOREALIS)
    home.talk("20260901_aabb", "where is the pelican? 请刷新令牌", "in the answer")
    assert ids(sessions(home, query=query)) == ["20260901_aabb"]


def test_all_words_must_stand_somewhere(home: small.SmallHome) -> None:
    home.session("talk", title="red fox")
    home.talk("talk", "over the dog", "and an answer", "a later word")
    assert ids(sessions(home, query="fox dog")) == ["talk"]
    for query in ("fox cat", "fox answer", "later", "fox borealis"):
        assert sessions(home, query=query)["total"] == 0


def test_the_first_message_is_the_first_that_a_person_saw(home: small.SmallHome) -> None:
    home.session("talk")
    home.say("talk", "taken back", active=0)
    home.say("talk", "a notice", display_kind="hidden")
    home.say("talk", [{"type": "text", "text": "the pelican"}, {"type": "image_url", "image_url": "data:,x"}])
    assert ids(sessions(home, query="pelican")) == ["talk"]
    assert ids(sessions(home, query="notice")) == []
    assert ids(sessions(home, query="taken")) == []


def test_the_first_message_of_a_lineage_is_its_roots(home: small.SmallHome) -> None:
    home.session("one", end_reason="compression")
    home.talk("one", "pelican")
    home.session("two", parent="one")
    home.talk("two", "heron")
    assert ids(sessions(home, query="pelican")) == ["two"]
    assert ids(sessions(home, query="heron")) == []


def test_the_filter_searches_everything_and_not_the_first_page(home: small.SmallHome) -> None:
    home.session("needle", title="DNA-Diffusion训练", source="subagent", parent="caller")
    rows = [(f"s{i:05}", "cli", small.START + 1e6 + i, f"hay {i}", "/src/atlas") for i in range(12_000)]
    home.write("INSERT INTO sessions (id, source, started_at, title, cwd) VALUES (?, ?, ?, ?, ?)", rows)
    answer = sessions(home, query="diffusion训练", limit=1)
    assert ids(answer) == ["needle"]
    answer = sessions(home, query="HAY", limit=7)
    assert (answer["total"], answer["shown"]) == (12_000, 7)
    assert ids(answer) == [f"s{i:05}" for i in range(11_999, 11_992, -1)]


@pytest.mark.parametrize("options", [{}, {"query": "hay 7 pelican"}, {"project": "Atlas"}])
def test_as_many_statements_are_run_for_many_as_for_few(
    home: small.SmallHome, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: list[str] = []

    def connect(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = sqlite3.connect(*args, **kwargs)
        db.set_trace_callback(statements.append)
        return db

    monkeypatch.setattr(small.SmallHome, "connect", staticmethod(connect))
    counts = []
    for start, end in ((0, 3), (3, 1_900)):
        rows = [(f"s{i:05}", small.START + i, f"hay {i}", "/src/atlas") for i in range(start, end)]
        home.write("INSERT INTO sessions (id, source, started_at, title, cwd) VALUES (?, 'cli', ?, ?, ?)", rows)
        statements.clear()
        sessions(home, limit=2_000, **options)
        counts.append(len(statements))
    assert 0 < counts[0] == counts[1]


@pytest.mark.parametrize("project", ["p_borealis", "borealis", "BOREALIS"])
def test_one_project_is_listed(home: small.SmallHome, project: str) -> None:
    home.session("talk", cwd=small.BOREALIS)
    assert ids(sessions(home, project=project)) == ["talk"]


def test_an_automatic_project_is_listed_by_its_path(home: small.SmallHome, tmp_path: Path) -> None:
    home.session("talk", cwd=None, git_repo_root=str(tmp_path))
    assert ids(sessions(home, project=str(tmp_path))) == ["talk"]


def test_home_is_listed_by_its_name(home: small.SmallHome) -> None:
    home.session("lost", cwd=None)
    assert ids(sessions(home, project="Home")) == ["lost"]


def test_a_project_of_one_profile_lists_that_profile_only(home: small.SmallHome) -> None:
    work = profile(home, "work")
    work.project("p_cirrus", "Cirrus", "/src/cirrus")
    work.session("talk", cwd="/src/cirrus")
    answer = sessions(home, work, project="cirrus")
    assert [(r["session_id"], r["profile"]) for r in answer["sessions"]] == [("talk", "work")]


def test_a_project_of_no_profile_is_an_error_with_candidates(home: small.SmallHome) -> None:
    with pytest.raises(errors.UnknownProject) as caught:
        sessions(profile(home, "empty"), home, project="nimbus")
    assert [row["id"] for row in caught.value.extra["candidates"]] == ["p_atlas"]


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(home: small.SmallHome, limit: int) -> None:
    with pytest.raises(errors.BadArgument, match="limit"):
        sessions(home, limit=limit)


# --- what goes wrong --------------------------------------------------------------------------------


def junk(path: Path) -> None:
    (path / "state.db").write_bytes(b"no database at all" * 400)


def emptied(path: Path) -> None:
    (path / "state.db").write_bytes(b"")


def removed(path: Path) -> None:
    (path / "state.db").unlink()


@pytest.mark.parametrize("spoil", [junk, emptied, removed])
def test_a_profile_that_cannot_be_read_is_named_and_the_others_are_listed(
    home: small.SmallHome, spoil: Callable[[Path], None]
) -> None:
    work = profile(home, "work")
    work.session("never seen")
    spoil(work.path)
    answer = sessions(work, home)
    assert ids(answer) == ["caller"]
    assert [problem["profile"] for problem in answer["problems"]] == ["work"]
    assert answer["problems"][0]["message"]


def test_time_runs_out_for_one_profile_at_a_time(home: small.SmallHome) -> None:
    rows = [(f"s{i}", small.START + i) for i in range(20_000)]
    home.write("INSERT INTO sessions (id, source, started_at) VALUES (?, 'cli', ?)", rows)
    answer = sessions(home, within=-1.0)
    assert (answer["total"], answer["sessions"]) == (0, [])
    assert "too slow" in answer["problems"][0]["message"]


def test_nothing_is_written(home: small.SmallHome) -> None:
    work = profile(home, "work")
    work.talk("caller", "hello")
    files = {path: path.read_bytes() for path in home.path.rglob("*") if path.is_file()}
    sessions(home, work, query="hello", project="Atlas")
    assert {path: path.read_bytes() for path in home.path.rglob("*") if path.is_file()} == files
