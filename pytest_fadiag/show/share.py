"""How far a method gets from its control towards backpropagation."""

from __future__ import annotations

from .audit import Audit
from .groups import MethodGroup, average, method_groups

REFERENCE = "bp"
"""The method whose accuracy is the one to reach."""
TITLE = "(method − control)/(BP − control)"
MEANS = (
    "means over seeds, with the method's own control: 1 is BP's accuracy, 0 the control's, below 0 is worse than the control; "
    "given where BP is in the audit, on the same test data, and better than the control"
)


def share_of_bp(audit: Audit, group: MethodGroup) -> float | None:
    """(method − control)/(BP − control), or nothing where that is not defined."""
    pairs = [
        (report.headline_acc, report.frozen_baseline_acc)
        for report in group.reports
        if report.headline_acc is not None and report.frozen_baseline_acc is not None
    ]
    reference = _bp(audit, group)
    if not pairs or reference is None:
        return None
    method, control = average([own for own, _ in pairs]), average([frozen for _, frozen in pairs])
    return (method - control) / (reference - control) if reference > control else None


def _bp(audit: Audit, group: MethodGroup) -> float | None:
    """The mean accuracy of BP on the same test data, as far as that is known; of checkpoints for checkpoints, if there are."""
    if group.method.lower() == REFERENCE:
        return None
    of_bp = [other for other in method_groups(audit) if other.method.lower() == REFERENCE and other.reports]
    for other in sorted(of_bp, key=lambda other: other.partial != group.partial):
        data = {report.environment.get("data_sha256") for report in (*group.reports, *other.reports)} - {None}
        accuracies = [report.headline_acc for report in other.reports if report.headline_acc is not None]
        if accuracies and len(data) <= 1:
            return average(accuracies)
    return None
