"""What the terminal shows at the end of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .audit import Audit
from .table import lines


def write_table(
    writer: Any, audit: Audit, more: Sequence[str] = (), *, quiet: bool = False
) -> None:
    """Write the table (with ``quiet`` one line per network), notes, and the audit in one line."""
    encoding = getattr(writer._file, "encoding", None) or "ascii"
    ascii_only = "utf" not in encoding.lower()
    for line in lines(audit, writer.fullwidth, more, quiet=quiet, ascii_only=ascii_only):
        for text, colour in line:
            writer.write(text, **({colour: True} if colour else {}))
        writer.line()
