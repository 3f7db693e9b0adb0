"""The values of the smaller sections: what was asked, margins over seeds, the checklist."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from ...judge.margins import SeedMargin, SeedVerdict
from ...judge.thresholds import DiagnosticThresholds, threshold_names
from ...judge.wording import count, limit
from ..audit import Audit, Checklist

FINDING = ("number", "title", "file", "line", "code", "message", "fix", "silenced")
SCALE_PP = 5.0
"""How far from the minimum the bars of the margins reach: beyond, nothing is near to be decided."""
SYMBOLS = {
    SeedVerdict.PASS: ("✓", "trustworthy"),
    SeedVerdict.FIRE: ("✗", "walk-back"),
    SeedVerdict.INCONCLUSIVE: ("?", "incomplete"),
}


class Asked:
    """The diagnostics and the thresholds that the rows were judged by."""

    def __init__(self, audit: Audit) -> None:
        self.diagnostics = audit.diagnostics
        used = [row.report.thresholds for row in audit.rows if row.report is not None] or [DiagnosticThresholds()]
        self._thresholds = [thresholds.by_name() for thresholds in used]
        own = {diagnostic.threshold for diagnostic in audit.diagnostics}
        self.rules = [f"{name} {self.used(name)}" for name in threshold_names() if name not in own]

    def used(self, name: str) -> str:
        """The value of a threshold, or where rows differ each value with the number of rows."""
        values = (thresholds[name] for thresholds in self._thresholds if name in thresholds)
        counts = Counter(value if isinstance(value, str) else limit(value) for value in values)
        if len(counts) == 1:
            return next(iter(counts))
        return ", ".join(f"{value} ({count(rows, 'row')})" for value, rows in sorted(counts.items()))


def tally_symbol(word: str) -> tuple[str, str]:
    """The symbol of how a margin over seeds came out, and the class of its colour."""
    return {verdict.value.lower(): symbol for verdict, symbol in SYMBOLS.items()}.get(word, ("–", "incomplete"))


class Bar(NamedTuple):
    """The interval of a margin around the minimum, which lies at 60 of 120 units."""

    low: float
    high: float
    middle: float
    arrow: str
    """In the place of a bar that would lie farther off than the scale goes."""


def bar(margin: SeedMargin) -> Bar:
    """The interval as a bar."""
    ends = (margin.interval.low, margin.interval.high, margin.margin)
    low, high, middle = (60 + 54 * max(-1.0, min(1.0, (value - margin.minimum) / SCALE_PP)) for value in ends)
    off = low == high and abs(margin.interval.low - margin.minimum) >= SCALE_PP
    return Bar(low, high, middle, ("◂" if high < 60 else "▸") if off else "")


def findings(checklist: Checklist) -> list[dict[str, str]]:
    """What the reading of evaluation code found, silenced findings last."""
    ordered = sorted(checklist.findings, key=lambda finding: bool(finding.get("silenced")))
    return [{name: str(finding.get(name) or "") for name in FINDING} for finding in ordered]
