"""Two reports of one network as one: each was asked for some diagnostics, and together they speak of all of these."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from .records import AuxiliaryStatistics
from .report import DiagnosticReport

MEASURED = (
    "residual_norms",
    "bp_grad_norms",
    "reference",
    "reference_error",
    "stability_layer",
    "cross_batch_stability",
    "headline_acc",
    "accuracy",
    "frozen_baseline_acc",
    "control",
    "inputs",
    "stream",
)


def united(one: DiagnosticReport, other: DiagnosticReport) -> DiagnosticReport:
    """The first report, and of the second what the first was not asked for."""
    missing = [name for name in other.diagnostics if name not in one.diagnostics]
    if not missing:
        return one
    numbers: dict[str, Any] = {name: _known(getattr(one, name), getattr(other, name)) for name in MEASURED}
    return replace(
        one,
        **numbers,
        diagnostics=(*one.diagnostics, *missing),
        companions=_both(one.companions, other.companions),
        environment={**other.environment, **one.environment},
        observations={**other.observations, **one.observations},
    )


def _known(one: Any, other: Any) -> Any:
    """What the first report has, else what the second has: nothing measured is ``None`` or no norms; 0 is a number."""
    return other if one is None or one == () else one


def _both(one: AuxiliaryStatistics, other: AuxiliaryStatistics) -> AuxiliaryStatistics:
    """What either knows."""
    pairs = {field.name: (getattr(one, field.name), getattr(other, field.name)) for field in fields(AuxiliaryStatistics)}
    blank = AuxiliaryStatistics()
    return AuxiliaryStatistics(**{name: b if a == getattr(blank, name) else a for name, (a, b) in pairs.items()})
