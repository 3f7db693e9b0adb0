"""The text of a report: what a failing test shows, and what ``print(report)`` writes."""

from __future__ import annotations

from collections.abc import Iterator

from .diagnostics import Diagnostic, available
from .diagnostics.base import Report
from .words import WIDTH, fold, one_line, printable

UNPROVEN = (
    "as given, not proven; e and the secants of every state fit. States taken one layer off and "
    "the sign of credit cannot be checked"
)
"""What a report says about the reference of a trace."""


def report_text(report: Report, width: int = WIDTH) -> str:
    """The whole report, wrapped at a width."""
    verdict = one_line(f"{report.title}: {report.headline}")
    if report.published:
        verdict += f" [{report.published}]"
    lines = [
        verdict,
        *fold("  next: ", filter(None, [one_line(report.next)]), width),
        *fold("  ", report.notes.splitlines(), width),
        *fold("  note: ", report.remarks, width),
        *fold("  ", _what_was_measured(report), width),
        *fold("  first failed: ", _first_fired(report), width),
    ]
    for diagnostic in available():
        if diagnostic.name in report.diagnostics or diagnostic.is_shown(report):
            lines.append(diagnostic_text(report, diagnostic, width))
    return printable("\n".join(lines))


def diagnostic_text(report: Report, diagnostic: Diagnostic, width: int = WIDTH) -> str:
    """The text of one diagnostic alone: outcome, numbers, what it means where it fails."""
    finding = report.finding(diagnostic.key)
    is_asked = finding.name in report.diagnostics
    outcome = finding.outcome if is_asked else "shown, not judged"
    lines = [f"{diagnostic.label}: {one_line(outcome)}"]
    if finding.error:
        lines += fold("    ", [finding.error], width)
    else:
        if is_asked and not finding.fired:
            lines += fold("    ", [finding.headline], width)
        lines += fold("    ", diagnostic.table(report), width)
        lines += fold("    ", diagnostic.lines(report), width)
    if finding.fired:  # one line, however long: grep shows number, threshold and meaning
        lines.append(f"    fails: {one_line(f'{finding.headline}. {finding.explanation}')}")
    return printable("\n".join(lines))


def _what_was_measured(report: Report) -> Iterator[str]:
    """Stream, inputs, loss and reference, as far as they are known."""
    if report.trace:
        yield "stream: as given"
    elif report.stream_problem:
        yield f"stream: refused: {report.stream_problem}"
    elif report.stream:
        yield f"stream: {report.stream}"
    if report.inputs:
        yield f"inputs: {report.inputs}"
    is_classes = report.task == "classes"
    if not is_classes or report.loss_assumed or report.reference or report.trace:
        assumed = " (assumed)" if report.loss_assumed else ""
        task = "" if is_classes else f", task: {report.task}"
        yield f"loss: {report.loss}{assumed}{task}"
    if report.trace:
        yield f"reference: {UNPROVEN}"
    elif report.reference:
        yield f"reference: {report.reference}"


def _first_fired(report: Report) -> Iterator[str]:
    """When each diagnostic first failed, of a log with several epochs."""
    epochs = report.log.epochs if report.log else ()
    if len(epochs) < 2:
        return
    first = [f"({key}) epoch {epoch}" for key, epoch in report.first_fired.items()]
    yield f"{', '.join(first) or 'nothing'}; log ends at epoch {epochs[-1].epoch}"
