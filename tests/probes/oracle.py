"""Report which project the host's own sidebar would put every row of its state.db into, whatever its age.

The sidebar's builder, with live git and the sidebar's own tests for what is junk or gone, over
all rows and not the newest 2,000; each row stands where the host's own code says the tip of its
compression lineage stands. "explicit:ID", "auto:PATH" or "home:" for each session id.
"""

from __future__ import annotations

import inspect
import os
import sqlite3
from contextlib import closing
from typing import Any

import probing
from hermes_cli import projects_db
from hermes_state import SessionDB
from tui_gateway import git_probe, project_tree, server

STANDING = ("cwd", "git_branch", "git_repo_root")


def rows() -> list[dict[str, Any]]:
    with closing(sqlite3.connect(f"{(probing.HOME / 'state.db').as_uri()}?mode=ro", uri=True)) as conn:
        ids = [session_id for (session_id,) in conn.execute("SELECT id FROM sessions")]
    db = SessionDB(probing.HOME / "state.db", read_only=True)
    tips = {session_id: db.get_session(db.get_compression_tip(session_id)) for session_id in ids}
    db.close()
    return [
        {"id": session_id, "started_at": 1.0, "last_active": 1.0} | {name: tip.get(name) for name in STANDING}
        for session_id, tip in tips.items()
    ]


def tree() -> list[dict[str, Any]]:
    with projects_db.connect_closing() as conn:
        projects = [project.to_dict() for project in projects_db.list_projects(conn)]
    tests = {
        "is_junk_root": server._is_repo_junk,
        "is_junk_cwd": server._is_session_cwd_junk,
        "exists": os.path.isdir,
    }
    tests = {
        name: test for name, test in tests.items() if name in inspect.signature(project_tree.build_tree).parameters
    }
    built = project_tree.build_tree(projects, rows(), [], git_probe.resolve, hydrate=True, **tests)
    nodes: list[dict[str, Any]] = built["projects"]
    return nodes


owners = {row["id"]: "home:" for row in rows()}  # 0.19 has no node for Home: it leaves those out
for node in tree():
    kind = "auto" if node["isAuto"] else "explicit"
    for lane in (lane for repo in node["repos"] for lane in repo["groups"]):
        for session in lane["sessions"]:
            owners[session["id"]] = "home:" if node.get("isNoProject") else f"{kind}:{node['id']}"
probing.report(owners=owners)
