"""How figures look: sizes for a paper's columns, a palette that survives greyscale, and text that is never markup."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..audit import AuditRow
from ..printable import one_line
from .scales import Scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    import matplotlib.style

    ours = {
        "font.family": FAMILY,
        "font.size": LABEL,
        "text.usetex": False,
        "text.parse_math": False,
        "axes.linewidth": 0.5,
        "axes.edgecolor": GREY,
        "axes.labelsize": LABEL,
        "axes.titlesize": LABEL,
        "xtick.labelsize": TICK,
        "ytick.labelsize": TICK,
        "xtick.major.width": 0.5,
        "ytick.major.width": 0.5,
        "xtick.major.size": 2.0,
        "ytick.major.size": 2.0,
        "xtick.major.pad": 1.5,
        "ytick.major.pad": 1.5,
        "lines.linewidth": 0.8,
        "pdf.fonttype": 42,  # Type 3 fonts are refused by several publishers
    }
    with matplotlib.style.context(["default", ours]):
        yield


def new_figure(height: float) -> Figure:
    """An empty figure of two columns' width."""
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH, height), facecolor="#ffffff")


def panel(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes at a place in inches, from the left and from the top."""
    whole = figure.get_figheight()
    axes = figure.add_axes((left / WIDTH, (whole - top - height) / whole, width / WIDTH, height / whole))
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def ruled(axes: Axes, scale: Scale, which: str, *, labelled: bool = True, grid: bool = True) -> None:
    """Give one axis the ends and the ticks of a scale."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xlim if which == "x" else axes.set_ylim)(*scale.limits)
    axis.set_ticks([place for place, _ in scale.ticks], [label if labelled else "" for _, label in scale.ticks])
    if grid:
        axis.grid(True, color=FAINT, linewidth=0.4)
        axes.set_axisbelow(True)


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
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    font = FontProperties(family=FAMILY, size=size, weight=weight)
    width: float = TextToPath().get_text_width_height_descent(text, font, ismath=False)[0]
    return 1.04 * width / 72


@lru_cache(maxsize=1)
def _characters() -> frozenset[int]:
    from matplotlib.font_manager import FontProperties, findfont, get_font

    fonts = (get_font(findfont(FontProperties(family=FAMILY, weight=weight))) for weight in ("normal", "bold"))
    return frozenset.intersection(*(frozenset(font.get_charmap()) for font in fonts))


SAMPLE, GAP, LINE = 0.26, 0.14, 0.135
"""Inches: the sample of a line, the space after an entry, and the height of a line of the key."""


class Entry(NamedTuple):
    """One sample of a key: a line, a symbol on it or both, and what they mean."""

    text: str
    colour: str = INK
    dashes: Dashes = "none"
    marker: str = ""
    inside: str = "#ffffff"
    size: float = 3.4
    linewidth: float = 1.0

    @property
    def sample(self) -> float:
        """The room for the sample, in inches; plain text has none."""
        return 0.0 if self.dashes == "none" and not self.marker else SAMPLE if self.dashes != "none" else SAMPLE / 2

    @classmethod
    def of(cls, mark: Mark) -> Entry:
        """The entry of an outcome."""
        return cls(mark.label, mark.colour, marker=mark.marker, inside=mark.inside, size=mark.size)


def key_lines(entries: Sequence[Entry], width: float) -> list[list[Entry]]:
    """The entries of a key, on as many lines as they need."""
    lines: list[list[Entry]] = [[]]
    used = 0.0
    for entry in entries:
        needed = entry.sample + measured(entry.text, TICK) + GAP
        if used + needed - GAP > width and lines[-1]:
            lines.append([])
            used = 0.0
        lines[-1].append(entry)
        used += needed
    return lines


def draw_key(figure: Figure, lines: Sequence[Sequence[Entry]], left: float, top: float) -> None:
    """The key of a figure, in inches from the left and the top."""
    from matplotlib.lines import Line2D

    height = figure.get_figheight()
    for number, line in enumerate(lines):
        x, y = left, height - top - LINE * (number + 0.5)
        for entry in line:
            end = x + entry.sample - 0.05
            ends = [x, (x + end) / 2, end] if entry.dashes != "none" else [(x + end) / 2]
            sample = Line2D(
                ends,
                [y] * len(ends),
                color=entry.colour,
                linestyle=entry.dashes,
                linewidth=entry.linewidth,
                marker=entry.marker or "None",
                markevery=[len(ends) // 2],
                markersize=entry.size,
                markerfacecolor=entry.inside,
                markeredgewidth=0.8,
                transform=figure.dpi_scale_trans,
            )
            figure.add_artist(sample)
            x += entry.sample
            figure.text(x / WIDTH, y / height, entry.text, fontsize=TICK, color=INK, verticalalignment="center_baseline")
            x += measured(entry.text, TICK) + GAP
