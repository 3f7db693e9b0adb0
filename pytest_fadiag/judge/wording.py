"""Numbers and lists as the report, the table and the summary line write them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Sequence

WIDTH = 118
"""Where the text of a report folds its sentences; the lists of norms are folded too."""


LOG = " (log)"
"""Behind the name of a method that is known from training logs."""


def as_log(name: str, partial: bool) -> str:
    """The name of a method, marked where it comes from training logs."""
    return f"{name}{LOG}" if partial else name


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


def signed_cosine(value: float) -> str:
    """A cosine whose sign is what it tells: +0.437, -0.058."""
    return f"{value:+.3f}" if math.isfinite(value) else figure(value)


def points(value: float) -> str:
    """A margin in percentage points, always with its sign: +1.40."""
    return f"{value:+.2f}"


def fraction(value: float) -> str:
    """An accuracy: 0.8902."""
    return f"{value:.4f}"


def per_site(symbol: str, values: Sequence[float | None], *, depth_known: bool = True, between: str = "  ") -> str:
    """Every known value of the stream with its index: h_0 35.1  h_1 40.2."""
    layers = [(site(index, values, depth_known=depth_known), value) for index, value in enumerate(values)]
    return between.join(f"{symbol}_{layer} {figure(value)}" for layer, value in layers if value is not None) or "none logged"


def site(index: int, values: Sequence[float | None], *, depth_known: bool = True) -> str:
    """The number of a layer, or L for the last one where nobody knows how many there are."""
    return str(index) if depth_known or index + 1 < len(values) else "L"


def listed(parts: Iterable[str]) -> str:
    """Words in a row: a, b and c."""
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def spans(numbers: Sequence[int]) -> str:
    """Numbers in a row, neighbours as one: 0, 2–4."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def folded(prefix: str, lines: Iterable[str]) -> list[str]:
    """Lines folded at the width of a report, their continuations indented."""
    hang = " " * (len(prefix) - len(prefix.lstrip()) + 2)
    result: list[str] = []
    for line in lines:
        result += textwrap.wrap(
            line, WIDTH, initial_indent=prefix, subsequent_indent=hang, break_long_words=False, break_on_hyphens=False
        ) or [prefix.rstrip()]
    return result


def count(number: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun: 1 sample, 12 samples."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
