"""The figures of an audit for papers, by matplotlib: each is a grid of charts."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import write_atomically
from ..judge.diagnostics import DIAGNOSTICS
from ..judge.errors import AuditError
from ..judge.words import one_line
from .audit import Audit, Row
from .charts import (
    COLOURS,
    FIRED,
    Chart,
    findings,
    gamma,
    gradients,
    norms,
    nudge,
    probes,
    training,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DASHES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 2, 1.5, 2)))
LOOKS: dict[str, dict[str, Any]] = {
    "network": {"lw": 1.2, "marker": "o", "ms": 2.5},
    "null": {"lw": 0.9, "ls": ":"},
    "control": {"lw": 0.9, "ls": "--", "alpha": 0.6},
    "limit": {"lw": 0.9, "ls": "--", "color": FIRED},
}
METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""What would make two files of the same figure differ."""
STYLE: dict[Any, Any] = {
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
MOST_MARKERS = 20
PANEL, LARGE_PANEL = (2.4, 1.7), (3.4, 2.6)
"""Inches of one chart, in a figure with a row per method and in others."""


def figures(audit: Audit) -> dict[str, Figure]:
    """The figures that there are numbers for.

    ``audit`` has (a) to (d) with one row per method, ``rescue`` the curves over epochs,
    ``depth`` (e), ``credit`` (f).
    """
    rows, methods = [row for row in audit.rows if row.report is not None], dict[str, list[Row]]()
    for row in rows:
        methods.setdefault(row.method, []).append(row)
    drift, margin, depth = (next(d for d in DIAGNOSTICS if d.key == key) for key in "cde")
    audited = [
        [norms(own), gradients(own), findings(own, drift), findings(own, margin)]
        for own in methods.values()
    ]
    curves = training(rows)
    grids = {
        "rescue": [curves[:2], curves[2:]] if len(curves) > 2 else [curves],
        "depth": [[probes(rows), findings(rows, depth)]],
        "credit": [[gamma(rows), nudge(rows)]],
    }
    drawn = {"audit": figure(audited, list(methods))} if methods else {}
    return drawn | {
        name: figure(grid) for name, grid in grids.items() if any(c.series for c in grid[0])
    }


def figure(grid: Sequence[Sequence[Chart]], names: Sequence[str] = ()) -> Figure:
    """One figure: charts in rows, which have names or the methods are in a legend above them."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    across = max(map(len, grid))
    width, height = PANEL if names else LARGE_PANEL
    with matplotlib.rc_context(STYLE):
        drawn = Figure(figsize=(width * across, height * len(grid) + 0.6), layout="constrained")
        axes = drawn.subplots(len(grid), across, squeeze=False)
        for number, (line, places) in enumerate(zip(grid, axes, strict=True)):
            for column, (chart, place) in enumerate(zip(line, places, strict=False)):
                column_charts = (
                    [other[column] for other in grid] if names and chart.log else [chart]
                )
                spans = [other.span for other in column_charts]
                draw(chart, place, (min(low for low, _ in spans), max(high for _, high in spans)))
            if names:
                places[0].set_ylabel(_label(names[number]), fontweight="bold")
            for place in places[len(line) :]:
                place.set_axis_off()
        charts = [chart for line in grid for chart in line]
        everything = [one for chart in charts for one in (*chart.series, *chart.limits)]
        methods = {one.name: one.colour for one in everything if one.role == "network"}
        samples = {_label(name): _stroke(colour) for name, colour in methods.items() if not names}
        roles = {one.role for one in everything}
        said = {"null": "re-initialised blocks", "control": "control", "limit": "threshold"}
        samples |= {said[role]: {"color": "grey", **LOOKS[role]} for role in said if role in roles}
        if any(one.fired for one in everything):
            samples["fails"] = {"marker": "s", "color": FIRED, "ls": "", "ms": 4}
        handles = [Line2D([], [], **look) for look in samples.values()]
        columns = min(len(samples), 2 * across)
        drawn.legend(handles, list(samples), loc="outside upper left", ncols=columns, frameon=False)
    return drawn


def draw(chart: Chart, axes: Axes, span: tuple[float, float]) -> None:
    """One chart on its axes; what the axis has no place for is a cross at its edge."""
    low, high = span
    axes.set_title(_label(chart.title), loc="left")
    axes.set_xlabel(_label(chart.x))
    if chart.log:
        axes.set_yscale("log")
    axes.set_ylim(low, high)
    axes.grid(axis="y", lw=0.4, alpha=0.4)
    if chart.ticks:
        turned = sum(map(len, chart.ticks)) > 24
        axes.set_xticks(range(len(chart.ticks)), [_label(name[:20]) for name in chart.ticks])
        for name in axes.get_xticklabels():
            name.set(
                rotation=30 * turned, ha="right" if turned else "center", rotation_mode="anchor"
            )
        axes.set_xlim(-0.5, len(chart.ticks) - 0.5)
    else:
        axes.locator_params(axis="x", integer=True)
    for one in (*chart.limits, *chart.series):
        look = {**_stroke(one.colour), **LOOKS[one.role]}
        if len(one.xs) > MOST_MARKERS:
            look["marker"] = ""
        known = [
            (n, x, y) for n, (x, y) in enumerate(zip(one.xs, one.ys, strict=True)) if y is not None
        ]
        finite = [math.nan if y is None or chart.is_odd(y) else y for y in one.ys]
        axes.plot(one.xs, finite, **look if one.line else look | {"ls": ""})
        for index, x, y in known:
            if chart.is_odd(y):
                edge = high if y > 1 else low
                axes.plot([x], [edge], "x", color=FIRED, clip_on=False)
            elif index in one.fired:
                axes.plot([x], [y], "s", color=FIRED, ms=4, zorder=4)
        if one.role == "limit" and known:
            _, x, y = known[-1]
            axes.text(x, y, _label(one.name), fontsize=6, ha="right", va="bottom", color=FIRED)
        if one.low:
            axes.vlines(one.xs, one.low, one.high, color=look["color"], lw=1.6, alpha=0.4)


def write_figures(audit: Audit, folder: Path) -> list[str]:
    """Every figure that there are numbers for, as PNG and PDF; the same audit, the same bytes."""
    found = figures(audit)
    if not found:
        raise AuditError("no figures: nothing was measured")
    folder.mkdir(parents=True, exist_ok=True)
    for name, drawn in found.items():
        for kind, metadata in METADATA.items():
            content = io.BytesIO()
            drawn.savefig(content, format=kind, dpi=200, metadata=metadata)
            drawn.set_layout_engine("none")  # it has its place now
            write_atomically(folder / f"{name}.{kind}", content.getvalue())
    return []


def _stroke(colour: int) -> dict[str, Any]:
    return {"color": COLOURS[colour % len(COLOURS)], "ls": DASHES[colour % len(DASHES)]}


def _label(text: str) -> str:
    """A name as matplotlib shows it: no mathematics, and not left out for a leading underscore."""
    shown = one_line(text).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown
