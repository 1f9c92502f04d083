"""`/project-history COMMAND`: the commands as a person types them into a conversation; short answers, plain text.

A chat that is not the owner's gets what its tool call would get: itself. Where the
host does not say who typed, only help is answered. Nothing is raised into the host.
"""

from __future__ import annotations

import argparse
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from . import agreement, asking, listing, move, status, telling, transcript, upkeep
from .errors import BadArgument, NoSession, NotAllowedHere, RecallError
from .scope import (
    OWNER_SURFACES,
    Caller,
    Everywhere,
    Live,
    Reach,
    choose_project,
    identify,
    owner,
    reading,
    with_conversations,
)
from .search import Surroundings
from .text import one_line
from .words import Say

LONGEST = 1_500  # characters of an answer
MOST_ROWS = 8
READ_CHARS = 4_000  # of a conversation, before it is cut to fit
READING_S = 6.0
BUDGET_S = 1.0  # of indexing within a search: somebody waits before an empty line


@dataclass(frozen=True, slots=True)
class Desk:
    """What the door lends a command.

    `live` is what the host bound to this very call, None where it bound nothing: then it is the owner at a
    desktop or terminal whose conversation nobody names, unless `sender_unknown`. `grants` lists, `revoke`
    takes a project's key (None: all) and returns how many it took back. `typed` says whether a person's
    hand is behind this very call.
    """

    surroundings: Surroundings
    live: Live | None
    sender_unknown: bool
    say: Say
    hermes: str
    ways: Callable[[Live | None], move.Ways]
    grants: Callable[[], list[dict[str, Any]]]
    revoke: Callable[[str | None], int]
    typed: Callable[[], bool] = lambda: False

    def caller(self, everywhere: Everywhere) -> Caller:
        """Who typed, as the tool would identify them. Raises `NoSession`, and `NotAllowedHere` for a webhook."""
        live = self.live
        if live is None:
            return owner()
        if not live.session_id:  # a gateway names the chat only: its newest conversation stands for it
            own = [s.id for s in everywhere.by_id.values() if live.session_key and s.session_key == live.session_key]
            if not own and (live.platform or live.source not in OWNER_SURFACES):
                raise NoSession(self.say("slash.chat.none"))
            live = replace(live, session_id=own[-1] if own else "")
        try:
            caller = identify(live, everywhere, self.surroundings.settings)
        except NoSession:
            if not live.platform and live.source in OWNER_SURFACES:
                return owner()  # a window in which nothing was said yet
            raise
        if caller.reach is Reach.NOTHING:  # a webhook is not even told its own conversation's id
            raise NotAllowedHere(self.say("slash.chat"))
        return caller

    def only_owner(self, everywhere: Everywhere) -> Caller:
        caller = self.caller(everywhere)
        if caller.reach is not Reach.PROFILE:
            raise NotAllowedHere(self.say("slash.chat"))
        return caller

    def safe(self, text: str) -> str:
        redact = self.surroundings.redact
        return one_line(redact(text) if redact and text else text)


@dataclass(frozen=True, slots=True)
class Command:
    """One row of the table: how it is written, what help says, what it does."""

    usage: str
    about: str
    run: Callable[[argparse.Namespace, Desk], str]
    add: Callable[[argparse.ArgumentParser], object] = lambda _: None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadArgument(self.usage or message)


def answer(raw: str, desk: Desk) -> str:
    """The answer to what was typed after `/project-history`, at most `LONGEST` characters."""
    say = desk.say
    if desk.sender_unknown:
        return _cut(f"{say('slash.sender')}\n\n{_help(say)}", say)
    words = _words(raw)
    name = words[0].lower() if words else "help"
    command = COMMANDS.get(name)
    if command is None:
        return _cut(f"{say('slash.unknown', name=one_line(name, 40))}\n{_help(say)}", say)
    usage = say("slash.usage", usage=f"/project-history {command.usage}")
    parser = _Parser(prog=name, usage=usage.replace("%", "%%"), add_help=False, allow_abbrev=False)
    command.add(parser)
    try:
        return _cut(command.run(parser.parse_intermixed_args(words[1:]), desk), say)
    except RecallError as error:
        lines = [one_line(error.message, 600)]
        for row in error.extra.get("candidates", []):
            lines.append("  " + "  ".join(desk.safe(str(value)) for value in row.values() if value))
        return _cut("\n".join(lines), say)


def _words(raw: str) -> list[str]:
    """What was typed, word by word; a double-quoted phrase is one and keeps its quotes.

    Telephones make one dash of two.
    """
    typed = (raw or "").replace("“", '"').replace("”", '"')
    lexer = shlex.shlex(typed, posix=False, punctuation_chars=False)
    lexer.quotes, lexer.commenters, lexer.whitespace_split = '"', "", True
    try:
        words = list(lexer)
    except ValueError:  # a quote that is never closed
        words = typed.split()
    return [f"--{word[1:]}" if word[:1] in "—–" and len(word) > 1 else word for word in words]


def _bare(value: str | None) -> str | None:
    return value.strip('"') if value else None


def _cut(text: str, say: Say) -> str:
    if len(text) <= LONGEST:
        return text
    room = LONGEST - 60
    return text[:room].rstrip() + "\n" + say("slash.more", count=len(text) - room)


def _help(say: Say) -> str:
    rows = "\n".join(f"  {command.usage} · {say(command.about)}" for command in COMMANDS.values())
    return say("slash.help", commands=rows)


# -- the commands ------------------------------------------------------------


def _search(args: argparse.Namespace, desk: Desk) -> str:
    project, session = _bare(args.project), _bare(args.session)
    given = {
        "query": " ".join(args.words),
        "project": project,
        "session_id": session,
        "mode": args.mode,
        "after": args.after,
        "before": args.before,
        "limit": args.limit,
        "context": 0,
    }

    def who(everywhere: Everywhere) -> Caller:
        caller = desk.caller(everywhere)
        if not (caller.acting_id or project or session):
            raise BadArgument(desk.say("slash.which_project", names=_projects(everywhere, caller, desk)))
        return replace(caller, session_id="")  # a person has not all of the conversation in mind, as its agent has

    return "\n".join(telling.brief(asking.ask(given, _Hasty(desk.surroundings), who), desk.say))


class _Hasty:
    """The same surroundings, with less time for the index."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._all = surroundings
        settings = surroundings.settings
        self.settings = replace(settings, index_budget_s=min(BUDGET_S, settings.index_budget_s))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._all, name)


def _projects(everywhere: Everywhere, caller: Caller, desk: Desk) -> str:
    listed = with_conversations(caller, everywhere)
    return ", ".join(desk.safe(str(row["name"])) for row in listed) or desk.say("none")


def _status(_: argparse.Namespace, desk: Desk) -> str:
    with reading(desk.surroundings, time.monotonic() + READING_S) as (_state, everywhere):
        caller = desk.caller(everywhere)
        if caller.reach is not Reach.PROFILE:
            return desk.say("slash.chat.status", count=sum(1 for _ in everywhere.readable(caller)))
        home = desk.surroundings.home
        index = status.look(home, upkeep.model_of(desk.surroundings.settings))
        told = status.gather(
            desk.surroundings, everywhere, caller, index, hermes=desk.hermes, grants=desk.grants()
        )
    return "\n".join(telling.stands(told, desk.say, most=MOST_ROWS))


def _sessions(args: argparse.Namespace, desk: Desk) -> str:
    query = " ".join(word.strip('"') for word in args.words) or None
    project, untitled = _bare(args.project), desk.say("sessions.untitled")
    with reading(desk.surroundings, time.monotonic() + READING_S) as (state, everywhere):
        caller = desk.caller(everywhere)
        if caller.reach is not Reach.PROFILE:
            choose_project(project, caller, everywhere)  # which a chat may not name
            own = listing.own(caller, state, everywhere, query)
            lines = [
                f"{session_id}  {one_line(desk.safe(title), 60) or untitled}" for session_id, title in own[:MOST_ROWS]
            ]
            if len(own) > MOST_ROWS:
                lines.append(desk.say("slash.rows", shown=MOST_ROWS, total=len(own)))
            return "\n".join(lines) or desk.say("sessions.none")
        if project is None and caller.acting_id and everywhere.ref(caller.acting_id).kind != "home":
            project = everywhere.ref(caller.acting_id).id
    told = listing.sessions(
        [(desk.surroundings.profile, desk.surroundings.home)],
        lambda _: desk.surroundings,
        project=project,
        query=query,
        limit=MOST_ROWS,
    )
    lines = []
    for row in told["sessions"]:
        title = desk.safe(row.get("title") or "") or untitled
        name = desk.safe(row["project"]["name"])
        lines.append(f"{row['last']}  {row['session_id']}  {one_line(title, 60)}  ({name})")
    if told["shown"] < told["total"]:
        lines.append(desk.say("slash.rows", shown=told["shown"], total=told["total"]))
    return "\n".join(lines) or desk.say("sessions.none")


def _show(args: argparse.Namespace, desk: Desk) -> str:
    with reading(desk.surroundings, time.monotonic() + READING_S) as (state, everywhere):
        caller = desk.caller(everywhere)
        given = _bare(args.id)
        if given is None:
            if not caller.acting_id:
                raise BadArgument(desk.say("slash.which_to_show"))
            given = caller.acting_id
        read = transcript.show(
            state, everywhere, given, max_chars=READ_CHARS, redact=desk.surroundings.redact, caller=caller
        )
    return "\n".join(telling.excerpt(read, desk.say, LONGEST))


def _move(args: argparse.Namespace, desk: Desk) -> str:
    places = [str(_bare(place)) for place in args.places]
    if args.undo:
        session, project = (places[0] if places else None), None
        fits = len(places) <= 1
    else:
        session, project = (places[0] if len(places) == 2 else None), places[-1] if places else None
        fits = len(places) in (1, 2)
    if not fits:
        raise BadArgument(desk.say("slash.usage", usage=f"/project-history {COMMANDS['move'].usage}"))

    def who(everywhere: Everywhere) -> Caller:
        caller = desk.caller(everywhere)
        if session is None and not caller.acting_id:
            raise BadArgument(desk.say("slash.which_session"))
        return caller

    task = ""
    with reading(desk.surroundings, time.monotonic() + READING_S) as (_state, everywhere):
        task = who(everywhere).session_id
    given = {"session_id": session, "project": project, "undo": args.undo}
    moved = move.run(given, desk.surroundings, who, desk.ways(desk.live), task=task)
    return "\n".join(telling.moved(moved, desk.say))


def _forget(args: argparse.Namespace, desk: Desk) -> str:
    if bool(args.project) == args.all:
        raise BadArgument(desk.say("slash.usage", usage=f"/project-history {COMMANDS['forget'].usage}"))
    with reading(desk.surroundings, time.monotonic() + READING_S) as (_state, everywhere):
        caller = desk.only_owner(everywhere)
        ref = choose_project(_bare(args.project), caller, everywhere) if args.project else None
        key, say = (ref.key if ref else None), desk.say
        what = say("forget.project", name=desk.safe(ref.name)) if ref else say("forget.everything")
        if not args.yes:
            count = len(upkeep.owned(everywhere, key))
            return say("slash.confirm", question=say("forget.question", what=what, count=count))
        dropped = upkeep.forget(desk.surroundings, everywhere, key)
    return say("forget.done", count=dropped) if dropped else say("forget.nothing")


def _consent(args: argparse.Namespace, desk: Desk) -> str:
    say = desk.say
    with reading(desk.surroundings, time.monotonic() + READING_S) as (_state, everywhere):
        caller = desk.only_owner(everywhere)
        ref = choose_project(_bare(args.project), caller, everywhere) if args.project else None
    if args.action == "list":
        return "\n".join(telling.granted(desk.grants(), say))
    if ref is None and not args.all:
        raise BadArgument(say("slash.usage", usage=f"/project-history {COMMANDS['consent'].usage}"))
    # It takes away what may be sent, so nobody is asked twice.
    return say("consent.revoked", count=desk.revoke(ref.key if ref else None))


def _allow(args: argparse.Namespace, desk: Desk) -> str:
    """A person's own yes to one request: the id of an answer, typed at an owner's surface."""
    say, surroundings = desk.say, desk.surroundings
    with reading(surroundings, time.monotonic() + READING_S) as (state, everywhere):
        caller = desk.only_owner(everywhere)
        if caller.session_id != caller.acting_id or not desk.typed():
            raise NotAllowedHere(say("allow.nobody"))
        endpoint = surroundings.settings.endpoint
        if endpoint is None:
            raise BadArgument(" ".join(surroundings.settings.problems) or say("allow.no_endpoint"))
        grants = agreement.grants_of(surroundings)
        wanted = agreement.requests(endpoint, grants, everywhere)
        request = next((one for one in wanted if one.id == args.id.strip().lower()), None)
        if request is None:
            raise BadArgument(say("allow.unknown", id=one_line(args.id, 40)))
        covered = agreement.measure(request, state, everywhere)
        request.give(grants, everywhere)
    counts = {"messages": sum(f.messages for f in covered), "characters": sum(f.characters for f in covered)}
    name, host = desk.safe(request.project.name), one_line(endpoint.host)
    return say("allow.done", name=name, host=host, count=len(request.roots), **counts)


# -- the table ----------------------------------------------------------------


def _add_search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="+")
    for name in ("--project", "--session", "--mode", "--after", "--before"):
        parser.add_argument(name)
    parser.add_argument("--limit", default="5")


def _add_sessions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*")
    parser.add_argument("--project")


def _add_move(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("places", nargs="*")
    parser.add_argument("--undo", action="store_true")


def _add_forget(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--project")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--yes", action="store_true")


def _add_consent(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=("list", "revoke"), default="list")
    parser.add_argument("--project")
    parser.add_argument("--all", action="store_true")


def _tell_help(_: argparse.Namespace, desk: Desk) -> str:
    return _help(desk.say)


COMMANDS: Mapping[str, Command] = {
    "search": Command("search WORDS [--project P] [--session ID] [--after 7d]", "slash.search", _search, _add_search),
    "status": Command("status", "slash.status", _status),
    "sessions": Command("sessions [WORDS] [--project P]", "slash.sessions", _sessions, _add_sessions),
    "show": Command("show ID", "slash.show", _show, lambda parser: parser.add_argument("id", nargs="?")),
    "move": Command("move [ID] PROJECT | move [ID] --undo", "slash.move", _move, _add_move),
    "forget": Command("forget --project P | --all", "slash.forget", _forget, _add_forget),
    "consent": Command("consent list | revoke --project P | --all", "slash.consent", _consent, _add_consent),
    "allow": Command("allow REQUEST_ID", "slash.allow", _allow, lambda parser: parser.add_argument("id")),
    "help": Command("help", "slash.help.line", _tell_help),
}
