"""The one comparison of two reports of a network: number by number, then what follows from them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ..judge.records import plain
from ..judge.report import Report
from ..judge.words import and_more
from .audit import Audit, Row
from .words import words


class Tolerance(NamedTuple):
    """How far a number may move: with the same setting, and on another machine."""

    same: float
    elsewhere: float
    relative: bool = False


NORM = Tolerance(1e-5, 1e-2, relative=True)
COSINE = Tolerance(1e-5, 1e-2)
FRACTION = Tolerance(1e-5, 1e-3)
POINTS = Tolerance(1e-3, 1e-1)
KINDS = {
    COSINE: "cross_batch_stability output_error_drift sample_invariance cosine gamma null_mean "
    "null_sd null_low null_high nudge random_nudge error",
    FRACTION: "value probes null headline_acc frozen_baseline_acc claimed_acc "
    "label_class_share predicted_class_share outside",
    POINTS: "interval step_intervals",
}
TOLERANCES = {name: kind for kind, names in KINDS.items() for name in names.split()}
"""By field; any other number is compared as a norm is."""
MOST = 5
"""How many moved numbers of a network are listed."""
SETTING = ("torch", "device", "device_name", "dtype", "threads", "tf32")
"""The parts of the environment that change the last digits of a measurement."""
NOT_COMPARED = {"environment", "thresholds", "config", "notes", "caveats", "doubts", "correct"}


class Difference(NamedTuple):
    """One number that moved by more than its tolerance."""

    size: float
    """Absolute or relative, as its tolerance is; infinite where it came, went or became NaN."""
    field: str
    before: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.field} {_shown(self.before)} → {_shown(self.now)}"


class Comparison(NamedTuple):
    """In what two reports of one network differ."""

    elsewhere: list[str]
    """In what the settings of the two measurements differ: «torch 2.1 → 2.2»."""
    moved: list[Difference]
    """The numbers that moved, the farthest first."""
    changed: list[str]
    """What is judged differently, in words: «(a) residual-growth: pass → fire»."""

    @property
    def problems(self) -> list[str]:
        """Everything that differs, in words."""
        return [*self.changed, *map(str, self.moved)]


def compare(before: Report, now: Report) -> Comparison:
    """Compare two reports of one network.

    >>> compare(report, report).problems  # doctest: +SKIP
    []
    """
    elsewhere = []
    for name in SETTING:
        old = before.environment.get(name)
        new = now.environment.get(name)
        if old != new:
            elsewhere.append(f"{name} {old} → {new}")
    moved = sorted(_differences(plain(before), plain(now), bool(elsewhere)), reverse=True)
    changed = []
    for fact, then, today in _facts(before, now):
        if then != today:
            changed.append(f"{fact}: {then} → {today}")
    return Comparison(elsewhere, moved, changed)


def _facts(before: Report, now: Report) -> Iterator[tuple[str, object, object]]:
    """What was measured, by which thresholds, and what follows: by name, from both reports."""
    yield "method", before.method_name, now.method_name
    yield "seed", before.seed, now.seed
    yield "checkpoint", _digest(before, "checkpoint"), _digest(now, "checkpoint")
    yield "test data", _digest(before, "data"), _digest(now, "data")
    yield "diagnostics", " ".join(before.diagnostics), " ".join(now.diagnostics)
    yield "loss", before.loss, now.loss
    yield "control", _control(before), _control(now)
    limits = now.thresholds.by_name()
    for name, limit in before.thresholds.by_name().items():
        yield name, limit, limits.get(name)
    for finding in before.findings:
        status = now.finding(finding.key).status
        yield f"({finding.key}) {finding.name}", finding.status.value, status.value
    yield "verdict", before.headline, now.headline


def diff(old: Audit, new: Audit) -> list[str]:
    """What changed from one audit to another, one line for each difference."""
    return list(_diff(old, new))


def _diff(old: Audit, new: Audit) -> Iterator[str]:
    before = {row.checkpoint: row for row in old.rows}
    now = {row.checkpoint: row for row in new.rows}
    for name, row in now.items():
        if name not in before:
            yield f"{name}: new, {words(row)}"
    for name, row in before.items():
        if name not in now:
            yield f"{name}: gone, was {words(row)}"
            continue
        for change in _changes(row, now[name]):
            yield f"{name}: {change}"
    verdicts = {margin.name: margin.verdict for margin in old.margins}
    for margin in new.margins:
        verdict = verdicts.get(margin.name, margin.verdict)
        if verdict != margin.verdict:
            yield f"{margin.name}::seed-margin: {verdict} → {margin.verdict}"


def _changes(before: Row, now: Row) -> Iterator[str]:
    """What changed in one row: its status, what follows from its numbers, the farthest of these."""
    if words(before) != words(now):
        yield f"{words(before)} → {words(now)}"
    if before.report is None or now.report is None:
        return
    result = compare(before.report, now.report)
    yield from result.changed
    yield from map(str, result.moved[:MOST])
    if len(result.moved) > MOST:
        yield f"{len(result.moved) - MOST} more numbers moved"
    if result.problems and result.elsewhere:
        yield f"measured elsewhere: {', '.join(result.elsewhere)}"


def _differences(
    before: Any, now: Any, elsewhere: bool, field: str = "", path: str = ""
) -> Iterator[Difference]:
    """The numbers that differ, at any depth; ``field`` is the innermost name."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name in (before.keys() | now.keys()) - NOT_COMPARED:
            inner = f"{path}.{name}".removeprefix(".")
            yield from _differences(before.get(name), now.get(name), elsewhere, name, inner)
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for index, (old, new) in enumerate(zip(before, now, strict=True)):
            yield from _differences(old, new, elsewhere, field, f"{path}[{index}]")
    else:
        tolerance = TOLERANCES.get(field, NORM)
        size = _distance(before, now, tolerance.relative)
        most = tolerance.same
        if elsewhere:
            most = tolerance.elsewhere
        if size > most:
            yield Difference(size, path, before, now)


def _distance(before: Any, now: Any, relative: bool) -> float:
    """How far a value moved; what is text or undefined in both reports did not."""
    if isinstance(before, (int, float)) and isinstance(now, (int, float)):
        distance = abs(before - now)
        if relative and distance:
            return distance / max(abs(before), abs(now))
        return distance
    if before == now or (isinstance(before, str) and isinstance(now, str)):
        return 0.0
    return math.inf


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"{len(value)} numbers"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return "measured"
    if value is None:
        return "not measured"
    return str(value)


def _digest(report: Report, name: str) -> str:
    return str(report.environment.get(f"{name}_sha256", "unknown"))[:12]


def _control(report: Report) -> str:
    control = report.control
    if control is None:
        return "none"
    doubts = and_more([doubt.text for doubt in control.doubts], 9) or "no doubts"
    return f"{control.kind.value}, {control.method}, seed {control.seed}, {doubts}"
