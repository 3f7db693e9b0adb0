"""The published forms of the protocol: which diagnostics each keeps, and its own words."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple


class Protocol(NamedTuple):
    """One published form."""

    keys: tuple[str, ...]
    """The diagnostics that are judged; others may be shown with them."""
    checks: dict[str, str]
    """What the form calls each of them, where it says how they came out."""
    rules: dict[str, str]
    """The thresholds and rules that it has of its own."""
    over_seeds: bool
    """Whether the margin over seeds is tested."""


PROTOCOLS = {
    "three": Protocol(
        ("a", "b", "d"), {"a": "D1", "b": "D2", "d": "D3"}, {"confounds": "flag"}, over_seeds=False
    ),
    "four": Protocol(("a", "b", "c", "d"), {}, {}, over_seeds=True),
}
"""By name: the later form, and the first one."""


def published(name: str | None, fired: Collection[str], decided: Collection[str]) -> str:
    """«PASS», «FAIL(D1+D2)», or «INCOMPLETE(D3)»; empty for a form without such words."""
    checks = PROTOCOLS[name].checks if name is not None else {}
    failed = "+".join(check for key, check in checks.items() if key in fired)
    absent = "+".join(check for key, check in checks.items() if key not in decided)
    if failed:
        return f"FAIL({failed})"
    if absent:
        return f"INCOMPLETE({absent})"
    return "PASS" if checks else ""
