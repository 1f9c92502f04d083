"""What the host knows of the people around the agent: their language, its version, who typed a command."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from . import host


def language(home: Path | None = None) -> str:
    """The tag of the language to speak: the host's setting, else config.yaml's or the system's without Hermes."""
    get = host._probe("agent.i18n", "get_language")
    if get is not None:
        with contextlib.suppress(Exception):
            return str(get() or "en")
    if named := os.environ.get("HERMES_LANGUAGE", "").strip():
        return named
    display = host._yaml((home or host.hermes_home()) / "config.yaml")
    display = display.get("display") if isinstance(display, Mapping) else None
    if isinstance(display, Mapping) and isinstance(display.get("language"), str):
        return str(display["language"])
    return next((os.environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if os.environ.get(name)), "en")


def version() -> str:
    """The host's version; "" without Hermes."""
    return str(host._probe("hermes_cli", "__version__") or "")


def config(home: Path) -> Mapping[str, Any]:
    """A home's config.yaml as it stands; empty when it cannot be read."""
    read = host._yaml(home / "config.yaml")
    return read if isinstance(read, Mapping) else {}


@contextlib.contextmanager
def at_home(home: Path) -> Iterator[None]:
    """Let the host read everything of this home meanwhile: its settings, its language, its redactor's."""
    override = host._probe("hermes_constants", "set_hermes_home_override")
    reset = host._probe("hermes_constants", "reset_hermes_home_override")
    if override is not None and reset is not None:
        token = override(str(home))
        try:
            yield
        finally:
            reset(token)
        return
    before = os.environ.get("HERMES_HOME")
    os.environ["HERMES_HOME"] = str(home)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("HERMES_HOME", None)
        else:
            os.environ["HERMES_HOME"] = before


def session_is_bound() -> bool:
    """Whether the host bound a session to this very call, rather than to the process long ago."""
    names = ("HERMES_SESSION_KEY", "HERMES_SESSION_PLATFORM")
    bound = [value for variable, value in contextvars.copy_context().items() if variable.name in names]
    return any(isinstance(value, str) and value for value in bound)


def bound_home(home: Path) -> Path:
    """The home of the profile that the host bound to this call; `home` where it bound none or has no such folder."""
    get = host._probe("gateway.session_context", "get_session_env")
    name = (get("HERMES_SESSION_PROFILE", "") or "").strip() if get is not None else ""
    root = home.parent.parent if home.parent.name == "profiles" else home
    if not name or name == (host.profile_name(home) or "default"):
        return home
    if name == "default":
        return root
    there = root / "profiles" / name
    return there if Path(name).name == name and there.is_dir() else home


def sender_unknown() -> bool:
    """Whether a slash command may come from a chat whose sender the host does not tell; when in doubt, it may.

    0.19 and 0.20 call a plugin's command on the messaging gateway's own event loop and bind nothing: what is
    bound there is of another message. Their TUI and CLI call it from a thread without a loop, and no gateway's
    runner lives in that process. 0.22 binds the sender, and calls from a thread.
    """
    with contextlib.suppress(RuntimeError):
        asyncio.get_running_loop()
        return True
    if session_is_bound():
        return False
    gateway = sys.modules.get("gateway.run")
    if gateway is None:
        return os.environ.get("_HERMES_GATEWAY") == "1"
    runner = getattr(gateway, "_gateway_runner_ref", None)
    return not callable(runner) or runner() is not None
