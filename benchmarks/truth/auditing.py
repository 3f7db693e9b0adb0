"""What the audit says about a case, with its numbers; kept until the network or the code changes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest_fadiag
from examples.methods.files import replace as write
from pytest_fadiag import AuditError
from pytest_fadiag.auditor import Auditor
from pytest_fadiag.judge.diagnostics import select
from pytest_fadiag.judge.report import Report
from pytest_fadiag.load.controls import parse_controls
from pytest_fadiag.load.names import file_digest, joined
from pytest_fadiag.load.setup import Setup

from .catalogue import Case
from .data import evaluation
from .files import config_of, path_of

MODEL = "benchmarks.truth.networks:build"
EVERYTHING = select("abcdeg")


@dataclass(frozen=True)
class Outcome:
    """What was said of one case on one class mix."""

    case: str
    mix: str
    verdict: str
    """With every diagnostic asked for."""
    unasked: str
    """By the rule for what was not asked for: (d) where there is a control, else (e)."""
    fired: str = ""
    measured: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)
    text: str = ""

    @property
    def said(self) -> str:
        """The verdict in one word."""
        return self.verdict.partition(":")[0].removeprefix("needs ")


def audited(case: Case, mix: str, folder: Path, root: Path) -> Outcome:
    """The outcome of a case, measured unless it is kept from a run with the same network, control and code."""
    files = [path_of(folder, name) for name in (case.network, case.control) if name]
    state = joined([_code(), *map(file_digest, files)])
    kept = folder / "outcomes" / f"{case.name} {mix}.json"
    if kept.exists() and (before := json.loads(kept.read_text("utf-8")))["state"] == state:
        return Outcome(**before["outcome"])
    outcome = _measured(case, mix, files, root)
    write(kept, json.dumps({"state": state, "outcome": asdict(outcome)}, indent=1).encode())
    return outcome


def _measured(case: Case, mix: str, files: list[Path], root: Path) -> Outcome:
    task = str(config_of(files[0])["task"])
    setup = Setup(data=evaluation(root, task, mix), model=MODEL, device="cpu")
    auditor = Auditor(setup)
    control = parse_controls([str(files[1])]) if case.control else None
    try:
        report = auditor.report(files[0], diagnostics=EVERYTHING, control=control)
        asked = select("abcdg" if control else "abceg")
        unasked = auditor.report(files[0], diagnostics=asked, control=control)
    except AuditError as error:
        return Outcome(case.name, mix, f"error: {error}", f"error: {error}")
    measured = "".join(finding.key for finding in report.findings if finding.measured)
    fired = "".join(report.fired)
    text = str(report)
    return Outcome(
        case.name, mix, report.verdict, unasked.verdict, fired, measured, numbers(report), text
    )


def numbers(report: Report) -> dict[str, Any]:
    """What the thresholds are compared with, and what explains it."""
    norms = report.residual_norms
    growth = [after / before for before, after in pairwise(norms) if before and after is not None]
    return {
        "accuracy": report.headline_acc,
        "growth": max(growth, default=None),
        "gradient": next(reversed(report.bp_grad_norms), None),
        "per unit error": report.gradient_per_unit_error,
        "drift": report.cross_batch_stability,
        "invariance": report.sample_invariance,
        "margin": report.margin_pp,
        "control": report.frozen_baseline_acc,
        "utility": report.depth_utility_pp,
        "null": report.depth_null_pp,
        "interval": report.depth_interval_pp,
        "probes": report.probe_accuracies,
        "idle": [] if report.depth is None else report.depth.idle,
    }


@cache
def _code() -> str:
    """A digest of everything that an outcome depends on besides its networks."""
    package, here = Path(pytest_fadiag.__file__).parent, Path(__file__).parent
    parts = [
        path for folder in ("judge", "load", "measure") for path in (package / folder).rglob("*.py")
    ]
    parts += [package / name for name in ("auditor.py",)]
    parts += [here / name for name in ("auditing.py", "data.py", "networks.py")]
    return joined(file_digest(path) for path in sorted(parts))
