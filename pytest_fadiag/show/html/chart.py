"""One line plot in numbers; holes, zeros, infinities and NaN have marks of their own instead of vanishing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, NamedTuple

from ...judge.wording import count, figure
from .axes import Axis

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

Place = tuple[float, float]


class Limit(NamedTuple):
    """A threshold over a stretch of x: a horizontal line."""

    value: float
    first: float
    last: float


class Dot(NamedTuple):
    """One number of a plot."""

    x: float
    y: float
    mark: str
    """Of what has no place on the axis."""
    fired: bool
    label: str


@dataclass(frozen=True)
class Chart:
    """What one plot shows, and where: ``xs`` are layers or epochs."""

    WIDTH: ClassVar = 340
    HEIGHT: ClassVar = 200
    LEFT: ClassVar = 44
    RIGHT: ClassVar = 328
    TOP: ClassVar = 24
    BOTTOM: ClassVar = 164

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

    def x(self, value: float) -> float:
        """Where a layer or epoch lies."""
        return self._across(self.x_axis.at(value))

    def y(self, value: float) -> float:
        """Where a number lies that the axis has a place for."""
        return self._up(self.y_axis.at(value))

    def _across(self, share: float) -> float:
        return self.LEFT + LANE / 2 + share * (self.RIGHT - self.LEFT - LANE)

    def _up(self, share: float) -> float:
        return self.BOTTOM - LANE - share * (self.BOTTOM - self.TOP - 2 * LANE)

    @property
    def y_ticks(self) -> list[tuple[float, str]]:
        """Places and labels beside the plot."""
        return [(self._up(share), label) for share, label in self.y_axis.ticks(5)]

    @property
    def x_ticks(self) -> list[tuple[float, str]]:
        """Places and labels below it; there is no half layer."""
        ticks = [(share, label) for share, label in self.x_axis.ticks(8) if "." not in label and 0 <= share <= 1]
        return [(self._across(share), self.deepest if self.deepest and share == 1 else label) for share, label in ticks]

    @cached_property
    def limits_in_sight(self) -> list[Limit]:
        """The limits that the axis reaches."""
        possible = (limit for limit in self.limits if not self._odd(limit.value))
        return [limit for limit in possible if -1e-9 <= self.y_axis.at(limit.value) <= 1 + 1e-9]

    @cached_property
    def _runs(self) -> list[list[int]]:
        """Indices that a solid line joins: neighbours, without blocks between them that nobody counted."""
        runs = _neighbours([index for index, y in enumerate(self.ys) if not self._odd(y)])
        if self.deepest and runs and runs[-1][-1] + 1 == len(self.ys):
            *before, last = runs.pop()
            runs += [run for run in (before, [last]) if run]
        return runs

    @property
    def curves(self) -> list[list[Place]]:
        """The places that each solid line joins."""
        return [list(map(self._place, run)) for run in self._runs if len(run) > 1]

    @property
    def holes(self) -> list[tuple[Place, Place]]:
        """The ends of each dotted line."""
        return [(self._place(before[-1]), self._place(after[0])) for before, after in itertools.pairwise(self._runs)]

    def _place(self, index: int) -> Place:
        value = self.ys[index]
        assert value is not None
        return self.x(self.xs[index]), self.y(value)

    @property
    def dots(self) -> list[Dot]:
        """The numbers that have a symbol: of many only those that no line shows."""
        dots, alone = [], {run[0] for run in self._runs if len(run) == 1}
        for index, value in enumerate(self.ys):
            kind, fired, label = self._odd(value), index in self.fired, self._said(index)
            if kind:
                y = self.TOP + LANE / 2 if kind == "infinite" else self.BOTTOM - LANE / 2
                dots.append(Dot(self.x(self.xs[index]), y, ODD[kind][0], fired, label))
            elif len(self.ys) <= MOST_DOTS or index in alone or fired:
                dots.append(Dot(*self._place(index), "", fired, label))
        return dots

    @property
    def odd_notes(self) -> list[tuple[str, str]]:
        """Each mark of what has no place on the axis, with what it means and where it is."""
        places: dict[str, list[int]] = {}
        for index, y in enumerate(self.ys):
            if kind := self._odd(y):
                places.setdefault(kind, []).append(index)
        notes = []
        for kind, indices in places.items():
            mark, words = ODD[kind]
            ranges = ("–".join(dict.fromkeys([self._name(run[0]), self._name(run[-1])])) for run in _neighbours(indices))
            notes.append((mark, f"{words}: {self.unit if len(indices) == 1 else self.unit + 's'} {', '.join(ranges)}"))
        return notes

    @property
    def words(self) -> str:
        """The plot for those who cannot see it."""
        said = "; ".join(map(self._said, range(len(self.ys))))
        if len(self.ys) > MOST_DOTS:
            finite = [y for y in self.ys if y is not None and math.isfinite(y)]
            span = f", from {figure(min(finite))} to {figure(max(finite))}" if finite else ""
            said = f"{count(len(self.ys), self.unit)}{span}"
        return f"{said}. {self.legend}".strip()

    def _said(self, index: int) -> str:
        value = self.ys[index]
        return f"{self.unit} {self._name(index)}: {'not recorded' if value is None else figure(value)}"

    def _name(self, index: int) -> str:
        return self.deepest if self.deepest and index + 1 == len(self.xs) else f"{self.xs[index]:g}"

    def _odd(self, value: float | None) -> str:
        """Which of the odd kinds a number is, or nothing where the axis has a place for it."""
        if value is None:
            return "none"
        if math.isnan(value):
            return "nan"
        if math.isinf(value):
            return "infinite"
        return "zero" if self.y_axis.log and value <= 0 else ""


def _neighbours(indices: Sequence[int]) -> list[list[int]]:
    """Indices that follow each other, together: 0; 3, 4, 5."""
    runs = itertools.groupby(enumerate(indices), lambda pair: pair[1] - pair[0])
    return [[index for _, index in run] for _, run in runs]
