"""(b) Is the BP gradient large enough to serve as a reference?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ..records import BATCH, Precision, Resolution
from ..words import by_state, distinct, limit, sig
from .base import Column, Curve, Diagnostic, Finding, Report, Role, Status
from .residual_growth import first_nonfinite, require_norms

SMALL_ERROR = 0.1
"""A median output error below this is that of confident predictions; chance has 0.95."""


class GradientFloor(Diagnostic):
    """Fires when the deepest gradient is below the floor, and not for confident predictions."""

    key = "b"
    name = "gradient-floor"
    question = "is the BP gradient large enough to serve as a reference?"
    threshold = "g_norm_floor"
    fails_if = "‖g_L‖ < {}, also per unit of output error"
    walk_back = "BP grad at numerical floor"
    meaning = (
        "Γ is a cosine to this gradient. Below the floor it is not a usable reference: do not "
        "report Γ against it."
    )
    instead = "report no Γ"
    role = Role.REQUIRED
    needs = ("gradients", "output-error", "precision")
    needs_reference = True
    reads_logs = True
    stops_training = True
    published: ClassVar[Mapping[str, str]] = {"three": "D2", "four": ""}
    columns = (Column("floor", lambda report: (report.bp_grad_norms or (None,))[-1], sig),)
    curve_title = "median ‖g_l‖"
    curve_log = True

    def judge(self, report: Report) -> Finding:
        """Decide in this order: broken gradients, the number that this task is judged by, 0."""
        norms = report.bp_grad_norms
        layer = _deepest_known(report)
        value = norms[layer] if norms else None
        if broken := first_nonfinite(report, norms, report.nonfinite_gradients):
            return self.finding(
                report,
                Status.FIRE,
                value,
                broken,
                "There is no BP gradient to compare a credit signal with: do not report Γ.",
                ["non-finite"],
                claim="BP gradient is not finite",
            )
        if value is None:
            why = "no ‖g_l‖ was logged: add g_L_norm, or bp_grad_norms of every layer"
            return self.unmeasured(report, why)
        symbol = "‖g_L‖"
        proxy = []
        if layer + 1 < len(norms):
            symbol = f"‖g_{layer}‖"
            proxy = [f"{symbol} as a proxy for ‖g_L‖"]
        doubts = [*proxy, *_doubts_of_batch_size(report)]
        per_error = report.gradient_per_unit_error
        may_excuse = report.thresholds.confounds == "excuse"
        if unit := why_per_unit_error(report):
            if per_error is None or not math.isfinite(per_error):
                why = f"{unit}, and it is not defined"
                return self.unmeasured(report, why, remedy="name the loss (--fa-loss, loss=)")
            value = per_error
            symbol = "‖g_L‖ per unit of output error"
            may_excuse = False
        floor = self.limit(report)
        sign = "<" if value < floor else "≥"
        headline = f"{symbol} {distinct(sig, value, floor)} {sign} {limit(floor)}"
        if value >= floor and value > 0:
            return self.finding(report, Status.PASS, value, headline, doubts=doubts)
        if may_excuse and per_error and floor <= per_error < math.inf:
            return self._excused(report, value, headline, doubts)
        if value == 0:  # at every batch size, so only another layer's gradient leaves a doubt
            return self.finding(
                report,
                Status.FIRE,
                value,
                symbol,
                "No credit reaches the stream: Γ against this gradient is undefined.",
                ["all-zero gradient"],
                doubts=proxy,
                claim="BP gradient is exactly 0",
            )
        return self.finding(
            report,
            Status.FIRE,
            value,
            headline,
            "It is not a usable reference at this scale: do not report Γ against it.",
            doubts=doubts,
            claim="BP gradient below the protocol floor",
        )

    def _excused(self, report: Report, value: float, headline: str, doubts: list[str]) -> Finding:
        """Pass a gradient that is small only since predictions are confident.

        The path back to the stream is intact.
        """
        per_error = report.gradient_per_unit_error or 0.0
        error = report.output_error_norm
        cause = "saturated"
        if error is not None and error >= SMALL_ERROR:
            cause = "above the floor per unit error"
        number = distinct(sig, per_error, self.limit(report))
        return self.finding(
            report,
            Status.PASS,
            value,
            f"{headline}, but {number} per unit of output error",
            causes=[cause],
            doubts=doubts,
            exempted=True,
        )

    def table(self, report: Report) -> list[str]:
        states, norms = [], []
        for layer, norm in enumerate(report.bp_grad_norms):
            if norm is not None:
                states.append(f"h_{report.layer(layer)}")
                norms.append(sig(norm))
        return by_state(states, {"‖g_l‖": norms})

    def lines(self, report: Report) -> Iterator[str]:
        per_error = report.gradient_per_unit_error
        error = report.output_error_norm
        if per_error is not None:
            yield f"gradient per unit of output error (median ‖g_L‖/‖e‖) {sig(per_error)}"
        if unit := why_per_unit_error(report):
            yield unit
        if error is not None:
            yield f"median output error ‖e‖ {sig(error)}"
        without_gradient = report.tokens_without_gradient
        if any(without_gradient):
            yield (
                f"medians over the tokens that the head reads: {without_gradient[-1]} of "
                f"{report.tokens} have no gradient at h_L"
            )
        if report.precision:
            yield f"cosine to the float64 gradient at h_L: {_resolved(report.precision)}"
        yield from self._lines_of_a_log(report)

    def _lines_of_a_log(self, report: Report) -> Iterator[str]:
        batch = _logged_batch(report)
        if batch is not None and batch != BATCH:
            yield f"logged at batch size {batch:,}, given here as at {BATCH}"
        if not self.table(report):
            return
        if report.log and report.gradient_per_unit_error is None:
            yield "no output error was logged: saturation is not told from collapse"
        if report.partial and batch is None:
            yield (
                "state the batch size of these gradients with --fa-log-batch=N, or as "
                "grad_batch_size in the log's config (N = 1024 reads 8 times lower than 128)"
            )

    def check(self, report: Report) -> None:
        require_norms(report, "bp_grad_norms")

    def curve(self, report: Report) -> Curve | None:
        if not report.bp_grad_norms:
            return None
        return Curve(ys=report.bp_grad_norms, level=report.thresholds.g_norm_floor)


def is_at_floor(report: Report) -> bool:
    """Whether (b) fires, asked for or not: Γ is then relative to a gradient below the floor."""
    return bool(report.bp_grad_norms) and report.judged_by(GradientFloor()).fired


def why_per_unit_error(report: Report) -> str:
    """Why the gradient per unit of output error alone decides; empty for the published task."""
    if report.task == "classes" and report.loss == "cross-entropy":
        return ""
    what = report.loss if report.task == "classes" else report.task
    return (
        f"the floor is of cross-entropy on classes: for {what} the gradient per unit error decides"
    )


def _deepest_known(report: Report) -> int:
    known = [layer for layer, norm in enumerate(report.bp_grad_norms) if norm is not None]
    return known[-1] if known else -1


def _doubts_of_batch_size(report: Report) -> Iterator[str]:
    """Why a logged gradient may not be as for batches of 128."""
    if report.partial and not _logged_batch(report):
        assumed = report.log.assumed_batch if report.log else None
        yield f"batch size {assumed or BATCH:,} assumed"


def _logged_batch(report: Report) -> int | None:
    return report.log.gradient_batch if report.log else None


def _resolved(precision: Precision) -> str:
    """The gradient at h_L in each dtype: float32 1.0000; float16 0.9975, 22 of 128 samples lost."""
    if precision.problem:
        return precision.problem
    return "; ".join(
        f"{resolution.dtype} {_resolution(resolution, precision.samples)}"
        for resolution in precision.dtypes
    )


def _resolution(resolution: Resolution, samples: int) -> str:
    if resolution.problem:
        return resolution.problem
    if resolution.cosine is None or math.isnan(resolution.cosine):
        return "lost"
    if resolution.lost:
        return f"{resolution.cosine:.4f}, {resolution.lost} of {samples} samples lost"
    return f"{resolution.cosine:.4f}"
