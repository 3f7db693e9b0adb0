"""Axes on which every number has a place: zero, infinity and NaN get ticks of their own beyond the finite range."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from matplotlib.ticker import EngFormatter, MaxNLocator

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


def log_scale(values: Iterable[float | None], ticks: int = 5) -> Scale:
    """Powers of ten around the numbers, at most so many of them with a label; zero below and the rest above."""
    # The axis is linear in the exponents: beyond 1e308, where infinity has its tick, matplotlib's logarithms overflow.
    known = [value for value in values if value is not None]
    exponents = [math.log10(value) for value in known if 0 < value < math.inf]
    low, high = (math.floor(min(exponents)), math.ceil(max(exponents))) if exponents else (0, 1)
    high = max(high, low + 1)
    places = _round(low, high, _left(ticks, known) - 1, whole=True, steps=(1, 2, 3, 4, 5, 6, 10))
    labels = tuple((place, "10" + str(int(place)).translate(_SUPERSCRIPT)) for place in places)
    scale = Scale(float(low), float(high), labels, logarithmic=True)
    return _with_edges(scale, known, zero=any(value == 0 for value in known))


def linear_scale(values: Iterable[float | None], ticks: int = 4, at_least: float = 0.0) -> Scale:
    """Round numbers around the values; a range below ``at_least`` is widened to it, so that noise is not blown up."""
    known = [value for value in values if value is not None]
    finite = [value for value in known if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    widen = max(at_least - (high - low), 0.0) or (1.0 if high == low else 0.0)
    low, high = low - widen / 2, high + widen / 2
    places = _round(low, high, _left(ticks, [value for value in known if value]) - 1)
    labels = tuple((place, f"{place:.6g}".replace("-", "−")) for place in places)
    return _with_edges(Scale(low, high, labels), known, zero=-math.inf in known)


def margin_scale(values: Iterable[float | None], least: float) -> Scale:
    """Percentage points from -100 to 100: near zero, where the minimum is, a point stays visible beside a loss of fifty."""
    # matplotlib's locators for such scales label -10, -1, 0 and 1, which touch here.
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
    """Layers or epochs: whole numbers from the first to the last, thousands in few letters where a log counts steps."""
    last = max(last, first + 1)
    label = EngFormatter(sep="")
    return Scale(first, last, tuple((place, label(place)) for place in _round(first, last, ticks, whole=True)))


def _round(low: float, high: float, most: int, *, whole: bool = False, steps: Sequence[float] = (1, 2, 5, 10)) -> list[float]:
    """Round numbers between the ends, with at most so many steps."""
    places = MaxNLocator(most, integer=whole, steps=list(steps)).tick_values(low, high)
    slack = 1e-9 * (high - low)
    return [float(place) for place in places if low - slack <= place <= high + slack]


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
