"""What becomes of a test of the audit, how its failure reads, and what its report carries to the summary."""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass
from typing import Any

import pytest

from ..judge.codec import to_plain
from ..judge.diagnostics import Finding
from ..judge.errors import AuditChange, AuditError, AuditFailure
from ..judge.keys import Keys
from ..judge.report import DiagnosticReport
from ..judge.verdict import INCOMPLETE, TRUSTWORTHY
from ..show.printable import one_line, printable
from .settings import marked
from .targets import Target

TARGET: pytest.StashKey[Target] = pytest.StashKey()
KEY: pytest.StashKey[str] = pytest.StashKey()
REPORT: pytest.StashKey[DiagnosticReport] = pytest.StashKey()
FINDING: pytest.StashKey[Finding] = pytest.StashKey()
CHANGE: pytest.StashKey[AuditChange] = pytest.StashKey()
"""In what a finding is unlike its record beyond what fires, such as a number that is not measured any more."""
TOLD: pytest.StashKey[dict[tuple[str, str], str]] = pytest.StashKey()
"""Which test told an error of a checkpoint in full."""
ROW = "fa_row"
"""The attribute of a test report that carries its row; plain values, so that it crosses from xdist's workers."""
MARGIN = "fa_margin"
"""The same of a margin over seeds."""
HEADLINE = "fa_headline"
"""The same of the one line of another failure of the audit."""


class Decision(enum.Enum):
    """What becomes of a test: pass and skip speak for themselves, expected is an xfail, changed is not what was recorded."""

    PASS = "pass"
    FAIL = "fail"
    SKIP = "skip"
    EXPECTED = "expected"
    CHANGED = "changed"


def decide(finding: Finding, expected: Keys | None) -> Decision:
    """What becomes of the test of a finding; ``expected`` are the keys recorded to fire, ``None`` where nothing is recorded."""
    expected_to_fire = finding.key in (expected or Keys())
    if not finding.measured:
        return Decision.CHANGED if expected_to_fire else Decision.SKIP
    if finding.fired == expected_to_fire:
        return Decision.EXPECTED if finding.fired else Decision.PASS
    return Decision.FAIL if expected is None else Decision.CHANGED


def changed(report: DiagnosticReport, finding: Finding) -> AuditChange:
    """The failure of a verdict that is not the recorded one: the report, and from what to what it changed."""
    before = "fire" if finding.key in (report.expected or Keys()) else "pass"
    change = f"changed from {before} to {finding.status.value}: {finding.headline}"
    advice = "renew the record of --fa-expect (--fa-update-expect), or expect= of the marker, if that is right"
    return AuditChange(f"{report}\nCHANGED: {finding.name} {change}\n  {advice}", change)


def unrecorded_fire(report: DiagnosticReport, finding: Finding, file: str) -> AuditChange:
    """The failure of a diagnostic that fires and of which a record says nothing: that it is unknown there excuses nothing."""
    change = f"fired, and is not in the record {file}: {finding.headline}"
    return AuditChange(
        f"{report}\nCHANGED: {finding.name} {change}\n  record it there (--fa-update-expect) if that is right", change
    )


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
            stands, is_open = line == f"VERDICT: {TRUSTWORTHY}", line.startswith(f"VERDICT: {INCOMPLETE}")
            bold = line.startswith(("FA diagnostic", "VERDICT"))
            writer.line(line, red=flagged, green=stands, yellow=is_open, bold=bold)


@dataclass(frozen=True)
class _Headline:
    """The part of a failure that pytest shows in one line, and with --tb=line instead of the text."""

    message: str
    nodeid: str

    def __str__(self) -> str:
        return f"{self.nodeid}: {self.message}"


def failure_text(item: pytest.Item, error: BaseException | None) -> ReportText | None:
    """The text of a failure that is the audit's own; another one keeps pytest's traceback."""
    if isinstance(error, (AuditFailure, AuditChange)):
        headline = error.headline
    elif isinstance(error, AuditError):
        headline = str(error).partition("\n")[0]
    else:
        return None
    headline = headline.replace(f"{item.config.rootpath}{os.sep}", "")  # pytest cuts the line where the terminal ends
    return ReportText(str(error), headline, item.nodeid, brief=_brief(item.config))


def annotate(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Give the report of a checkpoint's test its text and its row."""
    judged, finding = item.stash.get(REPORT, None), item.stash.get(FINDING, None)
    error = call.excinfo.value if call.excinfo is not None else None
    if report.when == "call" and error is None and judged is not None and finding is not None:
        # A strict xfail that passed without check(): pytest's own text is «[XPASS(strict)]» and the reason, and with
        # --runxfail it is a pass to pytest.
        awaited = finding.key in (judged.expected or "") and finding.measured
        change = item.stash.get(CHANGE, None)
        if change is None and awaited and decide(finding, judged.expected) is Decision.CHANGED:
            change = changed(judged, finding)
        if change is not None:
            error, report.outcome = change, "failed"
    if report.when == "call" and report.passed and judged is not None and finding is None and "expect" in marked(item):
        try:
            judged.check()  # what a marker expects of a report is compared also where the test does not
        except (AuditFailure, AuditError) as unlike:
            error, report.outcome = unlike, "failed"
    _put_text(item, report, _pointing(item, error))
    target = item.stash.get(TARGET, None)
    if target is None and report.skipped and "fa_report" in getattr(item, "fixturenames", ()):
        target = _parameter(item, "fa_checkpoint")  # skipped before its fixtures ran
    if not isinstance(target, Target) or (report.passed and report.when != "call"):
        return
    name_skip(report, target.id)
    if report.passed and judged is not None and set("PA") & set(item.config.getoption("reportchars", "")):
        report.sections.append(("FA report", str(judged)))  # which -rP shows
    setattr(report, ROW, _row(item, target, report, judged, finding))


def _pointing(item: pytest.Item, error: BaseException | None) -> BaseException | None:
    """An error that another test of the checkpoint has told already as a pointer to that test; any other as it is."""
    target = item.stash.get(TARGET, None)
    if target is None or not isinstance(error, AuditError):
        return error
    first = item.config.stash.setdefault(TOLD, {}).setdefault((target.path, str(error)), item.nodeid)
    return error if first == item.nodeid else AuditError(f"the same error as that of {first}")


def annotate_error(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Give the report of a test that is no checkpoint's the text of an audit's error."""
    _put_text(item, report, call.excinfo.value if call.excinfo is not None else None)


def _put_text(item: pytest.Item, report: pytest.TestReport, error: BaseException | None) -> None:
    text = failure_text(item, error) if report.failed else None
    if text is not None:
        report.longrepr = text  # type: ignore[assignment]
        setattr(report, HEADLINE, text.reprcrash.message)


def name_skip(report: pytest.TestReport, name: str) -> None:
    """Let a skip be the test's: pytest would name the line of this plugin that skips."""
    if report.skipped and isinstance(report.longrepr, tuple):
        report.longrepr = (name, None, report.longrepr[2])  # type: ignore[assignment]


def outcome_of(report: pytest.TestReport, *, judged: bool) -> str:
    """What became of a test in one of its phases: a failure before anything was judged is an error."""
    if hasattr(report, "wasxfail"):
        return "xfailed"
    return "error" if report.failed and not judged else str(report.outcome)


def reason_of(report: pytest.TestReport, outcome: str) -> str:
    """The one line of a failure."""
    failed = outcome in ("failed", "error")
    return str(getattr(getattr(report.longrepr, "reprcrash", None), "message", "")) if failed else ""


def _parameter(item: pytest.Item, name: str) -> Any:
    """The parameter of a written test for a fixture, known also where the fixture never ran."""
    return getattr(getattr(item, "callspec", None), "params", {}).get(name)


def _row(
    item: pytest.Item, target: Target, report: pytest.TestReport, judged: DiagnosticReport | None, finding: Finding | None
) -> dict[str, Any]:
    outcome = outcome_of(report, judged=report.when == "call")
    instead = finding is not None and judged is not None and item.stash.get(KEY, finding.key) != finding.key
    return {
        "checkpoint": target.id,
        "path": target.path,
        "diagnostic": item.stash.get(KEY, None) or (finding.key if finding else _parameter(item, "fa_diagnostic")),
        "instead": finding.key if instead and finding and judged and not judged.lacks_usable_control else None,
        "outcome": outcome,
        "reason": reason_of(report, outcome),
        "report": None if judged is None else judged.plain,
        "expected": None if judged is None else to_plain(judged.expected),
    }


def revive(config: pytest.Config, report: pytest.TestReport, headline: str) -> None:
    """Give a report that came from a worker as plain text its colours and its one-line summary back."""
    if isinstance(report.longrepr, str) and headline:
        report.longrepr = ReportText(report.longrepr, headline, report.nodeid, brief=_brief(config))  # type: ignore[assignment]


def _brief(config: pytest.Config) -> bool:
    return bool(config.getoption("tbstyle", "auto") == "line")
