"""(e) Do trained blocks improve a linear probe more than random ones?"""

from __future__ import annotations

from ..margins import reads_less
from ..records import Depth
from ..words import (
    by_state,
    distinct,
    fraction,
    interval,
    join_and,
    limit,
    plural,
    pp,
    sig,
)
from .base import Column, Diagnostic, Finding, Report, Status
from .linear_floor import left_out

ALONE_PP = 6.0
"""A pass below this is not enough without a reliable control: an embedding that is trained through
frozen random blocks reaches 4.9 pp."""


class DepthUtility(Diagnostic):
    """Fires when a linear probe gains too little from h_0 to h_L, beyond re-initialised blocks."""

    key = "e"
    name = "depth-utility"
    question = "do trained blocks improve a linear probe more than random ones?"
    threshold = "depth_utility_minimum_pp"
    needs = ("depth", "accuracy")
    walk_back = "gain with depth below the minimum"
    by_default = False
    columns = (Column("depth", lambda report: report.depth_utility_pp, pp, 1),)

    def judge(self, report: Report) -> Finding:
        """Decide in this order: broken states, untrained blocks, a loss, no room, no null, gain."""
        depth, minimum = report.depth, self.limit(report)
        if depth is None or depth.problem:
            why = depth.problem if depth else "no probe was fitted"
            return self.unmeasured(report, why)
        bound, span = depth.utility_pp is None, depth.interval
        value = depth.gain_pp if depth.utility_pp is None else depth.utility_pp
        low, high = span or (value, value)
        number = f"{'gain' if bound else 'depth utility'} {distinct(pp, value, minimum)} pp"
        if any(depth.nonfinite):
            broken = [(at, many) for at, many in enumerate(depth.nonfinite) if many]
            return self.finding(
                report,
                Status.FIRE,
                depth.utility_pp,
                ", ".join(f"h_{at} of {plural(many, report.probe_unit)}" for at, many in broken),
                "No probe can be fitted there.",
                ("non-finite",),
                claim="states are not finite",
            )
        if depth.untrained:
            after = f" The {pp(value)} pp after them come from the embedding, trained through them."
            return self.finding(
                report,
                Status.FIRE,
                value,
                number,
                f"The blocks learned nothing.{after if value > 0 else ''}",
                ("blocks at initialisation",),
                claim="blocks are still at initialisation",
                interval=span,
            )
        if why := _unresolved(depth, value, minimum):
            return self.finding(report, Status.NOT_RESOLVED, value, why, interval=span)
        if high < max(minimum, 0.0):
            claim = "no measurable gain with depth"
            meaning = "Accuracy does not show that the blocks learned."
            if high < 0:
                claim = "deep blocks reduce linear readability"
            if low > 0:
                claim = f"gain with depth below {limit(minimum)} pp"
                over = "re-initialised blocks" if depth.random_pp else "h_0"
                meaning = f"The blocks gain only {value:.2f} pp over {over}."
            sign = "<" if value < minimum else "≥"
            headline = f"{number} {sign} {limit(minimum)} pp, {interval(low, high)}"
            return self.finding(
                report, Status.FIRE, value, headline, meaning, claim=claim, interval=span
            )
        headline = f"{number} ≥ {limit(minimum)} pp, {interval(low, high)}"
        unsure = ["threshold inside the 95 % CI"] * (low <= minimum)
        return self.finding(report, Status.PASS, value, headline, causes=unsure, interval=span)

    def table(self, report: Report) -> list[str]:
        depth = report.depth or Depth()
        rows = {
            "linear probe": [fraction(probe, 3) for probe in depth.probes],
            "re-initialised": [fraction(probe, 3) for probe in depth.null_probes],
        }
        return by_state([f"h_{layer}" for layer in range(len(depth.probes))], rows)

    def lines(self, report: Report) -> list[str]:
        depth, twin = report.depth, report.twin
        if depth is None or depth.problem:
            return []
        several = len(depth.steps_pp) > 1
        losses = [at for at, (_, high) in enumerate(depth.step_intervals) if several and high < 0]
        idle = [at for at in depth.idle if several and at not in losses]
        halves = "halves by a fixed shuffle" if depth.shuffled else "the other half"
        return [
            f"fitted on {plural(depth.fitted, f'test {report.probe_unit}')}, evaluated on "
            f"{depth.read:,} ({halves})",
            f"{report.probe_score}: linear probe of {_embedding(depth)} "
            f"{fraction(depth.probes[0], 3)}, network {fraction(depth.network, 3)}"
            if depth.network is not None
            else "",
            left_out(depth.left_out, report.probe_unit),
            f"‖f_l‖/‖h_l‖ of each block: {', '.join(map(sig, depth.change))}"
            if depth.change
            else "",
            f"gain from h_0 to h_L {pp(depth.gain_pp)} pp; "
            + (
                f"no null: {_no_null(depth)}"
                if depth.null_pp is None
                else f"re-initialised blocks (null) {pp(depth.null_pp)} pp "
                f"({join_and(map(pp, depth.null_gains_pp))})"
            ),
            f"still at initialisation: {report.blocks(*depth.as_initialised)}"
            if depth.as_initialised
            else "",
            ", ".join(
                f"{report.blocks(at)} loses {-depth.steps_pp[at]:.1f} pp"
                if depth.steps_pp[at] < 0
                else f"{report.blocks(at)} adds less than a re-initialised block"
                for at in losses
            ),
            f"no measurable gain{' over re-initialised blocks' * bool(depth.null)} (95 % CI): "
            f"{report.blocks(*idle)}"
            if idle
            else "",
            twin.line("depth utility", twin.utility_pp, report.utility_share) if twin else "",
        ]


def below_embedding(report: Report) -> bool:
    """Whether the network scores below a linear probe of its own embedding.

    What its blocks gain is then lost again.
    """
    depth = report.depth
    if depth is None or depth.problem:
        return False
    network = report.headline_acc if depth.network is None else depth.network
    return network is not None and reads_less(network, depth.read, depth.probes[0], depth.read)


def _unresolved(depth: Depth, value: float, minimum: float) -> str:
    """Why these probes decide nothing: no room to gain, no usable null, a wide interval."""
    low, high = depth.interval or (value, value)
    room = round(100 - 100 * depth.probes[0] - depth.random_pp, 9)
    number = f"{'depth utility' if depth.null else 'gain'} {pp(value)} pp, {interval(low, high)}"
    if high < 0:
        return ""
    if room < 2 * minimum:
        random = f", re-initialised blocks gain {pp(depth.random_pp)} pp" if depth.random_pp else ""
        first = f"a linear probe of {_embedding(depth)} reaches {100 * depth.probes[0]:.1f} %"
        return f"{first}{random}: {room:.1f} pp are left, {limit(2 * minimum)} are needed"
    if not depth.null and not high < minimum:
        return f"{number}, but there is no null: {_no_null(depth)}"
    taken = [max(gain, 0.0) for gain in depth.null_gains_pp]
    if taken and round(max(taken) - min(taken), 9) > minimum:
        gains = join_and(map(pp, depth.null_gains_pp))
        return f"re-initialised blocks gain {gains} pp, more than {limit(minimum)} pp apart"
    decides = high < minimum or (value >= minimum and low > 0)
    return "" if decides else f"{number}: whether it reaches {limit(minimum)} pp is undecided"


def _embedding(depth: Depth) -> str:
    return f"{depth.tokens} at h_0" if depth.tokens else "the embedding"


def _no_null(depth: Depth) -> str:
    return depth.null_problem or "none was measured"
