"""The one comparison of two reports of a network: number by number, then what follows from them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ..judge.records import plain
from ..judge.report import Report
from ..judge.words import and_more
from .audit import Audit
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
    pairs = {name: (before.environment.get(name), now.environment.get(name)) for name in SETTING}
    elsewhere = [f"{name} {one} → {two}" for name, (one, two) in pairs.items() if one != two]
    moved = sorted(_differences(plain(before), plain(now), bool(elsewhere)), reverse=True)
    facts: dict[str, tuple[object, object]] = {
        "method": (before.method_name, now.method_name),
        "seed": (before.seed, now.seed),
        "checkpoint": (_digest(before, "checkpoint"), _digest(now, "checkpoint")),
        "test data": (_digest(before, "data"), _digest(now, "data")),
        "diagnostics": (" ".join(before.diagnostics), " ".join(now.diagnostics)),
        "control": (_control(before), _control(now)),
    }
    then, after = before.thresholds.by_name(), now.thresholds.by_name()
    facts |= {name: (value, after.get(name)) for name, value in then.items()}
    for one in before.findings:
        two = now.finding(one.key)
        facts[f"({one.key}) {one.name}"] = (one.status.value, two.status.value)
    facts["verdict"] = (before.verdict, now.verdict)
    changed = [f"{name}: {one} → {two}" for name, (one, two) in facts.items() if one != two]
    return Comparison(elsewhere, moved, changed)


def diff(old: Audit, new: Audit) -> list[str]:
    """What changed from one audit to another, one line for each difference."""
    before = {row.checkpoint: row for row in old.rows}
    lines = [
        f"{row.checkpoint}: new, {words(row)}" for row in new.rows if row.checkpoint not in before
    ]
    now = {row.checkpoint: row for row in new.rows}
    for name, row in before.items():
        other = now.get(name)
        if other is None:
            lines.append(f"{name}: gone, was {words(row)}")
            continue
        if words(row) != words(other):
            lines.append(f"{name}: {words(row)} → {words(other)}")
        if row.report is not None and other.report is not None:
            result = compare(row.report, other.report)
            lines += [f"{name}: {said}" for said in (*result.changed, *result.moved[:MOST])]
            if len(result.moved) > MOST:
                lines.append(f"{name}: {len(result.moved) - MOST} more numbers moved")
            if result.problems and result.elsewhere:
                lines.append(f"{name}: measured elsewhere: {', '.join(result.elsewhere)}")
    verdicts = {margin.name: margin.verdict for margin in old.margins}
    for margin in new.margins:
        was = verdicts.get(margin.name, margin.verdict)
        if was != margin.verdict:
            lines.append(f"{margin.name}::seed-margin: {was} → {margin.verdict}")
    return lines


def _differences(
    one: Any, two: Any, elsewhere: bool, field: str = "", path: str = ""
) -> Iterator[Difference]:
    """The numbers that differ, at any depth; ``field`` is the innermost name."""
    if isinstance(one, Mapping) and isinstance(two, Mapping):
        for name in (one.keys() | two.keys()) - NOT_COMPARED:
            inner = f"{path}.{name}" if path else name
            yield from _differences(one.get(name), two.get(name), elsewhere, name, inner)
    elif isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        for index, (a, b) in enumerate(zip(one, two, strict=True)):
            yield from _differences(a, b, elsewhere, field, f"{path}[{index}]")
    else:
        tolerance, size = TOLERANCES.get(field, NORM), math.inf
        if isinstance(one, (int, float)) and isinstance(two, (int, float)):
            scale = max(abs(one), abs(two)) if tolerance.relative else 1.0
            size = abs(one - two) / scale if scale else 0.0
        elif one == two or (isinstance(one, str) and isinstance(two, str)):
            size = 0.0
        if size > (tolerance.elsewhere if elsewhere else tolerance.same):
            yield Difference(size, path, one, two)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"{len(value)} numbers"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return "measured"
    return "not measured" if value is None else str(value)


def _digest(report: Report, name: str) -> str:
    return str(report.environment.get(f"{name}_sha256", "unknown"))[:12]


def _control(report: Report) -> str:
    control = report.control
    if control is None:
        return "none"
    doubts = and_more([doubt.text for doubt in control.doubts], 9) or "no doubts"
    return f"{control.kind.value}, {control.method}, seed {control.seed}, {doubts}"
