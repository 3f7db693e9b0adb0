"""What becomes of a test of the audit, how its failure reads, and the row that its report carries
to the summary.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import msgspec
import pytest
from _pytest._code.code import ReprExceptionInfo, ReprFileLocation, ReprTracebackNative

from ..judge.diagnostics import select
from ..judge.errors import AuditError, AuditFailure
from ..judge.report import Report
from ..judge.words import one_line, printable
from ..show.audit import Margin, Outcome, Row
from .plan import Job

JOB: pytest.StashKey[Job] = pytest.StashKey()
ROW: pytest.StashKey[Row] = pytest.StashKey()
"""What is known so far; its outcomes name what the test is about, none for the whole report."""
MARGIN: pytest.StashKey[Margin] = pytest.StashKey()
TOLD: pytest.StashKey[dict[str, str]] = pytest.StashKey()
"""By the text of an error, or the id of a network that failed, the test that told it first."""
SENT_ROW, SENT_MARGIN = "fa_row", "fa_margin"
"""The attributes of a test report that carry what it found as plain values, also from xdist's
workers.
"""
ADVICE = "update the record (--fa-update-expect) or the marker's expect= if that is right"


def row_of(
    job: Job, keys: Iterable[str] = (), outcome: Outcome = Outcome.NOT_RUN, reason: str = ""
) -> Row:
    """The row of a test that has no report yet."""
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
    if outcome is Outcome.XFAILED:
        node.add_marker(
            pytest.mark.xfail(
                strict=True, raises=AuditFailure, reason=f"expected: {one_line(headline)}"
            )
        )
    elif recorded:
        text += f"\nCHANGED: recorded as {recorded}; {ADVICE}"
        headline = f"{headline} (recorded as {recorded})"
    if outcome is not Outcome.PASSED:
        raise AuditFailure(text, headline)


def text_of(report: Report, keys: Collection[str], *, again: bool = False) -> str:
    """What a failing test shows: its own diagnostic, with what to write in the paper.

    Unless ``again``, the numbers by state and how the others came out are added.
    """
    lines: list[str] = []
    others: list[str] = []
    plain: dict[str, list[str]] = {}
    for f in sorted(report.findings, key=lambda own: not own.fired):  # what failed comes first
        said = one_line(f"({f.key}) {f.outcome}: {f.headline}")
        if f.key in keys:
            numbers = [] if again or f.error else select([f.key])[0].table(report)
            lines += [f"{said}. {f.explanation}".strip(), *(f"    {line}" for line in numbers)]
        elif f.exact and (f.fired or not f.causes):
            plain.setdefault(f.status.value, []).append(f"({f.key})")
        else:
            others.append(said)
    others += ["; ".join(f"{', '.join(same)}: {status}" for status, same in plain.items())]
    return "\n".join(lines if again else [*lines, *filter(None, others)])


def annotate(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Give the report of a test its text and its row."""
    error, row = call.excinfo.value if call.excinfo else None, item.stash.get(ROW, None)
    name = item.nodeid if row is None else row.checkpoint
    if report.failed and isinstance(error, (AuditError, AuditFailure)):
        report.longrepr = _longrepr(item, error, name)
    if report.skipped and isinstance(report.longrepr, tuple):
        report.longrepr = (name, None, report.longrepr[2])  # type: ignore[assignment]
    if report.passed and report.when != "call":
        return
    outcome = Outcome.XFAILED if hasattr(report, "wasxfail") else Outcome(report.outcome)
    if report.failed and report.when != "call":
        outcome = Outcome.ERROR
    reason = (
        str(getattr(getattr(report.longrepr, "reprcrash", None), "message", ""))
        if report.failed
        else ""
    )
    if MARGIN in item.stash:
        margin = msgspec.structs.replace(item.stash[MARGIN], outcome=outcome, reason=reason)
        setattr(report, SENT_MARGIN, msgspec.to_builtins(margin))
    elif row is not None:
        outcomes = dict.fromkeys(row.outcomes, outcome)
        row = msgspec.structs.replace(row, outcomes=outcomes, reason=reason)
        setattr(report, SENT_ROW, msgspec.to_builtins(row))


def _longrepr(item: pytest.Item, error: AuditError | AuditFailure, name: str) -> Any:
    """The text of an audit's failure in the place of a traceback.

    An error that was told before points to that test.
    """
    text = printable(str(error))
    if isinstance(error, AuditError):
        first = item.config.stash.setdefault(TOLD, {}).setdefault(text, item.nodeid)
        text = text if first == item.nodeid else f"same error as {first}"
    headline = error.headline if isinstance(error, AuditFailure) else text.partition("\n")[0]
    crash = ReprFileLocation(name, 0, one_line(headline.replace(f"{item.config.rootpath}/", "")))
    return ReprExceptionInfo(reprtraceback=ReprTracebackNative([f"{text}\n"]), reprcrash=crash)
