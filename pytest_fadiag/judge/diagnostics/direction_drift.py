"""(c) Is the direction of the BP gradient mere drift?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..observers import DIRECTIONS, GRADIENTS, OUTPUT_ERROR, REFERENCE
from ..records import BATCH
from ..wording import beside, cosine, count, limit
from .base import Diagnostic, Finding, Status
from .cause import Cause, CauseKind
from .column import Column, ColumnKind

if TYPE_CHECKING:
    from ..report import DiagnosticReport

ENOUGH_BATCHES = 8
"""Below this the mean over pairs of batches is noted as uncertain."""
BETWEEN_SAMPLES = 0.10
"""The minimum of the invariance between samples, of records from before it was taken between classes."""
ONE_CLASS = 0.99
"""From this share of the predictions on a network is driven to one class, where two classes leave no pair to compare."""
OVERWEIGHT = 0.5
"""From this share of what the most frequent label leaves on it is driven too, where only the probe lacks classes."""
SKEW = 0.2
"""By how much the share of a class may exceed an equal one before the report says so."""


class DirectionDrift(Diagnostic):
    """Fires when disjoint batches agree on one gradient direction, and so do single samples."""

    key = "c"
    name = "direction-drift"
    question = "is the direction of the BP gradient mere drift?"
    threshold = "stability_drift_ceiling"
    observers = (GRADIENTS, DIRECTIONS, OUTPUT_ERROR, REFERENCE)
    walk_back = "BP grad direction is drift-dominated"
    columns = (Column(key, "drift", lambda report: report.cross_batch_stability, ColumnKind.COSINE, priority=5),)

    def judge(self, report: DiagnosticReport) -> Finding:
        ceiling, value = report.thresholds.stability_drift_ceiling, report.cross_batch_stability
        if value is None:
            missing = "cross-batch cosine was not measured"
            if report.partial:
                missing = "the log has no cross-batch cosine, which norms do not give: log with pytest_fadiag.Recorder"
            return self.finding(report, Status.NOT_MEASURED, None, missing)
        broken = self._broken(report, value)
        if broken is not None:
            return broken
        if report.companions.probe_classes == 1:
            missing = (
                "all samples of the probe are of one class, whose gradients agree anyway: shuffle data that is sorted by class"
            )
            return self.finding(report, Status.NOT_MEASURED, None, missing)
        doubts = _doubts(report)
        if value <= ceiling:
            shown = f"cross-batch cosine {beside(cosine, value, ceiling)} <= {limit(ceiling)}"
            return self.finding(report, Status.LIKELY_PASS if doubts else Status.PASS, value, shown, causes=doubts)
        headline = f"cross-batch cosine {beside(cosine, value, ceiling)} > {limit(ceiling)}"
        companions = report.companions
        error_drift = companions.output_error_drift
        bias = (Cause(CauseKind.BIASED_OUTPUT, error_drift),) if error_drift is not None and error_drift > ceiling else ()
        excuse = _excuse(report) if report.thresholds.confounds == "excuse" else None
        if excuse is not None:
            kind, words = excuse
            status = Status.LIKELY_PASS if doubts else Status.PASS
            return self.finding(report, status, value, f"{headline}, but {words}", causes=(Cause(kind), *bias, *doubts))
        return self.finding(
            report,
            Status.LIKELY_FIRE if doubts else Status.FIRE,
            value,
            headline,
            "Whatever the batch, the gradient points one way: Γ measures agreement with that drift, not credit for samples.",
            (*bias, *doubts),
        )

    def _broken(self, report: DiagnosticReport, value: float) -> Finding | None:
        """Fires where the gradient has no direction."""
        broken = _count_at(report.companions.nonfinite_gradients, report.stability_layer)
        if broken:
            return self.finding(
                report,
                Status.FIRE,
                value,
                f"BP gradient is not finite at layer {_layer(report)} ({count(broken, 'sample')})",
                "The gradient has no direction; Γ cannot be reported.",
                (Cause(CauseKind.NON_FINITE),),
            )
        if not math.isfinite(value):
            return self.finding(
                report,
                Status.FIRE,
                value,
                f"cross-batch cosine is undefined at layer {_layer(report)}",
                "A zero gradient has no direction, so neither drift nor Γ is defined.",
                (Cause(CauseKind.UNDEFINED),),
            )
        return None

    def lines(self, report: DiagnosticReport) -> list[str]:
        companions = report.companions
        value = report.cross_batch_stability
        shown = "not measured" if value is None else cosine(value)
        lines = [f"cross-batch cosine of the batch-mean gradient at layer {_layer(report)}: {shown}"]
        if companions.invariance_between_samples is not None:
            lines.append(
                f"sample invariance (mean cosine of per-sample gradients): {cosine(companions.invariance_between_samples)}"
            )
        if companions.sample_invariance is not None and companions.output_error_drift is not None:
            lines.append(
                f"sample invariance (mean product of two classes' mean unit gradients): "
                f"{_invariance(companions.sample_invariance, companions.predicted_class_share)}    "
                f"output-error drift: {cosine(companions.output_error_drift)}"
            )
        if companions.zero_gradient_samples:
            lines.append(f"{count(companions.zero_gradient_samples, 'sample')} without a direction (zero gradient) left out")
        if companions.batches is not None and companions.batches < ENOUGH_BATCHES:
            lines.append(f"only {companions.batches} batches of 128: fewer than {ENOUGH_BATCHES} make this cosine uncertain")
        if report.partial and (value is None or _doubts(report)):
            lines.append("to make it exact: use pytest_fadiag.Recorder, which groups the samples by 128 and logs this cosine")
        return lines

    def values(self, report: DiagnosticReport) -> list[str]:
        companions = report.companions
        shown = (
            ("cosine", report.cross_batch_stability),
            ("sample invariance", companions.sample_invariance),
            ("output-error drift", companions.output_error_drift),
        )
        at = [] if report.stability_layer is None else [f"layer {report.stability_layer}"]
        return at + [f"{name} {cosine(value)}" for name, value in shown if value is not None]


def class_mix(report: DiagnosticReport) -> str:
    """What is odd about the classes of the probe, on which every mean gradient depends; nothing where they are balanced."""
    companions = report.companions
    present, share = companions.probe_classes, companions.largest_class_share
    if present is None:
        return ""
    if companions.classes and 2 * present < companions.classes:
        held = f"the probe has {present} of {companions.classes} classes"
        return f"{held}: (c) says nothing of the others; shuffle data that is sorted by class"
    if share is not None and present > 1 and share - 1 / present >= SKEW:
        return (
            f"{share:.0%} of the probe are of one class: batch means lean towards its gradient, so (c) asks what classes share"
        )
    return ""


def _excuse(report: DiagnosticReport) -> tuple[CauseKind, str] | None:
    """Why batches that agree on a direction are no drift: classes do not share it, or two classes are both predicted."""
    companions, minimum = report.companions, report.thresholds.sample_invariance_minimum
    invariance, share = companions.sample_invariance, companions.predicted_class_share
    if invariance is not None and -math.inf < invariance < minimum:
        return CauseKind.NOT_SAMPLE_INVARIANT, f"sample invariance {cosine(invariance)} < {limit(minimum)}"
    if invariance is not None and math.isnan(invariance) and share is not None and not _driven(report, share):
        return CauseKind.NOT_ONE_CLASS, f"at most {share:.0%} of the predictions are one class"
    before = companions.invariance_between_samples
    if invariance is None and before is not None and -math.inf < before < BETWEEN_SAMPLES:
        return (
            CauseKind.NOT_SAMPLE_INVARIANT,
            f"sample invariance {cosine(before)} < {limit(BETWEEN_SAMPLES)} (between samples)",
        )
    return None


def _driven(report: DiagnosticReport, share: float) -> bool:
    """Whether one class is predicted so often that the network does not look, where no two classes tell."""
    companions = report.companions
    frequent = companions.largest_label_share
    lacking = companions.label_classes is not None and companions.label_classes > 2  # the data has classes to compare
    if lacking and frequent is not None and share - frequent >= OVERWEIGHT * (1 - frequent):
        return True
    return share >= ONE_CLASS


def _invariance(value: float, share: float | None) -> str:
    if not math.isnan(value) or share is None:
        return cosine(value)
    return f"not defined without two classes beside the one predicted most often ({share:.1%} of the predictions)"


def _layer(report: DiagnosticReport) -> str:
    return "L//2" if report.stability_layer is None else str(report.stability_layer)


def _doubts(report: DiagnosticReport) -> tuple[Cause, ...]:
    """Means over more samples agree more: the cosine of a log that was made with other batches is only a hint."""
    if not report.partial or report.gradient_batch == BATCH:
        return ()
    if report.gradient_batch is None:
        return (Cause(CauseKind.UNKNOWN_BATCHES),)
    return (Cause(CauseKind.OTHER_BATCHES, report.gradient_batch),)


def _count_at(counts: tuple[int, ...], layer: int | None) -> int:
    return counts[layer] if layer is not None and layer < len(counts) else 0
