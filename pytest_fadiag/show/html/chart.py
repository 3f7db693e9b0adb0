"""One line plot as inline SVG; holes, zeros, infinities and NaN have marks of their own instead of vanishing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...judge.wording import count, figure
from .axes import Axis
from .markup import Markup, badge, element, join, text

WIDTH, HEIGHT = 340, 200
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 24, 36
LANE = 12
"""Inside the frame, above and below the curve: where the numbers go that no axis has a place for."""
MOST_DOTS = 40
"""Beyond this a curve is a line alone."""
ODD = {
    "none": ("○", "not recorded"),
    "zero": ("▽", "exactly 0"),
    "infinite": ("△", "infinite"),
    "nan": ("✕", "undefined (NaN)"),
}
"""What no axis has a place for: its mark, and what the caption calls it."""


@dataclass(frozen=True)
class Limit:
    """A threshold over a stretch of x: a horizontal line."""

    value: float
    first: float
    last: float


@dataclass(frozen=True)
class Chart:
    """What one plot shows; ``xs`` are layers or epochs."""

    title: str
    unit: str
    """What x counts: layer, epoch."""
    xs: Sequence[float]
    ys: Sequence[float | None]
    y_axis: Axis
    x_axis: Axis
    limits: Sequence[Limit] = ()
    legend: str = ""
    """What the dashed lines are."""
    marks: Sequence[tuple[float, str]] = ()
    """Places on x with the letters of what first fired there."""
    fired: frozenset[int] = field(default_factory=frozenset)
    """Indices of points that crossed a limit."""
    deepest: str = ""
    """What the last x is called where nobody knows its number."""

    def figure(self, ident: str) -> Markup:
        """The plot and its caption; the ids within start with ``ident``."""
        parts = [
            element("title", self.title, id=f"{ident}-t"),
            element("desc", self._words(), id=f"{ident}-d"),
            *self._grid(),
            *self._limits(),
            *self._marks(),
            *self._lines(),
            *self._points(),
        ]
        svg = element(
            "svg",
            *parts,
            viewBox=f"0 0 {WIDTH} {HEIGHT}",
            role="img",
            aria_labelledby=f"{ident}-t",
            aria_describedby=f"{ident}-d",
        )
        return element("figure", svg, element("figcaption", *self._caption()))

    def _x(self, value: float) -> float:
        return LEFT + LANE / 2 + self.x_axis.at(value) * (WIDTH - LEFT - RIGHT - LANE)

    def _y(self, value: float) -> float:
        return HEIGHT - BOTTOM - LANE - self.y_axis.at(value) * (HEIGHT - TOP - BOTTOM - 2 * LANE)

    def _grid(self) -> list[Markup]:
        right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
        parts = [_text(LEFT, 14, self.title, "title", "start")]
        for place, label in self.y_axis.ticks(5):
            y = bottom - LANE - place * (HEIGHT - TOP - BOTTOM - 2 * LANE)
            parts += [_line(LEFT, y, right, y, "grid"), _text(LEFT - 5, y + 3.5, label, "tick", "end")]
        for place, label in self.x_axis.ticks(8):
            if "." in label or not 0 <= place <= 1:
                continue  # there is no half layer
            x = LEFT + LANE / 2 + place * (WIDTH - LEFT - RIGHT - LANE)
            name = self.deepest if self.deepest and place == 1 else label
            parts += [_line(x, bottom, x, bottom + 3, "frame"), _text(x, bottom + 14, name, "tick")]
        parts.append(_text((LEFT + right) / 2, HEIGHT - 6, self.unit, "tick"))
        return [*parts, _line(LEFT, TOP, LEFT, bottom, "frame"), _line(LEFT, bottom, right, bottom, "frame")]

    def _limits(self) -> list[Markup]:
        return [
            _line(self._x(limit.first), self._y(limit.value), self._x(limit.last), self._y(limit.value), "limit")
            for limit in self.limits
            if self._shown(limit)
        ]

    def _shown(self, limit: Limit) -> bool:
        return _kind(limit.value, self.y_axis) == "" and -1e-9 <= self.y_axis.at(limit.value) <= 1 + 1e-9

    def _marks(self) -> list[Markup]:
        parts = []
        for x, label in self.marks:
            place = self._x(x)
            parts += [_line(place, TOP + 9, place, HEIGHT - BOTTOM, "mark"), _text(place, TOP + 6, label, "mark")]
        return parts

    def _lines(self) -> list[Markup]:
        """Solid through neighbours, dotted over holes and over blocks that nobody counted."""
        known = [index for index, y in enumerate(self.ys) if _kind(y, self.y_axis) == ""]
        runs: list[list[int]] = [known[:1]]
        holes = []
        for a, b in itertools.pairwise(known):
            if b > a + 1 or (self.deepest and b + 1 == len(self.ys)):
                holes.append(_line(*self._place(a), *self._place(b), "hole"))
                runs.append([b])
            else:
                runs[-1].append(b)
        curves = [" ".join(f"{x:.1f},{y:.1f}" for x, y in map(self._place, run)) for run in runs if len(run) > 1]
        return [*holes, *(element("polyline", points=points, class_="curve") for points in curves)]

    def _place(self, index: int) -> tuple[float, float]:
        value = self.ys[index]
        assert value is not None
        return self._x(self.xs[index]), self._y(value)

    def _points(self) -> list[Markup]:
        parts, alone = [], _alone([_kind(y, self.y_axis) == "" for y in self.ys])
        for index, value in enumerate(self.ys):
            kind, label = _kind(value, self.y_axis), f"{self.unit} {self._name(index)}: {_say(value)}"
            if kind:
                y = TOP + LANE / 2 if kind == "infinite" else HEIGHT - BOTTOM - LANE / 2
                parts.append(_text(self._x(self.xs[index]), y + 3.5, ODD[kind][0], "odd", title=label))
            elif len(self.ys) <= MOST_DOTS or alone[index] or index in self.fired:
                x, y = self._place(index)
                parts.append(_dot(x, y, index in self.fired, label))
        return parts

    def _name(self, index: int) -> str:
        return self.deepest if self.deepest and index + 1 == len(self.xs) else f"{self.xs[index]:g}"

    def _odd(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for index, y in enumerate(self.ys):
            if kind := _kind(y, self.y_axis):
                found.setdefault(kind, []).append(index)
        return found

    def _ranges(self, indices: Sequence[int]) -> str:
        """Places on x in few words: 0, 3–7."""
        runs: list[list[int]] = []
        for index in indices:
            if runs and index == runs[-1][-1] + 1:
                runs[-1].append(index)
            else:
                runs.append([index])
        return ", ".join("–".join(dict.fromkeys([self._name(run[0]), self._name(run[-1])])) for run in runs)

    def _caption(self) -> list[Markup]:
        notes = []
        if self.legend and any(self._shown(limit) for limit in self.limits):
            notes.append(join([element("span", class_="dash"), text(self.legend)]))
        elif self.legend and self.limits:
            notes.append(text(f"{self.legend}: off this scale"))
        if self.marks:
            keys = sorted({key for _, label in self.marks for key in label})
            notes.append(join([*(badge(key, fired=True) for key in keys), text(" first fired")]))
        for kind, places in self._odd().items():
            mark, words = ODD[kind]
            noun = self.unit if len(places) == 1 else self.unit + "s"
            notes.append(join([element("b", mark, class_="odd"), text(f" {words}: {noun} {self._ranges(places)}")]))
        return [element("span", note) for note in notes]

    def _words(self) -> str:
        if len(self.ys) > MOST_DOTS:
            finite = [y for y in self.ys if y is not None and math.isfinite(y)]
            span = f", from {figure(min(finite))} to {figure(max(finite))}" if finite else ""
            said = f"{count(len(self.ys), self.unit)}{span}"
        else:
            said = "; ".join(f"{self.unit} {self._name(index)}: {_say(y)}" for index, y in enumerate(self.ys))
        return f"{said}. {self.legend}".strip()


def _kind(value: float | None, axis: Axis) -> str:
    """Which of the odd kinds a number is, or nothing where the axis has a place for it."""
    if value is None:
        return "none"
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "infinite"
    return "zero" if axis.log and value <= 0 else ""


def _say(value: float | None) -> str:
    return "not recorded" if value is None else figure(value)


def _alone(known: Sequence[bool]) -> list[bool]:
    """Which known points have no known neighbour, so that no line would show them."""
    padded = [False, *known, False]
    return [not before and not after for before, after in zip(padded, padded[2:], strict=False)]


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return element("line", x1=f"{x1:.1f}", y1=f"{y1:.1f}", x2=f"{x2:.1f}", y2=f"{y2:.1f}", class_=kind)


def _text(x: float, y: float, words: str, kind: str, anchor: str = "middle", title: str = "") -> Markup:
    inner = [element("title", title)] if title else []
    return element("text", *inner, words, x=f"{x:.1f}", y=f"{y:.1f}", class_=kind, text_anchor=anchor)


def _dot(x: float, y: float, fired: bool, label: str) -> Markup:
    title = element("title", label + (", crossed" if fired else ""))
    if fired:  # a square, so that it differs without colour too
        return element("rect", title, x=f"{x - 3.5:.1f}", y=f"{y - 3.5:.1f}", width=7, height=7, class_="dot fired")
    return element("circle", title, cx=f"{x:.1f}", cy=f"{y:.1f}", r=2.8, class_="dot")
