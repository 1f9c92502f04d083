"""A process that gives and revokes the same consent over and over.

    consent_worker.py FOLDER give N     give N times; say how often a grant counted right afterwards
    consent_worker.py FOLDER revoke N   revoke N times; say how many grants that took
    consent_worker.py FOLDER admit N    move N conversations in, `NAME-0` onwards, and say how many were refused

It begins when a line comes in.
"""

from __future__ import annotations

import sys
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = "project_history_recall"
if PACKAGE not in sys.modules:  # run as a script: consent and what it imports, nothing else
    package = sys.modules[PACKAGE] = types.ModuleType(PACKAGE)
    package.__path__ = [str(ROOT)]

from project_history_recall.consent import ConsentWithdrawn, Grants, Key  # noqa: E402

KEY = Key("https://api.example.com/v1", "embed-1", None, "p_atlas", ("w/atlas",))
MACHINE = "a machine"


def main(folder: Path, doing: str, times: int, name: str) -> int:
    grants = Grants(folder, folder / ".cache", MACHINE)
    sys.stdin.readline()
    count = 0
    for number in range(times):
        if doing == "give":
            grants.give(KEY, [f"{name}-{number}"])
            count += grants.load(KEY) is not None
        elif doing == "revoke":
            count += grants.revoke(KEY)
        else:
            try:
                grants.admit(KEY, [f"{name}-{number}"])
            except ConsentWithdrawn:
                count += 1
    return count


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]))
