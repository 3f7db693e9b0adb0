"""The figures of an audit for papers, by matplotlib: each is a grid of charts."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

import msgspec

from ..files import write_atomically
from ..judge.diagnostics import DIAGNOSTICS
from ..judge.errors import AuditError
from ..judge.words import grouped, one_line
from .audit import Audit
from .charts import (
    COLOURS,
    FIRED,
    Chart,
    against_score,
    curves,
    findings,
    trained_and_frozen,
    training,
)

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
SAID = {look.get("label") for look in (*LOOKS.values(), BAND, FAILS)}
"""What a legend names apart from methods."""
PLAIN = (-50, -15, -5, 0, 5, 15, 50)
"""The ticks of a wide range of pp."""
SIZES = ("font.size", "axes.titlesize", "axes.labelsize", "xtick.labelsize", "ytick.labelsize")
STYLE: dict[Any, Any] = {
    **dict.fromkeys((*SIZES, "legend.fontsize"), 8.0),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "pdf.fonttype": 42,
}
MOST_MARKERS = 20
WIDE = 40.0


def figures(audit: Audit, width: float = 7.0) -> dict[str, Figure]:
    """The figures that there are numbers for, ``width`` inches wide, with text of 8 pt.

    ``hero`` has Γ against accuracy and the score with frozen blocks, ``audit`` all diagnostics,
    ``rescue`` the curves over epochs; ``depth`` (e) and ``credit`` (f) have a panel per method.
    """
    rows = [row for row in audit.rows if row.report is not None]
    hero = [against_score(rows), trained_and_frozen(rows)]
    overview = []
    panels = {}
    for diagnostic in DIAGNOSTICS:
        if diagnostic.draws_numbers:
            overview.append(findings(rows, diagnostic))
        elif not diagnostic.figure:
            overview.append(curves(rows, diagnostic))
        if diagnostic.figure:
            panels[diagnostic.figure] = curves(rows, diagnostic)
    grids = {
        "hero": (2, hero if all(chart.series for chart in hero) else []),
        "audit": (3, [chart for chart in overview if chart.series]),
        "rescue": (3, training(rows)),
    }
    drawn = {n: figure(charts, width, across) for n, (across, charts) in grids.items() if charts}
    for name, whole in panels.items():
        methods = grouped((one.name, one) for one in whole.series)
        parts = [
            msgspec.structs.replace(whole, title=method, key="", series=tuple(own))
            for method, own in methods.items()
        ]
        if parts:
            drawn[name] = figure(parts, width, 4, whole)
    return drawn


def figure(
    charts: Sequence[Chart], width: float, across: int, whole: Chart | None = None
) -> Figure:
    """One figure; panels of single methods show parts of one whole chart."""
    import matplotlib
    from matplotlib.figure import Figure

    across = min(len(charts), across)
    down = math.ceil(len(charts) / across)
    legend: dict[str, Any] = {}
    with matplotlib.rc_context(STYLE):
        drawn = Figure(layout="constrained")
        places = list(drawn.subplots(down, across, squeeze=False).flat)
        for place in places[len(charts) :]:
            place.set_axis_off()
        for chart, place, letter in zip(charts, places, ascii_uppercase, strict=False):
            _frame(chart, place, (whole or chart).span, letter)
            _draw(chart, place)
            for handle, name in zip(*place.get_legend_handles_labels(), strict=True):
                legend.setdefault(name, handle)
        shown = sorted(legend, key=lambda name: name in SAID)  # methods first
        if whole:
            drawn.supylabel(_label(whole.heading), fontsize=8.0)
            shown = [name for name in shown if name in SAID]
        columns = max(1, int(width / 1.35))
        handles = [legend[name] for name in shown]
        drawn.legend(handles, shown, loc="outside upper left", ncols=columns, frameon=False)
        height = down * (0.4 + 0.58 * width / across) if across > 1 else 0.4 * width
        drawn.set_size_inches(width, height + 0.17 * math.ceil(len(shown) / columns) + 0.1)
    return drawn


def _frame(chart: Chart, axes: Axes, span: tuple[float, float], letter: str) -> None:
    """Title, scales and ticks of one chart; pp of a wide range are linear near 0 alone."""
    low, high = span
    bold = f"({chart.key})" if chart.key else letter
    axes.set_title(rf"$\bf{{{bold}}}$ {_label(chart.title)}", loc="left")
    axes.set_xlabel(_label(chart.x))
    if chart.log:
        axes.set_yscale("log")
    elif chart.ticks and high - low > WIDE:
        low, high = 1.2 * low, 1.2 * high
        axes.set_yscale("symlog", linthresh=5.0)
        near = [value for value in PLAIN if low < value < high]
        axes.set_yticks(near, [f"{value}".replace("-", "−") for value in near])
        axes.minorticks_off()
    axes.set_ylim(low, high)
    axes.grid(axis="y", lw=0.4, alpha=0.4)
    if chart.ticks:
        many = sum(map(len, chart.ticks)) > 40
        names = [] if many else [_label(name[:20]) for name in chart.ticks]
        axes.set_xticks([] if many else range(len(names)), names)
        axes.set_xlim(-0.5, len(chart.ticks) - 0.5)
    elif chart.x in ("epoch", "layer l"):
        axes.locator_params(axis="x", integer=True)


def _draw(chart: Chart, axes: Axes) -> None:
    """Series and limits; what the axis has no place for is a cross at its edge."""
    for one in chart.series:
        look = {**_stroke(one.colour), "label": _label(one.name), **LOOKS[one.role]}
        look["markevery"] = 1 + len(one.xs) // MOST_MARKERS * 4
        finite = [math.nan if chart.is_odd(y) else y for y in one.ys]
        axes.plot(one.xs, finite, **look)
        for index, (x, y) in enumerate(zip(one.xs, one.ys, strict=True)):
            if chart.is_odd(y):
                axes.plot([x], [axes.get_ylim()[y > 1]], "x", color=FIRED, clip_on=False)
            elif index in one.fired:
                axes.plot([x], [y], **FAILS)
        if one.low and len(one.xs) > 1:
            axes.fill_between(one.xs, one.low, one.high, **BAND)
        elif one.low:
            axes.vlines(one.xs, one.low, one.high, color=look["color"], lw=1.6, alpha=0.4)
    lowest = -1.0
    for one in sorted(chart.limits, key=lambda one: one.ys[-1]):
        look = LOOKS[one.role]
        if one.xs:
            axes.plot(one.xs, one.ys, **look)
        else:
            axes.axhline(*one.ys, **look)
        at = (axes.transData - axes.transAxes).transform((0, one.ys[-1]))[1]
        lowest = max(at, lowest + 0.13)  # names of close levels keep their distance
        name = _label(re.sub("^(threshold|floor) ", "", one.name))
        axes.text(1.02, lowest, name, va="center", color=look["color"], transform=axes.transAxes)


def write_figures(audit: Audit, folder: Path, width: float = 7.0) -> None:
    """Every figure that there are numbers for, as PNG and PDF; the same audit, the same bytes."""
    found = figures(audit, width)
    if not found:
        raise AuditError("no figures: nothing was measured")
    for name, drawn in found.items():
        for kind in ("png", "pdf"):
            content = io.BytesIO()
            drawn.savefig(content, format=kind, dpi=200, metadata={"CreationDate": None})
            drawn.set_layout_engine("none")  # it has its place now
            write_atomically(folder / f"{name}.{kind}", content.getvalue())


def _stroke(number: int) -> dict[str, Any]:
    """The colour, dashes and marker of a method, the same in all figures of an audit."""
    looks = {"color": COLOURS, "ls": DASHES, "marker": MARKERS}
    return {name: held[number % len(held)] for name, held in looks.items()}


def _label(text: str) -> str:
    """A name as matplotlib shows it: symbols as mathematics, what a name holds as it is."""
    shown = one_line(text).replace("$", r"\$")
    shown = re.sub(r"‖([a-z])(?:_([a-zA-Z0-9]))?‖", r"$\\Vert \1_{\2}\\Vert$", shown)
    shown = re.sub(r"([ΓΔ])", r"$\1$", shown).replace("layer l", r"layer $\ell$")
    return shown.replace("_{l}", r"_{\ell}")
