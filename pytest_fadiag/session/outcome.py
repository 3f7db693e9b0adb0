"""What a test of the audit raises, how its failure reads, and what its report carries to the summary."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from ..protocol.diagnostics import Finding, Status
from ..protocol.errors import AuditError, AuditFailure
from ..protocol.plain import to_plain
from ..protocol.report import DiagnosticReport
from ..protocol.thresholds import DiagnosticThresholds
from .auditor import AUDITOR
from .collection import KEY, TARGET
from .expect import spelled
from .handle import CheckpointUnderTest
from .settings import marked

REPORT: pytest.StashKey[DiagnosticReport] = pytest.StashKey()
FINDING: pytest.StashKey[Finding] = pytest.StashKey()
ROW = "fa_row"
"""The attribute of a test report that carries its row; plain values, so that it crosses from xdist's workers."""


@dataclass(frozen=True)
class DiagnosticUnderTest:
    """What the fixture ``fa_diagnostic`` gives: one finding, and the report that it belongs to."""

    report: DiagnosticReport
    finding: Finding
    problem: str | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.finding, name)

    def check(self) -> None:
        """Raise an ``AssertionError`` whose text is the report if the diagnostic fired; skip if it was not measured."""
        __tracebackhide__ = True
        if self.problem is not None:
            raise AuditError(self.problem)
        if self.finding.status is Status.NOT_MEASURED:
            pytest.skip(
                f"{self.finding.headline}; supply one with --fa-frozen=ACCURACY, METHOD=ACCURACY or a control checkpoint"
            )
        if self.finding.fired:
            text = str(self.report)
            expected = self.report.expected
            if expected is not None and self.finding.key not in expected:
                text += f"\nCHANGED: expected to fire: {spelled(expected)}; now also {self.finding.name}"
            raise AuditFailure(text, self.finding.headline)


class ReportText:
    """A failure's text as pytest prints it: the report alone, what fired in red."""

    def __init__(self, text: str, headline: str) -> None:
        self.text = text
        self.reprcrash = _Headline(headline)

    def __str__(self) -> str:
        return self.text

    def toterminal(self, writer: Any) -> None:
        """Write the text line by line; a FLAG keeps its colour until the next line that is not indented below it."""
        flagged = False
        for line in self.text.splitlines():
            indent = len(line) - len(line.lstrip())
            begins = line.lstrip().startswith(("FLAG:", "CHANGED:", "VERDICT: needs"))
            flagged = begins or (flagged and indent > 5)
            writer.line(line, red=flagged, bold=line.startswith(("FA diagnostic", "VERDICT")))


@dataclass(frozen=True)
class _Headline:
    message: str


def report_for(
    request: pytest.FixtureRequest, handle: CheckpointUnderTest, thresholds: DiagnosticThresholds
) -> DiagnosticReport:
    """The report of a checkpoint, with what is expected of it."""
    auditor = request.config.stash[AUDITOR]
    request.node.stash.setdefault(TARGET, handle.target)
    report = auditor.report(request, handle, thresholds)
    expected = marked(request.node).get("expect")
    if expected is None and auditor.expectations is not None:
        expected = auditor.expectations.of(handle.id, report.method_name, report.seed)
    report = replace(report, expected=expected)
    request.node.stash[REPORT] = report
    return report


def diagnostic_for(request: pytest.FixtureRequest, report: DiagnosticReport) -> DiagnosticUnderTest:
    """One diagnostic of a report; if it is expected to fire, its test becomes a strict xfail."""
    key = getattr(request, "param", None) or request.node.stash[KEY]
    finding = report.finding(key)
    item = request.node
    item.stash[FINDING] = finding
    item.user_properties += [(f"fa_{name}", value) for name, value in _properties(report, finding).items() if value is not None]
    if report.expected and key in report.expected:
        item.add_marker(
            pytest.mark.xfail(strict=True, raises=AuditFailure, reason=f"expected to fire: {finding.headline}"), append=False
        )
    problem = request.config.stash[AUDITOR].control_problems.get(item.stash[TARGET].id) if key == "d" else None
    return DiagnosticUnderTest(report, finding, problem)


def _properties(report: DiagnosticReport, finding: Finding) -> dict[str, Any]:
    values = {
        "method": report.method_name,
        "seed": report.seed,
        "status": finding.outcome,
        "value": finding.value,
        "threshold": finding.threshold,
    }
    plain: dict[str, Any] = to_plain(values)
    return plain


def annotate(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Give a test's report its text and its row."""
    target = item.stash.get(TARGET, None)
    if target is None:
        return
    error = call.excinfo.value if call.excinfo is not None else None
    judged, finding = item.stash.get(REPORT, None), item.stash.get(FINDING, None)
    if isinstance(error, (AuditFailure, AuditError)) and report.failed:
        headline = error.headline if isinstance(error, AuditFailure) else str(error).splitlines()[0]
        report.longrepr = ReportText(str(error), headline)  # type: ignore[assignment]
    elif report.failed and judged is not None and finding is not None and isinstance(report.longrepr, str):
        # A strict xfail that passed: pytest's own text is «[XPASS(strict)]» and the reason.
        change = f"{finding.name} was recorded to fire and now passes: {finding.headline}"
        report.longrepr = ReportText(f"{judged}\nCHANGED: {change}; renew the record if that is right", change)  # type: ignore[assignment]
    if report.when == "teardown" and not report.failed:
        return
    setattr(report, ROW, _row(item, report, judged, finding))


def _row(
    item: pytest.Item, report: pytest.TestReport, judged: DiagnosticReport | None, finding: Finding | None
) -> dict[str, Any]:
    target = item.stash[TARGET]
    key = item.stash.get(KEY, None) or (finding.key if finding else None)
    outcome = report.outcome if report.when == "call" or report.outcome != "failed" else "error"
    if hasattr(report, "wasxfail"):
        outcome = "xfailed"  # type: ignore[assignment]
    failed = outcome in ("failed", "error")
    return {
        "checkpoint": target.id,
        "path": target.path,
        "diagnostic": key,
        "when": report.when,
        "outcome": outcome,
        "reason": getattr(getattr(report.longrepr, "reprcrash", None), "message", "") if failed else "",
        "report": None if judged is None else judged.to_dict(),
        "expected": None if judged is None else judged.expected,
    }


def revive(report: pytest.TestReport) -> None:
    """Give a report that came from a worker as plain text its colours and its one-line summary back."""
    row = getattr(report, ROW, None)
    if row is not None and isinstance(report.longrepr, str) and row["reason"]:
        report.longrepr = ReportText(report.longrepr, row["reason"])  # type: ignore[assignment]
