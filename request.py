"""The arguments of `project_history_search`, as a model or a person sends them, parsed once at the rim."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from .errors import BadArgument, BadTime, EmptyQuery

MODES = ("hybrid", "keyword", "semantic")
LIMIT = (1, 6, 20)  # least, default, most
CONTEXT = (0, 1, 5)


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of `project_history_search`, parsed. Times are epoch seconds, `after` inclusive."""

    query: str
    mode: str = "hybrid"
    limit: int = LIMIT[1]
    context: int = CONTEXT[1]
    around: int | None = None
    project: str | None = None
    session: str | None = None
    exclude: tuple[str, ...] = ()
    after: float | None = None
    before: float | None = None
    ask_consent: bool = False

    @classmethod
    def parse(cls, args: Mapping[str, Any], now: datetime | None = None) -> Request:
        """Read what a model or a person sent. Raises `BadArgument`, `BadTime` or `EmptyQuery`."""
        now = now or datetime.now().astimezone()
        around = _message_id(args.get("around_message_id"))
        query = string(args, "query") or ""
        session = string(args, "session_id")
        if around is None and not query and session:
            around = cited(session)
        if around is None and not query:
            raise EmptyQuery("Say what to look for in `query`: a question, a symbol, a path or an error code.")
        mode = (string(args, "mode") or "hybrid").lower()
        if mode not in MODES:
            raise BadArgument(f"`mode` is one of {', '.join(MODES)}.")
        after, before = (_instant(string(args, name), name, now) for name in ("after", "before"))
        if after is not None and before is not None and after >= before:
            raise BadTime("`after` is not earlier than `before`: no message lies between them.")
        excluded = args.get("exclude_session_ids") or []
        if isinstance(excluded, str):
            excluded = re.split(r"[\s,]+", excluded)
        if not isinstance(excluded, list | tuple):
            raise BadArgument("`exclude_session_ids` is a list of conversation ids.")
        return cls(
            query=query,
            mode=mode,
            limit=_whole(args, "limit", LIMIT),
            context=_whole(args, "context", CONTEXT),
            around=around,
            project=string(args, "project"),
            session=session,
            exclude=tuple(filter(None, (_written(e, "exclude_session_ids").strip() for e in excluded))),
            after=after,
            before=before,
            ask_consent=flag(args, "ask_semantic_consent"),
        )


def cited(session: str) -> int | None:
    """The message that `ID#message` names; None where only a conversation is named."""
    named = re.fullmatch(r".+#([0-9]{1,18})", session.strip(), re.S)
    return int(named.group(1)) if named else None


def string(args: Mapping[str, Any], name: str) -> str | None:
    """An argument of words, without the space around it; None where there are none. Raises `BadArgument`."""
    value = args.get(name)
    if value is None:
        return None
    if isinstance(value, bool | list | dict):
        raise BadArgument(f"`{name}` is a string.")
    return _written(value, name).strip() or None


def flag(args: Mapping[str, Any], name: str) -> bool:
    """An argument that is said only when it is true: whatever else stands there is not."""
    value = args.get(name)
    if isinstance(value, str):
        return value.strip().lower() in ("true", "1", "yes")
    return isinstance(value, int | float) and value == 1  # True is 1


def _written(value: Any, name: str) -> str:
    try:
        return str(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, a list in a list in a list
        raise BadArgument(f"`{name}` cannot be read.") from None


def _whole(args: Mapping[str, Any], name: str, bounds: tuple[int, int, int]) -> int:
    least, default, most = bounds
    value = args.get(name)
    if value is None or value == "":
        return default
    try:
        if isinstance(value, bool):
            raise ValueError
        number = value if isinstance(value, int) else float(value)
        if number != number:  # NaN
            raise ValueError
    except (TypeError, ValueError):
        raise BadArgument(f"`{name}` is a whole number from {least} to {most}.") from None
    return int(min(most, max(least, number)))


def _message_id(value: Any) -> int | None:
    if value is None or value == "":
        return None
    digits = _written(value, "around_message_id").rpartition("#")[2].strip()
    if isinstance(value, bool) or not re.fullmatch(r"[0-9]{1,18}(\.0)?", digits):
        raise BadArgument("`around_message_id` is the `message_id` of a hit or of a message in its context.")
    return int(float(digits)) if "." in digits else int(digits)


def _instant(value: str | None, name: str, now: datetime) -> float | None:
    """Epoch seconds of an ISO date or date-time (local where no zone is given) or an age like 24h."""
    if value is None:
        return None
    age = re.fullmatch(r"(\d{1,6})\s*([hdw])", value.lower())
    try:
        if age:
            hours = int(age.group(1)) * {"h": 1, "d": 24, "w": 168}[age.group(2)]
            return (now - timedelta(hours=hours)).timestamp()
        moment = datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=None).astimezone()).timestamp()
    except (ValueError, OverflowError, OSError):
        raise BadTime(
            f"`{name}` is an ISO date or date-time such as 2026-09-01 or 2026-09-01T14:30,"
            " or an age such as 24h, 7d, 2w."
        ) from None
