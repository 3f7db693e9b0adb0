"""What this package adds to an audit; it imports no torch before something is measured or read."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_fadiag import Output
from pytest_fadiag.show.audit import Audit

from .diagnostic import EffectiveRank

if TYPE_CHECKING:
    from pytest_fadiag import DataSet, Diagnostic


def pytest_fadiag_diagnostics() -> list[Diagnostic]:
    return [EffectiveRank()]


def pytest_fadiag_metrics() -> dict[str, Callable[[Any], Any]]:
    """Called when something is to be measured."""
    from .metric import StateRanks

    return {"rank": StateRanks}


def pytest_fadiag_load_checkpoint(path: Path) -> dict[str, Any] | None:
    """Weights that were trained in JAX, as one numpy archive; a .npz file would be a trace."""
    if path.suffix != ".weights":
        return None
    from .readers import read_weights

    return read_weights(path)


def pytest_fadiag_load_data(spec: str, base: Path) -> DataSet | None:
    """``csv:PATH``: one sample per line, its label last."""
    kind, _, path = spec.partition(":")
    if kind != "csv":
        return None
    from .readers import read_samples

    return read_samples(base / path)


def pytest_fadiag_outputs() -> dict[str, Output]:
    return {"csv": Output("audit.csv", write_csv)}


def write_csv(audit: Audit, destination: Path) -> list[str]:
    """The table as a spreadsheet reads it."""
    columns = [column for diagnostic in audit.diagnostics for column in diagnostic.columns]
    with destination.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        titles = [column.title for column in columns]
        writer.writerow(["checkpoint", "method", "seed", "fired", *titles])
        for row in audit.rows:
            numbers = [row.report and column.value(row.report) for column in columns]
            fired = " ".join(row.conclusion.fired)
            writer.writerow([row.checkpoint, row.method, row.seed, fired, *numbers])
    return []
