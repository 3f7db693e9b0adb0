"""Does the last state use more than a few directions?"""

from __future__ import annotations

import math

from pytest_fadiag import Column, Diagnostic, DiagnosticReport, Finding, Status


def ranks(report: DiagnosticReport) -> list[float]:
    """The effective rank of every state, as the metric computed it; empty where it did not."""
    return [float(rank) for rank in report.extra.get("rank", {}).get("effective_ranks", ())]


class EffectiveRank(Diagnostic):
    """Fires when the samples' last states lie along fewer directions than the minimum."""

    name = "effective-rank"
    question = "does the last state use more than a few directions?"
    threshold = "effective_rank_minimum"
    default = 2.0
    needs = ("rank",)
    walk_back = "the stream has collapsed to a few directions"
    columns = (Column("rank", lambda report: (ranks(report) or [None])[-1], "{:.2f}".format),)

    def judge(self, report: DiagnosticReport) -> Finding:
        if not ranks(report):
            return self.finding(report, Status.NOT_MEASURED, None, "effective rank not measured")
        value, minimum = ranks(report)[-1], self.limit(report)
        if math.isnan(value):
            meaning = "The last state is constant or not finite."
            return self.finding(report, Status.FIRE, value, "h_L has no effective rank", meaning)
        if value < minimum:
            meaning = "For every sample the head reads the same few numbers."
            told = f"effective rank of h_L {value:.2f} < {minimum:g}"
            return self.finding(report, Status.FIRE, value, told, meaning)
        told = f"effective rank of h_L {value:.2f} >= {minimum:g}"
        return self.finding(report, Status.PASS, value, told)

    def lines(self, report: DiagnosticReport) -> list[str]:
        shown = "  ".join(f"h_{layer} {rank:.2f}" for layer, rank in enumerate(ranks(report)))
        return [f"effective rank (tr C)²/tr C² of the states: {shown or 'not measured'}"]
