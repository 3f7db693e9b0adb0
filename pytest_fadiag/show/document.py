"""The audit as one JSON document, from which every other file is made, and back."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import __version__
from ..judge.codec import parse_json, read, to_plain
from ..judge.diagnostics import DIAGNOSTICS, Diagnostics
from ..judge.errors import AuditError
from ..judge.keys import Keys, labelled
from ..judge.limits import LARGEST_JSON, read_bytes
from ..judge.names import LONGEST_NAME, as_name, as_text, one_line
from ..judge.report import DiagnosticReport
from ..judge.wire import SeedMarginValues, fields_of
from .audit import Audit, AuditRow, Checklist, Division, MarginRow, Origin
from .changes import moves
from .groups import method_groups
from .status import Outcome, in_a_sentence, in_words
from .upgrade import FORMAT, FORMAT_VERSION, upgraded
from .wire import AuditValues, MarginRowValues, RowValues

JUDGED = (Outcome.PASSED, Outcome.FAILED, Outcome.XFAILED)
"""What becomes of a test only where there was a report to judge."""


def document(audit: Audit, version: str) -> dict[str, Any]:
    """``reports`` by checkpoint id, ``summary`` a row each, ``means`` and ``seed_margins`` a method each; plain JSON values."""
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "pytest_fadiag": version,
        "shard": None if audit.shard is None else list(audit.shard),
        "division": to_plain(audit.division),
        "origin": to_plain(audit.origin),
        "interrupted": audit.interrupted,
        "reports": {row.checkpoint: row.report.to_dict() for row in audit.rows if row.report is not None},
        "summary": [_summary(row) for row in audit.rows],
        "means": [
            {
                "method": group.method,
                "partial": group.partial,
                "seeds": group.mean.seeds,
                "mean": _by_column(audit, group.mean.values),
                "sd": _by_column(audit, group.mean.deviations),
            }
            for group in method_groups(audit)
            if group.mean is not None
        ],
        "seed_margins": [margin_values(row) for row in audit.margins],
        "checklist": to_plain(audit.checklist),
    }


def json_text(audit: Audit) -> str:
    """The JSON document of an audit as a file holds it."""
    return json.dumps(document(audit, __version__), indent=1, allow_nan=False) + "\n"


def read_audit(path: Path, available: Diagnostics = DIAGNOSTICS) -> Audit:
    """The audit behind a file, judged anew; what is no audit of a known version is an error that says so."""
    values = read_json(path)
    try:
        return audit_of(values, available)
    except AuditError as error:
        raise AuditError(f"{error}\n  {path}") from None


def read_json(path: Path) -> Any:
    """What a JSON file holds."""
    try:
        content = read_bytes(path, LARGEST_JSON)
    except OSError as error:
        raise AuditError(f"cannot be read: {error.strerror or error}\n  {path}") from None
    try:
        return parse_json(content)
    except AuditError as error:
        raise AuditError(f"{error}\n  {path}") from None
    except (ValueError, RecursionError) as error:
        raise AuditError(f"not JSON: {error}\n  {path}") from None


def audit_of(values: Any, available: Diagnostics = DIAGNOSTICS) -> Audit:
    """The audit that :func:`document` wrote, in this version or an earlier one."""
    if not isinstance(values, dict) or "reports" not in values or "summary" not in values:
        raise AuditError("not an audit: expected the JSON object that --fa-report=json writes, with reports and summary")
    plain = upgraded(values)
    reports = reports_of(plain, available)
    audit = read(AuditValues, {**plain, "reports": {}}, "audit")
    _check_rows(audit.summary, reports, available)
    rows = []
    for index, row in enumerate(audit.summary):
        place = f"audit.summary[{index}].recorded"
        recorded = None if row.recorded is None else DiagnosticReport.of(row.recorded, place, available)
        group = None if "group" not in values["summary"][index] else row.group or ""  # version 1 does not know of groups
        report, expected = reports.get(row.checkpoint), None if row.expected is None else Keys.parse(row.expected)
        rows.append(AuditRow(row.checkpoint, row.method, row.seed, report, row.outcomes, row.reason, expected, recorded, group))
    code = audit.checklist
    checklist = None if code is None else Checklist(code.files, [_shown(finding) for finding in code.findings], code.notebooks)
    shard = None if audit.shard is None else (audit.shard[0], audit.shard[1])
    division = None if audit.division is None else Division(**fields_of(audit.division))
    origin = None if audit.origin is None else Origin(**fields_of(audit.origin))
    return Audit(rows, [_margin_row(row) for row in audit.seed_margins], checklist, shard, division, origin, audit.interrupted)


def _shown(finding: Mapping[str, Any]) -> dict[str, Any]:
    """A finding in evaluation code with its texts as they may be shown anywhere."""
    return {key: as_text(value, f"{key} of a pitfall") if isinstance(value, str) else value for key, value in finding.items()}


def _check_rows(rows: Sequence[RowValues], reports: Mapping[str, DiagnosticReport], available: Diagnostics) -> None:
    """Rows, reports and outcomes belong together: a file that was cut or edited would lose a network in silence."""
    names = [as_name(row.checkpoint, "the id of a checkpoint", LONGEST_NAME) for row in rows]  # as they are told apart later
    twice = next((name for name, times in Counter(names).items() if times > 1), None)
    if twice is not None:
        raise AuditError(f"audit.summary: two rows of {twice!r:.200}")
    there = {row.checkpoint for row in rows}
    alone = next((name for name in reports if name not in there), None)
    if alone is not None:
        raise AuditError(f"audit.reports: a report of {alone!r:.200}, of which audit.summary has no row")
    known = Keys.of(diagnostic.key for diagnostic in available)
    for index, row in enumerate(rows):
        place, report = f"audit.summary[{index}] ({row.checkpoint!r:.200})", reports.get(row.checkpoint)
        unknown = sorted(set(row.outcomes) - set(known))
        if unknown:
            raise AuditError(f"{place}: an outcome of the diagnostic {unknown[0]!r}, and there are {', '.join(known)}")
        judged = [key for key, outcome in row.outcomes.items() if outcome in JUDGED]
        if report is None and judged:
            raise AuditError(f"{place}: {labelled(judged[0])} was judged, but audit.reports has no report of it")
        if report is not None and (one_line(row.method), row.seed) != (report.method_name, report.seed):
            raise AuditError(f"{place}: its method and seed are not those of its report")
        unasked = [key for key in judged if report is not None and not report.asks_for(key)]
        if unasked:
            raise AuditError(f"{place}: {labelled(unasked[0])} was judged, but its report was not asked for it")


def reports_of(values: Mapping[str, Any], available: Diagnostics) -> dict[str, DiagnosticReport]:
    """The reports of a document, by the ids of their checkpoints."""
    reports = read(dict[str, Any], values["reports"], "audit.reports")
    return {name: DiagnosticReport.from_dict(report, f"audit.reports[{name!r}]", available) for name, report in reports.items()}


def _summary(row: AuditRow) -> dict[str, Any]:
    return {
        "checkpoint": row.checkpoint,
        "method": row.method,
        "seed": row.seed,
        "group": row.group or None,
        "partial": row.partial,
        "standing": row.status.standing.word,
        "status": in_words(row.status),
        "verdict": in_a_sentence(row.status),
        "published": row.status.published,
        "fired": str(row.fired),
        "expected": to_plain(row.expected),
        "outcomes": to_plain(row.outcomes),
        "reason": row.reason,
        "headline_acc": None if row.report is None else row.report.headline_acc,
        "frozen_baseline_acc": None if row.report is None else row.report.frozen_baseline_acc,
        "recorded": None if row.recorded is None else row.recorded.to_dict(),
        "moved": to_plain({column: {"from": move.before, "to": move.now} for column, move in moves(row).items()}),
    }


def margin_values(row: MarginRow) -> dict[str, Any]:
    """The row of a margin over seeds, and what follows from the margin, as plain JSON values."""
    margin = None if row.margin is None else SeedMarginValues.of(row.margin)
    plain: dict[str, Any] = to_plain(MarginRowValues(**{**fields_of(row), "margin": margin}))
    return plain


def margin_row(values: Mapping[str, Any]) -> MarginRow:
    """The row of a margin over seeds that :func:`margin_values` wrote."""
    return _margin_row(read(MarginRowValues, values, "margin over seeds"))


def _margin_row(values: MarginRowValues) -> MarginRow:
    margin = None if values.margin is None else values.margin.margin_over_seeds()
    return MarginRow(**{**fields_of(values), "margin": margin})


def _by_column(audit: Audit, values: Sequence[float | None]) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain({column.title: value for column, value in zip(audit.columns, values, strict=True)})
    return plain
