"""The numbers in a training log: each is what it should be, or an error says where it is not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..judge.codec import NON_FINITE
from ..judge.errors import AuditError
from ..judge.records import check_accuracy
from .logformats import trouble

SPELLINGS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, **NON_FINITE}
"""Non-finite numbers as ``str`` spells them, and as JSON dialects do."""


@dataclass(frozen=True)
class Numbers:
    """Reads the numbers of one file."""

    path: Path

    def accuracy(self, keys: tuple[str, ...], source: Mapping[str, Any], place: str) -> float | None:
        """The first accuracy among these keys."""
        key = next((key for key in keys if source.get(key) is not None), None)
        value = None if key is None else self.number(source[key], key, place)
        if value is None:
            return None
        try:
            return check_accuracy(value, str(key))
        except AuditError as error:
            raise trouble(self.path, str(error), place) from None

    def norm(self, value: Any, name: str, place: str) -> float | None:
        """A norm, which may be infinite or NaN and never negative."""
        norm = self.number(value, name, place)
        if norm is not None and norm < 0:
            raise trouble(self.path, f"{name} is {norm:g}, but a norm is never negative", place)
        return norm

    def first(self, keys: tuple[str, ...], source: Mapping[str, Any], place: str) -> float | None:
        """The first number among these keys."""
        key = next((key for key in keys if source.get(key) is not None), None)
        return None if key is None else self.number(source[key], key, place)

    def number(self, value: Any, name: str, place: str) -> float | None:
        """A float, NaN and infinities among them; text and truth values are slips of whoever wrote the log."""
        value = SPELLINGS.get(value, value) if isinstance(value, str) else value
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            hint = "; write it without quotes" if isinstance(value, str) else ""
            raise trouble(self.path, f"{name} is {value!r:.40}, not a number{hint}", place)
        try:
            return float(value)
        except OverflowError:
            raise trouble(self.path, f"{name} is larger than any float", place) from None

    def whole(self, keys: tuple[str, ...], source: Mapping[str, Any], place: str, *, least: int = 0) -> int | None:
        """The first whole number among these keys."""
        key = next((key for key in keys if source.get(key) is not None), None)
        value = None if key is None else source[key]
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise trouble(self.path, f"{key} is {value!r:.40}, not a whole number from {least}", place)
        return value
