"""(g) Does the network beat a linear readout of its inputs?"""

from __future__ import annotations

from collections.abc import Iterator

from ..words import distinct, fraction, interval, plural, pp, sig
from .base import (
    Column,
    Diagnostic,
    Finding,
    Report,
    Role,
    Status,
    classes_left_out,
    fitted_to,
)


class LinearFloor(Diagnostic):
    """Fires when the 95 % interval of network − readout of the raw inputs lies below 0."""

    key = "g"
    name = "linear-floor"
    question = "does the network beat a linear readout of its inputs?"
    threshold = "linear_floor_minimum_pp"
    default = 0.0
    fails_if = "network − linear readout < {} pp"
    walk_back = "a linear readout of the inputs beats the network"
    meaning = (
        "A ridge regression on the raw inputs. Where it beats the network, the score needs no "
        "hidden layer. This says nothing about credit."
    )
    instead = "report that a linear readout of the inputs scores higher"
    role = Role.EXTRA
    needs = ("floor",)
    needs_stream = False
    columns = (
        Column("linear", lambda report: report.floor.difference_pp if report.floor else None, pp),
    )
    axis_title = "network − linear, pp"

    def judge(self, report: Report) -> Finding:
        readout = report.floor
        if readout is None:
            return self.unmeasured(report, "no linear readout of the inputs was fitted")
        value = readout.difference_pp
        if readout.problem or value is None:
            return self.unmeasured(report, readout.problem)
        low, high = readout.interval or (value, value)
        number = f"network − readout {distinct(pp, value, 0.0)} pp, {interval(low, high)}"
        if high < 0:
            return self.finding(
                report,
                Status.FIRE,
                value,
                number,
                "This says nothing about credit.",
                interval=readout.interval,
            )
        if low <= 0:
            number += ": no evidence that the network beats a linear readout"
        return self.finding(report, Status.PASS, value, number, interval=readout.interval)

    def lines(self, report: Report) -> Iterator[str]:
        readout = report.floor
        if readout is None or readout.readout is None or readout.network is None:
            return
        yield (
            f"{report.probe_score}: linear readout {fraction(readout.readout, 3)}, network "
            f"{fraction(readout.network, 3)}"
        )
        inputs = plural(readout.features, "value") + " per input"
        if readout.reduced:
            inputs += f", {readout.reduced}"
        if readout.ridges:
            inputs += f", λ/n {' and '.join(dict.fromkeys(map(sig, readout.ridges)))}"
        yield inputs
        yield fitted_to(report, readout)
        if readout.left_out:
            yield classes_left_out(readout.left_out, report.probe_unit)
