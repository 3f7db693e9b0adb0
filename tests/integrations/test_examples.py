"""The examples of other tasks, from training to the audit's table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_fadiag import read_audit

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize(
    ("script", "task", "loss", "fires"),
    [
        ("language_model", "tokens", "cross-entropy", {"bp": "", "dfa": "ad"}),
        ("regression", "regression", "squared error", {"bp": "", "dfa": "ad", "dfa-lam": "d"}),
    ],
)
def test_bp_passes_and_dfa_fires(
    script: str, task: str, loss: str, fires: dict[str, str], tmp_path: Path
) -> None:
    subprocess.run([sys.executable, EXAMPLES / f"{script}.py", tmp_path], check=True, timeout=900)
    reports = {report.method_name: report for report in read_audit(tmp_path / "audit.json").reports}
    assert reports.keys() == fires.keys() and reports["bp"].verdict == "trustworthy"
    for method, report in reports.items():
        assert set(report.fired) >= set(fires[method]), method
        assert (report.task, report.loss, report.loss_assumed) == (task, loss, False)
