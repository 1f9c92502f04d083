"""Tables, bars and highlighting: what a terminal shows, and what a pipe gets."""

from __future__ import annotations

import io

import pytest
from project_history_recall import printing


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("text", "cells"), [("abc", 3), ("项目", 4), ("é", 1), ("e\u0301", 1), ("", 0), ("ｱ", 1)])
def test_wide_characters_take_two_cells(text: str, cells: int) -> None:
    assert printing.width(text) == cells


def test_a_text_is_cut_to_its_cells_with_an_ellipsis() -> None:
    assert printing.shorten("conversation", 6) == "conve…"
    assert printing.shorten("项目历史", 6) == "项目…"
    assert printing.shorten("short", 5) == "short"


def test_a_table_of_a_terminal_is_aligned_and_has_heads() -> None:
    lines = printing.table(["Name", "N"], [["项目", "1"], ["Atlas", "12"]], 40)
    assert lines == ["Name   N", "项目   1", "Atlas  12"]


def test_a_table_never_grows_wider_than_its_terminal() -> None:
    rows = [["x" * 200, "项目" * 50, "short"]]
    assert all(printing.width(line) <= 60 for line in printing.table(["A", "B", "C"], rows, 60))


def test_a_column_that_is_to_be_copied_is_never_cut() -> None:
    (_, line) = printing.table(["Id", "Title"], [["20260901_143022_a1b2", "x" * 80]], 30, whole=(0,))
    assert line == "20260901_143022_a1b2  " + "x" * 7 + "…"
    assert "20260901_143022_a1b2" in printing.table(["Id", "T"], [["20260901_143022_a1b2", "y" * 9]], 10, whole=(0,))[1]


def test_a_pipe_gets_whole_fields_without_heads_or_tabs() -> None:
    lines = printing.table(["A", "B"], [["x" * 200, ""]], None)
    assert lines == ["x" * 200 + "  -"]


def test_words_are_marked_whatever_their_case_and_read_literally() -> None:
    assert printing.mark("Retry (a+b) retry", ["retry"]) == "\x1b[1mRetry\x1b[0m (a+b) \x1b[1mretry\x1b[0m"
    assert printing.mark("x (a+b)", ["(a+b)"]) == "x \x1b[1m(a+b)\x1b[0m"
    assert printing.mark("plain", ["", "  "]) == "plain"
    assert printing.mark("ab", ["a", "ab"]) == "\x1b[1mab\x1b[0m"


@pytest.mark.parametrize(
    ("size", "told"),
    [(0, "0 B"), (999, "999 B"), (4_200, "4.2 KB"), (42_000, "42 KB"), (5_250_000, "5.2 MB"), (3e12, "3000.0 GB")],
)
def test_an_amount_is_told_for_people(size: int, told: str) -> None:
    assert printing.amount(size) == told


def test_a_bar_is_drawn_on_a_terminal_and_wiped_at_the_end() -> None:
    terminal = Terminal()
    bar = printing.Bar(terminal, 60)
    bar.show(0.5, "half")
    bar.clear()
    assert f"[{'#' * 14}{'.' * 14}] half" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_a_bar_never_breaks_the_line() -> None:
    terminal = Terminal()
    printing.Bar(terminal, 40).show(7.0, "far too long for this terminal, whatever happens")
    drawn = terminal.getvalue().removeprefix("\r\x1b[K")
    assert printing.width(drawn) <= 39
    assert "\n" not in drawn


def test_a_pipe_gets_no_bar() -> None:
    pipe = io.StringIO()
    bar = printing.Bar(pipe, 80)
    bar.show(0.5, "half")
    bar.clear()
    assert pipe.getvalue() == ""
