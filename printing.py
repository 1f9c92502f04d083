"""Lines for a terminal or a pipe: tables, a progress bar, highlighted words. Pure but for the bar's stream.

A table in a pipe is one line a row, its fields two spaces apart and uncut. Text
comes in clean (see `text.py`); the only escape sequences printed are ours.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import TextIO

GAP = "  "
BAR = 28  # cells
LEAST = 6  # cells of a column that yields
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


def width(text: str) -> int:
    """Cells of a terminal that a text takes: two for a wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) or c == "\u200d" else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def shorten(text: str, cells: int) -> str:
    """The text within that many cells, an ellipsis where it was cut."""
    if width(text) <= cells:
        return text
    kept, room = "", cells - 1
    for c in text:
        room -= width(c)
        if room < 0:
            break
        kept += c
    return kept + "…"


def table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], columns: int | None, whole: Collection[int] = ()
) -> list[str]:
    """Rows as lines: aligned within `columns` cells of a terminal, or plain for a pipe (None), without heads.

    `whole` are the columns that are never cut, whatever the terminal: an id is to be copied.
    """
    listed = [[cell or "-" for cell in row] for row in rows]
    if columns is None:
        return [GAP.join(row) for row in listed]
    listed.insert(0, list(heads))
    widths = [max(width(row[i]) for row in listed) for i in range(len(heads))]
    spare = sum(widths) + len(GAP) * (len(widths) - 1) - columns
    yielding = [i for i in range(len(widths)) if i not in whole]
    while spare > 0 and yielding:
        widest = max(yielding, key=lambda i: widths[i])
        if widths[widest] <= LEAST:
            break
        widths[widest] -= 1
        spare -= 1
    return [GAP.join(_padded(cell, w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in listed]


def _padded(cell: str, cells: int) -> str:
    cell = shorten(cell, cells)
    return cell + " " * (cells - width(cell))


def mark(text: str, words: Iterable[str]) -> str:
    """The text with these words in bold, whatever their case."""
    wanted = sorted({re.escape(word) for word in words if word.strip()}, key=len, reverse=True)
    return re.sub("|".join(wanted), lambda m: f"{_BOLD}{m.group()}{_PLAIN}", text, flags=re.I) if wanted else text


def amount(size: int) -> str:
    """Bytes for a person."""
    for unit in ("B", "KB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size = size / 1000  # type: ignore[assignment]
    return f"{size:.1f} GB"


class Bar:
    """A line that is drawn again and again on a terminal; nothing at all elsewhere."""

    def __init__(self, stream: TextIO, columns: int) -> None:
        self._stream = stream if stream.isatty() else None
        self._columns = columns

    def show(self, share: float, text: str) -> None:
        if self._stream:
            full = round(BAR * min(1.0, max(0.0, share)))
            line = shorten(f"[{'#' * full}{'.' * (BAR - full)}] {text}", self._columns - 1)
            self._stream.write(f"\r\x1b[K{line}")
            self._stream.flush()

    def clear(self) -> None:
        if self._stream:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
