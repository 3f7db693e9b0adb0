"""A chart as SVG for the page and for notebooks; text has the colour of what is around it."""

from __future__ import annotations

import html
import math
from collections.abc import Callable

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
WIDTH, HEIGHT = 340, 190
LEFT, RIGHT, TOP, BOTTOM = 50, 330, 28, 154
LABELS = 36
"""What slanted names on x need."""
MOST_DOTS = 40
Scale = Callable[[float], float]


def svg(chart: Chart) -> str:
    """The chart as one element, escaped."""
    (low, high), log = chart.span, math.log10 if chart.log else float
    xs = [x for one in (*chart.series, *chart.limits) for x in one.xs]
    first, last = (-0.5, len(chart.ticks) - 0.5) if chart.ticks else (min(xs), max(xs))
    first, last = (first, last) if last > first else (first - 0.5, last + 0.5)

    def across(x: float) -> float:
        return LEFT + 8 + (x - first) / (last - first) * (RIGHT - LEFT - 16)

    def up(y: float) -> float:
        if chart.is_odd(y):
            return TOP + 4.0 if y > 1 else BOTTOM - 4.0
        return BOTTOM - 10 - (log(y) - log(low)) / (log(high) - log(low)) * (BOTTOM - TOP - 20)

    height = HEIGHT + (LABELS if chart.ticks else 0)
    said = one_line(f"{chart.title}: {'; '.join(map(_said, chart.series))}")
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{html.escape(said)}">',
        '<g font-size="10" font-family="system-ui, sans-serif" fill="currentColor">',
        _text(0, 13, chart.title, 'font-size="12" font-weight="600"'),
        _path([(LEFT, TOP), (LEFT, BOTTOM), (RIGHT, BOTTOM)], 'stroke="currentColor" opacity=".4"'),
    ]
    for value, name in _ticks(low, high, chart.log):
        parts.append(
            _path([(LEFT, up(value)), (RIGHT, up(value))], 'stroke="currentColor" opacity=".12"')
        )
        parts.append(_text(LEFT - 5, up(value) + 3, name, 'text-anchor="end" opacity=".75"'))
    for place, name in enumerate(chart.ticks) if chart.ticks else _ticks(first, last, whole=True):
        x = across(place)
        slanted = f'text-anchor="end" transform="rotate(-30 {x:.1f} {BOTTOM + 13})"'
        look = slanted if chart.ticks else 'text-anchor="middle"'
        parts.append(
            _text(
                x, BOTTOM + 13, name if len(name) < 17 else f"{name[:15]}…", f'{look} opacity=".75"'
            )
        )
    parts.append(
        _text((LEFT + RIGHT) / 2, height - 6, chart.x, 'text-anchor="middle" opacity=".75"')
    )
    for one in (*chart.limits, *chart.series):
        parts += _drawn(chart, one, across, up)
    return "".join([*parts, "</g></svg>"])


def sample(colour: int) -> str:
    """The line of a method, for a legend."""
    dash = DASHES[colour % len(DASHES)]
    look = f'stroke="{COLOURS[colour % len(COLOURS)]}" stroke-width="2" stroke-dasharray="{dash}"'
    return f'<svg viewBox="0 0 32 8" aria-hidden="true">{_path([(0, 4), (32, 4)], look)}</svg>'


def _drawn(chart: Chart, one: Series, across: Scale, up: Scale) -> list[str]:
    """The band or intervals, the line without its holes, and a symbol at each point."""
    colour = FIRED if one.role == "limit" else COLOURS[one.colour % len(COLOURS)]
    look = f'stroke="{colour}" {LOOKS[one.role]}'
    if one.role == "network":
        look += f' stroke-dasharray="{DASHES[one.colour % len(DASHES)]}"'
    points = [(across(x), y) for x, y in zip(one.xs, one.ys, strict=True)]
    bounds = [
        (x, up(low), up(high)) for (x, _), low, high in zip(points, one.low, one.high, strict=False)
    ]
    parts = [
        _path([(x, low), (x, high)], f'stroke="{colour}" stroke-width="5" opacity=".25"')
        for x, low, high in bounds
    ]
    run: list[tuple[float, float]] = []
    for x, y in [*points, (0.0, None)]:
        if y is not None and not chart.is_odd(y):
            run.append((x, up(y)))
            continue
        parts += [_path(run, look)] if len(run) > 1 and one.line else []
        run = []
    for index, (x, y) in enumerate(points):
        if y is None or one.role != "network":
            continue
        fired, odd = index in one.fired, chart.is_odd(y)
        if fired or odd or len(points) <= MOST_DOTS:
            parts.append(
                _symbol(x, up(y), f"{one.name}: {sig(y)}", FIRED if fired else colour, fired, odd)
            )
    ends = [(x, up(y)) for x, y in points if y is not None and not chart.is_odd(y)]
    if one.role == "limit" and ends:
        look = f'text-anchor="end" fill="{FIRED}"'
        parts.append(_text(ends[-1][0], ends[-1][1] - 3, one.name, look))
    return parts


def _symbol(x: float, y: float, hint: str, colour: str, fired: bool, odd: bool) -> str:
    """A dot; a square where a diagnostic fires, a cross for what the axis has no place for."""
    size = 3.4 if fired else 2.4
    shape = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" fill="{colour}">'
    if fired:
        side = f'width="{2 * size}" height="{2 * size}"'
        shape = f'<rect x="{x - size:.1f}" y="{y - size:.1f}" {side} fill="{colour}">'
    if odd:
        ends = f"M{x - 3:.1f} {y - 3:.1f}l6 6m0 -6l-6 6"
        shape = f'<path d="{ends}" stroke="{colour}" stroke-width="1.6">'
    return f"{shape}<title>{html.escape(one_line(hint))}</title></{shape[1:].partition(' ')[0]}>"


def _path(points: list[tuple[float, float]], look: str) -> str:
    places = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path d="M{places}" fill="none" {look}/>'


def _text(x: float, y: float, words: str, look: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {look}>{html.escape(one_line(words))}</text>'


def _said(one: Series) -> str:
    return f"{one.name} {', '.join('–' if y is None else sig(y) for y in one.ys[:MOST_DOTS])}"


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
