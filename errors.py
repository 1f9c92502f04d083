"""Everything that can go wrong with a request, each with the code its answer carries.

A `RecallError` is raised anywhere below the tool handlers and becomes
`{"success": false, "error": code, "message": ...}` there; its message tells the
caller what to do. Nothing is raised into the host.

    RecallError
    |-- BadArgument        an argument cannot be read as what it should be
    |-- EmptyQuery         nothing to search for
    |-- BadTime            `after` or `before` is no time
    |-- HomeNotSearched    Home was named as the project to search
    |-- UnknownProject     no project of this profile has that id, slug, name or path
    |-- AmbiguousProject   several have that name
    |-- NoSession          the host did not say which conversation calls
    |-- UnknownSession     no conversation the caller may read has that id
    |-- AmbiguousSession   several begin with it
    |-- NotInProject       it exists, in another project
    `-- StateUnreadable    state.db cannot be read
"""

from __future__ import annotations

from typing import Any


class RecallError(Exception):
    """A request that cannot be answered. `extra` joins the answer as it is (candidates, say)."""

    code = "internal_error"

    def __init__(self, message: str, **extra: Any) -> None:
        super().__init__(message)
        self.message = message
        self.extra = extra


class BadArgument(RecallError):
    code = "bad_argument"


class EmptyQuery(RecallError):
    code = "empty_query"


class BadTime(RecallError):
    code = "bad_time"


class HomeNotSearched(RecallError):
    code = "home_not_searched"


class UnknownProject(RecallError):
    code = "unknown_project"


class AmbiguousProject(RecallError):
    code = "ambiguous_project"


class NoSession(RecallError):
    code = "no_session"


class UnknownSession(RecallError):
    code = "unknown_session"


class AmbiguousSession(RecallError):
    code = "ambiguous_session"


class NotInProject(RecallError):
    code = "not_in_project"


class StateUnreadable(RecallError):
    code = "state_unreadable"
