# mypy: disallow-any-expr, disallow-any-explicit, disallow-any-unimported
"""Tests of an author's own repo: every fixture, and what it gives."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from torch import Tensor, nn

from pytest_fadiag import (
    Batch,
    CheckpointUnderTest,
    Control,
    CreditFunction,
    DataSet,
    DiagnosticReport,
    DiagnosticThresholds,
    DiagnosticUnderTest,
    Finding,
    Status,
)


def test_fixtures(
    fa_checkpoint: CheckpointUnderTest,
    fa_model: nn.Module,
    fa_test_data: DataSet,
    fa_eval_batches: Iterable[Batch],
    fa_frozen_baseline: Control | float | None,
    fa_thresholds: DiagnosticThresholds,
    fa_device: str,
    fa_credit: CreditFunction | None,
) -> None:
    path: Path = fa_checkpoint.path
    method: str = fa_checkpoint.method
    seed: int | None = fa_checkpoint.seed
    claimed: float | None = fa_checkpoint.test_acc
    tensors: dict[str, Tensor] = fa_checkpoint.state_dict
    assert path.exists() and method and seed is not None and claimed is not None and tensors
    labels = [y for _, y in fa_eval_batches]
    assert sum(len(y) for y in labels) == len(fa_test_data) == len(fa_test_data.y)
    if isinstance(fa_frozen_baseline, Control):
        assert fa_frozen_baseline.accuracy.value < claimed
    floor: float = fa_thresholds.replace(g_norm_floor=1e-9).g_norm_floor
    assert floor < 1 and fa_device and fa_model.training is not None and fa_credit is None


def test_report(fa_report: DiagnosticReport) -> None:
    norms = [norm for norm in fa_report.residual_norms if norm is not None]
    finding: Finding = fa_report.finding("a")
    fired: str = fa_report.fired
    assert max(norms) < 1e3 and finding.status is Status.PASS and fired == "" and "walk-back" not in fa_report.verdict
    assert fa_report.accuracy is not None and fa_report.accuracy.value > 0.5
    assert fa_report.credit is None or fa_report.credit.gamma[0] > 0
    fa_report.check("")


def test_diagnostic(fa_diagnostic: DiagnosticUnderTest) -> None:
    status: Status = fa_diagnostic.status
    value: float | None = fa_diagnostic.value
    assert status.value and value is not None and value < fa_diagnostic.threshold and fa_diagnostic.report.seed
    fa_diagnostic.check()
