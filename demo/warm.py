"""Run by a host's python, in a project's folder: search until everything in it can be found by meaning.

A home that has been in use for a while is indexed already, in the background of earlier searches; the demo's
is a minute old. Prints the status it ends with.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from pathlib import Path

PACKAGE = "project_history_recall"
PATIENCE_S = 120.0


def main() -> None:
    folder = Path(os.environ["HERMES_HOME"]) / "plugins" / "project-history-recall"
    spec = importlib.util.spec_from_file_location(
        PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = package
    spec.loader.exec_module(package)
    until, status = time.monotonic() + PATIENCE_S, ""
    while status not in ("ready", "unavailable", "disabled") and time.monotonic() < until:
        answer = package.search.run(
            {"query": "everything"}, package.host.current(), lambda _: package.scope.owner(), cwd=os.getcwd()
        )
        status = answer["semantic_status"]
    print(status)


if __name__ == "__main__":
    main()
