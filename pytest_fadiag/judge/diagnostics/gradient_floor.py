"""(b) Is the BP gradient at its floor?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..observers import GRADIENTS, OUTPUT_ERROR, PRECISION, REFERENCE, Precision, Resolution
from ..records import BATCH
from ..wording import beside, figure, limit, per_site, site
from .base import Diagnostic, Finding, Status
from .cause import Cause, CauseKind
from .column import Column, ColumnKind
from .residual_growth import deepest, not_finite

if TYPE_CHECKING:
    from ..report import DiagnosticReport


SMALL_ERROR = 0.1
"""A median output error below this is that of samples classified with confidence; chance has 0.95 with ten classes."""


class GradientFloor(Diagnostic):
    """Fires when the gradient at the deepest state is below the floor and confident samples alone do not explain it."""

    key = "b"
    name = "gradient-floor"
    question = "is the BP gradient at its numerical floor?"
    threshold = "g_norm_floor"
    observers = (GRADIENTS, OUTPUT_ERROR, REFERENCE, PRECISION)
    walk_back = "BP grad at numerical floor"
    columns = (Column(key, "‖g_L‖", lambda report: deepest(report.bp_grad_norms), ColumnKind.SCALE, priority=3),)

    def judge(self, report: DiagnosticReport) -> Finding:
        floor = report.thresholds.g_norm_floor
        symbol, value = _deepest(report)
        broken = not_finite(report.bp_grad_norms, report.companions.nonfinite_gradients, depth_known=report.depth_known)
        if broken:
            return self.finding(
                report,
                Status.FIRE,
                value,
                f"BP gradient is not finite ({broken})",
                "There is no BP gradient to compare a credit signal with; Γ cannot be reported.",
                (Cause(CauseKind.NON_FINITE),),
            )
        if value is None:
            missing = "no ‖g_l‖ was logged: put g_L_norm, or bp_grad_norms of every layer, into the log's epochs"
            return self.finding(report, Status.NOT_MEASURED, None, missing)
        doubts = _doubts(report)
        if value >= floor and value > 0:
            shown = f"{symbol} {beside(figure, value, floor)} >= {limit(floor)}"
            return self.finding(report, Status.LIKELY_PASS if doubts else Status.PASS, value, shown, causes=doubts)
        headline = f"{symbol} {beside(figure, value, floor)} < {limit(floor)}"
        per_error = report.companions.gradient_per_unit_error
        sound = per_error is not None and 0 < per_error < math.inf and per_error >= floor
        if report.thresholds.confounds == "excuse" and per_error is not None and sound:
            # Small only because the samples are classified with confidence: the path back to the stream is intact.
            shown = f"{headline}, but {beside(figure, per_error, floor)} per unit error"
            status = Status.LIKELY_PASS if doubts else Status.PASS
            return self.finding(report, status, value, shown, causes=(self._excuse(report), *doubts))
        if value == 0:
            # Zero is zero at every batch size, so only another layer's in its stead leaves a doubt.
            return self.finding(
                report,
                Status.FIRE if symbol == "‖g_L‖" else Status.LIKELY_FIRE,
                value,
                f"{symbol} is exactly 0",
                "No credit reaches the stream; Γ against this gradient is undefined and cannot be reported.",
                (Cause(CauseKind.ZERO_GRADIENT),),
            )
        return self.finding(
            report,
            Status.LIKELY_FIRE if doubts else Status.FIRE,
            value,
            headline,
            "The reference of Γ carries no credit at this scale: a cosine to it says nothing of the training rule.",
            doubts,
        )

    @staticmethod
    def _excuse(report: DiagnosticReport) -> Cause:
        """«saturated» where the output error is small; a gradient just above the floor per unit error is only that."""
        error = report.companions.output_error_norm
        return Cause(CauseKind.SATURATED if error is None or error < SMALL_ERROR else CauseKind.ABOVE_FLOOR_PER_ERROR)

    def lines(self, report: DiagnosticReport) -> list[str]:
        companions = report.companions
        lines = [f"median ‖g_l‖: {per_site('g', report.bp_grad_norms, depth_known=report.depth_known)}"]
        if companions.gradient_per_unit_error is not None:
            lines.append(
                f"gradient per unit error (median ‖g_L‖/‖e‖): {figure(companions.gradient_per_unit_error)}    "
                f"median output error ‖e‖: {figure(_or_nan(companions.output_error_norm))}"
            )
        if any(companions.tokens_without_gradient):
            without = companions.tokens_without_gradient[-1]
            lines.append(
                f"medians over the tokens that the head reads: {without} of {companions.tokens} tokens of a sample "
                "(the median) have no gradient at h_L and are left out"
            )
        precision = report.observed(PRECISION)
        lines += [] if precision is None else [_resolved(precision)]
        return lines + (_of_the_log(report) if report.partial else [])

    def values(self, report: DiagnosticReport) -> list[str]:
        per_error = report.companions.gradient_per_unit_error
        parts = [per_site("g", report.bp_grad_norms, depth_known=report.depth_known, between=", ")]
        return parts if per_error is None else [*parts, f"per unit error {figure(per_error)}"]


def _resolved(precision: Precision) -> str:
    """In which dtypes a small gradient is only small."""
    unseen = {seen.problem for seen in precision.dtypes}
    if not precision.samples and len(unseen) == 1 and "" not in unseen:
        return f"in which dtypes the gradient at h_L is resolved is {unseen.pop()}"
    if not precision.samples:
        return "in no dtype is there a gradient at h_L to resolve: it is zero or not finite in float64"
    dtypes = "; ".join(f"{seen.dtype} {_in_one(seen)}" for seen in precision.dtypes)
    return f"cosine to the float64 gradient at h_L (median of {precision.samples} samples): {dtypes}"


def _in_one(seen: Resolution) -> str:
    if seen.cosine is None:
        return seen.problem
    if math.isnan(seen.cosine):
        return "lost for all of them"
    return f"{seen.cosine:.4f}" + (f", lost for {seen.lost} of them" if seen.lost else "")


def _deepest(report: DiagnosticReport) -> tuple[str, float | None]:
    """The deepest gradient that is known, under its own name: ‖g_L‖, or another layer's in its stead."""
    norms = report.bp_grad_norms
    deepest = max((index for index, norm in enumerate(norms) if norm is not None), default=len(norms) - 1)
    if deepest + 1 == len(norms):
        return "‖g_L‖", norms[-1]
    return f"‖g_{site(deepest, norms, depth_known=report.depth_known)}‖", norms[deepest]


def _doubts(report: DiagnosticReport) -> tuple[Cause, ...]:
    """What keeps the comparison with the floor from being exact."""
    if not report.partial:
        return ()
    symbol, _ = _deepest(report)
    proxy = () if symbol == "‖g_L‖" else (Cause(CauseKind.PROXY, symbol),)
    if report.gradient_batch is not None:
        return proxy
    if report.assumed_batch is None:
        return (*proxy, Cause(CauseKind.BATCH_ASSUMED, BATCH))
    return (*proxy, Cause(CauseKind.TRAINING_BATCH_ASSUMED, report.assumed_batch))


def _of_the_log(report: DiagnosticReport) -> list[str]:
    """At which batch size a log's gradients were taken, what they leave open, and which number would close it."""
    symbol, value = _deepest(report)
    lines = []
    if value is not None and report.gradient_batch is None:
        assumed = f"{BATCH} is assumed"
        if report.assumed_batch is not None:
            assumed = f"the training's own, {report.assumed_batch:,}, is assumed (they are given here as at {BATCH})"
        lines.append(
            f"at which batch size N they were taken is not known, and {assumed}; a log made at N=1024 reads "
            f"{1024 // BATCH} times lower: state N with --fa-log-batch=N, or as grad_batch_size in the log's config"
        )
    elif value is not None and report.gradient_batch != BATCH:
        times = figure((report.gradient_batch or BATCH) / BATCH)
        lines.append(f"logged at batch size {report.gradient_batch:,}, given here as at {BATCH} (times {times})")
    elif value is not None:
        lines.append(f"logged as at batch size {BATCH}")
    if symbol != "‖g_L‖":
        lines.append(f"{symbol} stands in for ‖g_L‖ (a proxy)")
    if value is not None and report.companions.gradient_per_unit_error is None:
        lines.append(
            "the log has no output error, without which saturation cannot be told from collapse: the published rule applies"
        )
    if value is None or _doubts(report):
        lines.append("to make it exact: log g_L_norm with its batch size, or use pytest_fadiag.Recorder")
    return lines


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
