"""(a) Does the residual stream explode?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from ..words import by_state, distinct, limit, plural, sig
from .base import Column, Diagnostic, Finding, Report, Status

SLACK = 1e-12
"""What rounding may add: 2,500 and 125,000 are exact powers of 50."""


def compared(report: Report) -> tuple[float | None, ...]:
    """What growth compares: the norms, or ‖h_l‖/√n_l where the shape of the stream changes."""
    norms, sizes = report.residual_norms, report.stream.sizes if report.stream else ()
    if len(sizes) != len(norms) or len(set(sizes)) == 1:
        return norms
    pairs = zip(norms, sizes, strict=True)
    return tuple(None if norm is None else norm / math.sqrt(size) for norm, size in pairs)


def steps(norms: Sequence[float | None]) -> list[float]:
    """The growth of every block, ‖h_{l+1}‖/‖h_l‖."""
    return [_ratio(after, before) for before, after in pairwise(norms)]


def largest_growth(norms: Sequence[float | None], form: str) -> float:
    """The largest growth per block, or against h_0; NaN where it is not defined."""
    found = steps(norms) if form == "per_block" else [_ratio(norm, norms[0]) for norm in norms]
    return max((value for value in found if not math.isnan(value)), default=math.nan)


def growth(report: Report) -> float | None:
    """The growth that the report's thresholds select; ``None`` where not every norm is known."""
    norms = compared(report)
    known = norms and None not in norms and report.depth_known
    return largest_growth(norms, report.thresholds.growth) if known else None


def first_nonfinite(report: Report, norms: Sequence[float | None], counts: Sequence[int]) -> str:
    """Where a non-finite number was seen; the counts also catch samples that a median hides."""
    sites = [at for at, norm in enumerate(norms) if norm is not None and not math.isfinite(norm)]
    sites += [at for at, number in enumerate(counts) if number]
    samples = f", {plural(max(counts), 'sample')}" if any(counts) else ""
    return f"first at h_{report.layer(min(sites))}{samples}" if sites else ""


class ResidualGrowth(Diagnostic):
    """Fires when one block multiplies the size of the stream by more than the ratio."""

    key = "a"
    name = "residual-growth"
    question = "does the residual stream explode?"
    threshold = "h_norm_explosion_ratio"
    needs = ("states",)
    walk_back = "residual stream exploded"
    columns = (
        Column("‖h_L‖", lambda report: (report.residual_norms or (None,))[-1], sig, 4),
        Column("growth", growth, sig, 2),
    )

    def judge(self, report: Report) -> Finding:
        norms, most, value = compared(report), self.limit(report), growth(report)
        cumulative = report.thresholds.growth == "cumulative"
        if broken := first_nonfinite(report, norms, report.nonfinite_states):
            return self.finding(
                report,
                Status.FIRE,
                value,
                broken,
                "No hidden-layer number of this network can be reported.",
                ("non-finite",),
                claim="residual stream is not finite",
            )
        if 0 in norms:
            return self.finding(
                report,
                Status.FIRE,
                value,
                f"first at h_{report.layer(norms.index(0))}",
                "No signal passes there: neither accuracy nor Γ describes a trained network.",
                ("all-zero stream",),
                claim="residual stream is all zero",
            )
        bound, rest = value is None, ""
        if value is None:  # from a log: h_0 and h_L alone bound the growth between them
            if not norms or norms[0] is None or norms[-1] is None or any(norms[1:-1]):
                lacking = [f"h_{report.layer(at)}" for at, norm in enumerate(norms) if norm is None]
                why = f"‖h_l‖ not known ({', '.join(lacking)}): log every layer, or h_0 and h_L"
                return self.unmeasured(report, why)
            quotient, blocks = norms[-1] / norms[0], len(norms) - 1
            if not report.depth_known and not cumulative and max(quotient, 1.0) > most:
                why = (
                    f"‖h_L‖/‖h_0‖ is {sig(quotient)} over an unknown number of blocks: log n_blocks"
                )
                return self.unmeasured(report, why)
            root = quotient ** (1 / blocks) if report.depth_known else quotient
            value = max(quotient, 1.0) if cumulative else root
            value = value if value > most * (1 + SLACK) else min(value, most)
            powers = math.log(quotient) / math.log(most) if most > 1 and quotient > 1 else 0.0
            could = min(blocks, math.floor(powers + SLACK))
            rest = "; no block exceeds it unless another shrinks the stream"
            if could and not cumulative:
                many = f"up to {could} of {plural(blocks, 'block')}"
                rest = f"; {many} could exceed it if none shrinks the stream"
        form = f"{'cumulative' if cumulative else 'per-block'} growth{' at least' * bound}"
        number = f"{form} {distinct(sig, value, most)}"
        if value > most:
            meaning = "Hidden-layer norms and Γ describe scale, not credit."
            if not bound and not cumulative:
                meaning = f"It explodes in {report.blocks(steps(norms).index(value))}. {meaning}"
            return self.finding(report, Status.FIRE, value, f"{number} > {limit(most)}", meaning)
        headline, doubts = f"{number} ≤ {limit(most)}{rest}", ["a bound"] * bound
        return self.finding(report, Status.PASS, value, headline, doubts=doubts)

    def table(self, report: Report) -> list[str]:
        norms = compared(report)
        known = [index for index, norm in enumerate(norms) if norm is not None]
        rms = [sig(norms[index] or 0.0) for index in known]
        rows = {
            "‖h_l‖": [sig(report.residual_norms[index] or 0.0) for index in known],
            "root mean square": rms if norms != report.residual_norms else [],
        }
        return by_state([f"h_{report.layer(index)}" for index in known], rows)

    def lines(self, report: Report) -> list[str]:
        norms, forms = compared(report), ("per_block", "cumulative")
        if growth(report) is None:
            return []
        per_block, total = (sig(largest_growth(norms, form)) for form in forms)
        return [
            f"growth of each block: {', '.join(map(sig, steps(norms)))}",
            f"per-block growth {per_block}, cumulative growth {total} (largest ‖h_l‖/‖h_0‖)",
        ]


def _ratio(after: float | None, before: float | None) -> float:
    if after is None or before is None or after == before == 0:
        return math.nan
    return after / before if before else math.inf
