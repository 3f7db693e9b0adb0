"""The published forms of the protocol: which diagnostics each keeps, what it calls them, and what came of them in its words."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from .keys import Keys

ProtocolName = Literal["three", "four"]
PROTOCOL_NAMES: tuple[str, ...] = get_args(ProtocolName)


@dataclass(frozen=True)
class Protocol:
    """One published form."""

    keys: Keys
    """The diagnostics that are judged; others may be shown beside them."""
    checks: Mapping[str, str] = field(default_factory=dict)
    """What the form calls each of them, where it says how they came out."""
    rules: Mapping[str, Any] = field(default_factory=dict)
    """The thresholds and rules that it has of its own, where nobody says otherwise."""
    over_seeds: bool = True
    """Whether the margin over seeds is tested; the later form knows single networks only."""


PROTOCOLS: Mapping[str, Protocol] = {
    "three": Protocol(Keys("abd"), {"a": "D1", "b": "D2", "d": "D3"}, {"confounds": "flag"}, over_seeds=False),
    "four": Protocol(Keys("abcd")),
}
"""By name: the later form, and the first one."""


def published(name: str | None, fired: Collection[str], decided: Collection[str]) -> str:
    """«PASS», «FAIL(D1+D2)», or «INCOMPLETE(D3)» where nothing fired and not all is known; nothing without a form that says it.

    ``decided`` are the keys of what passed or fired by numbers that decide.
    """
    checks = PROTOCOLS[name].checks if name is not None else {}
    failed = [check for key, check in checks.items() if key in fired]
    absent = [check for key, check in checks.items() if key not in decided]
    if not checks:
        return ""
    return f"FAIL({'+'.join(failed)})" if failed else f"INCOMPLETE({'+'.join(absent)})" if absent else "PASS"
