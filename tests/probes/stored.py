"""Fill a home with small conversations for moves. Arguments: a JSON object of id: [folder or null, source, text].

Folders that are marked with a trailing slash become projects. Reports the projects' ids by the folder's name.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import probing
from hermes_cli import projects_db
from hermes_state import SessionDB

rows: dict[str, list[Any]] = json.loads(sys.argv[1])
db = SessionDB(probing.HOME / "state.db")
folders: set[str] = set()
for session_id, (folder, source, text) in rows.items():
    columns: dict[str, Any] = {}
    if source == "subagent":
        columns = {"parent_session_id": next(iter(rows)), "model_config": {"_delegate_from": next(iter(rows))}}
    db.create_session(session_id, source=source, cwd=folder and folder.rstrip("/"), **columns)
    db.append_message(session_id, "user", content=text)
    db.append_message(session_id, "assistant", content="Noted.")
    folders |= {folder} if folder and folder.endswith("/") else set()
db.close()
ids = {}
with projects_db.connect_closing(probing.HOME / "projects.db") as conn:
    for folder in sorted(folders):
        name = Path(folder).name
        ids[name] = projects_db.create_project(conn, name=name, folders=[folder.rstrip("/")])
probing.report(projects=ids)
