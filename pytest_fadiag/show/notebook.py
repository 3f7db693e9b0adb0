"""A report in a notebook: as the output of a cell, and as a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..judge.errors import AuditError
from ..judge.report import DiagnosticReport
from .audit import Audit, AuditRow
from .figures import figures, missing
from .html import cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def report_html(report: DiagnosticReport) -> str:
    """The report with its plots, as the page shows it."""
    return cell(_audit(report))


def report_figure(report: DiagnosticReport) -> Figure:
    """The figure of an audit of this network alone."""
    audit = _audit(report)
    if "audit" in missing(audit):
        raise AuditError(f"there is nothing to plot: {missing(audit)['audit']}")
    return figures(audit)["audit"]


def _audit(report: DiagnosticReport) -> Audit:
    return Audit([AuditRow(report.checkpoint or report.method_name, report.method_name, report.seed, report)], [])
