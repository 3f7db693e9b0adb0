"""Names and notes as a terminal shows them: what would steer it is spelled out, and what is too wide is cut."""

from __future__ import annotations

import unicodedata

from ..judge.names import one_line, printable

__all__ = ["cells", "one_line", "plain_id", "printable", "shortened"]


def cells(text: str) -> int:
    """How many columns of a terminal a text takes: letters of East Asia take two, marks above letters none."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def shortened(text: str, most: int) -> str:
    """The text, cut to a number of columns where it is longer."""
    if len(text) <= 4 * most and cells(text) <= most:
        return text
    used = 0
    for index, char in enumerate(text):
        used += cells(char)
        if used > most - 1:
            return text[:index] + "…"
    return text


def plain_id(text: str) -> str:
    """An id without what would break a terminal or be read as a separator: control characters and «::»."""
    return one_line(text).replace("::", ":\\x3a")
