"""Where a row stands, in one word: what the headline counts and the filter offers."""

from __future__ import annotations

import enum

from ..judge.diagnostics import DIAGNOSTICS
from .audit import AuditRow


class Standing(enum.Enum):
    """The word, the symbol that says it without colour, and what it means."""

    WALK_BACK = ("walk-back", "✗", "a diagnostic fired")
    TRUSTWORTHY = ("trustworthy", "✓", "nothing fired")
    PARTIAL = ("partial", "◐", "nothing fired, but the log leaves something open")
    INCOMPLETE = ("incomplete", "–", "not every diagnostic could be judged")

    def __init__(self, word: str, symbol: str, meaning: str) -> None:
        self.word, self.symbol, self.meaning = word, symbol, meaning


def standing(row: AuditRow) -> Standing:
    """What fired stands even where something else broke; what broke or never ran keeps a row from being trustworthy."""
    if row.fired:
        return Standing.WALK_BACK
    broken = any(outcome in ("error", "not run") for outcome in row.outcomes.values())
    if row.report is None or broken or len(row.judged) < len(DIAGNOSTICS):
        return Standing.INCOMPLETE
    return Standing.TRUSTWORTHY if row.verdict.startswith("trustworthy") else Standing.PARTIAL
