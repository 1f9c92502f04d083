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
    |-- StateUnreadable    state.db cannot be read
    |-- UnsupportedHere    this host or surface cannot move that conversation honestly
    |-- NotAllowedHere     chats, webhooks, scheduled runs and subagents move nothing
    |-- AmbiguousFolder    the target's folder is another project's
    |-- ProjectHasNoFolder the target has no folder to move to
    |-- FolderMissing      its folder is not on this machine
    |-- AlreadyThere       the conversation is in that project
    |-- NothingToUndo      no move of it is in the journal
    |-- CannotUndo         it is no longer where that move put it, or its old folder is gone
    |-- NotConfirmed       a move into a project whose texts may be sent away needs a person's yes
    `-- MoveFailed         the host did not move it, or the row read back says otherwise
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


class UnsupportedHere(RecallError):
    code = "unsupported_here"


class NotAllowedHere(RecallError):
    code = "not_allowed_here"


class AmbiguousFolder(RecallError):
    code = "ambiguous_folder"


class ProjectHasNoFolder(RecallError):
    code = "project_has_no_folder"


class FolderMissing(RecallError):
    code = "folder_missing"


class AlreadyThere(RecallError):
    code = "already_there"


class NothingToUndo(RecallError):
    code = "nothing_to_undo"


class CannotUndo(RecallError):
    code = "cannot_undo"


class NotConfirmed(RecallError):
    code = "not_confirmed"


class MoveFailed(RecallError):
    code = "move_failed"
