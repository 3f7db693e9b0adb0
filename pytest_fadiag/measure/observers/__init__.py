"""What can be observed while samples go through a network, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...judge.errors import AuditError
from .accuracy import Classification
from .base import Event, EveryBatch, FirstBatch, Gradient, Observer, Output, OutputError, PassInfo, ProbeBatch, Samples, State
from .credit import CreditAlignments
from .depth import DepthProbes
from .directions import GradientDirections
from .gradients import GradientNorms
from .output_error import OutputErrors
from .precision import GradientPrecision
from .reference import ReferenceProof
from .states import StateNorms

__all__ = [
    "OBSERVERS",
    "Event",
    "EveryBatch",
    "FirstBatch",
    "Gradient",
    "Observer",
    "ObserverMaker",
    "Output",
    "OutputError",
    "PassInfo",
    "ProbeBatch",
    "Samples",
    "State",
    "make_observers",
]

_OWN: tuple[type[Observer[Any]], ...] = (
    StateNorms,
    GradientNorms,
    GradientDirections,
    OutputErrors,
    Classification,
    ReferenceProof,
    GradientPrecision,
)
OBSERVERS: dict[str, type[Observer[Any]]] = {observer.spec.name: observer for observer in _OWN}
"""The registry, by name."""
ON_DEMAND: dict[str, type[Observer[Any]]] = {own.spec.name: own for own in (DepthProbes, CreditAlignments)}
"""Those that observe only where they are named."""

ObserverMaker = Callable[[PassInfo], Observer[Any]]


def make_observers(observers: Iterable[str | ObserverMaker], info: PassInfo) -> list[Observer[Any]]:
    """New observers for one pass, from names of the registry or from classes; one that is named twice observes once."""
    wanted, known = list(dict.fromkeys(observers)), OBSERVERS | ON_DEMAND
    unknown = [name for name in wanted if isinstance(name, str) and name not in known]
    if unknown or not wanted:
        missing = f"unknown observer {unknown[0]!r}" if unknown else "no observer was named, so there is nothing to measure"
        raise AuditError(f"{missing}; known: {', '.join(known)}")
    return [(known[maker] if isinstance(maker, str) else maker)(info) for maker in wanted]
