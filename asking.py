"""A search as people ask for it: a conversation stands for its project, and a hit can be opened."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from . import search
from .errors import BadArgument
from .scope import Caller, Everywhere, Reach, choose_session, reading

Identify = Callable[[Everywhere], Caller]


def ask(
    args: Mapping[str, Any], surroundings: search.Surroundings, identify: Identify, *, cwd: str | None = None
) -> dict[str, Any]:
    """The tool's answer. Without a named project, a named conversation is searched where it belongs."""
    given = dict(args)
    if given.get("session_id") and not given.get("project"):
        owner = _owner_of(str(given["session_id"]), surroundings, identify)
        if owner:
            given["project"], cwd = owner, None
    return search.run(given, surroundings, identify, cwd=cwd)


def _owner_of(session: str, surroundings: search.Surroundings, identify: Identify) -> str:
    """The project that a conversation belongs to, as an argument names it; "" for Home, and for a chat's own."""
    with reading(surroundings, time.monotonic() + search.DEADLINE_S) as (state, everywhere):
        caller = identify(everywhere)
        ref = everywhere.ref(choose_session(session, caller, everywhere, state.titles))
        if caller.reach is not Reach.PROFILE:
            return ""
        own = caller.acting_id and everywhere.ref(caller.acting_id).key == ref.key
        return "" if own else ref.id


def opening(args: Mapping[str, Any], answer: Mapping[str, Any], number: int, refusal: str) -> dict[str, Any]:
    """The arguments that read on around hit `number` (from 1) of an answer. Raises BadArgument with `refusal`."""
    hits = answer["results"]
    if not 1 <= number <= len(hits):
        raise BadArgument(refusal)
    project = answer["project"]
    kept = {name: args[name] for name in ("query",) if args.get(name)}
    around = {"around_message_id": hits[number - 1]["message_id"]}
    return {**kept, **around, "project": project["id"]}
