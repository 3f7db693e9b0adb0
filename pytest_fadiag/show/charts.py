"""What is drawn, as values: one description of each chart, for the page and for papers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Literal

import msgspec
from msgspec.structs import replace

from ..judge.diagnostics import Curve, Diagnostic, Finding
from ..judge.records import ENDS, Epoch
from ..judge.report import Report
from ..judge.words import grouped, limit, one_line
from .audit import Row, reports_of
from .words import score_name, title_of

COLOURS = ("#2a78c2", "#b5821d", "#1a9873", "#b864a0", "#4aa8d8", "#8a63d2", "#7d8b1f", "#a0705a")
"""Of methods, in their order; readable on light and dark."""
FIRED = "#d6453d"
LARGEST = 1e300
"""Beyond this a number is drawn as infinite."""
Role = Literal["network", "null", "control", "limit"]


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One line or one set of points, all of them measured; NaN is undefined."""

    name: str
    xs: tuple[float, ...] = ()
    """Empty for a level across the whole chart, which is the one number of ``ys``."""
    ys: tuple[float, ...]
    role: Role = "network"
    low: tuple[float, ...] = ()
    """Intervals of the points, or the band of a null."""
    high: tuple[float, ...] = ()
    fired: tuple[int, ...] = ()
    """The indices of points that make a diagnostic fire."""
    bp: tuple[int, ...] = ()
    """The indices of parts whose step is BP's own."""
    colour: int = 0
    label: str = ""
    """Which network it is of: «dfa, seed 42»."""


class Gauge(msgspec.Struct, frozen=True, kw_only=True):
    """Where one number stands: 0.5 is its threshold, below it fails, above it passes."""

    place: float
    low: float
    high: float
    """The ends of its interval."""
    look: str
    """Red, yellow or green."""


class Chart(msgspec.Struct, frozen=True):
    """What one chart shows; ``limits`` are drawn dashed."""

    title: str
    series: tuple[Series, ...]
    limits: tuple[Series, ...] = ()
    log: bool = False
    x: str = "layer l"
    ticks: tuple[str, ...] = ()
    """The names of the places 0, 1, … on x, where they are not numbers."""
    key: str = ""
    """The letter of the diagnostic that it shows."""

    @property
    def heading(self) -> str:
        """The title after the letter: «(a) median ‖h_l‖»."""
        if not self.key:
            return self.title
        return f"({self.key}) {self.title}"

    @property
    def span(self) -> tuple[float, float]:
        """The range of y: whole decades, or a little more than the numbers."""
        numbers: list[float] = []
        for series in (*self.series, *self.limits):
            numbers += [*series.ys, *series.low, *series.high]
        drawn = [number for number in numbers if not self.is_odd(number)]
        low = min(drawn, default=0.1 if self.log else 0.0)
        high = max(drawn, default=1.0)
        if self.log:
            bottom = math.floor(math.log10(low) - 0.05)
            top = math.ceil(math.log10(high) + 0.05)
            return 10.0**bottom, 10.0 ** max(top, bottom + 1)
        room = max(0.08 * (high - low), 0.02 * abs(high)) or 0.05
        return low - room, high + room

    def is_odd(self, value: float) -> bool:
        """Whether the axis has no place for a number: NaN, infinite, or zero of a logarithm."""
        return not abs(value) < LARGEST or (self.log and not value > 1 / LARGEST)


def charts_for(rows: Sequence[Row], diagnostic: Diagnostic, points: bool = True) -> list[Chart]:
    """What shows one diagnostic for these networks; a chart without a number is left out."""
    charts = []
    if diagnostic.curve_title:
        charts.append(curves(rows, diagnostic))
    if points and diagnostic.draws_numbers:
        charts.append(findings(rows, diagnostic))
    return drawable(charts)


def gauge(finding: Finding, diagnostic: Diagnostic) -> Gauge | None:
    """A number against its threshold; 20 pp, four decades, or twice the threshold fill a side."""
    value = finding.value
    if value is None or (not finding.measured and not finding.interval):
        return None
    sign = -1 if ">" in diagnostic.fails_if else 1

    def place(number: float) -> float:
        if math.isnan(number):
            return 0.0
        if diagnostic.curve_log:
            ratio = max(number, 1 / LARGEST) / finding.threshold
            side = math.log10(min(ratio, LARGEST)) / 4
        elif "pp" in diagnostic.fails_if:
            side = (number - finding.threshold) / 20
        else:
            side = (number - finding.threshold) / (2 * finding.threshold or 1.0)
        return min(max(0.5 + sign * side / 2, 0.0), 1.0)

    ends = finding.interval or (value, value)
    look = "yellow"
    if finding.measured:
        look = "red" if finding.fired else "green"
    return Gauge(place=place(value), low=place(min(ends)), high=place(max(ends)), look=look)


def drawable(charts: Sequence[Chart]) -> list[Chart]:
    """Those in which there is a number."""
    return [chart for chart in charts if chart.series]


def curves(rows: Sequence[Row], diagnostic: Diagnostic) -> Chart:
    """The curve of a diagnostic over the layers, for every network that has numbers."""
    drawn: list[Series] = []
    nulls: list[Series] = []
    levels: dict[float, str] = {}
    limits: list[Series] = []
    colours = _colours(rows)
    title = diagnostic.curve_title
    parts = _parts(rows, diagnostic)
    if parts:
        title = diagnostic.parts_title
    for row in rows:
        if row.report is None:
            continue
        curve = diagnostic.curve(row.report)
        if curve is None or bool(curve.parts) != bool(parts):
            continue
        if parts:
            curve = replace(curve, xs=list(map(parts.index, curve.parts)))
        fires = diagnostic.key in row.conclusion.fired
        colour = colours[row.method]
        series = _series(row, colour, curve, fires=fires)
        if not series:
            continue
        drawn += series
        nulls += _series(row, colour, Curve(ys=curve.null), role="null")
        bound = tuple(curve.limit)
        if bound and all(0 < value < LARGEST for value in bound):
            xs = _layers(curve)[1:]
            limits.append(Series(name=curve.limit_name, xs=xs, ys=bound, role="limit"))
        if curve.level:  # a logarithm has no place for 0
            levels[curve.level] = "floor"
    if len(drawn) > 1:
        limits = []
    return Chart(
        title.format(score=score_name(reports_of(rows))),
        (*drawn, *nulls),
        (*limits, *_levels(levels)),
        log=diagnostic.curve_log,
        x="part" if parts else "layer l",
        ticks=parts,
        key=diagnostic.key,
    )


def _parts(rows: Sequence[Row], diagnostic: Diagnostic) -> tuple[str, ...]:
    """The parts of the deepest network, then what others have; none where curves are of layers."""
    curves = filter(None, map(diagnostic.curve, reports_of(rows)))
    by_depth = sorted((curve.parts for curve in curves), key=len, reverse=True)
    if () in by_depth:
        return ()
    return tuple(dict.fromkeys(part for parts in by_depth for part in parts))


def findings(rows: Sequence[Row], diagnostic: Diagnostic) -> Chart:
    """The number of a diagnostic for every network, with its interval and threshold."""
    methods = grouped((row.method, row) for row in rows)
    series: list[Series] = []
    thresholds: dict[float, str] = {}
    for column, (method, rows_of_method) in enumerate(methods.items()):
        for nth, row in enumerate(rows_of_method):
            if row.report is None:
                continue
            finding = row.report.finding(diagnostic.key)
            if finding.value is None:
                continue
            place = float(nth)
            if len(methods) > 1:
                middle = (len(rows_of_method) - 1) / 2
                place = column + (nth - middle) / max(len(rows_of_method), 4)
            low, high = finding.interval or (finding.value, finding.value)
            fired: tuple[int, ...] = ()
            if diagnostic.key in row.conclusion.fired:
                fired = (0,)
            point = Series(
                name=one_line(method),
                xs=(place,),
                ys=(finding.value,),
                low=(low,),
                high=(high,),
                fired=fired,
                colour=column,
                label=title_of(row),
            )
            series.append(point)
            thresholds[finding.threshold] = "threshold"
    x = ""
    names = list(methods)
    if len(methods) == 1:
        x = "seed"
        names = list(map(_seed, rows))
    title = diagnostic.label
    key = ""
    if diagnostic.axis_title:
        title = diagnostic.axis_title
        key = diagnostic.key
    return Chart(title, tuple(series), _levels(thresholds), x=x, ticks=tuple(names), key=key)


def _seed(row: Row) -> str:
    if row.seed is None:
        return row.checkpoint
    return str(row.seed)


def training(rows: Sequence[Row]) -> list[Chart]:
    """‖h_L‖, ‖g‖ of the deepest logged layer, accuracy and steps over epochs.

    With the score: the mean control of each method, and that of BP where no log has it.
    """
    floors = {report.thresholds.g_norm_floor: "floor" for report in _logged(rows)}
    charts = [
        _over_epochs(rows, "‖h_L‖", lambda epoch: _deepest(epoch.residual_norms), log=True),
        _over_epochs(
            rows,
            "‖g‖, deepest layer",
            lambda epoch: _deepest(epoch.bp_grad_norms),
            _levels(floors),
            log=True,
        ),
        _over_epochs(
            rows,
            score_name(reports_of(rows)),
            lambda epoch: epoch.headline_acc,
            _levels(_mean_scores(rows), "control"),
        ),
        _over_epochs(rows, "cos(step, BP's), lowest block", _lowest_step),
    ]
    return drawable(charts)


def _logged(rows: Sequence[Row]) -> list[Report]:
    return [report for report in reports_of(rows) if report.log]


def _mean_scores(rows: Sequence[Row]) -> dict[float, str]:
    """The mean score of the controls of each method, and of BP where it has no log, by score."""
    scores: dict[str, list[float]] = {}
    logged_methods = set()
    for report in _logged(rows):
        logged_methods.add(report.method_name)
        if report.frozen_baseline_acc is not None:
            name = f"control of {report.method_name}"
            scores.setdefault(name, []).append(report.frozen_baseline_acc)
    for report in reports_of(rows):
        is_bp = report.method_name == "bp" and "bp" not in logged_methods
        if is_bp and report.headline_acc is not None:
            scores.setdefault("BP", []).append(report.headline_acc)
    return {round(fmean(values), 3): name for name, values in scores.items()}


def _over_epochs(
    rows: Sequence[Row],
    title: str,
    value: Callable[[Epoch], float | None],
    limits: tuple[Series, ...] = (),
    *,
    log: bool = False,
) -> Chart:
    """A number of every log with several epochs, over these."""
    colours = _colours(rows)
    series: list[Series] = []
    for row in rows:
        if row.report is None or row.report.log is None:
            continue
        epochs = row.report.log.epochs
        if len(epochs) > 1:
            curve = Curve(xs=[epoch.epoch for epoch in epochs], ys=list(map(value, epochs)))
            series += _series(row, colours[row.method], curve)
    return Chart(title, tuple(series), limits, log=log, x="epoch")


def _colours(rows: Sequence[Row]) -> dict[str, int]:
    """The number of each method's colour."""
    methods = dict.fromkeys(row.method for row in rows)
    return {method: number for number, method in enumerate(methods)}


def _series(
    row: Row, colour: int, curve: Curve, *, fires: bool = False, role: Role = "network"
) -> list[Series]:
    """The points of a curve that were measured, as one series; none where there is none."""
    xs: list[float] = []
    ys: list[float] = []
    for x, y in zip(_layers(curve), curve.ys, strict=True):
        if y is not None:
            xs.append(x)
            ys.append(y)
    if not ys:
        return []
    fired: tuple[int, ...] = ()
    if fires:
        fired = (len(ys) - 1,)
        if curve.decisive is not None:
            fired = curve.decisive
    series = Series(
        name=one_line(row.method),
        xs=tuple(xs),
        ys=tuple(ys),
        role=role,
        low=tuple(curve.low),
        high=tuple(curve.high),
        fired=fired,
        bp=curve.bp,
        colour=colour,
        label=title_of(row),
    )
    return [series]


def _layers(curve: Curve) -> tuple[float, ...]:
    if curve.xs is None:
        return tuple(range(len(curve.ys)))
    return tuple(curve.xs)


def _levels(names: Mapping[float, str], role: Role = "limit") -> tuple[Series, ...]:
    return tuple(
        Series(name=f"{name} {limit(value)}", ys=(value,), role=role)
        for value, name in names.items()
    )


def _lowest_step(epoch: Epoch) -> float | None:
    """The cosine of the logged updates with BP's, at the block where it is lowest."""
    step = epoch.step
    if step is None:
        return None
    cosines = []
    for part, cosine in zip(step.parts, step.plain, strict=True):
        if part not in ENDS and not math.isnan(cosine):
            cosines.append(cosine)
    return min(cosines, default=None)


def _deepest(norms: Sequence[float | None]) -> float | None:
    for norm in reversed(norms):
        if norm is not None:
            return norm
    return None
