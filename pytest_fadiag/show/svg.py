"""A chart as SVG for the page and for notebooks; text has the colour of what is around it."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Iterator

from ..judge.words import one_line, sig
from .charts import COLOURS, FIRED, Chart, Gauge, Series

DASHES = ("", "7 3", "2 2.5", "8 3 2 3")
"""By colour, so that lines differ without colour too."""
LOOKS = {
    "network": 'stroke-width="1.7"',
    "null": 'stroke-width="1" stroke-dasharray="1 3"',
    "control": 'stroke-width="1.2" stroke-dasharray="6 4" opacity=".6"',
    "limit": 'stroke-width="1.3" stroke-dasharray="5 3"',
}
DOT = "m-2 0a2 2 0 1 0 4 0a2 2 0 1 0 -4 0"
SQUARE = "m-3 -3h6v6h-6z"
"""Marks where a diagnostic fires."""
DIAMOND = "m-5 0l5 -5l5 5l-5 5z"
"""Marks a part of which the step is BP's own."""
CROSS = "m-3 -3l6 6m0 -6l-6 6"
"""Marks a number that the axis has no place for."""
WIDTH, HEIGHT = 340, 190
LEFT, RIGHT, TOP, BOTTOM = 50, 330, 28, 154
SLANTED_HEIGHT = 36
"""The height that slanted names on x add."""
MOST_DOTS = 40
LONGEST_NAME = 16
QUIET = 'opacity=".75"'
GREY = 'stroke="currentColor"'


def svg(chart: Chart) -> str:
    """The chart as one element, escaped."""
    plane = _Plane(chart)
    height = HEIGHT
    if chart.ticks:
        height += SLANTED_HEIGHT
    title = html.escape(one_line(chart.heading))
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{title}">',
        '<g font-size="10" font-family="system-ui, sans-serif" fill="currentColor">',
        _text(0, 13, chart.heading, 'font-size="12" font-weight="600"'),
        _line([(LEFT, TOP), (LEFT, BOTTOM), (RIGHT, BOTTOM)], f'{GREY} opacity=".4"'),
        *_y_ticks(plane),
        *_x_ticks(plane),
        _text((LEFT + RIGHT) / 2, height - 6, chart.x, f'text-anchor="middle" {QUIET}'),
    ]
    for series in (*chart.limits, *chart.series):
        parts += _series(series, plane)
    return "".join([*parts, "</g></svg>"])


def sample(colour: int) -> str:
    """The line of a method, for a legend."""
    line = _line([(0, 4), (32, 4)], f'{_stroke(colour)} stroke-width="2"')
    return f'<svg viewBox="0 0 32 8" aria-hidden="true">{line}</svg>'


def gauge_svg(gauge: Gauge) -> str:
    """A bar from failing to passing, the threshold in the middle; the numbers stand beside it."""
    ends = [(160 * place, 9.0) for place in (gauge.low, gauge.high)]
    parts = [
        '<svg class="gauge" viewBox="-4 0 168 18" width="168" height="18" aria-hidden="true">',
        f'<path d="M0 9H160" {GREY} opacity=".25" stroke-width="2"/>',
        f'<path d="M80 2V16" {GREY} stroke-width="1.5" opacity=".8"/>',
        f'<g class="{gauge.look}">',
        _line(ends, f'{GREY} stroke-width="6" opacity=".35"'),
        f'<circle cx="{160 * gauge.place:.1f}" cy="9" r="4" fill="currentColor"/></g></svg>',
    ]
    return "".join(parts)


class _Plane:
    """Where the numbers of a chart stand in its drawing."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        self.scale = math.log10 if chart.log else float
        self.low, self.high = chart.span
        if chart.ticks:
            self.first, self.last = -0.5, len(chart.ticks) - 0.5
            return
        places: list[float] = []
        for series in chart.series:
            places += series.xs
        self.first = min(places)
        self.last = max(places)
        if self.first == self.last:  # a single place is in the middle
            self.first -= 0.5
            self.last += 0.5

    def x(self, place: float) -> float:
        return LEFT + 8 + (place - self.first) / (self.last - self.first) * (RIGHT - LEFT - 16)

    def y(self, value: float) -> float:
        """The height of a number; at the edge where the axis has no place for it."""
        if self.chart.is_odd(value):
            if value > 1:
                return TOP + 4.0
            return BOTTOM - 4.0
        bottom = self.scale(self.low)
        share = (self.scale(value) - bottom) / (self.scale(self.high) - bottom)
        return BOTTOM - 10 - share * (BOTTOM - TOP - 20)

    def points(self, series: Series) -> list[tuple[float, float]]:
        """The places on x with the numbers of a series, which may be a level across the chart."""
        if not series.xs:
            (level,) = series.ys
            return [(LEFT, level), (RIGHT, level)]
        return [(self.x(place), y) for place, y in zip(series.xs, series.ys, strict=True)]


def _y_ticks(plane: _Plane) -> Iterator[str]:
    ticks = _round_numbers(plane.low, plane.high)
    if plane.chart.log:
        ticks = _decades(plane.low, plane.high)
    for value, name in ticks:
        y = plane.y(value)
        yield _line([(LEFT, y), (RIGHT, y)], f'{GREY} opacity=".12"')
        yield _text(LEFT - 5, y + 3, name, f'text-anchor="end" {QUIET}')


def _x_ticks(plane: _Plane) -> Iterator[str]:
    """The names of the places, slanted; without names whole numbers."""
    y = BOTTOM + 13
    for place, name in enumerate(plane.chart.ticks):
        x = plane.x(place)
        slant = f'text-anchor="end" transform="rotate(-30 {x:.1f} {y})"'
        short = name
        if len(name) > LONGEST_NAME:
            short = f"{name[: LONGEST_NAME - 1]}…"
        yield _text(x, y, short, f"{slant} {QUIET}")
    if not plane.chart.ticks:
        for number, name in _round_numbers(plane.first, plane.last, least_step=1.0):
            yield _text(plane.x(number), y, name, f'text-anchor="middle" {QUIET}')


def _decades(low: float, high: float) -> Iterator[tuple[float, str]]:
    """About five powers of ten with their names."""
    first = round(math.log10(low))
    last = round(math.log10(high))
    for decade in range(first, last + 1, max(1, math.ceil((last - first) / 5))):
        name = f"{10.0**decade:g}"
        if abs(decade) > 2:
            name = f"1e{decade}"
        yield 10.0**decade, name


def _round_numbers(low: float, high: float, least_step: float = 0.0) -> Iterator[tuple[float, str]]:
    """About five numbers with their names, in steps of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10((high - low) / 5))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor * 6 >= high - low)
    step = max(step, least_step)
    last = math.floor(high / step + 1e-9)
    for number in range(math.ceil(low / step - 1e-9), last + 1):
        yield number * step, f"{number * step:.10g}".replace("-", "−")


def _stroke(colour: int) -> str:
    """How the lines of a method look."""
    dash = DASHES[colour % len(DASHES)]
    return f'stroke="{COLOURS[colour % len(COLOURS)]}" stroke-dasharray="{dash}"'


def _series(series: Series, plane: _Plane) -> Iterator[str]:
    """The intervals, the line without its holes, and symbols at the points or the limit's name."""
    colour = COLOURS[series.colour % len(COLOURS)]
    if series.role == "limit":
        colour = FIRED
    look = f'stroke="{colour}"'
    if series.role == "network":
        look = _stroke(series.colour)
    points = plane.points(series)
    for (x, _), low, high in zip(points, series.low, series.high, strict=False):
        ends = [(x, plane.y(low)), (x, plane.y(high))]
        yield _line(ends, f'stroke="{colour}" stroke-width="5" opacity=".25"')
    places = []
    for x, y in points:
        height = math.nan
        if not plane.chart.is_odd(y):
            height = plane.y(y)
        places.append((x, height))
    if len(places) > 1:
        yield _line(places, f"{look} {LOOKS[series.role]}")
    if series.role == "network":
        yield from _symbols(series, plane, colour)
    if series.role == "limit":
        x, y = places[-1]
        yield _text(x, y - 3, series.name, f'text-anchor="end" fill="{FIRED}"')


def _symbols(series: Series, plane: _Plane, colour: str) -> Iterator[str]:
    """A symbol at each point, which tells its number; no dots where there are too many."""
    points = plane.points(series)
    for index, (x, y) in enumerate(points):
        fires = index in series.fired
        if plane.chart.is_odd(y):
            shape = CROSS
        elif fires:
            shape = SQUARE
        elif len(points) <= MOST_DOTS:
            shape = DOT
        else:
            continue
        ink = colour
        if fires:
            ink = FIRED
        path = f'd="M{x:.1f} {plane.y(y):.1f}{shape}" fill="{ink}" stroke="{ink}"'
        layer = ""
        if plane.chart.x == "layer l":
            layer = f", layer {series.xs[index]:g}"
        hint = html.escape(one_line(f"{series.label or series.name}{layer}: {sig(y)}"))
        yield f"<path {path}><title>{hint}</title></path>"
        if index in series.bp:
            ring = f'd="M{x:.1f} {plane.y(y):.1f}{DIAMOND}" fill="none" {GREY}'
            yield f"<path {ring}><title>BP's own</title></path>"


def _line(points: Iterable[tuple[float, float]], look: str) -> str:
    """A line through these points that leaves out NaN."""
    path = ""
    command = "M"
    for x, y in points:
        if math.isnan(y):
            command = "M"
        else:
            path += f"{command}{x:.1f} {y:.1f}"
            command = "L"
    return f'<path d="{path}" fill="none" {look}/>'


def _text(x: float, y: float, words: str, look: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {look}>{html.escape(one_line(words))}</text>'
