"""Print what came back, for a terminal or a pipe. Chinese characters are two columns wide."""

from __future__ import annotations

import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

INDENT = 12
BOLD, DIM, LIT, GOOD, BAD = "1", "2", "1;33", "32", "1;31"


def terminal() -> bool:
    """Whether colours are wanted and seen."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str) -> str:
    return f"\033[{style}m{text}\033[0m" if terminal() else text


def heading(text: str, aside: str) -> None:
    print(f"\n{paint(text, BOLD)}  {paint(aside, DIM)}")


def field(label: str, text: str, *, style: str = "", lines: int = 3) -> None:
    """`label` in the margin, `text` wrapped beside it."""
    for number, (start, end) in enumerate(_first(wrap(text, _room()), lines)):
        margin = (label if number == 0 else "").rjust(INDENT - 2)
        line = text[start:end]
        print(f"{paint(margin, DIM)}  {paint(line, style) if style else line}")


def passage(text: str, words: Iterable[str], *, lines: int = 4) -> None:
    """Past text on as few lines as it takes, with every occurrence of `words` lit."""
    flat = " ".join(text.split())
    lit = _occurrences(flat, words)
    for start, end in _first(wrap(flat, _room() - 2), lines):
        shown = ""
        for on, run in groupby(range(start, end), lambda i: lit[i]):
            part = "".join(flat[i] for i in run)
            shown += paint(part, LIT) if on else part
        print(" " * (INDENT + 2) + shown)


def hit(number: int, found: dict[str, Any]) -> None:
    """One result: where and when it was said, the words, and what was said next."""
    _head(f"{number}.", found)
    passage(found["snippet"], found.get("matched") or ())
    for near in found.get("context") or ():
        if near["message_id"] > found["message_id"]:
            line = shorten(f"{near['role']}: {near['text']}", _room() - 4)
            print(" " * (INDENT + 2) + paint(f"↳ {line}", DIM))


def conversation(found: dict[str, Any]) -> None:
    """One result with everything around it, in the order it was said."""
    _head("", found)
    here = {"message_id": found["message_id"], "role": found["role"], "text": found["snippet"]}
    for near in sorted([*(found.get("context") or ()), here], key=lambda m: int(m["message_id"])):
        mark = "▸ " if near is here else "  "
        field(near["role"][:INDENT], mark + " ".join(near["text"].split()))


def _head(number: str, found: dict[str, Any]) -> None:
    title = found.get("title") or found["session_id"]
    aside = [found["when"], found["role"], f"message {found['message_id']}"]
    aside += [word for word in ("newest", "archived") if found.get(word)]
    if "score_source" in found:
        by = {"keyword": "by its words", "semantic": "by its meaning", "both": "by words and meaning"}
        aside.append(by[found["score_source"]])
    print(f"{paint(number.rjust(INDENT - 2), DIM)}  {paint(title, BOLD)}  {paint(' · '.join(aside), DIM)}")


def shorten(text: str, columns: int) -> str:
    """`text` on one line of at most `columns`."""
    flat = " ".join(text.split())
    lines = wrap(flat, columns - 1)
    return flat if len(lines) < 2 else flat[slice(*lines[0])] + "…"


def wrap(text: str, columns: int) -> list[tuple[int, int]]:
    """Where to break `text`: (start, end) of each line, at spaces or beside wide characters."""
    lines: list[tuple[int, int]] = []
    start = used = 0
    for match in re.finditer(r"\s*([^\s⺀-￯]+|\S)[，。；：、！？）”]*", text):
        width = sum(map(_columns, match[0]))
        if used and used + width > columns:
            lines.append((start, match.start()))
            start = match.end() - len(match[0].lstrip())
            used, width = 0, sum(map(_columns, match[0].lstrip()))
        used += width
    return [*lines, (start, len(text))] if text else []


def _columns(character: str) -> int:
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _occurrences(text: str, words: Iterable[str]) -> list[bool]:
    lit = [False] * len(text)
    for word in filter(None, words):
        for match in re.finditer(re.escape(word), text, re.IGNORECASE):
            lit[match.start() : match.end()] = [True] * (match.end() - match.start())
    return lit


def _first(lines: list[tuple[int, int]], count: int) -> Iterator[tuple[int, int]]:
    yield from lines[:count]


def _room() -> int:
    return min(shutil.get_terminal_size((100, 24)).columns, 110) - INDENT
