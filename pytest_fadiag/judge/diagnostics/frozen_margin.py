"""(d) Do the deep blocks beat a frozen-random control?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..chance import by_outputs, no_better_than_chance
from ..control import ControlKind
from ..depth import reads_less
from ..doubts import Doubt, DoubtKind
from ..margins import Interval, margin_interval
from ..observers import ACCURACY
from ..thresholds import DiagnosticThresholds
from ..wording import beside, count, fraction, limit, points
from .base import Diagnostic, Finding, Status
from .cause import Cause, CauseKind
from .column import Column, ColumnKind

if TYPE_CHECKING:
    from ..report import DiagnosticReport

PUBLISHED = DiagnosticThresholds.frozen_acc_margin_pp
NO_EVIDENCE = "no evidence that the blocks help"


def doubts_about(report: DiagnosticReport) -> tuple[Doubt, ...]:
    """Everything that makes the control of a report questionable."""
    control, accuracy = report.control, report.frozen_baseline_acc
    if accuracy is None:
        return ()
    seen = [_at_chance(report, accuracy), _below_readout(report, accuracy)]
    if control is None:
        return tuple(filter(None, seen))
    whose = [control.unmarked, control.another_method(report.method_name), control.another_seed(report.seed)]
    return tuple(filter(None, [control.other_data(_data(report)), *seen, *control.doubts, *whose]))


def _data(report: DiagnosticReport) -> str | None:
    """The digest of the test data that a report is measured on, where it is known."""
    own = None if report.accuracy is None else report.accuracy.data
    return own or str(report.environment.get("data_sha256") or "") or None


def _at_chance(report: DiagnosticReport, accuracy: float) -> Doubt | None:
    """That a control is no better than guessing; where neither labels nor outputs are known, nobody can tell."""
    guess = no_better_than_chance(accuracy, report.companions, _image_count(report))
    return None if guess is None else Doubt(DoubtKind.AT_CHANCE, f"{fraction(accuracy)} {guess.words}")


def _below_readout(report: DiagnosticReport, accuracy: float) -> Doubt | None:
    """That a control is weaker than what a linear probe reads of an embedding, by two standard errors.

    Its embedding and head were trained to do at least that: of the network's own embedding, or of the control's.
    """
    probes, depth, control = report.probe_accuracies, report.depth, report.control
    images = _image_count(report)
    readouts = [(probes[0], depth.read)] if probes and depth is not None else []
    readouts += [(control.probes[0], images // 2)] if control is not None and control.probes and images else []
    for readout, read in sorted(readouts, reverse=True):
        if read and reads_less(accuracy, images or read, readout, read):
            return Doubt(DoubtKind.BELOW_READOUT, f"{fraction(accuracy)} against {fraction(readout)}")
    return None


def _image_count(report: DiagnosticReport) -> int | None:
    """The number of test images of the control, as far as anyone knows that of the network too."""
    known = [None if report.control is None else report.control.accuracy, report.accuracy]
    return next((seen.images for seen in known if seen is not None and seen.images), None)


def void(report: DiagnosticReport) -> Doubt | None:
    """Why the control of a report is none, where it is none."""
    return next((doubt for doubt in doubts_about(report) if doubt.voids), None)


def margin(report: DiagnosticReport) -> float | None:
    """Headline accuracy minus the control's, in percentage points; rounded so that 0.369 - 0.349 is 2, not a hair below."""
    if report.frozen_baseline_acc is None or report.headline_acc is None or void(report) is not None:
        return None
    return round(100 * (report.headline_acc - report.frozen_baseline_acc), 9)


def interval(report: DiagnosticReport) -> Interval | None:
    """The 95 % interval of the margin, where the number of test images is known."""
    if report.accuracy is None or report.control is None or void(report) is not None:
        return None
    return margin_interval(report.accuracy, report.control.accuracy)


def compared_otherwise(report: DiagnosticReport) -> str:
    """Why the control of a report may be something else than this network with random blocks; empty where nothing says so."""
    return "; ".join(doubt.text for doubt in doubts_about(report) if doubt.compares_otherwise)


def in_words(value: float, bounds: Interval | None, minimum: float, without: str, otherwise: str = "") -> str:
    """What a margin below the minimum says of the blocks, and no more than its interval and its control carry.

    ``without`` is what the control has in their place; ``otherwise`` is why it may be something else.
    """
    if otherwise:
        return _of_this_control(value, bounds, otherwise)
    short = f"less than the {limit(minimum)} pp that {'the protocol asks' if minimum == PUBLISHED else 'were asked for'}"
    if bounds is None:
        point = _better(value, "", without) if value < 0 else f"The blocks add {_amount(value)} pp, {short}."
        return f"{point} Without the number of test images nobody knows how sure that is."
    if bounds.high < 0:
        return f"{_better(value, _span(-bounds.high, -bounds.low), without)} Trained so, the blocks do harm."
    if 0 in bounds:
        return f"The interval, {points(bounds.low)} to {points(bounds.high)} pp, holds 0: {NO_EVIDENCE}."
    return f"The blocks add {_amount(value)} pp {_span(bounds.low, bounds.high)}, {short}."


def _of_this_control(value: float, bounds: Interval | None, otherwise: str) -> str:
    """What is left to say beside a control of which nobody knows that it is the network with random blocks."""
    span = "" if bounds is None else f" (95 % interval of the margin {points(bounds.low)} to {points(bounds.high)})"
    better = "This control is better than the network" if value < 0 else "The network is better than this control"
    compared = f"{better} by {_amount(abs(value))} pp" if value else "The network and this control are equally accurate"
    return f"{compared}{span}. What that says of random blocks is open: {otherwise}."


def _better(value: float, span: str, without: str) -> str:
    return f"The same network with {without} is better by {' '.join(filter(None, [f'{_amount(-value)} pp', span]))}."


def _span(low: float, high: float) -> str:
    """Both ends of an interval that excludes 0, with as many digits as it takes to see that."""
    return f"({beside(_amount, low, 0.0)} to {beside(_amount, high, 0.0)})"


def _amount(value: float) -> str:
    return f"{value:.2f}"


class FrozenMargin(Diagnostic):
    """Fires when the network is not better than its own architecture with random blocks by the minimum margin."""

    key = "d"
    name = "frozen-margin"
    question = "do the deep blocks beat a frozen-random control?"
    threshold = "frozen_acc_margin_pp"
    observers = (ACCURACY,)
    walk_back = "deep blocks fail to beat frozen-random baseline"
    columns = (
        Column(key, "frozen", lambda report: report.frozen_baseline_acc, ColumnKind.FRACTION, priority=6),
        Column(key, "margin", margin, ColumnKind.POINTS, priority=1),
    )

    def judge(self, report: DiagnosticReport) -> Finding:
        minimum, value = report.thresholds.frozen_acc_margin_pp, margin(report)
        broken = report.companions.nonfinite_logits
        if broken:
            return self.finding(
                report,
                Status.FIRE,
                value,
                f"logits are not finite ({count(broken, 'image')})",
                "The network gives no prediction for these images, which count as errors; its accuracy is no headline."
                + (" Nothing was compared with a control: it fires for the logits alone." if value is None else ""),
                (Cause(CauseKind.NON_FINITE),),
            )
        if value is None:
            none = void(report)
            missing = "no frozen-random control was supplied" if none is None else none.text
            if report.headline_acc is None:
                missing = "the log has no accuracy: put final_test_acc into it, or acc_eval into its epochs"
            return self.finding(report, Status.NOT_MEASURED, None, missing)
        bounds = interval(report)
        unresolved = bounds is not None and minimum in bounds
        kinds = [str(doubt.kind) for doubt in doubts_about(report) if doubt.weighs]
        found = [Cause(CauseKind.UNRESOLVED)] * unresolved + [Cause(CauseKind.QUESTIONED, ", ".join(kinds))] * bool(kinds)
        causes = tuple(found)
        if value < minimum:
            return self.finding(
                report,
                Status.FIRE,
                value,
                f"margin {beside(points, value, minimum)} pp < {limit(minimum)}",
                in_words(value, bounds, minimum, _kind(report).blocks, compared_otherwise(report)),
                causes,
            )
        return self.finding(
            report, Status.PASS, value, f"margin {beside(points, value, minimum)} pp >= {limit(minimum)}", causes=causes
        )

    def lines(self, report: DiagnosticReport) -> list[str]:
        shown = "not logged" if report.headline_acc is None else fraction(report.headline_acc)
        lines = [f"accuracy {shown}" + self._images(report)]
        if report.frozen_baseline_acc is None:
            return [*lines, "frozen-random control: none supplied, margin not measured"]
        control = report.control
        source = "" if control is None else f" ({control.describe(report.method_name, report.seed)})"
        lines.append(f"{_kind(report).words} control {fraction(report.frozen_baseline_acc)}{source}")
        value = margin(report)
        if value is None:
            none = void(report)
            return [*lines, f"margin not measured: {'the log has no accuracy' if none is None else none.text}"]
        bounds = interval(report)
        how = "; state it as n_test in the log's config" if report.partial else ""
        unknown = f"    (no interval: the number of test images is not known{how})"
        spread = f"    95 % interval {points(bounds.low)} to {points(bounds.high)} ({bounds.kind})" if bounds else unknown
        lines += filter(None, [f"margin {points(value)} pp{spread}", by_outputs(report.companions)])
        if bounds is not None and 0 in bounds and value >= report.thresholds.frozen_acc_margin_pp:
            lines.append(f"the interval holds 0: {NO_EVIDENCE}")  # what fires says so below its flag
        return lines

    def values(self, report: DiagnosticReport) -> list[str]:
        bounds = interval(report)
        numbers = (
            ("accuracy", report.headline_acc, fraction),
            ("control", report.frozen_baseline_acc, fraction),
            ("margin", margin(report), points),
        )
        parts = [f"{name} {show(value)}" for name, value, show in numbers if value is not None]
        spread = f"95 % interval {points(bounds.low)} to {points(bounds.high)} ({bounds.kind})" if bounds else "no interval"
        return [*parts, spread]

    @staticmethod
    def _images(report: DiagnosticReport) -> str:
        images = report.accuracy.images if report.accuracy is not None else None
        return f" over {count(images, 'test image')}" if images else ""


def _kind(report: DiagnosticReport) -> ControlKind:
    return ControlKind.FROZEN if report.control is None else report.control.kind
