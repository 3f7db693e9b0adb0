"""The numbers of the page's tables: a row a checkpoint or log, and a mean of each method over its seeds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ...judge.diagnostics import Column, Diagnostic, Finding
from ..audit import Audit, AuditRow
from ..changes import Move, moves
from ..groups import MethodGroup, method_groups
from ..numbers import deciding


class Cell(NamedTuple):
    """One number of a row."""

    shown: str | None
    """Nothing where it was not measured."""
    sort: str | None
    finding: Finding | None
    """What rests on the number."""
    likely: bool
    move: Move | None


class MeanCell(NamedTuple):
    """One mean over seeds."""

    shown: str | None
    sort: str | None
    deviation: str


def headers(audit: Audit) -> list[tuple[str, Diagnostic | None]]:
    """The titles of the numbers, each with the diagnostic that rests on it."""
    owners = {diagnostic.key: diagnostic for diagnostic in audit.diagnostics}
    return [(column.title, owners.get(column.key)) for column in audit.columns]


def twins(rows: Sequence[AuditRow]) -> set[str]:
    """The checkpoints that their method and seed do not tell apart."""
    counts = Counter((row.method, row.seed, row.partial) for row in rows)
    return {row.checkpoint for row in rows if row.seed is None or counts[row.method, row.seed, row.partial] > 1}


def cells(audit: Audit, row: AuditRow) -> list[Cell]:
    """The numbers of a row, in the order of the columns."""
    moved = moves(row)
    return [_cell(audit, row, column, moved.get(column.title)) for column in audit.columns]


def _cell(audit: Audit, row: AuditRow, column: Column, move: Move | None) -> Cell:
    value = None if row.report is None else column.value(row.report)
    shown = None if row.report is None else column.written(row.report)
    finding = _decided_by(audit, row, column)
    return Cell(shown, sort_key(value), finding, finding is not None and finding.key in row.status.likely, move)


def means(audit: Audit) -> list[tuple[MethodGroup, list[MeanCell]]]:
    """The means of each method that has several seeds."""
    return [
        (group, [_mean(*number) for number in zip(group.columns, group.mean.values, group.mean.deviations, strict=True)])
        for group in method_groups(audit)
        if group.mean is not None
    ]


def _mean(column: Column, value: float | None, deviation: float | None) -> MeanCell:
    if value is None or deviation is None:
        return MeanCell(None, None, "")
    return MeanCell(column.show(value), sort_key(value), "?" if math.isnan(deviation) else f"{deviation:.2g}")


def sort_key(value: float | None) -> str | None:
    """The number as a script reads it; what is missing or undefined has no key and stays last."""
    if value is None or math.isnan(value):
        return None
    return repr(float(value)) if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")


def _decided_by(audit: Audit, row: AuditRow, column: Column) -> Finding | None:
    """The finding that rests on the number of a cell."""
    if row.report is None or column.key == "" or column.key not in row.status.judged:
        return None
    finding = row.report.finding(column.key)
    return finding if column is deciding(audit.columns, row.report, finding) else None
