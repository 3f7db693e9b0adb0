"""The verdict as a sentence, of a report and of a row of an audit alike."""

from __future__ import annotations

from collections.abc import Mapping

from .diagnostics import DIAGNOSTICS

TRUSTWORTHY = "trustworthy"


def walk_back(fired: str, likely: str) -> str:
    """«needs walk-back: …» with what fired, by the keys of the diagnostics, and which of it is only likely."""
    flags = (d.walk_back + (" (likely)" if d.key in likely else "") for d in DIAGNOSTICS if d.key in fired)
    return "needs walk-back: " + "; ".join(flags)


def left_open(what: str, undecided: Mapping[str, str]) -> str:
    """«nothing fired, but the audit is partial: …» with what each undecided diagnostic is, by their keys."""
    parts = (f"{d.name} {undecided[d.key]}" for d in DIAGNOSTICS if d.key in undecided)
    return f"nothing fired, but the audit is {what}: " + "; ".join(parts)
