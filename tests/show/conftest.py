"""Audits as plain numbers: the usual one, the largest, the oddest, the emptiest."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from pytest_fadiag.judge.control import Control
from pytest_fadiag.judge.margins import Interval, SeedMargin, Variance
from pytest_fadiag.judge.records import Accuracy
from pytest_fadiag.judge.report import DiagnosticReport
from pytest_fadiag.judge.trajectory import Point, Trajectory
from pytest_fadiag.show.audit import Audit, AuditRow, Checklist, MarginRow

SEEDS = (42, 123, 456)
HOSTILE = r"$\frac{1}{0}$ _a_ |b| <script>alert(1)</script> \x" + "\x1b[31m\n\u202e 測試 " + "very-long-name " * 12
ENVIRONMENT = {"torch": "2.13.0", "device": "cpu", "dtype": "float32", "threads": 1, "tf32": False, "data_sha256": "ab" * 32}


def report(method: str = "dfa", seed: int | None = 42, **changes: Any) -> DiagnosticReport:
    """A network whose stream explodes in its first block."""
    values: dict[str, Any] = {
        "method_name": method,
        "seed": seed,
        "residual_norms": [6e3, 4e6, 9e6, 1e7, 1.5e7],
        "bp_grad_norms": [3e-6, 4e-8, 4e-8, 4e-8, 4e-8],
        "stability_layer": 2,
        "cross_batch_stability": -0.02,
        "headline_acc": 0.653,
        "frozen_baseline_acc": 0.76,
        "accuracy": Accuracy(0.653, 10_000),
        "control": Control(Accuracy(0.76, 10_000), f"frozen_{method}_s{seed}.pt", method, seed),
        "environment": {**ENVIRONMENT, "checkpoint_sha256": "cd" * 32},
    }
    values.update(changes)
    return DiagnosticReport(**values)


def healthy(method: str = "bp", seed: int | None = 42, **changes: Any) -> DiagnosticReport:
    """A network of which nothing fires."""
    values: dict[str, Any] = {
        "residual_norms": [35, 40, 45, 52, 66],
        "bp_grad_norms": [9e-6, 8e-6, 7e-6, 5e-6, 4e-6],
        "cross_batch_stability": 0.06,
        "headline_acc": 0.9,
        "accuracy": Accuracy(0.9, 10_000),
    }
    return report(method, seed, **{**values, **changes})


def traced(method: str, seed: int | None, epochs: int = 30, penalised: bool = False, **changes: Any) -> DiagnosticReport:
    """A log of which every epoch is known; that of a penalised run has no drift."""
    points = []
    for epoch in range(1, epochs + 1):
        size = 50.0 if penalised else 50.0 * 1.5**epoch
        states = (40.0, size, size, size, 2 * size)
        gradients = (1e-5,) * 4 + (1e-5 if penalised else 1e-5 / 1.3**epoch,)
        points.append(Point(epoch, states, gradients, None if penalised else 0.05, 0.7 if penalised else 0.5 + 0.1 / epoch))
    last = points[-1]
    values = {
        "residual_norms": last.residual_norms,
        "bp_grad_norms": last.bp_grad_norms,
        "cross_batch_stability": last.drift,
        "headline_acc": last.accuracy,
        "accuracy": None,
        "partial": True,
        "gradient_batch": 128,
        "trajectory": Trajectory(tuple(points)),
    }
    return report(method, seed, **{**values, **changes})


def row(made: DiagnosticReport, **changes: Any) -> AuditRow:
    """The row of a report, with outcomes as a run leaves them."""
    name = f"runs/{made.method_name}_s{made.seed}.pt" + (".log.jsonl" if made.partial else "")
    outcomes = {finding.key: "failed" if finding.fired else "passed" for finding in made.findings}
    return AuditRow(name, made.method_name, made.seed, made, **{"outcomes": outcomes, **changes})


def margin(method: str, seeds: int = 3, **changes: Any) -> MarginRow:
    """A margin that falls short."""
    over_seeds = SeedMargin(
        seeds, 10_000, -10.7, Interval(-11.5, -9.9, f"over {seeds} seeds"), 2.0, Variance(0.1, 0.05, 0.01), 8.5
    )
    return MarginRow(**{"name": method, "method": method, "margin": over_seeds, "outcome": "failed", **changes})


def usual() -> Audit:
    """Three methods with three seeds, and the logs of two more."""
    rows = [row(healthy("bp", seed)) for seed in SEEDS] + [row(report("dfa", seed)) for seed in SEEDS]
    rows += [row(traced("dfa", seed)) for seed in SEEDS] + [row(traced("dfa-lam", seed, penalised=True)) for seed in SEEDS]
    found = {"number": 1, "title": "the L₋₁ norm", "file": "eval.py", "line": 12, "code": "g.norm(-1)", "message": "takes the "
             "L₋₁ norm", "fix": "g.norm(dim=-1)", "silenced": None}  # fmt: skip
    silenced = {**found, "number": 2, "line": 20, "code": "F.cosine_similarity(a, b)", "silenced": "norms are checked above"}
    return Audit(rows, [margin("dfa")], Checklist(4, [found, silenced]))


def large() -> Audit:
    """Eight methods with ten seeds each, all with logs."""
    methods = [f"method-with-a-name-{index}" for index in range(8)]
    rows = [row(report(method, seed)) for method in methods for seed in range(10)]
    rows += [row(traced(method, seed, 12, index % 2 == 1)) for index, method in enumerate(methods) for seed in range(10)]
    return Audit(rows, [margin(method, 10) for method in methods])


def odd() -> Audit:
    """Hostile names, holes, zeros, infinities, NaN, depths that differ, one seed and none, an error and nothing run."""
    published = {"residual_norms": [9, None, None, None, 4e4], "bp_grad_norms": [None, None, 1e-6, None, None]}
    unknown = {"accuracy": None, "control": None, "stability_layer": None, "cross_batch_stability": None}
    bare = {"residual_norms": [None, 3.0], "bp_grad_norms": [None, None], "depth_known": False, "headline_acc": None}
    rows = [
        row(report(HOSTILE, None, notes=HOSTILE)),
        row(healthy(HOSTILE, 2**40, residual_norms=[0, 1e300, math.inf, math.nan, 3], cross_batch_stability=math.nan)),
        row(report("zeros", 1, bp_grad_norms=[0, 0, 0, 0, 0], headline_acc=0.1, accuracy=Accuracy(0.1))),
        row(report("deep", 1, residual_norms=[float(1 + n) for n in range(49)], bp_grad_norms=[1e-5] * 49)),
        row(report("holes", 1, **published, **unknown, headline_acc=0.363, frozen_baseline_acc=0.349, gradient_batch=128)),
        row(report("bare", 1, **bare, **unknown, frozen_baseline_acc=None)),
        row(traced(HOSTILE, 7, 1)),
        row(traced("not-finite", 7, 2, residual_norms=[1, math.inf, math.inf, math.inf, math.inf])),
        AuditRow("runs/broken.pt", "broken", None, None, {"a": "error"}, "cannot be read: " + HOSTILE),
        AuditRow("runs/later.pt", "later", 3, None, {"a": "not run"}),
    ]
    points = (Point(1, (1.0, 0.0), (math.nan, 0.0)), Point(5, (1.0, math.inf), (None, None), math.nan, 0.5))
    rows.append(row(report("wild", 7, residual_norms=[1.0, 2.0], bp_grad_norms=[1.0, 0.0], trajectory=Trajectory(points))))
    return Audit(rows, [MarginRow("zeros", "zeros", reason=HOSTILE)], Checklist(0))


AUDITS: dict[str, Callable[[], Audit]] = {
    "usual": usual,
    "large": large,
    "odd": odd,
    "one": lambda: Audit([row(healthy("bp", None), recorded=healthy("bp", None, headline_acc=0.8, accuracy=Accuracy(0.8)))]),
    "empty": lambda: Audit([]),
}


@pytest.fixture
def audits() -> dict[str, Callable[[], Audit]]:
    """The audits by name, made when called."""
    return AUDITS


@pytest.fixture(params=AUDITS)
def audit(request: pytest.FixtureRequest) -> Audit:
    """Each of the audits."""
    return AUDITS[request.param]()
