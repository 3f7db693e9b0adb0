"""(f) Does the credit reduce the loss, and at which layers?"""

from __future__ import annotations

import enum
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

from ..records import BATCH, Credit, PartState, SiteState, Step
from ..words import and_more, join_and, limit, plural, sig, signed_cosine, table
from .base import Column, Curve, Diagnostic, Finding, Report, Role, Status
from .gradient_floor import is_at_floor

NOT_ALIGNED: dict[enum.Enum, str] = {
    SiteState.UNDEFINED: "credit or gradient is zero or not finite for most samples",
    SiteState.AGAINST: "Γ is below its null: the credit points away from the gradient",
    SiteState.NULL: "Γ or Δloss does not exceed its null: no evidence that these blocks receive "
    "useful credit",
}
"""What was measured at a site that is not aligned, and no more."""
NO_ALIGNED_STEP: dict[enum.Enum, str] = {
    PartState.LABEL_FREE: "the step does not depend on the labels",
    PartState.AGAINST: "the contrast is below 0: what labels change of the step adds to the loss",
    PartState.NULL: "the interval of the contrast includes 0: no evidence that labels lead these "
    "blocks down the loss",
}
"""The same at a block by a step."""
HEADER = ["site", "state", "Γ", "null 95 %", "z", "Δloss/BP", "random", "‖a‖/‖g‖"]
STEP_HEADER = ["part", "state", "contrast", "95 % CI", "plain", "‖Δ‖/‖θ‖"]


def _aligned(report: Report) -> int | None:
    """How many blocks are aligned, by credit where it was measured, else by a step."""
    measured = report.credit or report.step
    return measured.aligned if measured and measured.blocks else None


def _aligned_of_all(report: Report) -> str:
    measured = report.credit or report.step
    return f"{measured.aligned}/{len(measured.blocks)}" if measured else ""


class CreditAlignment(Diagnostic):
    """Fires where half of the blocks or fewer are aligned, or one against: by credit, or a step."""

    key = "f"
    name = "credit-alignment"
    question = "does the credit reduce the loss, and at which layers?"
    threshold = "credit_aligned_share"
    fails_if = "share of aligned blocks ≤ {}"
    walk_back = "credit is not aligned"
    meaning = (
        "Γ at each block against a permutation null, and the loss that a small step along the "
        "credit saves; or one step of the rule against BP's, part by part. A mean over layers "
        "hides where credit is lost."
    )
    instead = "report each layer, not their mean"
    role = Role.EXTRA
    needs = ("gradients", "output-error", "credit", "step")
    needs_reference = True
    needs_credit = True
    reads_logs = True
    by_default = False
    columns = (Column("credit", _aligned, limit, text=_aligned_of_all),)
    curve_title = "Γ and its permutation null"
    parts_title = "contrast of one step with BP's"
    figure = "credit"

    def judge(self, report: Report) -> Finding:
        measured = report.credit or report.step
        if measured is None:
            return self.unmeasured(
                report,
                "neither credit nor a step of the rule was measured",
                remedy="give a step (--fa-step, step=) or the credit (--fa-credit, credit=)",
            )
        if measured.problem:
            return self.unmeasured(report, measured.problem)
        blocks = measured.blocks
        if not blocks:
            return self.unmeasured(report, "the step changes no block")
        is_credit = measured is report.credit
        meaning = _meaning(blocks, NOT_ALIGNED if is_credit else NO_ALIGNED_STEP)
        share = measured.aligned / len(blocks)
        causes = ["reference below the floor"] if is_at_floor(report) else []
        headline = f"aligned at {measured.aligned} of {plural(len(blocks), 'block')}"
        against = [name for name, state in blocks if state.value == "against"]
        if against:
            symbol = "Γ" if is_credit else "contrast"
            meaning += f" A high {symbol} at other layers does not compensate."
            if 2 * len(against) >= len(blocks) and is_credit:
                meaning += (
                    " Does the credit have the sign of a gradient? The rule steps along minus it."
                )
            claim = "labels turn the step away from the gradient"
            if is_credit:
                claim = "credit points away from the gradient"
            return self.finding(
                report,
                Status.FIRE,
                share,
                headline,
                meaning,
                causes,
                claim=f"{claim} at {join_and(against)}",
            )
        minimum = self.limit(report)
        if share > minimum or share == 1:
            return self.finding(report, Status.PASS, share, headline, causes=causes)
        return self.finding(
            report,
            Status.FIRE,
            share,
            f"{headline} (need more than {limit(minimum * len(blocks))})",
            meaning,
            causes,
        )

    def table(self, report: Report) -> list[str]:
        lines: list[str] = []
        credit = report.credit
        if credit is not None and not credit.problem:
            rows = [_site_cells(credit, index) for index in range(len(credit.sites))]
            rows.sort(key=lambda cells: cells[0] == "h_0")
            lines += table([HEADER, *rows])
        step = report.step
        if step is not None and not step.problem:
            rows = [_part_cells(step, index) for index in range(len(step.parts))]
            lines += table([STEP_HEADER, *rows])
        return lines

    def lines(self, report: Report) -> Iterator[str]:
        if report.credit is None and report.step is None:
            yield (
                "give one update of the rule by --fa-step=package.module:function, or its credit "
                "by --fa-credit=package.module:function"
            )
        if report.credit is not None and not report.credit.problem:
            yield from self._credit_lines(report, report.credit)
        if report.step is not None and not report.step.problem:
            yield from self._step_lines(report, report.step)
        if is_at_floor(report):
            yield "caution: (b) fails, so the gradient compared with is below the floor"

    def _step_lines(self, report: Report, step: Step) -> Iterator[str]:
        if not step.contrast:
            yield f"{plural(step.batches, 'update')} in training, without contrast"
            return
        split = step.training or "the evaluation data"
        yield f"source of the step: {step.source}; {step.batches} batches of {BATCH} of {split}"
        if step.states > 1:
            yield f"the step is random: each is the mean over {step.states} random states"
        yield "contrast: what reordered labels change of the step, against the same of BP's"
        if report.credit is not None:
            yield "the credit decides; the step is shown too"

    def _credit_lines(self, report: Report, credit: Credit) -> Iterator[str]:
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
        if credit.is_gradient:
            yield (
                "the credit is the BP gradient itself: right for BP, and for EP at equilibrium; "
                "for any other rule, check the credit function: it is returning the BP gradient"
            )

    def remarks(self, report: Report) -> Iterator[str]:
        """Say that a step is BP's own: wanted of BP, and of EP where it settles."""
        if report.step is not None and report.step.is_bp:
            yield "this rule is backpropagation: at every block its step is the BP gradient"

    def is_shown(self, report: Report) -> bool:
        return report.credit is not None or report.step is not None

    def curve(self, report: Report) -> Curve | None:
        credit = report.credit
        if credit is None:
            return _step_curve(report.step)
        if not credit.gamma:
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


def _step_curve(step: Step | None) -> Curve | None:
    """The contrast of each part with its interval."""
    if step is None or not step.contrast:
        return None
    blocks = dict(step.blocks)
    decisive = []
    bp = []
    for index, (part, state) in enumerate(zip(step.parts, step.state, strict=True)):
        if state is PartState.BP:
            bp.append(index)
        elif part in blocks and state is not PartState.ALIGNED:
            decisive.append(index)
    return Curve(
        ys=step.contrast,
        decisive=tuple(decisive),
        low=step.low,
        high=step.high,
        parts=step.parts,
        bp=tuple(bp),
    )


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


def _part_cells(step: Step, index: int) -> list[str]:
    """The numbers of one part as a row of the table; a log holds no contrast."""
    of_contrast = ["–", "–", ""]
    if step.contrast:
        low = signed_cosine(step.low[index])
        high = signed_cosine(step.high[index])
        contrast = signed_cosine(step.contrast[index])
        of_contrast = [step.state[index].value, contrast, f"[{low}, {high}]"]
    plain = signed_cosine(step.plain[index])
    return [step.parts[index], *of_contrast, plain, sig(step.change[index])]


def _largest_draw(draws: Sequence[float]) -> str:
    return f"±{max(map(abs, draws)):.3f}" if draws else ""


def _meaning(blocks: Sequence[tuple[str, enum.Enum]], words_of: Mapping[enum.Enum, str]) -> str:
    """What was measured at the blocks that are not aligned."""
    sentences = []
    for kind, words in words_of.items():
        sites = [site for site, state in blocks if state is kind]
        if sites:
            sentences.append(f"At {join_and(sites)}, {words}.")
    return " ".join(sentences)
