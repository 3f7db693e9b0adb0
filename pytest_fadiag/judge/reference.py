"""The reference in words: how the BP gradient of a report was proven to be the derivative of what the network computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .wording import count, figure

if TYPE_CHECKING:
    from .report import DiagnosticReport

UNPROVEN = "the reference is not proven"


def reference_line(report: DiagnosticReport) -> str:
    """«BP gradient, agrees with finite differences to 2e-08», or why it is not proven; nothing where nobody looked."""
    reference, error = report.reference, report.reference_error
    if reference is None:
        return ""
    if reference.problem:
        return f"not proven: {reference.problem}"
    shown = "" if error is None else f", agrees with finite differences to {figure(error)}"
    parts = [f"BP gradient{shown}"]
    if reference.remark:
        parts.append(reference.remark if error is None else f"in {reference.dtype}, since {reference.remark}")
    if reference.redrawn:
        parts.append("with weights drawn anew, since at the network's own nothing is resolved")
    if reference.own_backward:
        parts.append(f"the own backward of {_modules(reference.modules)} is not used")
    return "; ".join(parts)


def _modules(names: tuple[str, ...], most: int = 3) -> str:
    shown = ", ".join(names[:most])
    return f"{count(len(names), 'module')}: {shown}{' …' if len(names) > most else ''}"
