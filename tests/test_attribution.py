"""Whose a session row is: every recorded answer of the real hosts, and what must hold for any row."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from project_history_recall import host as door
from project_history_recall.attribution import Attribution, Project, ProjectRef, Roots, path_key, segments
from project_history_recall.repos import RepoRoots

from demo import hosts
from tests import attribution_oracle as oracle

RECORDED: list[dict[str, Any]] = json.loads(oracle.CASES_FILE.read_text())["cases"]
each_case = pytest.mark.parametrize("case", RECORDED, ids=[case["name"] for case in RECORDED])


def projects_of(case: dict[str, Any], fx: str = "$FX") -> list[Project]:
    """The case's projects, oldest first; of one second, in the order they were stored."""
    listed = case["projects"] or [oracle.stored(p) for p in oracle.many_projects(case.get("many", 0))]
    ages = {x["id"]: x.get("created", n) for n, x in enumerate(listed)}
    return [
        project(x["id"], *(folder.replace("$FX", fx) for folder in x["folders"]), archived="archived" in x)
        for x in sorted(listed, key=lambda x: ages[x["id"]])
    ]


def project(id: str, *folders: str, archived: bool = False) -> Project:
    return Project(id, id, id, archived, folders, folders[0] if folders else None)


def written(ref: ProjectRef) -> str:
    """An answer as the case file writes it."""
    return "home" if ref.kind == "home" else f"{ref.kind}:{ref.id}"


# --- as the hosts answer ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `$FX` stands for, with its repositories."""
    folder = tmp_path_factory.mktemp("attribution").resolve() / "fx"
    oracle.build_fixture(folder)
    return folder


def on_disk(case: dict[str, Any], fx: Path) -> Attribution:
    """The case's attribution as a search makes it, over the fixture."""
    here = door.current(home=fx / "hermes")
    return Attribution(
        projects_of(case, str(fx)),
        RepoRoots(),
        junk_root=here.junk_root,
        junk_cwd=here.junk_cwd,
        exists=os.path.isdir,
    )


def columns(case: dict[str, Any], fx: Path) -> tuple[str | None, str | None]:
    cwd, root = (text and text.replace("$FX", str(fx)) for text in (case["cwd"], case["root"]))
    return cwd, root


@each_case
def test_the_columns_alone_answer_as_the_host_does(case: dict[str, Any]) -> None:
    assert written(Attribution(projects_of(case)).resolve(case["cwd"], case["root"])) == case["expected"]


@each_case
def test_the_disk_answers_as_the_sidebar_does(case: dict[str, Any], fx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(fx / case["home"]))
    ref = on_disk(case, fx).resolve(*columns(case, fx))
    assert written(ref).replace(str(fx), "$FX") == case["expected_live"]


@each_case
def test_because_is_the_folder_that_decided(case: dict[str, Any], fx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(fx / case["home"]))
    attribution, (cwd, root) = on_disk(case, fx), columns(case, fx)
    ref = attribution.resolve(cwd, root)
    if ref.kind == "explicit":
        (owner,) = (p for p in projects_of(case, str(fx)) if p.id == ref.id)
        assert ref.because in owner.folders
        roots = RepoRoots()((cwd or "").strip())
        above = [path_key((path or "").strip()) for path in (cwd, roots.common if roots else root)]
        assert any(f"{path}/".startswith(f"{path_key(ref.because)}/") for path in above)
    else:
        assert ref.because == ref.id


def test_each_host_still_answers_as_it_did(host: hosts.Host, fx: Path) -> None:
    """Drift: when this fails for a new host, look at each change before recording it anew."""
    assert oracle.ask(host, fx) == {case["name"]: case["hosts"][host.name] for case in RECORDED}


def test_the_recorded_cases_are_the_runner_s() -> None:
    assert [case["name"] for case in RECORDED] == [case.name for case in oracle.CASES]
    assert max(Counter(case.name for case in oracle.CASES).values()) == 1
    for case, kept in zip(oracle.CASES, RECORDED, strict=True):
        asked = oracle.question(case) | ({"projects": []} if case.many else {})
        assert {key: kept[key] for key in asked} == asked
        assert kept.get("many", 0) == case.many


# --- what must hold for any row ---------------------------------------------------------------------

NAMES = ("a", "b", "c", "a-b", "a-wt-b", "A", "e\u0301", "\u00e9")


def any_path(dice: random.Random) -> str:
    names = "/".join(dice.choice(NAMES) for _ in range(dice.randint(1, 5)))
    return dice.choice(("/", "/", "/", "//", "c:/", "C:\\")) + names


def any_projects(dice: random.Random) -> list[Project]:
    return [
        project(f"p_{n}", *(any_path(dice) for _ in range(dice.randint(0, 3))), archived=dice.random() < 0.2)
        for n in range(dice.randint(0, 12))
    ]


def any_row(dice: random.Random) -> tuple[str | None, str | None]:
    return dice.choice((None, any_path(dice), any_path(dice))), dice.choice((None, any_path(dice)))


def repositories(cwd: str) -> Roots | None:
    """A disk on which every folder `b` that is not deeper than three names is a repository."""
    names = segments(cwd)
    if "b" not in names[:3]:
        return None
    root = "/" + "/".join(names[: names.index("b") + 1])
    return Roots(root, root)


@pytest.mark.parametrize("find", [None, repositories], ids=["columns alone", "with repositories"])
@pytest.mark.parametrize("seed", range(20))
class TestAnyRow:
    def test_is_decided_by_its_cwd_and_root_only(self, seed: int, find: Any) -> None:
        dice = random.Random(seed)
        projects = any_projects(dice)
        rows = [any_row(dice) for _ in range(60)]
        shared = Attribution(projects, find)
        first = [shared.resolve(*row) for row in rows]
        assert [shared.resolve(*row) for row in reversed(rows)] == first[::-1]
        assert [Attribution(projects, find).resolve(*row) for row in rows] == first

    def test_belongs_to_the_deepest_folder_above_it(self, seed: int, find: Any) -> None:
        dice = random.Random(seed)
        projects = any_projects(dice)
        attribution = Attribution(projects, find)
        folders = [(path_key(f), p.id) for p in projects if not p.archived for f in p.folders]
        for _ in range(60):
            cwd, column = any_row(dice)
            live = find(cwd) if find and cwd else None
            best = ("", "")
            for path in (cwd, live.common if live else column):
                for folder, owner in folders:
                    inside = f"{path_key(path or '')}/".startswith(f"{folder}/")
                    if inside and len(segments(folder)) > len(segments(best[0])):
                        best = (folder, owner)
            ref = attribution.resolve(cwd, column)
            assert (ref.id if ref.kind == "explicit" else "") == best[1]

    def test_asks_the_order_of_projects_only_for_a_shared_folder(self, seed: int, find: Any) -> None:
        dice = random.Random(seed)
        projects = any_projects(dice)
        rows = [any_row(dice) for _ in range(60)]
        owners = Counter(key for p in projects if not p.archived for key in {path_key(folder) for folder in p.folders})
        shuffled = dice.sample(projects, len(projects))
        one, other = Attribution(projects, find), Attribution(shuffled, find)
        for row in rows:
            ref = one.resolve(*row)
            if owners[path_key(ref.because)] < 2:
                assert other.resolve(*row) == ref

    def test_has_one_key_in_every_spelling(self, seed: int, find: Any) -> None:
        dice = random.Random(seed)
        attribution = Attribution(any_projects(dice), find)
        for _ in range(60):
            cwd, root = any_row(dice)
            spelled = [path and path.replace("\\", "/").replace("//", "/", 1) + "/" for path in (cwd, root)]
            if (cwd or "").startswith("//") or (root or "").startswith("//"):
                continue  # one slash less is another place
            assert attribution.resolve(*spelled).key == attribution.resolve(cwd, root).key


def test_two_spellings_of_one_folder_are_one_automatic_project() -> None:
    attribution = Attribution([])
    for one, other in (
        ("/w/cafe\u0301", "/w/caf\u00e9/"),
        ("C:\\W\\Alpha", "c:/w/alpha"),
        ("/w//a", "/w/a"),
    ):
        assert attribution.resolve(one, None).key == attribution.resolve(other, None).key
    assert attribution.resolve("/w/A", None).key != attribution.resolve("/w/a", None).key


def test_every_automatic_project_is_named_after_its_folder() -> None:
    attribution = Attribution([])
    assert attribution.resolve("/w/回归 测试/", None).name == "回归 测试"
    assert attribution.resolve("C:\\w\\Alpha-wt-fix", None).name == "Alpha"


# --- thousands --------------------------------------------------------------------------------------


class Counting(dict[str, Any]):
    """A dict that counts how often it is asked."""

    asked = 0

    def get(self, key: str, default: Any = None) -> Any:
        self.asked += 1
        return super().get(key, default)


def test_a_row_costs_one_look_up_per_name_however_many_projects() -> None:
    attribution = Attribution([project(p.id, *p.folders) for p in oracle.many_projects(4_000)])
    attribution._folders = counting = Counting(attribution._folders)
    cwd, root = "/nx/many/g00/repo0008/pkg/src", "/nx/elsewhere/x"
    assert attribution.resolve(cwd, root).id == "p_00000009"
    assert counting.asked <= len(segments(cwd)) + len(segments(root))


def test_rows_of_one_folder_are_decided_once() -> None:
    asked: list[str] = []

    def find(cwd: str) -> None:
        asked.append(cwd)

    attribution = Attribution([project("p_a", "/w/alpha")], find)
    attribution._folders = counting = Counting(attribution._folders)
    for _ in range(1_000):
        attribution.resolve("/w/plain", None)
        attribution.resolve(" /w/alpha ", "")
    assert sorted(asked) == ["/w/alpha", "/w/plain"]
    assert counting.asked == 2 + 1


def test_a_deleted_worktree_is_looked_for_four_times_at_most() -> None:
    asked: list[str] = []

    def find(cwd: str) -> None:
        asked.append(cwd)

    Attribution([], find).resolve("/w/a-b-c/d-e-f-g-h/i-j", None)
    assert asked[1:] == ["/w/a-b-c/d-e-f-g-h/i", "/w/a-b-c/d-e-f-g", "/w/a-b-c/d-e-f", "/w/a-b-c/d-e"]
