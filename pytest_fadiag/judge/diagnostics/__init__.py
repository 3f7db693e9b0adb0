"""The diagnostics of the protocol, in the order in which they are reported."""

from __future__ import annotations

from ..errors import AuditError
from .base import Diagnostic, Finding, Status
from .cause import Cause, CauseKind
from .column import Column, ColumnKind
from .direction_drift import DirectionDrift
from .frozen_margin import FrozenMargin
from .gradient_floor import GradientFloor
from .residual_growth import ResidualGrowth

__all__ = [
    "CONTROLLED",
    "DIAGNOSTICS",
    "Cause",
    "CauseKind",
    "Column",
    "ColumnKind",
    "Diagnostic",
    "Finding",
    "GradientFloor",
    "ResidualGrowth",
    "Status",
    "select",
]

DIAGNOSTICS: tuple[Diagnostic, ...] = (ResidualGrowth(), GradientFloor(), DirectionDrift(), FrozenMargin())
"""The registry: items, table, files and help texts are made from it."""

CONTROLLED = FrozenMargin.key
"""The key of the diagnostic that compares with a control."""


def select(keys: str) -> tuple[Diagnostic, ...]:
    """The diagnostics named by their keys («ad»), in the order of the registry."""
    unknown = sorted(set(keys) - {diagnostic.key for diagnostic in DIAGNOSTICS})
    if unknown or not keys:
        raise AuditError(
            f"diagnostics {keys!r}: "
            + (f"unknown key {', '.join(map(repr, unknown))}; " if unknown else "no key given; ")
            + "known: "
            + ", ".join(f"{d.key} ({d.name})" for d in DIAGNOSTICS)
        )
    return tuple(diagnostic for diagnostic in DIAGNOSTICS if diagnostic.key in keys)
