"""The ranges of numbers that are read from files: one outside of its range is an error that names it, not one to judge by."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from .errors import AuditError

COSINE = 1 + 1e-6
"""How large a cosine may come out, as far as rounding explains it."""


def hold(owner: object, *names: str, low: float = 0.0, high: float = math.inf, undefined: bool = False) -> None:
    """Raise unless all numbers in these fields lie in a range; ``None`` is not measured, and NaN may stand for undefined."""
    for name in names:
        for place, value in _numbers(name, getattr(owner, name)):
            if not (low <= value <= high or (undefined and math.isnan(value))):
                span = f"in [{low:g}, {high:g}]" if math.isfinite(high) else f"from {low:g} on"
                raise AuditError(f"{place} must be a number {span}, not {value!r:.40}")


def hold_cosines(owner: object, *names: str) -> None:
    """Raise unless all numbers in these fields are cosines, or not finite, which is judged as such."""
    for name in names:
        for place, value in _numbers(name, getattr(owner, name)):
            if math.isfinite(value) and abs(value) > COSINE:
                raise AuditError(f"{place} must be a cosine in [-1, 1], not {value!r:.40}")


def hold_bounds(name: str, bounds: tuple[float, float] | None) -> None:
    """Raise where an interval ends before it begins."""
    if bounds is not None and bounds[0] > bounds[1]:
        raise AuditError(f"{name} ends at {bounds[1]:g}, before it begins, at {bounds[0]:g}")


def _numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _numbers(f"{name}[{index}]", item)
    elif value is not None:
        yield name, value
