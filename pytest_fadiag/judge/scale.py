"""What the size of stream and parameters alone explains: said beside (a) and (b), and never excused."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from .diagnostics.gradient_floor import GradientFloor
from .diagnostics.residual_growth import ResidualGrowth, compared, cumulative_growth, deepest
from .wording import figure, limit

if TYPE_CHECKING:
    from .report import DiagnosticReport

ALIKE = 2.0
"""Within this factor the blocks of a network grow the stream alike."""
MOST_LISTED = 12
HEALTHY_PRODUCT = 1e-2
"""The least ‖g_L‖·‖h_L‖ per unit error of networks that are well: √d/128 times what the head makes of an error, 0.02 in an
untrained network of width 16, 0.08 and more in trained ones. It does not change with the scale of the stream."""


def spread_growth(report: DiagnosticReport) -> str:
    """That the stream grows beyond the square of the ratio, though no block exceeds it; else nothing."""
    if ResidualGrowth.name not in report.diagnostics or not report.depth_known:
        return ""
    norms, most = [norm for norm in compared(report) if norm is not None], report.thresholds.h_norm_explosion_ratio
    if len(norms) != len(report.residual_norms) or ResidualGrowth().judge(report).fired:
        return ""
    total = cumulative_growth(norms)
    if not total > max(most * most, 1.0):  # a stream that shrinks exceeds a ratio below 1 too
        return ""
    steps = [after / before for before, after in pairwise(norms[: norms.index(max(norms)) + 1])]
    low, high = figure(min(steps)), figure(max(steps))
    how = f"every block grows the stream by {low if low == high else f'{low} to {high}'}"
    if max(steps) > ALIKE * min(steps):
        more = " …" if len(steps) > MOST_LISTED else ""
        how = f"its blocks multiply it by {', '.join(map(figure, steps[:MOST_LISTED]))}{more}"
    return f"the stream grows by {figure(total)} in all, though no block exceeds {limit(most)}: {how}"


def scaled_up(report: DiagnosticReport) -> str:
    """That a gradient at the floor is small by scale, of parameters or of inputs: which of them, nobody looked."""
    asked = {GradientFloor.name, ResidualGrowth.name} <= set(report.diagnostics)
    per_error, size = report.companions.gradient_per_unit_error, deepest(report.residual_norms)
    if not asked or report.unproven or per_error is None or size is None or not math.isfinite(per_error * size):
        return ""
    grown = ResidualGrowth().judge(report)
    if not cumulative_growth(compared(report)) <= report.thresholds.h_norm_explosion_ratio:
        return ""  # it is small because the stream grew
    if per_error * size < HEALTHY_PRODUCT or not GradientFloor().judge(report).fired or grown.fired or not grown.measured:
        return ""
    return (
        f"‖g_L‖ is small beside a large stream: ‖h_L‖ is {figure(size)}, and ‖g_L‖·‖h_L‖ per unit error "
        f"{figure(per_error * size)}, as in a healthy network. That is scale, usually of the parameters, or of the inputs; it "
        "is below the floor all the same"
    )
