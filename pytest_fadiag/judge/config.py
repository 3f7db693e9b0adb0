"""What a config says of a training, as far as it is plain: anyone may have written it, so it is bounded and escaped here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .names import LONGEST_METHOD, one_line

Plain = str | int | float | bool
IDENTITY = ("method", "seed", "frozen", "shallow")
"""What tells a network from others, and a control from a network."""
MOST_SETTINGS = 100


def plain_config(config: Mapping[Any, Any]) -> dict[str, Plain]:
    """Its names with a text, a number, yes or no: those that identify it first, then as many as a reader can take in."""
    ordered = {**{name: config[name] for name in IDENTITY if name in config}, **config}
    plain = {
        one_line(name): one_line(value) if isinstance(value, str) else value
        for name, value in ordered.items()
        if _is_plain(name, value)
    }
    return dict(list(plain.items())[:MOST_SETTINGS])


def _is_plain(name: Any, value: Any) -> bool:
    if not isinstance(name, str) or len(name) > LONGEST_METHOD:
        return False
    if isinstance(value, str):
        return len(value) <= LONGEST_METHOD
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and value.bit_length() < 64
