"""The rows of an audit by method, with the mean and the margin over seeds of each."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ..judge.control import ControlKind
from ..judge.diagnostics import Column
from ..judge.margins import SeedMargin
from ..judge.report import DiagnosticReport
from ..judge.wording import as_log, listed
from .audit import Audit, AuditRow, MarginRow


@dataclass(frozen=True)
class Mean:
    """The mean and the sample standard deviation of each column over several seeds; ``None`` where one seed has no number."""

    seeds: int
    values: tuple[float | None, ...]
    deviations: tuple[float | None, ...]


@dataclass(frozen=True)
class MethodGroup:
    """The rows of one method, from checkpoints or from logs, and the tests of its margin over seeds."""

    method: str
    partial: bool
    columns: tuple[Column, ...]
    """The numbers that the audit's table has."""
    rows: tuple[AuditRow, ...]
    margins: tuple[MarginRow, ...] = ()
    folder: str = ""
    """That of the rows, where another folder holds the same seeds."""

    @property
    def name(self) -> str:
        """The method, behind the folder where there is one."""
        return f"{self.folder}/{self.method}" if self.folder else self.method

    @property
    def label(self) -> str:
        """The name, marked where it comes from logs."""
        return as_log(self.name, self.partial)

    @property
    def reports(self) -> list[DiagnosticReport]:
        """What was measured; a checkpoint with an error has none."""
        return [row.report for row in self.rows if row.report is not None]

    @property
    def margin(self) -> MarginRow | None:
        """The test of the margin over these seeds: the one under the group's own label, else the only one."""
        own = [margin for margin in self.margins if margin.name == self.label] or self.margins
        return own[0] if len(own) == 1 else None

    @property
    def seed_margin(self) -> SeedMargin | None:
        """The margin over these seeds, where it was tested."""
        return None if self.margin is None else self.margin.margin

    @cached_property
    def mean(self) -> Mean | None:
        """The mean over seeds; two runs of one seed differ by something else than their seeds and have none."""
        reports = self.reports
        seeds = {report.seed for report in reports}
        if len(reports) < 2 or len(seeds) < len(reports) or None in seeds:
            return None
        columns = [[column.value(report) for report in reports] for column in self.columns]
        complete = [[value for value in column if value is not None] if None not in column else None for column in columns]
        return Mean(
            len(reports),
            tuple(None if column is None else average(column) for column in complete),
            tuple(None if column is None else _deviation(column) for column in complete),
        )

    def by_folder(self) -> list[MethodGroup]:
        """The group itself, or where a seed occurs more than once a group for each folder."""
        if len({row.seed for row in self.rows}) == len(self.rows):
            return [self]
        folders: dict[str, list[AuditRow]] = {}
        for row in self.rows:
            folders.setdefault(row.checkpoint.rpartition("/")[0], []).append(row)
        if len(folders) == 1:
            return [self]
        return [replace(self, rows=tuple(rows), folder=folder) for folder, rows in folders.items()]


def whose_control(reports: Sequence[DiagnosticReport], method: str = "") -> str:
    """«its frozen control», «frozen control of dfa»: what was compared with, as far as somebody said."""
    controls = [report.control for report in reports if report.control is not None]
    kinds = {control.kind for control in controls} - {ControlKind.UNMARKED}
    kind = f"{kinds.pop()} control" if len(kinds) == 1 and len(controls) == len(reports) else "control"
    methods = list(dict.fromkeys(control.method for control in controls if control.method is not None))
    if methods == [method]:
        return f"its {kind}"
    return f"{kind} of {listed(methods)}" if methods else kind


def method_groups(audit: Audit) -> list[MethodGroup]:
    """The methods in the order of the rows, those of logs apart, then the methods of which there is only a margin."""
    rows: dict[tuple[str, bool], list[AuditRow]] = {}
    for row in audit.rows:
        rows.setdefault((row.method, row.partial), []).append(row)
    margins: dict[tuple[str, bool], list[MarginRow]] = {}
    for margin in audit.margins:
        margins.setdefault((margin.method, margin.partial), []).append(margin)
    keys = dict.fromkeys([*rows, *margins])
    return [MethodGroup(*key, audit.columns, tuple(rows.get(key, ())), tuple(margins.get(key, ()))) for key in keys]


def seed_groups(audit: Audit) -> list[MethodGroup]:
    """The methods that have rows, folders that hold the same seeds apart: within a group the seeds can be compared."""
    return [part for group in method_groups(audit) if group.rows for part in group.by_folder()]


def average(values: Sequence[float]) -> float:
    """The mean, also of numbers whose sum no float holds, such as the norms of an exploded stream."""
    try:
        return statistics.fmean(values)
    except OverflowError:
        return sum(value / len(values) for value in values)


def _deviation(values: Sequence[float]) -> float:
    try:
        return statistics.stdev(values)
    except (ValueError, AttributeError, OverflowError):  # a column with inf or NaN has no deviation
        return float("nan")
