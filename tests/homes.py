"""Real homes: filled by a host, attributed by that host, and asked through the host's own registry."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from demo import hosts

Probe = Callable[..., dict[str, Any]]
Answer = dict[str, Any]

PROBES = Path(__file__).resolve().parent / "probes"


@dataclass(frozen=True, slots=True)
class Conversation:
    """One row of `sessions`. `project` is "explicit:ID", "auto:PATH" or "home:"; `chat` what the gateway binds."""

    name: str
    id: str
    project: str
    words: tuple[str, ...]
    chat: dict[str, str] | None


@dataclass(frozen=True, slots=True)
class Home:
    """A filled HERMES_HOME. `rows` is its highest message id, `owners` what the host's sidebar says of each session."""

    path: Path
    conversations: dict[str, Conversation]
    rows: int
    owners: dict[str, str]

    def __getitem__(self, name: str) -> Conversation:
        return self.conversations[name]

    @property
    def callers(self) -> list[Conversation]:
        """One owner's conversation in each project, Home among them."""
        return [c for c in self.conversations.values() if c.name.startswith("caller ")]

    def words(self, *beginnings: str) -> list[str]:
        """Every word of a conversation that begins so, once."""
        said = dict.fromkeys(word for c in self.conversations.values() for word in c.words)
        return [word for word in said if word.startswith(beginnings)]

    def saying(self, word: str) -> list[Conversation]:
        return [c for c in self.conversations.values() if word in c.words]


FOUND = ("needle-", "针脚")
TOOL_OUTPUT = ("output-",)
NEVER = ("hidden-", "暗号", "sk-")


def make(probe: Probe, path: Path, workspace: Path, what: str = "everything") -> Home:
    """Fill the home at `path`, and ask the sidebar of the same host about it."""
    path.mkdir(parents=True, exist_ok=True)
    filled = probe("make_home", path, workspace, what)
    conversations = {
        name: Conversation(name, row["id"], row["project"], tuple(row["words"]), row["chat"])
        for name, row in filled["made"].items()
    }
    return Home(path, conversations, filled["rows"], probe("oracle", path)["owners"])


# --- asking -----------------------------------------------------------------------------------------


class Agent:
    """The tool in a running process of a host."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin
        assert process.stdout
        self._in: IO[str] = process.stdin
        self._out: IO[str] = process.stdout
        self.calls = 0

    def ask(self, session_id: str | None, binding: dict[str, Any] | None = None, /, **args: Any) -> Answer:
        """The answer to a call with `args` from a conversation; `binding` is what `serve` takes beside them."""
        self.calls += 1
        raw = self._exchange({"session_id": session_id, "args": args} | (binding or {}))
        answer: Answer = json.loads(raw["answer"])
        return answer

    def _exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        self._in.write(json.dumps(request) + "\n")
        self._in.flush()
        return self.heard()

    def heard(self) -> dict[str, Any]:
        """The next line that the probe reports; what a host prints beside it is passed over."""
        for line in self._out:
            if line.startswith("{"):
                said: dict[str, Any] = json.loads(line)
                return said
        raise AssertionError("the process of the host ended")


@contextmanager
def agent(host: hosts.Host, home: Path, errors: Path) -> Iterator[Agent]:
    """A process of `host` with the plugin loaded from `home`; what it prints goes to the file `errors`."""
    with errors.open("w") as printed:
        process = subprocess.Popen(
            [str(hosts.environment(host)), str(PROBES / "serve.py")],
            env=hosts.child_env(host, home), cwd=home, text=True, encoding="utf-8",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=printed,
        )  # fmt: skip
        with process:
            try:
                running = Agent(process)
                assert running.heard() == {"ready": True}
                yield running
            finally:
                assert process.stdin
                process.stdin.close()
                process.wait(60)


# --- looking ----------------------------------------------------------------------------------------


def texts(value: object) -> Iterator[str]:
    """Every string of an answer, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
    elif isinstance(value, dict):
        yield from value
        for item in value.values():
            yield from texts(item)


def mentions(answer: object, word: str) -> bool:
    return any(word in text for text in texts(answer))


def hits(answer: Answer, word: str) -> list[Answer]:
    """The results whose own text has `word`."""
    return [hit for hit in answer.get("results", []) if word in hit["snippet"]]


def files(home: Path) -> dict[str, tuple[int, str]]:
    """Every file of a home: its size and hash. Read by this process, which holds no lock that reading could drop."""
    found = {}
    for folder, _, names in os.walk(home):
        for name in names:
            content = (Path(folder) / name).read_bytes()
            found[str((Path(folder) / name).relative_to(home))] = (len(content), hashlib.sha256(content).hexdigest())
    return found


def is_wal(database: Path) -> bool:
    """Whether the file's header says that it is written through a WAL."""
    return database.read_bytes()[18:20] == b"\x02\x02"
