"""The rows of an audit: one a checkpoint or log, and a mean and a margin of each method with several seeds."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..judge.diagnostics import DIAGNOSTICS, Column, ColumnKind, Status
from ..judge.report import DiagnosticReport
from ..judge.seeds import SeedMargin

ACCURACY = Column("", "acc", lambda report: report.headline_acc, ColumnKind.FRACTION, priority=0)
LIKELY_PASS = "likely-pass"
"""In a verdict, before the keys of what passes as far as a log tells."""
COLUMNS: tuple[Column, ...] = (ACCURACY, *(column for diagnostic in DIAGNOSTICS for column in diagnostic.columns))


@dataclass
class AuditRow:
    """What is known of one checkpoint at the end of a run."""

    checkpoint: str
    method: str
    seed: int | None
    report: DiagnosticReport | None = None
    outcomes: dict[str, str] = field(default_factory=dict)
    """Per diagnostic: passed, failed, skipped, xfailed, error, not run."""
    reason: str = ""
    expected: str | None = None
    recorded: DiagnosticReport | None = None
    """What an earlier audit measured, where this one is compared with it."""
    group: str | None = None
    """The test of the margin over seeds to which the row belongs."""

    @property
    def place(self) -> tuple[bool, str, int, str]:
        """Where the row stands in the table: logs last, by method and seed, then by id."""
        return self.partial, self.method, -1 if self.seed is None else self.seed, self.checkpoint

    @property
    def partial(self) -> bool:
        """Whether the row comes from a training log."""
        return self.report is not None and self.report.partial

    @property
    def judged(self) -> str:
        """The keys of the diagnostics that ran; all of them where a test asked for the whole report."""
        ran = "".join(key for key, outcome in sorted(self.outcomes.items()) if outcome != "not run")
        return ran or ("" if self.outcomes else "".join(diagnostic.key for diagnostic in DIAGNOSTICS))

    @property
    def fired(self) -> str:
        """The keys that fired among the diagnostics that ran."""
        return "" if self.report is None else "".join(key for key in self.report.fired if key in self.judged)

    @property
    def excused(self) -> str:
        """The keys that pass although their number crosses its threshold."""
        findings = () if self.report is None else self.report.findings
        return "".join(finding.key for finding in findings if finding.excused and finding.key in self.judged)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the verdict alone would hide: remarks on the checkpoint, and a control that is not its own."""
        if self.report is None:
            return ()
        notes = [f"{self.checkpoint}: {remark}" for remark in self.report.remarks]
        control = self.report.control
        if control is not None and (another := control.another_method(self.method)):
            notes.append(f"{self.method}: {another}")
        if control is not None and (another := control.another_seed(self.seed)):
            notes.append(f"{self.checkpoint}: {another}")
        return tuple(notes)

    @property
    def as_expected(self) -> bool:
        """Whether what fired is what was recorded, as far as it ran."""
        if self.expected is None or self.report is None:
            return False
        return set(self.fired) == {key for key in self.expected if key in self.judged}

    @property
    def verdict(self) -> str:
        """The verdict in a few words: trustworthy, walk-back a b d, error, not run."""
        pending = [key for key, outcome in self.outcomes.items() if outcome == "not run"]
        broken = [key for key, outcome in self.outcomes.items() if outcome == "error"]
        if self.report is None:
            return (f"error: {self.reason}" if self.reason else "error") if broken else "not run" if pending else "skipped"
        if not self.judged:
            return "not run"
        stands = [key for key in self.judged if key not in broken]
        if self.fired:
            parts = [f"walk-back {' '.join(key if self._is(key, Status.FIRE) else f'{key}?' for key in self.fired)}"]
        elif self.partial:
            passed, likely = ([key for key in stands if self._is(key, s)] for s in (Status.PASS, Status.LIKELY_PASS))
            whole = len(passed) == len(DIAGNOSTICS)
            named = {"pass": passed, LIKELY_PASS: likely}
            parts = ["trustworthy"] if whole else [f"{word} {' '.join(keys)}" for word, keys in named.items() if keys]
        elif len(self.judged) == len(DIAGNOSTICS) and not broken:
            parts = ["trustworthy"]
        else:
            parts = [f"pass {' '.join(stands)}"] if stands else []
        if self.as_expected and parts:
            parts[0] += "*"
        elif self.expected is not None:
            parts.append(f"(expected {' '.join(self.expected) or 'none'})")
        if broken:
            parts.append(f"error {' '.join(broken)}")
        if pending:
            parts.append(f"not run {' '.join(pending)}")
        unknown = [key for key in stands if self._is(key, Status.NOT_MEASURED)]
        if unknown:
            parts.append(f"no {' '.join(unknown)}")
        return " ".join(parts)

    def _is(self, key: str, status: Status) -> bool:
        return self.report is not None and self.report.finding(key).status is status

    @property
    def first_fired(self) -> str:
        """When each diagnostic first fired, where a log tells: «d1 a6 b15»."""
        trajectory = None if self.report is None else self.report.trajectory
        if trajectory is None or len(trajectory.points) < 2:
            return ""
        return " ".join(f"{key}{epoch}" for key, epoch in trajectory.first_fired.items())


@dataclass(frozen=True)
class MarginRow:
    """What became of the test of one method's margin over its seeds."""

    name: str
    """The test's id without its last part: the method, behind its folder where two folders hold the same seeds."""
    method: str
    partial: bool = False
    margin: SeedMargin | None = None
    outcome: str = "not run"
    reason: str = ""
    expected: str | None = None

    @property
    def as_expected(self) -> bool:
        """Whether the verdict is what somebody recorded."""
        return self.outcome == "xfailed" or (self.outcome == "passed" and self.expected == "PASS")


@dataclass(frozen=True)
class Checklist:
    """What a reading of evaluation code found."""

    files: int
    """How many were read."""
    findings: Sequence[Mapping[str, Any]] = ()
    """Each with number, title, file, line, code, message, fix and silenced: the reason given for letting it stand."""


@dataclass(frozen=True)
class Audit:
    """Everything that a run found; every file is made from it."""

    rows: Sequence[AuditRow]
    margins: Sequence[MarginRow] = ()
    checklist: Checklist | None = None
    shard: tuple[int, int] | None = None
    """Which part of how many this is, where an audit was divided."""


@dataclass(frozen=True)
class MeanRow:
    """The mean and the sample standard deviation of each column over the seeds of one method."""

    method: str
    seeds: int
    means: tuple[float | None, ...]
    deviations: tuple[float | None, ...]
    partial: bool = False


def mean_rows(rows: Iterable[AuditRow]) -> list[MeanRow]:
    """One mean row for each method of which several seeds were measured; logs have their own."""
    by_method: dict[tuple[str, bool], list[DiagnosticReport]] = {}
    for row in rows:
        if row.report is not None:
            by_method.setdefault((row.method, row.partial), []).append(row.report)
    means = []
    for (method, partial), reports in by_method.items():
        seeds = {report.seed for report in reports}
        if len(reports) < 2 or len(seeds) < len(reports) or None in seeds:
            continue  # two runs of one seed differ by something else than their seeds
        values = [[_value(column, report) for report in reports] for column in COLUMNS]
        complete = [[v for v in column if v is not None] if None not in column else [] for column in values]
        means.append(
            MeanRow(
                method,
                len(reports),
                tuple(average(column) if column else None for column in complete),
                tuple(_deviation(column) if column else None for column in complete),
                partial,
            )
        )
    return means


def average(values: Sequence[float]) -> float:
    """The mean, also of numbers whose sum no float holds, such as the norms of an exploded stream."""
    try:
        return statistics.fmean(values)
    except OverflowError:
        return sum(value / len(values) for value in values)


def _value(column: Column, report: DiagnosticReport) -> float | None:
    return column.value(report)


def _deviation(values: Sequence[float]) -> float:
    try:
        return statistics.stdev(values)
    except (ValueError, AttributeError, OverflowError):  # a column with inf or NaN has no deviation
        return float("nan")
