"""What is drawn, as values: one description of each chart, for the page and for papers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any, Literal

import msgspec

from ..judge.diagnostics import Diagnostic
from ..judge.records import Credit, Epoch, SiteState
from ..judge.report import Report
from ..judge.words import grouped, limit, one_line
from .audit import Row, reports_of
from .words import score_name

COLOURS = ("#2a78c2", "#b5821d", "#1a9873", "#b864a0", "#4aa8d8", "#8a63d2", "#7d8b1f", "#a0705a")
"""Of methods, in their order; readable on light and dark."""
FIRED = "#d6453d"
TITLES = {
    "c": "cross-batch cosine",
    "d": "margin, pp",
    "e": "depth utility, pp",
    "g": "network − linear, pp",
}
"""What the numbers of diagnostics are."""
LARGEST = 1e300
"""Beyond this a number is drawn as infinite."""
Values = tuple[float | None, ...]
Role = Literal["network", "null", "control", "limit"]


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One line or one set of points; ``None`` was not measured, NaN is undefined."""

    name: str
    xs: tuple[float, ...]
    ys: Values
    role: Role = "network"
    low: tuple[float, ...] = ()
    """Intervals of the points, or the band of a null."""
    high: tuple[float, ...] = ()
    fired: tuple[int, ...] = ()
    """The indices of points that make a diagnostic fire."""
    colour: int = 0
    line: bool = True


class Chart(msgspec.Struct, frozen=True):
    """What one chart shows; ``limits`` are drawn dashed."""

    title: str
    series: tuple[Series, ...]
    limits: tuple[Series, ...] = ()
    log: bool = False
    x: str = "layer l"
    ticks: tuple[str, ...] = ()
    """The names of the places 0, 1, … on x, where they are not numbers."""

    @property
    def span(self) -> tuple[float, float]:
        """The range of y: whole decades, or a little more than the numbers."""
        numbers = [v for s in (*self.series, *self.limits) for v in (*s.ys, *s.low, *s.high)]
        known = [value for value in numbers if value is not None and not self.is_odd(value)]
        low, high = min(known, default=0.1 if self.log else 0.0), max(known, default=1.0)
        if self.log:
            floor, top = math.floor(math.log10(low) - 0.05), math.ceil(math.log10(high) + 0.05)
            return 10.0**floor, 10.0 ** max(top, floor + 1)
        room = max(0.08 * (high - low), 0.02 * abs(high)) or 0.05
        return low - room, high + room

    def is_odd(self, value: float) -> bool:
        """Whether the axis has no place for a number: NaN, infinite, or zero of a logarithm."""
        return not abs(value) < LARGEST or (self.log and not value > 1 / LARGEST)


def norms(rows: Sequence[Row]) -> Chart:
    """(a): median ‖h_l‖; for one network also what the next layer may not exceed."""

    def curve(report: Report) -> Series:
        known = [norm or 0.0 for norm in report.residual_norms]
        growth = [after / before if before else 0.0 for before, after in pairwise(known)]
        highest = growth.index(max(growth)) + 1 if growth else 0
        return _curve(report.residual_norms, fired=(highest,))

    series, limits = _overlay(rows, curve, "a"), []
    if len(series) == 1:
        (report,) = reports_of(rows)
        ratio, own = report.thresholds.h_norm_explosion_ratio, report.residual_norms
        first = report.thresholds.growth == "cumulative"
        most = [None if norm is None else ratio * norm for norm in own[:-1]]
        name = f"{limit(ratio)} × {'‖h_0‖' if first else 'the state before'}"
        limits = [
            _curve([None, *(most[:1] * len(most) if first else most)], name=name, role="limit")
        ]
    return Chart("(a) median ‖h_l‖", series, tuple(limits), log=True)


def gradients(rows: Sequence[Row]) -> Chart:
    """(b): median ‖g_l‖ with the floor of the deepest."""
    series = _overlay(rows, lambda report: _curve(report.bp_grad_norms), "b")
    floors = {report.thresholds.g_norm_floor for report in reports_of(rows)}
    limits = [_level(f"floor {limit(floor)}", floor, series) for floor in floors if floor > 0]
    return Chart("(b) median ‖g_l‖", series, tuple(limits), log=True)


def probes(rows: Sequence[Row]) -> Chart:
    """(e): the score of a linear probe at every state, with its null."""
    series = _overlay(rows, lambda report: _curve(report.probe_accuracies or ()), "e")
    series += _overlay(
        rows, lambda r: _curve(r.depth.null_probes, role="null") if r.depth else None
    )
    return Chart(f"(e) linear probe {score_name(reports_of(rows))}", series)


def gamma(rows: Sequence[Row]) -> Chart:
    """(f): Γ at every site with the band of its null."""

    def curve(report: Report) -> Series:
        credit = report.credit or Credit()
        return _credit(credit, credit.gamma, low=credit.null_low, high=credit.null_high)

    return Chart("(f) Γ and its permutation null", _overlay(rows, curve, "f"))


def nudge(rows: Sequence[Row]) -> Chart:
    """(f): the loss that a small step along the credit saves, relative to a step of BP."""

    def curve(report: Report) -> Series | None:
        return _credit(report.credit, report.credit.nudge) if report.credit else None

    series = _overlay(rows, curve, "f")
    return Chart("(f) Δloss along the credit, BP = 1", series, (_level("BP", 1.0, series),))


def findings(rows: Sequence[Row], diagnostic: Diagnostic) -> Chart:
    """The number of a diagnostic for every network, with its interval and threshold."""
    methods = list(dict.fromkeys(row.method for row in rows))
    by_seed = len(methods) == 1
    places = {}
    for number, row in enumerate(rows):
        same = [other for other in rows if other.method == row.method]
        aside = (same.index(row) - (len(same) - 1) / 2) / max(len(same), 4)
        places[row.checkpoint] = float(number) if by_seed else methods.index(row.method) + aside
    series, limits = [], {}
    for row in rows:
        finding = row.report.finding(diagnostic.key) if row.report else None
        if finding is not None and finding.value is not None:
            low, high = finding.interval or (finding.value, finding.value)
            point = Series(
                name=one_line(row.method),
                xs=(places[row.checkpoint],),
                ys=(finding.value,),
                low=(low,),
                high=(high,),
                fired=(0,) if diagnostic.key in row.status.fired else (),
                colour=methods.index(row.method),
                line=False,
            )
            series.append(point)
            limits[finding.threshold] = f"threshold {limit(finding.threshold)}"
    names = (
        [row.checkpoint if row.seed is None else str(row.seed) for row in rows]
        if by_seed
        else methods
    )
    ends = (-0.5, len(names) - 0.5)
    what = TITLES.get(diagnostic.key)
    return Chart(
        f"({diagnostic.key}) {what}" if what else diagnostic.label,
        tuple(series),
        tuple(
            Series(name=name, xs=ends, ys=(value, value), role="limit")
            for value, name in limits.items()
        ),
        x="seed" if by_seed else "",
        ticks=tuple(names),
    )


def against_score(rows: Sequence[Row]) -> Chart:
    """Γ at each block of a network against the network's score."""

    def curve(report: Report) -> Series | None:
        credit, score = report.credit, report.headline_acc
        if credit is None or score is None or not credit.sites:
            return None
        ys = [g for site, g in zip(credit.sites, credit.gamma, strict=True) if site != "h_0"]
        return _curve(ys, xs=(score,) * len(ys))

    return Chart("Γ at each block", _overlay(rows, curve), x=score_name(reports_of(rows)))


def trained_and_frozen(rows: Sequence[Row]) -> Chart:
    """The score with frozen random blocks and with trained ones."""

    def curve(report: Report) -> Series | None:
        known = None not in (report.frozen_baseline_acc, report.headline_acc)
        return _curve((report.frozen_baseline_acc, report.headline_acc)) if known else None

    ticks = ("frozen random blocks", "trained blocks")
    return Chart(score_name(reports_of(rows)), _overlay(rows, curve), x="", ticks=ticks)


def training(rows: Sequence[Row]) -> list[Chart]:
    """‖h_L‖, ‖g‖ of the deepest logged layer, accuracy and cosine over epochs.

    With the score: the mean control of each method, and that of BP where no log has it.
    """
    reports = [report for report in reports_of(rows) if report.log]
    floors = {report.thresholds.g_norm_floor: "floor" for report in reports}
    ceilings = {report.thresholds.stability_drift_ceiling: "ceiling" for report in reports}
    controls = grouped(
        (report.method_name, report.frozen_baseline_acc)
        for report in reports
        if report.frozen_baseline_acc is not None
    )
    means = {round(fmean(known), 3): f"control of {name}" for name, known in controls.items()}
    bp = reports_of(row for row in rows if row.method == "bp")
    best = [report.headline_acc for report in bp if report.headline_acc is not None]
    if best and not any(report.log for report in bp):
        means[round(fmean(best), 3)] = "BP"
    wanted: list[tuple[str, Callable[[Epoch], Sequence[float | None]], bool, dict[float, str]]] = [
        ("‖h_L‖", lambda epoch: epoch.residual_norms, True, {}),
        ("‖g‖, deepest layer", lambda epoch: epoch.bp_grad_norms, True, floors),
        (score_name(reports_of(rows)), lambda epoch: (epoch.headline_acc,), False, means),
        ("(c) cosine", lambda epoch: (epoch.cross_batch_stability,), False, ceilings),
    ]
    charts = []
    for title, values, log, levels in wanted:

        def curve(report: Report, values: Any = values) -> Series | None:
            epochs = report.log.epochs if report.log else ()
            last = [
                next((v for v in values(epoch)[::-1] if v is not None), None) for epoch in epochs
            ]
            xs = tuple(float(epoch.epoch) for epoch in epochs)
            return _curve(last, xs=xs, fired=()) if len(epochs) > 1 else None

        series = _overlay(rows, curve)
        role: Role = "control" if levels is means else "limit"
        limits = [
            _level(f"{name} {limit(value)}", value, series, role) for value, name in levels.items()
        ]
        charts.append(Chart(title, series, tuple(limits), log=log, x="epoch"))
    return [chart for chart in charts if chart.series]


def charts_for(rows: Sequence[Row], diagnostic: Diagnostic, points: bool = True) -> list[Chart]:
    """What shows one diagnostic for these networks; a chart without a number is left out."""
    curves = {"a": [norms], "b": [gradients], "e": [probes], "f": [gamma, nudge]}
    found = [draw(rows) for draw in curves.get(diagnostic.key, [])]
    if diagnostic.key not in ("a", "b", "f") and points:
        found.append(findings(rows, diagnostic))
    return [chart for chart in found if chart.series]


def _curve(ys: Sequence[float | None], **rest: Any) -> Series:
    """A line over layers whose last point decides."""
    layers = tuple(map(float, range(len(ys))))
    return Series(**{"name": "", "xs": layers, "ys": tuple(ys), "fired": (len(ys) - 1,), **rest})


def _credit(credit: Credit, ys: Sequence[float], **rest: Any) -> Series:
    xs = tuple(float(site.removeprefix("h_")) for site in credit.sites)
    states = enumerate(credit.state)
    fired = tuple(n for n, state in states if xs[n] and state is not SiteState.ALIGNED)
    return _curve(ys, xs=xs, fired=fired, **rest)


def _level(name: str, value: float, series: Sequence[Series], role: Role = "limit") -> Series:
    """A horizontal line across all series."""
    xs = [x for one in series for x in one.xs] or [0.0]
    return Series(name=name, xs=(min(xs), max(xs)), ys=(value, value), role=role)


def _overlay(
    rows: Sequence[Row], curve: Callable[[Report], Series | None], key: str = ""
) -> tuple[Series, ...]:
    """The series of every network that has one, in the colour of its method."""
    methods = list(dict.fromkeys(row.method for row in rows))
    drawn = []
    for row in rows:
        one = curve(row.report) if row.report else None
        if one is not None and any(y is not None for y in one.ys):
            fired = one.fired if key in row.status.fired else ()
            name, colour = one_line(row.method), methods.index(row.method)
            drawn.append(msgspec.structs.replace(one, name=name, colour=colour, fired=fired))
    return tuple(drawn)
