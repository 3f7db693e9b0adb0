"""Dataclasses to plain JSON values and back, exactly: non-finite floats travel as strings, which JSON has no numbers for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def to_plain(value: Any) -> Any:
    """The value in exactly the built-in types, as xdist wants them: non-finite floats as strings, tuples as lists."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    return value


def number(value: Any) -> Any:
    """The float behind one JSON value that :func:`to_plain` wrote; anything else comes back as it is."""
    return _NON_FINITE.get(value, value) if isinstance(value, str) else value


def numbers(values: Any) -> tuple[float, ...]:
    """The tuple of floats behind one JSON list."""
    return tuple(float(number(value)) for value in values)


def numbers_or_holes(values: Any) -> tuple[float | None, ...]:
    """The tuple of floats behind one JSON list in which ``null`` is a number that nobody logged."""
    return tuple(None if value is None else float(number(value)) for value in values)


def known_fields(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a JSON object that are fields of a dataclass: a newer writer may have added some."""
    names = {field.name for field in fields(cls)}
    return {name: value for name, value in values.items() if name in names}
