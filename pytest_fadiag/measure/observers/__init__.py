"""What can be observed while samples go through a network, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...judge.diagnostics import DIAGNOSTICS
from ...judge.errors import AuditError
from ...judge.late import named
from .base import Event, EveryBatch, FirstBatch, Gradient, Observer, Output, OutputError, PassInfo, ProbeBatch, Samples, State

__all__ = [
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

ObserverMaker = Callable[[PassInfo], Observer[Any]]


def make_observers(observers: Iterable[str | ObserverMaker], info: PassInfo) -> list[Observer[Any]]:
    """New observers for one pass, by the names that diagnostics give them or from classes; named twice, one observes once."""
    wanted, known = list(dict.fromkeys(observers)), DIAGNOSTICS.observers
    unknown = [name for name in wanted if isinstance(name, str) and name not in known]
    if unknown or not wanted:
        missing = f"unknown observer {unknown[0]!r}" if unknown else "no observer was named, so there is nothing to measure"
        raise AuditError(f"{missing}; known: {', '.join(known)}")
    return [(named(known[maker].place) if isinstance(maker, str) else maker)(info) for maker in wanted]
