"""Numbers and lists as the report, the table and the summary line write them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable


def figure(value: float) -> str:
    """Three significant digits, in powers of ten where plain digits would mislead: 1.4, 255, 2.8e+03, 1.3e-08."""
    if not math.isfinite(value):
        return "undefined" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if value == 0:
        return "0"
    return f"{value:.3g}" if 0.01 <= abs(value) < 1000 else f"{value:.1e}"


def beside(show: Callable[[float], str], value: float, threshold: float) -> str:
    """A value with as many digits as it takes to differ from the threshold that it is compared with."""
    text = show(value)
    if not math.isfinite(value) or value == threshold or float(text) != threshold:
        return text
    return next((more for digits in range(3, 18) if float(more := f"{value:.{digits}g}") != threshold), repr(value))


def limit(value: float) -> str:
    """A threshold as a person types it: 50, 0.3, 1e-07."""
    return f"{value:g}"


def cosine(value: float) -> str:
    """A cosine with its sign only where it is negative: 0.060, -0.058."""
    return f"{value:.3f}" if math.isfinite(value) else figure(value)


def points(value: float) -> str:
    """A margin in percentage points, always with its sign: +1.40."""
    return f"{value:+.2f}"


def fraction(value: float) -> str:
    """An accuracy: 0.8902."""
    return f"{value:.4f}"


def per_site(symbol: str, values: Iterable[float]) -> str:
    """Every value of the stream with its index: h_0 35.1  h_1 40.2."""
    return "  ".join(f"{symbol}_{index} {figure(value)}" for index, value in enumerate(values))


def count(number: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun: 1 sample, 12 samples."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
