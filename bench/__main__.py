"""Every number of the project beside its bar, from one run: a report with pictures. `python3 bench EVAL_FOLDER`

Writes bench/report/ (README.md and the pictures). Needs Python 3.11 or newer and git: the tools are installed once,
into the cache folder, where also the homes are kept that are measured. EVAL_FOLDER holds the evaluation sets (see
quality.py); without it the rows of quality are left out. The first run builds homes of up to a million messages and
embeds parts of them: about an hour; later ones take some 25 minutes. Leave the machine alone meanwhile.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))  # at the end: the root's own modules must hide nobody's

from demo import hosts  # noqa: E402

PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def main() -> int:
    project = hosts.project()
    extras = project["optional-dependencies"]
    python = hosts.venv("bench", hosts.find_python(PYTHONS), [*project["dependencies"], *extras["bench"]])
    env = os.environ | {"PYTHONPYCACHEPREFIX": str(hosts.cache_dir() / "bench" / "bytecode"), "MPLBACKEND": "Agg"}
    return subprocess.run([str(python), str(HERE / "report.py"), *sys.argv[1:]], env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
