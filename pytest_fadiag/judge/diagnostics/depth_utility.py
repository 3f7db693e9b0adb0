"""(e) Do the blocks make the class easier to read than random ones would?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..depth import Depth, reads_less
from ..observers import ACCURACY, DEPTH
from ..wording import beside, count, figure, fraction, limit, listed, points, spans
from .base import Diagnostic, Finding, Status
from .cause import Cause, CauseKind
from .column import Column, ColumnKind

if TYPE_CHECKING:
    from ..report import DiagnosticReport

SKEWED = 2.0
"""From so many times its equal share on a class is frequent."""
LITTLE_LEFT = 10.0
"""Where a probe of h_0 leaves fewer points to add, what fires says so: the data may ask little of depth."""


class DepthUtility(Diagnostic):
    """Fires when a linear probe reads hardly more at h_L than at h_0, beyond what blocks drawn anew would add."""

    key = "e"
    name = "depth-utility"
    question = "do the blocks make the class easier to read than random ones would?"
    threshold = "depth_utility_minimum_pp"
    observers = (DEPTH, ACCURACY)
    walk_back = "depth adds nothing to read"
    by_default = False
    columns = (Column(key, "depth", lambda report: report.depth_utility_pp, ColumnKind.POINTS, priority=1),)

    def judge(self, report: DiagnosticReport) -> Finding:
        depth, minimum = report.depth, report.thresholds.depth_utility_minimum_pp
        if depth is None or depth.problem:
            why = "no probe was read" if depth is None else depth.problem
            return self.finding(report, Status.NOT_MEASURED, None, why)
        if any(depth.nonfinite):
            return self._broken(report, depth)
        if depth.untrained:
            return self._untrained(report, depth)
        bounded = depth.utility_pp is None
        value = depth.gain_pp if depth.utility_pp is None else depth.utility_pp
        what = f"{'gain' if bounded else 'depth utility'} {beside(points, value, minimum)} pp"
        low, high = depth.interval or (value, value)
        unresolved = {CauseKind.UNRESOLVED: low <= minimum <= high, CauseKind.DRAWS_DIFFER: depth.by_draw_pp > minimum}
        causes = tuple(Cause(kind) for kind, is_so in unresolved.items() if is_so)
        if value < minimum:
            return self.finding(
                report, Status.FIRE, value, f"{what} < {limit(minimum)}", _meaning(depth, value, (low, high), minimum), causes
            )
        if bounded:
            headline = f"{what} >= {limit(minimum)}, but {_no_null(depth)}"
            return self.finding(report, Status.LIKELY_PASS, value, headline, causes=(Cause(CauseKind.BOUND),))
        return self.finding(report, Status.PASS, value, f"{what} >= {limit(minimum)}", causes=causes)

    def _broken(self, report: DiagnosticReport, depth: Depth) -> Finding:
        where = listed(f"h_{layer} ({count(number, 'image')})" for layer, number in enumerate(depth.nonfinite) if number)
        return self.finding(
            report,
            Status.FIRE,
            depth.utility_pp,
            f"states are not finite: {where}",
            "Nothing can be read there, so that depth adds nothing for these images.",
            (Cause(CauseKind.NON_FINITE),),
        )

    def _untrained(self, report: DiagnosticReport, depth: Depth) -> Finding:
        value = depth.gain_pp if depth.utility_pp is None else depth.utility_pp
        more = f"{points(value)} pp beyond {_baseline(depth)}"
        behind = f" What is read behind them, {more}, is what the embedding learnt to put through these."
        return self.finding(
            report,
            Status.FIRE,
            value,
            "every block is as a new initialisation leaves it",
            f"Nothing was learnt in the blocks.{behind if value > 0 else ''}",
            (Cause(CauseKind.UNTRAINED),),
        )

    def lines(self, report: DiagnosticReport) -> list[str]:
        depth = report.depth
        if depth is None or depth.problem:
            return [f"not measured: {'no probe was read' if depth is None else depth.problem}"]
        halves = "halves dealt by a fixed shuffle, since the data is sorted" if depth.dealt else "the other half"
        lines = [
            f"a linear probe reads: {_probes(depth.probes)}    (fitted to {count(depth.fitted, 'test image')}, read on "
            f"{depth.read:,}, {halves})"
        ]
        if depth.null:
            lines.append(f"with blocks drawn anew: {_probes(depth.null_probes)}    (mean of {count(len(depth.null), 'draw')})")
        if report.control is not None and report.control.probes:
            lines.append(f"of the control: {_probes(report.control.probes)}    ({report.control.source})")
        if report.headline_acc is not None:
            lines.append(f"{_readout(depth)} on these {count(depth.read, 'image')}; the network {report.headline_acc:.3f}")
        return [*lines, _sum(depth), *_block_lines(depth)]

    def values(self, report: DiagnosticReport) -> list[str]:
        depth = report.depth
        if depth is None or depth.problem:
            return []
        ends = f"probe {fraction(depth.probes[0])} at h_0, {fraction(depth.probes[-1])} at h_L"
        return [ends, *_sum(depth).split("    ")]


def below_embedding(report: DiagnosticReport) -> bool:
    """Whether the network reads less than a linear readout of its own embedding: what its blocks make readable is lost again.

    Where one class is frequent a probe learns that, and the network may not have been told: there it must read half as much.
    """
    depth, accuracy, companions = report.depth, report.headline_acc, report.companions
    share, classes = companions.largest_label_share, companions.label_classes
    if depth is None or depth.problem or accuracy is None or not share or not classes:
        return False
    if share * classes >= SKEWED:
        return accuracy < depth.probes[0] / 2
    images = report.accuracy.images if report.accuracy is not None else None
    return reads_less(accuracy, images or depth.read, depth.probes[0], depth.read)


def idle_remark(report: DiagnosticReport) -> str:
    """«blocks 1–3 add nothing», where depth helps as a whole and half or more of the blocks have no part in it."""
    depth = report.depth
    if depth is None or depth.problem or 2 * len(depth.idle) < len(depth.steps_pp) or not report.asks_for(DepthUtility.key):
        return ""
    return "" if DepthUtility().judge(report).fired else f"{_idle(depth)} to what a linear probe reads"


def draws_remark(report: DiagnosticReport) -> str:
    """That the null depends on the draw by more than is asked of the utility; else nothing."""
    depth, minimum = report.depth, report.thresholds.depth_utility_minimum_pp
    if depth is None or depth.problem or not depth.by_draw_pp > minimum or not report.asks_for(DepthUtility.key):
        return ""
    return (
        f"blocks drawn anew gain {listed(map(points, depth.null_gains_pp))} pp: the depth utility differs with the draw by "
        f"{_amount(depth.by_draw_pp)} pp, more than the {limit(minimum)} pp that are asked"
    )


def _meaning(depth: Depth, value: float, interval: tuple[float, float], minimum: float) -> str:
    """What stands in the paper of blocks that add too little, and no more than the interval carries."""
    low, high = interval
    left = 100 * (1 - depth.probes[0])
    little = f", and {left:.1f} pp were left to add" if left < LITTLE_LEFT else ""
    ends = f"{_readout(depth)}, of the last state {depth.probes[-1]:.3f}{little}"
    than = " than random ones would" if depth.null_pp is not None and depth.null_pp > 0 else ""
    if low > 0:
        short = f"less than the {limit(minimum)} pp that are asked"
        return f"The blocks make the class easier to read{than} by {_amount(value)} pp {_span(low, high)}, {short}; {ends}."
    if high < 0:
        said = f"The blocks make the class harder to read{than} by {_amount(-value)} pp {_span(-high, -low)}"
    else:
        said = (
            f"There is no evidence that the blocks make the class easier to read{than}: {_end(value)} pp ({_bounds(interval)})"
        )
    return f"{said}; {ends}. The accuracy is no evidence that depth was learnt."


def _baseline(depth: Depth) -> str:
    """What the utility is over: random blocks where these add something, else h_0."""
    return "the blocks drawn anew" if depth.null_pp is not None and depth.null_pp > 0 else "h_0"


def _readout(depth: Depth) -> str:
    """What is read at h_0; of a class token alone, which has not seen the image, that is not what the embedding holds."""
    return f"a linear readout of {f'{depth.tokens} at h_0' if depth.tokens else 'the embedding'} reads {depth.probes[0]:.3f}"


def _span(low: float, high: float) -> str:
    """Both ends of an interval that excludes 0, as amounts."""
    return f"({beside(_amount, low, 0.0)} to {beside(_amount, high, 0.0)})"


def _bounds(interval: tuple[float, float]) -> str:
    """Both ends of an interval, with as many digits as it takes to see whether it excludes 0."""
    return " to ".join(map(_end, interval))


def _end(value: float) -> str:
    text = beside(points, value, 0.0)
    return text if text.startswith(("+", "-")) else f"+{text}"


def _amount(value: float) -> str:
    return f"{value:.2f}"


def _probes(accuracies: tuple[float, ...]) -> str:
    return "  ".join(f"h_{layer} {fraction(accuracy)}" for layer, accuracy in enumerate(accuracies))


def _sum(depth: Depth) -> str:
    """Gain, null and utility in a row."""
    gain = f"gain {points(depth.gain_pp)} pp"
    bounds = depth.interval or (depth.gain_pp, depth.gain_pp)
    if depth.utility_pp is None or depth.null_pp is None:
        return f"{gain}    95 % interval {_bounds(bounds)} (paired)    {_no_null(depth)}"
    draws = listed(points(gain) for gain in depth.null_gains_pp)
    return (
        f"{gain}    null {points(depth.null_pp)} pp (draws {draws})    depth utility {points(depth.utility_pp)} pp    95 % "
        f"interval {_bounds(bounds)} (paired against {_baseline(depth)})"
    )


def _no_null(depth: Depth) -> str:
    if depth.undrawn:
        return f"no null: {_some(depth.undrawn)} cannot be drawn anew"
    return f"no null: {depth.null_problem or 'none was measured'}"


def _some(names: tuple[str, ...], most: int = 3) -> str:
    return listed(names) if len(names) <= most else f"{', '.join(names[:most])} and {len(names) - most} more"


def _block_lines(depth: Depth) -> list[str]:
    """What each block adds, against its null; and which blocks add nothing."""
    nulls = depth.null_steps_pp or (None,) * len(depth.steps_pp)
    parts = []
    for block, (step, null) in enumerate(zip(depth.steps_pp, nulls, strict=True)):
        beside_null = "" if null is None else f" (null {points(null)})"
        parts.append(f"{block}: {points(step)}{beside_null}")
    lines = [f"step of each block in pp: {'  '.join(parts)}"]
    if depth.as_initialised:
        several = len(depth.as_initialised) > 1
        lines.append(
            f"block{'s' if several else ''} {spans(depth.as_initialised)} {'are' if several else 'is'} as a new "
            f"initialisation leaves {'them' if several else 'it'}"
        )
    lines.append(f"‖f_l‖/‖h_l‖: {'  '.join(figure(change) for change in depth.change)}")
    if not depth.idle:
        return [*lines, "every block adds something"]
    beyond = " beyond what random blocks add" if depth.null_steps_pp else ""
    return [*lines, f"{_idle(depth)}{beyond}, as far as the 95 % interval of each step can tell"]


def _idle(depth: Depth) -> str:
    several = len(depth.idle) > 1
    return f"block{'s' if several else ''} {spans(depth.idle)} add{'' if several else 's'} nothing"
