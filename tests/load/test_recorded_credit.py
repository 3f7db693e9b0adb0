"""Γ in a recorder's log: what is written, when credit died, and what a training is told that gives none."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from support import clustered, in_batches
from torch import Tensor, nn

from pytest_fadiag import AuditError, Guard, GuardStopped, Recorder, ResidualMLP, diagnose, read_log
from pytest_fadiag.judge.report import DiagnosticReport
from pytest_fadiag.load.recording import records_credit
from pytest_fadiag.measure.batches import Batch
from pytest_fadiag.show.audit import Audit, AuditRow
from pytest_fadiag.show.figures import figures
from pytest_fadiag.show.html.credit import over_epochs
from pytest_fadiag.show.table import render

Trained = Callable[[], ResidualMLP]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "bp_s1.jsonl"


@pytest.fixture(scope="module")
def batches() -> list[Batch]:
    return in_batches(*clustered(1300))


class Dying:
    """The gradient until an epoch, and its opposite at the last block afterwards."""

    epoch = 0

    def __call__(self, model: Any, x: Tensor, y: Tensor) -> Sequence[Tensor]:
        logits, states = model(x, return_hidden=True)
        g = torch.autograd.grad(nn.functional.cross_entropy(logits, y, reduction="sum"), states)
        return [*g[1:-1], g[-1] if self.epoch < 3 else -g[-1]]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, batches: list[Batch], trained_network: Trained) -> Path:
    path = tmp_path_factory.mktemp("runs") / "bp_s1.jsonl"
    credit, model = Dying(), trained_network()
    recorder = Recorder(path, batches[:3], credit=credit)
    for credit.epoch in range(1, 5):
        recorder.record(credit.epoch, model, acc=0.5, images=1300)
    return path


def test_gamma_of_every_site_is_logged_and_judged_as_that_of_a_network(
    recorded: Path, batches: list[Batch], trained_network: Trained
) -> None:
    _, *entries = [json.loads(line) for line in recorded.read_text("utf-8").splitlines()]
    assert [len(entry["credit"]["gamma"]) for entry in entries] == [len(trained_network().blocks)] * 4
    partial = read_log(recorded).report(0.3)
    dead = Dying()
    dead.epoch = 4
    whole = diagnose(model=trained_network(), eval_batches=batches[:3], frozen_baseline_acc=0.3, credit=dead, method_name="bp")
    assert partial.credit is not None and whole.credit is not None
    for name in ("sites", "gamma", "null_low", "null_high", "nudge", "magnitude", "state"):
        assert getattr(partial.credit, name) == getattr(whole.credit, name), name
    ours, theirs = partial.finding("f"), whole.finding("f")
    assert (ours.status, ours.value, ours.headline) == (theirs.status, theirs.value, theirs.headline)
    assert ours.fired


def test_the_timeline_says_when_credit_died(recorded: Path) -> None:
    report = read_log(recorded).report(0.3)
    assert report.trajectory is not None
    assert report.trajectory.first_fired["f"] == 3
    assert "(f) epoch 3 of 4" in str(report)
    blocks = float(len(report.residual_norms) - 1)
    assert report.trajectory.aligned == (blocks, blocks, blocks - 1, blocks - 1)
    row = AuditRow("runs/bp_s1.jsonl", "bp", 1, report, dict.fromkeys("abcdf", "passed"))
    audit = Audit([row])
    assert "f3" in "".join(cell.text for cell in render(audit, 140)[1])
    assert "(f) credit-alignment" in [axes.get_title(loc="left") for axes in figures(audit)["timeline"].axes]
    (chart,) = over_epochs(report)
    assert list(chart.ys) == list(report.trajectory.aligned)
    assert chart.marks == [(3.0, "f")]


def test_the_epochs_survive_a_file(recorded: Path) -> None:
    report = read_log(recorded).report(0.3)
    again = DiagnosticReport.from_dict(json.loads(json.dumps(report.to_dict(), allow_nan=False)))
    assert again.trajectory == report.trajectory
    assert again.to_dict() == report.to_dict()


def test_a_guard_stops_by_credit(path: Path, batches: list[Batch], trained_network: Trained) -> None:
    credit, model = Dying(), trained_network()
    guard = Guard(Recorder(path, batches[:3], credit=credit), stop="f", after=2)
    with pytest.raises(GuardStopped, match="credit-alignment has fired in 2 records in a row, epochs 3 to 4"):
        for credit.epoch in range(1, 6):
            guard.record(credit.epoch, model, acc=0.5)
    blind = Guard(Recorder(path.with_name("none.jsonl"), batches[:3]), stop="f")
    with pytest.raises(AuditError, match="cannot stop by \\(f\\) credit-alignment"):
        blind.record(1, model, acc=0.5)


def test_credit_that_cannot_be_had_ends_no_training_and_is_told_once(
    path: Path, batches: list[Batch], trained_network: Trained, recwarn: pytest.WarningsRecorder
) -> None:
    recorder = Recorder(path, batches[:3], credit=lambda model, x, y: [])
    for epoch in (1, 2):
        recorder.record(epoch, trained_network(), acc=0.5)
    told = [str(warning.message) for warning in recwarn if "Γ" in str(warning.message)]
    assert len(told) == 1
    assert told[0].startswith("bp_s1.jsonl gets no Γ, since the credit function")
    assert "credit" not in json.loads(path.read_text("utf-8").splitlines()[-1])
    assert not records_credit(path)
    assert not read_log(path).report(0.3).asks_for("f")


def test_a_log_with_credit_gets_a_test_of_it(recorded: Path, tmp_path: Path, pytester: pytest.Pytester) -> None:
    assert records_credit(recorded)
    assert not records_credit(tmp_path / "nothing.jsonl")
    result = pytester.runpytest_inprocess("-p", "no:randomly", "-p", "no:xdist", f"--fa-log={recorded}", "--fa-frozen=0.3")
    result.stdout.fnmatch_lines(["FAILED *bp_s1.jsonl::credit-alignment - *"])
    listed = pytester.runpytest_inprocess(
        "-p", "no:xdist", f"--fa-log={recorded}", "--fa-diagnostics=a", "--collect-only", "-q"
    )
    assert "credit-alignment" not in listed.stdout.str()


def test_a_number_of_somebodys_own_that_is_called_credit_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "dfa_s1.json"
    epochs = [{"epoch": 1, "h_0_norm": 1.0, "h_L_norm": 2.0, "g_L_norm": 1e-3, "acc_eval": 0.5, "credit": 0.3}]
    log.write_text(json.dumps({"config": {"n_blocks": 1, "grad_batch_size": 128}, "log": epochs}), "utf-8")
    assert not read_log(log).report(0.3).asks_for("f")
    epochs[0]["credit"] = {"gamma": "high"}  # type: ignore[assignment]
    log.write_text(json.dumps({"config": {"n_blocks": 1, "grad_batch_size": 128}, "log": epochs}), "utf-8")
    with pytest.raises(AuditError, match=r"epoch 1.*credit"):
        read_log(log)
