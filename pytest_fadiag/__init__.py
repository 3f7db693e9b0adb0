"""Audits networks trained without backpropagation: a library and a pytest plugin.

>>> from pytest_fadiag import diagnose
>>> report = diagnose(model, test_batches, frozen_baseline_acc=0.349)
>>> print(report.verdict)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    # ruff: noqa: I001 (one statement a module)
    from .api import (
        audit as audit,
        bp_grad_norms as bp_grad_norms,
        cross_batch_direction_stability as cross_batch_direction_stability,
        diagnose as diagnose,
        residual_norms as residual_norms,
        save_trace as save_trace,
    )
    from .judge.control import Control as Control
    from .judge.diagnostics.base import (
        Column as Column,
        Diagnostic as Diagnostic,
        Finding as Finding,
        Status as Status,
    )
    from .judge.errors import AuditError as AuditError
    from .judge.records import Measurement as Measurement, Score as Score
    from .judge.thresholds import DiagnosticThresholds as DiagnosticThresholds
    from .load.data import DataSet as DataSet, load_data as load_data
    from .load.logs import read_log as read_log
    from .load.network import ResidualMLP as ResidualMLP
    from .measure.control import make_control as make_control
    from .measure.types import Batch as Batch
    from .recorder import Guard as Guard, GuardStopped as GuardStopped, Recorder as Recorder
    from .show.json import read_audit as read_audit
    from .show.outputs import Output as Output
    from .show.report import DiagnosticReport as DiagnosticReport

_HOMES = {
    "api": "audit bp_grad_norms cross_batch_direction_stability diagnose residual_norms save_trace",
    "judge.control": "Control",
    "judge.diagnostics.base": "Column Diagnostic Finding Status",
    "judge.errors": "AuditError",
    "judge.records": "Measurement Score",
    "judge.thresholds": "DiagnosticThresholds",
    "load.data": "DataSet load_data",
    "load.logs": "read_log",
    "load.network": "ResidualMLP",
    "measure.control": "make_control",
    "measure.types": "Batch",
    "recorder": "Guard GuardStopped Recorder",
    "show.json": "read_audit",
    "show.outputs": "Output",
    "show.report": "DiagnosticReport",
}
_PLACES = {name: home for home, names in _HOMES.items() for name in names.split()}
__all__ = ["__version__", *_PLACES]  # noqa: PLE0604

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """A public name, imported on first use: the package itself imports no torch."""
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value = getattr(import_module(f".{_PLACES[name]}", __name__), name)
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
