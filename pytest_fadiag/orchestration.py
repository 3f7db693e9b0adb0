"""The one way from something that can be measured to its report.

It is measured, its control is chosen, it is judged, and it is compared with BP networks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from .judge.control import Control, ControlKind, Fingerprint
from .judge.diagnostics import Diagnostic, Role
from .judge.errors import AuditError
from .judge.records import Log, Measurement, Score
from .judge.report import Report
from .judge.thresholds import DiagnosticThresholds
from .judge.twin import Twin, twin_diagnostics

CONTROL_METRICS = ("accuracy", "control-readout")
"""What is measured of a control."""


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """What a file or a caller says of a network, whatever is measured of it."""

    method_name: str = "unnamed"
    seed: int | None = None
    notes: str = ""
    checkpoint: str | None = None
    """The name of the file that was audited."""
    headline_acc: float | None = None
    """An accuracy that was given, in place of the measured one."""
    claimed_acc: float | None = None
    caveats: tuple[str, ...] = ()
    config: dict[str, Any] = {}
    log: Log | None = None


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What no threshold and no control changes about a network: what the cache keeps."""

    provenance: Provenance
    measurement: Measurement
    metrics: tuple[str, ...]
    """The metrics that were computed."""
    fingerprint: Fingerprint = Fingerprint()
    untrained: bool = False
    control: Score | None = None
    """What a trace's own control scores on the same samples."""

    def lacking(self, metrics: Iterable[str]) -> list[str]:
        """Which of these metrics were not computed; the readout of a control is a part of (e)."""
        computed = {*self.metrics}
        if "depth" in computed:
            computed.add("control-readout")
        return [name for name in metrics if name not in computed]

    def joined(self, later: Record) -> Record:
        """This record with what was measured of the same network later."""
        unset = Measurement()
        fields = {}
        for name in unset.__struct_fields__:
            value = getattr(later.measurement, name)
            if value != getattr(unset, name):
                fields[name] = value
        has_blocks = bool(later.fingerprint.blocks)
        return replace(
            self,
            measurement=replace(self.measurement, **fields),
            metrics=(*self.metrics, *later.metrics),
            fingerprint=later.fingerprint if has_blocks else self.fingerprint,
        )

    def report(self, metrics: Iterable[str], **judged_with: Any) -> Report:
        """The report of what these metrics computed, whatever else the record holds."""
        values = msgspec.structs.asdict(self.provenance)
        if values["headline_acc"] is None:
            del values["headline_acc"]
        return Report.of(self.measurement.restricted_to(metrics), **values, **judged_with)


class Question(NamedTuple):
    """What is asked of a network, and by which rules it is judged."""

    diagnostics: Sequence[Diagnostic]
    thresholds: DiagnosticThresholds = DiagnosticThresholds()
    protocol: str | None = None
    listed: bool = False
    """Whether the diagnostics were listed: then the fallback does not wait for the control."""


@dataclass(kw_only=True)
class Subject(ABC):
    """Something that can be measured: a network in memory, a checkpoint, a trace, a log."""

    supplied: Any = None
    """The control as it was supplied, fitting or not."""
    _record: Record | None = None

    def record(self, metrics: Sequence[str]) -> Record:
        """Its numbers, those of these metrics among them; only what is missing is measured."""
        if self._record is None:
            self._record = self.measured(metrics)
        elif lacking := self._record.lacking(metrics):
            self._record = self._record.joined(self.measured(lacking))
        return self._record

    @abstractmethod
    def measured(self, metrics: Sequence[str]) -> Record:
        """The numbers of these metrics."""

    @abstractmethod
    def control(self, record: Record) -> Control | None:
        """The control that fits it; an ``AuditError`` where one was supplied and none fits."""


def metrics_for(diagnostics: Iterable[Diagnostic]) -> tuple[str, ...]:
    """The metrics that some diagnostics judge by; the accuracy is always among them."""
    names = ["accuracy"]
    for diagnostic in diagnostics:
        names.extend(diagnostic.needs)
    return tuple(dict.fromkeys(names))


def judged(subject: Subject, question: Question) -> Report:
    """Measure a subject, choose its control, and judge it.

    The fallback is measured unless a control decides, or where the diagnostics were listed.
    """
    all_metrics = metrics_for(question.diagnostics)
    metrics = all_metrics
    if subject.supplied is not None and not question.listed:
        metrics = metrics_for(d for d in question.diagnostics if d.role is not Role.FALLBACK)
    record = subject.record(metrics)
    control = None
    problem = ""
    if any(diagnostic.needs_control for diagnostic in question.diagnostics):
        try:
            control = subject.control(record)
        except AuditError as error:
            problem = str(error)
    rules: dict[str, Any] = {
        "control": control,
        "control_problem": problem,
        "thresholds": question.thresholds,
        "protocol": question.protocol,
        "diagnostics": tuple(diagnostic.name for diagnostic in question.diagnostics),
    }
    report = record.report(metrics, **rules)
    if metrics == all_metrics or report.stream_problem or report.control_decides:
        return report
    return subject.record(all_metrics).report(all_metrics, **rules)


def compared_with_bp(
    report: Report, subject: Subject, question: Question, twins: Sequence[Subject]
) -> Report:
    """The report beside those of BP networks of the same shapes, where it asks for depth.

    Without any, a network that fails for want of depth is its own twin if its config says that BP
    trained it.
    """
    diagnostics = question.diagnostics
    of_depth = {diagnostic.key for diagnostic in diagnostics if diagnostic.asks_for_depth}
    fails_for_depth = not of_depth.isdisjoint(report.fired)
    is_bp = report.config.get("method") == "bp" and not report.config.get("frozen")
    if not twins and fails_for_depth and is_bp:
        twins = [subject]
    if not twins or not of_depth:
        return report
    fallback_asked = any(diagnostic.role is Role.FALLBACK for diagnostic in diagnostics)
    twin_question = question._replace(
        diagnostics=twin_diagnostics(fallback=fallback_asked or subject.supplied is None)
    )
    metrics = metrics_for(twin_question.diagnostics)
    shapes = subject.record(metrics_for(question.diagnostics)).fingerprint.shapes
    reports = []
    for twin in twins:
        with suppress(AuditError):  # its own tests say what is wrong with it
            if twin.record(metrics).fingerprint.shapes == shapes:
                reports.append(judged(twin, twin_question))
    if not reports:
        return report
    digests = [twin_report.environment.get("checkpoint_sha256") for twin_report in reports]
    is_itself = report.environment.get("checkpoint_sha256") in digests
    return report.replace(twin=Twin.of(reports, is_itself=is_itself))


def finite_score(measurement: Measurement, what: str) -> Score:
    """The accuracy of a control, which one whose outputs are not finite does not have."""
    if measurement.score is None or measurement.nonfinite_outputs:
        raise AuditError(f"{what}: its outputs are not finite, so it has no accuracy")
    return measurement.score


def questioned_control(control: Control, record: Record, network: Fingerprint | None) -> Control:
    """A control with what was measured of it, and what its tensors tell against it."""
    doubts = control.doubts
    if network is not None:
        is_shallow = control.kind is ControlKind.SHALLOW
        doubts += tuple(network.doubts(record.fingerprint, shallow=is_shallow))
    measurement = record.measurement
    control = replace(control, inputs=measurement.inputs, doubts=doubts)
    depth = measurement.depth
    if depth is None:
        return control
    return replace(control, probes=depth.probes, balanced=depth.network)
