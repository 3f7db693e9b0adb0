# mypy: disallow-any-expr, disallow-any-explicit, disallow-any-unimported
"""A diagnostic of an author's own, with an observer that gives it a new number."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_fadiag import (
    Column,
    ColumnKind,
    Diagnostic,
    DiagnosticReport,
    Finding,
    Observer,
    ObserverSpec,
    PassInfo,
    State,
    Status,
)


@dataclass(frozen=True)
class Largest:
    values: tuple[float, ...]


LARGEST = ObserverSpec("largest", 1, "own_diagnostic:LargestState", result=Largest)


def largest(report: DiagnosticReport) -> float | None:
    seen = report.observed(LARGEST)
    return None if seen is None else max(seen.values)


class LargestEntry(Diagnostic):
    name = "largest-entry"
    question = "does a state hold a number that float16 cannot?"
    threshold = "largest_entry"
    default = 65504.0
    observers = (LARGEST,)
    walk_back = "the states leave the range of float16"
    columns = (Column(name, "max h", largest, ColumnKind.SCALE, priority=7),)

    def judge(self, report: DiagnosticReport) -> Finding:
        value = largest(report)
        if value is None:
            return self.finding(report, Status.NOT_MEASURED, None, "not measured")
        status = Status.FIRE if value > self.limit(report) else Status.PASS
        return self.finding(report, status, value, f"largest entry {value:g}")

    def lines(self, report: DiagnosticReport) -> list[str]:
        return [f"largest entry: {largest(report)}"]


class LargestState(Observer[State]):
    spec = LARGEST
    watches = (State,)

    def __init__(self, info: PassInfo) -> None:
        self.values: dict[int, float] = {}

    def update(self, seen: State) -> None:
        self.values[seen.layer] = max(self.values.get(seen.layer, 0.0), float(seen.value.abs().max()))

    def compute(self) -> dict[str, list[float]]:
        return {"values": [self.values[layer] for layer in sorted(self.values)]}
