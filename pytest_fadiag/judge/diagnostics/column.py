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
    COUNT = "how many there are"

    def show(self, value: float) -> str:
        """A number of this kind as a report writes it."""
        return _WRITTEN[self](value)


_WRITTEN: dict[ColumnKind, Callable[[float], str]] = {
    ColumnKind.FRACTION: fraction,
    ColumnKind.SCALE: figure,
    ColumnKind.COSINE: cosine,
    ColumnKind.POINTS: points,
    ColumnKind.COUNT: "{:.3g}".format,
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
    text: Callable[[DiagnosticReport], str] | None = None
    """What stands in the row of one report, where that says more than the number: 1/4."""

    def written(self, report: DiagnosticReport) -> str | None:
        """The number of a report as its row has it; nothing where it was not measured."""
        value = self.value(report)
        if value is None:
            return None
        return self.show(value) if self.text is None else self.text(report)

    def show(self, value: float | None) -> str:
        """A number of this column, or that there is none."""
        return "not measured" if value is None else self.kind.show(value)
