"""BP networks of the same shapes and data: what a network's own margin and depth compare with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from .diagnostics import Diagnostic, Finding, Open, OpenKind, Role, Status, available
from .words import join_and, limit, pp

if TYPE_CHECKING:
    from .report import Report


ASK_BP = "compare with BP networks (--fa-bp): the task may ask for no depth"


class Twin(msgspec.Struct, frozen=True, kw_only=True):
    """BP networks of the same shapes and data, as a report compares with them; means over seeds."""

    source: str
    """The names of their files."""
    margin_pp: float | None = None
    utility_pp: float | None = None
    healthy: bool = False
    """Whether each passes what is judged of a network alone."""
    is_itself: bool = False
    """Whether a network is its own twin, or one of them."""
    needs_depth: bool = True
    """Whether some measured margin or depth utility of theirs passes: else the task asks for no
    depth."""

    @classmethod
    def of(cls, reports: Sequence[Report], *, is_itself: bool = False) -> Twin:
        """What the reports of BP networks say together; none of them has a twin.

        Without a measured diagnostic of depth nothing says that the task asks for no depth.
        """
        return cls(
            source=", ".join(str(report.checkpoint or report.method_name) for report in reports),
            margin_pp=_mean(report.margin_pp for report in reports),
            utility_pp=_mean(report.depth_utility_pp for report in reports),
            healthy=all(map(_is_healthy, reports)),
            is_itself=is_itself,
            needs_depth=_need_depth(reports),
        )

    @property
    def asks_no_depth(self) -> bool:
        """Whether it shows that the task needs no depth."""
        return self.healthy and not self.needs_depth

    def line(self, what: str, gain_pp: float, share: float | None) -> str:
        """Its number with the share of it that a network reaches."""
        line = f"BP ({self.source}): {what} {pp(gain_pp)} pp"
        if share is None or share < 0:
            return line
        return f"{line}; this network reaches {limit(round(100 * share))} % of it"


def twin_diagnostics(*, fallback: bool) -> tuple[Diagnostic, ...]:
    """What is asked of BP networks that others are compared with."""
    chosen = [d for d in available() if d.by_default]
    return tuple(d for d in chosen if fallback or d.role is not Role.FALLBACK)


def in_view_of_twin(finding: Finding, diagnostic: Diagnostic, report: Report) -> Finding:
    """The finding, left open where healthy BP networks show that the task needs no depth.

    An interval that lies below 0 stands whatever they gain, and so does what is certain.
    """
    twin = report.twin
    high = finding.interval[1] if finding.interval else finding.value or 0.0
    stands = finding.certain or high < 0
    if stands or not finding.fired or not diagnostic.asks_for_depth:
        return finding
    if twin is None and report.checkpoint and report.log is None:
        return msgspec.structs.replace(finding, remedy=f"{finding.remedy}; {ASK_BP}")
    if twin is None or not twin.asks_no_depth:
        return finding
    gain = diagnostic.gain_of(twin)
    if gain is None:
        alternatives = [d for d in available() if d.asks_for_depth and d.key != diagnostic.key]
        bp = f"does not pass {join_and(f'({d.key})' for d in alternatives)}"
    else:
        bp = f"gains {pp(gain)} pp here"
        if diagnostic.needs_control and gain >= diagnostic.limit(report):
            bp += ", over a control in doubt"
    return msgspec.structs.replace(
        finding,
        status=Status.NOT_RESOLVED,
        open=Open(OpenKind.NOT_RESOLVED),
        headline=f"BP {bp}: this task cannot tell ({finding.headline})",
        claim="",
        walk_back="",
        explanation="",
        remedy="choose a task on which BP gains from depth",
    )


def _is_healthy(report: Report) -> bool:
    for diagnostic in twin_diagnostics(fallback=False):
        if not diagnostic.asks_for_depth:
            finding = report.finding(diagnostic.key)
            if not (finding.exact and finding.passed):
                return False
    return True


def _need_depth(reports: Iterable[Report]) -> bool:
    """Whether a diagnostic of depth passes for one of them, or none of theirs was measured.

    A margin that is not resolved counts by its value: BP itself need not prove that it gains.
    """
    is_measured = False
    for report in reports:
        findings = {d: report.finding(d.key) for d in available() if d.asks_for_depth}
        measured = {d: f for d, f in findings.items() if f.measured or _is_open_margin(d, f)}
        is_measured = is_measured or bool(measured)
        for diagnostic, finding in measured.items():
            # Beside a questioned control a margin counts only where nothing else is measured.
            is_doubted = diagnostic.needs_control and report.questions_control and len(measured) > 1
            passes = finding.passed
            if finding.value is not None and _is_open_margin(diagnostic, finding):
                passes = finding.value >= finding.threshold
            if passes and not is_doubted:
                return True
    return not is_measured


def _is_open_margin(diagnostic: Diagnostic, finding: Finding) -> bool:
    return diagnostic.needs_control and finding.status is Status.NOT_RESOLVED


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    return round(sum(known) / len(known), 9)


def share_of(gain_pp: float | None, twin_gain_pp: float | None) -> float | None:
    """Which share of BP's gain a network reaches; ``None`` where BP gains less than 2 pp."""
    if gain_pp is None or twin_gain_pp is None or twin_gain_pp < 2:
        return None
    return round(gain_pp / twin_gain_pp, 9)
