"""The names beside panels that have a line a seed: the method once, and every seed."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .style import FAINT, GREY, TICK, drawable, fitted, measured, say

ROW, HEAD = 0.13, 0.2
"""Inches: a line, and what stands above the first one."""
WIDEST, SEED = 1.35, 0.5
Names = Sequence[tuple[str, str]]
"""The method and the seed of every line."""


def room(names: Names) -> float:
    """The inches that they need."""
    methods = min(max(measured(drawable(method), TICK, "bold") for method, _ in names), WIDEST)
    return max(methods, 0.4) + 0.1 + SEED + 0.06


def name_rows(figure: Figure, names: Names, left: float, top: float) -> None:
    """Write them, from a place on the left."""
    end = left + room(names) - 0.06
    say(figure, left, top - 0.06, "method", size=TICK, color=GREY)
    say(figure, end, top - 0.06, "seed", size=TICK, color=GREY, horizontalalignment="right")
    for index, (method, seed) in enumerate(names):
        y = top + ROW * (index + 0.5) + 0.03
        if not index or method != names[index - 1][0]:
            say(figure, left, y, fitted(method, WIDEST, TICK, "bold"), size=TICK, weight="bold")
        say(figure, end, y, fitted(seed, SEED, TICK), size=TICK, horizontalalignment="right")


def lined(axes: Axes, names: Names) -> None:
    """Give a panel a line a seed, and a rule between methods."""
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks([])
    for index, (method, _) in enumerate(names):
        if index and method != names[index - 1][0]:
            axes.axhline(index - 0.5, color=FAINT, lw=0.5, zorder=1)
