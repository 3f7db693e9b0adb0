"""(b) Is the BP gradient large enough to serve as a reference?"""

from __future__ import annotations

import math

from ..records import BATCH, Precision
from ..words import by_state, distinct, limit, sig
from .base import Column, Diagnostic, Finding, Report, Status
from .residual_growth import first_nonfinite

SMALL_ERROR = 0.1
"""A median output error below this is that of confident predictions; chance has 0.95."""


class GradientFloor(Diagnostic):
    """Fires when the deepest gradient is below the floor, and not for confident predictions."""

    key = "b"
    name = "gradient-floor"
    question = "is the BP gradient large enough to serve as a reference?"
    threshold = "g_norm_floor"
    needs = ("gradients", "output-error", "precision")
    walk_back = "BP grad at numerical floor"
    columns = (Column("‖g_L‖", lambda report: (report.bp_grad_norms or (None,))[-1], sig, 3),)

    def judge(self, report: Report) -> Finding:
        floor, norms = self.limit(report), report.bp_grad_norms
        layer = max((index for index, norm in enumerate(norms) if norm is not None), default=-1)
        value = norms[layer] if norms else None
        if broken := first_nonfinite(report, norms, report.nonfinite_gradients):
            return self.finding(
                report,
                Status.FIRE,
                value,
                broken,
                "There is no BP gradient to compare a credit signal with: do not report Γ.",
                ("non-finite",),
                claim="BP gradient is not finite",
            )
        per_error, error = report.gradient_per_unit_error, report.output_error_norm
        unit = by_unit_error(report) if value is not None else ""
        judged = per_error if unit else value
        if judged is None or not math.isfinite(judged):
            missing = "no ‖g_l‖ was logged: add g_L_norm, or bp_grad_norms of every layer"
            why = f"{unit}, and it is not defined" if unit else missing
            return self.unmeasured(report, why)
        symbol = "‖g_L‖" if layer + 1 == len(norms) else f"‖g_{layer}‖"
        assumed = (report.log.assumed_batch if report.log else None) or BATCH
        proxy = f"{symbol} as a proxy for ‖g_L‖" if symbol != "‖g_L‖" else ""
        batch = "" if _batch(report) else f"batch size {assumed:,} assumed"
        doubts = (proxy, batch) if report.partial else ()
        value, published = judged, bool(unit) or report.thresholds.confounds == "flag"
        symbol = "‖g_L‖ per unit of output error" if unit else symbol
        sign = "<" if value < floor else "≥"
        headline = f"{symbol} {distinct(sig, value, floor)} {sign} {limit(floor)}"
        if value >= floor and value > 0:
            return self.finding(report, Status.PASS, value, headline, doubts=doubts)
        if not published and per_error and floor <= per_error < math.inf:
            # Small only because predictions are confident: the path back to the stream is intact.
            return self.finding(
                report,
                Status.PASS,
                value,
                f"{headline}, but {distinct(sig, per_error, floor)} per unit of output error",
                causes=[
                    "saturated"
                    if error is None or error < SMALL_ERROR
                    else "above the floor per unit error"
                ],
                doubts=doubts,
                exempted=True,
            )
        if value == 0:  # at every batch size, so only another layer's gradient leaves a doubt
            return self.finding(
                report,
                Status.FIRE,
                value,
                symbol,
                "No credit reaches the stream: Γ against this gradient is undefined.",
                ("all-zero gradient",),
                doubts=[proxy],
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

    def table(self, report: Report) -> list[str]:
        known = {
            f"h_{report.layer(at)}": n for at, n in enumerate(report.bp_grad_norms) if n is not None
        }
        return by_state([*known], {"‖g_l‖": [*map(sig, known.values())]})

    def lines(self, report: Report) -> list[str]:
        known, batch, bare = self.table(report), _batch(report), report.tokens_without_gradient
        per_error, error = report.gradient_per_unit_error, report.output_error_norm
        return [
            f"gradient per unit of output error (median ‖g_L‖/‖e‖) {sig(per_error)}"
            if per_error is not None
            else "",
            by_unit_error(report),
            f"median output error ‖e‖ {sig(error)}" if error is not None else "",
            f"medians over the tokens that the head reads: {bare[-1]} of {report.tokens} have no "
            "gradient at h_L"
            if any(bare)
            else "",
            f"cosine to the float64 gradient at h_L: {_resolved(report.precision)}"
            if report.precision
            else "",
            f"logged at batch size {batch:,}, given here as at {BATCH}"
            if batch not in (None, BATCH)
            else "",
            "no output error was logged: saturation is not told from collapse"
            if report.log and known and per_error is None
            else "",
            "state the batch size of these gradients with --fa-log-batch=N, or as grad_batch_size "
            "in the log's config (N = 1024 reads 8 times lower than 128)"
            if report.partial and known and batch is None
            else "",
        ]


def by_unit_error(report: Report) -> str:
    """Why the gradient per unit of output error alone decides; empty for the published task."""
    if report.task == "classes" and report.loss == "cross-entropy":
        return ""
    what = report.loss if report.task == "classes" else report.task
    return (
        f"the floor is of cross-entropy on classes: for {what} the gradient per unit error decides"
    )


def _batch(report: Report) -> int | None:
    return report.log.gradient_batch if report.log else None


def _resolved(precision: Precision) -> str:
    """The gradient at h_L in each dtype: float32 1.0000; float16 0.9975, 22 of 128 samples lost."""
    parts = []
    for seen in precision.dtypes:
        lost = f", {seen.lost} of {precision.samples} samples lost" if seen.lost else ""
        known = seen.cosine is not None and not math.isnan(seen.cosine)
        parts.append(
            f"{seen.dtype} {seen.problem or (f'{seen.cosine:.4f}{lost}' if known else 'lost')}"
        )
    return "; ".join(parts)
