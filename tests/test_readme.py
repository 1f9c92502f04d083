"""The READMEs: each command in them is run, each table says what the program says, and both languages say the same.

A new command that no test here runs is a failure, and so is a table that went stale.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import project_history_recall as plugin
import pytest
import yaml
from project_history_recall import cli, request, slash, words
from project_history_recall.config_schema import Settings

from demo import hosts
from tests import homes, small

ROOT = hosts.ROOT
READMES = {"en": "README.md", "zh": "README.zh-CN.md"}
RECORDED = {"en": "terminal", "zh": "terminal.zh-CN"}
TEXTS = {language: (ROOT / name).read_text("utf-8") for language, name in READMES.items()}
FENCE = re.compile(r"^(```+)(\w+)\n(.*?)^\1\n", re.MULTILINE | re.DOTALL)
NOTHING = ("", "none", "无")  # a default in the tables that is none
each_language = pytest.mark.parametrize("language", READMES)

# Stand-ins for what a person fills in, in the homes of these tests.
NAMES = {"ID": "s_beta", "PROJECT": "alpha"}


def blocks(language: str, kind: str) -> list[str]:
    """What stands between the fences of one kind."""
    return [body for _, named, body in FENCE.findall(TEXTS[language]) if named == kind]


def commands(language: str) -> list[str]:
    """Every line of shell, without its comment."""
    lines = [line for block in blocks(language, "sh") for line in block.splitlines()]
    return [re.sub(r"\s+# .*", "", line) for line in lines]


def filled(command: str, **more: str) -> str:
    """A command with something in place of each name in capitals."""
    for name, value in {**NAMES, **more}.items():
        command = re.sub(rf"(?<![$\w{{]){name}\b", value, command)
    return command


def tables(language: str) -> list[list[list[str]]]:
    """The rows of each table, heads apart, as cells."""
    lines = TEXTS[language].splitlines()
    found = []
    for is_table, run in groupby(lines, lambda line: line.startswith("|")):
        if is_table:
            found.append([[cell.strip() for cell in row.strip("|").split("|")] for row in islice(run, 2, None)])
    return found


def table(language: str, first: str) -> list[list[str]]:
    """The table whose first cell is `first`."""
    (found,) = [rows for rows in tables(language) if rows[0][0] == f"`{first}`"]
    return found


ALL = commands("en")
OURS = [line for line in ALL if line.startswith("hermes project-history ")]
SCRIPT = [line for line in ALL if line.startswith("project-history-recall ")]
SET_UP = ["python3 demo", "python3 tests"]
FETCH = "hermes plugins install --enable GIT_URL"
BY_HAND = 'git clone . "${HERMES_HOME:-$HOME/.hermes}/plugins/project-history-recall"'
FROM_TREE = "python -m pip install ."
REMOVE = "hermes plugins remove project-history-recall"


def test_no_command_is_without_its_test() -> None:
    others = [line for line in ALL if line not in OURS and line not in SCRIPT]
    (packages,) = [line for line in others if line.startswith('python -m pip install "')]
    assert sorted(others) == sorted([*SET_UP, FETCH, BY_HAND, packages, FROM_TREE, REMOVE])
    assert {shlex.split(line)[2] for line in OURS} == set(cli.COMMANDS)


# --- both languages ---------------------------------------------------------------------------------


def test_both_languages_give_the_same_commands() -> None:
    assert commands("zh") == ALL


def test_both_languages_give_the_same_settings() -> None:
    assert blocks("zh", "yaml") == blocks("en", "yaml")


def test_both_languages_have_the_same_headings_and_rows() -> None:
    def shape(language: str) -> list[str]:
        outside = FENCE.sub("", TEXTS[language])
        return [match[0] for match in re.finditer(r"^#+(?= )|^\|", outside, re.MULTILINE)]

    assert shape("zh") == shape("en")
    widths = {language: [[len(row) for row in rows] for rows in tables(language)] for language in READMES}
    assert widths["zh"] == widths["en"]


def test_both_languages_give_the_same_figures() -> None:
    """No figure stands in one of them alone. (The Chinese counts in 万, and writes units differently.)"""
    pattern = r"(?<![0-9A-Za-z.])\.\d{3}(?![0-9A-Za-z])|(?<![0-9A-Za-z.])0\.\d(?![0-9A-Za-z.])"
    english, chinese = (sorted(re.findall(pattern, FENCE.sub("", TEXTS[language]))) for language in READMES)
    assert english
    assert chinese == english


@each_language
def test_every_link_leads_somewhere(language: str) -> None:
    links = re.findall(r"\]\(([^)]+)\)", TEXTS[language])
    local = [link for link in links if not link.startswith("https://")]
    assert local
    assert [link for link in local if not (ROOT / link).exists()] == []


# --- tables and texts -------------------------------------------------------------------------------


def plain(cell: str) -> str:
    """A default as the program writes it."""
    return cell.strip("`").replace(",", "")


@each_language
@pytest.mark.parametrize(
    ("first", "schema"), [("query", plugin.SEARCH_SCHEMA), ("project", plugin.MOVE_SCHEMA)], ids=["search", "move"]
)
def test_the_arguments_of_each_tool_are_its_schemas(language: str, first: str, schema: dict[str, Any]) -> None:
    rows = table(language, first)
    assert [plain(row[0]) for row in rows] == list(schema["parameters"]["properties"])
    assert f"### `{schema['name']}`" in TEXTS[language]


@each_language
def test_the_defaults_and_bounds_of_arguments_are_the_programs(language: str) -> None:
    rows = {plain(row[0]): row for row in table(language, "query")}
    for name, (least, default, most) in {"limit": request.LIMIT, "context": request.CONTEXT}.items():
        assert plain(rows[name][2]) == str(default)
        assert re.findall(r"\d+", rows[name][1]) == [str(least), str(most)]
    assert plain(rows["mode"][2]) == request.MODES[0]
    assert all(f"`{mode}`" in rows["mode"][1] for mode in request.MODES)


@each_language
def test_the_settings_are_those_of_the_manifest_with_their_defaults(language: str) -> None:
    declared = yaml.safe_load((ROOT / "plugin.yaml").read_text("utf-8"))["config_schema"]
    rows = table(language, "max_result_chars")
    assert [plain(row[0]) for row in rows] == list(declared)
    for name, values, default in rows:
        given = declared[plain(name)].get("default")
        assert plain(default) in NOTHING if given in (None, []) else plain(default) == str(given)
        assert all(f"`{choice}`" in values for choice in declared[plain(name)].get("choices", ()))
    assert declared["embedding_api_key"]["env"] in TEXTS[language]


@each_language
def test_the_slash_commands_are_what_help_answers(language: str) -> None:
    (block,) = blocks(language, "text")
    assert block.rstrip("\n") == slash._help(words.speak(language))


@each_language
def test_the_figures_are_those_of_the_measurements(language: str) -> None:
    measured, report = ((ROOT / "bench" / name).read_text("utf-8") for name in ("README.md", "report/README.md"))
    (locomo,) = [line for line in measured.splitlines() if line.startswith("| LoCoMo (message) |")]
    cells = [cell.strip() for cell in locomo.strip("|").split("|")]
    first_five = [cells[column].split("/")[1] for column in (4, 2, 3)]  # hybrid, words, meaning
    assert re.findall(r"\.\d{3}", tables(language)[0][0][1]) == first_five
    assert re.findall(r"(?<!\.)\b\d{3}\b", tables(language)[0][0][1]) == [cells[1]]
    rows = re.search(r"## Hybrid call, scope of 200 sessions among 200,000.*?(?=\n## )", report, re.DOTALL)
    assert rows is not None
    calls = [float(line.split("|")[4]) for line in rows[0].splitlines() if re.match(r"\| .*\| \d", line)]
    assert re.findall(r"\d+", tables(language)[0][1][1]) == [f"{min(calls):.0f}", f"{max(calls):.0f}"]
    for figure in ("115 a second of CPU", "`ready`", "930 s", "the first answer took 3.7 s", "until 930 s"):
        assert figure in measured
    assert {"115", "930", "3.7"} <= set(re.findall(r"\d+\.\d+|\d+", TEXTS[language]))


@each_language
def test_the_faults_are_held_by_tests_that_are_there(language: str) -> None:
    files = {path.stem for path in (ROOT / "tests" / "faults").glob("test_*.py")}
    held = [re.findall(r"`(test_\w+)`", rows[0][-1]) and rows for rows in tables(language)]
    (faults,) = [rows for rows in held if rows]
    assert {name for row in faults for name in re.findall(r"`(test_\w+)`", row[-1])} == files


def recipes(language: str) -> list[Settings]:
    """The settings of each example that has some."""
    entries = [yaml.safe_load(block)["plugins"].get("entries") for block in blocks(language, "yaml")]
    return [Settings.parse(entry[hosts.PLUGIN]["settings"]) for entry in entries if entry]


def test_the_recipes_are_settings_that_can_be_used() -> None:
    here, also_here, away = recipes("en")
    for settings in (here, also_here, away):
        assert settings.problems == ()
        assert settings.endpoint is not None
    assert here.endpoint is not None
    assert also_here.endpoint is not None
    assert away.endpoint is not None
    assert [e.needs_grant for e in (here.endpoint, also_here.endpoint, away.endpoint)] == [False, False, True]


@each_language
def test_the_packages_are_those_that_the_plugin_declares(language: str) -> None:
    """The very list that the hosts' environments of these tests are made of."""
    (line,) = [line for line in commands(language) if line.startswith('python -m pip install "')]
    declared = [requirement.partition(";")[0] for requirement in hosts.project()["dependencies"]]
    assert shlex.split(line)[4:] == declared


def test_the_set_up_commands_are_there_and_are_what_a_change_must_pass() -> None:
    for line in SET_UP:
        assert (ROOT / line.split()[1] / "__main__.py").is_file()
    assert f"exec {SET_UP[1]} " in (ROOT / ".ci" / "run").read_text("utf-8")


def test_the_demo_says_how_it_is_asked(repo_root: Path) -> None:
    done = subprocess.run(
        [sys.executable, *SET_UP[0].split()[1:], "--help"], cwd=repo_root, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: {SET_UP[0]} ")


# --- without Hermes ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shell:
    """A shell of somebody who stands in a folder, with some commands on the path and a home of their own."""

    folder: Path
    environment: dict[str, str]

    def run(self, line: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", line], env=self.environment, cwd=folder or self.folder, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, encoding="utf-8", timeout=300, check=False,
        )  # fmt: skip


def executable(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    path.chmod(0o755)


LENT = """\
import argparse, sys
from project_history_recall import cli
parser = argparse.ArgumentParser(prog="hermes")
cli.set_up(parser.add_subparsers(dest="command").add_parser("project-history"))
cli.from_host(parser.parse_args())
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """One stands in the project alpha of a small home. Hermes is not in this Python; the test lends its parser."""
    home = small.SmallHome(tmp_path / "home", clock=time.time() - 7_200)
    for name in ("alpha", "beta"):
        (tmp_path / name).mkdir()
        home.project(f"p_{name}", name, str(tmp_path / name))
        home.session(f"s_{name}", cwd=str(tmp_path / name), title=f"The queue of {name}")
        home.talk(f"s_{name}", f"Why did we drop the queue of {name}?", "Because refreshToken() waited for it.")
    hosts.install_plugin(home.path)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / hosts.PACKAGE).symlink_to(ROOT, target_is_directory=True)
    module, function = hosts.project()["scripts"][hosts.PLUGIN].split(":")
    executable(
        tmp_path / "bin" / hosts.PLUGIN,
        f"#!{sys.executable} -P\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n",
    )
    executable(tmp_path / "bin" / "hermes", f"#!{sys.executable} -P\n{LENT}")
    return Shell(
        tmp_path / "alpha",
        os.environ
        | {
            "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(tmp_path / "lib"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HERMES_HOME": str(home.path),
            "HOME": str(tmp_path / "nobody"),
            "LC_ALL": "C.UTF-8",
            "LANGUAGE": "",
        },
    )


# What cannot be answered without Hermes, or on this home, and what is said instead.
REFUSED = {
    "hermes project-history move ID PROJECT --dry-run": "only Hermes itself moves",
    "hermes project-history move ID PROJECT": "only Hermes itself moves",
    "hermes project-history move ID --undo": "No move of that conversation",
}


@pytest.mark.skipif(os.name == "nt", reason="the commands are those of a POSIX shell")
@pytest.mark.parametrize("command", [*OURS, *SCRIPT])
def test_each_command_does_what_it_says_without_hermes(shell: Shell, command: str) -> None:
    done = shell.run(filled(command))
    assert "Traceback" not in done.stderr
    if command in REFUSED:
        assert done.returncode == 1, done.stdout
        assert REFUSED[command] in done.stderr
        return
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    if " search " in command and "PROJECT" not in command:
        assert "s_alpha#" in done.stdout
        assert "s_beta" not in done.stdout


# --- in Hermes --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This tree as somebody would have cloned it, uncommitted changes included."""
    folder = tmp_path_factory.mktemp("readme") / "clone"
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    git = ["git", "-c", "user.name=nobody", "-c", "user.email=nobody@localhost", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "-m", "all of it"]):
        subprocess.run([*git, *arguments], cwd=folder, check=True)
    return folder


def in_host(host: hosts.Host, base: Path, folder: Path) -> Shell:
    """A shell in which `hermes` is that host, whatever it is called there."""
    real = hosts.environment(host)
    (base / "bin").mkdir(exist_ok=True)
    (base / "bin" / "hermes").symlink_to(real.with_name(host.command))
    path = os.pathsep.join([str(base / "bin"), os.environ["PATH"]])
    return Shell(folder, hosts.child_env(host, base / "home", PATH=path, LANG="C.UTF-8", LC_ALL="C.UTF-8"))


def test_hermes_fetches_and_enables_it(host: hosts.Host, clone: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    done = in_host(host, tmp_path, tmp_path).run(filled(FETCH, GIT_URL=clone.as_uri()))
    said = " ".join((done.stdout + done.stderr).split())
    if done.returncode and host.name == "0.22" and "download failed" in said:
        pytest.skip(f"Hermes 0.22 fetches an interpreter, and there is no network: {said[said.index('Error'):][:120]}")
    assert done.returncode == 0, said
    assert (tmp_path / "home" / "plugins" / hosts.PLUGIN / "plugin.yaml").is_file()
    config = yaml.safe_load((tmp_path / "home" / "config.yaml").read_text("utf-8"))
    assert hosts.PLUGIN in config["plugins"]["enabled"]


@pytest.fixture(scope="module")
def installed(
    host: hosts.Host, clone: Path, probe: homes.Probe, tmp_path_factory: pytest.TempPathFactory
) -> Shell:
    """A home with a past in two projects, into which the plugin was put by hand, as the README says."""
    base = tmp_path_factory.mktemp("by-hand")
    home, work = base / "home", base / "work"
    for name in ("alpha", "beta"):
        (work / name).mkdir(parents=True)
    home.mkdir()
    queue = "Why did we drop the queue of {}? Because refreshToken() waited for it."
    stored = {f"s_{name}": [f"{work / name}/", "cli", queue.format(name)] for name in ("alpha", "beta")}
    (home / "config.yaml").write_text(blocks("en", "yaml")[0], "utf-8")
    probe("stored", home, json.dumps(stored))
    shell = in_host(host, base, work / "alpha")
    done = shell.run(BY_HAND, folder=clone)
    assert done.returncode == 0, done.stderr
    return shell


def test_each_command_runs_in_hermes_in_the_order_of_the_readme(host: hosts.Host, installed: Shell) -> None:
    for command in OURS:
        done = installed.run(filled(command))
        moves = "move ID" in command and "--dry-run" not in command
        expected = 1 if moves and host.name == "0.19" else 0
        assert done.returncode == expected, f"{command}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        assert (done.stderr if expected else done.stdout).strip()
    doctor = installed.run("hermes project-history doctor").stdout
    assert "ok  Plugin: enabled" in doctor
    assert "BROKEN" not in doctor


def test_the_bare_help_names_no_plugin_and_its_own_does(installed: Shell) -> None:
    assert "project-history" not in installed.run("hermes --help").stdout
    assert "doctor" in installed.run("hermes project-history --help").stdout


def test_removed_it_leaves_the_one_folder_that_is_named(installed: Shell) -> None:
    """The last test of this home."""
    home = Path(installed.environment["HERMES_HOME"])
    assert installed.run("hermes project-history search queue").returncode == 0
    done = installed.run(REMOVE)
    assert done.returncode == 0, done.stderr
    assert not (home / "plugins" / hosts.PLUGIN).exists()
    left = [path.relative_to(home).as_posix() for path in home.rglob(f"*{hosts.PLUGIN}*")]
    assert left == [f"plugin-data/{hosts.PLUGIN}"]
    assert f"$HERMES_HOME/{left[0]}/" in TEXTS["en"]
    assert f"$HERMES_HOME/{left[0]}/" in TEXTS["zh"]


def test_pip_installs_the_tree_with_its_command(host: hosts.Host, tmp_path: Path) -> None:
    """`python -m pip install .` is what makes this environment; the plugin is found there by its entry point."""
    python = hosts.environment(host, with_plugin=True)
    shell = Shell(tmp_path, hosts.child_env(host, tmp_path / "home", LC_ALL="C.UTF-8"))
    done = shell.run(shlex.join([str(python.with_name(hosts.PLUGIN)), "--help"]))
    assert done.returncode == 0, done.stderr
    assert [name for name in cli.COMMANDS if f"\n    {name} " not in done.stdout] == []


# --- the recording ----------------------------------------------------------------------------------


@each_language
def test_the_transcript_is_the_recording(language: str) -> None:
    (block,) = blocks(language, "console")
    recorded = (ROOT / "docs" / f"{RECORDED[language]}.txt").read_text("utf-8")
    assert block.rstrip("\n") == recorded.rstrip("\n")


def test_the_recording_is_what_the_program_prints_today(host: hosts.Host, repo_root: Path, tmp_path: Path) -> None:
    if host.name != "0.22":
        pytest.skip("recorded in Hermes 0.22")
    subprocess.run([sys.executable, "-P", str(repo_root / "docs" / "record.py"), str(tmp_path)], check=True)
    for name in RECORDED.values():
        for kind in ("txt", "svg"):
            file = f"{name}.{kind}"
            assert (tmp_path / file).read_text("utf-8") == (repo_root / "docs" / file).read_text("utf-8"), file
