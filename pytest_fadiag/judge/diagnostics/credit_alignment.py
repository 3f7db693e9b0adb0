"""(f) Does the method's credit point down the loss, and at which depth?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..credit import EMBEDDING, Credit, SiteState
from ..observers import CREDIT, GRADIENTS, OUTPUT_ERROR, REFERENCE
from ..records import BATCH
from ..wording import count, figure, listed, signed_cosine
from .base import Diagnostic, Finding, Status
from .cause import Cause, CauseKind
from .column import Column, ColumnKind
from .gradient_floor import GradientFloor

if TYPE_CHECKING:
    from ..report import DiagnosticReport

RIGHT = 0.9
"""From this Γ on, the direction of the credit is right."""
SETTLED = 10.0
"""How much the size of the credit may differ between block sites at which its direction is right."""


class CreditAlignment(Diagnostic):
    """Fires where the credit is no better than chance at half of the block sites or more, or points up the loss at one."""

    key = "f"
    name = "credit-alignment"
    question = "does the method's credit point down the loss, and at which depth?"
    threshold = "credit_aligned_share"
    observers = (REFERENCE, GRADIENTS, OUTPUT_ERROR, CREDIT)  # with ‖g‖, by which a reference at the floor is told
    walk_back = "credit is not aligned"
    by_default = False
    columns = (
        Column(
            key,
            "credit",
            lambda report: None if report.credit is None or report.credit.problem else report.credit.aligned,
            ColumnKind.COUNT,
            priority=7,
            text=lambda report: "" if report.credit is None else f"{report.credit.aligned}/{len(report.credit.blocks)}",
        ),
    )

    def judge(self, report: DiagnosticReport) -> Finding:
        credit = report.credit
        if credit is None:
            return self.finding(report, Status.NOT_MEASURED, None, "the method's credit was not measured")
        if credit.problem:
            return self.finding(report, Status.NOT_MEASURED, None, credit.problem)
        share, minimum = credit.aligned / len(credit.blocks), report.thresholds.credit_aligned_share
        causes = (Cause(CauseKind.FLOOR_REFERENCE),) if _at_floor(report) else ()
        of = f"{credit.aligned} of {count(len(credit.blocks), 'block site')} aligned"
        if credit.against:
            headline = f"{of}, and against the gradient at {listed(credit.against)}"
            said = f"{_by_kind(credit, [SiteState.AGAINST])} What Γ is elsewhere does not make up for it."
            return self.finding(report, Status.FIRE, share, headline, said, causes)
        if share > minimum or share == 1:
            return self.finding(report, Status.PASS, share, of, causes=causes)
        said = f"{_by_kind(credit, [SiteState.NULL, SiteState.UNDEFINED])} Report Γ for each layer, never a mean over layers."
        return self.finding(report, Status.FIRE, share, f"{of}, not more than {minimum:.0%}", said, causes)

    def lines(self, report: DiagnosticReport) -> list[str]:
        credit = report.credit
        if credit is None:
            return ["not measured: give the method's credit by --fa-credit=package.module:function"]
        if credit.problem:
            return [f"not measured: {credit.problem}"]
        lines = [
            f"credit from {credit.source}, {count(credit.samples, 'sample')}; the null is Γ with features permuted, 95 % of "
            "200 draws; a nudge is the loss that a step of ‖h‖/1000 saves, as a share of what BP's step saves, and random is "
            f"the range of five random directions over {BATCH} samples; the g of ‖a‖/‖g‖ is that of the summed loss, without "
            f"the 1/{BATCH} of (b)" + ("; h_0 stands apart and is not counted" if EMBEDDING in credit.sites else "")
        ]
        lines += [site_line(credit, index) for index in _blocks_first(credit)]
        return lines + credit_remarks(credit, at_floor=_at_floor(report))

    def values(self, report: DiagnosticReport) -> list[str]:
        credit = report.credit
        if credit is None or credit.problem:
            return []
        return [
            f"{site} Γ {signed_cosine(gamma)} ({state.value})"
            for site, gamma, state in zip(credit.sites, credit.gamma, credit.state, strict=True)
        ]


def _by_kind(credit: Credit, states: Sequence[SiteState]) -> str:
    """A sentence for each way in which block sites of these states are not aligned."""
    kinds: dict[str, list[str]] = {}
    for index, (site, state) in enumerate(zip(credit.sites, credit.state, strict=True)):
        if site != EMBEDDING and state in states:
            kinds.setdefault(_kind(credit, index), []).append(site)
    return " ".join(f"At {listed(sites)} {kind}." for kind, sites in kinds.items())


def _kind(credit: Credit, index: int) -> str:
    """What was measured at a site that is not aligned, and no more."""
    state, gamma = credit.state[index], credit.gamma[index]
    if state is SiteState.UNDEFINED:
        return "there is no direction to learn from: credit or gradient is zero or not finite for most samples or all"
    if state is SiteState.AGAINST and math.isnan(credit.nudge[index]):
        return "the credit points away from the gradient by Γ alone: where a step along it leads is not resolved"
    if state is SiteState.AGAINST:
        return "a step along the credit raises the loss"
    if gamma > credit.null_high[index]:
        return (
            "the credit is closer to the gradient than with its features shuffled, yet a step along it does not lower the loss"
        )
    if gamma < credit.null_low[index]:
        return "the credit points away from the gradient by Γ, though a step along it does not raise the loss"
    return (
        "the credit is no closer to the gradient than it would be with its features shuffled: these blocks do not learn from "
        "it what the loss asks of them"
    )


def site_line(credit: Credit, index: int) -> str:
    """One site: its state, Γ against its null, the nudge against random directions, and the size."""
    site, state, nudge = credit.sites[index], credit.state[index], credit.nudge[index]
    name = f"{site} {state.value:7}"
    if state is SiteState.UNDEFINED:
        return f"{name}: {_undefined(credit, index)}"
    null = f"[{signed_cosine(credit.null_low[index])}, {signed_cosine(credit.null_high[index])}]"
    moved = "not resolved, so that Γ alone decides"
    if not math.isnan(nudge):
        draws = credit.random_nudge[index]
        moved = f"{signed_cosine(nudge)} random [{min(draws):+.2f}, {max(draws):+.2f}]"
    left_out = f", undefined for {count(credit.undefined[index], 'sample')}" if credit.undefined[index] else ""
    apart = " (apart)" if site == EMBEDDING else ""
    return (
        f"{name}  Γ {signed_cosine(credit.gamma[index])}  null {null} z {credit.z[index]:+.1f}  nudge {moved}  "
        f"‖a‖/‖g‖ {figure(credit.magnitude[index])}{left_out}{apart}"
    )


def _undefined(credit: Credit, index: int) -> str:
    """Why a site has no Γ, or one of too few samples."""
    if math.isnan(credit.gamma[index]):
        return "credit or gradient is zero or not finite for all samples"
    few = f"credit or gradient is zero or not finite for {credit.undefined[index]:,} of {count(credit.samples, 'sample')}"
    return f"{few}; Γ {signed_cosine(credit.gamma[index])} is that of the others alone"


def credit_remarks(credit: Credit, *, at_floor: bool) -> list[str]:
    """What a reader must know before he quotes a Γ."""
    remarks = []
    if at_floor:
        remarks.append("Γ is taken against a reference at the floor: (b) fires")
    if credit.is_gradient:
        remarks.append(
            "the credit is the BP gradient itself, cosine 1 to rounding at every site: right for BP and for EP at equilibrium; "
            "of another rule the credit function returns the gradient by mistake"
        )
    blocks = [index for index, site in enumerate(credit.sites) if site != EMBEDDING]
    sizes = [credit.magnitude[index] for index in blocks]
    right = all(credit.gamma[index] >= RIGHT and credit.state[index] is not SiteState.UNDEFINED for index in blocks)
    if right and min(sizes) * SETTLED <= max(sizes):
        remarks.append(
            f"the directions agree and the sizes do not: ‖a‖/‖g‖ goes from {figure(min(sizes))} to {figure(max(sizes))}, as of "
            "an EP nudge that has not settled; the cosine alone does not show it"
        )
    return remarks


def _blocks_first(credit: Credit) -> list[int]:
    """h_1 … h_L, then h_0 apart."""
    return sorted(range(len(credit.sites)), key=lambda index: (credit.sites[index] == EMBEDDING, index))


def _at_floor(report: DiagnosticReport) -> bool:
    """Whether (b) fires, where its numbers are known; Γ then compares with a vector that hardly carries credit."""
    return bool(report.bp_grad_norms) and GradientFloor().judge(report).fired
