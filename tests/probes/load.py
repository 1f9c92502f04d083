"""Load the plugin with the host's own manager; report what the host says of it and what loading touched."""

from __future__ import annotations

import sys
import threading

import probing

WATCHED = {
    "open",
    "os.listdir",
    "os.mkdir",
    "os.scandir",
    "os.system",
    "socket.__new__",
    "socket.getaddrinfo",
    "sqlite3.connect",
    "subprocess.Popen",
}
PACKAGES = ("hermes_plugins.project_history_recall", "project_history_recall")
touched: list[str] = []


def note(event: str, first: object = None) -> None:
    """Write `event` down if it happens below a frame of the plugin and is not Python reading a module."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__") or ""
        if name.endswith("_bootstrap_external"):
            return
        if name.startswith(PACKAGES):
            touched.append(f"{event} {first!r} in {name}")
            return
        frame = frame.f_back  # type: ignore[assignment]


def start(thread: threading.Thread) -> None:
    note("thread", thread.name)
    start_thread(thread)


start_thread = threading.Thread.start
setattr(threading.Thread, "start", start)  # noqa: B010  (3.11 has no audit event for it)
sys.addaudithook(lambda event, args: note(event, *args[:1]) if event in WATCHED else None)
said = probing.load()

from tools.registry import registry  # noqa: E402  (only now: loading comes first)

tools = {}
for name in registry.get_all_tool_names():
    entry = registry.get_entry(name)
    if entry.handler.__module__.startswith(PACKAGES):
        tools[name] = {"toolset": entry.toolset, "schema": entry.schema}
packages = [module for name, module in sys.modules.items() if name in PACKAGES]
probing.report(said=said, touched=touched, tools=tools, files=[module.__file__ for module in packages])
