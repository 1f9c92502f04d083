"""Conversations whose folder was renamed or is gone, and the project each seems to belong to. Pure but for stat.

A conversation seems to belong to a project whose folder still exists and has the
name that its own folder, or its repository, had. Where two have it, neither is chosen.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from .attribution import ProjectRef, base_name
from .scope import Caller, Everywhere

Exists = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Lost:
    """A conversation by its root, and where it stood. `why` is "folder" or "repository", "" without candidates."""

    root: str
    cwd: str
    git_repo_root: str
    source: ProjectRef
    candidates: tuple[ProjectRef, ...]
    why: str

    @property
    def target(self) -> ProjectRef | None:
        return self.candidates[0] if len(self.candidates) == 1 else None


def lost(everywhere: Everywhere, caller: Caller, exists: Exists = os.path.isdir) -> list[Lost]:
    """Those of the caller's conversations that stand nowhere any more, newest last."""
    homes = _standing(everywhere, caller, exists)
    found = []
    for root in everywhere.readable(caller):
        cwd, repository = everywhere.lineages.place(root)
        ref = everywhere.ref(root)
        if not (cwd or repository) or _stands(ref, cwd, repository, everywhere, exists):
            continue
        names = {"repository": base_name(repository), "folder": base_name(cwd)}
        candidates = {
            at.key: (at, why) for why, name in names.items() for at in homes.get(name, ()) if at.key != ref.key
        }
        chosen = tuple(at for at, _ in candidates.values())
        why = next((why for _, why in candidates.values()), "")
        found.append(Lost(root, cwd, repository, ref, chosen, why))
    return found


def _stands(ref: ProjectRef, cwd: str, repository: str, everywhere: Everywhere, exists: Exists) -> bool:
    if ref.kind == "explicit":
        folders = next((p.folders for p in everywhere.projects if p.id == ref.id), ())
        if any(exists(folder) for folder in folders):
            return True
    if ref.kind == "auto" and exists(ref.id):
        return True
    return any(exists(path) for path in (cwd, repository) if path)


def _standing(everywhere: Everywhere, caller: Caller, exists: Exists) -> dict[str, list[ProjectRef]]:
    """The projects that have a folder on this disk, by the name of that folder."""
    refs: dict[str, tuple[ProjectRef, list[str]]] = {}
    for project in everywhere.projects:
        for folder in project.folders if not project.archived else ():
            ref = everywhere.at(folder)
            if exists(folder) and ref.id == project.id:  # else it is another project's by now
                refs.setdefault(ref.key, (ref, []))[1].append(folder)
    for root in everywhere.readable(caller):
        ref = everywhere.ref(root)
        if ref.kind == "auto" and exists(ref.id):
            refs.setdefault(ref.key, (ref, [ref.id]))
    by_name: dict[str, list[ProjectRef]] = {}
    for ref, folders in refs.values():
        for name in {base_name(folder) for folder in folders} - {""}:
            by_name.setdefault(name, []).append(ref)
    return by_name
