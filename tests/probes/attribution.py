"""Ask the host whose each row is, through the tree its sidebar is made of; report {case: {pure, live}}.

Arguments: the fixture's folder, and a JSON file of the questions (see attribution_oracle.py).
"""

from __future__ import annotations

import inspect
import json
import os
import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import Any

import probing
from hermes_cli import projects_db
from tui_gateway import git_probe, project_tree, server

fx, questions = sys.argv[1], Path(sys.argv[2])

LIVE: dict[str, Any] = {"is_junk_root": server._is_repo_junk, "is_junk_cwd": server._is_session_cwd_junk}
if "exists" in inspect.signature(project_tree.build_tree).parameters:
    LIVE["exists"] = os.path.isdir


def roots(cwd: str) -> Any:
    """The host's own probe; 0.19 alone would start a git even for each of 4,000 folders that are not there."""
    return git_probe.resolve(cwd) if os.path.isdir(cwd) else None


def listed(projects: list[dict[str, Any]], conn: sqlite3.Connection) -> list[dict[str, Any]]:
    """The projects as the host lists them from its own database, paths as they are written."""
    conn.execute("BEGIN")
    for n, project in enumerate(projects):
        folders = project["folders"]
        conn.execute(
            "INSERT INTO projects (id, slug, name, primary_path, created_at, archived)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (project["id"], project["id"], project["id"], folders[0] if folders else None,
             project.get("created", n), int(project.get("archived", False))),
        )  # fmt: skip
        conn.executemany(
            "INSERT INTO project_folders (project_id, path, is_primary, added_at) VALUES (?, ?, ?, ?)",
            [(project["id"], path, int(i == 0), i) for i, path in enumerate(folders)],
        )
    found = [p.to_dict() for p in projects_db.list_projects(conn, include_archived=True)]
    conn.execute("ROLLBACK")
    return found


def answer(tree: dict[str, Any]) -> str:
    """Whose the only row of the tree is. 0.19 has no Home: there the row is nobody's."""
    for project in tree["projects"]:
        lanes = [lane for repo in project["repos"] for lane in repo["groups"]]
        rows = [row for lane in lanes for row in lane["sessions"]] + project["previewSessions"]
        if rows or project.get("sessionIds"):
            if project.get("isNoProject"):
                return "home"
            return f"{'auto' if project['isAuto'] else 'explicit'}:{project['id']}"
    return "home"


answers = {}
lists: dict[str, list[dict[str, Any]]] = {}
with tempfile.TemporaryDirectory() as scratch, projects_db.connect_closing(Path(scratch) / "p.db") as conn:
    for case in json.loads(questions.read_text().replace("$FX", fx)):
        os.environ["HOME"] = f"{fx}/{case['home']}"
        asked = json.dumps(case["projects"])
        if asked not in lists:
            lists[asked] = listed(case["projects"], conn)
        row = {
            "id": "row", "cwd": case["cwd"], "git_repo_root": case["root"], "git_branch": None,
            "started_at": 1.0, "last_active": 1.0,
        }  # fmt: skip
        pure = project_tree.build_tree(lists[asked], [dict(row)], [], None, hydrate=True)
        live = project_tree.build_tree(lists[asked], [dict(row)], [], roots, hydrate=True, **LIVE)
        answers[case["name"]] = {way: answer(tree).replace(fx, "$FX") for way, tree in (("pure", pure), ("live", live))}
probing.report(answers=answers)
