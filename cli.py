"""The commands for people: `project-history-recall ...` without Hermes, `hermes project-history ...` with it.

Only `index`, `forget`, `move` and `consent revoke` change anything, and of those only
`move` anything of Hermes, which Hermes itself does. A search keeps its index as the tool
does. One answer on stdout, one sentence on stderr when there is none.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import logging
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import (
    agreement,
    asking,
    doctor,
    host,
    listing,
    move,
    people,
    repair,
    request,
    scope,
    status,
    telling,
    transcript,
    upkeep,
)
from .answers import when
from .errors import BadArgument, BadTime, EmptyQuery, RecallError
from .indexing import store_path
from .printing import Bar
from .scope import Everywhere, choose_project, reading
from .state import explain
from .text import one_line
from .words import Say, speak

ANSWERED, FAILED, WRONG, INTERRUPTED = 0, 1, 2, 130
WRONGLY_ASKED = (BadArgument, BadTime, EmptyQuery)
COMMAND = "history_command"  # where argparse keeps which one; the host's own parser has a `command`

logger = logging.getLogger(__name__)


class NotConfirmed(RecallError):
    code = "not_confirmed"


@dataclass(frozen=True, slots=True)
class Call:
    """One command: its arguments, where it reads, how it speaks and to whom. `columns` is None in a pipe."""

    args: Mapping[str, Any]
    surroundings: host.Host
    say: Say
    columns: int | None

    def confirmed(self, question: str) -> None:
        """Raise NotConfirmed unless --yes was given, or a person at a terminal says yes now."""
        if self.args["yes"]:
            return
        if sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty():
            sys.stderr.write(self.say("ask", question=question))
            sys.stderr.flush()
            typed = sys.stdin.readline().strip().lower()
            if typed and typed in self.say("yes.letters").split():
                return
        raise NotConfirmed(self.say("error.not_confirmed"))

    def project_key(self, everywhere: Everywhere) -> str | None:
        named = self.args["project"]
        return choose_project(named, scope.owner(), everywhere).key if named else None


@dataclass(frozen=True, slots=True)
class Told:
    """An answer, as JSON has it and as people read it."""

    json: Any
    lines: Sequence[str]
    code: int = ANSWERED
    compact: bool = False


# -- what can be asked --------------------------------------------------------


def parser(say: Say | None = None) -> argparse.ArgumentParser:
    say = say or speak(people.language())
    top = argparse.ArgumentParser(prog="project-history-recall", description=say("about"))
    add_commands(top, say)
    return top


def add_commands(top: argparse.ArgumentParser, say: Say) -> None:
    """Add every command to a parser: ours, or the one that the host lends for `hermes project-history`."""
    commands = top.add_subparsers(dest=COMMAND, required=True, metavar="COMMAND")

    def command(name: str, *examples: str, long: str | None = None) -> argparse.ArgumentParser:
        added = commands.add_parser(
            name,
            help=say(f"help.{name}"),
            description=say(long or f"help.{name}"),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            epilog="\n".join([f"{say('help.examples')}:", *(f"  {top.prog} {example}" for example in examples)]),
        )
        _everywhere(added, say)
        return added

    command("status", "status", "status --json", long="help.status.long")

    find = command(
        "search",
        'search "why did we drop the queue"',
        "search refreshToken --mode keyword --after 30d",
        "search --session 20260901_1430 retry --open 1",
        long="help.search.long",
    )
    find.add_argument("query", nargs="?", default="", help=say("help.query"))
    where = find.add_mutually_exclusive_group()
    where.add_argument("--project", help=say("help.project"))
    where.add_argument("--cwd", metavar="FOLDER", help=say("help.cwd"))
    find.add_argument("--session", dest="session_id", metavar="ID", help=say("help.session"))
    find.add_argument("--around", dest="around_message_id", metavar="MESSAGE", help=say("help.around"))
    find.add_argument("--after", metavar="WHEN", help=say("help.after"))
    find.add_argument("--before", metavar="WHEN", help=say("help.before"))
    find.add_argument("--mode", choices=request.MODES, default="hybrid", help=say("help.mode"))
    find.add_argument("--limit", default=request.LIMIT[1], help=say("help.limit.hits"))
    find.add_argument("--context", default=request.CONTEXT[1], help=say("help.context"))
    find.add_argument("--open", type=int, metavar="N", help=say("help.open"))

    rows = command(
        "sessions", "sessions --query retry", "sessions --all-profiles --limit 200", long="help.sessions.long"
    )
    rows.add_argument("--all-profiles", action="store_true", help=say("help.all_profiles"))
    rows.add_argument("--project", help=say("help.project"))
    rows.add_argument("--query", help=say("help.filter"))
    rows.add_argument("--limit", type=int, default=50, help=say("help.limit.rows"))
    rows.add_argument("--hidden", action="store_true", help=say("help.hidden"))
    rows.add_argument("--archived", action="store_true", help=say("help.archived"))

    read = command("show", "show 20260901_1430", "show 20260901_1430#47 --max-chars 8000", long="help.show.long")
    read.add_argument("session_id", metavar="ID", help=say("help.show.id"))
    read.add_argument("--markdown", action="store_true", help=say("help.markdown"))
    read.add_argument("--max-chars", type=int, default=60_000, help=say("help.max_chars"))
    read.add_argument("--messages", type=int, default=300, help=say("help.messages"))

    fill = command("index", "index", "index --project Atlas", long="help.index.long")
    fill.add_argument("--project", help=say("help.project"))

    shift = command(
        "move",
        "move 20260901_1430 Atlas --dry-run",
        "move 20260901_1430 --undo",
        "move --repair",
        long="help.move.long",
    )
    shift.add_argument("session_id", nargs="?", metavar="ID", help=say("help.move.id"))
    shift.add_argument("project", nargs="?", metavar="PROJECT", help=say("help.move.project"))
    shift.add_argument("--undo", action="store_true", help=say("help.undo"))
    shift.add_argument("--repair", action="store_true", help=say("help.repair"))
    shift.add_argument("--dry-run", action="store_true", help=say("help.dry_run"))
    shift.add_argument("--yes", action="store_true", help=say("help.yes"))

    drop = command("forget", "forget --project Atlas", "forget --all --yes", long="help.forget.long")
    what = drop.add_mutually_exclusive_group(required=True)
    what.add_argument("--project", help=say("help.project"))
    what.add_argument("--all", action="store_true", help=say("help.forget.all"))
    drop.add_argument("--yes", action="store_true", help=say("help.yes"))

    consent = commands.add_parser("consent", help=say("help.consent"), description=say("help.consent"))
    actions = consent.add_subparsers(dest="action", required=True, metavar="ACTION")
    _everywhere(actions.add_parser("list", help=say("help.consent.list")), say)
    revoke = actions.add_parser("revoke", help=say("help.consent.revoke"))
    _everywhere(revoke, say)
    whose = revoke.add_mutually_exclusive_group(required=True)
    whose.add_argument("--project", help=say("help.project"))
    whose.add_argument("--all", action="store_true", help=say("help.consent.all"))
    revoke.add_argument("--yes", action="store_true", help=say("help.yes"))

    command("doctor", "doctor", "doctor --profile work --json")


def _everywhere(added: argparse.ArgumentParser, say: Say) -> None:
    added.add_argument("--home", type=Path, metavar="FOLDER", help=say("help.home"))
    added.add_argument("--profile", metavar="NAME", help=say("help.profile"))
    added.add_argument("--json", action="store_true", help=say("help.json"))


# -- asking -------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 when it was answered, 1 when it could not be, 2 for wrong arguments, 130 for Ctrl-C."""
    say = speak(people.language())
    return run(vars(parser(say).parse_args(argv)), say)


def set_up(lent: argparse.ArgumentParser) -> None:
    """Called by the host with the parser of `hermes project-history`."""
    add_commands(lent, speak(people.language()))


def from_host(args: argparse.Namespace) -> None:
    """Called by the host with what was typed. 0.19 drops a handler's answer, so the process ends here."""
    code = run(vars(args), speak(people.language()))
    if code:
        sys.exit(code)


def run(args: Mapping[str, Any], say: Say) -> int:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):  # a name in Chinese must not fail on an old console
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        home = _home(args["home"], args["profile"], say)
        with people.at_home(home):
            columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
            told = COMMANDS[args[COMMAND]](Call(args, host.current(home=home), say, columns))
        _print(told, as_json=args["json"])
        return told.code
    except KeyboardInterrupt:
        print(say("interrupted"), file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `| head` has seen enough
        return ANSWERED
    except RecallError as error:
        return _refused(error, args)
    except sqlite3.Error as error:
        return _refused(RecallError(explain(error)), args)
    except OSError as error:
        reason = f"{error.strerror or type(error).__name__} {error.filename or ''}".strip()
        return _refused(RecallError(say("error.system", reason=reason)), args)
    except Exception as error:
        logger.debug("a command failed", exc_info=True)
        return _refused(RecallError(say("error.internal", kind=type(error).__name__)), args)


def _print(told: Told, *, as_json: bool) -> None:
    if as_json:  # a transcript's budget is counted on exactly this form
        _write(json.dumps(told.json, ensure_ascii=False, indent=None if told.compact else 1))
    else:
        _write("\n".join(told.lines))


def _write(answer: str) -> None:
    try:
        print(answer, flush=True)
    except OSError:  # Python tries what is left again at its end, and Python 3.14 ends with 120 for it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def _refused(error: RecallError, args: Mapping[str, Any]) -> int:
    print(one_line(error.message, 600), file=sys.stderr)
    extra = {  # names and titles are data
        name: [{k: one_line(v, 400) if isinstance(v, str) else v for k, v in row.items()} for row in rows]
        for name, rows in error.extra.items()
    }
    for candidate in extra.get("candidates", []):
        print("  " + "  ".join(str(v) for v in candidate.values() if v), file=sys.stderr)
    if args["json"]:
        document = {"success": False, "error": error.code, "message": one_line(error.message, 600), **extra}
        with contextlib.suppress(OSError):  # it is said already, on the other stream
            _write(json.dumps(document, ensure_ascii=False, indent=1))
    return WRONG if isinstance(error, WRONGLY_ASKED) else FAILED


def _home(named: Path | None, profile: str | None, say: Say) -> Path:
    """The home that was named, or the one of the environment; a profile's below it."""
    home = (named or host.hermes_home()).expanduser().absolute()
    if profile is None:
        return home
    root = home.parent.parent if home.parent.name == "profiles" else home
    if profile == "default":
        return root
    there = root / "profiles" / profile
    if Path(profile).name != profile or not there.is_dir():
        folder = root / "profiles"
        known = sorted(p.name for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []
        raise BadArgument(say("error.profile", name=one_line(profile), known=", ".join(["default", *known])))
    return there


@contextlib.contextmanager
def _everything(call: Call) -> Iterator[tuple[Any, Everywhere]]:
    with reading(call.surroundings, status.deadline()) as found:
        yield found


# -- the commands -------------------------------------------------------------


def _status(call: Call) -> Told:
    surroundings = call.surroundings
    index = status.look(surroundings.home, upkeep.model_of(surroundings.settings))
    with _everything(call) as (_, everywhere):
        told = status.gather(
            surroundings,
            everywhere,
            scope.owner(),
            index,
            hermes=people.version(),
            grants=listed_grants(surroundings),
        )
    return Told(told, telling.stands(told, call.say, call.columns))


def _search(call: Call) -> Told:
    args = {name: value for name, value in call.args.items() if name in SEARCH_ARGUMENTS}
    cwd = call.args["cwd"]
    if cwd is None and not (args["project"] or args["session_id"]):
        try:
            cwd = os.getcwd()
        except OSError as error:
            raise BadArgument(call.say("error.cwd")) from error
    elif cwd is not None:
        cwd = os.path.abspath(os.path.expanduser(cwd))

    def ask(given: Mapping[str, Any], cwd: str | None) -> dict[str, Any]:
        return asking.ask(given, call.surroundings, lambda _: scope.owner(), cwd=cwd)

    answer = ask(args, cwd)
    if call.args["open"] is not None:
        number = call.args["open"]
        refusal = call.say("error.open", n=number, count=len(answer["results"]))
        answer = ask(asking.opening(args, answer, number, refusal), None)
    return Told(answer, telling.found(answer, call.say, call.columns))


SEARCH_ARGUMENTS = frozenset(
    {"query", "project", "session_id", "around_message_id", "after", "before", "mode", "limit", "context"}
)


def _sessions(call: Call) -> Told:
    args, home = call.args, call.surroundings.home
    _from_one(call, "limit", 1)
    homes = listing.homes(home) if args["all_profiles"] else [(call.surroundings.profile, home)]
    told = listing.sessions(
        homes,
        lambda at: host.current(home=at),
        project=args["project"],
        query=args["query"],
        limit=args["limit"],
        hidden=args["hidden"],
        archived=args["archived"],
    )
    for problem in told.get("problems", []):
        print(f"{problem['profile']}: {problem['message']}", file=sys.stderr)
    return Told(told, telling.listed(told, call.say, call.columns))


def _show(call: Call) -> Told:
    args = call.args
    with _everything(call) as (state, everywhere):
        told = transcript.show(
            state,
            everywhere,
            args["session_id"],
            max_chars=args["max_chars"],
            max_messages=args["messages"],
            redact=call.surroundings.redact,
        )
    return Told(told, [] if args["json"] else [transcript.markdown(told)], compact=True)


def _from_one(call: Call, name: str, least: int) -> None:
    if call.args[name] < least:
        option = "--" + name.replace("_", "-")
        raise BadArgument(call.say("error.whole", name=option, least=least))


def _index(call: Call) -> Told:
    say, surroundings = call.say, call.surroundings
    if surroundings.settings.embedding_provider == "none":
        raise upkeep.Disabled(say("index.off"))
    if surroundings.redact is None:
        print(say("index.unredacted"), file=sys.stderr)
    bar = Bar(sys.stderr, shutil.get_terminal_size().columns)

    def progress(done: upkeep.Done) -> None:
        share = done.planned / done.conversations if done.conversations else 1.0
        bar.show(share, say("index.progress", done=done.planned, total=done.conversations, have=done.coverage.have))

    try:
        done = upkeep.fill(surroundings, call.project_key, progress)
    finally:
        bar.clear()
    have, owed, abandoned = done.coverage
    waiting = [one_line(name) for name in done.waiting]
    told = {
        "conversations": done.conversations,
        "planned": done.planned,
        "pieces": have,
        "new": done.new,
        "owed": owed,
        "abandoned": abandoned,
        "waiting": waiting,
        "held": done.held,
        "stopped": done.stopped,
    }
    if done.stopped:
        lines = [say("index.stopped", done=done.planned, total=done.conversations, have=have)]
        return Told(told, lines, INTERRUPTED)
    lines = [say("index.done", total=done.conversations, have=have, new=done.new)]
    lines += [say("index.others", owed=owed)] if owed else []
    lines += [say("index.abandoned", count=abandoned)] if abandoned else []
    lines += [say("index.waiting", names=", ".join(waiting))] if waiting else []
    lines += [say("index.held", count=done.held)] if done.held else []
    return Told(told, lines)


def _move(call: Call) -> Told:
    args = call.args
    if args["repair"]:
        if args["session_id"] or args["project"] or args["undo"]:
            raise BadArgument(call.say("error.repair"))
        return _repair(call)
    if not args["session_id"] or bool(args["project"]) == args["undo"]:
        raise BadArgument(call.say("error.move"))
    answer = move.run(args, call.surroundings, lambda _: scope.owner(), _ways(call), dry_run=args["dry_run"])
    return Told(answer, telling.moved(answer, call.say))


def _ways(call: Call) -> move.Ways:
    home = call.surroundings.home
    return move.Ways(host.data_folder(home), surface="command line", child=host.gateway_child(home))


def _repair(call: Call) -> Told:
    """Move the conversations that stand nowhere to where they seem to belong, after one yes for all of them."""
    say = call.say
    with _everything(call) as (state, everywhere):
        found = repair.lost(everywhere, scope.owner())
        titles = state.titles([row.root for row in found])
        rows: list[dict[str, Any]] = [
            {
                "session_id": row.root,
                "title": one_line(titles.get(row.root)),
                "cwd": one_line(row.cwd or row.git_repo_root, 400),
                "candidates": [{"id": ref.id, "name": one_line(ref.name)} for ref in row.candidates],
                "because": row.why,
            }
            for row in found
        ]
    told: dict[str, Any] = {"lost": rows, "moved": [], "failed": []}
    if not rows:
        return Told(told, [say("repair.none")])
    lines = telling.lost(rows, say, call.columns)
    placed = [(row.root, row.target.id) for row in found if row.target]
    if not placed:
        return Told(told, [*lines, say("repair.nothing")])
    if call.args["dry_run"]:
        return Told(told, lines)
    if not call.args["yes"]:
        print("\n".join(lines), file=sys.stderr)
        call.confirmed(say("repair.question", count=len(placed)))
        lines = []
    for root, target in placed:
        wanted = {"session_id": root, "project": target}
        try:
            answer = move.run(wanted, call.surroundings, lambda _: scope.owner(), _ways(call))
        except RecallError as error:
            told["failed"].append({"session_id": root, "error": error.code, "message": one_line(error.message, 600)})
            lines.append(f"{root}: {one_line(error.message, 600)}")
        else:
            told["moved"].append(answer)
            lines += telling.moved(answer, say)
    lines.append(say("repair.result", moved=len(told["moved"]), failed=len(told["failed"])))
    return Told(told, lines, FAILED if told["failed"] else ANSWERED)


def _forget(call: Call) -> Told:
    say = call.say
    with _everything(call) as (_, everywhere):
        named = call.args["project"]
        ref = choose_project(named, scope.owner(), everywhere) if named else None
        key = ref.key if ref else None
        if not store_path(call.surroundings.home).exists():
            return Told({"forgotten": 0}, [say("forget.nothing")])
        what = say("forget.project", name=one_line(ref.name)) if ref else say("forget.everything")
        call.confirmed(say("forget.question", what=what, count=len(upkeep.owned(everywhere, key))))
        count = upkeep.forget(call.surroundings, everywhere, key)
    return Told({"forgotten": count}, [say("forget.done", count=count)])


def _consent(call: Call) -> Told:
    say = call.say
    grants = listed_grants(call.surroundings)
    if call.args["action"] == "list":
        return Told({"grants": grants}, telling.granted(grants, say))
    project = None
    if named := call.args["project"]:
        with _everything(call) as (_, everywhere):
            project = choose_project(named, scope.owner(), everywhere).key
        grants = [grant for grant in grants if grant["project"] == one_line(project, 400)]
    if grants:
        call.confirmed(say("consent.question", count=len(grants)))
    count = revoke_grants(call.surroundings, project)
    return Told({"revoked": count}, [say("consent.revoked", count=count)])


def _doctor(call: Call) -> Told:
    home = call.surroundings.home
    checks = doctor.examine(
        call.surroundings,
        call.say,
        hermes=people.version(),
        config=people.config(home),
        installed=_installed(home),
    )
    told = {"broken": doctor.broken(checks), "checks": [{n: getattr(c, n) for n in c.__slots__} for c in checks]}
    return Told(told, telling.examined(checks, call.say, call.columns), FAILED if told["broken"] else ANSWERED)


def _installed(home: Path) -> bool:
    """Whether the host would find the plugin: in the home's plugins folder, or as an entry point of this Python."""
    if any((home / "plugins").glob(f"**/{host.PLUGIN}/plugin.yaml")):
        return True
    return any(point.name == host.PLUGIN for point in importlib.metadata.entry_points(group="hermes_agent.plugins"))


COMMANDS: Mapping[str, Callable[[Call], Told]] = {
    "status": _status,
    "search": _search,
    "sessions": _sessions,
    "show": _show,
    "index": _index,
    "move": _move,
    "forget": _forget,
    "consent": _consent,
    "doctor": _doctor,
}


# -- grants -------------------------------------------------------------------


def listed_grants(place: agreement.Place) -> list[dict[str, Any]]:
    """What a person agreed to, as JSON has it. `project` is the key that conversations of one project share."""
    return [
        {
            "project": one_line(grant.project, 400),
            "endpoint": grant.endpoint_url,
            "model": one_line(grant.model),
            "since": when(grant.granted_at),
            "conversations": len(grant.conversations),
        }
        for grant in agreement.grants_of(place).listed()
    ]


def revoke_grants(place: agreement.Place, project: str | None) -> int:
    """Withdraw the grants of a project, by that key, or all; how many there were."""
    return agreement.grants_of(place).revoke(project)
