"""Moves in the real hosts: from a desktop's turn, from `chat -q` and from a shell, beside each other, in profiles."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from project_history_recall import move

from demo import hosts
from demo.model import ScriptedModel
from tests import gateways, homes
from tests.gateways import Gateway, Script, gateway, script

Answer = dict[str, Any]
MOVE, SEARCH = "project_session_move", "project_history_search"
WORD = "ZEBRA7431"
PWD = ("terminal", {"command": "pwd"})
LOOK = (SEARCH, {"query": WORD, "mode": "keyword"})
ROUNDS = 100


@dataclass(frozen=True, slots=True)
class Place:
    """A home with the plugin, and two git repositories that are projects of it."""

    host: hosts.Host
    home: Path
    work: Path
    projects: dict[str, str]

    @property
    def alpha(self) -> str:
        return str(self.work / "alpha")

    @property
    def beta(self) -> str:
        return str(self.work / "beta")

    @property
    def can(self) -> bool:
        return self.host.name != "0.19"

    def row(self, session_id: str, home: Path | None = None) -> dict[str, Any]:
        with closing(sqlite3.connect(f"{((home or self.home) / 'state.db').as_uri()}?mode=ro", uri=True)) as db:
            db.row_factory = sqlite3.Row
            found = db.execute("SELECT cwd, git_branch, git_repo_root FROM sessions WHERE id = ?", (session_id,))
            return dict(found.fetchone())

    def journal(self, session_id: str) -> list[move.Entry]:
        return move.Journal(self.home / "plugin-data" / hosts.PLUGIN / move.JOURNAL).of([session_id])


def furnish(host: hosts.Host, probe: homes.Probe, base: Path, config: dict[str, Any] | None = None) -> Place:
    """A home of `host` at `base`; every conversation of `stored` says the word in its own way."""
    home, work = base / "home", base / "work"
    for name in ("alpha", "beta"):
        (work / name).mkdir(parents=True)
        (work / name / "NAME.txt").write_text(name)
        subprocess.run(["git", "init", "-q", "-b", "main", str(work / name)], check=True)
    hosts.install_plugin(home, config=config)
    alpha, beta = f"{work / 'alpha'}/", f"{work / 'beta'}/"
    stored = {
        "s_alpha": [alpha, "cli", f"{WORD} in alpha"],
        "s_beta": [beta, "cli", f"{WORD} in beta"],
        "s_lost": [alpha, "cli", "This was begun in the wrong folder."],
        "s_raced": [alpha, "cli", "Everybody wants this one."],
        "s_nowhere": [None, "cli", "This was begun in no folder."],
        "s_chat": [alpha, "telegram", "From a chat."],
        "s_hook": [alpha, "webhook", "From a webhook."],
        "s_cron": [alpha, "cron", "From a schedule."],
        "s_sub": [alpha, "subagent", "From a subagent."],
    }
    made = probe("stored", home, json.dumps(stored))
    return Place(host, home, work, made["projects"])


def answer(raw: str) -> Answer:
    told: Answer = json.JSONDecoder().raw_decode(raw)[0]  # hosts add a word to an error that comes twice
    assert next(iter(told)) == "notice"
    return told


def found(search: Answer) -> set[str]:
    return {hit["session_id"] for hit in search["results"]}


# --- a desktop's turn -------------------------------------------------------------------------------


@dataclass(slots=True)
class Talk:
    """What a client of a gateway saw: the results of each turn, and the sidebar and row after it."""

    key: str
    turns: dict[str, list[str]] = field(default_factory=dict)
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    sidebar: dict[str, str | None] = field(default_factory=dict)
    informed: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def desktop(host: hosts.Host, probe: homes.Probe, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desktop]:
    base = tmp_path_factory.mktemp("desktop")
    with ScriptedModel() as model:
        place = furnish(host, probe, base, gateways.settings(model))
        p2 = place.home / "profiles" / "p2"
        hosts.install_plugin(p2, config=gateways.settings(model))
        rows = {name: [f"{folder}/", "cli", f"{WORD} of p2"] for name, folder in
                (("s_alpha", place.alpha), ("s_lost", place.alpha), ("p2_beta", place.beta))}  # fmt: skip
        probe("stored", p2, json.dumps(rows))
        with gateway(host, place.home, base / "printed") as client:
            yield Desktop(place, p2, model, client)


@dataclass(frozen=True, slots=True)
class Desktop:
    place: Place
    p2: Path
    model: ScriptedModel
    client: Gateway

    def begin(self, **more: str) -> tuple[str, str]:
        made = self.client.result("session.create", cwd=self.place.alpha, cols=80, source="desktop", **more)
        return made["session_id"], made["stored_session_id"]

    def say(self, sid: str, *steps: gateways.Step, aside: Sequence[gateways.Step] = ()) -> Script:
        self.model.turn = said = script(*steps, aside=aside)
        self.client.ask(sid)
        assert len(said.results) == len(steps), said.results
        return said


@pytest.fixture(scope="module")
def talk(desktop: Desktop) -> Talk:
    """Three turns in one window: to Beta; stay there; to Home and back, step by step."""
    sid, key = desktop.begin()
    told = Talk(key)

    def turn(name: str, *steps: gateways.Step) -> None:
        told.turns[name] = desktop.say(sid, *steps).results
        told.rows[name] = desktop.place.row(key)
        told.sidebar[name] = gateways.owner_in_sidebar(desktop.client.result("projects.tree"), key)

    turn("to beta", PWD, LOOK, (MOVE, {"project": "beta"}), PWD, ("read_file", {"path": "NAME.txt"}), LOOK)
    turn("stay", PWD)
    undo = (MOVE, {"undo": True})
    turn("home and back", (MOVE, {"project": "home"}), LOOK, undo, undo, undo, PWD)
    told.informed = desktop.client.informed(sid)
    return told


def test_in_mid_turn_the_row_moves_and_is_read_back(desktop: Desktop, talk: Talk) -> None:
    place, moved = desktop.place, answer(talk.turns["to beta"][2])
    if not place.can:
        assert moved["error"] == "unsupported_here"
        assert talk.rows["to beta"]["cwd"] == place.alpha
        return
    assert (moved["moved"], moved["agent_followed"]) == (True, True)
    assert moved["from"]["project"]["id"] == place.projects["alpha"]
    assert moved["to"] == {
        "project": {"kind": "explicit", "id": place.projects["beta"], "name": "beta"},
        "cwd": place.beta,
        "branch": "main",
        "git_repo_root": place.beta,
    }
    assert talk.rows["to beta"] == {"cwd": place.beta, "git_branch": "main", "git_repo_root": place.beta}


def test_the_next_command_and_the_next_file_are_in_the_new_folder(desktop: Desktop, talk: Talk) -> None:
    before, _, _, after, file, _ = talk.turns["to beta"]
    new = "beta" if desktop.place.can else "alpha"
    assert desktop.place.alpha in before
    assert str(desktop.place.work / new) in after
    assert new in file
    assert str(desktop.place.work / new) in talk.turns["stay"][0]


def test_the_sidebar_shows_it_in_the_new_project(desktop: Desktop, talk: Talk) -> None:
    new = desktop.place.projects["beta" if desktop.place.can else "alpha"]
    assert talk.sidebar["to beta"] == talk.sidebar["stay"] == new


def test_the_client_is_told_of_every_folder(desktop: Desktop, talk: Talk) -> None:
    place, user = desktop.place, str(desktop.place.home.parent / "userhome")
    changes = [cwd for n, cwd in enumerate(talk.informed) if n == 0 or talk.informed[n - 1] != cwd]
    wanted = [place.alpha, place.beta, user, place.beta, place.alpha] if place.can else [place.alpha]
    assert changes == wanted


def test_the_search_finds_the_history_of_the_project_it_is_in(desktop: Desktop, talk: Talk) -> None:
    before, after = (answer(talk.turns["to beta"][n]) for n in (1, 5))
    assert found(before) == {"s_alpha"}
    assert found(after) == ({"s_beta"} if desktop.place.can else {"s_alpha"})


def test_home_and_back_again_step_by_step(desktop: Desktop, talk: Talk) -> None:
    home, search, *undone = map(answer, talk.turns["home and back"][:5])
    if not desktop.place.can:
        assert [a["error"] for a in (home, *undone)] == ["unsupported_here", *["nothing_to_undo"] * 3]
        return
    assert home["to"]["project"]["kind"] == search["project"]["kind"] == "home"
    assert [a["to"]["project"]["name"] for a in undone[:2]] == ["beta", "alpha"]
    assert undone[2]["error"] == "nothing_to_undo"
    assert desktop.place.alpha in talk.turns["home and back"][5]
    assert talk.sidebar["home and back"] == desktop.place.projects["alpha"]


def test_a_conversation_of_a_profile_is_moved_within_it(desktop: Desktop, talk: Talk) -> None:
    """The default profile has a conversation of the same id, which stays."""
    if not desktop.place.can:
        pytest.skip("Hermes 0.19 moves nothing")
    place = desktop.place
    sid, key = desktop.begin(profile="p2")
    other = (MOVE, {"project": "beta", "session_id": "s_lost"})
    said = desktop.say(sid, (MOVE, {"project": "beta"}), PWD, LOOK, other)
    own, pwd, search, lost = said.results
    assert answer(own)["agent_followed"] is True
    assert place.beta in pwd
    assert found(answer(search)) == {"p2_beta"}
    assert answer(lost)["moved"] is True
    assert [place.row(s, desktop.p2)["cwd"] for s in (key, "s_lost")] == [place.beta, place.beta]
    assert place.row("s_lost")["cwd"] == place.alpha
    assert not place.journal("s_lost")


def test_a_review_in_the_background_moves_nothing(desktop: Desktop) -> None:
    """The host has the model look back after ten calls, under the ids of the conversation itself."""
    sid, key = desktop.begin()
    review = [(MOVE, {"project": "beta"}), (MOVE, {"project": "beta", "session_id": "s_alpha"})]
    said = desktop.say(sid, *[PWD] * 10, aside=review)
    results = said.reviewed.get(timeout=gateways.PATIENCE_S)
    assert len(results) == 2
    assert not any('"moved": true' in result for result in results), results
    assert desktop.place.row(key)["cwd"] == desktop.place.row("s_alpha")["cwd"] == desktop.place.alpha


# --- from a shell -----------------------------------------------------------------------------------


def console(place: Place, *arguments: str, home: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The console script of the plugin, pip-installed beside the host."""
    command = hosts.environment(place.host, with_plugin=True).with_name("project-history-recall")
    return subprocess.run(
        [str(command), *arguments], env=hosts.child_env(place.host, home or place.home), cwd=place.work,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_one_that_is_open_elsewhere_moves_and_the_answer_says_what_its_agent_does(
    desktop: Desktop, talk: Talk
) -> None:
    place = desktop.place
    sid, key = desktop.begin()
    desktop.say(sid, PWD)
    done = console(place, "move", key, "beta", "--json")
    if not place.can:
        assert (done.returncode, "upgrade" in done.stderr) == (1, True)
        return
    moved = json.loads(done.stdout)
    assert (moved["moved"], moved["agent_followed"]) == (True, False)
    assert f"hermes --resume {key}" in moved["warnings"][0]
    assert place.row(key)["cwd"] == place.beta
    assert place.alpha in desktop.say(sid, PWD).results[0]  # as it was told
    assert place.row(key)["cwd"] == place.beta  # and it does not write that back
    assert console(place, "move", key, "--undo").returncode == 0
    assert place.row(key)["cwd"] == place.alpha


def test_from_a_shell_the_named_profile_is_the_one(desktop: Desktop) -> None:
    if not desktop.place.can:
        pytest.skip("Hermes 0.19 moves nothing")
    assert console(desktop.place, "move", "s_alpha", "beta", home=desktop.p2).returncode == 0
    assert desktop.place.row("s_alpha", desktop.p2)["cwd"] == desktop.place.beta
    assert desktop.place.row("s_alpha")["cwd"] == desktop.place.alpha
    ghost = desktop.place.home / "profiles" / "ghost"
    assert console(desktop.place, "move", "s_alpha", "beta", home=ghost).returncode == 1
    assert desktop.place.row("s_alpha")["cwd"] == desktop.place.alpha


# --- chat -q ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chat(host: hosts.Host, probe: homes.Probe, tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, list[Answer]]:
    """One question: the caller's own; another there, looked into, and back; one that stood nowhere."""
    with ScriptedModel() as model:
        place = furnish(host, probe, tmp_path_factory.mktemp("chat"), gateways.settings(model))
        look = {"query": "wrong folder", "project": "beta", "mode": "keyword"}
        model.turn = said = script(
            (MOVE, {"project": "beta"}),
            (MOVE, {"project": "beta", "session_id": "s_lost"}),
            (SEARCH, look),
            (MOVE, {"undo": True, "session_id": "s_lost"}),
            (SEARCH, look),
            (MOVE, {"project": "beta", "session_id": "s_nowhere"}),
            (MOVE, {"undo": True, "session_id": "s_nowhere"}),
        )
        command = hosts.environment(host).with_name(host.command)
        done = subprocess.run(
            [str(command), "chat", "-Q", "-q", gateways.ASKED], env=hosts.child_env(host, place.home),
            cwd=place.alpha, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert gateways.REPLY in done.stdout, done.stderr
        return place, [answer(raw) for raw in said.results]


def test_from_chat_the_caller_s_own_is_refused_with_what_works_instead(chat: tuple[Place, list[Answer]]) -> None:
    refused = chat[1][0]
    assert refused["error"] == "unsupported_here"
    assert "--resume" in refused["message"]


def test_from_chat_another_is_moved_searched_and_put_back(chat: tuple[Place, list[Answer]]) -> None:
    place, (_, moved, seen, undone, gone, *_) = chat
    if not place.can:
        assert (moved["error"], undone["error"]) == ("unsupported_here", "nothing_to_undo")
        assert "upgrade" in moved["message"]
        assert found(seen) == found(gone)
        assert seen["success"]
        assert place.row("s_lost")["cwd"] == place.alpha
        return
    assert (moved["moved"], moved["to"]["cwd"], moved["to"]["branch"]) == (True, place.beta, "main")
    assert (undone["undone"], undone["to"]["cwd"]) == (True, place.alpha)
    assert ("s_lost" in found(seen), "s_lost" in found(gone)) == (True, False)
    assert place.row("s_lost")["cwd"] == place.alpha
    assert [bool(entry.undoes) for entry in place.journal("s_lost")] == [False, True]


def test_from_chat_one_that_stood_nowhere_goes_home(chat: tuple[Place, list[Answer]]) -> None:
    place, (*_, moved, undone) = chat
    if not place.can:
        assert (moved["error"], place.row("s_nowhere")["cwd"]) == ("unsupported_here", None)
        return
    assert moved["from"] == {"project": {"kind": "home", "id": "", "name": "Home"}, "cwd": "", "branch": "",
                             "git_repo_root": ""}  # fmt: skip
    assert undone["to"]["project"]["kind"] == "home"
    assert place.row("s_nowhere")["cwd"] == str(place.home.parent / "userhome")


# --- inside the process of a backend ----------------------------------------------------------------


class Backend:
    """A process with the host's real gateway module loaded, and the plugin."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def send(self, op: str, **wanted: Any) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"op": op, **wanted}) + "\n")
        self._process.stdin.flush()

    def heard(self) -> Any:
        assert self._process.stdout
        for line in self._process.stdout:
            told = json.loads(line) if line.startswith("{") else {}
            if "said" in told or "ready" in told:  # beside the frames of the gateway itself
                return told.get("said")
        raise AssertionError("the backend ended")

    def do(self, op: str, **wanted: Any) -> Any:
        self.send(op, **wanted)
        return self.heard()

    def move(self, made: dict[str, str], args: dict[str, Any], **wanted: Any) -> Answer:
        """From a turn of the live session `made`."""
        bound = {"session_key": made["key"], "source": "desktop", "ui_session_id": made["sid"]}
        calling = {"session_id": made["key"], "task_id": made["key"], "vars": bound}
        told: Answer = self.do("call", tool=MOVE, args=args, **{**calling, **wanted})
        return told


@contextmanager
def backend(place: Place, errors: Path) -> Iterator[Backend]:
    with errors.open("w") as printed:
        process = subprocess.Popen(
            [str(hosts.environment(place.host)), str(homes.PROBES / "moves.py")],
            env=hosts.child_env(place.host, place.home), cwd=place.home, text=True, encoding="utf-8",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=printed,
        )  # fmt: skip
        with process:
            try:
                running = Backend(process)
                running.heard()
                yield running
            finally:
                assert process.stdin
                process.stdin.close()
                process.wait(60)


@pytest.fixture(scope="module")
def place(host: hosts.Host, probe: homes.Probe, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return furnish(host, probe, tmp_path_factory.mktemp("backend"))


@pytest.fixture(scope="module")
def running(place: Place) -> Iterator[Backend]:
    with backend(place, place.home.parent / "printed") as process:
        yield process


def code(told: Answer) -> Any:
    return (told.get("error") or {}).get("code")


def test_every_error_that_the_host_answers_is_mapped(place: Place, running: Backend) -> None:
    def met(**params: str) -> tuple[Any, str]:
        told = running.do("rpc", params=params)
        return code(told), move.refusal(told["error"]).code

    if not place.can:
        assert met(session_key="s_alpha", cwd=place.beta) == (-32601, "unsupported_here")
        return
    assert met() == met(session_key="nobody", cwd=place.beta) == (4007, "unknown_session")
    assert met(session_key="s_alpha") == (4016, "move_failed")
    assert met(session_key="s_alpha", cwd=f"{place.work}/none") == (4017, "folder_missing")
    if place.host.name == "0.22":
        assert met(session_key="s_alpha", cwd=place.beta, profile="ghost") == (4064, "move_failed")
        assert met(session_key="s_alpha", cwd=place.beta, surplus="1") == (4000, "move_failed")
    assert place.row("s_alpha")["cwd"] == place.alpha


def test_a_rotation_in_mid_turn_leaves_nothing_behind(place: Place, running: Backend) -> None:
    if not place.can:
        pytest.skip("Hermes 0.19 moves nothing")
    made = running.do("live", cwd=place.alpha)
    tip = running.do("rotate", key=made["key"])
    moved = running.move(made, {"project": "beta"}, session_id=tip)
    assert (moved["moved"], moved["session_id"], moved["agent_followed"]) == (True, tip, True)
    assert place.row(made["key"])["cwd"] == place.row(tip)["cwd"] == place.beta
    assert running.do("cwd", key=made["key"]) == place.beta


@pytest.mark.parametrize(
    ("session_id", "bound"),
    [
        ("s_chat", {"platform": "telegram", "chat_type": "dm", "user_id": "7", "session_key": "telegram:dm:7"}),
        ("s_chat", {"platform": "telegram", "chat_type": "group", "user_id": "7"}),
        ("s_hook", {"platform": "webhook"}),
        ("s_cron", {"platform": "", "cron_session": "1"}),
        ("s_sub", {}),
    ],
)
def test_chats_webhooks_cron_runs_and_subagents_move_nothing(
    place: Place, running: Backend, session_id: str, bound: dict[str, str]
) -> None:
    calling = {"session_id": session_id, "task_id": session_id, "vars": bound}
    for args in ({"project": "beta"}, {"project": "beta", "session_id": "s_alpha"}, {"undo": True}):
        told = running.do("call", tool=MOVE, args=args, **calling)
        assert told["error"] == "not_allowed_here", args
    assert place.row(session_id)["cwd"] == place.alpha


def test_a_subagent_of_a_window_moves_nothing(place: Place, running: Backend) -> None:
    made = running.do("live", cwd=place.alpha)
    assert running.move(made, {"project": "beta"}, session_id="s_sub", task_id="sa-1")["error"] == "not_allowed_here"
    # Inside its `execute_code` the host passes the task alone.
    told = running.move(made, {"project": "beta"}, session_id=None, task_id="sa-1", current=made["key"])
    assert told["error"] == "not_allowed_here"


def test_a_loaded_gateway_alone_is_no_window(place: Place, running: Backend) -> None:
    """0.22 loads it in the messaging gateway too."""
    calling = {"session_id": "s_lost", "task_id": "s_lost", "vars": {"platform": "", "source": "cli"}}
    assert running.do("call", tool=MOVE, args={"project": "beta"}, **calling)["error"] == "unsupported_here"
    assert place.row("s_lost")["cwd"] == place.alpha


@pytest.mark.parametrize("where", ["profiles/p3", "../stray"])
def test_a_home_that_the_gateway_serves_as_no_profile_is_never_another_one(
    place: Place, running: Backend, where: str
) -> None:
    """Both hold the same conversations; 0.20 takes an unknown name for its own home."""
    copy = (place.home / where).resolve()
    copy.mkdir(parents=True)
    for name in ("state.db", "projects.db"):
        shutil.copyfile(place.home / name, copy / name)
    hosts.install_plugin(copy)
    before = place.row("s_lost")
    made = running.do("live", cwd=place.alpha)
    calling = {"session_id": "s_beta", "task_id": "s_beta", "home": str(copy)}
    told = running.move(made, {"project": "beta", "session_id": "s_lost"}, **calling)
    assert place.row("s_lost") == before
    if told.get("moved"):
        assert place.row("s_lost", copy)["cwd"] == place.beta
    else:
        assert told["error"] == "unsupported_here" or "Unknown tool" in told["error"], told
    if place.can and where.startswith("profiles"):
        assert told["moved"]


def consistent(place: Place, session_id: str, told: list[Any]) -> None:
    """Each move that was told of began where the one before it ended, and the last is where the row is."""
    entries = place.journal(session_id)
    assert len(entries) == sum(isinstance(t, list) for t in told)
    assert sorted(e.to.cwd for e in entries) == sorted(t[0] for t in told if isinstance(t, list))
    assert [e.source.cwd for e in entries[1:]] == [e.to.cwd for e in entries[:-1]]
    assert place.row(session_id)["cwd"] == entries[-1].to.cwd
    assert {t for t in told if isinstance(t, str)} <= {"already_there"}


def test_two_threads_never_tell_of_a_move_that_is_not_so(place: Place, running: Backend) -> None:
    if not place.can:
        pytest.skip("Hermes 0.19 moves nothing")
    made = running.do("live", cwd=place.alpha)
    names = [["beta", "alpha", "home"], ["home", "beta", "alpha"]]
    told = running.do("rounds", session_id=made["key"], made=made, projects=names, count=ROUNDS)
    assert len(told) == 2 * ROUNDS
    consistent(place, made["key"], told)
    assert running.do("cwd", key=made["key"]) == place.row(made["key"])["cwd"]


def test_two_processes_never_tell_of_a_move_that_is_not_so(place: Place, running: Backend) -> None:
    if not place.can:
        pytest.skip("Hermes 0.19 moves nothing")
    with backend(place, place.home.parent / "printed too") as second:
        both = [(running, [["beta", "alpha"]]), (second, [["alpha", "beta"]])]
        for process, names in both:
            made = process.do("live", cwd=place.alpha)
            process.send("rounds", session_id="s_raced", made=made, projects=names, count=ROUNDS)
        told = [answer for process, _ in both for answer in process.heard()]
    assert len(told) == 2 * ROUNDS
    consistent(place, "s_raced", told)
