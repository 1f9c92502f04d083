"""Find a folder's git repository by looking, without starting git.

A git process costs about 5 ms a folder and a home has thousands of folders, so
this reads what git reads: `.git` folders and files, `commondir`, and who owns
them. It answers as the host's own probe (`rev-parse --show-toplevel`, then the
parent of `--git-common-dir` where that is named `.git`).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from .attribution import Roots

TTL = 10.0  # seconds an answer is kept; a `git init` shows soon after

_OBJECT_NAME = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


class RepoRoots:
    """Repository roots of folders, kept for `TTL` seconds. Call it with a cwd."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, Roots | None]] = {}

    def __call__(self, cwd: str) -> Roots | None:
        """Real paths with forward slashes, or None outside a repository."""
        now = time.monotonic()
        hit = self._seen.get(cwd)
        if hit and hit[0] > now:
            return hit[1]
        answer = self._look(cwd) if cwd and os.path.isdir(cwd) else None
        if len(self._seen) > 20_000:  # bounded memory: a home does not have more
            self._seen.clear()
        self._seen[cwd] = (now + TTL, answer)
        return answer

    def _look(self, cwd: str) -> Roots | None:
        start = os.path.realpath(cwd)
        try:
            device = os.stat(start).st_dev
            for folder in _upward(start):
                if os.stat(folder).st_dev != device:
                    return None  # git does not cross a mount point
                dotgit = os.path.join(folder, ".git")
                if os.path.isfile(dotgit):
                    git_dir = _pointed(dotgit, "gitdir: ")
                    if git_dir is None or not _is_git_dir(git_dir):
                        return None  # a broken pointer stops git
                    return self._roots(folder, git_dir, dotgit)
                if _is_git_dir(dotgit):
                    return self._roots(folder, dotgit, None)
                if _is_git_dir(folder):
                    return None  # a bare repository, or inside `.git`: no work tree
        except OSError:
            return None
        return None

    @staticmethod
    def _roots(worktree: str, git_dir: str, pointer: str | None) -> Roots | None:
        common = _common_dir(git_dir)
        if common == os.path.realpath(git_dir) and _says_bare(common):
            return None
        if not _trusted([p for p in (pointer, worktree, git_dir) if p], worktree):
            return None
        root = os.path.dirname(common) if os.path.basename(common) == ".git" else worktree
        return Roots(root.replace(os.sep, "/"), worktree.replace(os.sep, "/"))


def _upward(folder: str) -> Iterator[str]:
    yield folder
    while (parent := os.path.dirname(folder)) != folder:
        folder = parent
        yield folder


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(100_000)


def _pointed(file: str, prefix: str = "") -> str | None:
    """The path a one-line pointer file names, relative to that file."""
    line = _text(file).strip()
    if not line.startswith(prefix.strip()):
        return None
    return os.path.normpath(os.path.join(os.path.dirname(file), line[len(prefix.strip()) :].strip()))


def _common_dir(git_dir: str) -> str:
    commondir = os.path.join(git_dir, "commondir")
    shared = _pointed(commondir) if os.path.isfile(commondir) else None
    return os.path.realpath(shared or git_dir)


def _is_git_dir(path: str) -> bool:
    head = os.path.join(path, "HEAD")
    if os.path.islink(head):
        valid = os.readlink(head).startswith("refs/")
    elif os.path.isfile(head):
        line = _text(head).strip()
        valid = line.startswith("ref: refs/") or bool(_OBJECT_NAME.fullmatch(line))
    else:
        return False
    common = _common_dir(path)
    return valid and all(os.path.isdir(os.path.join(common, name)) for name in ("objects", "refs"))


def _says_bare(git_dir: str) -> bool:
    config = os.path.join(git_dir, "config")
    return os.path.isfile(config) and re.search(r"(?mi)^\s*bare\s*=\s*true\s*$", _text(config)) is not None


def _trusted(paths: list[str], worktree: str) -> bool:
    """git refuses a repository of another user unless `safe.directory` names it."""
    if not hasattr(os, "geteuid"):
        return True
    me = os.geteuid()
    owners = {me, int(os.environ["SUDO_UID"])} if me == 0 and os.environ.get("SUDO_UID", "").isdigit() else {me}
    if all(os.lstat(path).st_uid in owners for path in paths):
        return True
    config_home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(Path.home(), ".config")
    safe: list[str] = []
    for config in ("/etc/gitconfig", os.path.join(config_home, "git", "config"), os.path.join(Path.home(), ".gitconfig")):
        if os.path.isfile(config):
            section = re.findall(r"(?mi)^\s*\[safe\]([^\[]*)", _text(config))
            safe += re.findall(r"(?mi)^\s*directory\s*=\s*\"?([^\"\n]*)\"?\s*$", "\n".join(section))
    return any(
        entry == "*" or entry.rstrip("/") == worktree or (entry.endswith("/*") and worktree.startswith(entry[:-1]))
        for entry in safe
    )
