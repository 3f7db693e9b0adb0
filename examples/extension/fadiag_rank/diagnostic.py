"""Does the last state use more than a few directions?"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pytest_fadiag import Column, ColumnKind, Diagnostic, DiagnosticReport, Finding, ObserverSpec, Status


@dataclass(frozen=True)
class Ranks:
    """What the observer gives, and what a file of it must hold."""

    effective_ranks: tuple[float, ...]
    """Of every state h_0 … h_L; NaN where a state is constant or not finite."""


RANKS = ObserverSpec("effective-rank", 1, "fadiag_rank.observer:StateRanks", result=Ranks)


def deepest(report: DiagnosticReport) -> float | None:
    ranks = report.observed(RANKS)
    return None if ranks is None else ranks.effective_ranks[-1]


class EffectiveRank(Diagnostic):
    """Fires when the samples' last states lie along fewer directions than the minimum."""

    name = "effective-rank"
    question = "does the last state use more than a few directions?"
    threshold = "effective_rank_minimum"
    default = 2.0
    observers = (RANKS,)
    walk_back = "the stream has collapsed to a few directions"
    columns = (Column(name, "rank", deepest, ColumnKind.SCALE, priority=7),)

    def judge(self, report: DiagnosticReport) -> Finding:
        value, minimum = deepest(report), self.limit(report)
        if value is None:
            return self.finding(report, Status.NOT_MEASURED, None, "the effective rank was not measured")
        if math.isnan(value):
            return self.finding(report, Status.FIRE, value, "h_L has no effective rank", "It is constant or not finite.")
        if value < minimum:
            said = f"effective rank of h_L {value:.2f} < {minimum:g}"
            return self.finding(report, Status.FIRE, value, said, "Whatever the sample, the head reads the same few numbers.")
        return self.finding(report, Status.PASS, value, f"effective rank of h_L {value:.2f} >= {minimum:g}")

    def lines(self, report: DiagnosticReport) -> list[str]:
        ranks = report.observed(RANKS)
        if ranks is None:
            return ["effective rank: not measured"]
        shown = (f"h_{layer} {rank:.2f}" for layer, rank in enumerate(ranks.effective_ranks))
        return ["effective rank (tr C)²/tr C² of the states: " + "  ".join(shown)]
