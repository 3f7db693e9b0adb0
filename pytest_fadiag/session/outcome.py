"""What a test of the audit raises, how its failure reads, and what its report carries to the summary."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from ..judge.diagnostics import Finding, Status
from ..judge.errors import AuditError, AuditFailure
from ..judge.plain import to_plain
from ..judge.report import DiagnosticReport
from ..judge.thresholds import DiagnosticThresholds
from ..show.printable import one_line, printable
from ..show.status import in_words
from .auditor import AUDITOR
from .collection import KEY, TARGET
from .handle import CheckpointUnderTest
from .settings import marked
from .summary import MARGIN, ROW
from .targets import Target

REPORT: pytest.StashKey[DiagnosticReport] = pytest.StashKey()
PROBLEM: pytest.StashKey[BaseException] = pytest.StashKey()
"""What kept the control of a test's checkpoint from being used."""
FINDING: pytest.StashKey[Finding] = pytest.StashKey()


@dataclass(frozen=True)
class DiagnosticUnderTest:
    """What the fixture ``fa_diagnostic`` gives: one finding, and the report that it belongs to."""

    report: DiagnosticReport
    finding: Finding

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.finding, name)

    def check(self) -> None:
        """Raise an ``AssertionError`` whose text is the report if the diagnostic fired; skip if it was not measured."""
        __tracebackhide__ = True
        finding, recorded = self.finding, self.report.expected
        if finding.status is Status.NOT_MEASURED and not self.expected_to_fire:
            advice = "; supply one with --fa-frozen=ACCURACY, METHOD=ACCURACY or a control checkpoint"
            pytest.skip(f"{finding.headline}{advice if self.report.frozen_baseline_acc is None and finding.key == 'd' else ''}")
        if finding.status is Status.NOT_MEASURED or (finding.fired and recorded is not None and not self.expected_to_fire):
            raise changed(self.report, finding, "fire" if self.expected_to_fire else "pass")
        if finding.fired:
            raise AuditFailure(str(self.report), finding.headline)

    @property
    def expected_to_fire(self) -> bool:
        """Whether somebody recorded that this diagnostic fires."""
        return self.finding.key in (self.report.expected or "")


def changed(report: DiagnosticReport, finding: Finding, before: str) -> AuditFailure:
    """The failure of a verdict that is not the recorded one: the report, and from what to what it changed."""
    change = f"changed from {before} to {finding.status.value}: {finding.headline}"
    advice = "renew the record of --fa-expect (--fa-update-expect), or expect= of the marker, if that is right"
    return AuditFailure(f"{report}\nCHANGED: {finding.name} {change}\n  {advice}", change)


class ReportText:
    """A failure's text as pytest prints it: the report alone, what fired in red."""

    def __init__(self, text: str, headline: str, nodeid: str, *, brief: bool = False) -> None:
        self.text, self.brief = printable(text), brief
        self.reprcrash = _Headline(one_line(headline), nodeid)

    def __str__(self) -> str:
        return self.text

    def toterminal(self, writer: Any) -> None:
        """Write the text line by line; a FLAG keeps its colour until the next line that is not indented below it."""
        flagged = False
        for line in () if self.brief else self.text.splitlines():
            indent = len(line) - len(line.lstrip())
            begins = line.lstrip().startswith(("FLAG:", "CHANGED:", "VERDICT: needs"))
            flagged = begins or (flagged and indent > 5)
            writer.line(line, red=flagged, bold=line.startswith(("FA diagnostic", "VERDICT")))


@dataclass(frozen=True)
class _Headline:
    """The part of a failure that pytest shows in one line, and with --tb=line instead of the text."""

    message: str
    nodeid: str

    def __str__(self) -> str:
        return f"{self.nodeid}: {self.message}"


def report_for(
    request: pytest.FixtureRequest, handle: CheckpointUnderTest, thresholds: DiagnosticThresholds
) -> DiagnosticReport:
    """The report of a checkpoint, with what is expected of it."""
    auditor = request.config.stash[AUDITOR]
    request.node.stash.setdefault(TARGET, handle.target)
    if not isinstance(thresholds, DiagnosticThresholds):
        raise AuditError(f"the fixture fa_thresholds gave {type(thresholds).__name__}; expected DiagnosticThresholds(…)")
    report, problem = auditor.report(request, handle, thresholds, marked(request.node).get("expect"))
    if problem is not None:
        if "fa_diagnostic" not in request.fixturenames:
            raise problem  # a report that silently lacks its margin would pass
        request.node.stash[PROBLEM] = problem
    request.node.stash[REPORT] = report
    return report


def diagnostic_for(request: pytest.FixtureRequest, report: DiagnosticReport) -> DiagnosticUnderTest:
    """One diagnostic of a report; if it is expected to fire, its test becomes a strict xfail."""
    key = getattr(request, "param", None) or request.node.stash[KEY]
    finding = report.finding(key)
    item = request.node
    item.stash[FINDING] = finding
    item.user_properties += [(f"fa_{name}", value) for name, value in _properties(report, finding).items() if value is not None]
    problem = item.stash.get(PROBLEM, None)
    if problem is not None and finding.key == "d":
        raise problem
    _check_recorded(item, finding)
    under_test = DiagnosticUnderTest(report, finding)
    if under_test.expected_to_fire and finding.status is not Status.NOT_MEASURED:
        item.add_marker(
            pytest.mark.xfail(strict=True, raises=AuditFailure, reason=f"expected to fire: {finding.headline}"), append=False
        )
    return under_test


def _check_recorded(item: pytest.Item, finding: Finding) -> None:
    """A diagnostic that the recorded run could not judge is not judged by merging it."""
    target = item.stash.get(TARGET, None)
    if isinstance(target, Target) and target.kind == "recorded":
        row = item.config.stash[AUDITOR].merged.rows[target.path]
        if row.outcomes.get(finding.key) in ("error", "not run"):
            raise AuditError(f"{finding.name} was not judged in the recorded audit: {row.reason or in_words(row.status)}")


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
    judged, finding = item.stash.get(REPORT, None), item.stash.get(FINDING, None)
    failure = _failure(call, report, judged, finding)
    if failure is not None:
        text, headline = failure
        headline = headline.replace(f"{item.config.rootpath}{os.sep}", "")  # pytest cuts the line where the terminal ends
        brief = item.config.getoption("tbstyle", "auto") == "line"
        report.longrepr = ReportText(text, headline, item.nodeid, brief=brief)  # type: ignore[assignment]
    target = item.stash.get(TARGET, None)
    if target is None and report.skipped and "fa_report" in getattr(item, "fixturenames", ()):
        target = _parameter(item, "fa_checkpoint")  # skipped before its fixtures ran
    if not isinstance(target, Target) or (report.passed and report.when != "call"):
        return
    if report.skipped and isinstance(report.longrepr, tuple):  # pytest would name the line of this plugin that skips
        report.longrepr = (target.id, None, report.longrepr[2])  # type: ignore[assignment]
    setattr(report, ROW, _row(item, target, report, judged, finding))


def annotate_seeds(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Give the report of a margin over seeds its text and its row."""
    from .seedtests import GROUP, margin_row

    group = item.stash.get(GROUP, None)
    if group is None:
        return
    failure = _failure(call, report, None, None)
    if failure is not None:
        text, headline = failure
        headline = headline.replace(f"{item.config.rootpath}{os.sep}", "")
        brief = item.config.getoption("tbstyle", "auto") == "line"
        report.longrepr = ReportText(text, headline, item.nodeid, brief=brief)  # type: ignore[assignment]
    if report.skipped and isinstance(report.longrepr, tuple):
        report.longrepr = (group.name, None, report.longrepr[2])  # type: ignore[assignment]
    row = margin_row(item, report)
    if row is not None:
        setattr(report, MARGIN, row)


def _failure(
    call: pytest.CallInfo[None], report: pytest.TestReport, judged: DiagnosticReport | None, finding: Finding | None
) -> tuple[str, str] | None:
    """The text and the headline of a failure that is the audit's own; another one keeps pytest's traceback."""
    error = call.excinfo.value if call.excinfo is not None else None
    if not report.failed:
        return None
    if isinstance(error, AuditFailure):
        return str(error), error.headline
    if isinstance(error, AuditError):
        return str(error), str(error).partition("\n")[0]
    if error is None and judged is not None and finding is not None and finding.key in (judged.expected or ""):
        # A strict xfail that passed: pytest's own text is «[XPASS(strict)]» and the reason.
        failure = changed(judged, finding, "fire")
        return str(failure), failure.headline
    return None


def _parameter(item: pytest.Item, name: str) -> Any:
    """The parameter of a written test for a fixture, known also where the fixture never ran."""
    return getattr(getattr(item, "callspec", None), "params", {}).get(name)


def _row(
    item: pytest.Item,
    target: Target,
    report: pytest.TestReport,
    judged: DiagnosticReport | None,
    finding: Finding | None,
) -> dict[str, Any]:
    key = item.stash.get(KEY, None) or (finding.key if finding else _parameter(item, "fa_diagnostic"))
    outcome = report.outcome if report.when == "call" or report.outcome != "failed" else "error"
    if hasattr(report, "wasxfail"):
        outcome = "xfailed"  # type: ignore[assignment]
    failed = outcome in ("failed", "error")
    return {
        "checkpoint": target.id,
        "path": target.path,
        "diagnostic": key,
        "outcome": outcome,
        "reason": getattr(getattr(report.longrepr, "reprcrash", None), "message", "") if failed else "",
        "report": None if judged is None else judged.to_dict(),
        "expected": None if judged is None else judged.expected,
    }


def revive(report: pytest.TestReport, row: Mapping[str, Any], *, brief: bool) -> None:
    """Give a report that came from a worker as plain text its colours and its one-line summary back."""
    if isinstance(report.longrepr, str) and row["reason"]:
        report.longrepr = ReportText(report.longrepr, row["reason"], report.nodeid, brief=brief)  # type: ignore[assignment]
