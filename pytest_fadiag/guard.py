"""A guard over a training: a run that has gone hollow ends after a few records, not after a week."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from .judge.control import Control
from .judge.diagnostics import DIAGNOSTICS
from .judge.errors import AuditError
from .judge.records import Accuracy, Measurement
from .judge.report import DiagnosticReport
from .judge.thresholds import DiagnosticThresholds, ThresholdChanges
from .judge.trajectory import at_epoch
from .judge.wording import count
from .load.logs import read_log

if TYPE_CHECKING:
    from torch import nn

    from .recorder import Recorder

OnStop = Callable[["GuardStopped"], None]


class GuardStopped(RuntimeError):
    """The training is hollow by the guard's rule; the text says which diagnostics fired, when, and with which numbers."""

    def __init__(self, epoch: int, streaks: Mapping[str, list[int]], report: DiagnosticReport) -> None:
        self.epoch, self.keys, self.report = epoch, "".join(streaks), report
        lines = [f"training stopped at epoch {epoch}: {report.method_name} has gone hollow"]
        for key, epochs in streaks.items():
            finding = report.finding(key)
            since = f"{count(len(epochs), 'record')} in a row, epochs {epochs[0]} to {epochs[-1]}"
            lines.append(f"  ({key}) {finding.name} has fired in {since}: {finding.headline}. {finding.explanation}")
        super().__init__("\n".join(lines))


class Guard:
    """Records as its recorder does, and stops a training when one of ``stop`` has fired in ``after`` records in a row.

    It raises :class:`GuardStopped` or, given ``on_stop``, calls that with it, once. (d) needs a ``control``, an accuracy or a
    :class:`Control`. A resumed training goes on with the streaks of its log.
    """

    def __init__(
        self,
        recorder: Recorder,
        *,
        stop: str = "ab",
        after: int = 3,
        control: float | Control | None = None,
        thresholds: DiagnosticThresholds | ThresholdChanges | None = None,
        on_stop: OnStop | None = None,
    ) -> None:
        if isinstance(after, bool) or not isinstance(after, int) or after < 1:
            raise AuditError(f"after is {after!r}, not a number of records from 1")
        self.diagnostics = DIAGNOSTICS.select(stop)
        self.recorder, self.after, self.on_stop = recorder, after, on_stop
        self.control = control if control is None or isinstance(control, Control) else Control(Accuracy(control))
        self.thresholds = DiagnosticThresholds().replace(**thresholds) if isinstance(thresholds, Mapping) else thresholds
        self.stopped: GuardStopped | None = None
        self._streaks: dict[str, list[int]] | None = None

    def record(
        self, epoch: int, model: nn.Module, acc: float | None = None, *, images: int | None = None, **extra: object
    ) -> Measurement:
        """What :meth:`Recorder.record` does; then the training stops if this record is the last of a streak."""
        if self._streaks is None:
            self._streaks = self._logged_before(epoch)
        measurement = self.recorder.record(epoch, model, acc, images=images, **extra)
        assert measurement is not None  # with a model it is always measured
        report = self._report(measurement, acc)
        self._extend(self._streaks, epoch, report)
        due = {key: epochs for key, epochs in self._streaks.items() if len(epochs) >= self.after}
        if due and (self.on_stop is None or self.stopped is None):
            self.stopped = GuardStopped(epoch, due, report)
            if self.on_stop is None:
                raise self.stopped
            self.on_stop(self.stopped)
        return measurement

    def _report(self, measurement: Measurement, acc: float | None) -> DiagnosticReport:
        report = DiagnosticReport.from_measurement(
            measurement,
            method_name=self.recorder.method,
            headline_acc=acc,
            control=self.control,
            thresholds=self.thresholds,
            diagnostics=tuple(diagnostic.name for diagnostic in self.diagnostics),
        )
        blind = [finding for finding in report.findings if not finding.measured]
        if blind:
            raise AuditError(f"a guard cannot stop by ({blind[0].key}) {blind[0].name}: {blind[0].headline}")
        return report

    def _extend(self, streaks: dict[str, list[int]], epoch: int, report: DiagnosticReport) -> None:
        for finding in report.findings:
            streaks[finding.key] = [*streaks.get(finding.key, ()), epoch] if finding.fired else []

    def _logged_before(self, epoch: int) -> dict[str, list[int]]:
        """The streaks at the end of what an interrupted run has recorded of the epochs before this one."""
        streaks: dict[str, list[int]] = {}
        if not any(earlier < epoch for earlier, _ in self.recorder.recording.entries):
            return streaks
        last = read_log(self.recorder.path).report(self.control, self.thresholds)
        assert last.trajectory is not None
        asked = replace(last, diagnostics=tuple(diagnostic.name for diagnostic in self.diagnostics))
        for point in last.trajectory.points:
            if point.epoch < epoch:
                self._extend(streaks, point.epoch, at_epoch(asked, point))
        return streaks
