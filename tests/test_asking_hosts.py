"""Asking a person in the real hosts: who can say yes, who cannot, and that nothing else is taken for a yes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from demo import hosts
from tests.homes import Probe

ACCEPTED = [
    *("desktop once", "desktop session", "desktop always", "chat once", "editor"),
    *("terminal once", "terminal session", "terminal always"),
]
DECLINED = ["desktop deny", "desktop None", "chat deny", "terminal deny", "terminal None"]
NOBODY = [
    *("bare", "bare interactive", "one-shot", "-q", "-q with the panel of 0.19"),
    *("desktop without a client", "chat without a client", "a panel that fails"),
]
NOT_A_PERSON = [
    *("cron", "cron bare", "cron of a chat", "board worker", "webhook", "msgraph_webhook", "api_server"),
    *("subagent of a terminal", "subagent of a desktop", "review of a desktop", "the host fails"),
    *("session yolo", "process yolo", "mode off, desktop", "mode off, terminal", "mode off, bare"),
]
SINCE_020 = ["delegated, desktop", "delegated, terminal", "cron of this turn alone"]


@pytest.fixture(scope="module")
def reported(probe: Probe, host: hosts.Host, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One run of the probe in each host."""
    home = tmp_path_factory.mktemp(f"asking{host.name}") / "home"
    home.mkdir()
    return probe("ask_person", home)


@pytest.mark.parametrize("case", ACCEPTED)
def test_a_person_who_says_yes_has_said_it(reported: dict[str, Any], case: str) -> None:
    assert reported["answers"][case] == ["accepted", 1]


@pytest.mark.parametrize("case", DECLINED)
def test_a_no_and_no_answer_are_both_a_no(reported: dict[str, Any], case: str) -> None:
    assert reported["answers"][case] == ["declined", 1]


@pytest.mark.parametrize("case", NOBODY)
def test_where_nobody_is_there_nobody_has_agreed(reported: dict[str, Any], case: str) -> None:
    assert reported["answers"][case] == ["nobody_present", 0]


@pytest.mark.parametrize("case", NOT_A_PERSON)
def test_what_answers_without_a_person_is_never_asked(reported: dict[str, Any], case: str) -> None:
    assert reported["answers"][case] == ["nobody_present", 0]


@pytest.mark.parametrize("case", SINCE_020)
def test_what_newer_hosts_mark_as_no_person_is_never_asked(
    reported: dict[str, Any], host: hosts.Host, case: str
) -> None:
    assert reported["answers"].get(case) == (None if host.name == "0.19" else ["nobody_present", 0])


def test_a_client_that_fails_has_not_agreed(reported: dict[str, Any]) -> None:
    assert reported["answers"]["desktop broken"] == ["declined", 1]


def test_every_case_is_accounted_for(reported: dict[str, Any]) -> None:
    named = {*ACCEPTED, *DECLINED, *NOBODY, *NOT_A_PERSON, *SINCE_020, "desktop broken"}
    assert set(reported["answers"]) <= named


def test_a_yes_waiting_on_stdin_is_left_there(reported: dict[str, Any]) -> None:
    assert reported["read"] == 0


def test_the_host_itself_would_have_read_it(reported: dict[str, Any]) -> None:
    """Else the test above could not fail."""
    assert reported["unwrapped"] == "accept"


def test_the_question_is_shown_as_it_was_put(reported: dict[str, Any]) -> None:
    assert reported["questions"] == ["Send the texts of Atlas to api.example.com?"]


def test_a_slash_command_counts_where_the_host_bound_a_session(reported: dict[str, Any]) -> None:
    assert [reported["typed"][who] for who in ("a desktop", "a chat")] == [True, True]


@pytest.mark.parametrize(
    "who",
    [
        "a pipe",
        "a pipe, interactive",
        "a pipe into the prompt",
        "a key in the environment",
        "a session that has ended",
        "a webhook",
        "cron",
        "a subagent",
        "one-shot",
    ],
)
def test_a_slash_command_counts_nowhere_else(reported: dict[str, Any], who: str) -> None:
    assert reported["typed"][who] is False


@pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals")
@pytest.mark.parametrize(
    ("who", "counts"),
    [
        ("a terminal", True),
        ("a terminal without a prompt", False),
        ("a terminal, one-shot", False),
        ("a gateway's loop in a terminal", False),
    ],
)
def test_a_slash_command_counts_at_the_open_prompt_of_a_terminal(
    reported: dict[str, Any], who: str, counts: bool
) -> None:
    assert reported["typed"][who] is counts


def test_this_machine_has_one_name_in_every_host(reported: dict[str, Any]) -> None:
    from project_history_recall import host as module

    assert reported["machines"] == [module.machine_id()] * 2
    assert len(module.machine_id()) == 64


def test_without_hermes_nobody_can_be_asked(tmp_path: Path) -> None:
    from project_history_recall import host as module

    assert module.ask_person("Send it?", "") == "nobody_present"
    assert module.surface_is_bound() is False
