"""Names and notes come from files that anyone may have written: escaped where they come in, and refused if they have no end."""

from __future__ import annotations

from typing import Any

from .errors import AuditError

LONGEST_NAME = 4096
"""Characters of a checkpoint's id, which may be a path."""
LONGEST_METHOD = 500
"""Characters of a method's name, which stands in tables, test ids and titles."""
LONGEST_TEXT = 100_000
"""Characters of a note or a reason."""


def printable(text: str) -> str:
    """The text with control and other invisible characters as escapes; the line breaks stay."""
    lines = text.split("\n")
    return "\n".join(line if line.isprintable() else "".join(map(_escape, line)) for line in lines)


def one_line(text: str) -> str:
    """The text on one line: line breaks are escaped too."""
    return printable(text).replace("\n", "\\n")


def as_name(text: Any, what: str, longest: int = LONGEST_METHOD) -> str:
    """A name as it may be shown anywhere, on one line; one that is too long to be a name is an error."""
    text = str(text)
    if len(text) > longest:
        raise AuditError(f"{what} has {len(text):,} characters, and at most {longest:,} make a name: {one_line(text[:40])}…")
    return one_line(text)


def as_text(text: Any, what: str) -> str:
    """A note as it may be shown anywhere."""
    text = str(text)
    if len(text) > LONGEST_TEXT:
        raise AuditError(f"{what} has {len(text):,} characters, and at most {LONGEST_TEXT:,} are read: {one_line(text[:40])}…")
    return printable(text)


def _escape(char: str) -> str:
    return char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
