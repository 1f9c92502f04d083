"""Type the slash command in direct chats, through the gateway's own handling of a message.

Arguments: ID=USER for a past conversation with that user, then what is typed and by whom, in turn. Reports the
answers, and the entries of the menus that the gateway shows.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from typing import Any

import probing

probing.load()

from gateway import run as gateway_run  # noqa: E402  (after the plugins, as in a running host)
from gateway.config import GatewayConfig, Platform  # noqa: E402
from gateway.platforms.base import MessageEvent  # noqa: E402
from gateway.session import SessionSource  # noqa: E402
from hermes_cli.commands import _iter_plugin_command_entries  # noqa: E402
from hermes_state import SessionDB  # noqa: E402


async def typed(runner: Any, text: str, user: str) -> Any:
    source = SessionSource(platform=Platform.TELEGRAM, chat_id=user, chat_type="dm", user_id=user, user_name="Ada")
    return await runner._handle_message(MessageEvent(text=text, source=source))


async def type_all(runner: Any, typed_by: list[str]) -> list[Any]:
    return [await typed(runner, text, user) for text, user in zip(typed_by[::2], typed_by[1::2], strict=True)]


session_id, _, user = sys.argv[1].partition("=")
runner = gateway_run.GatewayRunner(GatewayConfig())
runner._is_user_authorized = lambda *_, **__: True
source = SessionSource(platform=Platform.TELEGRAM, chat_id=user, chat_type="dm", user_id=user)
db = SessionDB(probing.HOME / "state.db")
db.create_session(session_id, source="telegram", user_id=user)
db.append_message(session_id, "user", content="The owl 7431 of a chat.")
db.close()
with sqlite3.connect(probing.HOME / "state.db") as raw:
    key = runner._session_key_for_source(source)
    raw.execute("UPDATE sessions SET session_key = ?, chat_type = 'dm' WHERE id = ?", (key, session_id))
raw.close()
answers = asyncio.run(type_all(runner, sys.argv[2:]))
probing.report(answers=answers, listed=[list(entry) for entry in _iter_plugin_command_entries()])
