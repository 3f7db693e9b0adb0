"""What is drawn, as values: one description of each chart, for the page and for papers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, Literal

import msgspec

from ..judge.diagnostics import Diagnostic
from ..judge.diagnostics.residual_growth import block_growths as steps
from ..judge.diagnostics.residual_growth import comparable_norms as compared
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
Fields = dict[str, Any]
"""Of a series, all but its name and colour."""
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
    colour: int = 0


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
        known = [value for value in numbers if not self.is_odd(value)]
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

    def curve(report: Report) -> Fields:
        growth = [0.0, *steps([norm for norm in compared(report) if norm is not None])]
        return {"ys": report.residual_norms, "fired": (growth.index(max(growth)),)}

    series, limits = _overlay(rows, curve, "a"), []
    if len(series) == 1:
        (report,) = reports_of(rows)
        ratio, before = report.thresholds.h_norm_explosion_ratio, report.residual_norms[:-1]
        name = f"{limit(ratio)} × the state before"
        if report.thresholds.growth == "cumulative":
            name, before = f"{limit(ratio)} × ‖h_0‖", before[:1] * len(before)
        most = tuple(ratio * (norm or 0.0) for norm in before)
        if all(0 < value < LARGEST for value in most):
            limits = [Series(name=name, xs=series[0].xs[1:], ys=most, role="limit")]
    return Chart("(a) median ‖h_l‖", series, tuple(limits), log=True)


def gradients(rows: Sequence[Row]) -> Chart:
    """(b): median ‖g_l‖ with the floor of the deepest."""
    series = _overlay(rows, lambda report: {"ys": report.bp_grad_norms}, "b")
    floors = {report.thresholds.g_norm_floor: "floor" for report in reports_of(rows)}
    floors.pop(0.0, None)  # a logarithm has no place for it
    return Chart("(b) median ‖g_l‖", series, _levels(floors), log=True)


def probes(rows: Sequence[Row]) -> Chart:
    """(e): the score of a linear probe at every state, with its null."""
    own = _overlay(rows, lambda report: {"ys": report.probe_accuracies}, "e")
    null = _overlay(rows, lambda r: {"ys": r.depth and r.depth.null_probes, "role": "null"})
    return Chart(f"(e) linear probe {score_name(reports_of(rows))}", own + null)


def gamma(rows: Sequence[Row]) -> Chart:
    """(f): Γ at every site with the band of its null; h_0 is not judged."""

    def curve(report: Report) -> Fields:
        credit = report.credit or Credit()
        xs = [int(site.removeprefix("h_")) for site in credit.sites]
        states = enumerate(credit.state)
        fired = tuple(n for n, state in states if xs[n] and state is not SiteState.ALIGNED)
        band = {"low": credit.null_low, "high": credit.null_high}
        return {"xs": xs, "fired": fired, "ys": credit.gamma, **band}

    return Chart("(f) Γ and its permutation null", _overlay(rows, curve, "f"))


def findings(rows: Sequence[Row], diagnostic: Diagnostic) -> Chart:
    """The number of a diagnostic for every network, with its interval and threshold."""
    methods = grouped((row.method, row) for row in rows)
    series, limits = [], {}
    for number, (method, own) in enumerate(methods.items()):
        for nth, row in enumerate(own):
            finding = row.report.finding(diagnostic.key) if row.report else None
            if finding is None or finding.value is None:
                continue
            aside = (nth - (len(own) - 1) / 2) / max(len(own), 4)
            low, high = finding.interval or (finding.value, finding.value)
            point = Series(
                name=one_line(method),
                xs=(number + aside if len(methods) > 1 else float(nth),),
                ys=(finding.value,),
                low=(low,),
                high=(high,),
                fired=(0,) if diagnostic.key in row.status.fired else (),
                colour=number,
            )
            series.append(point)
            limits[finding.threshold] = "threshold"
    what, names, x = TITLES.get(diagnostic.key), list(methods), ""
    if len(methods) == 1:
        names = [row.checkpoint if row.seed is None else str(row.seed) for row in rows]
        x = "seed"
    title = f"({diagnostic.key}) {what}" if what else diagnostic.label
    return Chart(title, tuple(series), _levels(limits), x=x, ticks=tuple(names))


def against_score(rows: Sequence[Row]) -> Chart:
    """Γ at each block of a network against the network's score."""

    def curve(report: Report) -> Fields:
        credit, score = report.credit or Credit(), report.headline_acc
        pairs = zip(credit.sites, credit.gamma, strict=True)
        ys = [] if score is None else [gamma for site, gamma in pairs if site != "h_0"]
        return {"ys": ys, "xs": (score,) * len(ys)}

    return Chart("Γ at each block", _overlay(rows, curve), x=score_name(reports_of(rows)))


def trained_and_frozen(rows: Sequence[Row]) -> Chart:
    """The score with frozen random blocks and with trained ones."""

    def curve(report: Report) -> Fields:
        both = (report.frozen_baseline_acc, report.headline_acc)
        return {"ys": () if None in both else both}

    ticks = ("frozen random blocks", "trained blocks")
    return Chart(score_name(reports_of(rows)), _overlay(rows, curve), x="", ticks=ticks)


def training(rows: Sequence[Row]) -> list[Chart]:
    """‖h_L‖, ‖g‖ of the deepest logged layer and accuracy over epochs.

    With the score: the mean control of each method, and that of BP where no log has it.
    """
    reports = [report for report in reports_of(rows) if report.log]
    floors = {report.thresholds.g_norm_floor: "floor" for report in reports}
    scores = [(f"control of {r.method_name}", r.frozen_baseline_acc) for r in reports]
    if "bp" not in {report.method_name for report in reports}:
        scores += [("BP", r.headline_acc) for r in reports_of(rows) if r.method_name == "bp"]
    known = grouped((name, score) for name, score in scores if score is not None)
    means = {round(fmean(own), 3): name for name, own in known.items()}
    score = score_name(reports_of(rows))
    wanted: list[tuple[str, Callable[[Epoch], float | None], bool, tuple[Series, ...]]] = [
        ("‖h_L‖", lambda epoch: _deepest(epoch.residual_norms), True, ()),
        ("‖g‖, deepest layer", lambda e: _deepest(e.bp_grad_norms), True, _levels(floors)),
        (score, lambda epoch: epoch.headline_acc, False, _levels(means, "control")),
    ]
    charts = []
    for title, value, log, limits in wanted:

        def curve(report: Report, value: Any = value) -> Fields:
            epochs = report.log.epochs if report.log and report.log.epochs[1:] else ()
            return {"xs": [e.epoch for e in epochs], "ys": [value(e) for e in epochs]}

        charts.append(Chart(title, _overlay(rows, curve), limits, log=log, x="epoch"))
    return [chart for chart in charts if chart.series]


def charts_for(rows: Sequence[Row], diagnostic: Diagnostic, points: bool = True) -> list[Chart]:
    """What shows one diagnostic for these networks; a chart without a number is left out."""
    curves = {"a": norms, "b": gradients, "e": probes, "f": gamma}
    found = [curves[diagnostic.key](rows)] if diagnostic.key in curves else []
    if diagnostic.key not in ("a", "b", "f") and points:
        found.append(findings(rows, diagnostic))
    return [chart for chart in found if chart.series]


def _overlay(
    rows: Sequence[Row], curve: Callable[[Report], Fields], key: str = ""
) -> tuple[Series, ...]:
    """The series of every network that has numbers, in the colour of its method.

    ``None`` was not measured and is left out. Unless the curve says otherwise, its places are the
    layers and its last point decides.
    """
    methods = list(dict.fromkeys(row.method for row in rows))
    drawn = []
    for row in rows:
        fields = curve(row.report) if row.report else {}
        ys = fields.get("ys") or ()
        places = zip(fields.get("xs", range(len(ys))), ys, strict=True)
        points = [(x, y) for x, y in places if y is not None]
        if points:
            fields["xs"], fields["ys"] = zip(*points, strict=True)
            fired = fields.get("fired", (len(points) - 1,))
            fields["fired"] = fired if key in row.status.fired else ()
            name, colour = one_line(row.method), methods.index(row.method)
            drawn.append(Series(**fields, name=name, colour=colour))
    return tuple(drawn)


def _levels(named: Mapping[float, str], role: Role = "limit") -> tuple[Series, ...]:
    return tuple(
        Series(name=f"{name} {limit(value)}", ys=(value,), role=role)
        for value, name in named.items()
    )


def _deepest(norms: Sequence[float | None]) -> float | None:
    return next((norm for norm in norms[::-1] if norm is not None), None)
