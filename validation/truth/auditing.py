"""What the audit says about a case, with its numbers; its numbers are kept until the network or the code changes."""

from __future__ import annotations

from collections.abc import Sequence
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
from pytest_fadiag.judge.diagnostics import select
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
    """What was said of one case on one class mix."""

    case: str
    mix: str
    verdict: str
    """With every diagnostic asked for."""
    unasked: str
    """By the rule for what was not asked for: (d) where there is a control, else (e)."""
    twinned: str
    """With every diagnostic, and a BP network of the same shapes and task to compare with."""
    fired: str = ""
    measured: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)
    text: str = ""


def said(verdict: str) -> str:
    """A verdict in one word."""
    return verdict.partition(":")[0].removeprefix("needs ")


def audited(case: Case, mix: str, folder: Path, root: Path) -> Outcome:
    """The outcome of a case; a network is measured once for each class mix and state of the code."""
    paths = [
        path_of(folder, name) if name else None for name in (case.network, case.control, case.twin)
    ]
    network, control, twin = paths
    assert network is not None
    task = str(config_of(network)["task"])
    auditor = Kept(Setup(data=evaluation(root, task, mix), model=MODEL, device="cpu"), mix)
    controls = None if control is None else parse_controls([str(control)])
    try:
        report, unasked, twinned = (
            auditor.report(network, diagnostics=select(keys), control=controls, twins=twins)
            for keys, twins in (
                ("abcdeg", None),
                ("abcdg" if controls else "abceg", None),
                ("abcdeg", None if twin is None else [twin]),
            )
        )
    except AuditError as error:
        return Outcome(case.name, mix, *(f"error: {error}",) * 3)
    measured = "".join(finding.key for finding in report.findings if finding.measured)
    fired = "".join(report.fired)
    verdicts = (report.verdict, unasked.verdict, twinned.verdict)
    return Outcome(case.name, mix, *verdicts, fired, measured, numbers(report), str(report))


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
    """A digest of the code that measures."""
    package, here = Path(pytest_fadiag.__file__).parent, Path(__file__).parent
    parts = [path for folder in ("load", "measure") for path in (package / folder).rglob("*.py")]
    parts += [here / name for name in ("data.py", "networks.py")]
    return digest_of_lines(file_digest(path) for path in sorted(parts))
