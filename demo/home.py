"""Build the demo's Hermes home: git repositories, projects and conversations.

Run by the Python of a host, with HERMES_HOME set: `python home.py WORKSPACE`. Every row is
written by the host's own `SessionDB` and `projects_db`; SQL here only sets the clock back.
Prints the number of conversations and of messages.
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from agent.context_compressor import SUMMARY_PREFIX
from conversations import CONVERSATIONS, PROJECTS, REPOSITORIES, Conversation, Message
from hermes_cli import projects_db
from hermes_state import SessionDB

SUMMARY_END = "--- END OF CONTEXT SUMMARY — respond to the message below, not the summary above ---"


def make_workspace(workspace: Path) -> None:
    """Create every folder a conversation ran in, and the git repositories around them."""
    for conversation in CONVERSATIONS:
        if conversation.place not in ("", "~"):
            (workspace / conversation.place).mkdir(parents=True, exist_ok=True)
    for repository in REPOSITORIES:
        subprocess.run(["git", "init", "--quiet", str(workspace / repository)], check=True)


def make_projects(workspace: Path) -> None:
    """Create the projects that have a name."""
    connection = projects_db.connect()
    for project in PROJECTS:
        if project.name:
            folders = [str(workspace / folder) for folder in project.folders]
            projects_db.create_project(connection, name=project.name, folders=folders)
    connection.close()


class Writer:
    """Writes conversations through the host's SessionDB, at the time they happened."""

    def __init__(self, workspace: Path) -> None:
        self.db = SessionDB()
        self.workspace = workspace
        self.messages = 0
        self._clock = 0.0
        self._transcripts: dict[str, tuple[str, tuple[Message, ...]]] = {}

    def write(self, conversation: Conversation) -> None:
        self._clock = datetime.fromisoformat(conversation.start).timestamp()
        session = conversation.session_id()
        parent, copied = self._transcripts.get(conversation.branch_of, ("", ()))
        self._create(session, conversation, parent, {"_branched_from": parent} if parent else None)
        self.db.set_session_title(session, conversation.title)
        transcript = copied + conversation.messages
        segment = 0
        for message in transcript:
            if message.role == "rotated":
                segment += 1
                session = self._rotate(session, conversation, segment, message.text)
            elif message.role == "compacted":
                self.db.archive_and_compact(session, self._handoff(message.text))
            else:
                self._append(session, message)
        self._end(session, "cli_close")
        self._transcripts[conversation.title] = (session, transcript)
        if conversation.archived:
            self.db.set_session_archived(session, True)

    def _create(
        self, session: str, conversation: Conversation, parent: str, model_config: dict[str, str] | None
    ) -> None:
        self.db.create_session(
            session,
            conversation.source,
            model="demo-model",
            model_config=model_config,
            parent_session_id=parent or None,
        )
        if conversation.place:
            folder = Path.home() if conversation.place == "~" else self.workspace / conversation.place
            self.db.update_session_cwd(session, str(folder))
        self._set_time(session, "started_at")

    def _append(self, session: str, message: Message) -> None:
        self._clock += 12 + len(message.text) // 4
        if message.role == "ran":
            self.messages += 2
            call = f"call_{self.messages:04d}"
            arguments = json.dumps({"command": message.command}, ensure_ascii=False)
            function = {"name": "terminal", "arguments": arguments}
            calls = [{"id": call, "type": "function", "function": function}]
            self.db.append_message(session, "assistant", "", tool_calls=calls, timestamp=self._clock)
            self.db.append_message(
                session,
                "tool",
                message.text,
                tool_name="terminal",
                tool_call_id=call,
                timestamp=self._clock + 1,
            )
        else:
            self.messages += 1
            self.db.append_message(session, message.role, message.text, timestamp=self._clock)

    def _rotate(self, session: str, conversation: Conversation, segment: int, summary: str) -> str:
        """Go on in a new row, as hosts do with `compression.in_place: false`."""
        child = conversation.session_id(segment)
        handoff = self._handoff(summary)
        if hasattr(self.db, "publish_compression_child"):
            self.db.publish_compression_child(
                parent_session_id=session,
                child_session_id=child,
                source=conversation.source,
                messages=handoff,
                require_compression_lease=False,
            )
            self._set_time(session, "ended_at")
            self._set_time(child, "started_at")
        else:  # 0.19 does it in two steps
            self._end(session, "compression")
            self._create(child, conversation, session, None)
            for message in handoff:
                self.db.append_message(child, message["role"], message["content"], timestamp=self._clock)
        self.db.set_session_title(child, f"{conversation.title} #{segment + 1}")
        return child

    def _handoff(self, summary: str) -> list[dict[str, Any]]:
        self._clock += 60
        content = f"{SUMMARY_PREFIX}\n{summary}\n\n{SUMMARY_END}"
        return [{"role": "user", "content": content, "timestamp": self._clock, "_compressed_summary": True}]

    def _end(self, session: str, reason: str) -> None:
        self.db.end_session(session, reason)
        self._set_time(session, "ended_at")

    def _set_time(self, session: str, column: str) -> None:
        statement = f"UPDATE sessions SET {column} = ? WHERE id = ?"
        self.db._execute_write(lambda connection: connection.execute(statement, (self._clock, session)))


def main() -> None:
    workspace = Path(sys.argv[1])
    make_workspace(workspace)
    make_projects(workspace)
    writer = Writer(workspace)
    for conversation in sorted(CONVERSATIONS, key=lambda c: c.start):
        writer.write(conversation)
    writer.db.close()
    print(json.dumps({"conversations": len(CONVERSATIONS), "messages": writer.messages}))


if __name__ == "__main__":
    main()
