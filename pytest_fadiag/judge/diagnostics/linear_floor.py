"""(g) Does the network beat a linear readout of its inputs?"""

from __future__ import annotations

from ..words import and_more, distinct, fraction, interval, plural, pp, sig
from .base import Column, Diagnostic, Finding, Report, Status


class LinearFloor(Diagnostic):
    """Fires when the 95 % interval of network − readout of the raw inputs lies below 0."""

    key = "g"
    name = "linear-floor"
    question = "does the network beat a linear readout of its inputs?"
    threshold = "linear_floor_minimum_pp"
    default = 0.0
    needs = ("floor",)
    walk_back = "a linear readout of the inputs beats the network"
    columns = (
        Column(
            "linear", lambda report: report.floor.difference_pp if report.floor else None, pp, 8
        ),
    )

    def judge(self, report: Report) -> Finding:
        floor = report.floor
        value = floor.difference_pp if floor and not floor.problem else None
        if floor is None or value is None:
            why = floor.problem if floor else "no linear readout of the inputs was fitted"
            return self.unmeasured(report, why)
        span = floor.interval or (value, value)
        number = f"network − readout {distinct(pp, value, 0.0)} pp, {interval(*span)}"
        if span[1] < 0:
            meaning = "This says nothing about credit."
            return self.finding(
                report, Status.FIRE, value, number, meaning, interval=floor.interval
            )
        unsure = "" if span[0] > 0 else ": no evidence that the network beats a linear readout"
        return self.finding(report, Status.PASS, value, number + unsure, interval=floor.interval)

    def lines(self, report: Report) -> list[str]:
        floor = report.floor
        if floor is None or floor.readout is None or floor.network is None:
            return []
        reduced = f", {floor.reduced}" if floor.reduced else ""
        return [
            f"{report.probe_score}: linear readout {fraction(floor.readout, 3)}, network "
            f"{fraction(floor.network, 3)}",
            f"fitted on {plural(floor.fitted, f'test {report.probe_unit}')}, evaluated on "
            f"{floor.read:,}; "
            f"{plural(floor.features, 'value')} per input{reduced}"
            + (f", λ/n {sig(floor.ridge)}" if floor.ridge is not None else ""),
            left_out(floor.left_out, report.probe_unit),
        ]


def left_out(classes: tuple[int, ...], unit: str) -> str:
    """Which classes no score counts."""
    names = and_more([str(label) for label in classes], 9) if classes else ""
    return f"fewer than 5 {unit}s in a half, not counted: class {names}" if names else ""
