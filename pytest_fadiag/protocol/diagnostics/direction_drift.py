"""(c) Is the direction of the BP gradient mere drift?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..wording import beside, cosine, count, limit
from .base import Column, Diagnostic, Finding, Status

if TYPE_CHECKING:
    from ..report import DiagnosticReport

ENOUGH_BATCHES = 8
"""Below this the mean over pairs of batches is noted as uncertain."""


class DirectionDrift(Diagnostic):
    """Fires when disjoint batches agree on one gradient direction, and so do single samples."""

    key = "c"
    name = "direction-drift"
    question = "is the direction of the BP gradient mere drift?"
    threshold = "stability_drift_ceiling"
    walk_back = "BP grad direction is drift-dominated"
    columns = (Column("drift", lambda report: report.cross_batch_stability, cosine, priority=5),)

    def judge(self, report: DiagnosticReport) -> Finding:
        ceiling, value = report.thresholds.stability_drift_ceiling, report.cross_batch_stability
        if value is None:
            return self.finding(report, Status.NOT_MEASURED, None, "cross-batch cosine was not measured")
        broken = _count_at(report.companions.nonfinite_gradients, report.stability_layer)
        if broken:
            return self.finding(
                report,
                Status.FIRE,
                value,
                f"BP gradient is not finite at layer {report.stability_layer} ({count(broken, 'sample')})",
                "The gradient has no direction; Γ cannot be reported.",
                ("non-finite",),
            )
        if not math.isfinite(value):
            return self.finding(
                report,
                Status.FIRE,
                value,
                f"cross-batch cosine is undefined at layer {report.stability_layer}",
                "A zero gradient has no direction, so neither drift nor Γ is defined.",
                ("undefined",),
            )
        if value <= ceiling:
            return self.finding(
                report, Status.PASS, value, f"cross-batch cosine {beside(cosine, value, ceiling)} <= {limit(ceiling)}"
            )
        headline = f"cross-batch cosine {beside(cosine, value, ceiling)} > {limit(ceiling)}"
        companions = report.companions
        biased = companions.output_error_drift is not None and companions.output_error_drift > ceiling
        bias = (f"biased output {cosine(companions.output_error_drift or 0.0)}",) if biased else ()
        invariance, minimum = companions.sample_invariance, report.thresholds.sample_invariance_minimum
        if report.thresholds.confounds == "excuse" and invariance is not None and invariance < minimum:
            return self.finding(
                report,
                Status.PASS,
                value,
                f"{headline}, but sample invariance {cosine(invariance)} < {limit(minimum)}",
                causes=("not sample-invariant", *bias),
            )
        return self.finding(
            report,
            Status.FIRE,
            value,
            headline,
            "Whatever the batch, the gradient points one way: Γ measures agreement with that drift, not credit for samples.",
            bias,
        )

    def lines(self, report: DiagnosticReport) -> list[str]:
        companions = report.companions
        value = report.cross_batch_stability
        shown = "not measured" if value is None else cosine(value)
        lines = [f"cross-batch cosine of the batch-mean gradient at layer {report.stability_layer}: {shown}"]
        if companions.sample_invariance is not None and companions.output_error_drift is not None:
            lines.append(
                f"sample invariance (mean cosine of per-sample gradients): {cosine(companions.sample_invariance)}    "
                f"output-error drift: {cosine(companions.output_error_drift)}"
            )
        if companions.directionless_samples:
            lines.append(f"{count(companions.directionless_samples, 'sample')} without a direction (zero gradient) left out")
        if companions.batches is not None and companions.batches < ENOUGH_BATCHES:
            lines.append(f"only {companions.batches} batches of 128: fewer than {ENOUGH_BATCHES} make this cosine uncertain")
        return lines


def _count_at(counts: tuple[int, ...], layer: int) -> int:
    return counts[layer] if layer < len(counts) else 0
