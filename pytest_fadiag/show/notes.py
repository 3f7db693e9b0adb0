"""What stands below the table: what its marks mean, remarks on rows, and what they were not measured alike with."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from .audit import LIKELY_PASS, Audit, AuditRow
from .changes import environment_notes
from .table import EXCUSED, Line


def notes_of(rows: Sequence[AuditRow]) -> list[str]:
    """The notes of all rows, each once."""
    return list(dict.fromkeys([*(note for row in rows for note in row.notes), *environment_notes(rows)]))


def legend(audit: Audit, table: Sequence[Line], width: int = 10_000) -> list[str]:
    """What the shorthand of a rendered table means, as far as it occurs there: ASCII, folded to a width, or no line at all."""
    # Only where there is a report: the reason of an error may hold any word.
    words = {word for row in audit.rows if row.report is not None for word in row.verdict.split()}
    numbers = [cell.text for line in table for cell in line[2:-1]]
    marks = {
        "? likely fires": any(word.rstrip("*").endswith("?") for word in words),
        f"{LIKELY_PASS}: passes as far as the log tells": LIKELY_PASS in words,
        "no: not measured": "no" in words,
        f"{EXCUSED} crosses its threshold, but is excused": any(EXCUSED in text for text in numbers),
    }
    return textwrap.wrap("; ".join(text for text, occurs in marks.items() if occurs), max(20, width))
