"""What becomes of a test of the audit, how its failure reads, and the row that its report carries
to the summary.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from _pytest._code.code import ReprExceptionInfo, ReprFileLocation, ReprTracebackNative
from msgspec.structs import replace

from ..judge.diagnostics import get
from ..judge.errors import AuditError, AuditFailure
from ..judge.report import Report
from ..judge.words import one_line, printable
from ..show.audit import Keys, Margin, Outcome, Row
from .plan import Job

SENT_ROW, SENT_MARGIN = "fa_row", "fa_margin"
"""The attributes of a test report that carry what it found as plain values, also from xdist's
workers.
"""
ADVICE = "update the record (--fa-update-expect) or the marker's expect= if that is right"


@dataclass
class Case:
    """What is known so far about one test; when the test is over, its row is made from it."""

    job: Job | None = None
    keys: Keys = ()
    """The diagnostics that the test is about; none where it is about the whole report."""
    report: Report | None = None
    expected: Keys | None = None
    cached: bool = False
    margin: Margin | None = None

    def row(self, outcome: Outcome, reason: str) -> Row | None:
        """The row of the test; ``None`` before a checkpoint is known."""
        if self.job is None:
            return None
        row = row_of(self.job, self.keys, outcome, reason)
        if self.report is None:
            return row
        return replace(
            row,
            method=self.report.method_name,
            seed=self.report.seed,
            report=self.report,
            expected=self.expected,
            cached=self.cached,
        )


_CASE: pytest.StashKey[Case] = pytest.StashKey()


def case_of(item: pytest.Item) -> Case:
    """The case of a test, begun when it is first asked for."""
    return item.stash.setdefault(_CASE, Case())


def row_of(job: Job, keys: Collection[str], outcome: Outcome, reason: str = "") -> Row:
    """The row of a test without a report."""
    outcomes = dict.fromkeys(keys, outcome)
    return Row(job.id, job.method, job.seed, outcomes=outcomes, reason=reason, group=job.group)


def settle(node: pytest.Item, outcome: Outcome, text: str, headline: str, recorded: str) -> None:
    """Skip, raise or return as an outcome says; what is expected to fire is a strict xfail.

    ``recorded`` is what a record says: a difference from it fails by itself, whatever --runxfail
    does.
    """
    __tracebackhide__ = True
    if outcome is Outcome.SKIPPED:
        pytest.skip(one_line(headline))
    if outcome is Outcome.PASSED:
        return
    if outcome is Outcome.XFAILED:
        reason = f"expected: {one_line(headline)}"
        node.add_marker(pytest.mark.xfail(strict=True, raises=AuditFailure, reason=reason))
    elif recorded:
        text += f"\nrecorded as {recorded}; {ADVICE}"
        headline = f"{headline} (recorded as {recorded})"
    raise AuditFailure(text, headline)


def text_of(report: Report, keys: Collection[str], *, is_repeat: bool = False) -> str:
    """What a failing test shows: its own diagnostic, with what to write in the paper.

    The first test of a network adds the numbers by state and how the others came out.
    """
    lines: list[str] = []
    sentences: list[str] = []
    keys_by_status: dict[str, list[str]] = {}
    for finding in sorted(report.findings, key=lambda finding: not finding.fired):
        sentence = one_line(f"({finding.key}) {finding.outcome}: {finding.headline}")
        if finding.key in keys:
            lines.append(f"{sentence}. {finding.explanation}".strip())
            diagnostic = get(finding.key)
            if diagnostic is not None and not is_repeat and not finding.error:
                lines += [f"    {line}" for line in diagnostic.table(report)]
        elif finding.exact and (finding.fired or not finding.causes):
            keys_by_status.setdefault(finding.status.value, []).append(f"({finding.key})")
        else:
            sentences.append(sentence)
    if is_repeat:
        return "\n".join(lines)
    summary = "; ".join(f"{', '.join(same)}: {status}" for status, same in keys_by_status.items())
    if summary:
        sentences.append(summary)
    return "\n".join([*lines, *sentences])


def annotate(
    item: pytest.Item,
    call: pytest.CallInfo[None],
    report: pytest.TestReport,
    first_errors: dict[str, str],
) -> None:
    """Give the report of a test its text and its row."""
    case = case_of(item)
    name = item.nodeid if case.job is None else case.job.id
    error = call.excinfo.value if call.excinfo else None
    if report.failed and isinstance(error, (AuditError, AuditFailure)):
        report.longrepr = _longrepr(item, error, name, first_errors)
    if report.skipped and isinstance(report.longrepr, tuple):
        report.longrepr = (name, None, report.longrepr[2])  # type: ignore[assignment]
    if report.passed and report.when != "call":
        return
    outcome = _outcome(report)
    reason = ""
    if report.failed:
        reason = str(getattr(getattr(report.longrepr, "reprcrash", None), "message", ""))
    if case.margin is not None:
        margin = replace(case.margin, outcome=outcome, reason=reason)
        setattr(report, SENT_MARGIN, msgspec.to_builtins(margin))
        return
    row = case.row(outcome, reason)
    if row is not None:
        setattr(report, SENT_ROW, msgspec.to_builtins(row))


def _outcome(report: pytest.TestReport) -> Outcome:
    """What became of a test: one that failed outside of its call is an error."""
    if report.failed and report.when != "call":
        return Outcome.ERROR
    return Outcome.XFAILED if hasattr(report, "wasxfail") else Outcome(report.outcome)


def _longrepr(
    item: pytest.Item, error: AuditError | AuditFailure, name: str, first_errors: dict[str, str]
) -> Any:
    """The text of an audit's failure in the place of a traceback.

    An error that an earlier test showed points to that test.
    """
    text = printable(str(error))
    headline, _, _ = text.partition("\n")
    if isinstance(error, AuditFailure):
        headline = error.headline
    else:
        first_test = first_errors.setdefault(text, item.nodeid)
        if first_test != item.nodeid:
            text = f"same error as {first_test}"
    crash = ReprFileLocation(name, 0, one_line(headline.replace(f"{item.config.rootpath}/", "")))
    return ReprExceptionInfo(reprtraceback=ReprTracebackNative([f"{text}\n"]), reprcrash=crash)
