"""The audit as one JSON document, from which every other file is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..protocol.plain import to_plain
from .rows import COLUMNS, AuditRow, mean_rows

FORMAT_VERSION = 1


def document(rows: Sequence[AuditRow], version: str) -> dict[str, Any]:
    """``reports`` by checkpoint id, ``summary`` a row each, ``means`` over seeds; plain JSON values throughout."""
    return {
        "format": "pytest-fadiag audit",
        "format_version": FORMAT_VERSION,
        "pytest_fadiag": version,
        "reports": {row.checkpoint: row.report.to_dict() for row in rows if row.report is not None},
        "summary": [_summary(row) for row in rows],
        "means": [
            {
                "method": mean.method,
                "seeds": mean.seeds,
                "mean": _by_column(mean.means),
                "sd": _by_column(mean.deviations),
            }
            for mean in mean_rows(rows)
        ],
    }


def _summary(row: AuditRow) -> dict[str, Any]:
    return {
        "checkpoint": row.checkpoint,
        "method": row.method,
        "seed": row.seed,
        "verdict": row.report.verdict if row.report is not None else row.verdict,
        "fired": row.fired,
        "expected": row.expected,
        "outcomes": dict(row.outcomes),
        "reason": row.reason,
        "headline_acc": None if row.report is None else row.report.headline_acc,
        "frozen_baseline_acc": None if row.report is None else row.report.frozen_baseline_acc,
    }


def _by_column(values: Sequence[float | None]) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain({column.title: value for column, value in zip(COLUMNS, values, strict=True)})
    return plain
