"""The axes of the audit figure, which all methods share: they are there to be compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...judge.diagnostics.frozen_margin import interval, margin
from ..groups import MethodGroup
from .scales import Scale, linear_scale, log_scale, margin_scale, whole_scale

TICK_LABEL = 0.22
"""The room that the tick label of a margin needs, as a share of its panel."""


@dataclass(frozen=True)
class Scales:
    """One axis for each quantity."""

    layer: Scale
    states: Scale
    gradients: Scale
    drift: Scale
    margin: Scale


def shared_scales(groups: Sequence[MethodGroup]) -> Scales:
    """The axes around every number, interval and threshold of these methods."""
    reports = [report for group in groups for report in group.reports]
    together = [group.seed_margin for group in groups if group.seed_margin is not None]
    bounds = [each for report in reports if (each := interval(report)) is not None]
    bounds += [margin.interval for margin in together]
    floors = [report.thresholds.g_norm_floor for report in reports if 0 < report.thresholds.g_norm_floor < math.inf]
    return Scales(
        whole_scale(max(max(len(report.residual_norms), len(report.bp_grad_norms)) for report in reports) - 1),
        log_scale(norm for report in reports for norm in report.residual_norms),
        log_scale([*floors, *(norm for report in reports for norm in report.bp_grad_norms)]),
        linear_scale(
            [0.0, *(value for r in reports for value in (r.cross_batch_stability, r.thresholds.stability_drift_ceiling))],
            4,
            0.5,
        ),
        margin_scale(
            [
                0.0,
                *(value for report in reports for value in (margin(report), report.thresholds.frozen_acc_margin_pp)),
                *(end for each in bounds for end in (each.low, each.high)),
            ],
            TICK_LABEL,
        ),
    )
