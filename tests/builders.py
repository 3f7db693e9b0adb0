"""Reports, rows and margins from plain numbers: no network, no torch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pytest_fadiag.judge.codec import to_plain
from pytest_fadiag.judge.control import Control
from pytest_fadiag.judge.credit import Credit
from pytest_fadiag.judge.depth import Depth
from pytest_fadiag.judge.margins import Interval, SeedMargin, Variance
from pytest_fadiag.judge.records import Accuracy
from pytest_fadiag.judge.report import DiagnosticReport
from pytest_fadiag.judge.trajectory import Point, Trajectory
from pytest_fadiag.show.audit import AuditRow, MarginRow

BP = DiagnosticReport(
    method_name="bp",
    residual_norms=[255.0, 226.0, 211.0, 205.0, 203.0],
    bp_grad_norms=[4e-4] * 5,
    stability_layer=2,
    cross_batch_stability=0.099,
    headline_acc=0.609,
    frozen_baseline_acc=0.349,
)
"""The published network trained by backpropagation, of which nothing fires."""
PENALISED = DiagnosticReport(
    method_name="dfa-lam",
    residual_norms=(9.0, None, None, None, 4e4),
    bp_grad_norms=(None, None, 1e-6, None, None),
    stability_layer=2,
    cross_batch_stability=None,
    headline_acc=0.363,
    frozen_baseline_acc=0.349,
    partial=True,
    gradient_batch=128,
)
"""The published log of a penalised run: the norms have holes, and (d) fires."""
CREDIT = Credit("log", ("h_1",), (0.5,), (0.0,), (0.1,), (-0.1,), (0.1,), (0.4,), ((0.0,),), (1.0,), (0,), 128)
"""The credit of one site, which is aligned."""
ENVIRONMENT = {"torch": "2.13.0", "device": "cpu", "dtype": "float32", "threads": 1, "tf32": False, "data_sha256": "ab" * 32}


def report(base: DiagnosticReport = BP, /, **changes: Any) -> DiagnosticReport:
    """A report with some fields changed."""
    return replace(base, **changes)


def audited(base: DiagnosticReport, method: str, seed: int | None, **changes: Any) -> DiagnosticReport:
    """A report of one seed of a method, with a control of its own and an environment."""
    images = None if base.headline_acc is None else Accuracy(base.headline_acc, 10_000)
    own: dict[str, Any] = {
        "method_name": method,
        "seed": seed,
        "frozen_baseline_acc": 0.76,
        "accuracy": images,
        "control": Control(Accuracy(0.76, 10_000), f"frozen_{method}_s{seed}.pt", method, seed),
        "environment": {**ENVIRONMENT, "checkpoint_sha256": "cd" * 32},
    }
    return replace(base, **{**own, **changes})


def exploded(method: str = "dfa", seed: int | None = 42, **changes: Any) -> DiagnosticReport:
    """A network whose stream explodes in its first block."""
    numbers = report(
        residual_norms=[6e3, 4e6, 9e6, 1e7, 1.5e7],
        bp_grad_norms=[3e-6, 4e-8, 4e-8, 4e-8, 4e-8],
        cross_batch_stability=-0.02,
        headline_acc=0.653,
    )
    return audited(numbers, method, seed, **changes)


def healthy(method: str = "bp", seed: int | None = 42, **changes: Any) -> DiagnosticReport:
    """A network of which nothing fires."""
    numbers = report(
        residual_norms=[35, 40, 45, 52, 66],
        bp_grad_norms=[9e-6, 8e-6, 7e-6, 5e-6, 4e-6],
        cross_batch_stability=0.06,
        headline_acc=0.9,
    )
    return audited(numbers, method, seed, **changes)


def traced(method: str, seed: int | None, epochs: int = 30, penalised: bool = False, **changes: Any) -> DiagnosticReport:
    """A log of which every epoch is known; that of a penalised run has no drift."""
    points = []
    for epoch in range(1, epochs + 1):
        size = 50.0 if penalised else 50.0 * 1.5**epoch
        states = (40.0, size, size, size, 2 * size)
        gradients = (1e-5,) * 4 + (1e-5 if penalised else 1e-5 / 1.3**epoch,)
        points.append(Point(epoch, states, gradients, None if penalised else 0.05, 0.7 if penalised else 0.5 + 0.1 / epoch))
    last = points[-1]
    numbers = report(
        residual_norms=last.residual_norms,
        bp_grad_norms=last.bp_grad_norms,
        cross_batch_stability=last.drift,
        headline_acc=last.accuracy,
        partial=True,
        gradient_batch=128,
    )
    return audited(numbers, method, seed, **{"accuracy": None, "trajectory": Trajectory(tuple(points)), **changes})


def probed(base: DiagnosticReport, *probes: float, null: float | None = 0.62, **changes: Any) -> DiagnosticReport:
    """The report asked for (e) too: what probes read at h_0 to h_L, and at h_L of blocks drawn anew."""
    read = probes or (0.6, 0.7, 0.74, 0.78, 0.8)
    blocks = len(read) - 1
    drawn = () if null is None else ((*[read[0]] * blocks, null),) * 2
    seen = Depth(
        probes=read,
        null=drawn,
        interval=(100 * (read[-1] - read[0]) - 1, 100 * (read[-1] - read[0]) + 1),
        step_intervals=((0.5, 2.0),) * blocks,
        change=(0.5,) * blocks,
        fitted=5_000,
        read=5_000,
        nonfinite=(0,) * (blocks + 1),
    )
    asked = (*base.diagnostics, "depth-utility")
    return replace(base, **{"diagnostics": asked, "observations": {"depth": to_plain(seen)}, **changes})


def row(made: DiagnosticReport, **changes: Any) -> AuditRow:
    """The row of a report, with outcomes as a run leaves them: what is expected to fire is an xfail."""
    expected = changes.get("expected") or ""
    name = f"runs/{made.method_name}_s{made.seed}.pt" + (".log.jsonl" if made.partial else "")
    fires = {finding.key: "xfailed" if finding.key in expected else "failed" for finding in made.findings}
    outcomes = {finding.key: fires[finding.key] if finding.fired else "passed" for finding in made.findings}
    return replace(AuditRow(name, made.method_name, made.seed, made, outcomes), **changes)


def margin(method: str, seeds: int = 3, **changes: Any) -> MarginRow:
    """A margin over seeds that falls short."""
    interval = Interval(-11.5, -9.9, f"over {seeds} seeds")
    short = SeedMargin(seeds, 10_000, -10.7, interval, 2.0, Variance(0.1, 0.05, 0.01), 8.5)
    return replace(MarginRow(method, method, margin=short, outcome="failed"), **changes)
