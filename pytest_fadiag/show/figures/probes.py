"""The depth figure: what a linear probe reads at each state, methods overlaid, and what depth adds in each seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ...judge.report import DiagnosticReport
from ...judge.wording import limit
from ..audit import Audit, AuditRow
from ..groups import average, seed_groups
from ..headline import fired_counts
from . import style
from .rows import HEAD, ROW, lined, name_rows, room
from .scales import Scale, linear_scale, margin_scale, whole_scale
from .shared import TICK_LABEL
from .style import FAINT, GREY, LABEL, RULE, TICK, Key, Stroke, fitted, head, mark_of, panel, ruled

# Inches.
LEFT, BETWEEN, LEAST, FOOT = 0.42, 0.3, 1.7, 0.33
NULL: Any = {"linestyle": (0, (1, 1.2)), "lw": 0.9}
"""What a probe reads of the same network with its blocks drawn anew."""


CONTROL: Any = {"linestyle": (0, (5, 2)), "lw": 0.9, "color": GREY}
"""What a probe reads of the control."""


class Probed(NamedTuple):
    """A method with the seeds of which probes were read."""

    label: str
    seeds: tuple[tuple[AuditRow, DiagnosticReport], ...]
    stroke: Stroke

    @property
    def curves(self) -> list[tuple[float, ...]]:
        """What probes read of each seed."""
        return [report.probe_accuracies for _, report in self.seeds if report.probe_accuracies is not None]

    @property
    def nulls(self) -> list[tuple[float, ...]]:
        """The same with blocks drawn anew."""
        return [report.null_probe_accuracies for _, report in self.seeds if report.null_probe_accuracies is not None]


def probed(audit: Audit) -> list[tuple[str, tuple[tuple[AuditRow, DiagnosticReport], ...]]]:
    """The methods of which probes were read."""
    found = []
    for group in seed_groups(audit):
        seeds = [(row, row.report) for row in group.rows if row.report is not None and row.report.probe_accuracies]
        found += [(group.label, tuple(seeds))] if seeds else []
    return found


def probe_pages(audit: Audit) -> list[Figure]:
    """One figure for every eight methods, or for as many as a page holds."""
    pages: list[list[Probed]] = []
    for label, seeds in probed(audit):
        lines = sum(len(method.seeds) for method in pages[-1]) if pages else 0
        if not pages or len(pages[-1]) == len(style.STROKES) or ROW * (lines + len(seeds)) > style.TALLEST - 1:
            pages.append([])
        pages[-1].append(Probed(label, seeds, style.STROKES[len(pages[-1])]))
    return [_page(methods) for methods in pages]


def _page(methods: Sequence[Probed]) -> Figure:
    rows = [(method.label, row, report) for method in methods for row, report in method.seeds]
    names = [(label, "–" if row.seed is None else str(row.seed)) for label, row, _ in rows]
    key = _key(methods)
    top, height = key.height + HEAD, max(LEAST, ROW * len(rows))
    figure = style.new_figure(top + height + FOOT)
    key.draw(figure)
    beside = room(names)
    width = (style.WIDTH - LEFT - BETWEEN - beside - 0.12) / 2
    _curves(panel(figure, LEFT, top, width, height), methods, width)
    start = LEFT + width + BETWEEN
    name_rows(figure, names, start, top)
    axes = panel(figure, start + beside, top, width, ROW * len(rows))
    _utilities(axes, [(row, report) for _, row, report in rows], width)
    lined(axes, names)
    return figure


def _key(methods: Sequence[Probed]) -> Key:
    samples = [Line2D([], [], label=fitted(method.label, 2.0, TICK), **method.stroke.look()) for method in methods]
    if any(method.nulls for method in methods):
        samples.append(Line2D([], [], color=GREY, label="the same with blocks drawn anew", **NULL))
    if _controls(methods):
        samples.append(Line2D([], [], label="control", **CONTROL))
    if any(len(method.seeds) > 1 for method in methods):
        samples.append(Line2D([], [], color=GREY, lw=0.5, label="thin: a seed; bold: their mean"))
    marks = {mark_of(row, "e") for method in methods for row, _ in method.seeds}
    samples += [mark.sample() for mark in style.OUTCOMES if mark in marks]
    return Key([*samples, Line2D([], [], label="threshold", **RULE)])


def _curves(axes: Axes, methods: Sequence[Probed], width: float) -> None:
    controls = _controls(methods)
    curves = [*controls, *(curve for method in methods for curve in (*method.curves, *method.nulls))]
    scale = linear_scale([value for curve in curves for value in curve], 7, 0.05)
    head(axes, "what a linear probe reads, by depth", width, LABEL)
    ruled(axes, whole_scale(max(map(len, curves)) - 1), "x", grid=False)
    ruled(axes, scale, "y")
    axes.set_xlabel("layer l")
    for control in _means(controls):
        axes.plot(range(len(control)), [scale.place(value) for value in control], zorder=2, clip_on=False, **CONTROL)
    for method in methods:
        _draw(axes, method, scale)


def _draw(axes: Axes, method: Probed, scale: Scale) -> None:
    colour = method.stroke.colour
    for null in _means(method.nulls):
        axes.plot(range(len(null)), [scale.place(value) for value in null], color=colour, zorder=3, clip_on=False, **NULL)
    if len(method.curves) > 1:
        for curve in method.curves:
            axes.plot(range(len(curve)), [scale.place(value) for value in curve], color=colour, lw=0.5, alpha=0.45, zorder=3)
    for mean in _means(method.curves):
        axes.plot(range(len(mean)), [scale.place(value) for value in mean], zorder=4, clip_on=False, **method.stroke.look())


def _controls(methods: Sequence[Probed]) -> list[tuple[float, ...]]:
    """What probes read of each control that some of the networks were compared with."""
    controls = [report.control for method in methods for _, report in method.seeds if report.control is not None]
    return list({control.source: control.probes for control in controls if control.probes}.values())


def _means(curves: Sequence[tuple[float, ...]]) -> Iterator[list[float]]:
    """The mean over seeds, of each depth that there is."""
    for depth in sorted({len(curve) for curve in curves}):
        yield [average(values) for values in zip(*(curve for curve in curves if len(curve) == depth), strict=True)]


def _utilities(axes: Axes, seeds: Sequence[tuple[AuditRow, DiagnosticReport]], width: float) -> None:
    minima = sorted({report.thresholds.depth_utility_minimum_pp for _, report in seeds})
    values = [report.finding("e").value for _, report in seeds]
    ends = [end for _, report in seeds for end in report.depth_interval_pp or ()]
    scale = margin_scale([0.0, *minima, *values, *ends], TICK_LABEL)
    fired, answered = fired_counts([row for row, _ in seeds], "e")
    rule = f"(e) depth utility < {' or '.join(map(limit, minima))} pp: {f'{fired}/{answered}' if answered else 'not run'}"
    head(axes, rule, width, LABEL, bold=bool(fired))
    ruled(axes, scale, "x")
    axes.set_xlabel("pp" if scale.knee == float("inf") else "pp (asinh scale)")
    axes.axvline(scale.place(0), color=FAINT, lw=0.8, zorder=1)
    for minimum in minima:
        axes.axvline(scale.place(minimum), **RULE)
    for index, (row, report) in enumerate(seeds):
        mark, bounds = mark_of(row, "e"), report.depth_interval_pp
        if bounds is not None:
            axes.plot([scale.place(end) for end in bounds], [index] * 2, color=mark.colour, lw=0.9)
        axes.plot([scale.place(report.finding("e").value)], [index], **mark.look(0.8))
