"""What users of this and neighbouring programs reported, each kind as a test; docs/field-reports.md has them all."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.faults.tools import checked, configure, moved, searched
from tests.small import ATLAS, BOREALIS, LAYOUTS, SmallHome, furnished, ids

REPORTS = Path(__file__).resolve().parent.parent / "docs" / "field-reports.md"


@pytest.fixture(params=LAYOUTS)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> SmallHome:
    made = furnished(tmp_path / "home", request.param)
    configure(made, max_result_chars=60_000)
    return made


def found(home: SmallHome, query: str, **args: object) -> list[int]:
    """The message ids of every page of an answer."""
    rows: list[int] = []
    for _ in range(40):
        answer = checked(searched(home, {"query": query, "limit": 20, "context": 0, **args}), 60_000)
        rows += ids(answer)
        if "next" not in answer:
            break
        args |= answer["next"]
    return rows


# --- Chinese, Japanese, Korean ----------------------------------------------------------------------


def test_a_chinese_conversation_of_298_messages_is_found(home: SmallHome) -> None:
    """hermes-agent#33069: a search in it came back empty."""
    home.session("long")
    home.fill("long", (f"第{n}条：我们继续讨论部署流程" for n in range(150)))
    row = home.say("long", "最后决定把归属判断放到网关里做", "assistant")
    home.fill("long", (f"第{n}条：我们继续讨论部署流程" for n in range(151, 298)))
    assert found(home, "归属判断放在哪里做")[0] == row


def test_what_grep_finds_148_times_is_found_148_times(home: SmallHome) -> None:
    """hermes-agent#15500: 大别山项目, once."""
    rows = []
    for n in range(148):
        home.session(f"s{n}")
        rows.append(home.say(f"s{n}", f"关于大别山项目的第{n}次讨论"))
    assert sorted(found(home, "大别山项目")) == rows


@pytest.mark.parametrize("words", ["昨晚", "今天", "配置"])
def test_a_word_of_two_characters_is_found_everywhere_it_is(home: SmallHome, words: str) -> None:
    """hermes-agent#14829: 昨晚, by the index 2 times, by reading 16 times, and reading was left out."""
    rows = []
    for n in range(16):
        home.session(f"s{n}")
        # Alone between marks twice, else inside other words.
        rows.append(home.say(f"s{n}", f"说明，{words}，{n}" if n < 2 else f"他们{words}又改了一遍{n}"))
    assert sorted(found(home, words)) == rows


@pytest.mark.parametrize("query", ["广西 OR 桂林 OR 阳朔", "广西 桂林 阳朔", "广西 AND 桂林", "广西|桂林"])
def test_chinese_words_joined_by_or_find_each(home: SmallHome, query: str) -> None:
    """hermes-agent#20494 and openclaw#83384: hundreds of rows have one of them, none has all; nothing."""
    rows = []
    for n, place in enumerate(["广西的行程", "桂林的米粉", "去阳朔骑车"]):
        home.session(f"s{n}")
        rows.append(home.say(f"s{n}", place))
    assert set(found(home, query)) >= set(rows[:2])


@pytest.mark.parametrize("text", ["修改youer服务端", "youer的配置", "用youer", "「youer」"])
def test_a_latin_name_glued_to_chinese_is_found(home: SmallHome, text: str) -> None:
    """hermes-agent#54242: no hit."""
    home.session("a")
    row = home.say("a", text)
    assert found(home, "youer") == [row]


def test_a_chinese_word_that_only_a_row_of_parts_holds_is_found(home: SmallHome) -> None:
    """claude-mem#3801: 用户身份, no row."""
    home.session("a")
    row = home.say("a", [{"type": "text", "text": "先校验用户身份再放行"}])
    assert found(home, "用户身份") == [row]


# --- what is there is found -------------------------------------------------------------------------


def test_what_a_subagent_reported_is_found_where_it_reported(home: SmallHome) -> None:
    """hermes-agent#51101, claude-code#39621: its own transcript is no conversation; its report is in its parent's."""
    home.session("a")
    home.session("sub", source="subagent", parent="a")
    home.say("sub", "internal: the heron migration needs two passes", "assistant")
    row = home.say("a", '{"summary": "the heron migration needs two passes"}', "tool")
    answer = checked(searched(home, {"query": "heron migration"}), 60_000)
    assert [(hit["message_id"], hit["role"]) for hit in answer["results"]] == [(row, "tool")]


def test_early_text_of_the_conversation_that_asks_is_found_after_a_compression(home: SmallHome) -> None:
    """hermes-agent#13840, #90939: a black hole."""
    home.write("UPDATE sessions SET end_reason = 'compression' WHERE id = 'caller'")
    row = home.say("caller", "we agreed on the heron port 8123", active=0, compacted=1)
    home.session("tip", parent="caller", cwd=None)
    home.say("tip", "go on")
    answer = checked(searched(home, {"query": "heron port"}, "tip"), 60_000)
    assert ids(answer) == [row]
    assert answer["project"]["id"] == "p_atlas", "hermes-agent#64709: the new row has no folder"


def test_the_oldest_of_12000_conversations_is_found(home: SmallHome) -> None:
    """hermes-agent#105511: a view that ends after 2,000."""
    home.session("oldest")
    row = home.say("oldest", "the heron decision of long ago")
    home.write(
        "INSERT INTO sessions (id, source, cwd, started_at) VALUES (?, 'cli', ?, ?)",
        [(f"n{n:05}", (ATLAS, BOREALIS)[n % 2], home.clock + n) for n in range(12_000)],
    )
    home.write(
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, 'user', ?, ?)",
        [(f"n{n:05}", f"nothing of note {n}", home.clock + n) for n in range(12_000)],
    )
    answer = checked(searched(home, {"query": "heron decision"}), 60_000)
    assert ids(answer) == [row]
    assert answer["sessions_in_scope"] == 6_002


def test_a_search_by_date_is_filtered_before_it_is_cut(home: SmallHome) -> None:
    """hermes-agent#66732, episodic-memory#126: no filter by date; or one after the cut, and hundreds became none."""
    home.session("new")
    home.session("old")
    home.fill("new", (f"heron heron heron {n}" for n in range(600)))
    row = home.say("old", "the heron once", timestamp=1_000_000_000.0)
    assert found(home, "heron", before="2002-01-01") == [row]
    assert found(home, "heron", after="2001-09-09", before="2001-09-10") == [row]


# --- projects ---------------------------------------------------------------------------------------


def test_two_folders_of_one_name_are_two_projects(home: SmallHome, tmp_path: Path) -> None:
    """claude-mem#3437, claude-code#70076: by the last name of a path, or by a slug without its Chinese letters."""
    rows = {}
    for folder in ("work/api", "play/api", "项目甲", "测试乙"):
        (tmp_path / folder).mkdir(parents=True)
        home.session(f"caller of {folder}", cwd=str(tmp_path / folder))
        home.session(f"of {folder}", cwd=str(tmp_path / folder))
        rows[folder] = home.say(f"of {folder}", f"the heron in {folder}")
    for folder, row in rows.items():
        answer = checked(searched(home, {"query": "heron"}, f"caller of {folder}"), 60_000)
        assert (ids(answer), answer["project"]["id"]) == ([row], str(tmp_path / folder))


def test_a_folder_that_became_a_repository_keeps_its_conversations(home: SmallHome, tmp_path: Path) -> None:
    """hermes-agent#106003: "No sessions yet", despite 40."""
    folder = tmp_path / "grown"
    folder.mkdir()
    home.session("grown caller", cwd=str(folder))
    home.session("before", cwd=str(folder))
    rows = [home.say("before", "the heron before")]
    assert ids(checked(searched(home, {"query": "heron"}, "grown caller"), 60_000)) == rows
    for part in ("objects", "refs", "src"):
        (folder / (part if part == "src" else f".git/{part}")).mkdir(parents=True)
    (folder / ".git/HEAD").write_text("ref: refs/heads/main\n")
    home.session("after", cwd=str(folder / "src"), git_repo_root=str(folder))
    rows.append(home.say("after", "the heron after"))
    assert sorted(ids(checked(searched(home, {"query": "heron"}, "grown caller"), 60_000))) == rows


def test_a_conversation_of_541_messages_without_a_folder_is_moved_into_its_project_and_found(
    home: SmallHome, tmp_path: Path
) -> None:
    """hermes-agent#58653, #92398: gone from view, and SQL by hand the only way back."""
    folder = tmp_path / "harbour"
    folder.mkdir()
    home.project("p_harbour", "Harbour", str(folder))
    home.session("lost", cwd=None)
    home.fill("lost", (f"heron {n}" for n in range(541)))
    home.session("reader", cwd=str(folder))
    few = checked(searched(home, {"query": "heron"}), 60_000)
    assert (few["results"], few["excluded"]["no_folder"]) == ([], 1)
    assert checked(moved(home, {"project": "Harbour", "session_id": "lost"}, "caller", "caller"))["moved"] is True
    answer = checked(searched(home, {"query": "heron"}, "reader"), 60_000)
    assert {hit["session_id"] for hit in answer["results"]} == {"lost"}


def test_conversations_of_a_renamed_folder_are_moved_to_it_and_found(home: SmallHome, tmp_path: Path) -> None:
    """hermes-agent#104565, claude-code#86713, opencode#34737: orphaned, or three stores to be edited."""
    folder = tmp_path / "new name"
    folder.mkdir()
    home.project("p_named", "Named", str(folder))
    home.session("orphan", cwd=str(tmp_path / "old name"))
    row = home.say("orphan", "the heron under the old name")
    home.session("reader", cwd=str(folder))
    assert checked(moved(home, {"project": "Named", "session_id": "orphan"}, "caller", "caller"))["moved"] is True
    assert ids(checked(searched(home, {"query": "heron"}, "reader"), 60_000)) == [row]


def test_a_hit_says_where_it_comes_from_in_words_that_any_surface_shows(home: SmallHome) -> None:
    """hermes-agent#97497, #105353: a raw link where nothing makes one of it; a fact without its source."""
    home.session("a", title="Login")
    row = home.say("a", "the heron decision")
    (hit,) = checked(searched(home, {"query": "heron"}), 60_000)["results"]
    assert (hit["session_id"], hit["message_id"], hit["title"]) == ("a", row, "Login")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", hit["when"])


# --- the list itself --------------------------------------------------------------------------------

NAMED = re.compile(r"`((?:faults/)?test_\w+)::(test_\w+)`")


def test_every_test_that_the_list_names_is_there() -> None:
    named = NAMED.findall(REPORTS.read_text("utf-8"))
    assert len(named) > 60
    written: dict[str, set[str]] = {}
    for file, _ in named:
        if file not in written:
            tree = ast.parse((Path(__file__).parent / f"{file}.py").read_text("utf-8"))
            written[file] = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert [f"{file}::{test}" for file, test in named if test not in written[file]] == []


def test_every_report_of_the_list_has_a_test_or_a_reason() -> None:
    rows = [line for line in REPORTS.read_text("utf-8").splitlines() if line.startswith("| ") and "#" in line]
    assert len(rows) > 70
    for row in rows:
        report, seen, held = (cell.strip() for cell in row.strip("|").split("|"))
        assert re.search(r"#\d+", report), row
        assert len(seen) > 10, row
        assert NAMED.search(held) or len(held) > 25, row


def test_every_test_of_this_file_is_in_the_list() -> None:
    tree = ast.parse(Path(__file__).read_text("utf-8"))
    tests = {n.name for n in tree.body if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")}
    named = {test for file, test in NAMED.findall(REPORTS.read_text("utf-8")) if file == "test_field_reports"}
    assert {t for t in tests if "list" not in t} == named
