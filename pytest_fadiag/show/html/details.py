"""The facts of each report on the page: file, reason, expectation, control, environment, what changed."""

from __future__ import annotations

from ...judge.keys import labelled
from ...judge.reference import reference_line
from ...judge.report import DiagnosticReport
from ...judge.trajectory import Trajectory
from ...judge.wording import count, fraction, listed
from ..audit import AuditRow
from ..changes import moves
from ..status import Outcome
from ..training import common


def facts(row: AuditRow) -> list[tuple[str, str]]:
    """What is known of a row beside its numbers: a name and what it says; a row without a report says why."""
    said = [("log" if row.partial else "checkpoint", row.checkpoint)]
    if row.reason:
        said.append(("reason", row.reason))
    without_answer = (Outcome.ERROR, Outcome.NOT_RUN, Outcome.SKIPPED)
    odd = [f"{labelled(key)} {outcome.value}" for key, outcome in row.outcomes.items() if outcome in without_answer]
    if odd:
        said.append(("outcomes", ", ".join(odd)))
    if row.expected is not None:
        said.append(("expected to fire", " ".join(row.expected) or "nothing"))
    if row.report is not None and row.report.stream is not None:
        said.append(("stream", str(row.report.stream)))
    if row.report is not None and row.report.inputs is not None:
        said.append(("inputs", str(row.report.inputs)))
    if row.report is not None and row.report.config:
        said.append(("trained with", "; ".join(common([row.report]).values())))
    if row.report is not None:
        said += [("reference", line)] if (line := reference_line(row.report)) else []
        said.append(("control", _control(row.report)))
        if row.report.trajectory is not None and row.report.trajectory.epochs:
            said.append(("first fired", _first_fired(row.report, row.report.trajectory)))
        if row.report.environment:
            said.append(("environment", " · ".join(f"{key} {value}" for key, value in row.report.environment.items())))
    changed = [
        f"{title} {move.was} → {move.became}" + ("" if str(move).startswith(("was", "new")) else f" ({move})")
        for title, move in moves(row).items()
    ]
    if changed:
        said.append(("since recorded", ", ".join(changed)))
    return said


def _first_fired(report: DiagnosticReport, course: Trajectory) -> str:
    """What fired when, and of which diagnostics the epochs tell nothing: that these never fired nobody knows."""
    first = course.line(report.fired).removeprefix("first fired: ")
    first = first or ", ".join(f"{labelled(key)} epoch {epoch}" for key, epoch in course.first_fired.items())
    said = [first or f"nothing in {count(len(course.epochs), 'logged epoch')}"] if first or course.known else []
    unknown = [labelled(f.key) for f in report.findings if f.key not in course.known and f.key not in report.fired]
    return "; ".join([*said, f"{listed(unknown)} not logged by epoch"] if unknown else said)


def _control(report: DiagnosticReport) -> str:
    if report.frozen_baseline_acc is None:
        return "none supplied"
    shown = fraction(report.frozen_baseline_acc)
    if report.control is None:
        return shown
    images = report.control.accuracy.images
    over = f" over {count(images, 'image')}" if images else ""
    return f"{shown}{over}, {report.control.kind}: {report.control.describe(report.method_name, report.seed)}"
