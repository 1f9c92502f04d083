"""A lock that a forked child finds open: the thread that held it in the parent is not there to let go of it.

Python copies a held lock into the child as held, and whoever asks for it there waits for ever.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from types import TracebackType

_all: weakref.WeakSet[ForkLock] = weakref.WeakSet()


class ForkLock:
    """`with lock:`, as of `threading.Lock`, for state that is whole whenever another thread may fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _all.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(RuntimeError):  # renewed while it was held: this is the child that forked inside
            self._lock.release()

    def renew(self) -> None:
        """Open, whoever held it."""
        self._lock = threading.Lock()


def _renew_all() -> None:
    for lock in list(_all):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
