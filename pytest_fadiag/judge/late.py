"""Objects that are named by their place and imported when they are used: the code behind them is heavy, or stands elsewhere."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def named(place: str) -> Any:
    """The object at ``package.module:name``."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
