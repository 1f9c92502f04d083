"""The bundled skill: a page that each host can load, and that speaks of what there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import project_history_recall as plugin
import pytest
import yaml

from demo import hosts
from tests.conftest import Probe

FILE = hosts.ROOT / "skills" / "project-history" / "SKILL.md"
TEXT = FILE.read_text("utf-8")
FRONTMATTER, BODY = re.fullmatch(r"---\n(.*?)\n---\n(.*)", TEXT, re.S).groups()  # type: ignore[union-attr]

ARGUMENTS = {
    argument for schema in (plugin.SEARCH_SCHEMA, plugin.MOVE_SCHEMA) for argument in schema["parameters"]["properties"]
}
# What an answer holds, as the search writes it.
IN_ANSWERS = {
    "topic",
    "last",
    "newest",
    "ends",
    "next",
    "earlier",
    "later",
    "elsewhere",
    "via",
    "drifted",
    "message_id",
}
VALUES = {"ID#message", "7d", "2w"}


def test_it_is_at_most_a_page() -> None:
    assert len(TEXT.splitlines()) <= 60
    assert len(TEXT) < 4_000


def test_its_name_is_its_folders_and_its_description_fits_a_list() -> None:
    told = yaml.safe_load(FRONTMATTER)
    assert told["name"] == FILE.parent.name == "project-history"
    assert 20 < len(told["description"]) < 120


def test_it_names_nothing_that_is_not_there() -> None:
    named = set(re.findall(r"`([^`]+)`", BODY))
    names = {name.partition(":")[0] for name in named} - VALUES
    tools = {plugin.SEARCH_SCHEMA["name"], plugin.MOVE_SCHEMA["name"]}
    assert names <= ARGUMENTS | IN_ANSWERS | tools
    assert tools <= names
    modes = plugin.SEARCH_SCHEMA["parameters"]["properties"]["mode"]["enum"]
    assert {name.partition(": ")[2] for name in named if name.startswith("mode: ")} <= set(modes)


def test_what_an_answer_holds_stands_in_the_code_that_writes_it() -> None:
    written = "".join((hosts.ROOT / f"{name}.py").read_text("utf-8") for name in ("search", "answers"))
    assert [name for name in IN_ANSWERS if f'"{name}"' not in written] == []


@pytest.mark.parametrize(
    "argument",
    ["after", "before", "session_id", "project", "exclude_session_ids", "around_message_id", "mode", "context", "undo"],
)
def test_it_teaches_each_way_to_steer_the_search(argument: str) -> None:
    assert re.search(rf"`{argument}\b", BODY)


def test_it_does_not_send_the_agent_to_the_hosts_own_search() -> None:
    assert "session" + "_search" not in TEXT


@pytest.fixture(scope="module")
def loaded(probe: Probe, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home: Path = tmp_path_factory.mktemp("skill") / "home"
    hosts.install_plugin(home)
    return probe("skill", home)


def test_the_host_loads_it_whole(loaded: dict[str, Any]) -> None:
    assert loaded["listed"] == ["project-history"]
    assert loaded["file"].endswith("skills/project-history/SKILL.md")
    viewed = loaded["viewed"]
    assert viewed["success"] is True, viewed
    assert viewed["name"] == "project-history-recall:project-history"
    assert viewed["description"] == yaml.safe_load(FRONTMATTER)["description"]
    assert BODY.strip() in viewed["content"]
    assert viewed["readiness_status"] == "available"
    assert loaded["missing"]["success"] is False


def test_the_host_is_told_what_it_is_for(loaded: dict[str, Any]) -> None:
    assert loaded["registered"]
