"""(d) Do the trained blocks beat frozen random ones?"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import msgspec

from ..control import Control, void
from ..margins import Interval, Margin, images_needed
from ..words import distinct, fraction, interval, limit, one_line, plural, pp
from .base import (
    Column,
    Diagnostic,
    Finding,
    Open,
    OpenKind,
    Report,
    Role,
    Status,
    more_samples,
)

if TYPE_CHECKING:
    from ..twin import Twin


class FrozenMargin(Diagnostic):
    """Fires when the network does not beat the same one with random blocks by the minimum."""

    key = "d"
    name = "frozen-margin"
    question = "do the trained blocks beat frozen random ones?"
    threshold = "frozen_acc_margin_pp"
    fails_if = "margin < {} pp"
    walk_back = "deep blocks fail to beat frozen-random baseline"
    meaning = (
        "The control is the same network with its blocks frozen at random initialisation. Below "
        "the threshold, the score is not evidence that the blocks learned."
    )
    instead = "claim no gain from the blocks"
    role = Role.REQUIRED
    needs = ("accuracy", "floor")  # below a readout of the inputs a control is questioned
    needs_stream = False
    needs_control = True
    reads_logs = True
    asks_for_depth = True
    over_seeds = True
    published: ClassVar[Mapping[str, str]] = {"three": "D3", "four": ""}
    columns = (
        Column("frozen", lambda report: report.frozen_baseline_acc, fraction, 6),
        Column("margin", lambda report: report.margin_pp, pp),
    )
    axis_title = "margin, pp"

    def judge(self, report: Report) -> Finding:
        """Decide in this order: broken outputs, no margin, the interval, else the margin alone."""
        margin = report.margin
        if report.nonfinite_outputs:
            return self.finding(
                report,
                Status.FIRE,
                margin.pp if margin else None,
                plural(report.nonfinite_outputs, report.unit),
                f"The network gives no prediction there; its {report.score_name} must not be "
                "reported.",
                ["non-finite"],
                claim="outputs are not finite",
                walk_back="outputs are not finite",
                certain=True,
            )
        if margin is None or report.control is None:
            return self._without_margin(report)
        if why := _undecided(report, margin, self.limit(report)):
            finding = self.finding(
                report,
                Status.NOT_RESOLVED,
                margin.pp,
                why,
                interval=_bounds(margin),
                remedy=_narrower(report, margin, self.limit(report)),
            )
            if not is_within_noise(report):
                return finding
            return msgspec.structs.replace(finding, open=Open(OpenKind.NOT_RESOLVED, reaches=True))
        return self._decided(report, report.control, margin)

    def by_point(self, report: Report) -> Finding:
        """The finding by the plain accuracies alone, as published."""
        if report.plain_margin_pp is None or report.control is None or report.nonfinite_outputs:
            return report.finding(self.key)
        return self._decided(report, report.control, Margin(report.plain_margin_pp, None))

    def _decided(self, report: Report, control: Control, margin: Margin) -> Finding:
        """Pass or fire by the margin against the minimum."""
        value = margin.pp
        minimum = self.limit(report)
        is_below = value < minimum
        sign = "<" if is_below else "≥"
        headline = f"margin {distinct(pp, value, minimum)} pp {sign} {limit(minimum)} pp"
        causes = []
        if margin.interval:
            headline += f", {interval(margin.interval.low, margin.interval.high)}"
            if minimum in margin.interval:
                causes.append("threshold inside the 95 % CI")
        questioned = None
        remedy = ""
        if report.questions_control:
            causes.append("control in doubt")
            questioned = Open(OpenKind.CONTROL_QUESTIONED)
            remedy = _better_control(report)
        words = MarginWords("", "")
        if is_below:
            mismatch = "; ".join(doubt.text for doubt in report.doubts if doubt.mismatched)
            words = margin_in_words(value, margin.interval, minimum, control.blocks, mismatch)
            remedy = _better_control(report) if mismatch else ""
        return self.finding(
            report,
            Status.FIRE if is_below else Status.PASS,
            value,
            headline,
            words.meaning,
            causes,
            claim=words.claim,
            interval=_bounds(margin),
            pass_open=questioned,
            remedy=remedy,
        )

    def _without_margin(self, report: Report) -> Finding:
        """Say why there is no margin; a control that cannot be used is an error of its test."""
        why = "no frozen-random control was supplied"
        if report.control_problem:
            why = report.control_problem
        if rejected := void(report.doubts):
            why = rejected
        remedy = _better_control(report)
        if report.headline_acc is None:
            why = "no accuracy is known: log final_test_acc, or acc_eval in each epoch"
            remedy = "log final_test_acc, or acc_eval in each epoch"
        return self.unmeasured(report, why, report.control_problem, remedy)

    def table(self, report: Report) -> list[str]:
        accuracy = "unknown" if report.headline_acc is None else fraction(report.headline_acc)
        network = f"{report.score_name} {accuracy}"
        control = report.control
        if control is None:
            return [network]
        score = fraction(control.score.value)
        return [f"{network}, {control.kind.value} control {score} ({control.source})"]

    def lines(self, report: Report) -> Iterator[str]:
        margin = report.margin
        if margin and margin.interval:
            yield f"95 % CI {margin.interval.kind.replace('image', report.unit)}"
        elif margin:
            hint = " (n_test in the log's config)" if report.log else ""
            yield f"no CI: test-set size unknown{hint}"
        plain = report.plain_margin_pp
        if margin and plain is not None and pp(plain) != pp(margin.pp):
            yield f"margin of class-balanced accuracies {pp(margin.pp)} pp, of plain {pp(plain)} pp"
        twin = report.twin
        if twin and twin.margin_pp is not None:
            yield twin.line("margin", twin.margin_pp, report.margin_share)

    def remarks(self, report: Report) -> Iterator[str]:
        for doubt in report.doubts:
            yield doubt.text

    def gain_of(self, twin: Twin) -> float | None:
        return twin.margin_pp


def _better_control(report: Report) -> str:
    """What gives the control that is lacking, or mends the one that was supplied."""
    if report.control is not None:
        remedies = [doubt.remedy or _new_control(report) for doubt in report.doubts]
        return remedies[0] if remedies else ""
    return _new_control(report)


def _new_control(report: Report) -> str:
    """How a control is made and given."""
    if report.trace:
        return "add the control's outputs to the trace as control_outputs"
    if report.log is not None:
        return "give the accuracy of its control by --fa-frozen"
    if not report.checkpoint:
        return "train a control (make_control(model), then control=)"
    name = shlex.quote(one_line(report.checkpoint))
    return f"train a control (fadiag control {name}, then --fa-frozen)"


class MarginWords(NamedTuple):
    """What a margin below the minimum is called, and what it means."""

    claim: str
    meaning: str


def margin_in_words(
    value: float, bounds: Interval | None, minimum: float, blocks: str, mismatch: str
) -> MarginWords:
    """What a margin below the minimum is called, and what it means: no more than its interval says.

    ``blocks`` is what the control has in place of trained ones; ``mismatch`` is why it may differ.
    """
    below = f"margin over {blocks} below {limit(minimum)} pp"
    if mismatch:
        return MarginWords(
            f"margin over this control below {limit(minimum)} pp",
            f"It does not show that random blocks suffice: {mismatch}.",
        )
    if bounds is None:
        return MarginWords(
            below, "Test-set size unknown, so no confidence interval: do not claim a gain."
        )
    if bounds.high < 0:
        return MarginWords(f"worse than {blocks}", "Training the blocks with this rule hurts.")
    if 0 in bounds:
        return MarginWords(
            f"no measurable margin over {blocks}",
            "The 95 % CI includes 0: no evidence that the blocks help.",
        )
    return MarginWords(
        below, f"The blocks add {value:.2f} pp, less than the minimum of {limit(minimum)} pp."
    )


def is_within_noise(report: Report) -> bool:
    """Whether a paired margin reaches its minimum, and its interval does not exclude 0.

    Where classes have a dozen images each this says nothing against the blocks, and (e) may tell.
    """
    margin = report.margin
    if margin is None or report.control is None or report.control.score.outcomes is None:
        return False
    minimum = report.thresholds.frozen_acc_margin_pp
    return margin.pp >= minimum and bool(_undecided(report, margin, minimum))


def _undecided(report: Report, margin: Margin, minimum: float) -> str:
    """Why the interval of a margin decides nothing; empty where it does, or there is none."""
    bounds = margin.interval
    if bounds is None:
        return ""
    number = f"margin {pp(margin.pp)} pp, {interval(bounds.low, bounds.high)}"
    if margin.skewed:
        return f"{number}, is of plain accuracies, and classes differ in size"
    fires = bounds.high < minimum
    passes = margin.pp >= minimum and bounds.low > min(minimum, 0.0)
    if fires or passes:
        return ""
    return f"{number}: whether it reaches {limit(minimum)} pp is undecided"


def _narrower(report: Report, margin: Margin, minimum: float) -> str:
    """What may bring the interval of a margin to one side of the minimum."""
    remedies = []
    is_number = report.control is not None and report.control.score.outcomes is None
    if report.log is not None:  # without outcomes, of which a control's could be paired
        is_number = False
    if is_number:
        remedies.append("give the control itself in place of a number")
    bounds = margin.interval
    if margin.skewed or bounds is None or not report.score or not report.score.images:
        return "".join(remedies)
    away = minimum - margin.pp
    if margin.pp >= minimum:
        away = margin.pp - min(minimum, 0.0)
    images = images_needed(report.score.images, (bounds.high - bounds.low) / 2, away)
    if images:
        remedies.append(more_samples(report, images, report.unit))
    if not is_number:
        remedies.append("audit several seeds")
    return " or ".join(remedies)


def _bounds(margin: Margin) -> tuple[float, float] | None:
    return (margin.interval.low, margin.interval.high) if margin.interval else None
