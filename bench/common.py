"""What the measurements share: the package, the homes made from an evaluation set, and the scores."""

from __future__ import annotations

import hashlib
import importlib
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))  # at the end: the root's own modules must hide nobody's

from demo import hosts  # noqa: E402


def load() -> ModuleType:
    """The plugin's package, with all its modules."""
    package = hosts.load_package()
    for path in ROOT.glob("*.py"):
        if path.stem != "__init__":
            importlib.import_module(f"{package.__name__}.{path.stem}")
    return package


def host() -> hosts.Host:
    """The newest host that runs here."""
    for wanted in reversed(hosts.HOSTS):
        try:
            hosts.environment(wanted)
            return wanted
        except hosts.NoInterpreter:
            continue
    raise SystemExit("no Python here runs any of the hosts")


def evaluation_home(folder: Path, *, one_project: bool) -> Path:
    """A home that holds an evaluation set, written once through the real SessionDB and kept in the cache."""
    content = hashlib.sha256((folder / "sessions.jsonl").read_bytes()).hexdigest()[:12]
    home = hosts.cache_dir() / "bench" / f"{folder.name}{'-all' if one_project else ''}-{content}"
    if not (home / "map.json").exists():
        shutil.rmtree(home, ignore_errors=True)
        home.parent.mkdir(parents=True, exist_ok=True)
        wanted = host()
        script = [str(hosts.environment(wanted)), str(ROOT / "bench" / "build_home.py"), str(folder), str(home)]
        print(f"building {home.name} ...", file=sys.stderr)
        subprocess.run(
            [*script, *(["--one-project"] if one_project else [])],
            env=hosts.child_env(wanted, home),
            check=True,
            capture_output=True,
        )
    return home


def lines(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:  # not splitlines(): texts hold U+2028
        return [json.loads(line) for line in file]


def evaluation_sets(folder: Path) -> list[Path]:
    """The folders of the sets in a folder, by name."""
    return sorted(path for path in folder.iterdir() if (path / "queries.jsonl").exists())


class Difference(NamedTuple):
    """A mean difference, paired by question, and its 95% bootstrap interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


@dataclass(frozen=True, slots=True)
class Ranks:
    """For each query the rank (from 1) of the first right unit, None when it is not on the page."""

    of: list[int | None]

    def any_at(self, k: int) -> float:
        return sum(r is not None and r <= k for r in self.of) / max(1, len(self.of))

    def mrr(self) -> float:
        return sum(1 / r for r in self.of if r) / max(1, len(self.of))

    def figures(self) -> tuple[float, ...]:
        """any@1, any@5, any@10 and MRR."""
        return self.any_at(1), self.any_at(5), self.any_at(10), self.mrr()

    def row(self, between: str = " ") -> str:
        return between.join(f"{value:.3f}" for value in self.figures())
