"""(a) Does the residual stream explode?"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..wording import beside, count, figure, limit, per_site
from .base import Column, Diagnostic, Finding, Status

if TYPE_CHECKING:
    from ..report import DiagnosticReport


def growth(report: DiagnosticReport) -> float:
    """The growth that the report's thresholds select."""
    select = cumulative_growth if report.thresholds.growth == "cumulative" else per_block_growth
    return select(report.residual_norms)


def per_block_growth(norms: Sequence[float]) -> float:
    """The largest ‖h_{l+1}‖/‖h_l‖; NaN where the stream is all zero or not finite."""
    return _largest(_ratio(after, before) for before, after in itertools.pairwise(norms))


def cumulative_growth(norms: Sequence[float]) -> float:
    """The largest ‖h_l‖/‖h_0‖, the form of the first draft."""
    return _largest(_ratio(norm, norms[0]) for norm in norms)


class ResidualGrowth(Diagnostic):
    """Fires when one block multiplies the size of the stream by more than the ratio."""

    key = "a"
    name = "residual-growth"
    question = "does the residual stream explode?"
    threshold = "h_norm_explosion_ratio"
    walk_back = "residual stream exploded"
    columns = (
        Column("‖h_L‖", lambda report: report.residual_norms[-1], figure, priority=4),
        Column("growth", growth, figure, priority=2),
    )

    def judge(self, report: DiagnosticReport) -> Finding:
        norms, ratio = report.residual_norms, report.thresholds.h_norm_explosion_ratio
        value = growth(report)
        form = report.thresholds.growth.replace("_", "-") + " growth"
        broken = not_finite(norms, report.companions.nonfinite_states)
        if broken:
            return self.finding(
                report,
                Status.FIRE,
                value,
                f"residual stream is not finite ({broken})",
                "The stream overflows or holds NaN, so no hidden-layer number of this network can be reported.",
                ("non-finite",),
            )
        if 0 in norms:
            return self.finding(
                report,
                Status.FIRE,
                value,
                f"residual stream is all zero at layer {norms.index(0)}",
                "The network passes no signal there; neither accuracy nor Γ describes a trained network.",
                ("all-zero stream",),
            )
        if value > ratio or math.isinf(value):
            return self.finding(
                report,
                Status.FIRE,
                value,
                f"{form} {beside(figure, value, ratio)} > {limit(ratio)}",
                f"It explodes {self._where(report)}: hidden-layer norms and Γ describe scale, not credit.",
            )
        return self.finding(report, Status.PASS, value, f"{form} {beside(figure, value, ratio)} <= {limit(ratio)}")

    def lines(self, report: DiagnosticReport) -> list[str]:
        norms = report.residual_norms
        return [
            f"median ‖h_l‖: {per_site('h', norms)}",
            f"per-block growth (max ‖h_l+1‖/‖h_l‖): {figure(per_block_growth(norms))}    "
            f"cumulative growth (max ‖h_l‖/‖h_0‖): {figure(cumulative_growth(norms))}",
        ]

    def _where(self, report: DiagnosticReport) -> str:
        norms = report.residual_norms
        if report.thresholds.growth == "cumulative":
            return f"to {figure(max(norms))} from {figure(norms[0])}"
        block = max(range(len(norms) - 1), key=lambda index: _sortable(_ratio(norms[index + 1], norms[index])))
        return f"in block {block} (h_{block} {figure(norms[block])} → h_{block + 1} {figure(norms[block + 1])})"


def not_finite(norms: Sequence[float], counts: Sequence[int]) -> str:
    """Where a non-finite number was seen, or nothing; the counts also catch samples that a median hides."""
    sites = [index for index, norm in enumerate(norms) if not math.isfinite(norm)]
    sites += [index for index, seen in enumerate(counts) if seen and index not in sites]
    if not sites:
        return ""
    samples = max(counts, default=0)
    seen = f", {count(samples, 'sample')}" if samples else ""
    return f"first at layer {min(sites)}{seen}"


def _ratio(after: float, before: float) -> float:
    if before == 0:
        return math.nan if after == 0 else math.inf
    return after / before


def _sortable(ratio: float) -> float:
    return -math.inf if math.isnan(ratio) else ratio


def _largest(ratios: Iterable[float]) -> float:
    return max((ratio for ratio in ratios if not math.isnan(ratio)), default=math.nan)
