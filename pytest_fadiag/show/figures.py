"""The figures of an audit for papers, by matplotlib: each is a grid of charts."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..files import write_atomically
from ..judge.diagnostics import DIAGNOSTICS
from ..judge.errors import AuditError
from ..judge.words import grouped, one_line
from .audit import Audit, Row
from .charts import (
    COLOURS,
    FIRED,
    Chart,
    against_score,
    findings,
    gamma,
    gradients,
    norms,
    probes,
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
    "null": {"lw": 0.9, "ls": ":", "marker": ""},
    "control": {"lw": 0.9, "ls": "-.", "color": "grey", "marker": ""},
    "limit": {"lw": 0.9, "ls": "--", "color": FIRED, "marker": ""},
}
FAILS: dict[str, Any] = {"marker": "s", "ls": "", "ms": 6.5, "mfc": "none", "mec": FIRED}
PLAIN = (-50, -15, -5, 0, 5, 15, 50)
"""The ticks of a wide range of pp."""
METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""What would make two files of the same figure differ."""
SIZES = ("font.size", "axes.titlesize", "axes.labelsize", "xtick.labelsize", "ytick.labelsize")
STYLE: dict[Any, Any] = {
    **dict.fromkeys((*SIZES, "legend.fontsize"), 8.0),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "pdf.fonttype": 42,
}
MOST_MARKERS = 20
WIDE = 40.0
"""From this range on, pp are drawn on a scale that is linear near 0 alone."""


def figures(audit: Audit, width: float = 7.0) -> dict[str, Figure]:
    """The figures that there are numbers for, ``width`` inches wide, with text of 8 pt.

    ``hero`` has Γ against accuracy and the score with frozen blocks, ``audit`` all diagnostics,
    ``rescue`` the curves over epochs; ``depth`` (e) and ``credit`` (f) have a panel per method.
    """
    rows = [row for row in audit.rows if row.report is not None]
    methods = grouped((one_line(row.method), row) for row in rows)
    numbers = [findings(rows, own) for own in DIAGNOSTICS if own.key in "cdeg"]

    def panels(draw: Callable[[Sequence[Row]], Chart]) -> list[Chart]:
        return [
            msgspec.structs.replace(draw(own), title=name)
            for name, own in methods.items()
            if draw(own).series
        ]

    hero = [against_score(rows), trained_and_frozen(rows)]
    grids: dict[str, tuple[int, list[Chart], str]] = {
        "hero": (2, hero if all(chart.series for chart in hero) else [], ""),
        "audit": (3, [c for c in (norms(rows), gradients(rows), *numbers) if c.series], ""),
        "rescue": (3, training(rows)[:3], ""),
        "depth": (4, panels(probes), probes(rows).title),
        "credit": (4, panels(gamma), gamma(rows).title),
    }
    return {
        name: figure(charts, list(methods), width, across, said)
        for name, (across, charts, said) in grids.items()
        if charts
    }


def figure(
    charts: Sequence[Chart], methods: Sequence[str], width: float, across: int, said: str = ""
) -> Figure:
    """One figure; where its panels are methods, ``said`` is what all of them show."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    down = math.ceil(len(charts) / across)
    across = min(len(charts), across)
    everything = [one for chart in charts for one in (*chart.series, *chart.limits)]
    own = [n for n in methods if not said and any(one.name == n for one in everything)]
    samples = {_label(n): _stroke(methods.index(n)) | {"lw": 1.0, "ms": 3.0} for n in own}
    shown = {"null": "re-initialised blocks", "limit": "threshold"}
    roles = {one.role for one in everything}
    samples |= {shown[role]: {"color": "grey", **LOOKS[role]} for role in shown if role in roles}
    if any(one.low and one.line for one in everything):
        samples["null, 95 %"] = {"color": "grey", "lw": 5, "alpha": 0.3}
    if any(one.fired for one in everything):
        samples["fails"] = FAILS
    columns = max(1, int(width / 1.35))
    lines = math.ceil(len(samples) / columns)
    height = down * (0.4 + 0.58 * width / across) if across > 1 else 0.4 * width
    with matplotlib.rc_context(STYLE):
        drawn = Figure(figsize=(width, height + 0.17 * lines + 0.1), layout="constrained")
        places = list(drawn.subplots(down, across, squeeze=False).flat)
        spans = [chart.span for chart in charts]
        for at, (chart, place) in enumerate(zip(charts, places, strict=False)):
            both = (min(low for low, _ in spans), max(high for _, high in spans))
            _draw(chart, place, both if said else spans[at], methods, chr(ord("A") + at))
        for place in places[len(charts) :]:
            place.set_axis_off()
        if said:
            drawn.supylabel(_label(said), fontsize=8.0)
        handles = [Line2D([], [], **look) for look in samples.values()]
        drawn.legend(handles, list(samples), loc="outside upper left", ncols=columns, frameon=False)
    return drawn


def _draw(
    chart: Chart, axes: Axes, span: tuple[float, float], methods: Sequence[str], letter: str
) -> None:
    """One chart on its axes; what the axis has no place for is a cross at its edge."""
    low, high = span
    found = re.fullmatch(r"\((\w)\) (.*)", chart.title)
    own, title = found.groups() if found else (letter, chart.title)
    axes.set_title(rf"$\bf{{{f'({own})' if found else own}}}$ {_label(title)}", loc="left")
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
    labels: list[tuple[float, str, str]] = []
    for one in (*chart.limits, *chart.series):
        look = {**_stroke(methods.index(one.name) if one.name in methods else 0), **LOOKS[one.role]}
        look["markevery"] = 1 + len(one.xs) // MOST_MARKERS * 4
        known = [
            (n, x, y) for n, (x, y) in enumerate(zip(one.xs, one.ys, strict=True)) if y is not None
        ]
        finite = [math.nan if y is None or chart.is_odd(y) else y for y in one.ys]
        axes.plot(one.xs, finite, **look if one.line else look | {"ls": ""})
        for index, x, y in known:
            if chart.is_odd(y):
                axes.plot([x], [high if y > 1 else low], "x", color=FIRED, clip_on=False)
            elif index in one.fired:
                axes.plot([x], [y], zorder=4, clip_on=False, **FAILS)
        if one in chart.limits and known:
            at = axes.transAxes.inverted().transform(axes.transData.transform(known[-1][1:]))[1]
            name = re.sub("^(threshold|floor|ceiling) ", "", one.name)
            labels.append((at, _label(name), look["color"]))
        if one.low and one.line:
            axes.fill_between(one.xs, one.low, one.high, color=look["color"], alpha=0.15, lw=0)
        elif one.low:
            axes.vlines(one.xs, one.low, one.high, color=look["color"], lw=1.6, alpha=0.4)
    lowest = -1.0
    for at, name, colour in sorted(labels):
        lowest = max(at, lowest + 0.13)  # names of close levels keep their distance
        axes.text(1.02, lowest, name, va="center", color=colour, transform=axes.transAxes)


def write_figures(audit: Audit, folder: Path, width: float = 7.0) -> list[str]:
    """Every figure that there are numbers for, as PNG and PDF; the same audit, the same bytes."""
    found = figures(audit, width)
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


def _stroke(number: int) -> dict[str, Any]:
    """The colour, dashes and marker of a method, the same in all figures of an audit."""
    looks = {"color": COLOURS, "ls": DASHES, "marker": MARKERS}
    return {name: held[number % len(held)] for name, held in looks.items()}


def _label(text: str) -> str:
    """A name as matplotlib shows it: symbols as mathematics, what a name holds as it is."""
    shown = one_line(text).replace("$", r"\$")
    shown = re.sub(r"‖([a-z])(?:_([a-zA-Z0-9]))?‖", r"$\\Vert \1_{\2}\\Vert$", shown)
    shown = re.sub(r"([ΓΔ])", r"$\1$", shown).replace("layer l", r"layer $\ell$")
    shown = shown.replace("_{l}", r"_{\ell}")
    return f" {shown}" if shown.startswith("_") else shown
