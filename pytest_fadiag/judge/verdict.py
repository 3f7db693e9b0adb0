"""The verdict as a sentence, of a report and of a row of an audit alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from .diagnostics import CONTROLLED, DepthUtility, Diagnostic, Finding
from .diagnostics.depth_utility import below_embedding
from .diagnostics.frozen_margin import doubts_about
from .doubts import DoubtKind
from .keys import Keys

if TYPE_CHECKING:
    from .report import DiagnosticReport

TRUSTWORTHY = "trustworthy"
INCOMPLETE = "incomplete"
NEEDED = ("a", "b", "c", "de")
"""The keys of which each must be decided before a result is called trustworthy; of several in one entry, one of them."""
DECIDED = ""
"""The state of a diagnostic that passed or fired by exact numbers."""
NO_CONTROL_OF_ITS = "against no frozen control of this network"
"""The state of a margin over a control that was trained, or is of another architecture."""
TOO_WEAK = "against a control that was trained too little"
"""The state of a margin over a control that reads less than a linear readout of an embedding."""
BELOW_EMBEDDING = "not borne out: the network reads less than a linear readout of its embedding"
"""The state of a depth that makes more readable, where the network loses it again."""
QUESTIONED = (NO_CONTROL_OF_ITS, TOO_WEAK)
UNDECIDED_TEST = ("error", "not run")
"""States of a diagnostic that was to be tested: whether or not the verdict needs it, nobody knows what it would have said."""


def state(report: DiagnosticReport, finding: Finding) -> str:
    """What a finding of a report decides, where it did not fire."""
    if not finding.measured:
        return "not measured"
    if not finding.exact:
        return "likely"
    if finding.key == DepthUtility.key and below_embedding(report):
        return BELOW_EMBEDDING
    kinds = {doubt.kind for doubt in doubts_about(report) if doubt.of_another} if finding.key == CONTROLLED else ()
    if not kinds:
        return DECIDED
    return TOO_WEAK if kinds == {DoubtKind.BELOW_READOUT} else NO_CONTROL_OF_ITS


def walk_back(diagnostics: Iterable[Diagnostic], fired: Keys, likely: Keys) -> str:
    """«needs walk-back: …» with what fired, by the keys of the diagnostics, and which of it is only likely."""
    flags = (d.walk_back + (" (likely)" if d.key in likely else "") for d in diagnostics if d.key in fired)
    return "needs walk-back: " + "; ".join(flags)


def left_open(diagnostics: Iterable[Diagnostic], states: Mapping[str, str], otherwise: str) -> dict[str, str]:
    """What keeps a result of which nothing fired from being called trustworthy, by key: «likely», «not measured», «error».

    ``otherwise`` is the state of a diagnostic that has none of its own. One of another package counts where it was asked for.
    """
    undecided = {key: state for key, state in states.items() if state in UNDECIDED_TEST or (len(key) > 1 and state != DECIDED)}
    for keys in NEEDED:
        if not any(states.get(key) == DECIDED for key in keys):
            undecided |= {key: states[key] for key in keys if key in states} or {keys[0]: otherwise}
    return {diagnostic.key: undecided[diagnostic.key] for diagnostic in diagnostics if diagnostic.key in undecided}


def not_walked_back(diagnostics: Iterable[Diagnostic], undecided: Mapping[str, str]) -> str:
    """«trustworthy», or «incomplete: …» with what is left open."""
    parts = [f"{d.name} {undecided[d.key]}" for d in diagnostics if d.key in undecided]
    return f"{INCOMPLETE}: {'; '.join(parts)}" if parts else TRUSTWORTHY
