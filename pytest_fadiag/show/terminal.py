"""What the terminal shows at the end of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .audit import Audit
from .table import lines

ASCII = str.maketrans(
    {"‖": "|", "±": "~", "…": "~", "×": "x", "−": "-", "–": "-", "≥": ">=", "≤": "<="}
    | {"✗": "!", "·": "|", "→": ">", "²": "2"}
)


def write_table(
    writer: Any, audit: Audit, more: Sequence[str] = (), *, quiet: bool = False
) -> None:
    """Write the table (with ``quiet`` one line per network), notes, and the audit in one line."""
    encoding = getattr(writer._file, "encoding", None) or "ascii"
    ascii_only = "utf" not in encoding.lower()
    for line in lines(audit, writer.fullwidth, more, quiet=quiet):
        for text, colour in line:
            plain = text.translate(ASCII).encode("ascii", "replace").decode()
            writer.write(plain if ascii_only else text, **({colour: True} if colour else {}))
        writer.line()
