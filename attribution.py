"""Decide which project owns a conversation. Pure: the disk comes in as callables.

The answer is the one the Hermes 0.22 desktop sidebar gives for the same row:
an explicit project by its deepest folder over cwd and repository root, else an
automatic project by repository root, else one by the cwd alone, else Home.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["explicit", "auto", "home"]


class Roots(NamedTuple):
    """Where a folder's repository lives: `common` is the main checkout, `worktree` this checkout."""

    common: str
    worktree: str


FindRoots = Callable[[str], Roots | None]
PathTest = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Project:
    """A row of projects.db with its folders, oldest project first in any list of them."""

    id: str
    slug: str
    name: str
    archived: bool
    folders: tuple[str, ...]
    primary_path: str | None


@dataclass(frozen=True, slots=True)
class ProjectRef:
    """Who owns a conversation. `key` is what two conversations of one project share.

    `id` is the project's id, or the repository's path for an automatic one, or "" for Home.
    `because` is the folder that decided ("" for Home).
    """

    kind: Kind
    id: str
    name: str
    key: str
    because: str


HOME = ProjectRef("home", "", "Home", "home", "")

# A kanban task's worktree, by the name the host gives it.
_KANBAN = re.compile(r"^(.*[/\\]\.worktrees)[/\\]t_[0-9a-f]+[/\\]?$")
_WORKTREE_SUFFIX = re.compile(r"^(.+)-wt-(.+)$")
# The host stops guessing a deleted worktree's parent after this many probes.
_SIBLING_PROBES = 4


def segments(path: str) -> list[str]:
    """Split a POSIX, Windows or UNC path into its names; empty ones are dropped."""
    return [s for s in re.split(r"[/\\]", path.rstrip("/\\")) if s]


def _folded(path: str) -> list[str]:
    # Windows and UNC paths compare without case on any host; macOS hands out NFD.
    names = [unicodedata.normalize("NFC", s) for s in segments(path)]
    start = path.strip()
    windows = re.match(r"^[A-Za-z]:[/\\]", start) or start.startswith(("\\", "//"))
    return [s.casefold() for s in names] if windows else names


def path_key(path: str) -> str:
    """What two spellings of one path share; "" for a path without a name in it."""
    return "/".join(_folded(path))


def base_name(path: str) -> str:
    names = segments(path)
    return names[-1] if names else ""


def _renamed(path: str, name: str) -> str:
    return re.sub(r"[^/\\]+$", lambda _: name, path.rstrip("/\\"))


def _parent(path: str) -> str:
    return _renamed(path, "").rstrip("/\\")


class Attribution:
    """Resolve rows against one reading of the projects.

    Without `find_roots` only the row's columns count (then nothing is junk and
    every path exists); with it the disk decides as it does for the sidebar.
    Answers are kept per (cwd, root) pair: thousands of rows share a few folders.
    """

    def __init__(
        self,
        projects: Iterable[Project],
        find_roots: FindRoots | None = None,
        *,
        junk_root: PathTest = lambda _: False,
        junk_cwd: PathTest = lambda _: False,
        exists: PathTest = lambda _: True,
    ) -> None:
        self._find = find_roots
        self._junk_root = junk_root
        self._junk_cwd = junk_cwd
        self._exists = exists
        self._answers: dict[tuple[str, str], ProjectRef] = {}
        # path key -> (project, folder as written); the oldest project keeps a shared folder
        self._folders: dict[str, tuple[Project, str]] = {}
        for project in projects:
            if project.archived:
                continue
            for folder in project.folders:
                key = path_key(folder)
                if key:
                    self._folders.setdefault(key, (project, folder))

    def resolve(self, cwd: str | None, git_repo_root: str | None) -> ProjectRef:
        """The project of a session row with these columns."""
        pair = ((cwd or "").strip(), (git_repo_root or "").strip())
        if pair not in self._answers:
            self._answers[pair] = self._resolve(*pair)
        return self._answers[pair]

    def owner(self, path: str) -> tuple[Project, str, int] | None:
        """The project whose folder is the deepest above `path`, that folder, and its depth."""
        names = _folded(path)
        for end in range(len(names), 0, -1):
            hit = self._folders.get("/".join(names[:end]))
            if hit:
                return *hit, end
        return None

    def _resolve(self, cwd: str, column_root: str) -> ProjectRef:
        roots = self._find(cwd) if self._find and cwd else None
        root = roots.common if roots else column_root
        hits = [hit for path in dict.fromkeys((cwd, root)) if path and (hit := self.owner(path))]
        if hits:
            project, folder, _ = max(hits, key=lambda hit: hit[2])  # equal depth: the cwd's
            return ProjectRef("explicit", project.id, project.name, project.id, folder)
        if root:
            if self._junk_root(root) or not self._exists(root):
                return HOME
            if not cwd and self._find:
                # A row with a root alone: the sidebar shows it only where its lane stands.
                at = self._find(root)
                if at and path_key(at.common) != path_key(root):
                    return HOME
            return _automatic(root)
        if cwd and not self._junk_cwd(cwd):
            place = self._sibling(cwd) or _by_shape(cwd)
            if place and self._exists(place):
                return _automatic(place)
        return HOME

    def _sibling(self, cwd: str) -> str:
        """The repository a deleted `<repo>-<suffix>` worktree belonged to, or ""."""
        if not self._find:
            return ""
        probes, path = 0, cwd.rstrip("/\\")
        while path:
            parts = base_name(path).split("-")
            for end in range(len(parts) - 1, 0, -1):
                if probes >= _SIBLING_PROBES:
                    return ""
                probes += 1
                roots = self._find(_renamed(path, "-".join(parts[:end])))
                if roots:
                    return roots.common
            path = _parent(path)
        return ""


def _by_shape(cwd: str) -> str:
    """The automatic project of a cwd that no repository claims: itself, or a worktree's repository."""
    name = base_name(cwd)
    if not name:
        return ""
    kanban = _KANBAN.match(cwd)
    if kanban:
        return _parent(kanban.group(1))
    suffix = _WORKTREE_SUFFIX.match(name)
    return _renamed(cwd, suffix.group(1)) if suffix else cwd


def _automatic(root: str) -> ProjectRef:
    key = path_key(root)
    return ProjectRef("auto", root, base_name(root), f"auto:{key}", root) if key else HOME
