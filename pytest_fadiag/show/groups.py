"""The rows of an audit by method, as figures and the reporting form show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..judge.report import DiagnosticReport
from .audit import Audit, AuditRow, MarginRow


@dataclass(frozen=True)
class MethodGroup:
    """The seeds of one method, from checkpoints or from logs, and what was said of them together."""

    label: str
    """The method, behind its folder where two folders hold the same seeds, and marked where it comes from logs."""
    method: str
    partial: bool
    rows: tuple[AuditRow, ...]
    margin: MarginRow | None = None

    @property
    def reports(self) -> list[DiagnosticReport]:
        """What was measured; a checkpoint with an error has none."""
        return [row.report for row in self.rows if row.report is not None]


def method_groups(audit: Audit) -> list[MethodGroup]:
    """The methods in the order of the rows; logs are apart, and so are folders that hold the same seeds."""
    by_method: dict[tuple[str, bool], list[AuditRow]] = {}
    for row in audit.rows:
        by_method.setdefault((row.method, row.partial), []).append(row)
    groups = []
    for (method, partial), rows in by_method.items():
        suffix = " (log)" if partial else ""
        if len({row.seed for row in rows}) == len(rows):
            groups.append(_group(f"{method}{suffix}", method, partial, rows, audit.margins))
            continue
        by_folder: dict[str, list[AuditRow]] = {}
        for row in rows:
            by_folder.setdefault(row.checkpoint.rpartition("/")[0], []).append(row)
        for folder, there in by_folder.items():
            prefix = f"{folder}/" if len(by_folder) > 1 and folder else ""
            groups.append(_group(f"{prefix}{method}{suffix}", method, partial, there, audit.margins))
    return groups


def _group(label: str, method: str, partial: bool, rows: Sequence[AuditRow], margins: Sequence[MarginRow]) -> MethodGroup:
    """A group with its margin: the one under its own name, else the only one of the method."""
    same = [row for row in margins if (row.method, row.partial) == (method, partial)]
    named = [row for row in same if row.name == label] or (same if len(same) == 1 else [])
    return MethodGroup(label, method, partial, tuple(rows), named[0] if named else None)
