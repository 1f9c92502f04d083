"""The command line: a search of a home, from the folder one stands in, without Hermes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from project_history_recall import cli

from tests import small

Printed = pytest.CaptureFixture[str]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> small.SmallHome:
    """A home with a project in each of two folders; one stands in the first."""
    home = small.SmallHome(tmp_path / "home")
    for name in ("atlas", "borealis"):
        (tmp_path / name).mkdir()
        home.project(f"p_{name}", name.title(), str(tmp_path / name))
        home.session(f"in-{name}", cwd=str(tmp_path / name), title=f"About {name}")
        home.talk(f"in-{name}", f"the zebra of {name}\nis striped", "so it is")
    monkeypatch.setenv("HERMES_HOME", str(home.path))
    monkeypatch.chdir(tmp_path / "atlas")
    return home


def test_the_folder_one_stands_in_decides(
    home: small.SmallHome, capsys: Printed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("atlas", "borealis"):
        monkeypatch.chdir(tmp_path / name)
        assert cli.main(["search", "zebra"]) == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        assert f"the zebra of {name}" in printed.out
        assert printed.out.count("the zebra of") == 1


def test_below_a_projects_folder_one_is_in_it(
    home: small.SmallHome, capsys: Printed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "atlas" / "src").mkdir()
    monkeypatch.chdir(tmp_path / "atlas" / "src")
    assert cli.main(["search", "zebra"]) == 0
    assert "the zebra of atlas" in capsys.readouterr().out


def test_a_hit_is_printed_with_where_it_is_from(home: small.SmallHome, capsys: Printed) -> None:
    assert cli.main(["search", "zebra"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "Atlas · 1 conversations"
    assert out[2].startswith("in-atlas#1  ")
    assert out[2].endswith("  user  About atlas")
    assert out[3:5] == ["  the zebra of atlas", "  is striped"]


def test_json_is_the_answer_that_an_agent_gets(home: small.SmallHome, capsys: Printed) -> None:
    assert cli.main(["search", "zebra", "--json", "--limit", "3", "--context", "0", "--mode", "keyword"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert next(iter(answer)) == "notice"
    assert answer["mode"] == "keyword"
    assert answer["project"]["id"] == "p_atlas"
    assert [hit["session_id"] for hit in answer["results"]] == ["in-atlas"]
    assert "context" not in answer["results"][0]


def test_options_reach_the_search(home: small.SmallHome, capsys: Printed) -> None:
    def found(*arguments: str) -> list[int]:
        assert cli.main(["search", *arguments, "--json"]) == 0
        return small.ids(json.loads(capsys.readouterr().out))

    assert found("zebra", "--project", "Borealis") == [3]
    assert found("zebra", "--session", "in-a") == [1]
    assert found("--around", "2") == [2]
    assert found("zebra", "--after", "1h") == []
    assert found("zebra", "--before", "2000-01-01") == []


def test_another_home_is_named(
    home: small.SmallHome, capsys: Printed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "nowhere"))
    assert cli.main(["search", "zebra", "--home", str(home.path)]) == 0
    assert "the zebra of atlas" in capsys.readouterr().out


def test_outside_all_projects_the_reason_is_printed(
    home: small.SmallHome, capsys: Printed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    (tmp_path / "user").mkdir()
    monkeypatch.chdir(tmp_path / "user")
    assert cli.main(["search", "zebra"]) == 0
    out = capsys.readouterr().out
    assert "Home is not searched" in out
    assert "--project" in out or "`project`" in out


def test_nothing_found_is_said(home: small.SmallHome, capsys: Printed) -> None:
    assert cli.main(["search", "giraffe"]) == 0
    assert "Nothing found" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["search"], "query"),
        (["search", "zebra", "--project", "nowhere"], "nowhere"),
        (["search", "zebra", "--project", "home"], "Home"),
        (["search", "zebra", "--session", "zzz"], "zzz"),
        (["search", "zebra", "--session", "in-b"], "Borealis"),
        (["search", "zebra", "--after", "soon"], "after"),
        (["search", "zebra", "--limit", "many"], "limit"),
        (["search", "--around", "x"], "around"),
        (["search", "--around", "999"], "999"),
    ],
)
def test_what_cannot_be_answered_is_told_beside_the_output(
    home: small.SmallHome, capsys: Printed, arguments: list[str], said: str
) -> None:
    assert cli.main(arguments) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err


def test_candidates_are_listed(home: small.SmallHome, capsys: Printed) -> None:
    assert cli.main(["search", "zebra", "--session", "in"]) == 1
    assert {"in-atlas", "in-borealis"} <= set(capsys.readouterr().err.split())


def test_a_missing_home_is_told_and_not_made(tmp_path: Path, capsys: Printed) -> None:
    assert cli.main(["search", "zebra", "--home", str(tmp_path / "nowhere")]) == 1
    assert "state.db" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    "arguments", [[], ["find"], ["search", "--mode", "fuzzy"], ["search", "x", "--unknown"], ["search", "a", "b"]]
)
def test_wrong_arguments_end_with_2(arguments: list[str], capsys: Printed) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_what_a_terminal_would_obey_is_not_printed(home: small.SmallHome, capsys: Printed) -> None:
    home.session("x", cwd=str(Path.cwd()), title="\x1b]0;owned\x07 title")
    home.say("x", "giraffe \x1b[2J\x1b[31m red \u202e")
    assert cli.main(["search", "giraffe"]) == 0
    assert not {"\x1b", "\x07", "\u202e"} & set(capsys.readouterr().out)


def test_it_runs_as_a_program(home: small.SmallHome, repo_root: Path) -> None:
    script = (
        "import importlib.util, sys; root = sys.argv.pop(1);"
        "there = {'submodule_search_locations': [root]};"
        "spec = importlib.util.spec_from_file_location('phr', root + '/__init__.py', **there);"
        "sys.modules['phr'] = module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module);"
        "from phr import cli; sys.exit(cli.main())"
    )
    command = [sys.executable, "-P", "-c", script, str(repo_root), "search", "zebra"]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "the zebra of atlas" in done.stdout
