"""(c) Do all samples share one BP gradient direction?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import ClassVar, NamedTuple

from ..records import BATCH
from ..words import cosine, distinct, limit, plural, sig
from .base import Column, Diagnostic, Finding, Report, Role, Status

ENOUGH_BATCHES = 8
ONE_CLASS = 0.99
"""From this share of predictions on a network is driven to one class, if no others compare."""
GROUPS = {"classes": "classes", "regression": "deciles of the targets", "tokens": "tokens"}
"""Between what gradients are compared, by task."""
SORTED = "shuffle data that is sorted by class"


class Exemption(NamedTuple):
    """Why batches that agree on one direction are not driven by drift."""

    cause: str
    number: str


class DirectionDrift(Diagnostic):
    """Fires when disjoint batches agree on one gradient direction, and so do the classes."""

    key = "c"
    name = "direction-drift"
    question = "do all samples share one BP gradient direction?"
    threshold = "stability_drift_ceiling"
    fails_if = "cosine > {}"
    walk_back = "BP grad direction is drift-dominated"
    meaning = (
        "Where all samples share one gradient direction, a cosine to it says nothing about what "
        "the blocks learn from a sample."
    )
    instead = "report no Γ"
    role = Role.REQUIRED
    needs = ("gradients", "directions", "output-error")
    needs_reference = True
    reads_logs = True
    published: ClassVar[Mapping[str, str]] = {"four": ""}
    columns = (Column("drift", lambda report: report.cross_batch_stability, cosine),)
    axis_title = "cross-batch cosine"

    def judge(self, report: Report) -> Finding:
        """Decide in this order: no direction, one class, below the ceiling, excused, drift."""
        value = report.cross_batch_stability
        layer = "L//2" if report.stability_layer is None else report.stability_layer
        if value is None:
            why = "the cross-batch cosine was not measured"
            if report.partial:
                why = "the log has no cross-batch cosine: log with pytest_fadiag.Recorder"
            return self.unmeasured(report, why)
        nonfinite = _nonfinite_gradients(report)
        if nonfinite or not math.isfinite(value):
            number = "the cosine is undefined"
            cause = "undefined"
            if nonfinite:
                number = f"not finite for {plural(nonfinite, 'sample')}"
                cause = "non-finite"
            return self.finding(
                report,
                Status.FIRE,
                value,
                number,
                "A zero or non-finite gradient has no direction: neither drift nor Γ is defined.",
                [cause],
                claim=f"BP gradient has no direction at h_{layer}",
            )
        if report.eval_classes == 1:
            why = "all evaluation batches hold one class, whose gradients agree anyway"
            return self.unmeasured(report, f"{why}: {SORTED}", remedy=SORTED)
        ceiling = self.limit(report)
        sign = "≤" if value <= ceiling else ">"
        headline = (
            f"cross-batch cosine of batch-mean gradients at h_{layer} "
            f"{distinct(cosine, value, ceiling)} {sign} {limit(ceiling)}"
        )
        doubts = list(_doubts_of_batch_size(report))
        if value <= ceiling:
            return self.finding(report, Status.PASS, value, headline, doubts=doubts)
        if report.task == "regression" and math.isnan(report.sample_invariance or 0.0):
            why = f"{headline}, but the targets have fewer than 3 groups to compare"
            return self.finding(
                report, Status.NOT_RESOLVED, value, why, remedy="evaluate on more varied targets"
            )
        bias = list(_biased_output(report, ceiling))
        if exemption := _exemption(report):
            return self.finding(
                report,
                Status.PASS,
                value,
                f"{headline}, but {exemption.number}",
                causes=[exemption.cause, *bias],
                doubts=doubts,
                exempted=True,
            )
        return self.finding(
            report,
            Status.FIRE,
            value,
            headline,
            "The gradient points one way whatever the batch: Γ measures agreement with that "
            "drift, not credit.",
            bias,
            doubts=doubts,
            claim="all samples share one BP gradient direction",
        )

    def lines(self, report: Report) -> Iterator[str]:
        agreement = report.sample_invariance
        share = report.predicted_class_share
        if agreement is not None:
            line = f"gradient agreement between {GROUPS[report.task]}: {cosine(agreement)}"
            if math.isnan(agreement) and share is not None:
                line += f" ({100 * share:.1f} % of predictions are one class)"
            yield line
        if report.output_error_drift is not None:
            yield f"cross-batch cosine of the output error: {cosine(report.output_error_drift)}"
        if report.effective_rank is not None:
            yield (
                "effective rank, gradients over output error: "
                f"{sig(report.effective_rank)} (not judged)"
            )
        if report.zero_gradient_samples:
            yield f"{plural(report.zero_gradient_samples, 'sample')} with a zero gradient left out"
        batches = report.batches
        if batches is not None and batches < ENOUGH_BATCHES:
            yield (
                f"only {batches} batches of {BATCH}: fewer than {ENOUGH_BATCHES} make it uncertain"
            )

    def remarks(self, report: Report) -> Iterator[str]:
        """Say that the evaluation batches lack most classes."""
        present, classes = report.eval_classes, report.classes
        if report.task == "classes" and present and classes and 2 * present < classes:
            yield (
                f"the evaluation batches hold {present} of {classes} classes: (c) covers no "
                f"others; {SORTED}"
            )


def _nonfinite_gradients(report: Report) -> int:
    """How many samples have a non-finite gradient at the layer of the cosine."""
    counts = report.nonfinite_gradients
    layer = report.stability_layer
    if layer is None or layer >= len(counts):
        return 0
    return counts[layer]


def _doubts_of_batch_size(report: Report) -> Iterator[str]:
    """Say that logged batches had another size: means over more samples agree more."""
    batch = report.log.gradient_batch if report.log else None
    if report.partial and batch != BATCH:
        yield f"batches of {batch or 'unknown size'}, not {BATCH}"


def _biased_output(report: Report, ceiling: float) -> Iterator[str]:
    drift = report.output_error_drift
    if drift is not None and drift > ceiling:
        yield f"biased output {cosine(drift)}"


def _exemption(report: Report) -> Exemption | None:
    """Why batches that agree are not drift: classes do not, or more than one class is predicted."""
    agreement = report.sample_invariance
    if agreement is None or report.thresholds.confounds == "flag":
        return None
    minimum = report.thresholds.sample_invariance_minimum
    if -math.inf < agreement < minimum:
        groups = GROUPS[report.task]
        number = f"agreement between {groups} {cosine(agreement)} < {limit(minimum)}"
        return Exemption("not sample-invariant", number)
    share = report.predicted_class_share
    if math.isnan(agreement) and share is not None and share < ONE_CLASS:
        number = f"at most {100 * share:.0f} % of the predictions are one class"
        return Exemption("not driven to one class", number)
    return None
