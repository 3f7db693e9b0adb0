"""The diagnostics of the protocol and those of other packages."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from ..errors import AuditError
from ..thresholds import OTHERS, DiagnosticThresholds
from .base import Column, Diagnostic, Finding, Status
from .credit_alignment import CreditAlignment
from .depth_utility import DepthUtility
from .direction_drift import DirectionDrift
from .frozen_margin import FrozenMargin
from .gradient_floor import GradientFloor
from .linear_floor import LinearFloor
from .residual_growth import ResidualGrowth

__all__ = [
    "DIAGNOSTICS",
    "Column",
    "Diagnostic",
    "Finding",
    "Status",
    "available",
    "columns",
    "default_diagnostics",
    "get",
    "letters",
    "parse_keys",
    "register",
    "select",
    "unregister",
]

DIAGNOSTICS: tuple[Diagnostic, ...] = (
    ResidualGrowth(),
    GradientFloor(),
    DirectionDrift(),
    FrozenMargin(),
    DepthUtility(),
    CreditAlignment(),
    LinearFloor(),
)
"""The built-in ones, in the order in which they are reported."""
_others: dict[str, Diagnostic] = {}
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)+")


def register(diagnostic: Diagnostic) -> None:
    """Add a diagnostic of another package; it and its threshold are known by their names."""
    if not isinstance(diagnostic, Diagnostic):
        raise AuditError(f"expected an instance of a Diagnostic, got {diagnostic!r:.80}")
    name, threshold, titles = (
        diagnostic.name,
        diagnostic.threshold,
        {column.title for column in diagnostic.columns},
    )
    if not _NAME.fullmatch(name) or diagnostic.key != name or diagnostic.default is None:
        raise AuditError(
            f"diagnostic {name!r}: expected a name such as my-name, no key, and a default"
        )
    known = {
        *DiagnosticThresholds().by_name(),
        *(own.name for own in available()),
        *(own.title for own in columns()),
    }
    if taken := sorted({name, threshold, *titles} & known):
        raise AuditError(f"diagnostic {name!r}: {taken[0]!r} exists already")
    _others[name] = diagnostic
    OTHERS[threshold] = float(diagnostic.default)


def unregister(name: str) -> None:
    """Forget a diagnostic of another package."""
    if name in _others:
        del OTHERS[_others.pop(name).threshold]


def available() -> tuple[Diagnostic, ...]:
    """All diagnostics: by their letters, then by their names."""
    return (*DIAGNOSTICS, *(_others[name] for name in sorted(_others)))


def get(key: str) -> Diagnostic | None:
    """The diagnostic of a key or name.

    >>> get("d").name
    'frozen-margin'
    """
    return next(
        (diagnostic for diagnostic in available() if key in (diagnostic.key, diagnostic.name)), None
    )


def parse_keys(keys: str | Iterable[str]) -> tuple[str, ...]:
    """Keys as a person writes them: «abd», «abd,my-name», or a list of such texts."""
    parts = [
        part.strip()
        for text in ([keys] if isinstance(keys, str) else keys)
        for part in text.split(",")
    ]
    return tuple(key for part in parts for key in ([part] if "-" in part else part))


def select(keys: str | Iterable[str]) -> tuple[Diagnostic, ...]:
    """The diagnostics of keys or names, in their order; ``all`` are all.

    >>> [diagnostic.key for diagnostic in select("da")]
    ['a', 'd']
    """
    if keys == "all":
        return available()
    wanted = parse_keys(keys)
    unknown = [key for key in wanted if get(key) is None]
    if unknown or not wanted:
        known = ", ".join(d.name if d.key == d.name else f"{d.key} ({d.name})" for d in available())
        wrong = (
            f"unknown diagnostic {', '.join(map(repr, unknown))}"
            if unknown
            else "no diagnostic given"
        )
        raise AuditError(f"{wrong}; known: {known}")
    return tuple(d for d in available() if d.key in wanted or d.name in wanted)


def default_diagnostics(
    control: bool, credit: bool, partial: bool = False
) -> tuple[Diagnostic, ...]:
    """What runs where nothing is asked for: (e) without a control, (f) with a credit.

    A log (``partial``) has neither (e) nor (g) nor the numbers of other packages.
    """
    runs = {"e": not control and not partial, "f": credit, "g": not partial}
    return tuple(
        d for d in (DIAGNOSTICS if partial else available()) if runs.get(d.key, d.by_default)
    )


def columns() -> tuple[Column, ...]:
    """The numbers that the diagnostics contribute to the audit table."""
    return tuple(
        msgspec.structs.replace(column, key=d.key) for d in available() for column in d.columns
    )


def letters(keys: Iterable[str]) -> str:
    """Keys in one word: «abd», «abd,my-name»."""
    ordered = sorted(set(keys))
    word = "".join(key for key in ordered if len(key) == 1)
    return ",".join(filter(None, [word, *(key for key in ordered if len(key) > 1)]))
