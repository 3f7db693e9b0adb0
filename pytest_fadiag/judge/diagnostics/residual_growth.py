"""(a) Does the residual stream explode?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..bounds import SLACK, Segment, ratio, segments
from ..observers import STATES
from ..wording import beside, count, figure, limit, listed, per_site, site
from .base import Diagnostic, Finding, Status
from .cause import Cause, CauseKind
from .column import Column, ColumnKind

if TYPE_CHECKING:
    from ..report import DiagnosticReport

MEANING = "hidden-layer norms and Γ describe scale, not credit."


def deepest(norms: Sequence[float | None]) -> float | None:
    """The norm at the last state, or ``None`` where none was measured."""
    return norms[-1] if norms else None


def growth(report: DiagnosticReport) -> float | None:
    """The growth that the report's thresholds select, or ``None`` where not every norm is known."""
    if not report.residual_norms or not _complete(report):
        return None
    select = cumulative_growth if report.thresholds.growth == "cumulative" else per_block_growth
    return select(compared(report))


def changes_shape(report: DiagnosticReport) -> bool:
    """Whether states of different sizes are compared, so that their norms would grow by their size alone."""
    return report.stream is not None and report.stream.changes_shape(len(report.residual_norms))


def compared(report: DiagnosticReport) -> Sequence[float | None]:
    """What growth compares: the norms, or where the shape of the stream changes their root mean squares, ‖h_l‖/√n_l."""
    if report.stream is None or not changes_shape(report):
        return report.residual_norms
    pairs = zip(report.residual_norms, report.stream.sizes, strict=True)
    return [None if norm is None else norm / math.sqrt(size) for norm, size in pairs]


def allowed_norm(report: DiagnosticReport, before: int, after: int) -> float | None:
    """The norm from which on (a) fires at one state, compared with another; ``None`` where nobody knows the latter."""
    norm = compared(report)[before]
    if norm is None:
        return None
    size = report.stream.sizes[after] if report.stream is not None and changes_shape(report) else 1
    return norm * report.thresholds.h_norm_explosion_ratio * math.sqrt(size)


def per_block_growth(norms: Sequence[float | None]) -> float:
    """The largest ratio of a norm to the one before it, with holes a lower bound; NaN where all are zero or not finite."""
    return _largest(segment.growth for segment in segments(norms))


def cumulative_growth(norms: Sequence[float | None]) -> float:
    """The largest ratio of a norm to the first, the form of the first draft; with holes a lower bound of it."""
    first = norms[0] if norms else None
    return math.nan if first is None else _largest(ratio(norm, first) for norm in norms if norm is not None)


class ResidualGrowth(Diagnostic):
    """Fires when one block multiplies the size of the stream by more than the ratio."""

    key = "a"
    name = "residual-growth"
    question = "does the residual stream explode?"
    threshold = "h_norm_explosion_ratio"
    observers = (STATES,)
    walk_back = "residual stream exploded"
    columns = (
        Column(key, "‖h_L‖", lambda report: deepest(report.residual_norms), ColumnKind.SCALE, priority=4),
        Column(key, "growth", growth, ColumnKind.SCALE, priority=2),
    )

    def judge(self, report: DiagnosticReport) -> Finding:
        norms, most = report.residual_norms, report.thresholds.h_norm_explosion_ratio
        value = growth(report)
        broken = not_finite(norms, report.companions.nonfinite_states, depth_known=report.depth_known)
        if broken:
            return self.finding(
                report,
                Status.FIRE,
                value,
                f"residual stream is not finite ({broken})",
                "The stream overflows or holds NaN, so no hidden-layer number of this network can be reported.",
                (Cause(CauseKind.NON_FINITE),),
            )
        if 0 in norms:
            return self.finding(
                report,
                Status.FIRE,
                value,
                f"residual stream is all zero at layer {site(norms.index(0), norms, depth_known=report.depth_known)}",
                "The network passes no signal there; neither accuracy nor Γ describes a trained network.",
                (Cause(CauseKind.ZERO_STREAM),),
            )
        if value is None:
            return self._bounded(report)
        form = _form(report)
        if value > most or math.isinf(value):
            return self.finding(
                report,
                Status.FIRE,
                value,
                f"{form} {beside(figure, value, most)} > {limit(most)}",
                f"It explodes {_where(report)}: {MEANING}",
            )
        return self.finding(report, Status.PASS, value, f"{form} {beside(figure, value, most)} <= {limit(most)}")

    def _bounded(self, report: DiagnosticReport) -> Finding:
        """What a stream with holes allows to say: a lower bound above the ratio decides, one below it does not."""
        most, form = report.thresholds.h_norm_explosion_ratio, _form(report)
        cumulative = report.thresholds.growth == "cumulative"
        between = _segments(report)
        value = cumulative_growth(compared(report)) if cumulative else _largest(part.growth for part in between)
        if value > most if cumulative else any(part.exceeds(most) for part in between):
            return self.finding(
                report,
                Status.FIRE,
                value,
                f"{form} at least {beside(figure, value, most)} > {limit(most)}",
                f"It explodes {_where(report)}: {MEANING}",
            )
        missing = _missing(report)
        if missing:
            return self.finding(report, Status.NOT_MEASURED, None, missing)
        unnumbered = None if cumulative else _unnumbered(report)
        if unnumbered is not None:
            shown = f"{unnumbered.text} {beside(figure, unnumbered.growth, most)} <= {limit(most)}"
            headline = f"{shown}; {_left_open(report)}"
            return self.finding(report, Status.LIKELY_PASS, unnumbered.growth, headline, causes=(Cause(CauseKind.BOUND),))
        if value > most or math.isclose(value, most, rel_tol=SLACK):
            value = most  # a root of an exact power of the ratio, a rounding away from it
        shown = f"{form} at least {beside(figure, value, most)} <= {limit(most)}"
        return self.finding(
            report, Status.LIKELY_PASS, value, f"{shown}; {_left_open(report)}", causes=(Cause(CauseKind.BOUND),)
        )

    def lines(self, report: DiagnosticReport) -> list[str]:
        norms = compared(report)
        shown = per_site("h", report.residual_norms, depth_known=report.depth_known)
        lines = [f"median ‖h_l‖: {shown}{_unlogged(report)}"]
        after, before, first = "‖h_l+1‖", "‖h_l‖", "‖h_0‖"
        if changes_shape(report):
            lines.append(f"their root mean squares, since the shape changes: {per_site('h', norms)}")
            after, before, first = "rms h_l+1", "rms h_l", "rms h_0"
        if _complete(report):
            lines.append(
                f"per-block growth (max {after}/{before}): {figure(per_block_growth(norms))}    "
                f"cumulative growth (max {before}/{first}): {figure(cumulative_growth(norms))}"
            )
            return lines
        exact = "to make it exact: log hidden_norms of every layer, or use pytest_fadiag.Recorder"
        if any(norm is not None and not math.isfinite(norm) for norm in norms):
            return [*lines, exact]  # no bound holds of a stream that overflows
        per_block, total = _largest(part.growth for part in _segments(report)), cumulative_growth(norms)
        if not math.isnan(per_block):
            lines.append(f"per-block growth: at least {figure(per_block)}, the geometric mean over {_span(report)} (a bound)")
        if not math.isnan(total) and sum(norm is not None for norm in norms) > 1:
            lines.append(f"cumulative growth: at least {figure(total)}, over the layers that were logged (a bound)")
        lines.append(_missing(report) or _left_open(report))
        return [*lines, exact]

    def values(self, report: DiagnosticReport) -> list[str]:
        norms = compared(report)
        parts = [per_site("h", report.residual_norms, depth_known=report.depth_known, between=", ")]
        if changes_shape(report):
            parts.append(f"root mean squares {per_site('h', norms, between=', ')}")
        if norms and _complete(report):
            parts.append(f"per-block growth {figure(per_block_growth(norms))}")
            parts.append(f"cumulative growth {figure(cumulative_growth(norms))}")
        return parts


def not_finite(norms: Sequence[float | None], counts: Sequence[int], *, depth_known: bool = True) -> str:
    """Where a non-finite number was seen, or nothing; the counts also catch samples that a median hides."""
    sites = [index for index, norm in enumerate(norms) if norm is not None and not math.isfinite(norm)]
    sites += [index for index, number in enumerate(counts) if number and index not in sites]
    if not sites:
        return ""
    samples = max(counts, default=0)
    how_many = f", {count(samples, 'sample')}" if samples else ""
    return f"first at layer {site(min(sites), norms, depth_known=depth_known)}{how_many}"


def _complete(report: DiagnosticReport) -> bool:
    return report.depth_known and None not in report.residual_norms


def _form(report: DiagnosticReport) -> str:
    return report.thresholds.growth.replace("_", "-") + " growth"


def _segments(report: DiagnosticReport) -> list[Segment]:
    """The stretches whose number of blocks is known: how many lie before h_L, a log does not always tell."""
    norms = compared(report)
    return segments(norms if report.depth_known else norms[:-1])


@dataclass(frozen=True)
class Unnumbered:
    """The stretch up to h_L where nobody knows how many blocks it has: all of them together grow by this much."""

    start: int
    growth: float

    @property
    def text(self) -> str:
        """The quotient as a reader writes it."""
        return f"‖h_L‖/‖h_{self.start}‖"


def _unnumbered(report: DiagnosticReport) -> Unnumbered | None:
    *first, last = compared(report)
    numbered = [(index, norm) for index, norm in enumerate(first) if norm is not None]
    if report.depth_known or not numbered or last is None:
        return None
    start, norm = numbered[-1]
    return Unnumbered(start, ratio(last, norm))


def _widest(report: DiagnosticReport) -> Segment:
    """Where the bound comes from."""
    return max(_segments(report), key=lambda part: -math.inf if math.isnan(part.growth) else part.growth)


def _where(report: DiagnosticReport) -> str:
    norms, rms = compared(report), "rms " if changes_shape(report) else ""
    if report.thresholds.growth == "cumulative":
        return f"to {rms}{figure(max(norm for norm in norms if norm is not None))} from {figure(norms[0] or 0.0)}"
    part = _widest(report)
    place = f"in block {part.start}" if part.blocks == 1 else f"in one of the blocks {part.start} to {part.end - 1}"
    return f"{place} ({rms}h_{part.start} {figure(part.before)} → h_{part.end} {figure(part.after)})"


def _span(report: DiagnosticReport) -> str:
    part = _widest(report)
    return f"h_{part.start} to h_{part.end}" if part.blocks > 1 else f"the one block after h_{part.start}"


def _missing(report: DiagnosticReport) -> str:
    """The numbers without which nothing can be said, and where to put them."""
    norms = report.residual_norms
    if all(norm is None for norm in norms):
        return "no ‖h_l‖ was logged: put hidden_norms, or h_0_norm and h_L_norm, into the log"
    lacking = []
    if norms[0] is None:
        lacking.append("‖h_0‖ (as h_0_norm in the log's config or epochs)")
    if norms[-1] is None:
        lacking.append("‖h_L‖ (as h_L_norm in the log's epochs)")
    exceeds, most = "", report.thresholds.h_norm_explosion_ratio
    if not report.depth_known and report.thresholds.growth != "cumulative":
        unnumbered = _unnumbered(report)
        above = unnumbered is not None and unnumbered.growth > most
        if unnumbered is None or above or most < 1:  # up to a ratio from 1 on, no block exceeds it, however many there are
            lacking.append("the number of blocks (add n_blocks to the log's config)")
        if unnumbered is not None and above:
            exceeds = f"{unnumbered.text} {figure(unnumbered.growth)} > {limit(most)}, but "
    return f"{exceeds}growth cannot be bounded without {listed(lacking)}" if lacking else ""


def _left_open(report: DiagnosticReport) -> str:
    """What a bound below the ratio cannot exclude."""
    most = report.thresholds.h_norm_explosion_ratio
    if report.thresholds.growth == "cumulative":
        return f"a layer that was not logged could still exceed {limit(most)}"
    hidden = [part for part in _segments(report) if part.blocks > 1]
    could = sum(part.could_exceed(most) for part in hidden)
    if not could:
        return f"no block exceeds {limit(most)} unless another shrinks the stream"
    of = count(sum(part.blocks for part in hidden), "block")
    return f"up to {could} of {of} could still exceed {limit(most)} if none shrinks the stream"


def _unlogged(report: DiagnosticReport) -> str:
    norms = report.residual_norms
    holes = [site(i, norms, depth_known=report.depth_known) for i, norm in enumerate(norms) if norm is None]
    text = f"    (not logged: {', '.join(f'h_{layer}' for layer in holes)})" if holes else ""
    return text if report.depth_known else f"{text}    (the number of blocks is not known)"


def _largest(ratios: Iterable[float]) -> float:
    return max((value for value in ratios if not math.isnan(value)), default=math.nan)
