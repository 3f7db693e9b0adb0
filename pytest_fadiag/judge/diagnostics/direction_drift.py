"""(c) Do all samples share one BP gradient direction?"""

from __future__ import annotations

import math

from ..records import BATCH
from ..words import cosine, distinct, limit, plural, sig
from .base import Column, Diagnostic, Finding, Report, Status

ENOUGH_BATCHES = 8
ONE_CLASS = 0.99
"""From this share of predictions on a network is driven to one class, if no others compare."""
GROUPS = {"classes": "classes", "regression": "deciles of the targets", "tokens": "tokens"}
"""Between what gradients are compared, by task."""
SORTED = "shuffle data that is sorted by class"


class DirectionDrift(Diagnostic):
    """Fires when disjoint batches agree on one gradient direction, and so do the classes."""

    key = "c"
    name = "direction-drift"
    question = "do all samples share one BP gradient direction?"
    threshold = "stability_drift_ceiling"
    needs = ("gradients", "directions", "output-error")
    walk_back = "BP grad direction is drift-dominated"
    columns = (Column("drift", lambda report: report.cross_batch_stability, cosine, 5),)

    def judge(self, report: Report) -> Finding:
        ceiling, value = self.limit(report), report.cross_batch_stability
        layer = "L//2" if report.stability_layer is None else report.stability_layer
        if value is None:
            missing = "the log has no cross-batch cosine: log with pytest_fadiag.Recorder"
            why = missing if report.partial else "the cross-batch cosine was not measured"
            return self.unmeasured(report, why)
        layers = enumerate(report.nonfinite_gradients)
        lost = sum(number for at, number in layers if at == report.stability_layer)
        if lost or not math.isfinite(value):
            return self.finding(
                report,
                Status.FIRE,
                value,
                f"not finite for {plural(lost, 'sample')}" if lost else "the cosine is undefined",
                "A zero or non-finite gradient has no direction: neither drift nor Γ is defined.",
                ("non-finite" if lost else "undefined",),
                claim=f"BP gradient has no direction at h_{layer}",
            )
        if report.eval_classes == 1:
            why = f"all evaluation batches hold one class, whose gradients agree anyway: {SORTED}"
            return self.unmeasured(report, why)
        batch = report.log.gradient_batch if report.log else None
        size = f"batches of {batch or 'unknown size'}, not {BATCH}"  # means over more agree more
        doubts = [size] if report.partial and batch != BATCH else []
        sign = "≤" if value <= ceiling else ">"
        number = f"cross-batch cosine of batch-mean gradients at h_{layer} "
        headline = f"{number}{distinct(cosine, value, ceiling)} {sign} {limit(ceiling)}"
        if value <= ceiling:
            return self.finding(report, Status.PASS, value, headline, doubts=doubts)
        if report.task == "regression" and math.isnan(report.sample_invariance or 0.0):
            why = f"{headline}, but the targets have fewer than 3 groups to compare"
            return self.finding(report, Status.NOT_RESOLVED, value, why)
        error = report.output_error_drift
        bias = f"biased output {cosine(error)}" if error is not None and error > ceiling else ""
        cause, words = _exemption(report)
        return self.finding(
            report,
            Status.PASS if cause else Status.FIRE,
            value,
            f"{headline}, but {words}" if cause else headline,
            ""
            if cause
            else "The gradient points one way whatever the batch: Γ measures agreement with that "
            "drift, not credit.",
            (cause, bias),
            doubts=doubts,
            claim="" if cause else "all samples share one BP gradient direction",
            exempted=bool(cause),
        )

    def lines(self, report: Report) -> list[str]:
        agreement, error = report.sample_invariance, report.output_error_drift
        batches, zero = report.batches, report.zero_gradient_samples
        share, rank = report.predicted_class_share, report.effective_rank
        one = "" if share is None else f" ({100 * share:.1f} % of predictions are one class)"
        return [
            f"gradient agreement between {GROUPS[report.task]}: {cosine(agreement)}"
            f"{one if math.isnan(agreement) else ''}"
            if agreement is not None
            else "",
            f"cross-batch cosine of the output error: {cosine(error)}" if error is not None else "",
            f"effective rank, gradients over output error: {sig(rank)} (not judged)"
            if rank is not None
            else "",
            f"{plural(zero, 'sample')} with a zero gradient left out" if zero else "",
            f"only {batches} batches of {BATCH}: fewer than {ENOUGH_BATCHES} make it uncertain"
            if batches is not None and batches < ENOUGH_BATCHES
            else "",
        ]


def class_mix(report: Report) -> str:
    """That the evaluation batches lack most classes; nothing where they do not."""
    present, classes = report.eval_classes, report.classes
    few = present and classes and 2 * present < classes and report.task == "classes"
    said = f"the evaluation batches hold {present} of {classes} classes: (c) covers no others"
    return f"{said}; {SORTED}" if few else ""


def _exemption(report: Report) -> tuple[str, str]:
    """Why batches that agree are not drift: classes do not, or more than one class is predicted."""
    agreement, share = report.sample_invariance, report.predicted_class_share
    minimum = report.thresholds.sample_invariance_minimum
    if agreement is None or report.thresholds.confounds == "flag":
        return "", ""
    if -math.inf < agreement < minimum:
        return (
            "not sample-invariant",
            f"agreement between {GROUPS[report.task]} {cosine(agreement)} < {limit(minimum)}",
        )
    if not math.isnan(agreement) or share is None or share >= ONE_CLASS:
        return "", ""
    said = f"at most {100 * share:.0f} % of the predictions are one class"
    return "not driven to one class", said
