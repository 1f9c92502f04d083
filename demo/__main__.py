"""Show project-history-recall at work in a real Hermes: `python3 demo`.

Makes an environment with a real Hermes (once, in the user's cache), a temporary Hermes home
with the conversations of `conversations.py`, puts this plugin into it, and asks questions
through the host's own `chat`. Only the model is a script: it makes the call that each scene
below names, and what the agent loop hands back to it is what is printed and checked. Nothing
is left behind but the cached environment. Exits with 1 when a scene did not find what it should.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if sys.version_info < (3, 11):  # noqa: UP036  (said in words, where an older Python would trip over an import)
    sys.exit(f"Python 3.11 or newer is needed; this is {sys.version.split()[0]}.")

# Nothing is left in the tree: not by the imports below, nor the copy Python made of this file before it ran.
sys.dont_write_bytecode = True
shutil.rmtree(Path(__file__).with_name("__pycache__"), ignore_errors=True)

import hosts  # noqa: E402
import show  # noqa: E402
from conversations import (  # noqa: E402
    CONVERSATIONS,
    DOCKSIDE,
    MOSS_READER,
    PROJECTS,
    SENSOR_BRIDGE,
    Conversation,
    Project,
)
from model import MODEL, ScriptedModel, Turn  # noqa: E402

SEARCH, MOVE = "project_history_search", "project_session_move"
REPLY = "I have read the answer."
SHOWN = 3
PATIENCE_S = 180

Answer = dict[str, Any]
Arguments = dict[str, Any]


class SceneFailed(Exception):
    """Something did not go as it should; the message says what."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A question to the agent, the call the model makes for it, and what that call must find.

    `place` is the folder the agent runs in ("~": the user's home). `call` makes the arguments
    from the answers of earlier scenes, by title. `finds` is the title of a conversation that
    must be among the hits shown, `says` words that must stand in a hit or around it. Every hit
    must come from `project`; with None the answer must be empty and say why. A move must end in
    `project`. `resumes` is the scene whose conversation goes on here, in its own folder; `since`
    is the first Hermes that can do it.
    """

    title: str
    place: str
    asks: str
    call: Callable[[Mapping[str, Answer]], Arguments]
    project: Project | None
    finds: str = ""
    says: str = ""
    tool: str = SEARCH
    resumes: str = ""
    since: str = ""


def plain(**arguments: Any) -> Callable[[Mapping[str, Answer]], Arguments]:
    return lambda _: arguments


def around(scene: str) -> Callable[[Mapping[str, Answer]], Arguments]:
    """Read on around the first hit of an earlier scene."""
    return lambda answers: {"around_message_id": answers[scene]["results"][0]["message_id"]}


def moved(scene: str, project: str) -> Callable[[Mapping[str, Answer]], Arguments]:
    """Move the conversation in which an earlier scene was asked."""
    return lambda answers: {"session_id": answers[scene]["asked_in"], "project": project}


SCENES = (
    Scene(
        title="A question in plain words",
        place="dockside/svc/shipping",
        asks="Halyard is throttling us again. Haven't we been through this?",
        call=plain(query="Halyard rate limit, too many requests: what did we do about it?"),
        project=DOCKSIDE,
        finds="Retry storm against Halyard",
        says="token bucket",
    ),
    Scene(
        title="A question in Chinese",
        place="dockside",
        asks="上次回调重复入账怎么修的？",
        call=plain(query="上次回调重复入账怎么修的"),
        project=DOCKSIDE,
        finds="账上记了两笔",
        says="ON CONFLICT DO NOTHING",
    ),
    Scene(
        title="The same, in English words that stand nowhere in it",
        place="dockside",
        asks="Didn't customers once pay a single time while bookkeeping showed two entries?",
        call=plain(query="customers paid a single time but bookkeeping shows two entries"),
        project=DOCKSIDE,
        finds="账上记了两笔",
        says="扣了一次款",
    ),
    Scene(
        title="And the other way round",
        place="dockside/svc/shipping",
        asks="上次快递那边嫌我们调用太频繁、把密钥停掉，后来怎么解决的？",
        call=plain(query="对方嫌我们调用太频繁，把我们的密钥停用了"),
        project=DOCKSIDE,
        finds="Retry storm against Halyard",
        says="suspended our key",
    ),
    Scene(
        title="Reading on around that hit",
        place="dockside",
        asks="那已经记错的那些单子后来怎么处理的？",
        call=around("A question in Chinese"),
        project=DOCKSIDE,
        finds="账上记了两笔",
        says="scripts/fix_double_postings.py",
    ),
    Scene(
        title="An error code, as it is written",
        place="dockside/svc/shipping",
        asks="What was HLY-4271 again?",
        call=plain(query="HLY-4271", mode="keyword"),
        project=DOCKSIDE,
        finds="Halyard sandbox answers 200 with an error body",
        says="destination not serviceable",
    ),
    Scene(
        title="Only what was said since May",
        place="dockside",
        asks="The docs say label jobs go through RabbitMQ. Is that still so?",
        call=plain(query="label jobs queue RabbitMQ decision", after="2026-05-01"),
        project=DOCKSIDE,
        finds="Label jobs: back to Postgres",
        says="Decision 0009 is reversed by 0021",
    ),
    Scene(
        title="A decision from a part that was compacted away",
        place="dockside/svc/orders",
        asks="当初为什么只拆 schema，没有拆库？",
        call=plain(query="为什么只拆 schema 不拆库"),
        project=DOCKSIDE,
        finds="拆分订单服务",
        says="要上 outbox",
    ),
    Scene(
        title="Another project, named",
        place="dockside",
        asks="阅读器里两个字的中文词搜不到，当时是怎么解决的？这边想照搬",
        call=plain(query="两个字的词搜不到 怎么解决", project="Moss Reader", context=2),
        project=MOSS_READER,
        finds="两个字的词搜不到",
        says="overlapping bigrams",
    ),
    Scene(
        title="A project nobody made, found by its git repository",
        place="sensor-bridge/crates/uplink",
        asks="MQTT 断线之后丢数据，spool 这块我们踩过什么坑？",
        call=plain(query="MQTT 断线 丢消息 spool"),
        project=SENSOR_BRIDGE,
        finds="MQTT 断线重连之后丢消息",
        says="PUBACK",
    ),
    Scene(
        title="No project at all",
        place="~",
        asks="What did we decide about the label queue?",
        call=plain(query="label queue decision"),
        project=None,
    ),
    Scene(
        title="That conversation belongs to a project",
        place="dockside",
        asks="I asked about the label queue in the wrong place. Move that conversation over here.",
        call=moved("No project at all", "Dockside"),
        project=DOCKSIDE,
        tool=MOVE,
        since="0.20",
    ),
    Scene(
        title="The same question, in the same conversation",
        place="~",
        asks="So, what did we decide about the label queue, lately?",
        call=plain(query="label jobs queue RabbitMQ decision", after="2026-05-01"),
        project=DOCKSIDE,
        finds="Label jobs: back to Postgres",
        says="Decision 0009 is reversed by 0021",
        resumes="No project at all",
        since="0.20",
    ),
)


def main(argv: Sequence[str]) -> int:
    options = parse(argv)
    started = time.monotonic()
    host, python = choose(options.host)
    with temporary(options.keep) as folder, ScriptedModel() as model:
        stage = Stage(host, folder / "home", folder / "work", model)
        counts = stage.build(python)
        named = sum(bool(project.name) for project in PROJECTS)
        print(show.paint(f"project-history-recall in Hermes {host.name}", show.BOLD))
        print(
            f"{counts['conversations']} past conversations, {counts['messages']} messages, "
            f"in {named} projects and {len(PROJECTS) - named} bare git repository.\n"
            "The agent is real, its model is a script."
        )
        scenes = [scene for scene in SCENES if scene.since <= host.name]
        failures = perform(stage, python.parent / host.command, scenes)
        missed = registered() - {scene.tool for scene in SCENES}
        failures += [f"no scene calls {tool}" for tool in sorted(missed)]
        if options.keep:
            print(f"\nKept: {folder}")
    if failures:
        print("\n" + "\n".join(show.paint(f"FAILED  {failure}", show.BAD) for failure in failures))
        return 1
    took = time.monotonic() - started
    print(f"\nAll {len(scenes)} scenes found what they should, in {took:.0f} s.")
    if left_out := [scene.title for scene in SCENES if scene not in scenes]:
        print(f"Hermes {host.name} cannot move a conversation; left out: {'; '.join(left_out)}.")
    print(INSTALL.format(dependencies=" ".join(f'"{d}"' for d in hosts.project()["dependencies"])))
    return 0


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 demo", description="project-history-recall at work")
    names = [host.name for host in hosts.HOSTS]
    parser.add_argument("--host", choices=names, help="which Hermes; default: the newest that runs here")
    parser.add_argument("--keep", action="store_true", help="keep the temporary home, to look around in it")
    return parser.parse_args(argv)


def choose(name: str | None) -> tuple[hosts.Host, Path]:
    """The host asked for, or the newest one that an interpreter of this machine can run, and its Python."""
    candidates = [host for host in reversed(hosts.HOSTS) if name in (None, host.name)]
    reasons = []
    for host in candidates:
        try:
            return host, hosts.environment(host)
        except hosts.NoInterpreter as error:
            reasons.append(f"Hermes {host.name}: {error}")
        except hosts.InstallFailed as error:
            raise SystemExit(f"Hermes {host.name} could not be installed.\n{error}") from None
    raise SystemExit("\n".join(reasons))


@contextlib.contextmanager
def temporary(keep: bool) -> Iterator[Path]:
    """A new folder, gone at the end unless it is kept."""
    if keep:
        yield Path(tempfile.mkdtemp(prefix="recall-demo-")).resolve()
        return
    with tempfile.TemporaryDirectory(prefix="recall-demo-", ignore_cleanup_errors=True) as folder:
        yield Path(folder).resolve()


@dataclass(frozen=True, slots=True)
class Stage:
    """A Hermes home with the past in it, the workspace beside it, and the model it talks to."""

    host: hosts.Host
    home: Path
    workspace: Path
    model: ScriptedModel

    def build(self, python: Path) -> dict[str, int]:
        """Fill the home and the workspace, and install the plugin. How much was written."""
        self.workspace.mkdir()
        hosts.install_plugin(
            self.home,
            config={
                "model": {
                    "provider": "custom",
                    "default": MODEL,
                    "base_url": self.model.base_url,
                    "api_key": "none",
                    "context_length": 200_000,
                },
                # Hosts fetch extras on their first run otherwise.
                "security": {"allow_lazy_installs": False, "tirith_enabled": False},
                # 0.22 would delete every conversation that is 90 days old.
                "sessions": {"auto_prune": False},
            },
        )
        script = Path(__file__).with_name("home.py")
        done = self._run([str(python), str(script), str(self.workspace)], self.workspace)
        counts: dict[str, int] = json.loads(done.splitlines()[-1])
        warm = str(Path(__file__).with_name("warm.py"))
        for place in ("dockside", "moss-reader", "sensor-bridge"):
            status = self._run([str(python), warm], self.workspace / place).split()[-1]
            if status != "ready":
                raise SceneFailed(f"search by meaning is {status} in {place}")
        return counts

    def ask(self, command: Path, scene: Scene, arguments: Arguments, resumed: str = "") -> Turn:
        """Put the scene's question to the agent, and return what went between it and its model."""
        self.model.turn = turn = Turn(scene.tool, arguments, REPLY, scene.title)
        place = self.home.parent / "userhome" if scene.place == "~" else self.workspace / scene.place
        going_on = ["--resume", resumed] if resumed else []
        printed = self._run([str(command), "chat", *going_on, "-Q", "-q", scene.asks], place)
        if turn.result is None or REPLY not in printed:
            raise SceneFailed(f"the agent loop did not finish: {printed[-500:]}")
        return turn

    def newest(self) -> str:
        """The id of the conversation that was begun last."""
        with contextlib.closing(sqlite3.connect(f"{(self.home / 'state.db').as_uri()}?mode=ro", uri=True)) as db:
            return str(db.execute("SELECT id FROM sessions ORDER BY started_at DESC").fetchone()[0])

    def _run(self, command: Sequence[str], folder: Path) -> str:
        environment = hosts.child_env(self.host, self.home, PYTHONUTF8="1", NO_COLOR="1", PYTHONFAULTHANDLER="1")
        name = Path(command[0]).name
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SceneFailed(f"{name} did not end within {PATIENCE_S} s") from None
        # Below the Python it is written for, a native thread of 0.22 may die as the interpreter ends, of whichever
        # signal comes first: all is said then.
        at_its_end = self.host.shim and done.returncode < 0 and REPLY in done.stdout
        if done.returncode and not at_its_end:
            raise SceneFailed(f"{name} ended with {done.returncode}: {done.stderr[-1500:]}")
        return done.stdout


def perform(stage: Stage, command: Path, scenes: Iterable[Scene]) -> list[str]:
    """Play every scene and print it. What failed."""
    answers: dict[str, Answer] = {}
    failures: list[str] = []
    for number, scene in enumerate(scenes, 1):
        show.heading(f"{number}. {scene.title}", f"in {scene.place}")
        show.field("you", scene.asks, style=show.BOLD)
        try:
            arguments = scene.call(answers)
            resumed = answers[scene.resumes]["asked_in"] if scene.resumes else ""
            turn = stage.ask(command, scene, arguments, resumed)
            show.field("call", spelled(scene.tool, arguments, turn.offered))
            answer = json.loads(turn.result or "")
            answers[scene.title] = {**answer, "asked_in": resumed or stage.newest()}
            tell(arguments, answer)
            check(scene, answer)
        except (SceneFailed, LookupError, TypeError, ValueError) as error:
            reason = str(error) if isinstance(error, SceneFailed) else repr(error)
            failures.append(f"{scene.title}: {reason}")
            show.field("failed", reason, style=show.BAD, lines=8)
        sys.stdout.flush()
    return failures


def spelled(tool: str, arguments: Arguments, offered: str) -> str:
    inside = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items())
    return f"{tool}({inside})" + (" through the host's tool_call" if offered == "deferred" else "")


def tell(arguments: Arguments, answer: Answer) -> None:
    """Print an answer the way a person would want to read it."""
    if not answer.get("success"):
        show.field("error", f"{answer.get('error')}: {answer.get('message')}")
        return
    if "moved" in answer:
        for side in ("from", "to"):
            show.field(side, f"{answer[side]['project']['name']}, {answer[side]['cwd'] or 'no folder'}")
        return
    project, count = answer["project"], answer["sessions_in_scope"]
    scope = f"{project['name']} ({project['kind']}), {plural(count, 'conversation')}"
    show.field("scope", f"{scope}; semantic search: {answer['semantic_status']}")
    results = answer["results"]
    if "around_message_id" in arguments:
        for found in results:
            show.conversation(found)
    else:
        for number, found in enumerate(results[:SHOWN], 1):
            show.hit(number, found)
        if len(results) > SHOWN:
            show.field("", f"and {len(results) - SHOWN} more", style=show.DIM)
    if topic := answer.get("topic"):
        spread = f"{plural(topic['messages'], 'message')} in {plural(topic['conversations'], 'conversation')}"
        show.field("topic", f"{spread}, {topic['first']} to {topic['last']}", style=show.DIM)
    if reason := answer.get("reason"):
        show.field("reason", reason)
        named = ", ".join(candidate["name"] for candidate in answer.get("candidates") or ())
        show.field("", f"Candidates: {named}")
    show.field("notice", show.shorten(answer["notice"], 50), style=show.DIM)


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def check(scene: Scene, answer: Answer) -> None:
    """Raise SceneFailed unless `answer` is what the scene promises."""
    if not answer.get("success"):
        raise SceneFailed(f"the tool answered {answer.get('error')}: {answer.get('message')}")
    if scene.tool == MOVE:
        if not answer["moved"] or scene.project is None or answer["to"]["project"]["name"] != scene.project.name:
            raise SceneFailed("the conversation is not in the project it was to be moved to")
        show.field("moved", "its row was read back; its agent starts there from now on", style=show.GOOD)
        return
    results = answer["results"]
    if scene.project is None:
        if answer["project"]["kind"] != "home" or results:
            raise SceneFailed("Home was searched")
        if not answer.get("reason"):
            raise SceneFailed("the empty answer does not say why it is empty")
        show.field("found", "nothing, and why", style=show.GOOD)
        return
    titles = titles_of(CONVERSATIONS)
    own = titles_of(filter(scene.project.owns, CONVERSATIONS))
    strangers = {found["session_id"] for found in results} & (titles.keys() - own.keys())
    if strangers:
        raise SceneFailed(f"hits from outside the project: {', '.join(titles[s] for s in strangers)}")
    if scene.finds not in [titles.get(found["session_id"]) for found in results]:
        raise SceneFailed(f"“{scene.finds}” is not among the hits")
    said = [found["snippet"] for found in results]
    said += [near["text"] for found in results for near in found.get("context", ())]
    if not any(scene.says in text for text in said):
        raise SceneFailed(f"no hit says “{scene.says}”")
    show.field("found", scene.finds, style=show.GOOD)


def titles_of(conversations: Iterable[Conversation]) -> dict[str, str]:
    """Title by session id, of every row they were written to."""
    return {
        conversation.session_id(segment): conversation.title
        for conversation in conversations
        for segment in range(1 + sum(message.role == "rotated" for message in conversation.messages))
    }


def registered() -> set[str]:
    """The tools plugin.yaml says the plugin provides."""
    text = (hosts.ROOT / "plugin.yaml").read_text("utf-8")
    block = re.search(r"^provides_tools:\n((?:  - \w+\n)+)", text, re.MULTILINE)
    return set(re.findall(r"\w+", block[1])) if block else set()


INSTALL = """
Into your own Hermes, from this folder:

  git clone . "${{HERMES_HOME:-$HOME/.hermes}}/plugins/project-history-recall"

then name it in the config.yaml of that home, and start a new session:

  plugins:
    enabled: [project-history-recall]

Hermes 0.19   installs no dependencies of plugins; in its environment: pip install {dependencies}
Hermes 0.20   the same, and its model reaches the tool through tool_search and tool_call
Hermes 0.22   deletes conversations idle for 90 days, unless config.yaml says  sessions: {{auto_prune: false}}
"""


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    try:
        raise SystemExit(main(sys.argv[1:]))
    except SceneFailed as error:
        raise SystemExit(f"The stage could not be built: {error}") from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
