"""What becomes of one file: judged, refused with an error that names it, or one of the things that must not happen."""

from __future__ import annotations

import resource
import time
import traceback
import warnings
from functools import cache
from pathlib import Path

from fuzz import corpus

from pytest_fadiag.bench import Bench
from pytest_fadiag.judge.diagnostics import DIAGNOSTICS
from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.judge.report import DiagnosticReport
from pytest_fadiag.judge.verdict import TRUSTWORTHY
from pytest_fadiag.load.controls import parse_controls
from pytest_fadiag.load.logs import read_logs
from pytest_fadiag.load.setup import Setup
from pytest_fadiag.session.expect import Expectations
from pytest_fadiag.show.audit import Audit, AuditRow
from pytest_fadiag.show.document import document, read_audit
from pytest_fadiag.show.form import form
from pytest_fadiag.show.html import html
from pytest_fadiag.show.markdown import markdown
from pytest_fadiag.show.table import render
from pytest_fadiag.workshop import load_data

SLOW = 30.0
"""Seconds of a processor after which a file of a few kilobytes is too slow; one that waits forever is told by the clock."""
LARGE = 1 << 30
"""Bytes of memory that a file of a few kilobytes must not take."""
BAD = ("code run", "hollow judged trustworthy", "traceback", "slow", "above 1 GB")


def attempt(kind: str, number: int, folder: Path) -> tuple[str, str]:
    """The outcome of one mutant and, where it is bad, what happened."""
    canary = folder / "canary"
    canary.unlink(missing_ok=True)
    before = _peak()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = (
            corpus.checkpoint(kind, number, folder, canary)
            if kind in corpus.CHECKPOINTS
            else corpus.other(kind, number, folder)
        )
        made = time.process_time()
        try:
            outcome, detail = (_checkpoint if kind in corpus.CHECKPOINTS else _other)(kind, path)
        except AuditError as error:
            outcome, detail = "refused", ""
            if str(path) not in str(error) and path.name not in str(error):
                outcome, detail = "refused", f"names no file: {error}"[:200]
        except Exception:
            outcome, detail = "traceback", traceback.format_exc()[-1500:]
    path.unlink(missing_ok=True)
    if canary.exists():
        return "code run", str(path)
    if (took := time.process_time() - made) > SLOW:
        return "slow", f"{took:.0f} s"
    if _peak() > max(before, LARGE):
        return "above 1 GB", f"{_peak() >> 20} MB"
    return outcome, detail


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@cache
def _bench(folder: Path) -> Bench:
    data = folder / "data.npz"
    if not data.exists():
        corpus.write_data(folder)
    return Bench(Setup(str(data), batches=2, device="cpu"))


def _checkpoint(kind: str, path: Path) -> tuple[str, str]:
    record = _bench(path.parent).record(path)
    report = record.judge(None, None)
    _show(Audit([_row(report, path.name)]))
    return ("hollow judged trustworthy" if report.verdict.startswith(TRUSTWORTHY) else "judged"), report.verdict[:80]


def _row(report: DiagnosticReport, name: str) -> AuditRow:
    outcomes = {finding.key: "failed" if finding.fired else "passed" for finding in report.findings}
    return AuditRow(name, report.method_name, report.seed, report, outcomes)


def _show(audit: Audit) -> None:
    render(audit, 80)
    markdown(audit)
    html(audit, "0")
    form(audit, "0")
    document(audit, "0")


def _other(kind: str, path: Path) -> tuple[str, str]:
    if kind == "audit":
        _show(read_audit(path))
    elif kind == "expect":
        Expectations.read(path, DIAGNOSTICS)
    elif kind == "control":
        parse_controls([str(path)]).choose("dfa", 1)
    elif kind in ("log", "lines", "table"):
        for log in read_logs(path):
            _show(Audit([_row(log.report(0.2), path.name)]))
    elif kind == "idx":
        load_data(f"fashion-mnist:{path.parent}")
    else:
        load_data(str(path))
    return "judged", ""
