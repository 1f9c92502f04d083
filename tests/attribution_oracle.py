"""Situations of a session row, and what the real hosts say about each. The hosts are the oracle.

    python3 tests/attribution_oracle.py     # asks them all, rewrites tests/data/attribution_cases.json

Each case goes through the `build_tree` that a host's sidebar is made with, in two ways:
`pure` sees the row's columns alone; `live` also has the host's own git probe, its rules
for folders that are nobody's workspace, and a look at the disk. `expected` and
`expected_live` are the newest host's answers: "explicit:<id>", "auto:<path>" or "home".

`$FX` stands for a folder that `build_fixture` fills with real repositories. A case
without it names paths that exist nowhere. `home` is the user's home, `$FX/hermes` the
HERMES_HOME.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unicodedata import normalize

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))  # at the end: the root's own modules must hide nobody's

from demo import hosts  # noqa: E402

CASES_FILE = ROOT / "tests" / "data" / "attribution_cases.json"
PROBE = ROOT / "tests" / "probes" / "attribution.py"


@dataclass(frozen=True, slots=True)
class P:
    """A project as projects.db stores it; without `created` the n-th of its case is of second n."""

    id: str
    folders: tuple[str, ...]
    archived: bool = False
    created: int | None = None


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    cwd: str | None
    root: str | None
    projects: tuple[P, ...] = ()
    home: str = "people/me"
    many: int = 0


def p(id: str, *folders: str, archived: bool = False, created: int | None = None) -> P:
    return P(id, folders, archived, created)


def row(name: str, cwd: str | None, root: str | None, *projects: P, home: str = "people/me", many: int = 0) -> Case:
    return Case(name, cwd, root, projects, home, many)


def many_projects(count: int) -> list[P]:
    """`count` projects in forty groups, every tenth of them inside the one before it."""
    made = []
    for i in range(count):
        outer = f"/nx/many/g{(i - i % 10) % 40:02}/repo{i - 1:04}/pkg"
        own = f"/nx/many/g{i % 40:02}/repo{i:04}"
        made.append(p(f"p_{i:08x}", outer if i % 10 == 9 else own))
    return made


NFC_CAFE, NFD_CAFE = normalize("NFC", "café"), normalize("NFD", "café")
NFC_HAN, NFD_HAN = normalize("NFC", "한글 문서"), normalize("NFD", "한글 문서")
NFC_KANA, NFD_KANA = normalize("NFC", "プロジェクト"), normalize("NFD", "プロジェクト")

A = p("p_a", "/nx/w/alpha")
B = p("p_b", "/nx/w/beta")
FX_A = p("p_a", "$FX/ws/alpha")

COLUMNS = [
    row("the cwd is the folder", "/nx/w/alpha", None, A),
    row("the cwd is below the folder", "/nx/w/alpha/src/x", None, A),
    row("a longer name is another folder", "/nx/w/alpha2", None, A),
    row("the cwd is above the folder", "/nx/w", None, A),
    row("of nested projects the inner one", "/nx/w/alpha/pkg/a", None, A, p("p_b", "/nx/w/alpha/pkg")),
    row("of nested projects the inner one when it is older", "/nx/w/alpha/pkg/a", None,
        p("p_b", "/nx/w/alpha/pkg"), A),
    row("of three nested projects the innermost", "/nx/w/alpha/pkg/core/x", None,
        p("p_c", "/nx/w/alpha/pkg/core"), A, p("p_b", "/nx/w/alpha/pkg")),
    row("between two nested folders the outer", "/nx/w/alpha/pk", None, A, p("p_b", "/nx/w/alpha/pkg")),
    row("a folder ends with a slash", "/nx/w/alpha/src", None, p("p_a", "/nx/w/alpha/")),
    row("a cwd ends with a slash", "/nx/w/alpha/", None, A),
    row("an automatic cwd ends with a slash", "/nx/w/alpha/", None),
    row("a double slash inside the cwd", "/nx//w/alpha/src", None, A),
    row("two leading slashes are UNC and fold case", "//nx/W/ALPHA/src", None, A),
    row("dot-dot is a name like any other", "/nx/w/other/../alpha/src", None, A),
    row("a dot is a name like any other", "/nx/w/./alpha", None, A),
    row("POSIX paths keep case", "/nx/w/ALPHA", None, A),
    row("a tilde cwd is not expanded", "~/alpha/src", None, p("p_a", "/home/me/alpha")),
    row("a tilde matches a tilde", "~/alpha/src", None, p("p_a", "~/alpha")),
    row("a relative cwd reads like an absolute one", "nx/w/alpha/src", None, A),
    row("a variable is not expanded", "$HOME/alpha", None, A),
    row("a remote path as scp writes it", "me@box:/srv/app", None, A),
    row("a file URI", "file:///nx/w/alpha", None, A),
    row("spaces around the cwd", "  /nx/w/alpha/src  ", None, A),
    row("a tab and a newline around the cwd", "\t/nx/w/alpha/src\n", None, A),
    row("an ideographic space around the cwd", "\u3000/nx/w/alpha/src\u3000", None, A),
    row("spaces around the folder are part of it", "/nx/w/alpha/src", None, p("p_a", " /nx/w/alpha")),
    row("a space at the end of the folder is part of it", "/nx/w/alpha/src", None, p("p_a", "/nx/w/alpha ")),
    row("a space at the end of a name inside the cwd", "/nx/w/alpha /src", None, p("p_a", "/nx/w/alpha ")),
    row("only spaces", "   ", " \t", A),
    row("spaces around the root", None, "  /nx/w/alpha  ", A),
    row("the cwd inside, the root outside", "/nx/w/alpha/src", "/nx/z/other", A),
    row("the cwd outside, the root inside", "/nx/wt/feature", "/nx/w/alpha", A),
    row("the root's folder is deeper", "/nx/w/x", "/nx/z/deep/er/repo",
        p("p_a", "/nx/w"), p("p_b", "/nx/z/deep/er/repo")),
    row("the cwd's folder is deeper", "/nx/w/deep/er/repo/src", "/nx/z",
        p("p_a", "/nx/w/deep/er/repo"), p("p_b", "/nx/z")),
    row("at equal depth the cwd's", "/nx/w/src", "/nx/z/src", p("p_b", "/nx/z"), p("p_a", "/nx/w")),
    row("at equal depth the cwd's when it is younger", "/nx/w/src", "/nx/z/src",
        p("p_a", "/nx/w"), p("p_b", "/nx/z")),
    row("a root alone inside a project", None, "/nx/w/alpha", A),
    row("a root alone outside of all", None, "/nx/w/alpha"),
    row("a root alone with a slash at its end", None, "/nx/w/alpha/"),
    row("a root alone below a folder", None, "/nx/w/alpha/vendor/x", A),
    row("a root alone in an archived project", None, "/nx/w/alpha", p("p_a", "/nx/w/alpha", archived=True)),
    row("empty columns are NULL", "", ""),
    row("NULL columns", None, None),
    row("NULL columns beside a project", None, None, A),
    row("two projects on one folder: the first", "/nx/w/alpha/s", None, A, p("p_b", "/nx/w/alpha")),
    row("two projects on one folder: the other first", "/nx/w/alpha/s", None, p("p_b", "/nx/w/alpha"), A),
    row("two projects on one folder: the oldest, stored last", "/nx/w/alpha/s", None,
        p("p_a", "/nx/w/alpha", created=9), p("p_b", "/nx/w/alpha", created=2)),
    row("two projects on one folder, of one second: the one stored first", "/nx/w/alpha/s", None,
        p("p_b", "/nx/w/alpha", created=5), p("p_a", "/nx/w/alpha", created=5)),
    row("two projects on one folder, of one second, by id", "/nx/w/alpha/s", None,
        p("p_a", "/nx/w/alpha", created=5), p("p_b", "/nx/w/alpha", created=5)),
    row("one folder in two spellings: the oldest", "/nx/w/alpha/s", None,
        p("p_b", "/nx/w//alpha/"), A),
    row("one folder, once as a second folder: the oldest", "/nx/w/alpha/s", None,
        p("p_b", "/nx/z/b", "/nx/w/alpha"), A),
    row("one folder twice, the older archived", "/nx/w/alpha/s", None,
        p("p_a", "/nx/w/alpha", archived=True), p("p_b", "/nx/w/alpha")),
    row("one folder twice, the younger archived", "/nx/w/alpha/s", None,
        A, p("p_b", "/nx/w/alpha", archived=True)),
    row("one folder in three projects, one of them archived", "/nx/w/alpha/s", None,
        p("p_c", "/nx/w/alpha", archived=True), p("p_b", "/nx/w/alpha", created=7),
        p("p_a", "/nx/w/alpha", created=3)),
    row("an archived project owns nothing", "/nx/w/alpha/s", "/nx/w/alpha",
        p("p_a", "/nx/w/alpha", archived=True)),
    row("inner archived: the outer", "/nx/w/alpha/pkg/s", None,
        A, p("p_b", "/nx/w/alpha/pkg", archived=True)),
    row("outer archived: the inner", "/nx/w/alpha/pkg/s", None,
        p("p_a", "/nx/w/alpha", archived=True), p("p_b", "/nx/w/alpha/pkg")),
    row("outer archived, beside the inner", "/nx/w/alpha/src", None,
        p("p_a", "/nx/w/alpha", archived=True), p("p_b", "/nx/w/alpha/pkg")),
    row("both archived", "/nx/w/alpha/pkg/s", None,
        p("p_a", "/nx/w/alpha", archived=True), p("p_b", "/nx/w/alpha/pkg", archived=True)),
    row("the middle of three archived", "/nx/w/alpha/pkg/s", None,
        p("p_c", "/nx/w"), A, p("p_b", "/nx/w/alpha/pkg", archived=True)),
    row("the cwd's project archived: the root's", "/nx/w/alpha/pkg/s", "/nx/w/beta",
        p("p_a", "/nx/w/alpha/pkg", archived=True), B),
    row("a second folder", "/nx/z/data/s", None, p("p_a", "/nx/w/alpha", "/nx/z/data")),
    row("a project's own two folders, nested", "/nx/w/alpha/pkg/s", None,
        p("p_a", "/nx/w/alpha", "/nx/w/alpha/pkg")),
    row("a project without a folder", "/nx/w/alpha", None, p("p_a")),
    row("a folder that is the file system's root owns nothing", "/nx/w/alpha", None, p("p_a", "/")),
    row("an empty folder owns nothing", "/nx/w/alpha", None, p("p_a", "")),
    row("a folder of one name", "/nx/w/alpha", None, p("p_a", "/nx")),
    row("automatic by the root", "/nx/w/alpha/src", "/nx/w/alpha"),
    row("automatic by the cwd", "/nx/plain/dir", None),
    row("the file system's root as cwd", "/", None),
    row("the file system's root as root", "/nx/w/alpha", "/"),
    row("the folder where homes live as cwd", "/home", None),
    row("the folder where homes live as root", "/home/nobody-here/x", "/home"),
    row("the folder where homes live on a Mac", "/Users", None),
    row("a project on the folder where homes live", "/home/nobody-here/x", None, p("p_a", "/home")),
    row("a worktree by its -wt- name", "/nx/w/alpha-wt-feat", None),
    row("a worktree by its -wt- name in a project", "/nx/w/alpha-wt-feat", None, A),
    row("a -wt- name splits at the last one", "/nx/w/alpha-wt-feat-wt-fix", None),
    row("a -wt- name without a start", "/nx/w/-wt-feat", None),
    row("a -wt- name without an end", "/nx/w/alpha-wt-", None),
    row("below a -wt- name", "/nx/w/alpha-wt-feat/src", None),
    row("a -wt- name with a newline in it", "/nx/w/two\nlines-wt-feat", None),
    row("a kanban worktree by its shape", "/nx/w/alpha/.worktrees/t_ab12", None),
    row("a kanban worktree by its shape, with a slash", "/nx/w/alpha/.worktrees/t_ab12/", None),
    row("below a kanban worktree", "/nx/w/alpha/.worktrees/t_ab12/src", None),
    row("a kanban worktree, upper case hex is another name", "/nx/w/alpha/.worktrees/t_AB12", None),
    row("a kanban worktree at the file system's root", "/.worktrees/t_ab12", None),
    row("a kanban worktree with its root", "/nx/w/alpha/.worktrees/t_ab12", "/nx/w/alpha", A),
    row("a kanban worktree with its root, no project", "/nx/w/alpha/.worktrees/t_ab12", "/nx/w/alpha"),
    row("a named worktree with its root", "/nx/w/alpha/.worktrees/feat", "/nx/w/alpha"),
    row("a named worktree without its root", "/nx/w/alpha/.worktrees/feat", None),
]  # fmt: skip

WINDOWS = [
    row("Windows folds case", "C:\\Users\\Me\\Alpha\\src", None, p("p_a", "c:/users/me/alpha")),
    row("Windows takes both slashes", "C:/w/alpha/src", "C:\\w\\alpha", p("p_a", "C:\\w\\alpha")),
    row("Windows mixes slashes in one path", "C:\\w/alpha\\src/x", None, p("p_a", "C:/w\\alpha")),
    row("Windows doubles a backslash", "C:\\w\\\\alpha\\src", None, p("p_a", "C:\\w\\alpha")),
    row("Windows ends with a backslash", "C:\\w\\alpha\\", None, p("p_a", "C:\\w\\alpha\\")),
    row("an automatic project keeps the spelling of its row", "C:\\W\\Alpha", "c:/w/alpha"),
    row("an automatic Windows folder", "c:\\W\\Alpha\\src", None),
    row("another drive is another place", "D:\\w\\alpha", None, p("p_a", "C:\\w\\alpha")),
    row("a drive root owns its drive", "C:\\Users\\me", None, p("p_a", "c:\\")),
    row("a drive root as cwd", "C:\\", None),
    row("a drive root as cwd, with forward slash", "c:/", None, p("p_a", "C:\\")),
    row("a drive root as root", "C:\\w\\alpha", "C:\\"),
    row("a drive alone is no Windows path", "C:", None, p("p_a", "C:\\")),
    row("a drive alone as folder, upper case", "C:\\w", None, p("p_a", "C:")),
    row("a drive alone as folder, lower case", "C:\\w", None, p("p_a", "c:")),
    row("a path relative to its drive", "C:w\\alpha", None, p("p_a", "C:\\w\\alpha")),
    row("a path from the drive's root folds case", "\\NX\\W\\Alpha\\src", None, A),
    row("a long-path prefix is another path", "\\\\?\\C:\\w\\alpha\\src", None, p("p_a", "C:\\w\\alpha")),
    row("a long-path prefix on both", "\\\\?\\c:\\W\\alpha\\src", None, p("p_a", "\\\\?\\C:\\w\\Alpha")),
    row("a long-path UNC prefix is another path", "\\\\?\\UNC\\srv\\share\\alpha", None,
        p("p_a", "\\\\srv\\share\\alpha")),
    row("a device prefix is another path", "\\\\.\\C:\\w\\alpha", None, p("p_a", "C:\\w\\alpha")),
    row("UNC folds case", "\\\\Srv\\Share\\Alpha\\x", None, p("p_a", "//srv/share/alpha")),
    row("a UNC share owns all below", "\\\\SRV\\Share\\x\\y", None, p("p_a", "\\\\srv\\share")),
    row("a UNC share as cwd", "\\\\srv\\share", None),
    row("a UNC share as cwd, with backslash", "\\\\srv\\share\\", None, p("p_a", "//SRV/SHARE/")),
    row("a UNC server owns its shares", "\\\\srv\\share\\x", None, p("p_a", "\\\\srv")),
    row("another share is another place", "\\\\srv\\other\\x", None, p("p_a", "\\\\srv\\share")),
    row("WSL as Windows sees it is not the Linux path", "\\\\wsl.localhost\\Ubuntu\\home\\me\\alpha", None,
        p("p_a", "/home/me/alpha")),
    row("the two WSL servers are two", "\\\\wsl$\\Ubuntu\\home\\me\\alpha", None,
        p("p_a", "\\\\wsl.localhost\\Ubuntu\\home\\me\\alpha")),
    row("WSL as Windows sees it folds case", "\\\\WSL$\\ubuntu\\home\\me\\Alpha\\x", None,
        p("p_a", "//wsl$/Ubuntu/home/me/alpha")),
    row("a drive as WSL sees it is not the drive", "/mnt/c/w/alpha", None, p("p_a", "C:\\w\\alpha")),
    row("a drive as WSL sees it keeps case", "/mnt/c/W/Alpha", None, p("p_a", "/mnt/c/w/alpha")),
    row("a drive as Git Bash sees it is not the drive", "/c/w/alpha", None, p("p_a", "C:\\w\\alpha")),
    row("a Windows cwd with a WSL root", "C:\\w\\alpha\\src", "/mnt/c/w/alpha", p("p_a", "/mnt/c/w/alpha")),
    row("a backslash splits a POSIX path too", "/nx/w\\alpha/src", None, A),
    row("a Windows -wt- worktree", "C:\\w\\alpha-wt-fix", None),
    row("a Windows kanban worktree", "C:\\w\\alpha\\.worktrees\\t_0f", None),
    row("a Windows variable is not expanded", "%USERPROFILE%\\alpha", None, A),
    row("a dot at the end of a Windows name stays", "C:\\w\\alpha.\\x", None, p("p_a", "C:\\w\\alpha")),
    row("one Windows folder in two spellings: the oldest", "c:/W/ALPHA/x", None,
        p("p_b", "C:\\W\\Alpha"), p("p_a", "c:/w/alpha")),
    row("Windows folds ß and SS", "C:\\w\\STRASSE", None, p("p_a", "C:\\w\\straße")),
    row("Windows does not fold a dotted İ to i", "C:\\w\\İzmir", None, p("p_a", "C:\\w\\izmir")),
]  # fmt: skip

UNICODE = [
    row("a decomposed cwd, a composed folder", f"/nx/w/{NFD_CAFE}", None, p("p_a", f"/nx/w/{NFC_CAFE}")),
    row("a composed cwd, a decomposed folder", f"/nx/w/{NFC_CAFE}", None, p("p_a", f"/nx/w/{NFD_CAFE}")),
    row("a decomposed cwd below", f"/nx/w/{NFD_CAFE}/src", None, p("p_a", f"/nx/w/{NFC_CAFE}")),
    row("a decomposed root", "/nx/z", f"/nx/w/{NFD_CAFE}", p("p_a", f"/nx/w/{NFC_CAFE}")),
    row("decomposed Hangul, a composed folder", f"/nx/w/{NFD_HAN}/x", None, p("p_a", f"/nx/w/{NFC_HAN}")),
    row("composed Hangul, a decomposed folder", f"/nx/w/{NFC_HAN}/x", None, p("p_a", f"/nx/w/{NFD_HAN}")),
    row("decomposed kana, a composed folder", f"/nx/w/{NFD_KANA}", None, p("p_a", f"/nx/w/{NFC_KANA}")),
    row("composed kana, a decomposed folder", f"/nx/w/{NFC_KANA}", None, p("p_a", f"/nx/w/{NFD_KANA}")),
    row("both decomposed", f"/nx/w/{NFD_KANA}", None, p("p_a", f"/nx/w/{NFD_KANA}")),
    row("an automatic project keeps a decomposed name", f"/nx/w/{NFD_CAFE}", None),
    row("one folder composed and decomposed: the oldest", f"/nx/w/{NFC_CAFE}", None,
        p("p_b", f"/nx/w/{NFD_CAFE}"), p("p_a", f"/nx/w/{NFC_CAFE}")),
    row("a decomposed Windows name in upper case", f"C:\\w\\{NFD_CAFE.upper()}", None,
        p("p_a", f"c:\\w\\{NFC_CAFE}")),
    row("a compatibility ideograph is its canonical one", "/nx/w/\uf900", None, p("p_a", "/nx/w/\u8c48")),
    row("the Ångström sign is Å", "/nx/w/\u212b", None, p("p_a", "/nx/w/\u00c5")),
    row("a ligature is not its letters", "/nx/w/\ufb01nd", None, p("p_a", "/nx/w/find")),
    row("full width is not half width", "/nx/w/ＡＢＣ", None, p("p_a", "/nx/w/ABC")),
    row("half-width kana are not full-width", "/nx/w/ﾌﾟﾛ", None, p("p_a", "/nx/w/プロ")),
    row("Chinese names", "/nx/项目/回归测试/src", None, p("p_a", "/nx/项目/回归测试")),
    row("an ideographic full stop is no separator", "/nx/项目。src", None, p("p_a", "/nx/项目")),
    row("a full-width slash is no separator", "/nx/w／alpha", None, p("p_a", "/nx/w")),
    row("an emoji name", "/nx/w/🚀 rocket/src", None, p("p_a", "/nx/w/🚀 rocket")),
    row("an emoji of several signs", "/nx/w/👩‍💻/src", None, p("p_a", "/nx/w/👩‍💻")),
    row("an emoji with and without its selector", "/nx/w/❤️", None, p("p_a", "/nx/w/❤")),
    row("an automatic emoji folder", "/nx/w/🚀 rocket", None),
    row("a right-to-left mark is part of a name", "/nx/w/\u200falpha", None, A),
]  # fmt: skip

MANY = [
    row(f"among 4,000 projects: {what}", cwd, root, many=4_000)
    for what, cwd, root in [
        ("the first", "/nx/many/g00/repo0000", None),
        ("one in the middle, deep below", "/nx/many/g08/repo2008/a/b/c/d", None),
        ("the inner of two", "/nx/many/g00/repo0008/pkg/src", None),
        ("one by its root", "/nx/elsewhere", "/nx/many/g21/repo3981"),
        ("none", "/nx/many/g21/repo3980x", None),
        ("above them all", "/nx/many", None),
    ]
]

DISK = [
    row("a worktree outside the folder", "$FX/ws/alpha-feature/src", None, FX_A),
    row("a worktree outside, with its root", "$FX/ws/alpha-feature/src", "$FX/ws/alpha", FX_A),
    row("a worktree of no project", "$FX/ws/alpha-feature", "$FX/ws/alpha"),
    row("a worktree of no project, without its root", "$FX/ws/alpha-feature/src", None),
    row("a worktree inside its repository", "$FX/ws/alpha/.worktrees/feat", None, FX_A),
    row("a worktree inside its repository, no project", "$FX/ws/alpha/.worktrees/feat", None),
    row("a worktree with a project of its own", "$FX/ws/alpha-feature/src", "$FX/ws/alpha",
        FX_A, p("p_b", "$FX/ws/alpha-feature")),
    row("a worktree of a nested repository, the outer's project", "$FX/ws/inner-feature", None, FX_A),
    row("a worktree of a nested repository", "$FX/ws/inner-feature", None,
        FX_A, p("p_b", "$FX/ws/alpha/vendor/inner")),
    row("a worktree of a nested repository, no project", "$FX/ws/inner-feature", None),
    row("a worktree whose repository was deleted", "$FX/ws/orphan", "$FX/ws/doomed"),
    row("a worktree whose repository was deleted, without its root", "$FX/ws/orphan", None),
    row("a worktree whose repository was deleted, in its project", "$FX/ws/orphan", "$FX/ws/doomed",
        p("p_a", "$FX/ws/doomed")),
    row("a worktree of a bare repository", "$FX/ws/from-bare/src", None),
    row("a worktree of a bare repository, the bare one's project", "$FX/ws/from-bare", None,
        p("p_a", "$FX/ws/store.git")),
    row("a live kanban worktree", "$FX/ws/alpha/.worktrees/t_ab12", "$FX/ws/alpha", FX_A),
    row("a live kanban worktree, no project", "$FX/ws/alpha/.worktrees/t_ab12", None),
    row("a deleted kanban worktree", "$FX/ws/alpha/.worktrees/t_dead", None),
    row("a deleted kanban worktree of a plain folder", "$FX/ws/plain/.worktrees/t_dead", None),
    row("a deleted worktree of another name", "$FX/ws/alpha/.worktrees/gone", None),
    row("a deleted kanban worktree of a deleted folder", "$FX/ws/gone/.worktrees/t_dead", None),
    row("a live -wt- worktree", "$FX/ws/alpha-wt-live", None),
    row("a live -wt- worktree in its project", "$FX/ws/alpha-wt-live", None, FX_A),
    row("a deleted -wt- worktree", "$FX/ws/alpha-wt-dead", None),
    row("a deleted -wt- worktree in its project", "$FX/ws/alpha-wt-dead", None, FX_A),
    row("below a deleted -wt- worktree", "$FX/ws/alpha-wt-dead/a/b", None),
    row("a deleted -wt- worktree of a plain folder", "$FX/ws/plain-wt-dead", None),
    row("a deleted -wt- worktree of a deleted folder", "$FX/ws/gone-wt-dead", None),
    row("a plain folder with a -wt- name", "$FX/ws/copy-wt-plain", None),
    row("a plain folder with a -wt- name beside a repository", "$FX/ws/beta-wt-plain", None),
    row("a stale root loses to the live one", "$FX/ws/beta", "$FX/ws/alpha",
        FX_A, p("p_b", "$FX/ws/beta")),
    row("a stale root of a project does not count", "$FX/ws/beta", "$FX/ws/alpha", FX_A),
    row("a stale root deeper than the live one", "$FX/ws/alpha/src", "$FX/ws/alpha/vendor/inner",
        p("p_b", "$FX/ws/alpha/vendor/inner")),
    row("a stale root of a plain folder, deeper", "$FX/ws/plain", "$FX/ws/alpha/deeper/x",
        p("p_a", "$FX/ws/alpha/deeper"), p("p_b", "$FX/ws/plain")),
    row("a stale root of a plain folder, as deep", "$FX/ws/plain", "$FX/ws/alpha",
        FX_A, p("p_b", "$FX/ws/plain")),
    row("a stale root of a plain folder, no project", "$FX/ws/plain", "$FX/ws/alpha"),
    row("a deleted root of a plain folder", "$FX/ws/plain", "$FX/ws/gone"),
    row("below a repository, no root", "$FX/ws/alpha/src", None),
    row("below a repository, a project below too", "$FX/ws/alpha/src", None, p("p_b", "$FX/ws/alpha/src")),
    row("below a repository, a project beside", "$FX/ws/alpha/src", None, p("p_b", "$FX/ws/alpha/deeper")),
    row("a nested repository in the outer's project", "$FX/ws/alpha/vendor/inner",
        "$FX/ws/alpha/vendor/inner", FX_A),
    row("a nested repository, no root", "$FX/ws/alpha/vendor/inner/lib", None),
    row("a symlinked cwd into a project", "$FX/link/src", None, FX_A),
    row("a symlinked cwd, no project", "$FX/link/src", None),
    row("a symlinked cwd, a project on the link", "$FX/link/src", None, p("p_a", "$FX/link")),
    row("a symlinked cwd, a project on each", "$FX/link/src", None, p("p_b", "$FX/link"), FX_A),
    row("a symlinked plain cwd", "$FX/plainlink", None, p("p_a", "$FX/ws/plain")),
    row("a symlinked project folder", "$FX/ws/alpha/src", "$FX/ws/alpha", p("p_a", "$FX/link")),
    row("a project folder below a symlink", "$FX/ws/alpha/src", None, p("p_a", "$FX/link/src")),
    row("a cwd and a project folder below one symlink", "$FX/link/src/x", None, p("p_a", "$FX/link/src")),
    row("a symlink to nothing", "$FX/deadlink", None),
    row("the home", "$FX/people/me", None),
    row("the home through a symlink", "$FX/homelink", None),
    row("the home with a slash", "$FX/people/me/", None),
    row("the home as root", "$FX/people/me/notes", "$FX/people/me"),
    row("a plain folder of the home", "$FX/people/me/notes", None),
    row("a project on the home", "$FX/people/me/notes", None, p("p_a", "$FX/people/me")),
    row("the parent of the home", "$FX/people", None),
    row("the parent of the home as root", "$FX/people/dot/code", "$FX/people"),
    row("a deleted folder of the home", "$FX/people/me/gone", None),
    row("a home that is a repository", "$FX/people/dot/code", None, home="people/dot"),
    row("a home that is a repository, itself", "$FX/people/dot", "$FX/people/dot", home="people/dot"),
    row("a repository in a home that is one", "$FX/people/dot/app/src", None, home="people/dot"),
    row("a project in a home that is a repository", "$FX/people/dot/code", None,
        p("p_a", "$FX/people/dot/code"), home="people/dot"),
    row("beside a home that is a repository", "$FX/people/dot-gone", None, home="people/dot"),
    row("somebody else's home that is a repository", "$FX/people/dot/code", None),
    row("a parent of the home that is a repository", "$FX/hub/other", None, home="hub/me"),
    row("a home in a repository", "$FX/hub/me", None, home="hub/me"),
    row("below HERMES_HOME", "$FX/hermes/notes", None),
    row("HERMES_HOME itself", "$FX/hermes", None),
    row("HERMES_HOME as root", "$FX/hermes/notes", "$FX/hermes"),
    row("a repository below HERMES_HOME", "$FX/hermes/repo", "$FX/hermes/repo"),
    row("a repository below HERMES_HOME, no root", "$FX/hermes/repo/src", None),
    row("a repository below HERMES_HOME through a symlink", "$FX/hermeslink", None),
    row("a project below HERMES_HOME", "$FX/hermes/repo/src", None, p("p_a", "$FX/hermes/repo")),
    row("a deleted folder beside a repository below HERMES_HOME", "$FX/hermes/repo-gone", None),
    row("a folder whose name starts as HERMES_HOME's", "$FX/hermes2", None),
    row("a deleted folder", "$FX/ws/gone/x", None),
    row("a deleted root", "$FX/ws/gone", "$FX/ws/gone"),
    row("a deleted cwd with a live root", "$FX/ws/alpha/removed", "$FX/ws/alpha"),
    row("a deleted cwd below a repository", "$FX/ws/alpha/removed", None),
    row("a deleted cwd in a project", "$FX/ws/alpha/removed", None, FX_A),
    row("a deleted project folder", "$FX/ws/gone/x", None, p("p_a", "$FX/ws/gone")),
    row("a deleted project folder by its root", None, "$FX/ws/gone", p("p_a", "$FX/ws/gone")),
    row("a deleted cwd in an archived project", "$FX/ws/gone", None, p("p_a", "$FX/ws/gone", archived=True)),
    row("a deleted worktree beside its repository", "$FX/ws/alpha-gone/apps", None,
        p("p_b", "$FX/ws/beta")),
    row("a deleted worktree beside its repository, in its project", "$FX/ws/alpha-gone/apps", None, FX_A),
    row("a deleted worktree four words from its repository", "$FX/ws/beta-a-b-c-d", None),
    row("a deleted worktree five words from its repository", "$FX/ws/beta-a-b-c-d-e", None),
    row("a deleted worktree four words away, in two steps", "$FX/ws/beta-x/deep-y-z/w", None),
    row("a deleted worktree too many words away, in two steps", "$FX/ws/beta-x/a-b-c-d-e", None),
    row("a deleted name beside a folder of a repository", "$FX/ws/alpha/src-old", None),
    row("a deleted name that starts with a dash", "$FX/ws/alpha/-gone", None),
    row("a plain folder named after its neighbour", "$FX/ws/alpha-notes", None),
    row("a plain folder named after a plain one", "$FX/ws/plain-notes", None),
    row("a root alone, live", None, "$FX/ws/alpha"),
    row("a root alone with a slash, live", None, "$FX/ws/alpha/"),
    row("a root alone that is a worktree", None, "$FX/ws/alpha-feature"),
    row("a root alone that is a worktree, in its repository's project", None, "$FX/ws/alpha-feature", FX_A),
    row("a root alone that is a worktree, in a project of its own", None, "$FX/ws/alpha-feature",
        p("p_b", "$FX/ws/alpha-feature")),
    row("a root alone that is a kanban worktree", None, "$FX/ws/alpha/.worktrees/t_ab12"),
    row("a root alone below a repository", None, "$FX/ws/alpha/src"),
    row("a root alone that is a plain folder", None, "$FX/ws/plain"),
    row("a root alone that is a symlink to a repository", None, "$FX/link"),
    row("a root alone that is a submodule", None, "$FX/ws/super/libs/sub"),
    row("a root alone that is a bare repository", None, "$FX/ws/store.git"),
    row("a root alone that was deleted", None, "$FX/ws/gone"),
    row("a root alone that is the home", None, "$FX/people/me"),
    row("a root alone that is HERMES_HOME", None, "$FX/hermes"),
    row("a submodule", "$FX/ws/super/libs/sub", None),
    row("below a submodule", "$FX/ws/super/libs/sub/src", None),
    row("a submodule in its superproject's project", "$FX/ws/super/libs/sub", None,
        p("p_a", "$FX/ws/super")),
    row("a worktree of a submodule", "$FX/ws/sub-feature", None),
    row("a worktree of a submodule, the submodule's project", "$FX/ws/sub-feature", None,
        p("p_a", "$FX/ws/super/libs/sub")),
    row("a bare repository", "$FX/ws/store.git", None),
    row("inside a bare repository", "$FX/ws/store.git/refs", None),
    row("a bare repository in a project", "$FX/ws/store.git", None, p("p_a", "$FX/ws/store.git")),
    row("inside a .git folder", "$FX/ws/alpha/.git/refs", None),
    row("a repository with its .git elsewhere", "$FX/ws/split", None),
    row("a hidden bare repository's parent", "$FX/ws/hidden", None),
    row("a worktree of a hidden bare repository", "$FX/ws/hidden/main", None),
    row("a cwd that is a file", "$FX/ws/alpha/README", None),
    row("a cwd that is a file, with its root", "$FX/ws/alpha/README", "$FX/ws/alpha"),
    row("a cwd that is a file in a project", "$FX/ws/alpha/README", None, FX_A),
    row("a folder that ends with a space", "$FX/ws/space ", None),
    row("below a folder that ends with a space", "$FX/ws/space /src", None),
    row("a repository that ends with a space", "$FX/ws/gitspace /src", None),
    row("a project that ends with a space", "$FX/ws/space /src", None, p("p_a", "$FX/ws/space ")),
    row("a project that ends with a space, the cwd itself", "$FX/ws/space ", None, p("p_a", "$FX/ws/space ")),
    row("a repository with an emoji name", "$FX/ws/🚀 rocket/src", None),
    row("a repository with a Chinese name", "$FX/ws/回归 测试/src", None),
    row("a repository with a newline in its name", "$FX/ws/two\nlines/src", None),
    row("a decomposed name on the disk", f"$FX/ws/{NFD_CAFE}/src", None, p("p_a", f"$FX/ws/{NFC_CAFE}")),
    row("a decomposed name on the disk, no project", f"$FX/ws/{NFD_CAFE}/src", None),
    row("a cwd with dot-dot in it", "$FX/ws/plain/../alpha/src", None, FX_A),
]  # fmt: skip

CASES = [*COLUMNS, *WINDOWS, *UNICODE, *MANY, *DISK]

# --- the disk ---------------------------------------------------------------------------------------


def git(cwd: Path, *arguments: str) -> None:
    """Run git in `cwd`, deaf to this machine's own settings."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    env |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    settings = ("user.name=t", "user.email=t@example.org", "protocol.file.allow=always", "init.defaultBranch=main")
    options = [part for setting in settings for part in ("-c", setting)]
    subprocess.run(["git", *options, *arguments], cwd=cwd, env=env, check=True, capture_output=True)


def make_repo(at: Path) -> Path:
    """A repository with one commit."""
    at.mkdir(parents=True, exist_ok=True)
    git(at, "init", "-q")
    git(at, "commit", "-q", "--allow-empty", "-m", "start")
    return at


def build_fixture(fx: Path) -> None:
    """Fill the empty folder `fx` with what the `$FX` paths of the cases name."""
    ws = fx / "ws"
    for folder in (
        "people/me/notes", "people/dot/code", "hub/me", "hub/other", "hermes/notes", "hermes2",
        "ws/plain", "ws/plain-notes", "ws/alpha-notes", "ws/copy", "ws/copy-wt-plain", "ws/beta-wt-plain",
        "ws/space /src",
    ):  # fmt: skip
        (fx / folder).mkdir(parents=True)
    for repo in (
        "people/dot", "people/dot/app", "hub", "hermes/repo", "ws/alpha", "ws/alpha/vendor/inner", "ws/beta",
        "ws/doomed", "ws/super", "ws/gitspace ", "ws/🚀 rocket", "ws/回归 测试", "ws/two\nlines", f"ws/{NFD_CAFE}",
    ):  # fmt: skip
        (make_repo(fx / repo) / "src").mkdir()
    (ws / "alpha/deeper/x").mkdir(parents=True)
    (ws / "alpha/vendor/inner/lib").mkdir()
    (ws / "alpha/README").write_text("x")
    for repo, branch, at in (
        ("alpha", "feature", "alpha-feature"), ("alpha", "live", "alpha-wt-live"),
        ("alpha", "kanban", "alpha/.worktrees/t_ab12"), ("alpha", "feat", "alpha/.worktrees/feat"),
        ("alpha/vendor/inner", "feature", "inner-feature"), ("doomed", "feature", "orphan"),
    ):  # fmt: skip
        git(ws / repo, "worktree", "add", "-q", "-b", branch, str(ws / at))
    (ws / "alpha-feature/src").mkdir()
    remove(ws / "doomed")
    git(ws / "super", "submodule", "--quiet", "add", str(ws / "beta"), "libs/sub")
    (ws / "super/libs/sub/src").mkdir()
    git(ws / "super/libs/sub", "worktree", "add", "-q", "-b", "feature", str(ws / "sub-feature"))
    git(ws, "clone", "-q", "--bare", str(ws / "beta"), "store.git")
    git(ws / "store.git", "worktree", "add", "-q", "-b", "feature", str(ws / "from-bare"))
    (ws / "from-bare/src").mkdir()
    git(ws, "init", "-q", "--separate-git-dir", str(ws / "split.store"), "split")
    git(ws, "clone", "-q", "--bare", str(ws / "beta"), "hidden/.bare")
    (ws / "hidden/.git").write_text("gitdir: ./.bare\n")
    git(ws / "hidden", "worktree", "add", "-q", "-b", "trunk", "main")
    for link, target in (
        ("link", "ws/alpha"), ("plainlink", "ws/plain"), ("deadlink", "ws/gone"),
        ("homelink", "people/me"), ("hermeslink", "hermes/repo"),
    ):  # fmt: skip
        (fx / link).symlink_to(fx / target)


def remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    folder.rmdir()


# --- asking -----------------------------------------------------------------------------------------


def stored(project: P) -> dict[str, Any]:
    """A project as the file keeps it."""
    kept: dict[str, Any] = {"id": project.id, "folders": list(project.folders)}
    if project.archived:
        kept["archived"] = True
    return kept if project.created is None else kept | {"created": project.created}


def question(case: Case) -> dict[str, Any]:
    """A case as the probe takes it, `$FX` left in."""
    projects = [stored(project) for project in case.projects or many_projects(case.many)]
    return {"name": case.name, "cwd": case.cwd, "root": case.root, "home": case.home, "projects": projects}


def ask(host: hosts.Host, fx: Path, cases: Iterable[Case] = CASES) -> dict[str, dict[str, str]]:
    """What `host` answers to `cases` over a fixture in `fx`: {case: {"pure": ..., "live": ...}}."""
    with tempfile.TemporaryDirectory() as scratch:
        questions = Path(scratch) / "questions.json"
        questions.write_text(json.dumps([question(case) for case in cases]))
        done = subprocess.run(
            [str(hosts.environment(host)), str(PROBE), str(fx), str(questions)],
            env=hosts.child_env(host, fx / "hermes"), cwd=scratch, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"Hermes {host.name} did not answer:\n{done.stdout}\n{done.stderr}")
    answers: dict[str, dict[str, str]] = json.loads(done.stdout.strip().splitlines()[-1])["answers"]
    return answers


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        fx = Path(scratch).resolve() / "fx"
        build_fixture(fx)
        said = {host.name: ask(host, fx) for host in hosts.HOSTS}
    newest = hosts.HOSTS[-1].name
    lines = []
    for case in CASES:
        kept = question(case) | ({"projects": [], "many": case.many} if case.many else {})
        answers = {name: said[name][case.name] for name in said}
        kept |= {"hosts": answers, "expected": answers[newest]["pure"], "expected_live": answers[newest]["live"]}
        lines.append(json.dumps(kept))  # ASCII: a composed name must not look like a decomposed one
    text = ",\n  ".join(lines)
    CASES_FILE.write_text(f'{{\n "newest": "{newest}",\n "cases": [\n  {text}\n ]\n}}\n')
    print(f"{len(lines)} cases, {len(said)} hosts -> {CASES_FILE}")
    for name in said:
        same = sum(said[name][case.name] == said[newest][case.name] for case in CASES)
        print(f"  {name}: {same} answered as {newest} does, in both ways")


if __name__ == "__main__":
    main()
