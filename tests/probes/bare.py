"""Import the plugin's folder and register it in a fresh interpreter; report the modules that brought in."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import probing


class Context:
    """Takes every registration, as a host would, and does nothing with it."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


folder = Path(sys.argv[1])
before = set(sys.modules)
spec = importlib.util.spec_from_file_location(
    "project_history_recall", folder / "__init__.py", submodule_search_locations=[str(folder)]
)
assert spec
assert spec.loader
module = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = module
spec.loader.exec_module(module)
module.register(Context())
probing.report(added=sorted(set(sys.modules) - before))
