"""(e) Do trained blocks improve a linear probe more than random ones?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from ..margins import Z95, images_needed, reads_less
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
from .base import (
    Column,
    Curve,
    Diagnostic,
    Finding,
    Open,
    OpenKind,
    Report,
    Role,
    Status,
    classes_left_out,
    fitted_to,
    more_samples,
)

if TYPE_CHECKING:
    from ..twin import Twin

ALONE_PP = 6.0
"""Without a reliable control a pass needs a utility of this, or a lower bound at the minimum."""
FEWEST_FITTED = 1_000
"""For a pass of less than that: probes fitted to fewer flatter hollow networks by up to 3 pp."""


def _shown(report: Report) -> float | None:
    """The number that is judged, where probes were fitted."""
    if report.depth is None or not report.depth.probes:
        return None
    return report.depth.value_pp


class DepthUtility(Diagnostic):
    """Fires when a linear probe gains too little from h_0 to h_L, beyond re-initialised blocks."""

    key = "e"
    name = "depth-utility"
    question = "do trained blocks improve a linear probe more than random ones?"
    threshold = "depth_utility_minimum_pp"
    fails_if = "depth utility < {} pp"
    walk_back = "gain with depth below the minimum"
    meaning = (
        "Linear probes of every state, compared with re-initialised blocks. Below the threshold, "
        "depth made the targets no easier to decode."
    )
    instead = "claim no gain from the blocks"
    role = Role.FALLBACK
    needs = ("depth", "accuracy")
    asks_for_depth = True
    columns = (Column("utility", _shown, pp),)
    axis_title = "depth utility, pp"
    curve_title = "linear probe {score}"
    figure = "depth"

    def judge(self, report: Report) -> Finding:
        """Decide in this order: broken states, untrained blocks, unresolved, pass, fire."""
        depth = report.depth
        if depth is None and report.control_decides:
            finding = self.unmeasured(report, "not needed: a sound control decides")
            return msgspec.structs.replace(finding, open=Open(OpenKind.NOT_NEEDED))
        if depth is None:
            return self.unmeasured(report, "no probe was fitted")
        if depth.problem:
            return self.unmeasured(report, depth.problem)
        if any(depth.nonfinite):
            return self._nonfinite(report, depth)
        if depth.untrained:
            return self._untrained(report, depth)
        minimum = self.limit(report)
        value = depth.value_pp
        low, high = depth.bounds_pp
        if why := _unresolved(depth, minimum):
            return self.finding(
                report,
                Status.NOT_RESOLVED,
                value,
                why,
                interval=depth.interval,
                remedy=_remedy(report, depth, minimum),
            )
        sign = "<" if value < minimum else "≥"
        number = f"{_quantity(depth)} {distinct(pp, value, minimum)} pp"
        headline = f"{number} {sign} {limit(minimum)} pp, {interval(low, high)}"
        if not _fires(depth, minimum):
            causes = ["threshold inside the 95 % CI"] if low <= minimum else []
            return self.finding(
                report,
                Status.PASS,
                value,
                headline,
                causes=causes,
                interval=depth.interval,
                pass_open=_why_not_alone(report, depth, minimum),
                remedy=_remedy(report, depth, minimum),
            )
        claim = "no measurable gain with depth"
        meaning = "Accuracy does not show that the blocks learned."
        if high < 0:
            claim = "deep blocks reduce linear readability"
        if low > 0:
            claim = f"gain with depth below {limit(minimum)} pp"
            over = "re-initialised blocks" if depth.random_pp else "h_0"
            meaning = f"The blocks gain only {value:.2f} pp over {over}."
        return self.finding(
            report, Status.FIRE, value, headline, meaning, claim=claim, interval=depth.interval
        )

    def _nonfinite(self, report: Report, depth: Depth) -> Finding:
        """Fire for states that no probe can be fitted to."""
        broken = []
        for layer, samples in enumerate(depth.nonfinite):
            if samples:
                broken.append(f"h_{layer} of {plural(samples, report.probe_unit)}")
        return self.finding(
            report,
            Status.FIRE,
            depth.utility_pp,
            ", ".join(broken),
            "No probe can be fitted there.",
            ["non-finite"],
            claim="states are not finite",
            certain=True,
        )

    def _untrained(self, report: Report, depth: Depth) -> Finding:
        """Fire for blocks that are all as an initialisation leaves them."""
        value = depth.value_pp
        meaning = "The blocks learned nothing."
        if value > 0:
            meaning += (
                f" The {pp(value)} pp after them come from the embedding, trained through them."
            )
        return self.finding(
            report,
            Status.FIRE,
            value,
            f"{_quantity(depth)} {distinct(pp, value, self.limit(report))} pp",
            meaning,
            ["blocks at initialisation"],
            claim="blocks are still at initialisation",
            interval=depth.interval,
            certain=True,
        )

    def table(self, report: Report) -> list[str]:
        depth = report.depth or Depth()
        rows = {
            "linear probe": [fraction(probe, 3) for probe in depth.probes],
            "re-initialised": [fraction(probe, 3) for probe in depth.null_probes],
        }
        return by_state([f"h_{layer}" for layer in range(len(depth.probes))], rows)

    def lines(self, report: Report) -> Iterator[str]:
        depth = report.depth
        if depth is None or depth.problem:
            return
        yield fitted_to(report, depth)
        if depth.network is not None:
            yield (
                f"{report.probe_score}: linear probe of {_embedding(depth)} "
                f"{fraction(depth.probes[0], 3)}, network {fraction(depth.network, 3)}"
            )
        if depth.left_out:
            yield classes_left_out(depth.left_out, report.probe_unit)
        if depth.change:
            yield f"‖f_l‖/‖h_l‖ of each block: {', '.join(map(sig, depth.change))}"
        yield f"gain from h_0 to h_L {pp(depth.gain_pp)} pp; {_null_in_words(depth)}"
        if depth.allowance_pp:
            yield (
                f"with half as many to fit to, {_quantity(depth)} is at least "
                f"{pp(depth.allowance_pp)} pp higher: that much is off the lower bound"
            )
        if depth.trained:
            blocks = f"{len(depth.trained)} of {plural(len(depth.steps_pp), 'block')}"
            yield f"weights that no initialisation leaves in at least {blocks}"
        if depth.as_initialised:
            yield f"still at initialisation: {report.blocks(*depth.as_initialised)}"
        if len(depth.steps_pp) > 1:
            yield from _lines_of_blocks(report, depth)
        twin = report.twin
        if twin and twin.utility_pp is not None:
            yield twin.line("depth utility", twin.utility_pp, report.utility_share)

    def remarks(self, report: Report) -> Iterator[str]:
        """Name blocks without a part in a gain that passes."""
        depth = report.depth
        if depth is None or len(depth.steps_pp) == 1 or not report.finding(self.key).passed:
            return
        if 2 * len(depth.idle) >= len(depth.steps_pp):
            yield f"{report.blocks(*depth.idle)}: no measurable gain for a linear probe"

    def curve(self, report: Report) -> Curve | None:
        if not report.depth or not report.depth.probes:
            return None
        return Curve(ys=report.depth.probes, null=report.depth.null_probes)

    def gain_of(self, twin: Twin) -> float | None:
        return twin.utility_pp


def below_embedding(report: Report) -> bool:
    """Whether the network scores below a linear probe of its own embedding.

    What its blocks gain is then lost again.
    """
    depth = report.depth
    if depth is None or depth.problem:
        return False
    network = report.headline_acc if depth.network is None else depth.network
    if network is None:
        return False
    return reads_less(network, depth.read, depth.probes[0], depth.read)


def _why_not_alone(report: Report, depth: Depth, minimum: float) -> Open | None:
    """Why a pass cannot stand in for a reliable control; ``None`` where it can."""
    if below_embedding(report):
        why = "contradicted: the network scores below a linear probe of its own embedding"
        return Open(OpenKind.CONTRADICTED, why)
    if report.task == "regression":  # there random blocks under a trained embedding gain 14 pp
        return Open(OpenKind.NOT_ENOUGH_ALONE, "alone is not enough in regression")
    missing = []
    if not _shows_training(depth):
        missing.append("the weights do not show that half of the blocks were trained")
    low, _ = depth.bounds_pp
    if low < minimum and not _is_large(depth):
        missing.append(f"the lower bound is {pp(low)} pp, below {limit(minimum)} pp")
    if not missing:
        return None
    return Open(OpenKind.NOT_ENOUGH_ALONE, f"alone is not enough: {' and '.join(missing)}")


def _is_large(depth: Depth) -> bool:
    """Whether the utility is so large that its lower bound, or few images, change nothing."""
    return depth.value_pp - depth.allowance_pp >= ALONE_PP


def _remedy(report: Report, depth: Depth, minimum: float) -> str:
    """What narrows its interval; empty where that does not decide, and only a control does."""
    if below_embedding(report):
        return "check the normalisation of the inputs (--fa-normalize) and the head"
    if report.task == "regression" or not depth.null or _room(depth) < 2 * minimum:
        return ""
    if depth.value_pp >= minimum and not _shows_training(depth):
        return ""
    remedies = []
    if not depth.training:
        remedies.append("fit probes to the training data (--fa-train, train=)")
    images = _images_needed(depth, minimum)
    if images:
        remedies.append(more_samples(report, images, report.probe_unit))
    return " or ".join(remedies)


def _images_needed(depth: Depth, minimum: float) -> int:
    """How many images narrow the interval to one side of the minimum; 0 where none do.

    The noise of the null's draws stays however many there are.
    """
    value = depth.value_pp
    low, high = depth.bounds_pp
    draws = [max(gain, 0.0) for gain in depth.null_gains_pp]
    of_draws = (Z95 * (max(draws) - min(draws)) / 2) ** 2
    of_images = ((high - low - depth.allowance_pp) / 2) ** 2 - of_draws
    distance = minimum - value
    if value >= minimum:
        distance = max(value - depth.allowance_pp - minimum, 0.0)
    left = distance**2 - of_draws
    if min(of_images, left) <= 0:
        return 0
    needed = images_needed(depth.read, math.sqrt(of_images), math.sqrt(left))
    if needed and value >= minimum and not depth.training:
        return max(needed, 2 * FEWEST_FITTED)
    return needed


def _shows_training(depth: Depth) -> bool:
    """Whether the weights of half of the blocks are none that an initialisation leaves."""
    return 2 * len(depth.trained) >= len(depth.steps_pp)


def _room(depth: Depth) -> float:
    """What blocks could gain in pp, beyond re-initialised ones."""
    return round(100 - 100 * depth.probes[0] - depth.random_pp, 9)


def _quantity(depth: Depth) -> str:
    """What its value is called."""
    return "gain" if depth.utility_pp is None else "depth utility"


def _fires(depth: Depth, minimum: float) -> bool:
    """Whether the whole interval is below the minimum, or below 0 where that is negative."""
    _, high = depth.bounds_pp
    return high < max(minimum, 0.0)


def _unresolved(depth: Depth, minimum: float) -> str:
    """Why these probes decide nothing: no room to gain, no usable null, a wide interval.

    A loss needs no room.
    """
    value = depth.value_pp
    low, high = depth.bounds_pp
    if high < 0:
        return ""
    room = _room(depth)
    if room < 2 * minimum:
        random = ""
        if depth.random_pp:
            random = f", re-initialised blocks gain {pp(depth.random_pp)} pp"
        embedding = f"a linear probe of {_embedding(depth)} reaches {100 * depth.probes[0]:.1f} %"
        return f"{embedding}{random}: {room:.1f} pp are left, {limit(2 * minimum)} are needed"
    number = f"{_quantity(depth)} {pp(value)} pp, {interval(low, high)}"
    if not depth.null:
        if _fires(depth, minimum):
            return ""
        return f"{number}, but there is no null: {_no_null(depth)}"
    if _fires(depth, minimum):
        return ""
    if value >= minimum and low > 0:
        if depth.fitted >= FEWEST_FITTED or _is_large(depth):
            return ""
        return (
            f"{number}, fitted to {depth.fitted:,}: fewer than {FEWEST_FITTED:,} decide too little"
        )
    return f"{number}: whether it reaches {limit(minimum)} pp is undecided"


def _null_in_words(depth: Depth) -> str:
    if depth.null_pp is None:
        return f"no null: {_no_null(depth)}"
    draws = join_and(map(pp, depth.null_gains_pp))
    return f"re-initialised blocks (null) {pp(depth.null_pp)} pp ({draws})"


def _lines_of_blocks(report: Report, depth: Depth) -> Iterator[str]:
    """Name the blocks that lose against their null, and those without a measurable gain."""
    losing = [block for block, (_, high) in enumerate(depth.step_intervals) if high < 0]
    losses = []
    for block in losing:
        step = depth.steps_pp[block]
        if step < 0:
            losses.append(f"{report.blocks(block)} loses {-step:.1f} pp")
        else:
            losses.append(f"{report.blocks(block)} adds less than a re-initialised block")
    if losses:
        yield ", ".join(losses)
    idle = [block for block in depth.idle if block not in losing]
    if idle:
        over = " over re-initialised blocks" if depth.null else ""
        yield f"no measurable gain{over} (95 % CI): {report.blocks(*idle)}"


def _embedding(depth: Depth) -> str:
    return f"{depth.tokens} at h_0" if depth.tokens else "the embedding"


def _no_null(depth: Depth) -> str:
    return depth.null_problem or "none was measured"
