"""The verdict as a sentence, of a report and of a row of an audit alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .diagnostics import Finding, available

TRUSTWORTHY = "trustworthy"
AS_GIVEN = "trustworthy (reference as given)"
"""The best that a trace gets."""
INCOMPLETE = "incomplete"
NOT_MEASURED = "not measured"
QUESTIONED = "measured against a questioned control"
"""The state of (d) where it passes and (e) must pass too."""
UNTESTED = ("error", "not run")
"""States of a test that should have run: they leave any verdict open."""


def left_open(states: Mapping[str, str]) -> dict[str, str]:
    """What keeps a result of which nothing fired from being trustworthy, by key.

    Needed are (a), (b), (c), and (d) or (e): (e) alone where there is no control, with (d) where
    the control is questioned. A diagnostic of another package counts where it was asked for.
    """
    found = {
        key: said for key, said in states.items() if said in UNTESTED or (len(key) > 1 and said)
    }
    found |= {key: said for key in "abc" if (said := states.get(key, NOT_MEASURED))}
    margin = states.get("d", NOT_MEASURED)
    if margin and (states.get("e") != "" or margin not in (NOT_MEASURED, QUESTIONED)):
        found |= {key: states[key] for key in "de" if states.get(key)} or {"d": margin}
    return {own.key: found[own.key] for own in available() if own.key in found}


def sentence(
    fired: Iterable[Finding], undecided: Mapping[str, str], best: str = TRUSTWORTHY
) -> str:
    """«needs walk-back: …» with what fired, «incomplete: …» with what is open, or «trustworthy».

    >>> sentence((), {"d": "not measured"})
    'incomplete: frozen-margin not measured'
    """
    own = {diagnostic.key: diagnostic for diagnostic in available()}
    flags = [
        (f.claim if f.key == "d" and "non-finite" in f.causes else own[f.key].walk_back)
        + " (likely)" * (not f.exact)
        for f in fired
    ]
    parts = [f"{own[key].name} {said}" for key, said in undecided.items()]
    if flags:
        return f"needs walk-back: {'; '.join(flags)}"
    return f"{INCOMPLETE}: {'; '.join(parts)}" if parts else best
