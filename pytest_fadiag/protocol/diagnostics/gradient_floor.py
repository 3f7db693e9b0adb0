"""(b) Is the BP gradient at its floor?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..wording import beside, figure, limit, per_site
from .base import Column, Diagnostic, Finding, Status
from .residual_growth import not_finite

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
    walk_back = "BP grad at numerical floor"
    columns = (Column("‖g_L‖", lambda report: report.bp_grad_norms[-1], figure, priority=3),)

    def judge(self, report: DiagnosticReport) -> Finding:
        floor, value = report.thresholds.g_norm_floor, report.bp_grad_norms[-1]
        broken = not_finite(report.bp_grad_norms, report.companions.nonfinite_gradients)
        if broken:
            return self.finding(
                report,
                Status.FIRE,
                value,
                f"BP gradient is not finite ({broken})",
                "There is no BP gradient to compare a credit signal with; Γ cannot be reported.",
                ("non-finite",),
            )
        if value >= floor and value > 0:
            return self.finding(report, Status.PASS, value, f"‖g_L‖ {beside(figure, value, floor)} >= {limit(floor)}")
        headline = f"‖g_L‖ {beside(figure, value, floor)} < {limit(floor)}"
        per_error = report.companions.gradient_per_unit_error
        if report.thresholds.confounds == "excuse" and per_error is not None and per_error >= floor and per_error > 0:
            # Small only because the samples are classified with confidence: the path back to the stream is intact.
            shown = f"{headline}, but {beside(figure, per_error, floor)} per unit error"
            return self.finding(report, Status.PASS, value, shown, causes=(self._excuse(report),))
        if value == 0:
            return self.finding(
                report,
                Status.FIRE,
                value,
                "‖g_L‖ is exactly 0",
                "No credit reaches the stream; Γ against this gradient is undefined and cannot be reported.",
                ("all-zero gradient",),
            )
        return self.finding(
            report,
            Status.FIRE,
            value,
            headline,
            "The reference of Γ carries no credit at this scale: a cosine to it says nothing of the training rule.",
        )

    @staticmethod
    def _excuse(report: DiagnosticReport) -> str:
        """«saturated» where the output error is small; a gradient just above the floor per unit error is only that."""
        error = report.companions.output_error_norm
        return "saturated" if error is None or error < SMALL_ERROR else "above the floor per unit error"

    def lines(self, report: DiagnosticReport) -> list[str]:
        companions = report.companions
        lines = [f"median ‖g_l‖: {per_site('g', report.bp_grad_norms)}"]
        if companions.gradient_per_unit_error is not None:
            lines.append(
                f"gradient per unit error (median ‖g_L‖/‖e‖): {figure(companions.gradient_per_unit_error)}    "
                f"median output error ‖e‖: {figure(_or_nan(companions.output_error_norm))}"
            )
        if any(companions.unread_tokens):
            lines.append(
                f"medians over the tokens that the head reads: {companions.unread_tokens[-1]} of {companions.tokens} tokens "
                "have no gradient at h_L in any sample and are left out"
            )
        return lines


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
