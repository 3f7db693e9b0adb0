"""Axes of a plot: where a number lies between 0 and 1, and which numbers are written beside it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
FARTHEST = 15
"""Decades between the numbers and a threshold beyond which the threshold is left out: it would flatten the curve."""


@dataclass(frozen=True)
class Axis:
    """A linear or logarithmic range of numbers; a logarithmic one is kept in decades."""

    low: float
    high: float
    log: bool = False

    def at(self, value: float) -> float:
        """Where a number lies, from 0 (low) to 1 (high)."""
        place = math.log10(value) if self.log else value
        return (place - self.low) / (self.high - self.low)

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """At most about that many places with their labels."""
        if self.log:
            every = max(1, math.ceil((self.high - self.low) / most))
            decades = range(math.ceil(self.low), math.floor(self.high) + 1)
            return [((d - self.low) / (self.high - self.low), _power(d)) for d in decades if d % every == 0]
        step = _nice((self.high - self.low) / most)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [(self.at(n * step), f"{n * step:g}") for n in range(first, last + 1)]


def log_axis(values: Iterable[float | None], limits: Iterable[float] = ()) -> Axis:
    """Whole decades around the positive numbers, and around the limits that are not absurdly far from them."""
    decades = [math.log10(v) for v in values if v is not None and 0 < v < math.inf]
    wanted = [math.log10(v) for v in limits if 0 < v < math.inf]
    near = [w for w in wanted if not decades or min(decades) - FARTHEST <= w <= max(decades) + FARTHEST]
    places = decades + near or [0.0]
    low, high = math.floor(min(places)), math.ceil(max(places))
    return Axis(low, high if high > low else low + 1, log=True)


def linear_axis(values: Iterable[float | None], within: tuple[float, float] = (-math.inf, math.inf)) -> Axis:
    """A range a little wider than the numbers, but not beyond what they can be."""
    known = [v for v in values if v is not None and math.isfinite(v)] or [0.0]
    margin = 0.08 * (max(known) - min(known)) or 0.05
    low, high = max(min(known) - margin, within[0]), min(max(known) + margin, within[1])
    return Axis(low, high if high > low else low + 1)


def whole_axis(values: Iterable[float]) -> Axis:
    """The range of layers or epochs, half a step wider where there is but one."""
    known = list(values) or [0.0]
    low, high = min(known), max(known)
    return Axis(low, high) if high > low else Axis(low - 0.5, high + 0.5)


def _nice(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= step * (1 - 1e-9))


def _power(decade: int) -> str:
    return {0: "1", 1: "10", 2: "100"}.get(decade) or f"10{str(decade).translate(SUPERSCRIPT)}"
