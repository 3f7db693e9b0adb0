"""BP networks that a report is compared with, and what they say together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from .words import limit, pp

if TYPE_CHECKING:
    from .report import Report


class Twin(msgspec.Struct, frozen=True, kw_only=True):
    """BP networks of the same shapes and data, as a report compares with them; means over seeds."""

    source: str
    """The names of their files."""
    margin_pp: float | None = None
    utility_pp: float | None = None
    healthy: bool = False
    """Whether each passes (a), (b), (c) and (g)."""
    needs_depth: bool = True
    """Whether some measured (d) or (e) of theirs passes: else the task asks for no depth."""

    @classmethod
    def of(cls, reports: Sequence[Report]) -> Twin:
        """What the reports of BP networks say together: asked for a, b, c, d, e, g, with no twin.

        Without a measured (d) or (e) nothing says that the task asks for no depth.
        """
        shown = [report.finding(key) for report in reports for key in "abcg"]
        depth = [report.finding(key) for report in reports for key in "de"]
        doubted = [  # where (e) decides
            report.finding("d")
            for report in reports
            if report.questions_control and report.finding("e").measured
        ]
        return cls(
            source=", ".join(str(report.checkpoint or report.method_name) for report in reports),
            margin_pp=_mean(report.margin_pp for report in reports),
            utility_pp=_mean(report.depth_utility_pp for report in reports),
            healthy=all(finding.exact and finding.passed for finding in shown),
            needs_depth=not any(finding.measured for finding in depth)
            or any(finding.passed and finding not in doubted for finding in depth),
        )

    def line(self, what: str, value: float | None, share: float | None) -> str:
        """A number of BP with the share of it that a network reaches; empty where not measured."""
        if value is None:
            return ""
        line = f"BP ({self.source}): {what} {pp(value)} pp"
        if share is None or share < 0:
            return line
        return f"{line}; this network reaches {limit(round(100 * share))} % of it"


def _mean(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    if not numbers:
        return None
    return round(sum(numbers) / len(numbers), 9)
