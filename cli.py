"""The command line for people. Works without Hermes installed, on a HERMES_HOME."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import host, move, request, scope, search
from .errors import RecallError
from .text import one_line


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
    find.add_argument("--mode", choices=request.MODES, default="hybrid")
    find.add_argument("--limit", default=request.LIMIT[1], help="hits, 1 to 20 (default %(default)s)")
    find.add_argument("--context", default=request.CONTEXT[1], help="messages beside each hit, 0 to 5 (default 1)")
    shift = commands.add_parser(
        "move",
        help="move a conversation to another project",
        description="Move a conversation, and the folder its agent works in, to another project; or take that back.",
    )
    shift.add_argument("session_id", metavar="ID", help="the conversation (id or its beginning)")
    shift.add_argument("project", nargs="?", help="a project's id, slug, name or path, or home")
    shift.add_argument("--undo", action="store_true", help="take back its last move")
    shift.add_argument("--dry-run", action="store_true", help="say what would be done and do nothing")
    for command in (find, shift):
        where = "a Hermes home (default: HERMES_HOME or ~/.hermes)"
        command.add_argument("--home", type=Path, metavar="FOLDER", help=where)
        command.add_argument("--json", action="store_true", help="the answer as the agent gets it")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 when it was answered, 1 when it could not be, 2 for wrong arguments."""
    args = vars(parser().parse_args(argv))
    run, plain = {"search": (_search, _plain), "move": (_move, _moved)}[args.pop("command")]
    as_json = args.pop("json")
    surroundings = host.current(home=args.pop("home"))
    try:
        answer = run(args, surroundings)
    except RecallError as error:
        print(one_line(error.message, 600), file=sys.stderr)
        for candidate in error.extra.get("candidates", []):
            print("  " + "  ".join(str(v) for v in candidate.values() if v), file=sys.stderr)
        return 1
    print(json.dumps(answer, ensure_ascii=False, indent=1) if as_json else plain(answer))
    return 0


def _search(args: dict[str, Any], surroundings: host.Host) -> dict[str, Any]:
    return search.run(args, surroundings, lambda _: scope.owner(), cwd=os.getcwd())


def _move(args: dict[str, Any], surroundings: host.Host) -> dict[str, Any]:
    home = surroundings.home
    ways = move.Ways(host.data_folder(home), surface="command line", child=host.gateway_child(home))
    return move.run(args, surroundings, lambda _: scope.owner(), ways, dry_run=args.pop("dry_run"))


def _moved(answer: dict[str, Any]) -> str:
    places = (f"{p['project']['name']} ({p['cwd'] or 'no folder'})" for p in (answer["from"], answer["to"]))
    said = "moved" if answer["moved"] else "would be moved"
    return "\n".join([f"{answer['session_id']} {said}: {' -> '.join(places)}", *answer["warnings"]])


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
