"""The checklist of pitfalls as the reporting form gives it: ticked, crossed, or left to the author."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..judge.report import DiagnosticReport
from .audit import Checklist
from .groups import MethodGroup
from .markdown import escaped
from .printable import one_line


class Item(NamedTuple):
    """One pitfall, and why the audit's own numbers do not commit it."""

    title: str
    avoided: str
    """Empty where this is nothing that the audit does."""


PITFALLS = {
    1: Item("norm(-1) is an order, not a dimension", "every norm is the L2 norm over a sample's features"),
    2: Item(
        "cosine_similarity clamps small gradients",
        "cosines are taken in float64 of vectors scaled by their largest entry, with no epsilon; of a zero vector: undefined",
    ),
    3: Item("gradient statistics in float16", "states and gradients were computed in float32 or wider"),
    4: Item("feedback matrices not saved, missing credit read as 1.0", ""),
    5: Item(
        "a cosine of concatenated layers",
        "norms are per sample, then the median; the drift is of batch-mean gradients at one layer and called so",
    ),
    6: Item("cosines averaged over layers", "every layer is given by itself, the embedding (layer 0) apart"),
}
"""The titles are those of the checks that read code; outputs know nothing of sources, so a test holds the two together."""


def checklist_lines(group: MethodGroup | None, checklist: Checklist | None) -> list[str]:
    """The checklist of one method, or of the evaluation code alone, as Markdown task lists."""
    lines = []
    for number, item in PITFALLS.items():
        lines.append(f"- **{number}. {escaped(item.title)}**")
        own = "" if group is None else _feedback(group.reports) if number == 4 else _own(group, item)
        lines += [f"  - {own}"] if own else []
        lines += [f"  - {line}" for line in _code(number, checklist)]
    return lines


def _own(group: MethodGroup, item: Item) -> str:
    """What holds for the numbers of this form."""
    if not group.reports:
        return ""
    if group.partial:
        return (
            "[ ] in this form's numbers: left to the author, for they come from a training log, written by other code "
            "(of a log by `pytest_fadiag.Recorder` it holds)"
        )
    return f"[x] in this form's numbers: {item.avoided}"


def _feedback(reports: Sequence[DiagnosticReport]) -> str:
    """Whether the matrices were saved, where the audit noted that; a network trained without any has none to save."""
    saved = {report.environment.get("feedback_saved") for report in reports}
    if saved == {True}:
        return (
            "[x] in the checkpoints: each holds its feedback matrices (`Bs`); whether these were the ones used, it cannot show"
        )
    lacks = "no feedback matrices (`Bs`) are in the checkpoints" if saved == {False} else "the audit does not know"
    return f"[ ] in the checkpoints: left to the author: {lacks}; this form compares no credit signal"


def _code(number: int, checklist: Checklist | None) -> Iterable[str]:
    """What the reading of the evaluation code says of one pitfall."""
    where = "in the evaluation code"
    if checklist is None or not checklist.files:
        yield f"[ ] {where}: left to the author; it was not read (`--fa-checklist=PATH` reads it)"
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
