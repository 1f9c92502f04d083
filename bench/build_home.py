"""Run by a host's python: write an evaluation set into a HERMES_HOME through the real SessionDB.

    python build_home.py SET_FOLDER HOME [--one-project]

Each `project` of the set becomes an explicit project with a folder of its own,
or all of them one project. Writes HOME/map.json: the set's message ids to rows.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main() -> None:
    folder, home = Path(sys.argv[1]).absolute(), Path(sys.argv[2]).absolute()
    one = "--one-project" in sys.argv
    home.mkdir(parents=True)
    workspace = home.with_name(home.name + "-ws")
    os.environ["HERMES_HOME"] = str(home)
    from hermes_cli import projects_db
    from hermes_state import SessionDB

    with (folder / "sessions.jsonl").open(encoding="utf-8") as file:
        sessions = [json.loads(line) for line in file]
    names = ["all"] if one else list(dict.fromkeys(s["project"] for s in sessions))
    projects = projects_db.connect()
    for name in names:
        (workspace / name).mkdir(parents=True, exist_ok=True)
        projects_db.create_project(projects, name=name, folders=[str(workspace / name)])
    projects.close()
    db, rows = SessionDB(home / "state.db"), {}
    for session in sessions:
        cwd = str(workspace / ("all" if one else session["project"]))
        db.create_session(session["id"], source="cli", cwd=cwd)
        for message in session["messages"]:
            rows[message["id"]] = db.append_message(
                session["id"], message["role"], content=message["content"], timestamp=message["t"]
            )
    db.close()
    (home / "map.json").write_text(json.dumps(rows), encoding="utf-8")


main()
