"""The checklist of pitfalls as the reporting form gives it: ticked, crossed, or left to the author."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..judge.pitfalls import PITFALLS, ChecklistItem
from ..judge.report import DiagnosticReport
from ..judge.wording import listed
from .audit import Checklist
from .markdown import escaped
from .printable import one_line


def checklist_lines(reports: Sequence[DiagnosticReport], checklist: Checklist | None) -> list[str]:
    """The checklist of all that was measured and of the evaluation code, as Markdown task lists."""
    unread = checklist is None or not checklist.files
    lines = (
        ["- [ ] the evaluation code: left to the author; it was not read (`--fa-checklist=PATH` reads it)"] if unread else []
    )
    for number, item in PITFALLS.items():
        lines.append(f"- **{number}. {escaped(item.title)}**")
        own = _feedback(reports) if number == 4 else _own(reports, item)
        lines += [f"  - {line}" for line in own]
        lines += [f"  - {line}" for line in _code(number, checklist)]
    return lines


def _own(reports: Sequence[DiagnosticReport], item: ChecklistItem) -> Iterable[str]:
    """What holds for the numbers of this form."""
    logs = sum(report.partial for report in reports)
    if logs < len(reports):
        yield f"[x] in this form's numbers{' of checkpoints' if logs else ''}: {item.avoided}"
    if logs:
        yield (
            f"[ ] in this form's numbers{' of logs' if logs < len(reports) else ''}: left to the author, for they come from a "
            "training log, written by other code (of a log by `pytest_fadiag.Recorder` it holds)"
        )


def _feedback(reports: Sequence[DiagnosticReport]) -> Iterable[str]:
    """Whether the matrices were saved, where the audit noted that; a network trained without any has none to save."""
    if not reports:
        return
    lacking = dict.fromkeys(report.method_name for report in reports if report.environment.get("feedback_saved") is not True)
    if len(lacking) < len({report.method_name for report in reports}):
        but = f" but those of {_names(lacking)}" if lacking else ""
        yield f"[x] in the checkpoints: each{but} holds its feedback matrices (`Bs`); whether these were used, it cannot show"
    if lacking:
        known = all(report.environment.get("feedback_saved") is False for report in reports if report.method_name in lacking)
        lacks = (
            f"no feedback matrices (`Bs`) are in those of {_names(lacking)}"
            if known
            else f"of {_names(lacking)} the audit does not know"
        )
        yield f"[ ] in the checkpoints: left to the author: {lacks}"


def _names(methods: Iterable[str]) -> str:
    return listed(escaped(one_line(method)) for method in methods)


def _code(number: int, checklist: Checklist | None) -> Iterable[str]:
    """What the reading of the evaluation code says of one pitfall."""
    where = "in the evaluation code"
    if checklist is None or not checklist.files:
        return
    here = [finding for finding in checklist.findings if finding.get("number") == number]
    for finding in here:
        if not finding.get("silenced"):
            fix = f"; fix: {_said(finding, 'fix')}" if finding.get("fix") else ""
            yield f"[ ] ✗ violated {where}: {_place(finding)}: {_said(finding, 'message')}{fix}"
    for finding in here:
        if finding.get("silenced"):
            yield f"[ ] {where}: left to the author, who let it stand: {_place(finding)}: «{_said(finding, 'silenced')}»"
    if not here:
        read = "file that was read" if checklist.files == 1 else f"{checklist.files:,} files that were read"
        yield f"[x] {where}: no sign of it in the syntax of the {read}"


def _place(finding: Mapping[str, Any]) -> str:
    code = f" ({_said(finding, 'code')})" if finding.get("code") else ""
    return f"{_said(finding, 'file')}:{_said(finding, 'line')}{code}"


def _said(finding: Mapping[str, Any], name: str) -> str:
    return escaped(one_line(str(finding.get(name, ""))))
