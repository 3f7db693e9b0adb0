"""(e) Do trained blocks improve a linear probe more than random ones?"""

from __future__ import annotations

from ..margins import reads_less
from ..records import Depth
from ..words import and_more, by_state, distinct, interval, join_and, limit, plural, pp, sig
from .base import Column, Diagnostic, Finding, Report, Status

SKEWED = 2.0
"""From so many times its equal share on a class is frequent."""
LITTLE_LEFT = 10.0
"""Where a probe of h_0 leaves fewer points to gain, what fires says so."""


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
        """Decide in this order: no probes, broken states, untrained blocks, too little, no null."""
        depth, minimum = report.depth, self.limit(report)
        if depth is None or depth.problem:
            why = depth.problem if depth else "no probe was fitted"
            return self.finding(report, Status.NOT_MEASURED, None, why)
        bound, span = depth.utility_pp is None, depth.interval
        value = depth.gain_pp if depth.utility_pp is None else depth.utility_pp
        low, high = span or (value, value)
        number = f"{'gain' if bound else 'depth utility'} {distinct(pp, value, minimum)} pp"
        if any(depth.nonfinite):
            broken = [(at, images) for at, images in enumerate(depth.nonfinite) if images]
            return self.finding(
                report,
                Status.FIRE,
                depth.utility_pp,
                ", ".join(f"h_{at} of {plural(images, 'image')}" for at, images in broken),
                "No probe can be fitted there: depth adds nothing for these images.",
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
        causes = (
            "threshold inside the 95 % CI" if low <= minimum <= high else "",
            "null varies between initialisations" if depth.draw_spread_pp > minimum else "",
        )
        if value < minimum:
            claim, meaning = _shortfall(depth, value, minimum)
            headline = f"{number} < {limit(minimum)} pp, {interval(low, high)}"
            return self.finding(
                report, Status.FIRE, value, headline, meaning, causes, claim=claim, interval=span
            )
        headline = f"{number} ≥ {limit(minimum)} pp"
        return self.finding(
            report,
            Status.PASS,
            value,
            f"{headline}, but there is no null: {_no_null(depth)}" if bound else headline,
            causes=() if bound else causes,
            doubts=["a bound"] * bound,
            interval=span,
        )

    def lines(self, report: Report) -> list[str]:
        depth, accuracy, control = report.depth, report.headline_acc, report.control
        if depth is None or depth.problem:
            return [report.finding(self.key).headline]
        rows = {
            "linear probe": [f"{probe:.3f}" for probe in depth.probes],
            "re-initialised": [f"{probe:.3f}" for probe in depth.null_probes],
            "control": [f"{probe:.3f}" for probe in control.probes] if control else [],
            "step/pp": ["", *map(pp, depth.steps_pp)],
            "null step/pp": ["", *map(pp, depth.null_steps_pp)],
            "‖f_l‖/‖h_l‖": ["", *map(sig, depth.change)],
        }
        losses = [block for block, (_, high) in enumerate(depth.step_intervals) if high < 0]
        idle = [block for block in depth.idle if block not in losses]
        halves = "halves by a fixed shuffle" if depth.shuffled else "the other half"
        null, utility = depth.null_pp, depth.utility_pp
        draws = join_and(map(pp, depth.null_gains_pp)) if depth.null else ""
        lines = (
            f"fitted on {plural(depth.fitted, 'test image')}, evaluated on {depth.read:,} "
            f"({halves})",
            f"accuracy: linear probe of {_embedding(depth)} {depth.probes[0]:.3f}, network "
            f"{accuracy:.3f}"
            if accuracy is not None
            else "",
            f"gain {pp(depth.gain_pp)} pp, no null: {_no_null(depth)}"
            if utility is None or null is None
            else f"gain {pp(depth.gain_pp)} pp, null {pp(null)} pp ({draws}), depth utility "
            f"{pp(utility)} pp over {_baseline(depth)}",
            f"{interval(*depth.interval)} (paired)" if depth.interval else "",
            f"still at initialisation: {report.blocks(*depth.as_initialised)}"
            if depth.as_initialised
            else "",
            ", ".join(f"{report.blocks(at)} loses {-depth.steps_pp[at]:.1f} pp" for at in losses),
            f"no measurable gain over re-initialised blocks (95 % CI): {report.blocks(*idle)}"
            if idle
            else "",
        )
        states = [f"h_{layer}" for layer in range(len(depth.probes))]
        return [*by_state(states, rows), *filter(None, lines)]


def below_embedding(report: Report) -> bool:
    """Whether the network is less accurate than a linear probe of its own embedding.

    What its blocks gain is then lost again. Where one class is frequent a probe learns that, and
    the network may not have: there it must reach half as much.
    """
    depth, accuracy, share = report.depth, report.headline_acc, report.label_class_share
    if depth is None or depth.problem or accuracy is None or not share or not report.label_classes:
        return False
    if share * report.label_classes >= SKEWED:
        return accuracy < depth.probes[0] / 2
    images = report.score.images if report.score else None
    return reads_less(accuracy, images or depth.read, depth.probes[0], depth.read)


def _shortfall(depth: Depth, value: float, minimum: float) -> tuple[str, str]:
    """What a utility below the minimum is called and means: no more than its interval says."""
    low, high = depth.interval or (value, value)
    left = 100 * (1 - depth.probes[0])
    little = f" ({left:.1f} pp were left to gain)" if left < LITTLE_LEFT else ""
    ends = (
        f"Linear probe: {depth.probes[0]:.3f} of {_embedding(depth)}, {depth.probes[-1]:.3f} of "
        f"h_L{little}."
    )
    if low > 0:
        gain = f"The blocks gain only {value:.2f} pp over {_baseline(depth)}."
        return f"gain with depth below {limit(minimum)} pp", f"{gain} {ends}"
    claim, said = "no measurable gain with depth", "The 95 % CI includes 0."
    if high < 0:
        claim = "deep blocks reduce linear readability"
        said = f"The blocks lose {-value:.2f} pp against {_baseline(depth)}."
    return claim, f"{said} {ends} Accuracy is not evidence that the deep blocks learned."


def _baseline(depth: Depth) -> str:
    """What the utility is over: random blocks where these gain something, else h_0."""
    return "re-initialised blocks" if depth.null_pp is not None and depth.null_pp > 0 else "h_0"


def _embedding(depth: Depth) -> str:
    return f"{depth.tokens} at h_0" if depth.tokens else "the embedding"


def _no_null(depth: Depth) -> str:
    if depth.not_reinitialised:
        return f"{and_more(depth.not_reinitialised)} cannot be re-initialised"
    return depth.null_problem or "none was measured"
