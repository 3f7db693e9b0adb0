"""How an audit differs from a recorded one: numbers that moved, and what they were measured with."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from ..protocol.wording import points
from .rows import COLUMNS, AuditRow

TOLERANCE = 0.01
"""How far a number may move, relative to what it was, before the table says so."""
POINTS = "margin"
"""The column that is a difference already: it moves by points, and a share of it would mislead near zero."""
COMPARED = {
    "torch": "torch",
    "device": "device",
    "dtype": "dtype",
    "threads": "threads",
    "tf32": "TF32",
    "data_sha256": "test data",
    "checkpoint_sha256": "checkpoint",
}
"""What of the environment decides numbers, and what a reader calls it."""


class Move(NamedTuple):
    """One number then and now."""

    column: str
    before: float
    now: float

    def __str__(self) -> str:
        if self.column == POINTS:
            return points(self.now - self.before)
        if self.before == 0:
            return "from 0"
        share = 100 * (self.now / self.before - 1)
        return f"{share:+.0f}%" if abs(share) < 1000 else f"x{self.now / self.before:.1g}"


def moves(row: AuditRow) -> dict[str, Move]:
    """The columns of a row whose number is more than the tolerance away from the recorded one."""
    if row.report is None or row.recorded is None:
        return {}
    found = {}
    for column in COLUMNS:
        before, now = column.value(row.recorded), column.value(row.report)
        if before is None or now is None or not (math.isfinite(before) and math.isfinite(now)):
            continue
        if abs(now - before) > TOLERANCE * abs(before):
            found[column.title] = Move(column.title, before, now)
    return found


def environment_notes(rows: Iterable[AuditRow]) -> list[str]:
    """What the rows of one audit, or a row and its record, were not measured alike with."""
    rows = [row for row in rows if row.report is not None]
    notes = []
    for key, name in COMPARED.items():
        if key not in ("dtype", "checkpoint_sha256"):  # those belong to each checkpoint
            values = sorted({str(row.report.environment[key]) for row in rows if row.report and key in row.report.environment})
            if len(values) > 1:
                notes.append(f"these rows differ in {name}: {', '.join(_short(key, value) for value in values)}")
    changed: dict[str, list[str]] = {}
    for row in rows:
        if row.recorded is None or row.report is None:
            continue
        then, now = row.recorded.environment, row.report.environment
        for key, name in COMPARED.items():
            if key in then and key in now and then[key] != now[key]:
                text = f"{name} was {_short(key, str(then[key]))} when recorded and is {_short(key, str(now[key]))} now"
                changed.setdefault(text, []).append(row.checkpoint)
    for text, names in changed.items():
        whole = len(names) == sum(row.recorded is not None for row in rows) and len(names) > 1
        notes.append(text if whole else f"{names[0]}{f' and {len(names) - 1} more' * (len(names) > 1)}: {text}")
    return notes


def _short(key: str, value: str) -> str:
    return f"{value[:12]}…" if key.endswith("sha256") else value
