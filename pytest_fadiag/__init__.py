"""Four diagnostics for networks trained without backpropagation, as a library and as a pytest plugin."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .protocol.control import Control as Control
    from .protocol.diagnose import bp_grad_norms as bp_grad_norms
    from .protocol.diagnose import cross_batch_direction_stability as cross_batch_direction_stability
    from .protocol.diagnose import diagnose as diagnose
    from .protocol.diagnose import residual_norms as residual_norms
    from .protocol.errors import AuditError as AuditError
    from .protocol.measure import measure as measure
    from .protocol.measurement import Accuracy as Accuracy
    from .protocol.measurement import Measurement as Measurement
    from .protocol.report import DiagnosticReport as DiagnosticReport
    from .protocol.thresholds import DiagnosticThresholds as DiagnosticThresholds
    from .protocol.trajectory import Trajectory as Trajectory
    from .sources.audit import audit as audit
    from .sources.logs import TrainingLog as TrainingLog
    from .sources.logs import read_log as read_log
    from .sources.logs import read_logs as read_logs
    from .sources.recorder import Recorder as Recorder
    from .sources.residual_mlp import ResidualMLP as ResidualMLP

_HOMES = {
    "Accuracy": "protocol.measurement",
    "AuditError": "protocol.errors",
    "Control": "protocol.control",
    "DiagnosticReport": "protocol.report",
    "DiagnosticThresholds": "protocol.thresholds",
    "Measurement": "protocol.measurement",
    "Recorder": "sources.recorder",
    "ResidualMLP": "sources.residual_mlp",
    "TrainingLog": "sources.logs",
    "Trajectory": "protocol.trajectory",
    "audit": "sources.audit",
    "bp_grad_norms": "protocol.diagnose",
    "cross_batch_direction_stability": "protocol.diagnose",
    "diagnose": "protocol.diagnose",
    "measure": "protocol.measure",
    "read_log": "sources.logs",
    "read_logs": "sources.logs",
    "residual_norms": "protocol.diagnose",
}

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604 (the keys are strings)


def __getattr__(name: str) -> Any:
    """A public name, imported when it is first used: importing the package imports neither torch nor numpy."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
