"""From a checkpoint on disk to its report: load, measure, judge."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .judge.control import Control
from .judge.errors import AuditError
from .judge.records import BATCH, BATCHES, Measurement
from .judge.report import DiagnosticReport
from .judge.thresholds import DiagnosticThresholds
from .load.checkpoints import Checkpoint, load_checkpoint
from .load.controls import ControlFile, Controls
from .load.controls import control_of as control_of  # noqa: PLC0414 (evaluating a control ends with its label)
from .load.data import DataSet, load_data
from .load.networks import build_network, wants_flat
from .measure.measure import evaluate, measure

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Bench:
    """What every checkpoint of an audit is measured with."""

    data: DataSet
    model: str | nn.Module | None = None
    stream: str | None = None
    batches: int = BATCHES
    batch_size: int = BATCH
    device: str = "auto"
    threads: int | None = None
    unsafe: bool = False
    progress: Progress | None = None

    def measure(self, path: Path) -> tuple[Checkpoint, Measurement]:
        """Load one checkpoint and measure it; the tensors of the checkpoint are let go."""
        checkpoint, network, batches = self._prepared(path)
        measurement = measure(
            network,
            batches,
            stream=self.stream,
            batches=self.batches,
            batch_size=self.batch_size,
            threads=self.threads,
            progress=self._told(),
        )
        return _released(checkpoint), measurement

    def evaluate(self, file: ControlFile) -> Control:
        """The accuracy of a control checkpoint on the same images."""
        checkpoint, network, batches = self._prepared(file.path)
        accuracy = evaluate(network, batches, batch_size=self.batch_size, threads=self.threads, progress=self._told())
        return control_of(file, checkpoint.config, accuracy)

    def _prepared(self, path: Path) -> tuple[Checkpoint, Any, Any]:
        checkpoint = load_checkpoint(path, unsafe=self.unsafe)
        network = build_network(checkpoint, self.model).to(choose_device(self.device))
        data = self.data.for_checkpoint(checkpoint.config)
        return checkpoint, network, data.batches(self.batch_size, flatten=wants_flat(network, data.x[0]))

    def _told(self) -> Callable[[int], None] | None:
        progress = self.progress
        return None if progress is None else lambda done: progress(done, len(self.data))


def audit(
    path: str | Path,
    *,
    data: str | DataSet,
    frozen: float | Mapping[str, float] | Control | str | Path | None = None,
    thresholds: DiagnosticThresholds | Mapping[str, Any] | None = None,
    **bench: Any,
) -> DiagnosticReport:
    """The report of a checkpoint on disk.

    ``data`` is a SPEC such as ``fashion-mnist:ROOT``; ``frozen`` the control: an accuracy, a mapping by method, a control
    checkpoint or a JSON file. ``bench`` takes ``model``, ``stream``, ``batches``, ``batch_size``, ``device``, ``threads``,
    ``unsafe``.
    """
    controls = Controls.of(frozen)  # first: a percentage is rejected before the measurement, not after it
    loaded = load_data(data) if isinstance(data, str) else data
    setup = Bench(loaded, **bench)
    checkpoint, measurement = setup.measure(Path(path))
    control = frozen if isinstance(frozen, Control) else controls.choose(checkpoint.method, checkpoint.seed)
    if isinstance(control, ControlFile):
        control = setup.evaluate(control)
    unfit = f"none of the controls supplied is for {checkpoint.method}" if controls and control is None else ""
    return DiagnosticReport.from_measurement(
        measurement,
        method_name=checkpoint.method,
        seed=checkpoint.seed,
        control=control,
        thresholds=thresholds,
        claimed_acc=checkpoint.test_acc,
        checkpoint=Path(path).name,
        notes="; ".join(filter(None, [f"{Path(path).name} on {loaded.name}", loaded.note, unfit])),
    )


def choose_device(name: str) -> torch.device:
    """The device of a name; ``auto`` is the first GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise AuditError(f"unknown device {name!r}; accepted: auto, cpu, cuda, cuda:N, mps") from error
    if device.type not in ("cpu", "cuda", "mps"):
        raise AuditError(f"device {name!r} is not supported; accepted: auto, cpu, cuda, cuda:N, mps")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise AuditError(f"device {name!r} was asked for, but {torch.cuda.device_count()} CUDA devices are visible")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise AuditError("device 'mps' was asked for, but this build of torch has none")
    return device


def _released(checkpoint: Checkpoint) -> Checkpoint:
    gc.collect()
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
    return replace(checkpoint, state_dict={}, feedback=None)
