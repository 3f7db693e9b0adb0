"""(d) Do the trained blocks beat frozen random ones?"""

from __future__ import annotations

from ..control import void
from ..margins import Interval
from ..words import distinct, fraction, interval, limit, plural, pp
from .base import Column, Diagnostic, Finding, Report, Status


class FrozenMargin(Diagnostic):
    """Fires when the network does not beat the same one with random blocks by the minimum."""

    key = "d"
    name = "frozen-margin"
    question = "do the trained blocks beat frozen random ones?"
    threshold = "frozen_acc_margin_pp"
    needs = ("accuracy",)
    walk_back = "deep blocks fail to beat frozen-random baseline"
    columns = (
        Column("frozen", lambda report: report.frozen_baseline_acc, fraction, 6),
        Column("margin", lambda report: report.margin_pp, pp, 1),
    )

    def judge(self, report: Report) -> Finding:
        minimum, value, bounds = self.limit(report), report.margin_pp, report.margin_interval
        if report.nonfinite_outputs:
            return self.finding(
                report,
                Status.FIRE,
                value,
                plural(report.nonfinite_outputs, report.unit),
                f"The network gives no prediction there; its {report.score_name} must not be "
                "reported.",
                ("non-finite",),
                claim="outputs are not finite",
            )
        if value is None or report.control is None:
            problem = report.control_problem
            why = void(report.doubts) or problem or "no frozen-random control was supplied"
            if report.headline_acc is None:
                why = "no accuracy is known: log final_test_acc, or acc_eval in each epoch"
            return self.unmeasured(report, why, problem)
        unsure = "threshold inside the 95 % CI" if bounds and minimum in bounds else ""
        if bounds and 0 in bounds and value >= minimum:
            unsure = "95 % CI includes 0"
        causes = (unsure, "control in doubt" if report.questions_control else "")
        span = (bounds.low, bounds.high) if bounds else None
        ci = f", {interval(*span)}" if span else ""
        number = f"margin {distinct(pp, value, minimum)} pp"
        if value >= minimum:
            headline = f"{number} ≥ {limit(minimum)} pp{ci}"
            return self.finding(report, Status.PASS, value, headline, causes=causes, interval=span)
        other = "; ".join(doubt.text for doubt in report.doubts if doubt.mismatched)
        claim, meaning = margin_in_words(value, bounds, minimum, report.control.blocks, other)
        headline = f"{number} < {limit(minimum)} pp{ci}"
        return self.finding(
            report, Status.FIRE, value, headline, meaning, causes, claim=claim, interval=span
        )

    def table(self, report: Report) -> list[str]:
        control, ours = report.control, report.headline_acc
        said = f"{report.score_name} {'unknown' if ours is None else fraction(ours)}"
        if control is None:
            return [said]
        theirs = f"{control.kind.value} control {fraction(control.score.value)} ({control.source})"
        return [f"{said}, {theirs}"]

    def lines(self, report: Report) -> list[str]:
        bounds, value = report.margin_interval, report.margin_pp
        hint = " (n_test in the log's config)" if report.log else ""
        return [
            (
                f"95 % CI {bounds.kind.replace('image', report.unit)}"
                if bounds
                else f"no CI: test-set size unknown{hint}"
            )
            if value is not None
            else "",
            report.twin.line("margin", report.twin.margin_pp, report.margin_share)
            if report.twin
            else "",
        ]


def margin_in_words(
    value: float, bounds: Interval | None, minimum: float, blocks: str, other: str
) -> tuple[str, str]:
    """What a margin below the minimum is called, and what it means: no more than its interval says.

    ``blocks`` is what the control has in place of trained ones; ``other`` is why it may differ.
    """
    below = f"margin over {'this control' if other else blocks} below {limit(minimum)} pp"
    if other:
        return below, f"It does not show that random blocks suffice: {other}."
    if bounds is None:
        return below, "Test-set size unknown, so no confidence interval: do not claim a gain."
    if bounds.high < 0:
        return f"worse than {blocks}", "Training the blocks with this rule hurts."
    if 0 in bounds:
        none = "The 95 % CI includes 0: no evidence that the blocks help."
        return f"no measurable margin over {blocks}", none
    return below, f"The blocks add {value:.2f} pp, less than the minimum of {limit(minimum)} pp."
