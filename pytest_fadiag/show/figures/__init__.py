"""An audit as figures for a paper, PNG and PDF; matplotlib is imported only when one is drawn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..audit import Audit
from ..groups import seed_groups

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["NAMES", "draw", "draw_all", "figures", "missing"]

NAMES = ("audit", "credit", "depth", "rescue", "timeline")
"""The figures there are; one that needs several pages goes on as audit-2, audit-3."""


def with_norms(audit: Audit) -> Audit:
    """The audit without rows that were not asked for the norms over the layers, which every panel row begins with."""
    rows = [row for row in audit.rows if row.report is None or (row.report.residual_norms and row.report.bp_grad_norms)]
    return replace(audit, rows=rows)


def missing(audit: Audit) -> dict[str, str]:
    """The figures that this audit has no data for, each with the reason in words."""
    reasons = {}
    if not any(row.report for row in audit.rows):
        reasons["audit"] = "nothing was measured"
    elif not any(group.reports for group in seed_groups(with_norms(audit))):
        reasons["audit"] = "no report has the norms of states and gradients; ask for (a) and (b) too"
    asked = {key for key in "ef" for row in audit.rows if row.report is not None and row.report.asks_for(key)}
    if "f" in asked and not _with_credit(audit):
        reasons["credit"] = "of no network the credit was measured; give it by --fa-credit=package.module:function"
    if "e" in asked and not any(row.report is not None and row.report.probe_accuracies for row in audit.rows):
        reasons["depth"] = "of no network probes were read; its report says why"
    trajectories = sum(row.report is not None and row.report.trajectory is not None for row in audit.rows)
    logs = "give training logs with several epochs, such as those of pytest_fadiag.Recorder, by --fa-log"
    if not trajectories:
        reasons["rescue"] = reasons["timeline"] = f"no report has numbers by epoch; {logs}"
    elif trajectories == 1:
        reasons["rescue"] = f"it compares two or more runs over their epochs, and one has them; {logs}"
    return reasons


def _with_credit(audit: Audit) -> bool:
    reports = [row.report for row in audit.rows if row.report is not None]
    return any(report.credit is not None and not report.credit.problem for report in reports)


def figures(audit: Audit) -> dict[str, Figure]:
    """Every figure that the audit has data for, by name; what :func:`missing` names is not among them."""
    from .credit import credit_pages
    from .depth import audit_pages
    from .probes import probe_pages
    from .rescue import rescue_pages
    from .style import house_style
    from .timeline import timeline_pages

    makers = {
        "audit": lambda audit: audit_pages(with_norms(audit)),
        "credit": credit_pages,  # no page where nobody asked for it, which is no lack; so with the probes
        "depth": probe_pages,
        "rescue": rescue_pages,
        "timeline": timeline_pages,
    }
    absent = missing(audit)
    drawn: dict[str, Figure] = {}
    with house_style():
        for name in NAMES:
            pages = [] if name in absent else makers[name](audit)
            drawn |= {name if number == 1 else f"{name}-{number}": page for number, page in enumerate(pages, 1)}
    return drawn


def draw(audit: Audit, folder: Path) -> list[Path]:
    """Write every figure as PNG and PDF into a folder, each file whole or not at all, and say which files those are."""
    from .files import write_figures

    return write_figures(figures(audit), folder)


def draw_all(audit: Audit, folder: Path) -> list[str]:
    """Draw the figures; what there are no numbers for is said, and so is what an earlier run left in the folder."""
    drawn = set(draw(audit, folder))
    notes = [f"FA audit: no figure «{name}»: {reason}" for name, reason in missing(audit).items()]
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():  # where nothing was drawn no folder was made
        if path.suffix in (".png", ".pdf") and path.stem.partition("-")[0] in NAMES and path not in drawn:
            notes.append(f"FA audit: {path} is of an earlier run, and not of this one")
    return notes
