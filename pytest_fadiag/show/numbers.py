"""Which number of the table a finding rests on."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..judge.diagnostics import Column, Finding
from ..judge.report import DiagnosticReport


def deciding(columns: Sequence[Column], report: DiagnosticReport, finding: Finding) -> Column | None:
    """The column whose number decides a finding; a bound of a number that is not known is shown in its diagnostic's last."""
    own = [column for column in columns if column.key == finding.key]
    same = [column for column in own if _same(column.value(report), finding.value)]
    return (same or own)[-1] if own else None


def _same(value: float | None, decided: float | None) -> bool:
    if value is None or decided is None:
        return False
    return value == decided or (math.isnan(value) and math.isnan(decided))
