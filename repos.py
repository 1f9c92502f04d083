"""Find a folder's git repository by looking, without starting git.

A git process costs about 5 ms a folder and a home has thousands of folders, so
this reads what git reads: `.git` folders and files, `commondir`, the few settings
that move or remove a work tree, and who owns them. It answers as the host's own
probe (`rev-parse --show-toplevel`, then the parent of `--git-common-dir` where
that is named `.git`); GIT_DIR and its like, which the host's git would heed in
every folder alike, are not looked at.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator

from .attribution import Roots

TTL = 10.0  # seconds an answer is kept; a `git init` shows soon after

_HEAD = re.compile(r"ref:\s*refs/|[0-9a-fA-F]{40}")
_SETTING = re.compile(r'(?mi)^\s*([a-z][\w-]*)[ \t]*(=?)[ \t]*((?:"(?:\\.|[^"\\\n])*"|[^"#;\n])*)')


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
        answer = _look(cwd) if cwd and os.path.isdir(cwd) else None
        if len(self._seen) > 20_000:  # bounded memory: a home does not have more
            self._seen.clear()
        self._seen[cwd] = (now + TTL, answer)
        return answer


def _look(cwd: str) -> Roots | None:
    start = os.path.realpath(cwd)
    if not os.access(start, os.X_OK):
        return None  # git cannot enter it
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
                return _roots(folder, git_dir, dotgit)
            if _is_git_dir(dotgit):
                return _roots(folder, dotgit)
            if _is_git_dir(folder):
                return _roots("", folder)  # bare, or inside `.git`
    except OSError:
        return None
    return None


def _roots(worktree: str, git_dir: str, pointer: str = "") -> Roots | None:
    """The roots of a checkout at `worktree`, or of one that only `core.worktree` names."""
    common = _common_dir(git_dir)
    core = _core(git_dir, common)
    elsewhere = core.get("core.worktree")
    top = os.path.realpath(os.path.join(git_dir, elsewhere)) if elsewhere else worktree
    if _true(core.get("core.bare", "")) or not os.path.isdir(top):
        return None
    if not _trusted([p for p in (pointer, worktree, git_dir) if p], worktree or git_dir):
        return None
    top = top.rstrip()  # the host strips what git prints, so it loses a name's last space
    root = os.path.dirname(common) if os.path.basename(common) == ".git" else top
    return Roots(root.replace(os.sep, "/"), top.replace(os.sep, "/"))


def _upward(folder: str) -> Iterator[str]:
    yield folder
    while (parent := os.path.dirname(folder)) != folder:
        folder = parent
        yield folder


def _text(path: str) -> str:
    with open(path, "rb") as file:
        return os.fsdecode(file.read(100_000))


def _pointed(file: str, prefix: str = "") -> str | None:
    """The path a one-line pointer file names, relative to that file."""
    line = _text(file).rstrip("\r\n")
    if not line.startswith(prefix) or line == prefix:
        return None
    return os.path.join(os.path.dirname(file), line[len(prefix) :])


def _common_dir(git_dir: str) -> str:
    commondir = os.path.join(git_dir, "commondir")
    shared = _pointed(commondir) if os.path.isfile(commondir) else None
    return os.path.realpath(shared or git_dir)


def _is_git_dir(path: str) -> bool:
    head = os.path.join(path, "HEAD")
    try:
        if os.path.islink(head):
            valid = os.readlink(head).startswith("refs/")
        else:
            valid = os.path.isfile(head) and _HEAD.match(_text(head)) is not None
    except OSError:
        return False
    return valid and all(os.access(os.path.join(_common_dir(path), name), os.X_OK) for name in ("objects", "refs"))


def _core(git_dir: str, common: str) -> dict[str, str]:
    """The settings that say whether and where there is a work tree; a linked worktree inherits none."""
    settings = dict(_settings(os.path.join(common, "config"), "core|extensions"))
    if _true(settings.get("extensions.worktreeconfig", "")):
        return settings | dict(_settings(os.path.join(git_dir, "config.worktree"), "core"))
    return settings if common == os.path.realpath(git_dir) else {}


def _settings(path: str, sections: str) -> list[tuple[str, str]]:
    """`section.key` and value in a git config file, in its order; includes are not followed."""
    if not os.path.isfile(path):
        return []
    text = _text(path).replace("\\\n", "")
    return [
        (f"{section}.{key}".lower(), re.sub(r'\\(.)|"', r"\1", value.rstrip()) if equals else "true")
        for section, block in re.findall(rf"(?mi)^[ \t]*\[({sections})\](.*(?:\n(?![ \t]*\[).*)*)", text)
        for key, equals, value in _SETTING.findall(block)
    ]


def _true(value: str) -> bool:
    return value.lower() in ("true", "yes", "on", "1")


def _trusted(paths: list[str], place: str) -> bool:
    """git refuses a repository of another user unless `safe.directory` names it."""
    if not hasattr(os, "geteuid"):
        return True
    me = os.geteuid()
    invoker = os.environ.get("SUDO_UID", "") if me == 0 else ""
    owners = {me, int(invoker)} if invoker.isdecimal() else {me}
    if all(os.lstat(path).st_uid in owners for path in paths):
        return True
    system = os.environ.get("GIT_CONFIG_SYSTEM") or "/etc/gitconfig"
    own = os.environ.get("GIT_CONFIG_GLOBAL") or os.path.expanduser("~/.gitconfig")
    if not os.path.isfile(own):
        own = os.path.join(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"), "git", "config")
    safe = False
    for name, entry in _settings(system, "safe") + _settings(own, "safe"):
        if name == "safe.directory":
            safe = entry != "" and (safe or _covers(entry, place))  # an empty entry takes back the others
    return safe


def _covers(entry: str, place: str) -> bool:
    if entry == "*":
        return True
    path = os.path.expanduser(entry)
    return place.startswith(path[:-1]) if path.endswith("/*") else os.path.realpath(path) == place
