"""The command line for people. Works without Hermes installed, on a HERMES_HOME."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import host, scope, search
from .errors import RecallError


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="project-history-recall",
        description="Find what was said, decided and tried in a project's past Hermes conversations.",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    find = commands.add_parser(
        "search",
        help="find past messages of one project",
        description="Find past messages. The project is the one of the current folder unless --project names another.",
    )
    find.add_argument("query", nargs="?", default="", help="a question, a symbol, a path or an error code")
    find.add_argument("--project", help="a project's id, slug, name, or path")
    find.add_argument("--session", dest="session_id", metavar="ID", help="only this conversation (id or its beginning)")
    find.add_argument("--around", dest="around_message_id", metavar="MESSAGE", help="read on around this message")
    find.add_argument("--after", metavar="WHEN", help="ISO date or date-time, or an age: 24h, 7d, 2w")
    find.add_argument("--before", metavar="WHEN", help="the same; the moment itself is not included")
    find.add_argument("--mode", choices=search.MODES, default="hybrid")
    find.add_argument("--limit", default=search.LIMIT[1], help="hits, 1 to 20 (default %(default)s)")
    find.add_argument("--context", default=search.CONTEXT[1], help="messages beside each hit, 0 to 5 (default 1)")
    find.add_argument("--home", type=Path, metavar="FOLDER", help="a Hermes home (default: HERMES_HOME or ~/.hermes)")
    find.add_argument("--json", action="store_true", help="the answer as the agent gets it")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 when it was answered, 1 when it could not be, 2 for wrong arguments."""
    args = vars(parser().parse_args(argv))
    del args["command"]
    as_json = args.pop("json")
    surroundings = host.current(home=args.pop("home"))
    try:
        answer = search.run(args, surroundings, lambda _: scope.owner(), cwd=os.getcwd())
    except RecallError as error:
        print(error.message, file=sys.stderr)
        for candidate in error.extra.get("candidates", []):
            print("  " + "  ".join(str(v) for v in candidate.values() if v), file=sys.stderr)
        return 1
    print(json.dumps(answer, ensure_ascii=False, indent=1) if as_json else _plain(answer))
    return 0


def _plain(answer: dict[str, Any]) -> str:
    project = answer["project"]
    lines = [f"{project['name']} · {answer['sessions_in_scope']} conversations"]
    if answer.get("reason"):
        lines.append(answer["reason"])
    for hit in answer["results"]:
        lines += ["", f"{hit['session_id']}#{hit['message_id']}  {hit['when']}  {hit['role']}  {hit['title']}"]
        lines += ["  " + line for line in hit["snippet"].splitlines()]
    if not answer["results"] and "reason" not in answer:
        lines.append("Nothing found. No hit is no proof.")
    return "\n".join(lines)
