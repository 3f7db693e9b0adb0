"""The numbers that diagnostics contribute to the audit table."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..wording import cosine, figure, fraction, points

if TYPE_CHECKING:
    from ..report import DiagnosticReport


class ColumnKind(enum.Enum):
    """What the numbers of a column are, which decides how they are written and how two of them are compared."""

    FRACTION = "an accuracy"
    SCALE = "a norm or a ratio of norms, over many powers of ten"
    COSINE = "a cosine, of which zero is the usual value"
    POINTS = "a difference in percentage points"

    def show(self, value: float) -> str:
        """A number of this kind as a report writes it."""
        return _WRITTEN[self](value)


_WRITTEN: dict[ColumnKind, Callable[[float], str]] = {
    ColumnKind.FRACTION: fraction,
    ColumnKind.SCALE: figure,
    ColumnKind.COSINE: cosine,
    ColumnKind.POINTS: points,
}


@dataclass(frozen=True)
class Column:
    """One number of a report."""

    key: str
    """The diagnostic that it belongs to; the accuracy belongs to none and has an empty one."""
    title: str
    value: Callable[[DiagnosticReport], float | None]
    kind: ColumnKind
    priority: int
    """The lowest numbers are dropped last when the terminal is narrow."""

    def show(self, value: float | None) -> str:
        """A number of this column, or that there is none."""
        return "not measured" if value is None else self.kind.show(value)
