"""What the terminal shows at the end of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from .audit import Audit
from .table import lines


class Writer(Protocol):
    """What a terminal offers: pytest's own writer does."""

    _file: Any

    @property
    def fullwidth(self) -> int: ...
    def write(self, msg: str, **markup: bool) -> None: ...
    def line(self, s: str = "", **markup: bool) -> None: ...


def write_table(
    writer: Writer, audit: Audit, more: Sequence[str] = (), *, quiet: bool = False
) -> None:
    """Write the table (with ``quiet`` one line per network), notes, and the audit in one line."""
    encoding = getattr(writer._file, "encoding", None) or "ascii"
    ascii_only = "utf" not in encoding.lower()
    for line in lines(audit, writer.fullwidth, more, quiet=quiet, ascii_only=ascii_only):
        for text, colour in line:
            writer.write(text, **({colour: True} if colour else {}))
        writer.line()
