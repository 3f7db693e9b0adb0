"""How figures look: sizes for a paper's columns, a palette that survives greyscale, and text that is never markup."""

from __future__ import annotations

import io
import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.lines import Line2D
from matplotlib.textpath import TextToPath

from ..audit import AuditRow
from ..printable import one_line
from .scales import Scale

WIDTH = 7.0
"""Inches: two columns of a paper."""
TALLEST = 9.0
"""Inches: what a page has below a caption."""
TITLE, LABEL, TICK = 7.0, 6.5, 6.0
"""Points."""
INK, GREY, FAINT = "#000000", "#555555", "#dddddd"
# Okabe and Ito's palette. Hue never stands alone: a mark has its own shape and filling, a line its own dashes.
BLUE, VERMILION, GREEN, SKY, PURPLE = "#0072B2", "#D55E00", "#009E73", "#56B4E9", "#CC79A7"
# For methods, beside the two above that no outcome has.
INDIGO, OLIVE, WINE, BROWN, SILVER = "#332288", "#8A8A1F", "#882255", "#6B4A2B", "#949494"
GLOW = "#F5C9A8"
"""Behind the line of a block that grows by more than the ratio."""
FAMILY = "DejaVu Sans"
"""Comes with matplotlib, so that figures do not depend on a machine's fonts."""


Dashes = Literal["-", ":", "none"] | tuple[float, tuple[float, ...]]
RULE: Any = {"color": GREY, "linestyle": (0, (3, 1.5)), "linewidth": 0.8, "zorder": 2}
"""The line of a threshold."""


class Mark(NamedTuple):
    """The symbol of one outcome of a diagnostic."""

    label: str
    marker: str
    colour: str
    filled: bool = False
    size: float = 3.4

    @property
    def inside(self) -> str:
        """The colour of the symbol's inside."""
        return self.colour if self.filled else "#ffffff"

    def look(self, share: float = 1.0) -> dict[str, Any]:
        """The symbol, at a share of its size, as matplotlib draws it; at the edge of a panel it stays whole."""
        drawn = {"color": self.colour, "marker": self.marker, "markersize": share * self.size, "markerfacecolor": self.inside}
        return {**drawn, "zorder": 4, "clip_on": False}

    def sample(self) -> Line2D:
        """The symbol in a key."""
        return Line2D([], [], linestyle="none", label=self.label, **self.look())


FIRES = Mark("fires", "^", VERMILION, filled=True, size=4.0)
LIKELY_FIRES = Mark("likely fires", "^", VERMILION, size=4.0)
EXCUSED = Mark("passes, excused", "D", GREEN, size=3.0)
LIKELY_EXCUSED = Mark("likely passes, excused", "p", GREEN)
PASSES = Mark("passes", "o", BLUE)
LIKELY_PASSES = Mark("likely passes", "s", BLUE, size=3.0)
UNJUDGED = Mark("not judged", "x", GREY, filled=True, size=3.0)
OUTCOMES = (FIRES, LIKELY_FIRES, LIKELY_EXCUSED, EXCUSED, LIKELY_PASSES, PASSES, UNJUDGED)
"""The worst first, as the key has them."""


def mark_of(row: AuditRow, key: str) -> Mark:
    """The symbol of what one diagnostic says of a row."""
    status = row.status
    likely = key in status.likely
    if key in status.fired:
        return LIKELY_FIRES if likely else FIRES
    if key not in status.passed:
        return UNJUDGED
    if key in status.excused:
        return LIKELY_EXCUSED if likely else EXCUSED
    return LIKELY_PASSES if likely else PASSES


class Stroke(NamedTuple):
    """The line of one method among several."""

    colour: str
    dashes: Dashes
    marker: str

    def look(self) -> dict[str, Any]:
        """The line as matplotlib draws it."""
        line = {"color": self.colour, "linestyle": self.dashes, "linewidth": 1.2}
        return {**line, "marker": self.marker, "markerfacecolor": "#ffffff"}


STROKES = (
    Stroke(INDIGO, "-", "o"),
    Stroke(PURPLE, (0, (4, 1.2)), "s"),
    Stroke(OLIVE, (0, (1.2, 1.2)), "D"),
    Stroke(INK, (0, (5, 1.2, 1.2, 1.2)), "v"),
    Stroke(SKY, "-", "P"),
    Stroke(WINE, (0, (4, 1.2)), "X"),
    Stroke(BROWN, (0, (1.2, 1.2)), "*"),
    Stroke(SILVER, (0, (5, 1.2, 1.2, 1.2, 1.2, 1.2)), "<"),
)
"""None has the colour of an outcome, nor the triangle of what fires: a method's line says nothing of its verdict."""


@contextmanager
def house_style() -> Iterator[None]:
    """Matplotlib's own defaults with a few of ours, whatever the user's settings are, which are back afterwards."""
    ticks = {"labelsize": TICK, "major.width": 0.5, "major.size": 2.0, "major.pad": 1.5}
    ours = {
        "font.family": FAMILY,
        "font.size": LABEL,
        "text.usetex": False,
        "text.parse_math": False,
        "axes.linewidth": 0.5,
        "axes.edgecolor": GREY,
        "axes.labelsize": LABEL,
        "axes.labelpad": 2.0,
        **{f"{axis}tick.{name}": value for axis in "xy" for name, value in ticks.items()},
        "lines.linewidth": 0.8,
        "lines.markersize": 3.4,
        "lines.markeredgewidth": 0.8,
        "pdf.fonttype": 42,  # Type 3 fonts are refused by several publishers
    }
    with matplotlib.style.context(["default", ours]):
        yield


class Page(Figure):
    """A figure that a notebook shows as the last value of a cell, also where nothing there has imported pyplot."""

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        with house_style():
            self.savefig(content, format="png", dpi=150)
        return content.getvalue()


def new_figure(height: float) -> Figure:
    """An empty figure of two columns' width."""
    return Page(figsize=(WIDTH, height), facecolor="#ffffff")


def panel(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes at a place in inches, from the left and from the top."""
    whole = figure.get_figheight()
    axes = figure.add_axes((left / WIDTH, (whole - top - height) / whole, width / WIDTH, height / whole))
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def ruled(axes: Axes, scale: Scale, which: str, *, grid: bool = True) -> None:
    """Give one axis the ends and the ticks of a scale."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xlim if which == "x" else axes.set_ylim)(*scale.limits)
    axis.set_ticks([place for place, _ in scale.ticks], [label for _, label in scale.ticks])
    if grid:
        axis.grid(True, color=FAINT, linewidth=0.4)
        axes.set_axisbelow(True)


def head(axes: Axes, text: str, width: float, size: float = TICK, *, bold: bool = True) -> None:
    """The title of a panel, cut to so many inches."""
    weight = "bold" if bold else "normal"
    axes.set_title(fitted(text, width, size, weight), loc="left", fontsize=size, fontweight=weight, pad=3.5)


def say(
    figure: Figure, left: float, top: float, text: str, *, size: float = LABEL, weight: str = "normal", **more: Any
) -> None:
    """Text at a place in inches, from the left and from the top, on its baseline."""
    figure.text(
        left / WIDTH, 1 - top / figure.get_figheight(), text, fontsize=size, fontweight=weight, **{"color": INK, **more}
    )  # fmt: skip


def drawable(text: str) -> str:
    """The text on one line, with an escape for each character that the font has no picture of."""
    pictured = _characters()
    return "".join(char if ord(char) in pictured else char.encode("unicode_escape").decode("ascii") for char in one_line(text))


def fitted(text: str, width: float, size: float = LABEL, weight: str = "normal") -> str:
    """The text, drawable, cut to so many inches."""
    text = drawable(text)
    if measured(text, size, weight) <= width:
        return text
    text = text[: int(72 * width)]  # no letter is narrower than a point, and a name may be a novel
    most = bisect_right(range(len(text)), width, key=lambda end: measured(text[:end] + "…", size, weight)) - 1
    return text[: max(most, 0)] + "…"


@lru_cache(maxsize=4096)
def measured(text: str, size: float = LABEL, weight: str = "normal") -> float:
    """The width of a text in inches, a little generous: renderers round each letter in their own way."""
    font = FontProperties(family=FAMILY, size=size, weight=weight)
    width: float = TextToPath().get_text_width_height_descent(text, font, ismath=False)[0]
    return 1.04 * width / 72


@lru_cache(maxsize=1)
def _characters() -> frozenset[int]:
    fonts = (get_font(findfont(FontProperties(family=FAMILY, weight=weight))) for weight in ("normal", "bold"))
    return frozenset.intersection(*(frozenset(font.get_charmap()) for font in fonts))


SAMPLE, LINE = 0.42, 0.135
"""Inches: the sample of an entry with the space around it, and the height of a line of the key."""


class Key:
    """What lines and symbols mean, above the panels: samples in as many lines as they need, and a remark below."""

    def __init__(self, samples: Sequence[Line2D], remark: str = "") -> None:
        widths = [SAMPLE + measured(str(sample.get_label()), TICK) for sample in samples]
        fitting = (n for n in range(len(widths), 1, -1) if sum(max(widths[column::n]) for column in range(n)) <= WIDTH - 0.1)
        self.columns = next(fitting, 1)
        # A legend is filled column by column, and read line by line.
        self.samples = [sample for column in range(self.columns) for sample in samples[column :: self.columns]]
        self.remark = remark
        self.height = LINE * (math.ceil(len(samples) / self.columns) + bool(remark)) + 0.03

    def draw(self, figure: Figure) -> None:
        """Put it at the top of a figure."""
        figure.legend(
            self.samples,
            # Some versions leave out what begins with an underscore, as the name of a method may.
            [f" {sample.get_label()}" for sample in self.samples],
            loc="upper left",
            bbox_to_anchor=(0.04 / WIDTH, 1),
            ncols=self.columns,
            fontsize=TICK,
            frameon=False,
            borderpad=0.2,
            borderaxespad=0.5,
            handlelength=3.2,
            handletextpad=0.2,
            columnspacing=1.2,
            labelspacing=0.4,
        )
        if self.remark:
            say(figure, 0.1, self.height - 0.03, self.remark, size=TICK)
