"""Audits as plain numbers: the usual one, the largest, the oddest, the emptiest."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from builders import exploded, healthy, margin, probed, row, traced

from pytest_fadiag.judge.records import Accuracy
from pytest_fadiag.judge.trajectory import Point, Trajectory
from pytest_fadiag.show.audit import Audit, AuditRow, Checklist, MarginRow

SEEDS = (42, 123, 456)
HOSTILE = r"$\frac{1}{0}$ _a_ |b| <script>alert(1)</script> \x" + "\x1b[31m\n\u202e 測試 " + "very-long-name " * 12


def usual() -> Audit:
    """Three methods with three seeds, and the logs of two more."""
    rows = [row(healthy("bp", seed)) for seed in SEEDS] + [row(exploded("dfa", seed)) for seed in SEEDS]
    rows += [row(traced("dfa", seed)) for seed in SEEDS] + [row(traced("dfa-lam", seed, penalised=True)) for seed in SEEDS]
    found = {"number": 1, "title": "the L₋₁ norm", "file": "eval.py", "line": 12, "code": "g.norm(-1)", "message": "takes the "
             "L₋₁ norm", "fix": "g.norm(dim=-1)", "silenced": None}  # fmt: skip
    silenced = {**found, "number": 2, "line": 20, "code": "F.cosine_similarity(a, b)", "silenced": "norms are checked above"}
    return Audit(rows, [margin("dfa")], Checklist(4, [found, silenced]))


def large() -> Audit:
    """Eight methods with six seeds each, all with logs."""
    methods = [f"method-with-a-name-{index}" for index in range(8)]
    rows = [row(exploded(method, seed)) for method in methods for seed in range(6)]
    rows += [row(traced(method, seed, 12, index % 2 == 1)) for index, method in enumerate(methods) for seed in range(6)]
    return Audit(rows, [margin(method, 6) for method in methods])


def odd() -> Audit:
    """Hostile names, holes, zeros, infinities, NaN, depths that differ, one seed and none, an error and nothing run."""
    published = {"residual_norms": [9, None, None, None, 4e4], "bp_grad_norms": [None, None, 1e-6, None, None]}
    unknown = {"accuracy": None, "control": None, "stability_layer": None, "cross_batch_stability": None}
    bare = {"residual_norms": [None, 3.0], "bp_grad_norms": [None, None], "depth_known": False, "headline_acc": None}
    rows = [
        row(exploded(HOSTILE, None, notes=HOSTILE)),
        row(healthy(HOSTILE, 2**40, residual_norms=[0, 1e300, math.inf, math.nan, 3], cross_batch_stability=math.nan)),
        row(exploded("zeros", 1, bp_grad_norms=[0, 0, 0, 0, 0], headline_acc=0.1, accuracy=Accuracy(0.1))),
        row(exploded("deep", 1, residual_norms=[float(1 + n) for n in range(49)], bp_grad_norms=[1e-5] * 49)),
        row(exploded("holes", 1, **published, **unknown, headline_acc=0.363, frozen_baseline_acc=0.349, gradient_batch=128)),
        row(exploded("bare", 1, **bare, **unknown, frozen_baseline_acc=None)),
        row(traced(HOSTILE, 7, 1)),
        row(traced("not-finite", 7, 2, residual_norms=[1, math.inf, math.inf, math.inf, math.inf])),
        AuditRow("runs/broken.pt", "broken", None, None, {"a": "error"}, "cannot be read: " + HOSTILE),
        AuditRow("runs/later.pt", "later", 3, None, {"a": "not run"}),
    ]
    points = (Point(1, (1.0, 0.0), (math.nan, 0.0)), Point(5, (1.0, math.inf), (None, None), math.nan, 0.5))
    rows.append(row(exploded("wild", 7, residual_norms=[1.0, 2.0], bp_grad_norms=[1.0, 0.0], trajectory=Trajectory(points))))
    return Audit(rows, [MarginRow("zeros", "zeros", reason=HOSTILE)], Checklist(0))


def with_probes() -> Audit:
    """Two methods of which probes were read, one of them seed by seed worse at h_L."""
    rows = [row(probed(healthy("bp", seed))) for seed in (42, 123)]
    rows += [row(probed(exploded("dfa", seed), 0.6, 0.5, 0.5, 0.5, last)) for seed, last in ((42, 0.5), (123, 0.4))]
    return Audit(rows)


AUDITS: dict[str, Callable[[], Audit]] = {
    "usual": usual,
    "large": large,
    "odd": odd,
    "one": lambda: Audit([row(healthy("bp", None), recorded=healthy("bp", None, headline_acc=0.8, accuracy=Accuracy(0.8)))]),
    "probed": with_probes,
    "empty": lambda: Audit([]),
}


@pytest.fixture(scope="session")
def audits() -> dict[str, Callable[[], Audit]]:
    """The audits by name, made when called."""
    return AUDITS


@pytest.fixture(scope="session", params=AUDITS)
def audit(request: pytest.FixtureRequest) -> Audit:
    """Each of the audits."""
    return AUDITS[request.param]()
