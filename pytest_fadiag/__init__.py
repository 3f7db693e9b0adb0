"""Four diagnostics for networks trained without backpropagation, as a library and as a pytest plugin."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .bench import Bench as Bench
    from .bench import audit as audit
    from .guard import Guard as Guard
    from .guard import GuardStopped as GuardStopped
    from .judge.control import Control as Control
    from .judge.credit import Credit as Credit
    from .judge.credit import CreditFunction as CreditFunction
    from .judge.diagnostics import Cause as Cause
    from .judge.diagnostics import CauseKind as CauseKind
    from .judge.diagnostics import Column as Column
    from .judge.diagnostics import ColumnKind as ColumnKind
    from .judge.diagnostics import Diagnostic as Diagnostic
    from .judge.diagnostics import Finding as Finding
    from .judge.diagnostics import Status as Status
    from .judge.errors import AuditError as AuditError
    from .judge.observers import ObserverSpec as ObserverSpec
    from .judge.records import Accuracy as Accuracy
    from .judge.records import Measurement as Measurement
    from .judge.report import DiagnosticReport as DiagnosticReport
    from .judge.thresholds import DiagnosticThresholds as DiagnosticThresholds
    from .judge.trajectory import Trajectory as Trajectory
    from .load.checkpoints import Checkpoint as Checkpoint
    from .load.data import DataSet as DataSet
    from .load.logs import TrainingLog as TrainingLog
    from .load.logs import read_log as read_log
    from .load.logs import read_logs as read_logs
    from .load.residual_mlp import ResidualMLP as ResidualMLP
    from .load.setup import Setup as Setup
    from .measure.alignment import Alignment as Alignment
    from .measure.alignment import alignment as alignment
    from .measure.batches import Batch as Batch
    from .measure.control import make_control as make_control
    from .measure.diagnose import bp_grad_norms as bp_grad_norms
    from .measure.diagnose import cross_batch_direction_stability as cross_batch_direction_stability
    from .measure.diagnose import diagnose as diagnose
    from .measure.diagnose import residual_norms as residual_norms
    from .measure.measure import measure as measure
    from .measure.observers import Gradient as Gradient
    from .measure.observers import Observer as Observer
    from .measure.observers import Output as Output
    from .measure.observers import OutputError as OutputError
    from .measure.observers import PassInfo as PassInfo
    from .measure.observers import Samples as Samples
    from .measure.observers import State as State
    from .recorder import Recorder as Recorder
    from .registry import Registry as Registry
    from .registry import read_audit as read_audit
    from .session.fixtures import CheckpointUnderTest as CheckpointUnderTest
    from .session.fixtures import DiagnosticUnderTest as DiagnosticUnderTest
    from .show.audit import Audit as Audit
    from .show.audit import AuditRow as AuditRow
    from .workshop import load_data as load_data

_HOMES = {
    "Accuracy": "judge.records",
    "Alignment": "measure.alignment",
    "Audit": "show.audit",
    "AuditError": "judge.errors",
    "AuditRow": "show.audit",
    "Batch": "measure.batches",
    "Bench": "bench",
    "Cause": "judge.diagnostics",
    "CauseKind": "judge.diagnostics",
    "Checkpoint": "load.checkpoints",
    "CheckpointUnderTest": "session.fixtures",
    "Column": "judge.diagnostics",
    "ColumnKind": "judge.diagnostics",
    "Control": "judge.control",
    "Credit": "judge.credit",
    "CreditFunction": "judge.credit",
    "DataSet": "load.data",
    "Diagnostic": "judge.diagnostics",
    "DiagnosticReport": "judge.report",
    "DiagnosticThresholds": "judge.thresholds",
    "DiagnosticUnderTest": "session.fixtures",
    "Finding": "judge.diagnostics",
    "Gradient": "measure.observers",
    "Guard": "guard",
    "GuardStopped": "guard",
    "Measurement": "judge.records",
    "Observer": "measure.observers",
    "ObserverSpec": "judge.observers",
    "Output": "measure.observers",
    "OutputError": "measure.observers",
    "PassInfo": "measure.observers",
    "Recorder": "recorder",
    "Registry": "registry",
    "ResidualMLP": "load.residual_mlp",
    "Samples": "measure.observers",
    "Setup": "load.setup",
    "State": "measure.observers",
    "Status": "judge.diagnostics",
    "TrainingLog": "load.logs",
    "Trajectory": "judge.trajectory",
    "alignment": "measure.alignment",
    "audit": "bench",
    "bp_grad_norms": "measure.diagnose",
    "cross_batch_direction_stability": "measure.diagnose",
    "diagnose": "measure.diagnose",
    "load_data": "workshop",
    "make_control": "measure.control",
    "measure": "",  # the folder of that name, which can be called
    "read_audit": "registry",
    "read_log": "load.logs",
    "read_logs": "load.logs",
    "residual_norms": "measure.diagnose",
}

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604 (the keys are strings)


if not TYPE_CHECKING:  # else a type checker takes a name that does not exist for Any

    def __getattr__(name: str) -> object:
        """A public name, imported when it is first used: importing the package imports neither torch nor numpy."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = _HOMES[name]
        value = getattr(import_module(f".{home}", __name__), name) if home else import_module(f".{name}", __name__)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
