"""Axes on which every number has a place: zero, infinity and NaN get ticks of their own beyond the finite range."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

PAD = 0.07
"""The white space at both ends, as a share of the range."""
KNEE = 2.0
"""Percentage points: the published minimum."""
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Scale:
    """Where numbers go on an axis that matplotlib sees as linear, and the ticks that say what they are."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    logarithmic: bool = False
    knee: float = math.inf
    """Below this a number has its own size, and above it that of its logarithm."""
    zero: float = math.nan
    infinite: float = math.nan
    undefined: float = math.nan

    def place(self, value: float | None) -> float:
        """The coordinate of a number; NaN, which draws nothing, where there is no number."""
        if value is None:
            return math.nan
        if math.isnan(value):
            return self.undefined
        if math.isinf(value):
            return self.infinite if value > 0 else self.zero
        if not self.logarithmic:
            return value if math.isinf(self.knee) else math.asinh(value / self.knee)
        return math.log10(value) if value > 0 else self.zero

    @property
    def limits(self) -> tuple[float, float]:
        """The ends of the axis."""
        pad = PAD * (self.high - self.low)
        return self.low - pad, self.high + pad


def log_scale(values: Iterable[float | None], ticks: int = 4) -> Scale:
    """Powers of ten around the numbers, at most so many of them with a label; zero below and the rest above."""
    known = [value for value in values if value is not None]
    exponents = [math.log10(value) for value in known if 0 < value < math.inf]
    low, high = (math.floor(min(exponents)), math.ceil(max(exponents))) if exponents else (0, 1)
    high = max(high, low + 1)
    every = max(1, math.ceil((high - low) / (_left(ticks, known) - 1)))
    labels = tuple((float(power), "10" + str(power).translate(_SUPERSCRIPT)) for power in range(low, high + 1, every))
    scale = Scale(float(low), float(high), labels, logarithmic=True)
    return _with_edges(scale, known, zero=any(value == 0 for value in known))


def linear_scale(values: Iterable[float | None], ticks: int = 4, at_least: float = 0.0) -> Scale:
    """Round numbers around the values; a range below ``at_least`` is widened to it, so that noise is not blown up."""
    known = [value for value in values if value is not None]
    finite = [value for value in known if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    widen = max(at_least - (high - low), 0.0) or (1.0 if high == low else 0.0)
    low, high = low - widen / 2, high + widen / 2
    step = _round_step(low, high, _left(ticks, [value for value in known if value]))
    first, last = _multiples(low, high, step)
    labels = tuple((index * step, f"{index * step:.6g}".replace("-", "−")) for index in range(first, last + 1))
    return _with_edges(Scale(low, high, labels), known, zero=-math.inf in known)


def margin_scale(values: Iterable[float | None], least: float) -> Scale:
    """Percentage points from -100 to 100: near zero, where the minimum is, a point stays visible beside a loss of fifty."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if max(known, default=0.0) - min(known, default=0.0) <= 20:
        return linear_scale(known, 4, 5.0)
    places = [math.asinh(value / KNEE) for value in known]
    low, high = min(places), max(places)
    ticks: list[tuple[float, str]] = []
    for value in (0, -5, 5, -20, 20, -50, 50, -100, 100):
        place = math.asinh(value / KNEE)
        if low <= place <= high and all(abs(place - other) >= least * (high - low) for other, _ in ticks):
            ticks.append((place, str(value).replace("-", "−")))
    return Scale(low, high, tuple(sorted(ticks)), knee=KNEE)


def whole_scale(last: float, ticks: int = 5, first: float = 0.0) -> Scale:
    """Layers or epochs: whole numbers from the first to the last."""
    last = max(last, first + 1)
    step = max(1.0, _round_step(first, last, ticks))
    start, end = _multiples(first, last, step)
    chosen = [int(index * step) for index in range(start, end + 1)]
    return Scale(first, last, tuple((float(tick), _whole(tick)) for tick in chosen))


def _whole(number: int) -> str:
    """A round number in few letters: some logs count steps where others count epochs."""
    for unit, letter in ((1_000_000, "M"), (1000, "k")):
        if number and number % unit == 0:
            return f"{number // unit}{letter}"
    return str(number)


def _round_step(low: float, high: float, most: int) -> float:
    """The smallest of 1, 2 and 5 times a power of ten of which no more than so many multiples lie between the ends."""
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    steps = [factor * power for factor in (0.5, 1, 2, 5, 10, 20)]
    return next(step for step in steps if _multiples(low, high, step)[1] - _multiples(low, high, step)[0] < most)


def _multiples(low: float, high: float, step: float) -> tuple[int, int]:
    return math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)


def _left(ticks: int, known: list[float]) -> int:
    """The ticks that are left for finite numbers."""
    return max(2, ticks - _edges(known))


def _edges(known: list[float]) -> int:
    return (0 in known) + (math.inf in known) + any(math.isnan(value) for value in known)


def _with_edges(scale: Scale, known: list[float], *, zero: bool) -> Scale:
    """The scale with a tick for each thing that is on none; they take their room, by shares of it, from the finite part."""
    step = (0.17 + 0.08 * _edges(known)) * (scale.high - scale.low)
    if zero:
        below = scale.low - step
        label = "0" if scale.logarithmic else "−∞"
        scale = replace(scale, low=below, zero=below, ticks=((below, label), *scale.ticks))
    if math.inf in known:
        above = scale.high + step
        scale = replace(scale, high=above, infinite=above, ticks=(*scale.ticks, (above, "∞")))
    if any(math.isnan(value) for value in known):
        above = scale.high + step
        scale = replace(scale, high=above, undefined=above, ticks=(*scale.ticks, (above, "NaN")))
    return scale
