"""The published forms of the protocol: which diagnostics each keeps, and its own words."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from .diagnostics import DIAGNOSTICS


class Protocol(NamedTuple):
    """One published form; each diagnostic says in which of them it stands."""

    name: str
    rules: dict[str, str]
    """The thresholds and rules that it has of its own."""
    over_seeds: bool
    """Whether the margin over seeds is tested."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The diagnostics that are judged; others may be shown with them."""
        return tuple(d.key for d in DIAGNOSTICS if self.name in d.published)

    @property
    def checks(self) -> dict[str, str]:
        """What the form calls each of them, where it says how they came out."""
        return {d.key: d.published[self.name] for d in DIAGNOSTICS if d.published.get(self.name)}


PROTOCOLS = {
    "three": Protocol("three", {"confounds": "flag"}, over_seeds=False),
    "four": Protocol("four", {}, over_seeds=True),
}
"""By name: the later form, and the first one."""


def published(name: str | None, fired: Collection[str], decided: Collection[str]) -> str:
    """«PASS», «FAIL(D1+D2)», or «INCOMPLETE(D3)»; empty for a form without such words."""
    checks = PROTOCOLS[name].checks if name is not None else {}
    if not checks:
        return ""
    failed = [check for key, check in checks.items() if key in fired]
    if failed:
        return f"FAIL({'+'.join(failed)})"
    undecided = [check for key, check in checks.items() if key not in decided]
    if undecided:
        return f"INCOMPLETE({'+'.join(undecided)})"
    return "PASS"
