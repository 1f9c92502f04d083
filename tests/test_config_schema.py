"""A slip in config.yaml costs a setting, never a search."""

from __future__ import annotations

from typing import Any

import pytest
from project_history_recall.config_schema import Settings


def test_nothing_set_is_the_defaults() -> None:
    assert Settings.parse({}) == Settings() == Settings.parse({"max_result_chars": None, "owner_chats": None})
    assert Settings().max_result_chars == 7_500
    assert Settings().owner_chats == frozenset()


@pytest.mark.parametrize(
    ("given", "used"),
    [(9_000, 9_000), ("9000", 9_000), (" 9000 ", 9_000), (2_000, 2_000), (60_000, 60_000), (1_999, 2_000), (0, 2_000),
     (-5, 2_000), ("1", 2_000), (60_001, 60_000), (10**30, 60_000)],
)  # fmt: skip
def test_a_budget_is_taken_and_kept_within_its_bounds(given: Any, used: int) -> None:
    assert Settings.parse({"max_result_chars": given}) == Settings(max_result_chars=used)


@pytest.mark.parametrize("given", ["", "many", "1e4", [], {}, [9_000], True, float("nan"), float("inf"), "9" * 9_999])
def test_a_budget_that_is_no_number_leaves_the_default_and_a_sentence(given: Any) -> None:
    settings = Settings.parse({"max_result_chars": given})
    assert settings.max_result_chars == 7_500
    assert len(settings.problems) == 1
    assert "max_result_chars" in settings.problems[0]


@pytest.mark.parametrize(
    ("given", "chats"),
    [
        (["telegram:42"], {"telegram:42"}),
        (["telegram:42", "matrix:@me:example.org"], {"telegram:42", "matrix:@me:example.org"}),
        (["telegram:42", "telegram:42"], {"telegram:42"}),
        ([" Telegram : 42 "], {"telegram:42"}),
        (["slack:U0AbC"], {"slack:U0AbC"}),
        ("telegram:42", {"telegram:42"}),
        ("telegram:42, discord:7", {"telegram:42", "discord:7"}),
        ([{"telegram": 42}], {"telegram:42"}),
        ({"telegram": 42, "discord": "7"}, {"telegram:42", "discord:7"}),
        ("", set()),
        ([], set()),
        (["", " "], set()),
    ],
)
def test_the_owners_chats_are_read_as_people_list_them(given: Any, chats: set[str]) -> None:
    settings = Settings.parse({"owner_chats": given})
    assert settings.owner_chats == chats
    assert not settings.problems


@pytest.mark.parametrize(
    "entry", ["telegram", "telegram:", ":42", 42, None, True, ["telegram:42"], {"telegram": [1, 2]}, {"telegram": None}]
)
def test_an_entry_that_names_no_chat_is_left_out_and_told(entry: Any) -> None:
    settings = Settings.parse({"owner_chats": [entry, "discord:7"]})
    assert settings.owner_chats == {"discord:7"}
    assert len(settings.problems) == 1


def test_a_problem_names_no_value() -> None:
    settings = Settings.parse({"max_result_chars": "hunter2", "owner_chats": ["hunter2"]})
    assert len(settings.problems) == 2
    assert "hunter2" not in "".join(settings.problems)
