"""Consent end to end in the real hosts: what the endpoint got, counted by the endpoint, in every kind of turn."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest

from demo import hosts
from tests.homes import PROBES

NOBODY = [
    *("bare", "one-shot", "-q", "cron", "session yolo", "process yolo", "mode off", "subagent"),
    *("webhook", "api_server", "telegram"),
]
BEFORE = ["before, keyword", "before, semantic", "before, hybrid", "before, reading on"]


@pytest.fixture(scope="module")
def reported(host: hosts.Host, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One run of the probe in each host, with the plugin's dependencies installed there."""
    import json

    base = tmp_path_factory.mktemp(f"remote{host.name}")
    hosts.install_plugin(base / "home")
    done = subprocess.run(
        [str(hosts.environment(host, with_plugin=True)), str(PROBES / "remote.py"), str(base / "work")],
        env=hosts.child_env(host, base / "home"), cwd=base / "home", stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    told: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return told


@pytest.mark.parametrize("step", BEFORE)
def test_before_anybody_agreed_nothing_is_sent(reported: dict[str, Any], step: str) -> None:
    told = reported["steps"][step]
    assert (told["status"], told["sent"]) == ("consent_required", 0)
    assert told["request"]


@pytest.mark.parametrize("step", NOBODY)
def test_where_no_person_answers_nothing_is_agreed_and_nothing_sent(reported: dict[str, Any], step: str) -> None:
    told = reported["steps"][step]
    assert told["status"] != "ready"
    assert (told["asked"], told["sent"]) == (0, 0)


@pytest.mark.parametrize("step", ["allow, piped", "allow, piped and interactive", "allow, piped into the prompt"])
def test_a_piped_allow_is_no_agreement(reported: dict[str, Any], step: str) -> None:
    assert "Only a person who types this" in reported["steps"][step]["told"]
    after = reported["steps"]["after the pipes"]
    assert (after["status"], after["sent"]) == ("consent_required", 0)


def test_a_no_is_kept_for_the_conversation(reported: dict[str, Any]) -> None:
    first, again = reported["steps"]["declined"], reported["steps"]["asked again"]
    assert (first["status"], first["asked"], first["sent"]) == ("consent_required", 1, 0)
    assert (again["status"], again["asked"], again["sent"]) == ("consent_required", 0, 0)


def test_a_yes_at_the_desktop_counts_at_once_and_later(reported: dict[str, Any]) -> None:
    agreed, then = reported["steps"]["agreed in another conversation"], reported["steps"]["then"]
    assert (agreed["status"], agreed["asked"]) == ("ready", 1)
    assert agreed["sent"] > 0
    assert then["status"] == "ready"
    assert {"semantic", "both"} & set(then["sources"])


@pytest.mark.parametrize("step", ["another project", "another model"])
def test_another_project_and_another_model_ask_again(reported: dict[str, Any], step: str) -> None:
    told = reported["steps"][step]
    assert (told["status"], told["sent"]) == ("consent_required", reported["steps"]["then"]["sent"])


@pytest.mark.parametrize("step", ["after revoking", "after restoring"])
def test_what_was_taken_back_stays_so_even_when_a_backup_is_restored(reported: dict[str, Any], step: str) -> None:
    told = reported["steps"][step]
    assert (told["status"], told["sent"]) == ("consent_required", reported["steps"]["then"]["sent"])


@pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals")
def test_an_allow_that_somebody_types_counts(reported: dict[str, Any]) -> None:
    assert "Agreed" in reported["steps"]["allow, typed"]["told"]
    assert reported["steps"]["after typing"]["status"] == "ready"


def test_a_yes_at_the_terminals_panel_counts(reported: dict[str, Any]) -> None:
    told = reported["steps"]["a panel"]
    assert (told["status"], told["asked"]) == ("ready", 1)


def test_only_the_words_of_the_project_and_the_query_were_sent(reported: dict[str, Any]) -> None:
    assert "leases" in reported["texts"]
    assert any("Why do the leases expire" in text for text in reported["texts"])
    assert not reported["foreign"]
    assert not reported["secret"]
