"""The one door to Hermes: every import of it, probed, nothing assumed.

Where Hermes is not installed each question has an answer of its own: the home
comes from HERMES_HOME, the settings from its config.yaml, nobody redacts, and
nobody is calling. Nothing here is kept between calls but repository roots, and
those by home, because one process may serve several profiles.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import hashlib
import inspect
import json
import logging
import os
import platform
import queue
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from .attribution import Roots
from .config_schema import Settings
from .errors import MoveFailed
from .repos import RepoRoots
from .text import WITHHELD

if TYPE_CHECKING:
    import ssl

PLUGIN = "project-history-recall"
SETTINGS = (
    "max_result_chars",
    "owner_chats",
    "embedding_provider",
    "embedding_base_url",
    "embedding_model",
    "embedding_dimensions",
    "index_budget_s",
)

API_KEY = "PROJECT_HISTORY_RECALL_API_KEY"

logger = logging.getLogger(__name__)

_roots: dict[Path, RepoRoots] = {}


def _probe(module: str, name: str) -> Any:
    """A name of the host, or None where this host has no such thing."""
    try:
        return getattr(sys.modules.get(module) or import_module(module), name, None)
    except Exception as error:  # a half-installed host may fail in any way while importing
        logger.debug("%s.%s is not to be had: %s", module, name, type(error).__name__)
        return None


def hermes_home() -> Path:
    """The home of this call: the profile's own inside a turn, else HERMES_HOME, else ~/.hermes."""
    get = _probe("hermes_constants", "get_hermes_home")
    if get is not None:
        return Path(get())
    return Path(os.environ.get("HERMES_HOME", "").strip() or Path.home() / ".hermes").expanduser()


def profile_name(home: Path) -> str:
    """The profile a home belongs to; "" for the default one."""
    return home.name if home.parent.name == "profiles" else ""


def live_variables(session_id: str | None) -> dict[str, str]:
    """What the host says of the running turn, by the field names of `scope.Live`.

    `session_id` is the handler's own argument; inside `execute_code` the host
    passes none and binds HERMES_SESSION_ID instead.
    """
    get = _probe("gateway.session_context", "get_session_env") or os.environ.get
    return {
        "session_id": (session_id or get("HERMES_SESSION_ID", "") or "").strip(),
        "platform": get("HERMES_SESSION_PLATFORM", "") or "",
        "source": get("HERMES_SESSION_SOURCE", "") or "",
        "chat_type": get("HERMES_SESSION_CHAT_TYPE", "") or "",
        "user_id": get("HERMES_SESSION_USER_ID", "") or "",
        "session_key": get("HERMES_SESSION_KEY", "") or "",
        "ui_session_id": get("HERMES_UI_SESSION_ID", "") or "",
    }


def redactor() -> Callable[[str], str] | None:
    """The host's own redactor, failing closed; None without Hermes."""
    egress = _probe("agent.redact", "redact_for_egress")
    plain = _probe("agent.redact", "redact_sensitive_text")
    if egress is None and plain is None:
        return None

    def redact(text: str) -> str:
        try:
            return str(egress(text) if egress is not None else plain(text, force=True))
        except Exception:
            logger.warning("the host's redactor failed; a text was withheld")
            return WITHHELD

    return redact


def read_settings(ctx: Any, home: Path) -> Settings:
    """The plugin's settings, read again at each call as the host does."""
    get = getattr(ctx, "get_config", None)
    if get is not None:
        return Settings.parse({key: get(key) for key in SETTINGS})
    load = _probe("hermes_cli.config", "load_config")
    if home != hermes_home():  # the host would read its own
        load = None
    try:
        config = load() if load is not None else _yaml(home / "config.yaml")
        entry = config["plugins"]["entries"][PLUGIN]
        return Settings.parse(entry.get("settings") or {})
    except (KeyError, TypeError, AttributeError):
        return Settings()


def secret(name: str) -> str | None:
    """A secret of this call's profile, from its `.env` or the environment; None where it is not set.

    The host refuses to say when it does not know whose it would be, and that is None too.
    """
    get = _probe("agent.secret_scope", "get_secret") or os.environ.get
    try:
        return (get(name) or "").strip() or None
    except Exception as error:
        logger.info("the host does not tell %s: %s", name, type(error).__name__)
        return None


def tls_trust(url: str) -> ssl.SSLContext | bool:
    """What httpx is to trust (its `verify`) when it asks `url`: what the host trusts, and never just anything."""
    resolve = _probe("agent.ssl_verify", "resolve_httpx_verify")
    try:
        return (resolve(base_url=url) if resolve is not None else True) or True
    except Exception as error:  # a certificate file that the environment names wrongly, say
        logger.warning("the host's certificates could not be read: %s", type(error).__name__)
        return True


def _yaml(path: Path) -> Any:
    try:
        import yaml

        return yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except FileNotFoundError:
        return {}
    except Exception as error:  # an unreadable config.yaml costs the settings, not the search
        logger.warning("%s could not be read: %s", path.name, type(error).__name__)
        return {}


@dataclass(frozen=True, slots=True)
class Host:
    """Everything one call needs from outside (see `search.Surroundings`)."""

    home: Path
    profile: str
    settings: Settings
    redact: Callable[[str], str] | None
    connect: Callable[..., sqlite3.Connection]

    def machine_id(self) -> str:
        return machine_id()

    def api_key(self) -> str | None:
        return secret(API_KEY)

    def trust(self, url: str) -> ssl.SSLContext | bool:
        return tls_trust(url)

    def find_roots(self, cwd: str) -> Roots | None:
        return _roots.setdefault(self.home, RepoRoots())(cwd)

    def junk_root(self, path: str) -> bool:
        """A repository that is nobody's project: a home folder, or anything below HERMES_HOME."""
        real, home = os.path.realpath(path), os.path.realpath(self.home)
        return os.path.normcase(real) in _no_workspace() or real == home or real.startswith(home + os.sep)

    def junk_cwd(self, path: str) -> bool:
        """A folder that is nobody's project; one below HERMES_HOME may be somebody's notes."""
        real = os.path.normcase(os.path.realpath(path))
        return real in _no_workspace() or real == os.path.normcase(os.path.realpath(self.home))


def _no_workspace() -> frozenset[str]:
    """The same folders the desktop's sidebar leaves out, in both POSIX spellings on every system."""
    home = os.path.realpath(os.path.expanduser("~"))
    folders = (os.sep, home, os.path.dirname(home), "/home", "/Users")
    return frozenset(os.path.normcase(os.path.realpath(folder)) for folder in folders)


def current(ctx: Any = None, home: Path | None = None) -> Host:
    """The surroundings of this call."""
    home = (home or hermes_home()).expanduser()
    # 0.20 and 0.22 keep a register of connections, so that they never close the file under one.
    connect = _probe("hermes_cli.sqlite_safe_read", "connect_tracked") or sqlite3.connect
    return Host(home, profile_name(home), read_settings(ctx, home), redactor(), connect)


def arguments(args: Any) -> Mapping[str, Any]:
    """A tool call's arguments; anything but an object counts as none."""
    return args if isinstance(args, Mapping) else {}


# -- the host's own way to move a conversation -------------------------------

MOVE = "session.workspace.move"
REQUEST_ID = "project-history-recall"
MAX_FRAME = 1_000_000  # characters of one line of a gateway
ENDING_S = 2.0  # for a gateway to end by itself

# What belongs to the turn or the process this one runs in, and not to a gateway started anew.
_PRIVATE = re.compile(r"^(HERMES_(SESSION|UI|TUI|CRON|KANBAN|DELEGATED|COMPUTE|PLUGIN|PROFILE)|TERMINAL)_")

MoveCall = Callable[[Mapping[str, str], float], Mapping[str, Any]]


def data_folder(home: Path) -> Path:
    """Where the plugin keeps what is its own: not its folder, which the host replaces on update."""
    return home / "plugin-data" / PLUGIN


def terminal_cwd(session_key: str) -> str | None:
    """The folder the next command of a session live in this process starts in; None when there is none."""
    get = getattr(sys.modules.get("tools.terminal_tool"), "get_session_cwd", None)
    return get(session_key) if get is not None else None


def unattended() -> bool:
    """Whether the host's review of a finished turn is running: it goes by the ids of that turn's session."""
    reviewing = _probe("tools.skill_provenance", "is_background_review")
    return reviewing is not None and bool(reviewing())


def loaded_gateway(home: Path) -> MoveCall | None:
    """The gateway of this process, asked for a conversation of `home`; None where it cannot be.

    It is never imported: loading it takes the process's stdout. Ask only inside a
    desktop or TUI turn, because a messaging gateway has it loaded too.
    """
    handle = getattr(sys.modules.get("tui_gateway.server"), "handle_request", None)
    # With `dashboard.turn_isolation` this is a helper process whose moves the gateway overwrites.
    if handle is None or os.environ.get("HERMES_COMPUTE_HOST_CHILD") == "1":
        return None
    profile = _gateway_profile(home)
    if profile is None:
        return None

    def call(params: Mapping[str, str], deadline: float) -> Mapping[str, Any]:
        named = {**params, "profile": profile} if profile else dict(params)
        try:
            answer = handle({"jsonrpc": "2.0", "id": REQUEST_ID, "method": MOVE, "params": named})
        except Exception as error:
            logger.warning("the gateway failed on a move", exc_info=True)
            raise MoveFailed(f"The host failed on the move ({type(error).__name__}); its log says more.") from error
        if not isinstance(answer, Mapping):
            raise MoveFailed("The host did not answer the move.")
        return answer

    return call


def _gateway_profile(home: Path) -> str | None:
    """What the gateway of this process calls `home`: "" for its own, None when it does not know it.

    0.20 takes a name it does not know for its own home, so the name is looked up first.
    """
    launched = getattr(sys.modules["tui_gateway.server"], "_hermes_home", None)
    if launched is not None and Path(launched).resolve() == home.resolve():
        return ""
    find = _probe("hermes_cli.profiles", "get_profile_dir")
    name = profile_name(home) or "default"
    try:
        known = Path(find(name)) if find is not None else None
    except Exception:  # a name the host refuses
        return None
    return name if known is not None and known.is_dir() and known.resolve() == home.resolve() else None


def gateway_child(home: Path) -> MoveCall | None:
    """A gateway of its own over `home`, started for one call and ended after it; None without Hermes."""
    if not sys.executable or find_spec("tui_gateway") is None:
        return None
    # -P: the home is the working directory, and its `plugins` folder must hide no package.
    command = [sys.executable, "-P", "-m", "tui_gateway.entry"]
    return lambda params, deadline: ask_gateway(command, home, params, deadline)


def ask_gateway(command: list[str], home: Path, params: Mapping[str, str], deadline: float) -> Mapping[str, Any]:
    """Start a gateway, put one request to it and end it. Raises MoveFailed when no answer comes by `deadline`."""
    env = {name: value for name, value in os.environ.items() if not _PRIVATE.match(name)}
    # The grace of 0 keeps it from tidying up after other gateways when it lives longer than it should.
    env.update(HERMES_HOME=str(home), HERMES_TUI_WS_ORPHAN_REAP_GRACE_S="0")
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=home,
            env=env,
            start_new_session=os.name != "nt",
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
    except OSError as error:
        raise MoveFailed(f"Hermes could not be started ({error.strerror}). Nothing was changed.") from error
    assert process.stdin
    assert process.stdout
    answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    reader = threading.Thread(target=_listen, args=(process.stdout, answers), daemon=True)
    reader.start()
    request = {"jsonrpc": "2.0", "id": REQUEST_ID, "method": MOVE, "params": dict(params)}
    try:
        with contextlib.suppress(OSError):  # one that has ended already: no answer follows
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        answer = answers.get(timeout=max(0.1, deadline - time.monotonic()))
    except queue.Empty:
        raise MoveFailed("Hermes did not answer the move in time and was ended.") from None
    finally:
        _end(process)
        reader.join(ENDING_S)
        if not reader.is_alive():  # else somebody else holds the pipe, and closing it would wait for them
            process.stdout.close()
    if answer is None:
        raise MoveFailed("Hermes ended without an answer to the move.")
    return answer


def _listen(stdout: IO[bytes], answers: queue.SimpleQueue[dict[str, Any] | None]) -> None:
    """Pass on the answer to our request; events, and what is no JSON, are passed over. None at the end."""
    with contextlib.suppress(OSError, ValueError):
        while line := stdout.readline(MAX_FRAME):
            with contextlib.suppress(ValueError, RecursionError):
                frame = json.loads(line)
                if isinstance(frame, dict) and frame.get("id") == REQUEST_ID and "method" not in frame:
                    answers.put(frame)
    answers.put(None)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let a gateway end by itself, which the end of its input makes it do; kill it when it does not."""
    assert process.stdin
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(ENDING_S)
    except subprocess.TimeoutExpired:
        if sys.platform == "win32":
            process.kill()
        else:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
        process.wait()


# -- a person ------------------------------------------------------------------

Said = Literal["accepted", "declined", "nobody_present"]

ASKING = "project-history/consent"  # what the host's observers see of the question's origin
_YES = frozenset({"once", "session", "always"})
_UNATTENDED = frozenset({"webhook", "msgraph_webhook", "api_server"})
# Scheduled runs, one-shot runs, workers of a board, processes that a subagent started.
_ALONE = ("HERMES_CRON_SESSION", "HERMES_SINGLE_QUERY_SESSION", "HERMES_KANBAN_TASK", "HERMES_DELEGATED_CHILD_CONTEXT")


def ask_person(message: str, description: str) -> Said:
    """Put a question to the person in front of this turn, by the host's own confirmation and for as long as it waits.

    Only an answered card of a gateway or an answered panel of a terminal accepts. "declined" is a no, or no
    answer to a question that was shown; "nobody_present" is everything else: nothing was asked. Nobody is
    asked where the host answers by itself (yolo, `approvals.mode: off`), and stdin is never read.
    Call it on the thread of the tool call, to which the host ties its panel.
    """
    try:
        bypassed = _probe("tools.approval", "is_approval_bypass_active")
        if bypassed is None or bypassed() or _is_alone():
            return "nobody_present"
        is_gateway = _probe_either("_is_gateway_approval_context", "tools.approval", "tools.approval_context")
        if is_gateway is None:
            return "nobody_present"
        return _ask_by_card(message, description) if is_gateway() else _ask_by_panel(message, description)
    except Exception as error:
        logger.warning("nobody could be asked: %s", type(error).__name__)
        return "nobody_present"


def _ask_by_card(message: str, description: str) -> Said:
    """The desktop, the TUI or a chat: whoever listens there for this session's questions."""
    key, listening = (_probe("tools.approval", n) for n in ("get_current_session_key", "_gateway_notify_cbs"))
    ask = _probe_either("request_elicitation_consent", "tools.approval", "tools.approval_prompt")
    if key is None or ask is None or not listening or key() not in listening:
        return "nobody_present"
    return "accepted" if ask(message, description, surface=ASKING) == "accept" else "declined"


def _ask_by_panel(message: str, description: str) -> Said:
    """The terminal or an editor: what it tied to this thread. Without that the host would read stdin."""
    callback = _panel()
    prompt = _probe_either("prompt_dangerous_approval", "tools.approval", "tools.approval_prompt")
    # A one-shot run of 0.19 has a panel and no terminal to paint it on.
    if callback is None or prompt is None or getattr(getattr(callback, "__self__", None), "_app", callback) is None:
        return "nobody_present"
    answers = []

    @functools.wraps(callback)
    def panel(*args: Any, **kwargs: Any) -> Any:
        answers.append(callback(*args, **kwargs))  # when it fails nobody has seen the question
        return answers[-1]

    titled = {"title": "Confirm this action?"} if "title" in inspect.signature(prompt).parameters else {}
    choice = prompt(message, description, allow_permanent=False, approval_callback=panel, **titled)
    if not answers:
        return "nobody_present"
    return "accepted" if choice in _YES and answers[-1] in _YES else "declined"


def _probe_either(name: str, *modules: str) -> Any:
    return next((found for module in modules if (found := _probe(module, name)) is not None), None)


def _panel() -> Any:
    """What answers questions on this thread; None for nothing."""
    get = getattr(sys.modules.get("tools.terminal_tool"), "_get_approval_callback", None)
    return get() if get is not None else None


def _is_alone() -> bool:
    """Whether no person follows this call, whatever surface it reports to."""
    get = _probe("gateway.session_context", "get_session_env") or os.environ.get
    if any(get(name, "") for name in _ALONE) or unattended():
        return True
    if {(get(f"HERMES_SESSION_{of}", "") or "").lower() for of in ("PLATFORM", "SOURCE")} & _UNATTENDED:
        return True
    delegated = _probe("agent.delegation_context", "is_delegated_child_context")  # 0.19 has none
    if delegated is not None and delegated():
        return True
    # The threads of subagents and of the background review answer by themselves, and some say yes.
    answers_itself = _panel()
    module = getattr(answers_itself, "__module__", "") or ""
    automatic = "auto_" in getattr(answers_itself, "__name__", "")
    return automatic or module.startswith(("tools.delegate", "agent.background_review"))


def surface_is_bound() -> bool:
    """Whether a slash command that runs now was typed by somebody: in a session the host bound, or at a terminal.

    A pipe never counts, nor does a session that a variable of the process names. Who it was is not said here.
    """
    try:
        if _is_alone():
            return False
        bound = [at for name, at in contextvars.copy_context().items() if name.name == "HERMES_SESSION_KEY"]
        return any(isinstance(key, str) and key for key in bound) or _is_at_terminal()
    except Exception as error:
        logger.warning("whether a person typed this cannot be told: %s", type(error).__name__)
        return False


def _is_at_terminal() -> bool:
    """Whether this is the interactive command line, its prompt open on a terminal.

    A gateway that somebody started in a terminal has one too: it shows no prompt, and may run this in its loop.
    """
    import asyncio

    with contextlib.suppress(RuntimeError):
        asyncio.get_running_loop()
        return False
    prompt = getattr(sys.modules.get("prompt_toolkit.application.current"), "get_app_or_none", None)
    return prompt is not None and prompt() is not None and sys.stdin is not None and sys.stdin.isatty()


def machine_id() -> str:
    """What tells this machine from others: 64 hex digits, the same at each call and in each process.

    It is the hash of what the system was given at its installation. Where there is no such thing (containers,
    mostly) it is that of the host name: another name then asks again, and two machines of one name are as one.
    """
    try:
        given = _installation()
    except Exception as error:
        logger.debug("this machine has no id to be had: %s", type(error).__name__)
        given = ""
    return hashlib.sha256(f"{PLUGIN}:{given or platform.node()}".encode("utf-8", "surrogatepass")).hexdigest()


def _installation() -> str:
    if sys.platform == "win32":
        import winreg

        access = winreg.KEY_READ | winreg.KEY_WOW64_64KEY
        with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, r"SOFTWARE\Microsoft\Cryptography", 0, access) as key:
            return str(winreg.QueryValueEx(key, "MachineGuid")[0])
    if sys.platform == "darwin":
        import ctypes

        found, wait = (ctypes.c_ubyte * 16)(), (ctypes.c_long * 2)(1, 0)
        return bytes(found).hex() if ctypes.CDLL(None).gethostuuid(found, wait) == 0 else ""
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id", "/etc/hostid"):
        with contextlib.suppress(OSError, ValueError):
            text = Path(path).read_text("ascii").strip()
            if re.fullmatch(r"[0-9a-fA-F-]{8,64}", text):  # and not "uninitialized"
                return text
    return ""
