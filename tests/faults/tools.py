"""The two tools as a host calls them, on small homes: arguments in, one JSON string out, and what holds of any."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import project_history_recall as plugin
from hypothesis import HealthCheck, configuration, settings
from project_history_recall import host, indexing, semantic
from project_history_recall.embeddings import LocalEmbedder
from project_history_recall.text import NOTICE

from demo import hosts
from tests import homes
from tests.small import Answer, SmallHome

LONG = bool(os.environ.get("PHR_LONG"))

# What hypothesis keeps between runs stays out of the tree.
configuration.set_hypothesis_home_dir(hosts.cache_dir() / "hypothesis")


def examples(count: int) -> settings:
    """So many examples, the same in every run; twenty times as many with PHR_LONG."""
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
    return settings(
        max_examples=20 * count if LONG else count,
        derandomize=True, database=None, deadline=None, suppress_health_check=slow,
    )  # fmt: skip


def configure(home: SmallHome, **given: Any) -> None:
    """The plugin's settings in a home's config.yaml. JSON is YAML."""
    given = {"embedding_provider": "none", **given}
    config = {"plugins": {"entries": {host.PLUGIN: {"settings": given}}}}
    (home.path / "config.yaml").write_text(json.dumps(config), encoding="utf-8")


@contextmanager
def turn(home: Path, **said: str) -> Iterator[None]:
    """A turn of a host over `home`; `said` is what its surface binds, by the names of `scope.Live`."""
    bound = {name: value for name, value in said.items() if name != "ui_session_id"}
    with mock.patch.dict(os.environ):
        for name in [n for n in os.environ if n.startswith(("HERMES_SESSION_", "HERMES_UI_"))]:
            del os.environ[name]
        names = {"session_key": "KEY", "session_id": "ID"}
        os.environ.update({f"HERMES_SESSION_{names.get(n, n.upper())}": value for n, value in bound.items()})
        if "ui_session_id" in said:
            os.environ["HERMES_UI_SESSION_ID"] = said["ui_session_id"]
        os.environ["HERMES_HOME"] = str(home)
        yield


def searched(home: SmallHome, args: Any, caller: str | None = "caller", **said: str) -> str:
    with turn(home.path, **said):
        return plugin.handle_search(args, session_id=caller)


def moved(home: SmallHome, args: Any, caller: str | None = "caller", task: str | None = None, **said: str) -> str:
    """A move, carried out by `obey` in the place of the host's gateway."""

    def call(params: Mapping[str, str], deadline: float) -> Mapping[str, Any]:
        return obey(home, params)

    with turn(home.path, **said), mock.patch.object(host, "gateway_child", return_value=call):
        return plugin.handle_move(args, session_id=caller, task_id=task)


def obey(home: SmallHome, params: Mapping[str, str]) -> Mapping[str, Any]:
    """What `session.workspace.move` does to a row that nobody has open."""
    key, cwd = params["session_key"], params["cwd"]
    home.write("UPDATE sessions SET cwd = ?, git_repo_root = NULL WHERE id = ?", [(cwd, key)])
    return {"result": {"cwd": cwd, "branch": "", "git_repo_root": ""}}


class Same(LocalEmbedder):
    """An embedder to which all texts mean the same: whatever the scope lets through is found."""

    fingerprint, dim = "same", 8

    def encode(self, texts: Any) -> Any:
        import numpy as np

        return np.full((len(texts), self.dim), 8**-0.5, np.float32)


@contextmanager
def all_mean_the_same() -> Iterator[None]:
    with mock.patch.object(semantic, "LocalEmbedder", Same):
        yield
    indexing.stop_workers()
    indexing._workers.clear()
    for store in semantic._stores.values():
        store.close()
    semantic._stores.clear()


# What no string of an answer holds: what reorders or hides text, and what opens or closes a fence.
UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
)
FENCE = re.compile(
    r"!\[|<\||<[\s/]*(?:system|memory-context|untrusted|persisted-output|tool_call|function_call|invoke|antml|img"
    r"|script|iframe)",
    re.I,
)


def checked(text: str, budget: int = 7_500) -> Answer:
    """The answer, once what must hold of any is seen to hold."""
    assert len(text) <= budget
    text.encode()  # fails on a lone surrogate
    answer: Answer = json.loads(text, parse_constant=_refuse)
    assert next(iter(answer)) == "notice"
    assert answer["notice"] == NOTICE
    assert answer["success"] in (True, False)
    assert answer.get("error") != "internal_error", answer
    for told in homes.texts(answer):
        assert not UNSEEN.search(told), told
        assert not FENCE.search(told), told
    return answer


def _refuse(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is no JSON")
