"""(f) Does the credit reduce the loss, and at which layers?"""

from __future__ import annotations

import math

from ..records import Credit, SiteState
from ..words import join_and, limit, plural, sig, signed_cosine, table
from .base import Column, Diagnostic, Finding, Report, Status

_KINDS = {
    SiteState.UNDEFINED: "credit or gradient is zero or not finite for most samples",
    SiteState.AGAINST: "Γ is below its null: the credit points away from the gradient",
    SiteState.NULL: "Γ or Δloss does not exceed its null: no evidence that these blocks receive "
    "useful credit",
}


class CreditAlignment(Diagnostic):
    """Fires where credit is aligned at half of the blocks or fewer, or against at one."""

    key = "f"
    name = "credit-alignment"
    question = "does the credit reduce the loss, and at which layers?"
    threshold = "credit_aligned_share"
    needs = ("gradients", "output-error", "credit")
    walk_back = "credit is not aligned"
    by_default = False
    columns = (
        Column(
            "credit",
            lambda report: report.credit.aligned if report.credit and report.credit.sites else None,
            limit,
            7,
            lambda report: (
                f"{report.credit.aligned}/{len(report.credit.blocks)}" if report.credit else ""
            ),
        ),
    )

    def judge(self, report: Report) -> Finding:
        credit, minimum = report.credit, self.limit(report)
        if credit is None or credit.problem:
            why = credit.problem if credit else "the method's credit was not measured"
            return self.unmeasured(report, why)
        count, share = len(credit.blocks), credit.aligned / len(credit.blocks)
        causes = ("reference below the floor",) if report.at_floor else ()
        headline = f"aligned at {credit.aligned} of {plural(count, 'block')}"
        against = [site for site, state in credit.blocks if state is SiteState.AGAINST]
        if against:
            sign = " Does the credit have the sign of a gradient? The rule steps along minus it."
            meaning = f"{_meaning(credit)} A high Γ at other layers does not compensate."
            return self.finding(
                report,
                Status.FIRE,
                share,
                headline,
                meaning + (sign if 2 * len(against) >= count else ""),
                causes,
                claim=f"credit points away from the gradient at {join_and(against)}",
            )
        if share > minimum or share == 1:
            return self.finding(report, Status.PASS, share, headline, causes=causes)
        meaning = f"{_meaning(credit)} Report Γ per layer, never a mean over layers."
        headline += f" (need more than {limit(minimum * count)})"
        return self.finding(report, Status.FIRE, share, headline, meaning, causes)

    def table(self, report: Report) -> list[str]:
        credit = report.credit
        if credit is None or credit.problem:
            return []
        header = ["site", "state", "Γ", "null 95 %", "z", "Δloss/BP", "random", "‖a‖/‖g‖"]
        columns = (
            credit.sites,
            [state.value for state in credit.state],
            map(signed_cosine, credit.gamma),
            [
                f"[{signed_cosine(low)}, {signed_cosine(high)}]"
                for low, high in zip(credit.null_low, credit.null_high, strict=True)
            ],
            [signed_cosine(z, 1) for z in credit.z],
            ["unresolved" if math.isnan(r) else signed_cosine(r) for r in credit.nudge],
            [f"±{max(map(abs, draws)):.3f}" if draws else "" for draws in credit.random_nudge],
            map(sig, credit.magnitude),
        )
        rows = sorted(map(list, zip(*columns, strict=True)), key=lambda row: row[0] == "h_0")
        return table([header, *rows])

    def lines(self, report: Report) -> list[str]:
        credit = report.credit
        if credit is None:
            return ["give the method's credit by --fa-credit=package.module:function"]
        if credit.problem:
            return []
        lost = [f"{s} ({n:,})" for s, n in zip(credit.sites, credit.undefined, strict=True) if n]
        return [
            f"source of the credit: {credit.source}; {plural(credit.samples, 'sample')}",
            "; ".join(map(report.site, credit.sites)) if report.stream else "",
            f"samples whose credit or gradient is zero or not finite: {', '.join(lost)}"
            if lost
            else "",
            "h_0 (embedding) shown for reference, not judged" if "h_0" in credit.sites else "",
            "where Δloss is unresolved, Γ alone decides"
            if any(map(math.isnan, credit.nudge))
            else "",
            "caution: (b) fires, so Γ here is relative to a gradient below the floor"
            if report.at_floor
            else "",
            "the credit is the BP gradient itself: right for BP, and for EP at equilibrium; for "
            "any other rule, check the credit function: it is returning the BP gradient"
            if credit.is_gradient
            else "",
        ]


def _meaning(credit: Credit) -> str:
    """What was measured at the sites that are not aligned, and no more."""
    kinds = {kind: [s for s, state in credit.blocks if state is kind] for kind in _KINDS}
    return " ".join(f"At {join_and(at)}, {_KINDS[kind]}." for kind, at in kinds.items() if at)
