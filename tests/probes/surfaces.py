"""Report what a model is shown on each surface: its toolsets, its tools, and what the catalogue lists."""

from __future__ import annotations

from typing import Any

import probing

MESSAGING = ("cli", "telegram", "discord", "slack", "cron", "acp", "api_server", "webhook")

probing.load()

from hermes_cli.config import load_config  # noqa: E402  (after the plugins, as in a running host)
from hermes_cli.tools_config import _get_platform_tools  # noqa: E402
from model_tools import get_tool_definitions  # noqa: E402
from tui_gateway.server import _load_enabled_toolsets  # noqa: E402


def shown(toolsets: Any) -> dict[str, Any]:
    definitions = [d["function"] for d in get_tool_definitions(enabled_toolsets=toolsets, quiet_mode=True)]
    catalogue = next((d["description"] for d in definitions if d["name"] == "tool_search"), "")
    return {
        "toolsets": toolsets,
        "tools": [d["name"] for d in definitions],
        "listed": catalogue.splitlines(),
    }


surfaces = {p: shown(sorted(_get_platform_tools(load_config(), p))) for p in MESSAGING}
for client in ("desktop", "tui"):
    # 0.19 resolves the surface itself and takes no argument.
    wanted = (client,) if _load_enabled_toolsets.__code__.co_argcount else ()
    surfaces[client] = shown(_load_enabled_toolsets(*wanted))
probing.report(surfaces=surfaces)
