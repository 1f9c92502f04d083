"""Repository roots are found by looking, and are those that the hosts' own git probe finds."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from project_history_recall import repos
from project_history_recall.attribution import Roots
from project_history_recall.repos import TTL, RepoRoots

from tests.attribution_oracle import git, make_repo

Probe = Callable[..., dict[str, Any]]
NOBODY = 65534
IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0


# --- one of each ------------------------------------------------------------------------------------

# name: (where, the main checkout, this checkout), each below the tree; "" where there is no repository
PLACES: dict[str, tuple[str, str, str]] = {
    "a repository": ("plain", "plain", "plain"),
    "deep in a repository": ("plain/a/b/c/d/e/f", "plain", "plain"),
    "a folder outside of all": ("", "", ""),
    "a nested repository": ("plain/vendor/inner", "plain/vendor/inner", "plain/vendor/inner"),
    "below a nested repository": ("plain/vendor/inner/lib", "plain/vendor/inner", "plain/vendor/inner"),
    "beside a nested repository": ("plain/vendor", "plain", "plain"),
    "a worktree outside": ("plain-feature", "plain", "plain-feature"),
    "below a worktree outside": ("plain-feature/src/x", "plain", "plain-feature"),
    "a worktree inside": ("plain/.worktrees/t_ab12", "plain", "plain/.worktrees/t_ab12"),
    "a worktree of a nested repository": ("inner-feature", "plain/vendor/inner", "inner-feature"),
    "a repository in a worktree": ("plain-feature/own", "plain-feature/own", "plain-feature/own"),
    "a worktree whose repository was deleted": ("orphan", "", ""),
    "a worktree whose repository was deleted, in another repository": ("plain/orphan", "", ""),
    "a worktree that was pruned": ("pruned", "", ""),
    "a worktree that was moved by hand": ("moved", "plain", "moved"),
    "a bare repository": ("store.git", "", ""),
    "inside a bare repository": ("store.git/refs/heads", "", ""),
    "a worktree of a bare repository": ("from-bare", "from-bare", "from-bare"),
    "a hidden bare repository's parent": ("hidden", "", ""),
    "a worktree of a hidden bare repository": ("hidden/main", "hidden/main", "hidden/main"),
    "a bare repository named .git": ("dotbare", "", ""),
    "a worktree of a bare repository named .git": ("dotbare/main", "dotbare", "dotbare/main"),
    "a repository that says it is bare": ("says-bare", "", ""),
    "a repository that says it is bare, in other words": ("says-yes", "", ""),
    "a repository that says it is bare without a value": ("says-so", "", ""),
    "a repository in which another section says bare": ("not-bare", "not-bare", "not-bare"),
    "a repository in which a comment says bare": ("not-bare-2", "not-bare-2", "not-bare-2"),
    "a repository with a work tree elsewhere": ("remote-work", "remote-work", "work"),
    "a repository with a work tree that is gone": ("lost-work", "", ""),
    "a repository with a setting for each worktree": ("sparse", "sparse", "sparse"),
    "a worktree of one with a setting for each": ("sparse-feature", "sparse", "sparse-feature"),
    "a bare one with a setting for each worktree": ("perworktree", "", ""),
    "a worktree of a bare one with a setting for each": ("perworktree/main", "perworktree", "perworktree/main"),
    "a submodule": ("super/libs/sub", "super/libs/sub", "super/libs/sub"),
    "below a submodule": ("super/libs/sub/src", "super/libs/sub", "super/libs/sub"),
    "beside a submodule": ("super/libs", "super", "super"),
    "a worktree of a submodule": ("sub-feature", "sub-feature", "sub-feature"),
    "a submodule in a submodule": ("super/libs/sub/deep", "super/libs/sub/deep", "super/libs/sub/deep"),
    "inside .git": ("plain/.git", "", ""),
    "deep inside .git": ("plain/.git/refs/heads", "", ""),
    "inside a worktree's part of .git": ("plain/.git/worktrees/plain-feature", "", ""),
    "inside a submodule's part of .git": ("super/.git/modules/libs/sub", "super/libs/sub", "super/libs/sub"),
    "a repository with its .git elsewhere": ("split", "split", "split"),
    "the .git that lies elsewhere": ("split.store", "", ""),
    "a .git that is a symlink": ("linked-git", "linked-git", "linked-git"),
    "a .git that is a symlink to another repository's": ("linked-git-2", "plain", "linked-git-2"),
    "a .git file that points nowhere": ("plain/broken", "", ""),
    "a .git file of other text": ("plain/garbage", "", ""),
    "a .git file without the space": ("plain/spaceless", "", ""),
    "an empty .git file": ("plain/blank", "", ""),
    "an empty .git folder in a repository": ("plain/empty", "plain", "plain"),
    "an empty .git folder": ("empty", "", ""),
    "a half-made .git folder in a repository": ("plain/half", "plain", "plain"),
    "a .git that is a broken symlink": ("plain/dangling", "plain", "plain"),
    "a .git without objects": ("objectless", "", ""),
    "a HEAD that is a symlink": ("old-head", "old-head", "old-head"),
    "a HEAD of other text": ("bad-head", "", ""),
    "a HEAD with spaces before its branch": ("spaced-head", "spaced-head", "spaced-head"),
    "a detached HEAD": ("detached", "detached", "detached"),
    "a branch without a commit": ("unborn", "unborn", "unborn"),
    "a branch whose name has slashes": ("branchy", "branchy", "branchy"),
    "a SHA-256 repository": ("sha256", "sha256", "sha256"),
    "a detached SHA-256 repository": ("sha256-detached", "sha256-detached", "sha256-detached"),
    "a symlink to a repository": ("link", "plain", "plain"),
    "below a symlink to a repository": ("link/a/b", "plain", "plain"),
    "a symlink into a repository": ("linkin", "plain", "plain"),
    "a symlink in a repository to a plain folder": ("plain/linkout", "", ""),
    "a symlink to a worktree": ("link-feature/src", "plain", "plain-feature"),
    "a symlink to nothing": ("linkdead", "", ""),
    "a symlink to itself": ("linkself", "", ""),
    "a deleted folder": ("gone", "", ""),
    "a deleted folder of a repository": ("plain/gone", "", ""),
    "a file": ("plain/README", "", ""),
    "below a file": ("plain/README/x", "", ""),
    "dot-dot": ("plain/../plain/a", "plain", "plain"),
    "dot-dot after a symlink": ("linkin/../c", "plain", "plain"),
    "slashes at the end": ("plain//a///", "plain", "plain"),
    "a name with spaces": ("with some spaces", "with some spaces", "with some spaces"),
    "a name that ends with a space": ("ends ", "ends ", "ends"),
    "below a name that ends with a space": ("ends /src", "ends ", "ends"),
    "a worktree of a name that ends with a space": ("ends-feature", "ends ", "ends-feature"),
    "a worktree whose name ends with a space": ("plain-space ", "plain", "plain-space"),
    "a submodule whose name ends with a space": ("super/space ", "super/space", "super/space"),
    "a Chinese name": ("回归 测试/源码", "回归 测试", "回归 测试"),
    "a worktree with a Chinese name": ("回归-分支", "回归 测试", "回归-分支"),
    "an emoji name": ("🚀", "🚀", "🚀"),
    "a name with a newline": ("two\nlines/src", "two\nlines", "two\nlines"),
    "a worktree of a name with a newline": ("lines-feature", "two\nlines", "lines-feature"),
    "a name with a quote": ('say "hi"', 'say "hi"', 'say "hi"'),
    "a name with a backslash": ("back\\slash", "back\\slash", "back\\slash"),
    "a name that starts with a dash": ("-C", "-C", "-C"),
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every place of `PLACES`, made by git as far as git makes such a thing."""
    top = tmp_path_factory.mktemp("repos").resolve() / "tree"
    top.mkdir()
    plain = make_repo(top / "plain")
    for folder in ("a/b/c/d/e/f", "half/.git", "empty/.git", "dangling"):
        (plain / folder).mkdir(parents=True)
    (plain / "README").touch()
    (plain / "half/.git/HEAD").write_text("ref: refs/heads/main\n")
    (plain / "dangling/.git").symlink_to(top / "nowhere")
    (top / "empty/.git").mkdir(parents=True)
    (make_repo(plain / "vendor/inner") / "lib").mkdir()

    def worktree(repo: str, at: str) -> None:
        git(top / repo, "worktree", "add", "-q", "--detach", str(top / at))

    for at in ("plain-feature", "plain/.worktrees/t_ab12", "pruned", "to-move", "plain-space "):
        worktree("plain", at)
    worktree("plain/vendor/inner", "inner-feature")
    (top / "plain-feature/src/x").mkdir(parents=True)
    make_repo(top / "plain-feature/own")
    shutil.rmtree(plain / ".git/worktrees/pruned")
    (top / "to-move").rename(top / "moved")
    make_repo(top / "doomed")
    worktree("doomed", "orphan")
    worktree("doomed", "plain/orphan")
    shutil.rmtree(top / "doomed")

    git(top, "clone", "-q", "--bare", str(plain), "store.git")
    worktree("store.git", "from-bare")
    git(top, "clone", "-q", "--bare", str(plain), "hidden/.bare")
    (top / "hidden/.git").write_text("gitdir: ./.bare\n")
    worktree("hidden", "hidden/main")
    git(top, "clone", "-q", "--bare", str(plain), "dotbare/.git")
    worktree("dotbare", "dotbare/main")
    for name, setting in (
        ("says-bare", "[core]\n\tbare = true\n"),
        ("says-yes", "[CORE] BARE = Yes ; it is\n"),
        ("says-so", "[core]\n\tbare\n"),
        ("not-bare", '[core "x"]\n\tbare = true\n[remote "bare"]\n\tbare = true\n'),
        ("not-bare-2", "[core]\n\t; bare = true\n\t# bare = true\n"),
        ("remote-work", "[core]\n\tworktree = ../../work\n"),
        ("lost-work", "[core]\n\tworktree = ../../no-work\n"),
    ):
        with (make_repo(top / name) / ".git/config").open("a") as config:
            config.write(setting)
    (top / "work").mkdir()
    make_repo(top / "sparse")
    worktree("sparse", "sparse-feature")
    git(top / "sparse", "sparse-checkout", "set", "src")
    git(top, "clone", "-q", "--bare", str(plain), "perworktree/.git")
    git(top / "perworktree", "config", "extensions.worktreeConfig", "true")
    worktree("perworktree", "perworktree/main")
    git(top / "perworktree", "config", "--worktree", "core.bare", "true")
    git(top / "perworktree", "config", "--unset", "core.bare")

    make_repo(top / "module")
    make_repo(top / "super")
    for at in ("libs/sub", "space "):
        git(top / "super", "submodule", "--quiet", "add", str(top / "module"), at)
    git(top / "super/libs/sub", "submodule", "--quiet", "add", str(plain), "deep")
    (top / "super/libs/sub/src").mkdir()
    worktree("super/libs/sub", "sub-feature")

    git(top, "init", "-q", "--separate-git-dir", str(top / "split.store"), "split")
    (top / "linked-git").mkdir()
    (make_repo(top / "lent") / ".git").rename(top / "lent.store")
    (top / "linked-git/.git").symlink_to(top / "lent.store")
    (top / "linked-git-2").mkdir()
    (top / "linked-git-2/.git").symlink_to(plain / ".git")
    for name, text in (
        ("broken", "gitdir: ../nowhere\n"), ("garbage", "hello\n"), ("blank", ""),
        ("spaceless", f"gitdir:{plain}/.git\n"),
    ):  # fmt: skip
        (plain / name).mkdir()
        (plain / name / ".git").write_text(text)
    shutil.rmtree(make_repo(top / "objectless") / ".git/objects")
    head = make_repo(top / "old-head") / ".git/HEAD"
    head.unlink()
    head.symlink_to("refs/heads/main")
    (make_repo(top / "bad-head") / ".git/HEAD").write_text("hello\n")
    (make_repo(top / "spaced-head") / ".git/HEAD").write_text("ref:   refs/heads/main\n")
    git(make_repo(top / "detached"), "checkout", "-q", "--detach")
    git(top, "init", "-q", "unborn")
    git(make_repo(top / "branchy"), "checkout", "-q", "-b", "feature/x/y")
    for name in ("sha256", "sha256-detached"):
        git(top, "init", "-q", "--object-format=sha256", name)
    git(top / "sha256-detached", "commit", "-q", "--allow-empty", "-m", "start")
    git(top / "sha256-detached", "checkout", "-q", "--detach")
    for link, target in (
        ("link", plain), ("linkin", plain / "a/b/c"), ("plain/linkout", top / "work"),
        ("link-feature", top / "plain-feature"), ("linkdead", top / "nowhere"), ("linkself", top / "linkself"),
    ):  # fmt: skip
        (top / link).symlink_to(target)
    for name in ("with some spaces", "ends ", "回归 测试", "🚀", "two\nlines", 'say "hi"', "back\\slash", "-C"):
        make_repo(top / name)
    for folder in ("ends /src", "回归 测试/源码", "two\nlines/src"):
        (top / folder).mkdir()
    for repo, at in (("ends ", "ends-feature"), ("回归 测试", "回归-分支"), ("two\nlines", "lines-feature")):
        worktree(repo, at)
    return top


@pytest.fixture(autouse=True)
def bare_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home without settings, and none of this machine's."""
    for name in [name for name in os.environ if name.startswith(("GIT_", "XDG_", "SUDO_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.parametrize("name", PLACES)
def test_the_roots_of(name: str, tree: Path) -> None:
    where, common, worktree = PLACES[name]
    expected = Roots(f"{tree}/{common}", f"{tree}/{worktree}") if worktree else None
    assert RepoRoots()(f"{tree}/{where}") == expected


# --- as the hosts' own probe ------------------------------------------------------------------------


def as_the_probe_says(answer: dict[str, str] | None) -> Roots | None:
    return Roots(answer["repo_root"], answer["worktree_root"]) if answer else None


def ask(probe: Probe, scratch: Path, questions: list[tuple[dict[str, str], list[str]]]) -> list[list[Roots | None]]:
    """What a host finds for folders, in each of several environments."""
    file, home = scratch / "questions.json", scratch / "home"
    home.mkdir(exist_ok=True)
    file.write_text(json.dumps([{"env": env, "cwds": cwds} for env, cwds in questions]))
    return [[as_the_probe_says(a) for a in answers] for answers in probe("roots", home, file)["answers"]]


def test_a_host_finds_the_same(probe: Probe, tree: Path, tmp_path: Path) -> None:
    cwds = [f"{tree}/{where}" for where, _, _ in PLACES.values()]
    (answers,) = ask(probe, tmp_path, [({}, cwds)])
    find = RepoRoots()
    assert dict(zip(PLACES, map(find, cwds), strict=True)) == dict(zip(PLACES, answers, strict=True))


def grow(top: Path, dice: random.Random, count: int) -> None:
    """Plant `count` folders of all kinds into each other, as they come."""
    grounds, lenders = [top], []
    for n in range(count):
        at = dice.choice(grounds) / f"{dice.choice(('x', 'y z', 'ö', '项目'))}{n}"
        kind = dice.choice((
            "plain", "plain", "repository", "repository", "unborn", "bare", "worktree", "worktree", "submodule",
            "separate", "symlink", "broken", "empty", "says bare", "detached", "deleted",
        ))  # fmt: skip
        at.mkdir()
        if kind in ("repository", "says bare", "detached", "deleted"):
            make_repo(at)
            lenders.append(at)
        if kind == "unborn":
            git(at, "init", "-q")
        elif kind == "bare":
            git(at, "init", "-q", "--bare")
        elif kind == "worktree" and lenders:
            git(dice.choice(lenders), "worktree", "add", "-q", "--detach", str(at))
        elif kind == "submodule" and lenders:
            make_repo(at)
            git(at, "submodule", "--quiet", "add", str(dice.choice(lenders)), "sub")
            grounds.append(at / "sub")
            lenders.append(at / "sub")
        elif kind == "separate":
            git(at, "init", "-q", "--separate-git-dir", str(at / "store"))
        elif kind == "symlink":
            (at / "link").symlink_to(dice.choice(grounds), target_is_directory=True)
        elif kind == "broken":
            (at / ".git").write_text("gitdir: nowhere\n")
        elif kind == "empty":
            (at / ".git").mkdir()
        elif kind == "says bare":
            git(at, "config", "core.bare", "true")
        elif kind == "detached":
            git(at, "checkout", "-q", "--detach")
        elif kind == "deleted":
            shutil.rmtree(at)
            lenders.remove(at)
            continue
        grounds.append(at)


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Every folder of a generated tree, those inside `.git` and behind symlinks too."""
    top = tmp_path_factory.mktemp("generated").resolve() / "tree"
    top.mkdir()
    grow(top, random.Random(2), 60)
    found = []
    for folder, folders, _ in os.walk(top):
        if Path(folder).name in ("objects", "hooks", "logs", "info"):
            folders.clear()  # all alike
        found += [folder, *(str(Path(folder) / name / "below") for name in folders if name == "link")]
    return found


def test_a_host_finds_the_same_in_a_generated_tree(probe: Probe, generated: list[str], tmp_path: Path) -> None:
    (answers,) = ask(probe, tmp_path, [({}, generated)])
    find = RepoRoots()
    assert {cwd: find(cwd) for cwd in generated} == dict(zip(generated, answers, strict=True))
    assert len({a.common for a in answers if a}) > 15


# --- whose it is ------------------------------------------------------------------------------------

# What a user's settings say of somebody else's repository, and whether git then reads it.
SAFE = {
    "nothing": ("", False),
    "another place": ("[safe]\n\tdirectory = /somewhere\n", False),
    "this place": ("[safe]\n\tdirectory = {place}\n", True),
    "this place, in quotes": ('[safe]\n\tdirectory = "{place}" ; mine\n', True),
    "this place, among others": ("[safe]\n\tdirectory = /a\n\tdirectory = {place}\n\tdirectory = /b\n", True),
    "this place, on one line": ("[core]\n\tpager = x\n[Safe] Directory = {place}\n[user]\n\tname = t\n", True),
    "this place, over two lines": ("[safe]\n\tdirectory = \\\n{place}\n", True),
    "this place, among other matters": ("[safe]\n\tbareRepository = all\n\tdirectory = {place}\n", True),
    "this place, in a comment": ("[safe]\n\t; directory = {place}\n", False),
    "this place, in a section of another name": ('[safe "x"]\n\tdirectory = {place}\n', False),
    "every place": ("[safe]\n\tdirectory = *\n", True),
    "every place, taken back": ("[safe]\n\tdirectory = *\n\tdirectory =\n", False),
    "every place, taken back, then this one": (
        "[safe]\n\tdirectory = *\n\tdirectory =\n\tdirectory = {place}\n", True,
    ),
    "below the home": ("[safe]\n\tdirectory = ~/theirs\n", True),
}  # fmt: skip

only_root = pytest.mark.skipif(not IS_ROOT, reason="only root gives a folder to another user")


def give_away(path: Path) -> None:
    for folder, _, files in os.walk(path):
        for name in (folder, *(os.path.join(folder, f) for f in files)):
            os.lchown(name, NOBODY, NOBODY)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home for each of `SAFE`, with somebody else's repository in it."""
    top = tmp_path_factory.mktemp("foreign").resolve()
    for n, (settings, _) in enumerate(SAFE.values()):
        theirs = make_repo(top / str(n) / "theirs")
        (theirs / "src").mkdir()
        give_away(theirs)
        (top / str(n) / ".gitconfig").write_text(settings.format(place=theirs))
    return top


@only_root
@pytest.mark.parametrize("said", SAFE)
def test_somebody_else_s_repository_counts_where_the_settings_name(
    said: str, foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = foreign / str([*SAFE].index(said))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    root = str(home / "theirs")
    assert RepoRoots()(f"{root}/src") == (Roots(root, root) if SAFE[said][1] else None)


@only_root
def test_a_host_trusts_the_same_repositories(
    probe: Probe, foreign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings anywhere git reads them; and only one part of the repository somebody else's."""
    parts = tmp_path / "parts"
    for name, given in (("dotgit", ".git"), ("folder", "."), ("unused", "src")):
        (make_repo(parts / name) / "src").mkdir()
        os.chown(parts / name / given, NOBODY, NOBODY)
    git(parts / "unused", "worktree", "add", "-q", "--detach", str(parts / "branch"))
    os.chown(parts / "branch/.git", NOBODY, NOBODY)
    git(parts, "init", "-q", "--bare", "store.git")
    give_away(parts / "store.git")
    (parts / "home/.config/git").mkdir(parents=True)
    (parts / "home/.config/git/config").write_text("[safe]\n\tdirectory = *\n")
    (parts / "settings").write_text("[safe]\n\tdirectory = *\n")
    (parts / "revoked").write_text("[safe]\n\tdirectory =\n")
    cwds = [*(str(parts / x) for x in ("dotgit", "folder", "unused", "branch", "store.git", "dotgit/src"))]
    cwds += [str(foreign / str(n) / "theirs/src") for n in range(len(SAFE))]
    nowhere = {"GIT_CONFIG_GLOBAL": str(parts / "none"), "GIT_CONFIG_SYSTEM": str(parts / "none")}
    environments = [
        *({"HOME": str(foreign / str(n))} for n in range(len(SAFE))),
        {"HOME": str(parts)},
        {"HOME": str(parts / "home")},
        {"HOME": str(parts), "XDG_CONFIG_HOME": str(parts / "home/.config")},
        {"XDG_CONFIG_HOME": str(parts), "SUDO_UID": str(NOBODY)},
        {"SUDO_UID": "1234"},
        {**nowhere, "GIT_CONFIG_GLOBAL": str(parts / "settings")},
        {**nowhere, "GIT_CONFIG_SYSTEM": str(parts / "settings")},
        {"GIT_CONFIG_SYSTEM": str(parts / "settings"), "GIT_CONFIG_GLOBAL": str(parts / "revoked")},
        nowhere,
    ]
    said = ask(probe, tmp_path, [({"HOME": str(tmp_path)} | env, cwds) for env in environments])
    for env, answers in zip(environments, said, strict=True):
        with monkeypatch.context() as here:
            for name, value in env.items():
                here.setenv(name, value)
            found = [*map(RepoRoots(), cwds)]
        assert dict(zip(cwds, found, strict=True)) == dict(zip(cwds, answers, strict=True)), env


@pytest.mark.skipif(IS_ROOT, reason="root may enter every folder")
def test_a_folder_that_cannot_be_entered_has_no_root(tmp_path: Path) -> None:
    closed = make_repo(tmp_path / "repo") / "closed"
    (closed / "below").mkdir(parents=True)
    closed.chmod(0o600)
    try:
        find = RepoRoots()
        assert (find(str(closed)), find(str(closed / "below"))) == (None, None)
        assert find(str(tmp_path / "repo")) is not None
    finally:
        closed.chmod(0o700)


@pytest.mark.skipif(IS_ROOT, reason="root may read every file")
@pytest.mark.parametrize(("file", "found"), [(".git/HEAD", "outer"), (".git/config", ""), (".git/objects", "outer")])
def test_what_cannot_be_read_stops_git_or_is_passed_by(file: str, found: str, tmp_path: Path) -> None:
    outer = make_repo(tmp_path / "outer")
    inner = make_repo(outer / "inner")
    mode = (inner / file).stat().st_mode
    (inner / file).chmod(0)
    try:
        top = subprocess.run(
            ["git", "rev-parse", "--show-toplevel"], cwd=inner, capture_output=True, text=True, check=False
        ).stdout.strip()
        assert Path(top).name == found
        roots = RepoRoots()(str(inner))
        assert (roots.worktree if roots else "") == top
    finally:
        (inner / file).chmod(mode)


@pytest.mark.parametrize("vanishing", [".git/config", ".git/HEAD"])
def test_a_repository_that_vanishes_while_it_is_looked_at_has_no_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vanishing: str
) -> None:
    root = make_repo(tmp_path / "repo")
    read = repos._text

    def late(path: str) -> str:
        if path == str(root.resolve() / vanishing):
            shutil.rmtree(root / ".git")
        return read(path)

    monkeypatch.setattr(repos, "_text", late)
    assert RepoRoots()(str(root)) is None


def test_a_reftable_repository_has_a_root(tmp_path: Path) -> None:
    made = subprocess.run(
        ["git", "init", "-q", "--ref-format=reftable", str(tmp_path / "new")], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("this git makes no reftable repositories")
    root = str((tmp_path / "new").resolve())
    assert RepoRoots()(root) == Roots(root, root)


def test_a_mount_point_is_not_crossed(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, mounted = os.stat, f"{tree}/plain/a/b"

    def stat(path: str, **how: Any) -> Any:
        found = real(path, **how)
        return SimpleNamespace(st_dev=int(str(path).startswith(mounted)), st_mode=found.st_mode)

    find = RepoRoots()
    with monkeypatch.context() as here:
        here.setattr(os, "stat", stat)
        found = find(f"{mounted}/c"), find(f"{tree}/plain/a")
    assert found == (None, Roots(f"{tree}/plain", f"{tree}/plain"))


# --- what it costs ----------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that stands until it is set."""
    clock = SimpleNamespace(now=1_000.0)
    monkeypatch.setattr(repos, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def test_no_process_is_started(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    starters = ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system", "popen", "execv", "execve")
    for name in starters:
        monkeypatch.setattr(os, name, started, raising=False)
    monkeypatch.setattr(subprocess, "Popen", started)
    find = RepoRoots()
    assert sum(find(f"{tree}/{where}") is not None for where, _, _ in PLACES.values()) > 40


def test_a_new_repository_shows_after_the_time_an_answer_is_kept(tmp_path: Path, clock: SimpleNamespace) -> None:
    find, root = RepoRoots(), str(tmp_path.resolve())
    assert find(root) is None
    make_repo(tmp_path)
    clock.now += TTL - 0.1
    assert find(root) is None
    clock.now += 0.2
    assert find(root) == Roots(root, root)


def test_a_deleted_repository_is_gone_after_the_same_time(tmp_path: Path, clock: SimpleNamespace) -> None:
    root = str(make_repo(tmp_path / "repo").resolve())
    find = RepoRoots()
    assert find(root) == Roots(root, root)
    shutil.rmtree(root)
    clock.now += TTL - 0.1
    assert find(root) == Roots(root, root)
    clock.now += 0.2
    assert find(root) is None


def test_an_answer_is_kept_for_the_spelling_that_asked(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr(repos, "_look", looked.append)
    find = RepoRoots()
    for _ in range(100):
        find(f"{tree}/plain")
        find(f"{tree}/plain/")
    assert looked == [f"{tree}/plain", f"{tree}/plain/"]


def test_memory_is_bounded(tmp_path: Path) -> None:
    find = RepoRoots()
    for n in range(45_000):
        find(f"{tmp_path}/{n}")
    assert len(find._seen) <= 20_001


def test_two_homes_do_not_share_answers(tmp_path: Path) -> None:
    one, other = RepoRoots(), RepoRoots()
    assert one(str(tmp_path)) is None
    make_repo(tmp_path)
    assert other(str(tmp_path)) is not None


def test_settings_behind_a_thousand_branches_are_read(tmp_path: Path) -> None:
    with (make_repo(tmp_path / "repo") / ".git/config").open("a") as config:
        config.writelines(f'[branch "b{n}"]\n\tremote = origin\n\tmerge = refs/heads/b{n}\n' for n in range(1_000))
        config.write("[core]\n\tbare = true\n")
    assert RepoRoots()(str(tmp_path / "repo")) is None
