# mypy: disallow-any-expr, disallow-any-explicit, disallow-any-unimported
"""An author's evaluation script and training loop, without pytest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from pytest_fadiag import (
    Audit,
    Bench,
    Checkpoint,
    Control,
    DataSet,
    DiagnosticReport,
    DiagnosticThresholds,
    Guard,
    GuardStopped,
    Measurement,
    Recorder,
    ResidualMLP,
    Setup,
    TrainingLog,
    alignment,
    audit,
    bp_grad_norms,
    cross_batch_direction_stability,
    diagnose,
    load_data,
    measure,
    read_audit,
    read_log,
    residual_norms,
)


def batches(data: DataSet) -> Iterator[tuple[Tensor | dict[str, Tensor], Tensor]]:
    return data.batches(256, flatten=True)


def credit(model: nn.Module, x: Tensor, y: Tensor) -> list[Tensor]:
    return [torch.zeros(len(x), 8) for _ in model.children()]


def evaluate(path: Path, model: ResidualMLP) -> list[DiagnosticReport]:
    data = load_data("fashion-mnist:data")
    changes: dict[str, float | str] = {"margin_pp": 2.0, "growth": "cumulative"}
    on_disk = audit(path, data=data, frozen={"dfa": 0.6}, thresholds=changes, batches=4, device="cpu", credit=credit)
    in_memory = diagnose(model=model, eval_batches=batches(data), frozen_baseline_acc=0.5, stream="blocks", credit=credit)
    record = Bench(Setup(data, batch_size=512)).record(path)
    judged = record.judge(Control(on_disk.control.accuracy) if on_disk.control else None, DiagnosticThresholds(), None)
    return [on_disk, in_memory, judged]


def quantities(model: nn.Module, data: DataSet) -> float:
    measured: Measurement = measure(model, batches(data), threads=1)
    norms: list[float] = residual_norms(model, batches(data), batches=2)
    gradients: list[float] = bp_grad_norms(model, batches(data), stream="blocks")
    drift: float = cross_batch_direction_stability(model, batches(data))
    cosine: float = alignment(torch.ones(2, 3), torch.ones(2, 3)).median
    return norms[0] + gradients[0] + drift + cosine + (measured.cross_batch_stability or 0.0)


def train(model: nn.Module, data: DataSet) -> int:
    guard = Guard(Recorder("log.jsonl", data.batches(), config={"lr": 0.1}, method="dfa", seed=1), stop="ab", control=0.3)
    try:
        for epoch in range(3):
            guard.record(epoch, model, 0.5, images=100, loss=0.1)
    except GuardStopped as stopped:
        return stopped.epoch
    return -1


def read(path: Path) -> list[str]:
    log: TrainingLog = read_log(path)
    made: Audit = read_audit(path)
    reports = [row.report for row in made.rows if row.report is not None]
    return [log.method, *(f"{row.method} {row.fired}" for row in made.rows), *(report.verdict for report in reports)]


def tensors(checkpoint: Checkpoint) -> int:
    return sum(tensor.numel() for tensor in checkpoint.state_dict.values())
