"""Call the tool for two profiles in one process, turn about, and report what each found."""

from __future__ import annotations

import sys
from pathlib import Path

import probing
from hermes_constants import reset_hermes_home_override, set_hermes_home_override

workspace = Path(sys.argv[1])
homes = {"default": probing.HOME, "p2": probing.HOME / "profiles" / "p2"}
for name, home in homes.items():
    folder = workspace / "alpha"
    probing.remember(
        home,
        {
            f"{name}_past": (folder, f"The zebra of {name} is striped."),
            f"{name}_now": (folder, "Where were we?"),
        },
    )

found = []
for name in ("default", "p2", "default", "p2"):
    token = set_hermes_home_override(str(homes[name]))
    try:
        probing.load()  # 0.20 and 0.22 keep one manager for each home
        now = f"{name}_now"
        found.append(
            [name, probing.dispatch({"query": "zebra"}, task_id=now, session_id=now, user_task=None)]
        )
    finally:
        reset_hermes_home_override(token)
probing.report(found=found)
