"""A chart as SVG for the page and for notebooks; text has the colour of what is around it."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable

from ..judge.words import one_line, sig
from .charts import COLOURS, FIRED, Chart, Series

DASHES = ("", "7 3", "2 2.5", "8 3 2 3")
"""By colour, so that lines differ without colour too."""
LOOKS = {
    "network": 'stroke-width="1.7"',
    "null": 'stroke-width="1" stroke-dasharray="1 3"',
    "control": 'stroke-width="1.2" stroke-dasharray="6 4" opacity=".6"',
    "limit": 'stroke-width="1.3" stroke-dasharray="5 3"',
}
DOT, SQUARE, CROSS = "m-2 0a2 2 0 1 0 4 0a2 2 0 1 0 -4 0", "m-3 -3h6v6h-6z", "m-3 -3l6 6m0 -6l-6 6"
"""Of a point; where a diagnostic fires; of what the axis has no place for."""
WIDTH, HEIGHT = 340, 190
LEFT, RIGHT, TOP, BOTTOM = 50, 330, 28, 154
LABELS = 36
"""What slanted names on x need."""
MOST_DOTS = 40
QUIET = 'opacity=".75"'
GREY = 'stroke="currentColor"'
Scale = Callable[[float], float]


def svg(chart: Chart) -> str:
    """The chart as one element, escaped."""
    (low, high), log = chart.span, math.log10 if chart.log else float
    xs = [x for one in chart.series for x in one.xs]
    first, last = (-0.5, len(chart.ticks) - 0.5) if chart.ticks else (min(xs), max(xs))
    first, last = (first, last) if last > first else (first - 0.5, last + 0.5)

    def across(x: float) -> float:
        return LEFT + 8 + (x - first) / (last - first) * (RIGHT - LEFT - 16)

    def up(y: float) -> float:
        if chart.is_odd(y):
            return TOP + 4.0 if y > 1 else BOTTOM - 4.0
        return BOTTOM - 10 - (log(y) - log(low)) / (log(high) - log(low)) * (BOTTOM - TOP - 20)

    height = HEIGHT + (LABELS if chart.ticks else 0)
    title = html.escape(one_line(chart.heading))
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{title}">',
        '<g font-size="10" font-family="system-ui, sans-serif" fill="currentColor">',
        _text(0, 13, chart.heading, 'font-size="12" font-weight="600"'),
        _line([(LEFT, TOP), (LEFT, BOTTOM), (RIGHT, BOTTOM)], f'{GREY} opacity=".4"'),
    ]
    for value, name in _ticks(low, high, chart.log):
        y = up(value)
        parts.append(_line([(LEFT, y), (RIGHT, y)], f'{GREY} opacity=".12"'))
        parts.append(_text(LEFT - 5, y + 3, name, f'text-anchor="end" {QUIET}'))
    middle = f'text-anchor="middle" {QUIET}'
    for place, name in enumerate(chart.ticks) if chart.ticks else _ticks(first, last, whole=True):
        x, y = across(place), BOTTOM + 13
        slanted = f'text-anchor="end" transform="rotate(-30 {x:.1f} {y})" {QUIET}'
        short = name if len(name) < 17 else f"{name[:15]}…"
        parts.append(_text(x, y, short, slanted if chart.ticks else middle))
    parts.append(_text((LEFT + RIGHT) / 2, height - 6, chart.x, middle))
    for one in (*chart.limits, *chart.series):
        parts += _drawn(chart, one, across, up)
    return "".join([*parts, "</g></svg>"])


def sample(colour: int) -> str:
    """The line of a method, for a legend."""
    line = _line([(0, 4), (32, 4)], f'{_stroke(colour)} stroke-width="2"')
    return f'<svg viewBox="0 0 32 8" aria-hidden="true">{line}</svg>'


def _stroke(colour: int) -> str:
    """How the lines of a method look."""
    dash = DASHES[colour % len(DASHES)]
    return f'stroke="{COLOURS[colour % len(COLOURS)]}" stroke-dasharray="{dash}"'


def _drawn(chart: Chart, one: Series, across: Scale, up: Scale) -> list[str]:
    """The band or intervals, the line without its holes, and a symbol at each point."""
    colour = FIRED if one.role == "limit" else COLOURS[one.colour % len(COLOURS)]
    look = _stroke(one.colour) if one.role == "network" else f'stroke="{colour}"'
    level = [(float(x), y) for x in (LEFT, RIGHT) for y in one.ys]
    points = [(across(x), y) for x, y in zip(one.xs, one.ys, strict=True)] if one.xs else level
    places = [(x, math.nan if chart.is_odd(y) else up(y)) for x, y in points]
    parts = [
        _line([(x, up(low)), (x, up(high))], f'stroke="{colour}" stroke-width="5" opacity=".25"')
        for (x, _), low, high in zip(points, one.low, one.high, strict=False)
    ]
    if len(points) > 1:
        parts.append(_line(places, f"{look} {LOOKS[one.role]}"))
    for index, (x, y) in enumerate(points if one.role == "network" else ()):
        fired, odd = index in one.fired, chart.is_odd(y)
        if fired or odd or len(points) <= MOST_DOTS:
            shape, ink = CROSS if odd else SQUARE if fired else DOT, FIRED if fired else colour
            hint = html.escape(one_line(f"{one.name}: {sig(y)}"))
            parts.append(
                f'<path d="M{x:.1f} {up(y):.1f}{shape}" fill="{ink}" stroke="{ink}">'
                f"<title>{hint}</title></path>"
            )
    if one.role == "limit":
        x, y = places[-1]
        parts.append(_text(x, y - 3, one.name, f'text-anchor="end" fill="{FIRED}"'))
    return parts


def _line(points: Iterable[tuple[float, float]], look: str) -> str:
    """A line through these points that leaves out NaN."""
    path, pen = "", "M"
    for x, y in points:
        path, pen = (path, "M") if math.isnan(y) else (f"{path}{pen}{x:.1f} {y:.1f}", "L")
    return f'<path d="{path}" fill="none" {look}/>'


def _text(x: float, y: float, words: str, look: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {look}>{html.escape(one_line(words))}</text>'


def _ticks(
    low: float, high: float, log: bool = False, whole: bool = False
) -> list[tuple[float, str]]:
    """About five places with their names: powers of ten, else steps of 1, 2 or 5."""
    if log:
        first, last = round(math.log10(low)), round(math.log10(high))
        decades = range(first, last + 1, max(1, math.ceil((last - first) / 5)))
        return [
            (10.0**decade, f"1e{decade}" if abs(decade) > 2 else f"{10.0**decade:g}")
            for decade in decades
        ]
    power = 10.0 ** math.floor(math.log10((high - low) / 5))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor * 6 >= high - low)
    step = max(step, 1.0) if whole else step
    numbers = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return [(number * step, f"{number * step:.10g}".replace("-", "−")) for number in numbers]
