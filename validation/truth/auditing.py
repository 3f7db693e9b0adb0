"""What the audit says about a case, with its numbers; its numbers are kept until the network or the code changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

import pytest_fadiag
from examples.methods.files import replace as write
from pytest_fadiag import AuditError
from pytest_fadiag.auditor import Auditor, Overrides, Record
from pytest_fadiag.judge.diagnostics import Finding, default_diagnostics
from pytest_fadiag.judge.records import plain
from pytest_fadiag.judge.report import Report
from pytest_fadiag.load.controls import parse_controls
from pytest_fadiag.load.names import digest_of_lines, file_digest
from pytest_fadiag.load.setup import Setup

from .catalogue import Case
from .data import evaluation
from .files import config_of, path_of

MODEL = "validation.truth.networks:build"


@dataclass(frozen=True)
class Outcome:
    """What is concluded of one case on one set of images."""

    case: str
    mix: str
    verdict: str
    """Beside the control of the catalogue, or none where it has none."""
    verdict_alone: str = ""
    """Without any control."""
    verdict_by_number: str = ""
    """Beside the accuracy of the control in place of the control; empty where there is none."""
    verdict_with_twin: str = ""
    """Beside the control, and compared with a BP network of the same shapes and task."""
    fired: str = ""
    measured: str = ""
    passed: str = ""
    next: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)
    text: str = ""


def word(verdict: str) -> str:
    """A verdict in one word."""
    return verdict.partition(":")[0].removeprefix("needs ")


def audited(case: Case, mix: str, folder: Path, root: Path) -> Outcome:
    """The outcome of a case; a network is measured once for each mix and state of the code."""
    network = path_of(folder, case.network)
    control = path_of(folder, case.control) if case.control else None
    twins = [path_of(folder, case.twin)] if case.twin else None
    task = str(config_of(network).get("task", "ten"))
    data = evaluation(root, task, mix)
    auditor = Kept(Setup(data=data, model=MODEL, device="cpu"), mix)
    controls = None if control is None else parse_controls([str(control)])
    asked = default_diagnostics(credit=False)
    by_number = ""
    try:
        report = auditor.report(network, diagnostics=asked, control=controls, twins=None)
        twinned = auditor.report(network, diagnostics=asked, control=controls, twins=twins)
        alone = auditor.report(network, diagnostics=asked, control=None, twins=None)
        if report.frozen_baseline_acc is not None:
            accuracy = report.frozen_baseline_acc
            numbered = auditor.report(network, diagnostics=asked, control=accuracy, twins=None)
            by_number = numbered.verdict
    except AuditError as error:
        return Outcome(case.name, mix, f"error: {error}")
    return Outcome(
        case.name,
        mix,
        report.verdict,
        verdict_alone=alone.verdict,
        verdict_by_number=by_number,
        verdict_with_twin=twinned.verdict,
        fired=_keys(report, alone, lambda finding: finding.fired),
        measured=_keys(report, alone, lambda finding: finding.measured),
        passed=_keys(report, alone, lambda finding: finding.passed),
        next=getattr(report, "next", ""),
        numbers=numbers(alone) | numbers(report, of_control=True),
        text=str(report),
    )


def _keys(report: Report, alone: Report, holds: Callable[[Finding], bool]) -> str:
    """The diagnostics of which something holds; those that the control decides are not in both."""
    findings = [*report.findings, *alone.findings]
    return "".join(sorted({finding.key for finding in findings if holds(finding)}))


class Kept(Auditor):
    """Keeps the numbers of each network until its file or the code that measures changes."""

    def __init__(self, setup: Setup, mix: str) -> None:
        super().__init__(setup)
        self.mix = mix

    def record(
        self, path: Path, metrics: Sequence[str], overrides: Overrides | None = None
    ) -> Record:
        """The record of the file beside the networks, or a new one."""
        kept = path.parents[1] / "records" / f"{path.stem} {self.mix}.json"
        digest = file_digest(path)
        state = digest_of_lines([_code(), digest])
        if kept.exists() and (path, digest) not in self._records:
            before = msgspec.json.decode(kept.read_bytes())
            if before["state"] == state:
                self._records[path, digest] = msgspec.convert(
                    before["record"], Record, strict=False
                )
        before = self._records.get((path, digest))
        record = super().record(path, metrics, overrides)
        if record is not before:
            write(kept, msgspec.json.encode({"state": state, "record": plain(record)}))
        return record


def numbers(report: Report, *, of_control: bool = False) -> dict[str, Any]:
    """What the thresholds are compared with, and what explains it."""
    if of_control:
        bounds = report.margin_interval
        return {
            "margin": report.margin_pp,
            "control": report.frozen_baseline_acc,
            "margin interval": None if bounds is None else [bounds.low, bounds.high],
        }
    norms = report.residual_norms
    growth = [after / before for before, after in pairwise(norms) if before and after is not None]
    return {
        "accuracy": report.headline_acc,
        "growth": max(growth, default=None),
        "gradient": next(reversed(report.bp_grad_norms), None),
        "per unit error": report.gradient_per_unit_error,
        "drift": report.cross_batch_stability,
        "invariance": report.sample_invariance,
        "utility": report.depth_utility_pp,
        "null": report.depth_null_pp,
        "interval": report.depth_interval_pp,
        "probes": report.probe_accuracies,
        "idle": [] if report.depth is None else report.depth.idle,
    }


@cache
def _code() -> str:
    """A digest of the code that measures."""
    package, here = Path(pytest_fadiag.__file__).parent, Path(__file__).parent
    parts = [path for folder in ("load", "measure") for path in (package / folder).rglob("*.py")]
    parts += [here / name for name in ("data.py", "networks.py")]
    return digest_of_lines(file_digest(path) for path in sorted(parts))
