"""The timeline figure: at which epoch each diagnostic first fires, a line for each seed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ...judge.diagnostics import Diagnostic
from ...judge.trajectory import Trajectory
from ..audit import Audit
from ..groups import seed_groups
from ..status import RowStatus
from . import style
from .rows import HEAD, ROW, lined, name_rows, room
from .scales import Scale, whole_scale
from .style import INK, TICK, Key, Mark, head, panel, ruled

# Inches.
RIGHT, BETWEEN, FOOT = 0.12, 0.14, 0.33
FIRES = Mark("first epoch at which it fires", "^", style.VERMILION, filled=True, size=4.0)
FIRED = Mark("as before, but it no longer fires at the end", "^", style.VERMILION, size=4.0)
SPAN = "#b5b5b5"
EXCUSED: Any = {"color": style.EXCUSED.colour, "lw": 3.2, "solid_capstyle": "butt"}
"""The epochs at which a number crosses its threshold and is excused."""


class Row(NamedTuple):
    """One seed of a method."""

    method: str
    seed: str
    status: RowStatus
    trajectory: Trajectory

    def first_fired(self, key: str) -> int | None:
        """The first epoch at which a diagnostic that ran fired."""
        return self.trajectory.first_fired.get(key) if key in self.status.judged else None

    def excused(self, key: str) -> list[tuple[int, int]]:
        """The first and the last epoch of each stretch at which a diagnostic that ran was excused."""
        epochs = self.trajectory.excused.get(key, ()) if key in self.status.judged else ()
        numbers = {epoch: number for number, epoch in enumerate(self.trajectory.epochs)}
        stretches = itertools.groupby(enumerate(epochs), lambda pair: numbers[pair[1]] - pair[0])
        runs = [[epoch for _, epoch in stretch] for _, stretch in stretches]
        return [(run[0], run[-1]) for run in runs]


def timeline_pages(audit: Audit) -> list[Figure]:
    """One figure, or as many as the seeds need."""
    rows = [
        Row(group.name, "–" if row.seed is None else str(row.seed), row.status, row.report.trajectory)
        for group in seed_groups(audit)
        for row in group.rows
        if row.report is not None and row.report.trajectory is not None
    ]
    epochs = [epoch for row in rows for epoch in row.trajectory.epochs]
    scale = whole_scale(max(epochs), 4, first=min(epochs))
    # Of what runs only if asked for, no log tells when it first fired.
    diagnostics = [d for d in audit.diagnostics if d.by_default or any(d.key in row.trajectory.known for row in rows)]
    key = _key(rows, diagnostics)
    most = int((style.TALLEST - key.height - HEAD - FOOT) / ROW)
    return [_page(rows[start : start + most], diagnostics, scale, key) for start in range(0, len(rows), most)]


def _page(rows: Sequence[Row], diagnostics: Sequence[Diagnostic], scale: Scale, key: Key) -> Figure:
    top, height = key.height + HEAD, ROW * len(rows)
    figure = style.new_figure(top + height + FOOT)
    key.draw(figure)
    names = [(row.method, row.seed) for row in rows]
    left = 0.1 + room(names)
    name_rows(figure, names, 0.1, top)
    width = (style.WIDTH - left - RIGHT - BETWEEN * (len(diagnostics) - 1)) / len(diagnostics)
    for diagnostic in diagnostics:
        axes = panel(figure, left, top, width, height)
        head(axes, diagnostic.label, width)
        ruled(axes, scale, "x", grid=False)
        axes.set_xlabel("epoch")
        lined(axes, names)
        for index, row in enumerate(rows):
            _draw_row(axes, index, row, diagnostic.key, scale)
        left += width + BETWEEN
    return figure


def _key(rows: Sequence[Row], diagnostics: Sequence[Diagnostic]) -> Key:
    keys = [diagnostic.key for diagnostic in diagnostics]
    gone = any(row.first_fired(key) is not None and key not in row.status.fired for row in rows for key in keys)
    or_run = "" if all(key in row.status.judged for row in rows for key in keys) else ", or not run"
    span = Line2D([], [], color=SPAN, lw=1.2, label=f"epochs logged; no line: not logged by epoch{or_run}")
    samples = [FIRES.sample(), *([FIRED.sample()] if gone else []), span]
    if any(row.excused(key) for row in rows for key in keys):
        samples.append(Line2D([], [], label="crosses its threshold, excused", **EXCUSED))
    return Key(samples)


def _draw_row(axes: Axes, index: int, row: Row, key: str, scale: Scale) -> None:
    epochs, first = row.trajectory.epochs, row.first_fired(key)
    if key not in row.status.judged or (first is None and key not in row.trajectory.known):
        return
    axes.plot([epochs[0], epochs[-1]], [index] * 2, color=SPAN, lw=1.2, solid_capstyle="projecting", zorder=2, clip_on=False)
    for start, end in row.excused(key):
        axes.plot([start - 0.4, end + 0.4], [index] * 2, zorder=3, clip_on=False, **EXCUSED)
    if first is None:
        return
    mark = FIRES if key in row.status.fired else FIRED
    axes.plot([first], [index], **mark.look())
    late = first > scale.low + 0.7 * (scale.high - scale.low)
    axes.annotate(
        str(first),
        (first, index),
        (-4 if late else 4, 0),
        textcoords="offset points",
        fontsize=TICK,
        color=INK,
        horizontalalignment="right" if late else "left",
        verticalalignment="center_baseline",
        zorder=4,
        bbox={"boxstyle": "square,pad=0.05", "facecolor": "#ffffff", "edgecolor": "none"},
    )
