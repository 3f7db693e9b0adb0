"""The plots of a method's credit: Γ over depth with its null, and below it what a step along the credit saves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ...judge.credit import Credit
from ...judge.diagnostics import CreditAlignment
from ...judge.report import DiagnosticReport
from ...judge.wording import limit
from ..audit import Audit
from ..groups import seed_groups
from .axes import linear_axis, whole_axis
from .chart import Chart, Limit
from .overlay import STROKES, Comparison, Layer, Overlay

Drawn = Callable[[Credit], Chart]


def credit_of(report: DiagnosticReport | None) -> Credit | None:
    """The credit of a report, where it was measured."""
    return None if report is None or report.credit is None or report.credit.problem else report.credit


def charts(report: DiagnosticReport) -> list[Chart]:
    """The plots of one report; none where its credit was not measured."""
    credit = credit_of(report)
    return [*([] if credit is None else [gamma(credit), nudge(credit)]), *over_epochs(report)]


def over_epochs(report: DiagnosticReport) -> list[Chart]:
    """At how many block sites the credit was aligned in each epoch, where it was logged."""
    course = report.trajectory
    last = None if course is None else next((point.credit for point in reversed(course.points) if point.credit), None)
    if course is None or last is None:
        return []
    blocks = len(last.blocks)
    half = blocks * report.thresholds.credit_aligned_share
    marks = [(float(epoch), key) for key, epoch in course.first_fired.items() if key == CreditAlignment.key]
    return [
        Chart(
            "aligned block sites over epochs",
            "epoch",
            course.epochs,
            course.aligned,
            whole_axis([0, blocks]),
            whole_axis(course.epochs),
            [Limit(half, min(course.epochs), max(course.epochs))],
            f"(f) fires up to {limit(half)} of {blocks}, or where one is against",
            marks,
        )
    ]


def gamma(credit: Credit) -> Chart:
    """Γ at every site; dashed lines around each site are the ends of its null."""
    xs = _layers(credit)
    ends = [
        Limit(value, x - 0.3, x + 0.3)
        for x, low, high in zip(xs, credit.null_low, credit.null_high, strict=True)
        for value in (low, high)
    ]
    return Chart(
        "Γ: credit against BP over depth",
        "layer",
        xs,
        credit.gamma,
        linear_axis([0.0, *credit.gamma, *credit.null_low, *credit.null_high], (-1, 1)),
        whole_axis([min(xs) - 0.3, max(xs) + 0.3]),
        ends,
        "95 % of the null: Γ with features permuted",
    )


def nudge(credit: Credit) -> Chart:
    """What a step along the credit saves of the loss; random directions save nothing."""
    xs = _layers(credit)
    first, last = min(xs) - 0.3, max(xs) + 0.3
    return Chart(
        "nudge along the credit over depth",
        "layer",
        xs,
        credit.nudge,
        linear_axis([0.0, 1.0, *credit.nudge]),
        whole_axis([first, last]),
        [Limit(0.0, first, last)],
        "0: what random directions save; 1 is BP's step",
    )


def credit_comparisons(audit: Audit) -> list[Comparison]:
    """The methods in one frame a quantity, eight at a time; one network alone has its plots in its own report."""
    groups = [(group.label, group.rows) for group in seed_groups(audit) if any(credit_of(row.report) for row in group.rows)]
    found = []
    for start in range(0, len(groups), STROKES):
        methods = groups[start : start + STROKES]
        credits = [
            (label if row.seed is None else f"{label}, seed {row.seed}", stroke, credit)
            for stroke, (label, rows) in enumerate(methods)
            for row in rows
            if (credit := credit_of(row.report)) is not None
        ]
        if len(credits) > 1:
            plots = [
                _overlay([Layer(name, stroke, draw(credit)) for name, stroke, credit in credits]) for draw in (gamma, nudge)
            ]
            found.append(Comparison([label for label, _ in methods], plots))
    return found


def _overlay(layers: Sequence[Layer]) -> Overlay:
    """Curves on axes that hold them all; of limits at one place the outermost are drawn."""
    shown = [layer.chart for layer in layers]
    lines = [line for chart in shown for line in chart.limits]
    ends: dict[tuple[float, float], list[float]] = {}
    for line in lines:
        ends.setdefault((line.first, line.last), []).append(line.value)
    outermost = [Limit(value, *place) for place, values in ends.items() for value in dict.fromkeys((min(values), max(values)))]
    y_axis = linear_axis([*(y for chart in shown for y in chart.ys), *(line.value for line in lines)])
    x_axis = whole_axis([x for chart in shown for x in (chart.x_axis.low, chart.x_axis.high)])
    legend = shown[0].legend.replace("95 % of the null", "95 % of the null, the widest of these")
    shared = [replace(chart, y_axis=y_axis, x_axis=x_axis, limits=(), legend="") for chart in shown]
    shared[0] = replace(shared[0], limits=outermost, legend=legend)
    return Overlay([layer._replace(chart=chart) for layer, chart in zip(layers, shared, strict=True)])


def _layers(credit: Credit) -> list[float]:
    return [float(site.removeprefix("h_")) for site in credit.sites]
