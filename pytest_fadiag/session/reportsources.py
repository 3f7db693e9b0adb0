"""What a report is made from: a measurement of this run, a training log, or a row of an earlier audit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from ..judge.control import Control
from ..judge.errors import AuditError
from ..judge.records import Measurement
from ..judge.report import DiagnosticReport
from ..judge.thresholds import DiagnosticThresholds

if TYPE_CHECKING:
    from ..load.logs import TrainingLog
    from ..show.audit import AuditRow
    from .cache import Record
    from .settings import Settings
    from .targets import Target


class Source(Protocol):
    """Everything about a network that no threshold and no control changes."""

    @property
    def method(self) -> str: ...
    @property
    def seed(self) -> int | None: ...
    @property
    def content(self) -> object: ...
    @property
    def control(self) -> Control | None: ...
    @property
    def expected(self) -> str | None: ...
    def judge(self, control: Control | None, thresholds: DiagnosticThresholds) -> DiagnosticReport: ...


@dataclass(frozen=True)
class Measured:
    """A measurement, from this run or from the cache."""

    content: Record
    target: Target
    control: None = None
    expected: None = None

    @property
    def method(self) -> str:
        """By the checkpoint's config, else its name."""
        return str(self.content["method"])

    @property
    def seed(self) -> int | None:
        """By the checkpoint's config, else its name, else what {seed} stood for."""
        seed: int | None = self.content["seed"]
        return self.target.seed if seed is None else seed

    def judge(self, control: Control | None, thresholds: DiagnosticThresholds) -> DiagnosticReport:
        """The report of the measurement."""
        record: dict[str, Any] = self.content
        return DiagnosticReport.from_measurement(
            Measurement.from_dict(record["measurement"]),
            method_name=self.method,
            seed=self.seed,
            claimed_acc=record["claimed"],
            control=control,
            thresholds=thresholds,
            notes=record["notes"],
            checkpoint=Path(self.target.path).name,
        )


@dataclass(frozen=True)
class Log:
    """A training log, of which some numbers are exact and others bounds."""

    content: TrainingLog
    target: Target
    control: None = None
    expected: None = None

    @classmethod
    def read(cls, target: Target, batch: int | None) -> Log:
        """The log of a target."""
        from ..load.logs import read_log

        return cls(read_log(Path(target.path), batch=batch), target)

    @property
    def method(self) -> str:
        """By the log's config, else its name."""
        return self.content.method

    @property
    def seed(self) -> int | None:
        """By the log's config, else its name, else what {seed} stood for."""
        return self.target.seed if self.content.seed is None else self.content.seed

    def judge(self, control: Control | None, thresholds: DiagnosticThresholds) -> DiagnosticReport:
        """The partial report of the log."""
        return replace(self.content.report(control, thresholds), seed=self.seed)


@dataclass(frozen=True)
class Recorded:
    """A row of an earlier audit, judged again."""

    content: AuditRow
    settings: Settings

    @property
    def method(self) -> str:
        """As recorded."""
        return self.content.method

    @property
    def seed(self) -> int | None:
        """As recorded."""
        return self.content.seed

    @property
    def control(self) -> Control | None:
        """The control that the row was compared with."""
        report = self.content.report
        if report is None or report.frozen_baseline_acc is None:
            return None
        from ..judge.records import Accuracy

        return report.control or Control(Accuracy(report.frozen_baseline_acc), "recorded")

    @property
    def expected(self) -> str | None:
        """The diagnostics that were expected to fire."""
        return self.content.expected

    def judge(self, control: Control | None, thresholds: DiagnosticThresholds) -> DiagnosticReport:
        """The recorded numbers by the recorded thresholds, but for what this command changes."""
        report = self.content.report
        if report is None:
            raise self.lost()
        accuracy = None if control is None else control.accuracy.value
        judged_by = self.settings.judged_by(report.thresholds)
        return replace(report, control=control, frozen_baseline_acc=accuracy, thresholds=judged_by)

    def lost(self) -> BaseException:
        """What became of a row, or of one of its diagnostics, that no report tells of."""
        if set(self.content.outcomes.values()) <= {"skipped"}:
            return pytest.skip.Exception(f"skipped in the recorded audit: {self.content.checkpoint}")
        return AuditError(self.content.reason or f"{self.content.checkpoint} was not judged in the recorded audit")
