"""The reports of the page: plots, control, environment and the full text of each row, folded away until asked for."""

from __future__ import annotations

from collections.abc import Sequence

from ...judge.diagnostics import DIAGNOSTICS
from ...judge.report import DiagnosticReport
from ...judge.trajectory import Trajectory
from ...judge.wording import as_log, count, fraction, listed
from ..audit import AuditRow
from ..changes import moves
from ..status import Outcome, in_a_sentence
from .markup import Markup, block, element
from .plots import plots


def reports(rows: Sequence[AuditRow]) -> Markup:
    """All of them, in the order of the table."""
    return element("div", *(details(row, f"report-{number}") for number, row in enumerate(rows)), id="reports")


def details(row: AuditRow, ident: str) -> Markup:
    """One report; a row that has none says why."""
    standing = row.status.standing
    seed = "" if row.seed is None else f", seed {row.seed}"
    summary = element(
        "summary",
        element("span", standing.symbol, class_=f"symbol {standing.word}", aria_hidden="true"),
        element("span", element("b", row.method + seed), as_log("", row.partial), class_="who"),
        element("span", in_a_sentence(row.status), class_="what"),
    )
    body = [_facts(row)]
    if row.report is not None:
        body = [plots(row.report, ident), _facts(row), element("pre", block(str(row.report)), tabindex=0)]
    return element("details", summary, element("div", *body, class_="report"), id=ident)


def _facts(row: AuditRow) -> Markup:
    facts: list[tuple[str, str]] = [("log" if row.partial else "checkpoint", row.checkpoint)]
    if row.reason:
        facts.append(("reason", row.reason))
    without_answer = (Outcome.ERROR, Outcome.NOT_RUN, Outcome.SKIPPED)
    odd = [f"({key}) {outcome.value}" for key, outcome in row.outcomes.items() if outcome in without_answer]
    if odd:
        facts.append(("outcomes", ", ".join(odd)))
    if row.expected is not None:
        facts.append(("expected to fire", " ".join(row.expected) or "nothing"))
    if row.report is not None:
        facts += _report_facts(row.report)
    changed = [
        f"{title} {move.was} → {move.became}" + ("" if str(move).startswith(("was", "new")) else f" ({move})")
        for title, move in moves(row).items()
    ]
    if changed:
        facts.append(("since recorded", ", ".join(changed)))
    return element("dl", *(element("div", element("dt", name), element("dd", said)) for name, said in facts))


def _report_facts(report: DiagnosticReport) -> list[tuple[str, str]]:
    facts = [("control", _control(report))]
    if report.trajectory is not None and report.trajectory.epochs:
        facts.append(("first fired", _first_fired(report, report.trajectory)))
    if report.environment:
        facts.append(("environment", " · ".join(f"{key} {value}" for key, value in report.environment.items())))
    return facts


def _first_fired(report: DiagnosticReport, course: Trajectory) -> str:
    """What fired when, and of which diagnostics the epochs tell nothing: that these never fired nobody knows."""
    first = course.line(report.fired).removeprefix("first fired: ")
    first = first or ", ".join(f"({key}) epoch {epoch}" for key, epoch in course.first_fired.items())
    said = [first or f"nothing in {count(len(course.epochs), 'logged epoch')}"] if first or course.known else []
    unknown = [f"({d.key})" for d in DIAGNOSTICS if d.key not in course.known and d.key not in report.fired]
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
