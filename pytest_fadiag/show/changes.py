"""How an audit differs from a recorded one: numbers that moved, and what they were measured with."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from ..judge.diagnostics import Column, ColumnKind
from ..judge.report import DiagnosticReport
from ..judge.wording import points
from .audit import ACCURACY, AuditRow

TOLERANCE = 0.01
"""How far a number may move, relative to what it was, before the table says so."""
SLACK = 1e-6
"""What rounding may add to that, relative: exactly one percent is not more than one percent, whichever way it rounds."""
LEAST_POINTS = 0.01
"""Below this a difference in points has not moved, however small it was: two decimals are shown."""
LEAST_COSINE = 0.01
"""How far a cosine may move: one percent of almost nothing is noise, so it moves by an absolute amount."""
COMPARED = {
    "torch": "torch",
    "device": "device",
    "dtype": "dtype",
    "threads": "threads",
    "tf32": "TF32",
    "batches": "probe batches",
    "data_sha256": "test data",
    "normalisation": "normalisation",
    "checkpoint_sha256": "checkpoint",
}
"""What the numbers were measured with that decides them, and what a reader calls it."""
PLURAL = ("threads", "batches")


class Move(NamedTuple):
    """One number then and now; ``None`` where it was not measured."""

    column: Column
    before: float | None
    now: float | None

    @property
    def was(self) -> str:
        """The number then."""
        return self.column.show(self.before)

    @property
    def became(self) -> str:
        """The number now."""
        return self.column.show(self.now)

    def __str__(self) -> str:
        """How far, in the words that mislead least: points, a difference, a percentage, a factor, or what it was."""
        if self.before is None:
            return "new"
        if (
            self.now is None
            or self.column.kind is ColumnKind.COUNT
            or not (math.isfinite(self.before) and math.isfinite(self.now))
        ):
            return f"was {self.was}"
        if self.column.kind in (ColumnKind.POINTS, ColumnKind.COSINE):  # a share of it would mislead near zero
            return points(self.now - self.before)
        return _share(self.before, self.now) or f"was {self.was}"


def _share(before: float, now: float) -> str:
    """A percentage between half and double, a factor beyond; nothing where a zero or a change of sign allows neither."""
    if before == 0 or now == 0 or (before > 0) != (now > 0):
        return ""
    factor = now / before
    if 0.5 <= factor <= 2:
        percent = 100 * (abs(now) - abs(before)) / abs(before)
        return f"{percent:+.0f}%"
    times = factor if factor > 1 else before / now
    return f"{'×' if factor > 1 else '÷'}{_two_digits(times)}" if math.isfinite(times) else ""


def _two_digits(value: float) -> str:
    """A number above one in two significant digits: 2.3, 14, 1000, 1.2e+05."""
    rounded = float(f"{value:.1e}")
    return f"{rounded:.1f}" if rounded < 10 else f"{rounded:.0f}" if rounded < 1e5 else f"{rounded:.1e}"


def moves(row: AuditRow) -> dict[str, Move]:
    """The columns of a row whose number is clearly more than the tolerance away from the recorded one, or came or went."""
    if row.report is None or row.recorded is None:
        return {}
    then, report = row.recorded, row.report
    both = [d for d in report.available if d.name in report.diagnostics and d.name in then.diagnostics]
    columns = (ACCURACY, *(column for diagnostic in both for column in diagnostic.columns))
    compared = (Move(column, column.value(then), column.value(report)) for column in columns)
    return {move.column.title: move for move in compared if _moved(move)}


def _moved(move: Move) -> bool:
    before, now = move.before, move.now
    if before is None or now is None:
        return before is not now
    if not (math.isfinite(before) and math.isfinite(now)):
        return before != now and not (math.isnan(before) and math.isnan(now))
    least = TOLERANCE * abs(before)
    if move.column.kind is ColumnKind.POINTS:
        least = max(LEAST_POINTS, least)
    elif move.column.kind is ColumnKind.COSINE:
        least = LEAST_COSINE
    return abs(now - before) > least * (1 + SLACK)


def environment_notes(rows: Iterable[AuditRow]) -> list[str]:
    """What the rows of one audit, or a row and its record, were not measured alike with."""
    rows = [row for row in rows if row.report is not None]
    notes = []
    for key, name in COMPARED.items():
        if key not in ("dtype", "checkpoint_sha256"):  # those belong to each checkpoint
            values = _in_order({str(used[key]) for row in rows if row.report and key in (used := _measured_with(row.report))})
            if len(values) > 1:
                notes.append(f"these rows differ in {name}: {', '.join(_short(key, value) for value in values)}")
    changed: dict[str, list[str]] = {}
    for row in rows:
        if row.recorded is None or row.report is None:
            continue
        then, now = _measured_with(row.recorded), _measured_with(row.report)
        for key, name in COMPARED.items():
            if key in then and key in now and then[key] != now[key]:
                was, is_ = ("were", "are") if key in PLURAL else ("was", "is")
                text = f"{name} {was} {_short(key, str(then[key]))} when recorded and {is_} {_short(key, str(now[key]))} now"
                changed.setdefault(text, []).append(row.checkpoint)
    for text, names in changed.items():
        whole = len(names) == sum(row.recorded is not None for row in rows) and len(names) > 1
        notes.append(text if whole else f"{names[0]}{f' and {len(names) - 1} more' * (len(names) > 1)}: {text}")
    return notes


def _measured_with(report: DiagnosticReport) -> dict[str, str | int | bool]:
    """The environment of a report, how many batches its probe had, and how its inputs were normalised."""
    batches, inputs = report.companions.batches, report.inputs
    return {
        **report.environment,
        **({} if batches is None else {"batches": batches}),
        **({} if inputs is None else {"normalisation": inputs.normalisation}),
    }


def _short(key: str, value: str) -> str:
    return f"{value[:12]}…" if key.endswith("sha256") else value


def _in_order(values: Iterable[str]) -> list[str]:
    """Numbers by their size, then words by their letters."""
    return sorted(values, key=lambda value: (not value.isdigit(), int(value) if value.isdigit() else 0, value))
