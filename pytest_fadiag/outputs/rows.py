"""The rows of an audit: one a checkpoint, and a mean of each method with several seeds."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..protocol.diagnostics import DIAGNOSTICS, Column
from ..protocol.report import DiagnosticReport
from ..protocol.wording import fraction

ACCURACY = Column("acc", lambda report: report.headline_acc, fraction, priority=0)
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
    def notes(self) -> tuple[str, ...]:
        """What the verdict alone would hide: remarks on the checkpoint, and a control that is not its own."""
        if self.report is None:
            return ()
        notes = [f"{self.checkpoint}: {remark}" for remark in self.report.remarks]
        control = self.report.control
        if control is not None and control.method not in (None, self.method):
            notes.append(f"{self.method}: control of another method: {control.method}")
        if control is not None and control.seed not in (None, self.seed):
            notes.append(f"{self.checkpoint}: control of another seed: {control.seed}")
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
        stands = " ".join(key for key in self.judged if key not in broken)
        if self.fired:
            parts = [f"walk-back {' '.join(self.fired)}"]
        elif len(self.judged) == len(DIAGNOSTICS) and not broken:
            parts = ["trustworthy"]
        else:
            parts = [f"pass {stands}"] if stands else []
        if self.as_expected and parts:
            parts[0] += "*"
        elif self.expected is not None:
            parts.append(f"(expected {' '.join(self.expected) or 'none'})")
        if broken:
            parts.append(f"error {' '.join(broken)}")
        if pending:
            parts.append(f"not run {' '.join(pending)}")
        if "d" in self.judged and "d" not in broken and self.report.frozen_baseline_undercut is None:
            parts.append("no d")
        return " ".join(parts)


@dataclass(frozen=True)
class MeanRow:
    """The mean and the sample standard deviation of each column over the seeds of one method."""

    method: str
    seeds: int
    means: tuple[float | None, ...]
    deviations: tuple[float | None, ...]


def mean_rows(rows: Iterable[AuditRow]) -> list[MeanRow]:
    """One mean row for each method of which several seeds were measured."""
    by_method: dict[str, list[DiagnosticReport]] = {}
    for row in rows:
        if row.report is not None:
            by_method.setdefault(row.method, []).append(row.report)
    means = []
    for method, reports in by_method.items():
        seeds = {report.seed for report in reports}
        if len(reports) < 2 or len(seeds) < len(reports) or None in seeds:
            continue  # two runs of one seed differ by something else than their seeds
        values = [[_value(column, report) for report in reports] for column in COLUMNS]
        complete = [[v for v in column if v is not None] if None not in column else [] for column in values]
        means.append(
            MeanRow(
                method,
                len(reports),
                tuple(statistics.fmean(column) if column else None for column in complete),
                tuple(_deviation(column) if column else None for column in complete),
            )
        )
    return means


def _value(column: Column, report: DiagnosticReport) -> float | None:
    return column.value(report)


def _deviation(values: Sequence[float]) -> float:
    try:
        return statistics.stdev(values)
    except (ValueError, AttributeError):  # a column with inf or NaN has no deviation
        return float("nan")


def notes_of(rows: Iterable[AuditRow]) -> list[str]:
    """The notes of all rows, each once."""
    return list(dict.fromkeys(note for row in rows for note in row.notes))
