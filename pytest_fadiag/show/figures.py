"""The figures of an audit for papers, by matplotlib: each is a grid of charts."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..files import write_atomically
from ..judge.diagnostics import available
from ..judge.errors import AuditError
from ..judge.words import grouped, one_line
from .audit import Audit
from .charts import (
    COLOURS,
    FIRED,
    Chart,
    Series,
    curves,
    drawable,
    findings,
    training,
)
from .hero import hero

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DASHES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 2, 1.5, 2)))
MARKERS = "osD^vPX*"
LOOKS: dict[str, dict[str, Any]] = {
    "network": {"lw": 1.0, "ms": 3.0},
    "null": {"lw": 0.9, "ls": ":", "color": "grey", "marker": "", "label": "re-initialised blocks"},
    "control": {"lw": 0.9, "ls": "-.", "color": "grey"},
    "limit": {"lw": 0.9, "ls": "--", "color": FIRED, "label": "threshold"},
}
BAND: dict[str, Any] = {"color": "grey", "alpha": 0.2, "lw": 0, "label": "null, 95 %"}
FAILS: dict[str, Any] = {"marker": "s", "ls": "", "ms": 6.5, "mfc": "none", "mec": FIRED}
FAILS |= {"label": "fails", "zorder": 4, "clip_on": False}
BP: dict[str, Any] = {"marker": "D", "ls": "", "ms": 6.5, "mfc": "none", "mec": "black"}
BP |= {"label": "BP's own", "zorder": 4, "clip_on": False}
NOT_METHODS = {look.get("label") for look in (*LOOKS.values(), BAND, FAILS, BP)}
"""What a legend names apart from methods."""
WIDE = 40.0
WIDE_TICKS = (-50, -15, -5, 0, 5, 15, 50)
"""The ticks of a wide range of pp."""
SIZES = ("font.size", "axes.titlesize", "axes.labelsize", "xtick.labelsize", "ytick.labelsize")
STYLE: dict[Any, Any] = {
    **dict.fromkeys((*SIZES, "legend.fontsize"), 8.0),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "pdf.fonttype": 42,
}
MOST_MARKERS = 20
MOST_CHARACTERS = 40
"""So many characters of names fit below a chart."""
NAME_DISTANCE = 0.13
"""Between the names of two limits, as a share of the height."""


def figures(audit: Audit, width: float = 7.0) -> dict[str, Figure]:
    """The figures that there are numbers for, ``width`` inches wide, with text of 8 pt.

    ``hero`` has what training the blocks adds to frozen ones, ``audit`` all diagnostics,
    ``rescue`` the curves over epochs; ``depth`` (e) and ``credit`` (f) have a panel per method.
    """
    rows = audit.measured
    overview = []
    panelled = {}
    for diagnostic in available():
        if diagnostic.draws_numbers:
            overview.append(findings(rows, diagnostic))
        elif not diagnostic.figure:
            overview.append(curves(rows, diagnostic))
        if diagnostic.figure:
            panelled[diagnostic.figure] = curves(rows, diagnostic)
    overview = drawable(overview)
    epochs = training(rows)
    by_name: dict[str, Figure] = {}
    for name, dark in (("hero", False), ("hero-dark", True)):
        if drawing := hero(rows, width, dark=dark):
            by_name[name] = drawing
    if overview:
        by_name["audit"] = figure(overview, width, 3)
    if epochs:
        by_name["rescue"] = figure(epochs, width, 3)
    for name, chart in panelled.items():
        if chart.series:
            by_name[name] = figure(_panels(chart), width, 4, chart)
    return by_name


def _panels(chart: Chart) -> list[Chart]:
    """The chart once for each method, with its series alone."""
    panels = []
    for method, series in grouped((series.name, series) for series in chart.series).items():
        panels.append(replace(chart, title=method, key="", series=tuple(series)))
    return panels


def figure(
    charts: Sequence[Chart], width: float, across: int, parent: Chart | None = None
) -> Figure:
    """One figure; panels of single methods share the scale and title of their parent."""
    import matplotlib
    from matplotlib.figure import Figure

    across = min(len(charts), across)
    down = math.ceil(len(charts) / across)
    with matplotlib.rc_context(STYLE):
        drawing = Figure(layout="constrained")
        panels = list(drawing.subplots(down, across, squeeze=False).flat)
        for axes in panels[len(charts) :]:
            axes.set_axis_off()
        for chart, axes, letter in zip(charts, panels, ascii_uppercase, strict=False):
            _frame(chart, axes, (parent or chart).span, letter)
            _draw(chart, axes)
        if parent is not None:
            drawing.supylabel(_label(parent.heading), fontsize=8.0)
        legend = _legend(panels, with_methods=parent is None)
        columns = max(1, int(width / 1.35))
        drawing.legend(
            [*legend.values()],
            [*legend],
            loc="outside upper left",
            ncols=columns,
            frameon=False,
        )
        height = 0.4 * width
        if across > 1:
            height = down * (0.4 + 0.58 * width / across)
        if charts[0].x == "part":  # whose names are turned
            height += 0.08 * down * max(map(len, charts[0].ticks))
        drawing.set_size_inches(width, height + 0.17 * math.ceil(len(legend) / columns) + 0.1)
    return drawing


def _legend(panels: Sequence[Axes], with_methods: bool) -> dict[str, Any]:
    """The handle of each name in the panels: the methods first."""
    methods: dict[str, Any] = {}
    marks: dict[str, Any] = {}
    for axes in panels:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            if name in NOT_METHODS:
                marks.setdefault(name, handle)
            elif with_methods:
                methods.setdefault(name, handle)
    return methods | marks


def _frame(chart: Chart, axes: Axes, span: tuple[float, float], letter: str) -> None:
    """Title, scales and ticks of one chart; pp of a wide range are linear near 0 alone."""
    low, high = span
    bold = letter
    if chart.key:
        bold = f"({chart.key})"
    axes.set_title(rf"$\bf{{{bold}}}$ {_label(chart.title)}", loc="left")
    axes.set_xlabel(_label(chart.x))
    if chart.log:
        axes.set_yscale("log")
    elif chart.ticks and high - low > WIDE:
        low *= 1.2
        high *= 1.2
        axes.set_yscale("symlog", linthresh=5.0)
        axes.set_xlabel(f"{_label(chart.x)} log beyond ±5".strip())
        ticks = {}
        for value in WIDE_TICKS:
            if low < value < high:
                ticks[value] = f"{value}".replace("-", "−")
        axes.set_yticks(list(ticks), list(ticks.values()))
        axes.minorticks_off()
    axes.set_ylim(low, high)
    axes.grid(axis="y", lw=0.4, alpha=0.4)
    if chart.ticks:
        names = [_label(name[:20]) for name in chart.ticks]
        turn = 90 if chart.x == "part" else 0
        if sum(map(len, chart.ticks)) > MOST_CHARACTERS and not turn:
            names = []
        axes.set_xticks(range(len(names)), names, rotation=turn)
        axes.set_xlim(-0.5, len(chart.ticks) - 0.5)
    elif chart.x in ("epoch", "layer l"):
        axes.locator_params(axis="x", integer=True)


def _draw(chart: Chart, axes: Axes) -> None:
    """Series and limits, whose names stand beside the chart."""
    for series in chart.series:
        _draw_series(series, chart, axes)
    lowest = -1.0
    for limit in sorted(chart.limits, key=lambda limit: limit.ys[-1]):
        look = LOOKS[limit.role]
        if limit.xs:
            axes.plot(limit.xs, limit.ys, **look)
        else:
            axes.axhline(limit.ys[0], **look)
        height = (axes.transData - axes.transAxes).transform((0, limit.ys[-1]))[1]
        lowest = max(height, lowest + NAME_DISTANCE)
        name = _label(re.sub("^(threshold|floor) ", "", limit.name))
        axes.text(1.02, lowest, name, va="center", color=look["color"], transform=axes.transAxes)


def _draw_series(series: Series, chart: Chart, axes: Axes) -> None:
    """A line with its marks and intervals; a number beyond the axis is a cross at its edge."""
    look = {**_stroke(series.colour), "label": _label(series.name), **LOOKS[series.role]}
    look["markevery"] = 1 + len(series.xs) // MOST_MARKERS * 4
    finite = [math.nan if chart.is_odd(y) else y for y in series.ys]
    axes.plot(series.xs, finite, **look)
    bottom, top = axes.get_ylim()
    for index, (x, y) in enumerate(zip(series.xs, series.ys, strict=True)):
        if chart.is_odd(y):
            axes.plot([x], [top if y > 1 else bottom], "x", color=FIRED, clip_on=False)
        elif index in series.fired:
            axes.plot([x], [y], **FAILS)
        if index in series.bp:
            axes.plot([x], [y], **BP)
    if series.low and len(series.xs) > 1 and not chart.ticks:
        axes.fill_between(series.xs, series.low, series.high, **BAND)
    elif series.low:
        axes.vlines(series.xs, series.low, series.high, color=look["color"], lw=1.6, alpha=0.4)


def write_figures(audit: Audit, folder: Path, width: float = 7.0) -> None:
    """Every figure that there are numbers for, as PNG and PDF; the same audit, the same bytes."""
    import matplotlib

    by_name = figures(audit, width)
    if not by_name:
        raise AuditError("no figures: nothing was measured")
    for name, drawing in by_name.items():
        for kind in ("png", "pdf"):
            content = io.BytesIO()
            with matplotlib.rc_context(STYLE):
                drawing.savefig(content, format=kind, dpi=200, metadata={"CreationDate": None})
            drawing.set_layout_engine("none")  # it has its place now
            write_atomically(folder / f"{name}.{kind}", content.getvalue())


def _stroke(number: int) -> dict[str, Any]:
    """The colour, dashes and marker of a method, the same in all figures of an audit."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "ls": DASHES[number % len(DASHES)],
        "marker": MARKERS[number % len(MARKERS)],
    }


def _label(text: str) -> str:
    """A name as matplotlib shows it: symbols as mathematics, what a name holds as it is."""
    label = one_line(text).replace("$", r"\$")
    label = re.sub(r"‖([a-z])(?:_([a-zA-Z0-9]))?‖", r"$\\Vert \1_{\2}\\Vert$", label)
    label = re.sub(r"([ΓΔ])", r"$\1$", label).replace("layer l", r"layer $\ell$")
    return label.replace("_{l}", r"_{\ell}")
