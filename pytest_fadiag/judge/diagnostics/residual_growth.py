"""(a) Does the residual stream explode?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import ClassVar

from ..errors import AuditError
from ..words import by_state, distinct, limit, plural, sig
from .base import Column, Curve, Diagnostic, Finding, Report, Role, Status

SLACK = 1e-12
"""What rounding may add: 2,500 and 125,000 are exact powers of 50."""


def comparable_norms(report: Report) -> tuple[float | None, ...]:
    """What growth compares: the norms, or ‖h_l‖/√n_l where the shape of the stream changes."""
    norms = report.residual_norms
    sizes = report.stream.sizes if report.stream else ()
    if len(sizes) != len(norms) or len(set(sizes)) == 1:
        return norms
    mean_squares: list[float | None] = []
    for norm, size in zip(norms, sizes, strict=True):
        mean_squares.append(None if norm is None else norm / math.sqrt(size))
    return tuple(mean_squares)


def block_growths(norms: Sequence[float | None]) -> list[float]:
    """The growth of every block, ‖h_{l+1}‖/‖h_l‖."""
    return [_ratio(after, before) for before, after in pairwise(norms)]


def largest_growth(norms: Sequence[float | None], form: str) -> float:
    """The largest growth per block, or against h_0; NaN where it is not defined."""
    growths = block_growths(norms)
    if form == "cumulative":
        growths = [_ratio(norm, norms[0]) for norm in norms]
    return max((value for value in growths if not math.isnan(value)), default=math.nan)


def growth(report: Report) -> float | None:
    """The growth that the report's thresholds select; ``None`` where not every norm is known."""
    norms = comparable_norms(report)
    if not norms or None in norms or not report.depth_known:
        return None
    return largest_growth(norms, report.thresholds.growth)


def _ratio(after: float | None, before: float | None) -> float:
    if after is None or before is None or after == before == 0:
        return math.nan
    if before == 0:
        return math.inf
    return after / before


class ResidualGrowth(Diagnostic):
    """Fires when one block multiplies the size of the stream by more than the ratio."""

    key = "a"
    name = "residual-growth"
    question = "does the residual stream explode?"
    threshold = "h_norm_explosion_ratio"
    fails_if = "growth > {}×"
    walk_back = "residual stream exploded"
    meaning = (
        "The final normalisation divides by the size of the stream. Where the stream explodes, "
        "hidden-layer norms and Γ describe scale, not credit."
    )
    instead = "report no Γ"
    role = Role.REQUIRED
    needs = ("states",)
    reads_logs = True
    stops_training = True
    published: ClassVar[Mapping[str, str]] = {"three": "D1", "four": ""}
    columns = (
        Column("‖h_L‖", lambda report: (report.residual_norms or (None,))[-1], sig, 4),
        Column("growth", growth, sig),
    )
    curve_title = "median ‖h_l‖"
    curve_log = True

    def judge(self, report: Report) -> Finding:
        """Decide in this order: broken states, then the growth, or what its ends tell of it."""
        norms = comparable_norms(report)
        value = growth(report)
        if broken := first_nonfinite(report, norms, report.nonfinite_states):
            return self.finding(
                report,
                Status.FIRE,
                value,
                broken,
                "No hidden-layer number of this network can be reported.",
                ["non-finite"],
                claim="residual stream is not finite",
            )
        if 0 in norms:
            return self.finding(
                report,
                Status.FIRE,
                value,
                f"first at h_{report.layer(norms.index(0))}",
                "No signal passes there: neither accuracy nor Γ describes a trained network.",
                ["all-zero stream"],
                claim="residual stream is all zero",
            )
        if value is None:
            return self._judge_ends(report, norms)
        ratio = self.limit(report)
        cumulative = report.thresholds.growth == "cumulative"
        number = f"{_form(report)} growth {distinct(sig, value, ratio)}"
        if value <= ratio:
            return self.finding(report, Status.PASS, value, f"{number} ≤ {limit(ratio)}")
        meaning = "Hidden-layer norms and Γ describe scale, not credit."
        if not cumulative:
            exploding = block_growths(norms).index(value)
            meaning = f"It explodes in {report.blocks(exploding)}. {meaning}"
        return self.finding(report, Status.FIRE, value, f"{number} > {limit(ratio)}", meaning)

    def _judge_ends(self, report: Report, norms: Sequence[float | None]) -> Finding:
        """Judge a log that has h_0 and h_L alone: they bound the growth between them."""
        ends_alone = norms and norms[0] and norms[-1] and not any(norms[1:-1])
        if not ends_alone:
            unknown = [f"h_{report.layer(at)}" for at, norm in enumerate(norms) if norm is None]
            why = f"‖h_l‖ not known ({', '.join(unknown)}): log every layer, or h_0 and h_L"
            return self.unmeasured(report, why)
        ratio = self.limit(report)
        cumulative = report.thresholds.growth == "cumulative"
        total = norms[-1] / norms[0]  # type: ignore[operator]
        blocks = len(norms) - 1
        if not report.depth_known and not cumulative and max(total, 1.0) > ratio:
            why = f"‖h_L‖/‖h_0‖ is {sig(total)} over an unknown number of blocks: log n_blocks"
            return self.unmeasured(report, why)
        bound = total ** (1 / blocks) if report.depth_known else total
        if cumulative:
            bound = max(total, 1.0)
        number = f"{_form(report)} growth at least"
        if bound > ratio * (1 + SLACK):
            headline = f"{number} {distinct(sig, bound, ratio)} > {limit(ratio)}"
            meaning = "Hidden-layer norms and Γ describe scale, not credit."
            return self.finding(report, Status.FIRE, bound, headline, meaning)
        bound = min(bound, ratio)
        exceeding = 0
        if not cumulative and ratio > 1 and total > 1:
            exceeding = min(blocks, math.floor(math.log(total) / math.log(ratio) + SLACK))
        headline = f"{number} {distinct(sig, bound, ratio)} ≤ {limit(ratio)}; "
        if exceeding:
            headline += f"up to {exceeding} of {plural(blocks, 'block')} could exceed it if none "
            headline += "shrinks the stream"
        else:
            headline += "no block exceeds it unless another shrinks the stream"
        return self.finding(report, Status.PASS, bound, headline, doubts=["a bound"])

    def table(self, report: Report) -> list[str]:
        compared = comparable_norms(report)
        states, sizes, mean_squares = [], [], []
        for index, norm in enumerate(report.residual_norms):
            if norm is not None:
                states.append(f"h_{report.layer(index)}")
                sizes.append(sig(norm))
                mean_squares.append(sig(compared[index] or 0.0))
        rows = {"‖h_l‖": sizes}
        if compared != report.residual_norms:
            rows["root mean square"] = mean_squares
        return by_state(states, rows)

    def lines(self, report: Report) -> Iterator[str]:
        if growth(report) is None:
            return
        norms = comparable_norms(report)
        yield f"growth of each block: {', '.join(map(sig, block_growths(norms)))}"
        per_block = sig(largest_growth(norms, "per_block"))
        cumulative = sig(largest_growth(norms, "cumulative"))
        yield (
            f"per-block growth {per_block}, cumulative growth {cumulative} (largest ‖h_l‖/‖h_0‖)"
        )

    def remarks(self, report: Report) -> Iterator[str]:
        """Name a stream that explodes in many small steps."""
        if growth(report) is None or not report.finding(self.key).passed:
            return
        norms = comparable_norms(report)
        ratio = report.thresholds.h_norm_explosion_ratio
        total = largest_growth(norms, "cumulative")
        if total > ratio * ratio:
            growths = ", ".join(map(sig, block_growths(norms)))
            yield (
                f"the stream grows by {sig(total)} in all, though no block exceeds "
                f"{limit(ratio)}: {growths}"
            )

    def check(self, report: Report) -> None:
        require_norms(report, "residual_norms")

    def curve(self, report: Report) -> Curve | None:
        norms = report.residual_norms
        if not norms:
            return None
        known = [norm for norm in comparable_norms(report) if norm is not None]
        growths = [0.0, *block_growths(known)]
        ratio = report.thresholds.h_norm_explosion_ratio
        before = norms[:-1]
        name = f"{limit(ratio)} × the state before"
        if report.thresholds.growth == "cumulative":
            before = norms[:1] * len(before)
            name = f"{limit(ratio)} × ‖h_0‖"
        return Curve(
            ys=norms,
            decisive=(growths.index(max(growths)),),
            limit=tuple(ratio * (norm or 0.0) for norm in before),
            limit_name=name,
        )


def first_nonfinite(report: Report, norms: Sequence[float | None], counts: Sequence[int]) -> str:
    """Where a non-finite number was seen; the counts also catch samples that a median hides."""
    layers = [at for at, norm in enumerate(norms) if norm is not None and not math.isfinite(norm)]
    layers += [at for at, count in enumerate(counts) if count]
    if not layers:
        return ""
    where = f"first at h_{report.layer(min(layers))}"
    if any(counts):
        where += f", {plural(max(counts), 'sample')}"
    return where


def require_norms(report: Report, field: str) -> None:
    """Raise where a network was measured and the norms of this field are missing."""
    norms = getattr(report, field)
    explained = report.log or report.unproven or report.stream_problem
    if not norms and not explained:
        raise AuditError(f"{field} has 0 entries: there is nothing to judge")


def _form(report: Report) -> str:
    return "cumulative" if report.thresholds.growth == "cumulative" else "per-block"
