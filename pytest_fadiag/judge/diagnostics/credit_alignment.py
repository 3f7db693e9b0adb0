"""(f) Does the credit reduce the loss, and at which layers?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from ..records import Credit, SiteState
from ..words import and_more, join_and, limit, plural, sig, signed_cosine, table
from .base import Column, Curve, Diagnostic, Finding, Report, Role, Status
from .gradient_floor import is_at_floor

NOT_ALIGNED = {
    SiteState.UNDEFINED: "credit or gradient is zero or not finite for most samples",
    SiteState.AGAINST: "Γ is below its null: the credit points away from the gradient",
    SiteState.NULL: "Γ or Δloss does not exceed its null: no evidence that these blocks receive "
    "useful credit",
}
"""What was measured at a site that is not aligned, and no more."""
HEADER = ["site", "state", "Γ", "null 95 %", "z", "Δloss/BP", "random", "‖a‖/‖g‖"]


class CreditAlignment(Diagnostic):
    """Fires where credit is aligned at half of the blocks or fewer, or against at one."""

    key = "f"
    name = "credit-alignment"
    question = "does the credit reduce the loss, and at which layers?"
    threshold = "credit_aligned_share"
    fails_if = "share of aligned blocks ≤ {}"
    walk_back = "credit is not aligned"
    meaning = (
        "Γ at each block against a permutation null, and the loss that a small step along the "
        "credit saves. A mean over layers hides where credit is lost."
    )
    instead = "report Γ per layer"
    role = Role.EXTRA
    needs = ("gradients", "output-error", "credit")
    needs_reference = True
    needs_credit = True
    reads_logs = True
    by_default = False
    columns = (
        Column(
            "credit",
            lambda report: report.credit.aligned if report.credit and report.credit.sites else None,
            limit,
            7,
            lambda report: _aligned_of_all(report.credit),
        ),
    )
    curve_title = "Γ and its permutation null"
    figure = "credit"

    def judge(self, report: Report) -> Finding:
        credit = report.credit
        if credit is None:
            return self.unmeasured(report, "the method's credit was not measured")
        if credit.problem:
            return self.unmeasured(report, credit.problem)
        blocks = len(credit.blocks)
        share = credit.aligned / blocks
        causes = ["reference below the floor"] if is_at_floor(report) else []
        headline = f"aligned at {credit.aligned} of {plural(blocks, 'block')}"
        against = [site for site, state in credit.blocks if state is SiteState.AGAINST]
        if against:
            meaning = f"{_meaning(credit)} A high Γ at other layers does not compensate."
            if 2 * len(against) >= blocks:
                meaning += (
                    " Does the credit have the sign of a gradient? The rule steps along minus it."
                )
            return self.finding(
                report,
                Status.FIRE,
                share,
                headline,
                meaning,
                causes,
                claim=f"credit points away from the gradient at {join_and(against)}",
            )
        minimum = self.limit(report)
        if share > minimum or share == 1:
            return self.finding(report, Status.PASS, share, headline, causes=causes)
        return self.finding(
            report,
            Status.FIRE,
            share,
            f"{headline} (need more than {limit(minimum * blocks)})",
            f"{_meaning(credit)} Report Γ per layer, never a mean over layers.",
            causes,
        )

    def table(self, report: Report) -> list[str]:
        credit = report.credit
        if credit is None or credit.problem:
            return []
        rows = [_site_cells(credit, index) for index in range(len(credit.sites))]
        rows.sort(key=lambda cells: cells[0] == "h_0")
        return table([HEADER, *rows])

    def lines(self, report: Report) -> Iterator[str]:
        credit = report.credit
        if credit is None:
            yield "give the method's credit by --fa-credit=package.module:function"
            return
        if credit.problem:
            return
        yield f"source of the credit: {credit.source}; {plural(credit.samples, 'sample')}"
        if report.stream:
            yield "; ".join(map(report.site, credit.sites))
        undefined = []
        for site, samples in zip(credit.sites, credit.undefined, strict=True):
            if samples:
                undefined.append(f"{site} ({samples:,})")
        if undefined:
            sites = ", ".join(undefined)
            yield f"samples whose credit or gradient is zero or not finite: {sites}"
        yield from _on_the_mean(credit)
        if "h_0" in credit.sites:
            yield "h_0 (embedding) shown for reference, not judged"
        if any(map(math.isnan, credit.nudge)):
            yield "where Δloss is unresolved, Γ alone decides"
        if is_at_floor(report):
            yield "caution: (b) fires, so Γ here is relative to a gradient below the floor"
        if credit.is_gradient:
            yield (
                "the credit is the BP gradient itself: right for BP, and for EP at equilibrium; "
                "for any other rule, check the credit function: it is returning the BP gradient"
            )

    def is_shown(self, report: Report) -> bool:
        return report.credit is not None

    def curve(self, report: Report) -> Curve | None:
        credit = report.credit
        if credit is None or not credit.gamma:
            return None
        layers = [int(site.removeprefix("h_")) for site in credit.sites]
        not_aligned = []
        for index, state in enumerate(credit.state):
            if layers[index] and state is not SiteState.ALIGNED:
                not_aligned.append(index)
        return Curve(
            xs=layers,
            ys=credit.gamma,
            decisive=tuple(not_aligned),
            low=credit.null_low,
            high=credit.null_high,
        )


def _aligned_of_all(credit: Credit | None) -> str:
    return f"{credit.aligned}/{len(credit.blocks)}" if credit else ""


def _site_cells(credit: Credit, index: int) -> list[str]:
    """The numbers of one site as a row of the table."""
    low = signed_cosine(credit.null_low[index])
    high = signed_cosine(credit.null_high[index])
    nudge = credit.nudge[index]
    return [
        credit.sites[index],
        credit.state[index].value,
        signed_cosine(credit.gamma[index]),
        f"[{low}, {high}]",
        signed_cosine(credit.z[index], 1),
        "unresolved" if math.isnan(nudge) else signed_cosine(nudge),
        _largest_draw(credit.random_nudge[index]),
        sig(credit.magnitude[index]),
    ]


def _on_the_mean(credit: Credit) -> Iterator[str]:
    """Warn of a mean over layers that is above the null where most blocks are not."""
    aligned = []
    others = []
    for site, gamma, state in zip(credit.sites, credit.gamma, credit.state, strict=True):
        if state is SiteState.ALIGNED:
            aligned.append(f"{site} {signed_cosine(gamma, 2)}")
        else:
            others.append(gamma)
    mean = statistics.fmean(credit.gamma)
    by_chance = max(credit.null_high) / math.sqrt(len(credit.gamma))
    if aligned and mean > by_chance and 2 * credit.aligned <= len(credit.blocks):
        low = signed_cosine(min(others), 2)
        high = signed_cosine(max(others), 2)
        yield (
            f"the mean over layers is {signed_cosine(mean, 2)}: {and_more(aligned)}, the others "
            f"{low} to {high}"
        )


def _largest_draw(draws: Sequence[float]) -> str:
    return f"±{max(map(abs, draws)):.3f}" if draws else ""


def _meaning(credit: Credit) -> str:
    """What was measured at the sites that are not aligned."""
    sentences = []
    for kind, words in NOT_ALIGNED.items():
        sites = [site for site, state in credit.blocks if state is kind]
        if sites:
            sentences.append(f"At {join_and(sites)}, {words}.")
    return " ".join(sentences)
