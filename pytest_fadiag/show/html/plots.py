"""Which plots a report has: norms over depth, and with a training log the course over epochs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...judge.diagnostics.residual_growth import allowed_norm, changes_shape
from ...judge.report import DiagnosticReport
from ...judge.trajectory import Series, Trajectory
from ...judge.wording import fraction, limit, site
from .axes import Axis, linear_axis, log_axis, whole_axis
from .chart import Chart, Limit


def plots(report: DiagnosticReport) -> list[Chart]:
    """The plots of one report, depth first."""
    charts = [residual_norms(report), gradient_norms(report)]
    if report.trajectory is not None and report.trajectory.epochs:
        charts += over_epochs(report, report.trajectory)
    return charts


def residual_norms(report: DiagnosticReport) -> Chart:
    """‖h_l‖ over depth; a dashed line over each layer is what it must not exceed, given the layer it is compared with."""
    norms, ratio = report.residual_norms, report.thresholds.h_norm_explosion_ratio
    cumulative = report.thresholds.growth == "cumulative"
    limits, crossed = [], set()
    for layer in range(1, len(norms)):
        norm, most = norms[layer], allowed_norm(report, 0 if cumulative else layer - 1, layer)
        counted = report.depth_known or layer + 1 < len(norms)  # else unknown blocks lie between the two
        if most is None or not 0 < most < math.inf or not (counted or cumulative):
            continue
        limits.append(Limit(most, layer - 0.3, layer + 0.3))
        if norm is not None and norm > most:
            crossed.add(layer)
    reference = "‖h_0‖" if cumulative else "‖h_l‖ of the layer before"
    if changes_shape(report):
        reference += ", by root mean squares"
    return Chart(
        "median ‖h_l‖ over depth",
        "layer",
        range(len(norms)),
        norms,
        log_axis(norms, (line.value for line in limits)),
        whole_axis([0, len(norms) - 1 + 0.3 * bool(limits)]),
        limits,
        f"(a) fires above {limit(ratio)} × {reference}",
        fired=frozenset(crossed),
        deepest=_deepest(report),
    )


def gradient_norms(report: DiagnosticReport) -> Chart:
    """‖g_l‖ over depth with the floor; the deepest decides."""
    norms, floor = report.bp_grad_norms, report.thresholds.g_norm_floor
    last = max((layer for layer, norm in enumerate(norms) if norm is not None), default=0)
    return Chart(
        "median ‖g_l‖ over depth",
        "layer",
        range(len(norms)),
        norms,
        log_axis(norms, [floor]),
        whole_axis([0, len(norms) - 1 + 0.3]),
        [Limit(floor, 0, len(norms) - 1 + 0.3)] if floor > 0 else [],
        f"(b) floor {limit(floor)} for the deepest layer",
        fired=frozenset({last} if report.finding("b").fired else ()),
        deepest=_deepest(report),
    )


def probes(accuracies: Sequence[float], *, fires: bool = False) -> Chart:
    """What a linear probe reads at each state; where depth adds nothing, the last one is marked."""
    last = len(accuracies) - 1
    return Chart(
        "what a linear probe reads, by depth",
        "layer",
        range(len(accuracies)),
        accuracies,
        linear_axis(accuracies, (0, 1)),
        whole_axis([0, last]),
        fired=frozenset({last} if fires else ()),
    )


def over_epochs(report: DiagnosticReport, course: Trajectory) -> list[Chart]:
    """‖h_L‖, ‖g‖, accuracy and drift over epochs, as far as they were logged."""
    epochs, control = course.epochs, report.frozen_baseline_acc
    floor, ceiling = report.thresholds.g_norm_floor, report.thresholds.stability_drift_ceiling
    layer, norms = course.gradient_layer, report.bp_grad_norms
    deepest = layer is None or layer + 1 == len(norms)
    g = "‖g_L‖" if deepest else f"‖g_{site(layer or 0, norms, depth_known=report.depth_known)}‖"
    accuracy, drift = linear_axis([*course.accuracy, control], (0, 1)), linear_axis([*course.drift, ceiling], (-1, 1))
    of_floor = f"(b) floor {limit(floor)}" + ("" if deepest else " for ‖g_L‖, which was not logged")
    of_control = "" if control is None else f"control {fraction(control)}"
    quantities: list[tuple[str, Series, Axis, float | None, str]] = [
        ("‖h_L‖", course.residual_norm, log_axis(course.residual_norm), None, ""),
        (g, course.gradient_norm, log_axis(course.gradient_norm, [floor]), floor if floor > 0 else None, of_floor),
        ("accuracy", course.accuracy, accuracy, control, of_control),
        ("drift", course.drift, drift, ceiling, f"(c) ceiling {limit(ceiling)}"),
    ]
    x_axis, marks = whole_axis(epochs), _marks(course)
    return [
        Chart(
            f"{name} over epochs",
            "epoch",
            epochs,
            ys,
            axis,
            x_axis,
            [] if line is None else [Limit(line, min(epochs), max(epochs))],
            legend,
            marks,
        )
        for name, ys, axis, line, legend in quantities
        if any(y is not None for y in ys)
    ]


def _marks(course: Trajectory) -> list[tuple[float, str]]:
    """Each epoch at which something first fired, with the letters of it."""
    by_epoch: dict[float, str] = {}
    for key, epoch in sorted(course.first_fired.items()):
        by_epoch[epoch] = by_epoch.get(epoch, "") + key
    return sorted(by_epoch.items())


def _deepest(report: DiagnosticReport) -> str:
    return "" if report.depth_known else "L"
