"""What this package adds to an audit; nothing here imports torch before something is measured or read."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .diagnostic import EffectiveRank

if TYPE_CHECKING:
    from pytest_fadiag import Audit, DataSet, Diagnostic


def pytest_fadiag_diagnostics() -> list[Diagnostic]:
    return [EffectiveRank()]


def pytest_fadiag_load_checkpoint(path: Path) -> dict[str, Any] | None:
    """Weights that were trained in JAX, as one numpy archive."""
    if path.suffix != ".npz":
        return None
    from .readers import read_weights

    return read_weights(path)


def pytest_fadiag_load_data(spec: str, base: Path) -> DataSet | None:
    """``csv:PATH``: a sample a line, its label last."""
    kind, _, path = spec.partition(":")
    if kind != "csv":
        return None
    from .readers import read_samples

    return read_samples(base / path)


def pytest_fadiag_report_kinds() -> dict[str, str]:
    return {"csv": "audit.csv"}


def pytest_fadiag_write_report(kind: str, audit: Audit, destination: Path) -> list[str] | None:
    """The table as a spreadsheet reads it."""
    if kind != "csv":
        return None
    with destination.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["checkpoint", "method", "seed", "fired", *(column.title for column in audit.columns)])
        for row in audit.rows:
            numbers = [None if row.report is None else column.value(row.report) for column in audit.columns]
            writer.writerow([row.checkpoint, row.method, row.seed, row.fired, *numbers])
    return []
