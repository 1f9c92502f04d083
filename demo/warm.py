"""Run by a host's python, in a project's folder: search until everything in it can be found by meaning.

A home that has been in use for a while is indexed already, in the background of earlier searches; the demo's
is a minute old. Prints the status it ends with.
"""

from __future__ import annotations

import importlib
import os
import time
from pathlib import Path

import hosts

PATIENCE_S = 120.0


def main() -> None:
    name = hosts.load_package(Path(os.environ["HERMES_HOME"]) / "plugins" / hosts.PLUGIN).__name__
    search, host, scope = (importlib.import_module(f"{name}.{module}") for module in ("search", "host", "scope"))
    until, status = time.monotonic() + PATIENCE_S, ""
    while status not in ("ready", "unavailable", "disabled") and time.monotonic() < until:
        answer = search.run({"query": "everything"}, host.current(), lambda _: scope.owner(), cwd=os.getcwd())
        status = answer["semantic_status"]
    print(status)


if __name__ == "__main__":
    main()
