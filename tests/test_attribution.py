"""Whose a session row is: every recorded answer of the real hosts, and what must hold for any row."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from project_history_recall.attribution import Attribution, Project, ProjectRef, Roots, path_key, segments
from project_history_recall.repos import RepoRoots

from demo import hosts
from tests import attribution_oracle as oracle

RECORDED: list[dict[str, Any]] = json.loads(oracle.CASES_FILE.read_text())["cases"]
each_case = pytest.mark.parametrize("case", RECORDED, ids=lambda case: case["name"])


def projects_of(case: dict[str, Any], fx: str = "$FX") -> list[Project]:
    """The case's projects, oldest first, as they are read from projects.db."""
    made = [oracle.question_project(x) for x in oracle.many_projects(case["many"])] if "many" in case else []
    listed = [*case["projects"], *made]
    listed = [x for _, x in sorted(enumerate(listed), key=lambda pair: pair[1].get("created", pair[0]))]
    return [
        Project(x["id"], x["id"], x["id"], x.get("archived", False), folders, folders[0] if folders else None)
        for x in listed
        for folders in [tuple(folder.replace("$FX", fx) for folder in x["folders"])]
    ]


def written(ref: ProjectRef) -> str:
    return "home" if ref.kind == "home" else f"{ref.kind}:{ref.id}"


def column(text: str | None, fx: str) -> str | None:
    return text and text.replace("$FX", fx)


# --- as the hosts answer ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fx(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder that `$FX` stands for, with its repositories."""
    folder = tmp_path_factory.mktemp("attribution").resolve() / "fx"
    oracle.build_fixture(folder)
    return str(folder)


@pytest.fixture
def live(fx: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, Any]], Attribution]:
    """A case's attribution over the real disk, with its home and HERMES_HOME."""

    def build(case: dict[str, Any]) -> Attribution:
        monkeypatch.setenv("HOME", f"{fx}/{case['home']}")
        monkeypatch.setenv("HERMES_HOME", f"{fx}/hermes")
        return Attribution(
            projects_of(case, fx), RepoRoots(), junk_root=junk_root, junk_cwd=junk_cwd, exists=os.path.isdir
        )

    return build


def non_workspaces() -> set[str]:
    home = os.path.realpath(os.path.expanduser("~"))
    return {os.path.realpath(path) for path in ("/", home, os.path.dirname(home), "/home", "/Users")}


def junk_root(path: str) -> bool:
    real, hermes = Path(path).resolve(), Path(os.environ["HERMES_HOME"]).resolve()
    return str(real) in non_workspaces() or real.is_relative_to(hermes)


def junk_cwd(path: str) -> bool:
    real = os.path.realpath(path)
    return real in non_workspaces() or real == os.path.realpath(os.environ["HERMES_HOME"])


@each_case
def test_the_columns_alone_answer_as_the_host_does(case: dict[str, Any]) -> None:
    ref = Attribution(projects_of(case)).resolve(case["cwd"], case["root"])
    assert written(ref) == case["expected"]


@each_case
def test_the_disk_answers_as_the_sidebar_does(
    case: dict[str, Any], fx: str, live: Callable[[dict[str, Any]], Attribution]
) -> None:
    ref = live(case).resolve(column(case["cwd"], fx), column(case["root"], fx))
    assert written(ref).replace(fx, "$FX") == case["expected_live"]
