"""Names and notes come from files that anyone may have written: what would steer a terminal is spelled out."""

from __future__ import annotations

import unicodedata


def printable(text: str) -> str:
    """The text with control and other invisible characters as escapes; the line breaks stay."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else _escape(char) for char in text)


def one_line(text: str) -> str:
    """The text on one line: line breaks are escaped too."""
    return printable(text).replace("\n", "\\n")


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def cells(text: str) -> int:
    """How many columns of a terminal a text takes: letters of East Asia take two, marks above letters none."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def shortened(text: str, most: int) -> str:
    """The text, cut to a number of columns where it is longer."""
    if cells(text) <= most:
        return text
    while cells(text) > most - 1:
        text = text[:-1]
    return text + "…"
