"""The diagnostics of the protocol, in the order in which they are reported."""

from __future__ import annotations

from .base import Diagnostic, Finding, Status
from .cause import Cause, CauseKind
from .collection import ALL, Diagnostics
from .column import Column, ColumnKind
from .credit_alignment import CreditAlignment
from .depth_utility import DepthUtility
from .direction_drift import DirectionDrift
from .frozen_margin import FrozenMargin
from .gradient_floor import GradientFloor
from .residual_growth import ResidualGrowth

__all__ = [
    "ALL",
    "CONTROLLED",
    "DIAGNOSTICS",
    "Cause",
    "CauseKind",
    "Column",
    "ColumnKind",
    "CreditAlignment",
    "DepthUtility",
    "Diagnostic",
    "Diagnostics",
    "Finding",
    "GradientFloor",
    "ResidualGrowth",
    "Status",
    "unasked",
]

DIAGNOSTICS = Diagnostics(
    (ResidualGrowth(), GradientFloor(), DirectionDrift(), FrozenMargin(), DepthUtility(), CreditAlignment())
)
"""The built-in ones; a report, and with it whatever shows it, has its own collection, which other packages may add to."""

CONTROLLED = FrozenMargin.key
"""The key of the diagnostic that compares with a control."""


def unasked(available: Diagnostics, *, control: bool, credit: bool) -> Diagnostics:
    """Those that run where nobody says which: (e) where no control is supplied, (f) where the method's credit is."""
    runs = {DepthUtility.key: not control, CreditAlignment.key: credit}
    return Diagnostics(diagnostic for diagnostic in available if diagnostic.by_default or runs.get(diagnostic.key, False))
