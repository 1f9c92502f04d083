"""How long a host takes to load the plugin, beside an empty plugin that registers two tools.

    python bench/loading.py [--rounds 15]

Each host, each time in a new process: `discover_plugins()` in a home with the one, with the other, and with none,
in turn. The host's own part is in both, as a person waits for it; `own` is without it. What a command's registration
has the host import is imported before, as any command line of it has. Medians in ms of CPU, bytecode warm.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import common  # noqa: F401  (so that `demo` is found)

from demo import hosts

EMPTY = '''"""Nothing."""


def handle(args, **kwargs):
    return "{}"


def register(ctx):
    for name in ("empty_one", "empty_two"):
        schema = {"name": name, "description": name, "parameters": {"type": "object", "properties": {}}}
        ctx.register_tool(name=name, toolset="project", schema=schema, handler=handle)
'''
MANIFEST = """name: empty
version: 0.1.0
kind: standalone
description: Nothing.
provides_tools: [empty_one, empty_two]
"""
TIMED = """
import json, sys, time
import hermes_cli.commands
from hermes_cli.plugins import discover_plugins, get_plugin_manager
began = time.process_time()
discover_plugins()
took = 1000 * (time.process_time() - began)
loaded = [p["name"] for p in get_plugin_manager().list_plugins() if p.get("enabled")]
print("\\n" + json.dumps([took, sys.argv[1] in loaded]))
"""


class Row(NamedTuple):
    """One host, medians in ms."""

    host: str
    none: float
    empty: float
    ours: float

    @property
    def ratio(self) -> float:
        return self.ours / self.empty


def measure(rounds: int) -> Iterator[Row]:
    for host in hosts.HOSTS:
        try:
            hosts.environment(host)
        except hosts.NoInterpreter:
            continue
        with tempfile.TemporaryDirectory(prefix="loading-") as folder:
            homes = {name: Path(folder) / name / "home" for name in ("none", "empty", hosts.PLUGIN)}
            for home in homes.values():
                home.mkdir(parents=True)
            hosts.install_plugin(homes[hosts.PLUGIN])
            empty = homes["empty"] / "plugins" / "empty"
            empty.mkdir(parents=True)
            (empty / "__init__.py").write_text(EMPTY, encoding="utf-8")
            (empty / "plugin.yaml").write_text(MANIFEST, encoding="utf-8")
            (homes["empty"] / "config.yaml").write_text("plugins: {enabled: [empty]}\n", encoding="utf-8")
            took: dict[str, list[float]] = {name: [] for name in homes}
            for _ in range(rounds + 1):
                for name, home in homes.items():
                    took[name].append(one(host, home, name))
            yield Row(host.name, *(statistics.median(times[1:]) for times in took.values()))


def one(host: hosts.Host, home: Path, name: str) -> float:
    # The bytecode is kept, as it is for a person: in a folder of the home.
    env = hosts.child_env(host, home, PYTHONPYCACHEPREFIX=str(home.parent / "bytecode"), PYTHONDONTWRITEBYTECODE="")
    done = subprocess.run(
        [str(hosts.environment(host)), "-c", TIMED, name], env=env, cwd=home, capture_output=True, text=True, check=True
    )
    took, loaded = json.loads(done.stdout.strip().splitlines()[-1])
    if loaded != (name != "none"):
        raise SystemExit(f"Hermes {host.name} did not load {name}:\n{done.stderr}")
    return float(took)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=15)
    args = options.parse_args()
    print("host    none   empty    ours   ratio   own: empty  ours")
    for row in measure(args.rounds):
        own = f"{row.empty - row.none:10.1f} {row.ours - row.none:5.1f}"
        print(f"{row.host:6} {row.none:6.1f} {row.empty:7.1f} {row.ours:7.1f} {row.ratio:7.2f} {own}")


if __name__ == "__main__":
    main()
