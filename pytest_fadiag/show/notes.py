"""What stands below the table: what its marks mean, remarks on rows, and what they were not measured alike with."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from ..judge.reference import UNPROVEN
from .audit import Audit, AuditRow
from .changes import environment_notes
from .status import LIKELY, Standing
from .table import EXCUSED, FIRST, Line

EXCUSED_MEANS = "crosses its threshold, but is excused"


def notes_of(rows: Sequence[AuditRow]) -> list[str]:
    """The notes of all rows, each once, with the first row that it holds for and how many more there are."""
    names: dict[str, dict[str, None]] = {}
    for row in rows:
        for name, note in _notes(row):
            names.setdefault(note, {})[name] = None
    return [*(f"{_first(list(own))}{note}" for note, own in names.items()), *environment_notes(rows)]


def _first(names: Sequence[str]) -> str:
    """Whom a note holds for; one without a name holds for the run."""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0]}{more}: " if names[0] else ""


def _notes(row: AuditRow) -> Iterator[tuple[str, str]]:
    """What the status alone would hide: remarks on the checkpoint, and a control that is not its own."""
    if row.report is None:
        return
    if unkept := row.report.environment.get("not_cached"):
        yield "", f"not cached, so that the next run measures again: {unkept}"
    if row.report.unproven:
        yield row.checkpoint, f"{UNPROVEN}: {row.report.unproven}"
    for remark in row.report.remarks:
        yield row.checkpoint, remark
    control = row.report.control
    if control is not None and (another := control.another_method(row.method)):
        yield row.method, another.text
    if control is not None and (another := control.another_seed(row.seed)):
        yield row.checkpoint, another.text


def has_expected(audit: Audit) -> bool:
    """Whether anything bears the mark of what is as expected."""
    return any(row.status.as_expected for row in audit.rows) or any(margin.as_expected for margin in audit.margins)


def legend(audit: Audit, table: Sequence[Line], width: int = 10_000) -> list[str]:
    """What the shorthand of a rendered table means, as far as it occurs there: ASCII, folded to a width, or no line at all."""
    statuses = [row.status for row in audit.rows]
    marks = {
        "? likely fires": any(set(status.fired) & set(status.likely) for status in statuses),
        f"{LIKELY}: passes as far as is known": any(
            status.standing is not Standing.WALK_BACK and set(status.passed) & set(status.likely) for status in statuses
        ),
        "no: not measured": any(status.reported and status.absent for status in statuses),
        f"{FIRST} in brackets: not at the end": any(cell.text.strip() == FIRST for line in table for cell in line)
        and any(set(row.first_fired) - set(row.fired) for row in audit.rows),
        f"{EXCUSED} {EXCUSED_MEANS}": any(cell.excused for line in table for cell in line),
    }
    return textwrap.wrap("; ".join(text for text, occurs in marks.items() if occurs), max(20, width))
