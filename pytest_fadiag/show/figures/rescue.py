"""The rescue figure: norms and accuracy over training, for runs that are to be compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ...judge.report import DiagnosticReport
from ...judge.trajectory import Series, Trajectory
from ...judge.wording import fraction, limit
from ..audit import Audit
from ..groups import MethodGroup, average, seed_groups
from ..share import REFERENCE
from . import style
from .scales import Scale, linear_scale, log_scale, whole_scale
from .style import GREY, INK, LABEL, RULE, TICK, Key, Stroke, fitted, head, panel, ruled

# Inches.
LEFT, BETWEEN, HEIGHT = 0.42, 0.5, 1.7
HEAD, FOOT = 0.24, 0.33
LEADER, WIDEST = 0.1, 1.45
"""Beside the last panel: the names of the lines that run straight through it, as wide as they need, up to a limit."""


class Quantity(NamedTuple):
    """What one panel shows."""

    title: str
    series: Callable[[Trajectory], Series]
    logarithmic: bool


QUANTITIES = (
    Quantity("‖h_L‖", lambda trajectory: trajectory.residual_norm, True),
    Quantity("‖g_L‖", lambda trajectory: trajectory.gradient_norm, True),
    Quantity("accuracy", lambda trajectory: trajectory.accuracy, False),
)


@dataclass(frozen=True)
class Run:
    """A method with the epochs of its seeds, and how its line looks."""

    label: str
    reports: tuple[DiagnosticReport, ...]
    stroke: Stroke

    @property
    def trajectories(self) -> list[Trajectory]:
        """The epochs of each seed."""
        return [report.trajectory for report in self.reports if report.trajectory is not None]


class Level(NamedTuple):
    """An accuracy that the runs are held against."""

    name: str
    accuracy: float
    dashes: tuple[float, tuple[float, ...]]


def rescue_pages(audit: Audit) -> list[Figure]:
    """One figure for every eight methods: more lines than that cannot be told apart."""
    groups = seed_groups(audit)
    traced = [(group, reports) for group in groups if (reports := _traced(group))]
    most = len(style.STROKES)
    pages = []
    for start in range(0, len(traced), most):
        names = [group.name for group, _ in traced[start : start + most]]
        runs = [
            Run(name if names.count(name) == 1 else group.label, tuple(reports), stroke)
            for name, (group, reports), stroke in zip(names, traced[start : start + most], style.STROKES, strict=False)
        ]
        pages.append(_page(runs, _levels(runs, groups)))
    return pages


def _traced(group: MethodGroup) -> list[DiagnosticReport]:
    return [report for report in group.reports if report.trajectory is not None]


def _page(runs: Sequence[Run], levels: Sequence[Level]) -> Figure:
    floors = sorted({report.thresholds.g_norm_floor for run in runs for report in run.reports})
    key = _key(runs, floors)
    top = key.height + HEAD
    figure = style.new_figure(top + HEIGHT + FOOT)
    key.draw(figure)
    epochs = [epoch for run in runs for trajectory in run.trajectories for epoch in trajectory.epochs]
    across = whole_scale(max(epochs), first=min(epochs))
    names = [_level_name(level) for level in levels]
    beside = max((LEADER + style.measured(name, TICK) for name in names), default=0.0)
    width = (style.WIDTH - LEFT - 2 * BETWEEN - beside - 0.08) / 3
    for number, quantity in enumerate(QUANTITIES):
        values = [value for run in runs for trajectory in run.trajectories for value in quantity.series(trajectory)]
        axes = panel(figure, LEFT + number * (width + BETWEEN), top, width, HEIGHT)
        head(axes, quantity.title, width, LABEL)
        ruled(axes, across, "x")
        axes.set_xlabel("epoch")
        if quantity.title == "‖g_L‖":
            drawn = [floor for floor in floors if 0 < floor < math.inf]
            scale = log_scale([*values, *drawn], 6)
            for floor in drawn:
                axes.axhline(scale.place(floor), **RULE)
        elif quantity.logarithmic:
            scale = log_scale(values, 6)
        else:
            scale = linear_scale([*values, *(level.accuracy for level in levels)], 7, 0.05)
            _draw_levels(axes, levels, scale, width)
        ruled(axes, scale, "y")
        for run in runs:
            _draw_run(axes, run, quantity, scale)
    return figure


def _key(runs: Sequence[Run], floors: Sequence[float]) -> Key:
    samples = [Line2D([], [], label=fitted(run.label, 2.0, TICK) + _proxy(run), **run.stroke.look()) for run in runs]
    samples += [Line2D([], [], label=f"floor {' or '.join(map(limit, floors))}", **RULE)] if floors else []
    several = any(len(run.reports) > 1 for run in runs)
    return Key([*samples, *([Line2D([], [], color=GREY, lw=0.5, label="thin: a seed; bold: their mean")] if several else [])])


def _proxy(run: Run) -> str:
    """The layer of the gradient, where it is not the last one."""
    layers = set()
    for report, trajectory in zip(run.reports, run.trajectories, strict=True):
        if trajectory.gradient_layer not in (None, len(report.bp_grad_norms) - 1):
            layers.add(f"‖g_{trajectory.gradient_layer}‖")
    return f" ({', '.join(sorted(layers))} for ‖g_L‖)" if layers else ""


def _draw_run(axes: Axes, run: Run, quantity: Quantity, scale: Scale) -> None:
    stroke, trajectories = run.stroke, run.trajectories
    if len(trajectories) > 1:
        for trajectory in trajectories:
            places = [scale.place(value) for value in quantity.series(trajectory)]
            axes.plot(trajectory.epochs, places, color=stroke.colour, lw=0.5, alpha=0.45, zorder=3)
    epochs, places = _mean(trajectories, quantity, scale)
    every = max(1, len(epochs) // 6)
    offset = style.STROKES.index(stroke) % every  # where lines coincide, their symbols do not
    axes.plot(epochs, places, markevery=(offset, every), zorder=4, clip_on=False, **stroke.look())


def _mean(trajectories: Sequence[Trajectory], quantity: Quantity, scale: Scale) -> tuple[list[int], list[float]]:
    """The mean, as the table has it, at the epochs that every seed has: one that stopped early would make the line jump."""
    columns = [dict(zip(trajectory.epochs, quantity.series(trajectory), strict=True)) for trajectory in trajectories]
    epochs = sorted(set(columns[0]).intersection(*columns[1:]))
    means = []
    for epoch in epochs:
        values = [value for column in columns if (value := column[epoch]) is not None]
        means.append(scale.place(average(values)) if len(values) == len(columns) else math.nan)
    return epochs, means


def _levels(runs: Sequence[Run], groups: Sequence[MethodGroup]) -> list[Level]:
    """The mean control of each run, together where it is the same, and the mean of BP where it is not a run itself."""
    controls: dict[float, list[str]] = {}
    several = False
    for run in runs:
        own = [report.frozen_baseline_acc for report in run.reports if report.frozen_baseline_acc is not None]
        if own:
            # Whose it is counts, not which runs are compared with it.
            whose = [report.control.method for report in run.reports if report.control and report.control.method]
            controls.setdefault(round(average(own), 4), []).extend(whose)
            several = several or len(set(own)) > 1
    unknown = "control, mean" if several else "control"
    levels = [
        # Beside the panel there is room for the methods or for the word; the legend says that bold lines are means.
        Level(f"control of {', '.join(dict.fromkeys(names))}" if names else unknown, accuracy, (0, (1, 1.5)))
        for accuracy, names in controls.items()
    ]
    if any(run.label.lower() == REFERENCE for run in runs):
        return levels
    accuracies = [
        report.headline_acc
        for group in groups
        if group.method.lower() == REFERENCE
        for report in group.reports
        if report.headline_acc is not None
    ]
    name = "BP, mean" if len(set(accuracies)) > 1 else "BP"
    return [*levels, Level(name, average(accuracies), (0, (6, 2)))] if accuracies else levels


def _draw_levels(axes: Axes, levels: Sequence[Level], scale: Scale, width: float) -> None:
    """Lines straight through, each with its name beside the panel; names keep their distance."""
    low, high = scale.limits
    line = (high - low) * (TICK + 2.5) / 72 / HEIGHT
    ranked = sorted(levels, key=lambda level: level.accuracy)
    places = _apart([level.accuracy for level in ranked], line, low + line / 2, high - line / 2)
    leader = {"arrowstyle": "-", "lw": 0.4, "color": GREY, "patchA": None, "shrinkA": 1, "shrinkB": 0, "relpos": (0, 0.5)}
    for level, place in zip(ranked, places, strict=True):
        axes.axhline(level.accuracy, color=INK, linestyle=level.dashes, lw=0.8, zorder=2)
        axes.annotate(
            _level_name(level),
            (1.0, level.accuracy),
            (1 + 0.8 * LEADER / width, place),
            xycoords=axes.get_yaxis_transform(),
            textcoords=axes.get_yaxis_transform(),
            fontsize=TICK,
            verticalalignment="center",
            arrowprops=leader,
        )


def _level_name(level: Level) -> str:
    number = f" {fraction(level.accuracy)}"
    return fitted(level.name, WIDEST - LEADER - style.measured(number, TICK), TICK) + number


def _apart(places: Sequence[float], distance: float, low: float, high: float) -> list[float]:
    """The places, in rising order, moved until neighbours keep their distance and all lie between the ends."""
    moved: list[float] = []
    for place in places:
        moved.append(max(place, moved[-1] + distance if moved else low))
    over = high
    for index in range(len(moved) - 1, -1, -1):
        moved[index] = min(moved[index], over)
        over = moved[index] - distance
    return moved
