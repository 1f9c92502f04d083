"""What the probes share. A probe runs in a host's own Python and reports one line of JSON.

Its HERMES_HOME is a fresh one with the plugin enabled; the conversations it needs it
writes itself, through the host's own databases.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

PLUGIN = "project-history-recall"
TOOL = "project_history_search"
HOME = Path(os.environ["HERMES_HOME"])

# Kept before any host module runs: the TUI gateway takes stdout for itself.
_OUT = os.dup(1)


def report(**facts: Any) -> None:
    """Hand `facts` to the test."""
    os.write(_OUT, b"\n" + json.dumps(facts).encode() + b"\n")


def load() -> dict[str, Any]:
    """Have the host discover its plugins; what it says of ours."""
    from hermes_cli.plugins import discover_plugins, get_plugin_manager

    discover_plugins()
    said: list[dict[str, Any]] = get_plugin_manager().list_plugins()
    return next((p for p in said if p["name"] == PLUGIN), {})


def remember(home: Path, sessions: dict[str, tuple[Path, str]]) -> None:
    """Write `sessions` (id: folder, text), each folder a project of its own, as the host would."""
    from hermes_cli import projects_db
    from hermes_state import SessionDB

    db = SessionDB(home / "state.db")
    for session_id, (folder, text) in sessions.items():
        folder.mkdir(parents=True, exist_ok=True)
        db.create_session(session_id, source="cli", cwd=str(folder))
        db.append_message(session_id, "user", content=text)
        db.append_message(session_id, "assistant", content="Noted.")
    db.close()
    with projects_db.connect_closing(home / "projects.db") as conn:
        for folder in sorted({folder for folder, _ in sessions.values()}):
            projects_db.create_project(conn, name=folder.name, folders=[str(folder)])


def dispatch(args: Any, *, tool: str = TOOL, **kwargs: Any) -> str:
    """A tool's answer through the host's real registry."""
    from tools.registry import registry

    answer: str = registry.dispatch(tool, args, **kwargs)
    return answer
