"""The audit as one JSON document, and back.

``python -m pytest_fadiag.show.json`` prints the schema.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from .. import __version__
from ..files import read_json
from ..judge.errors import AuditError
from ..judge.records import plain
from .audit import Audit, Outcome, Row
from .words import words

FORMAT = "pytest-fadiag audit"
VERSION = 1
JUDGED = {Outcome.PASSED, Outcome.FAILED, Outcome.XFAILED}


def document(audit: Audit) -> dict[str, Any]:
    """The structs as plain JSON values; what follows from a row is added, and not read back."""
    head = {"format": FORMAT, "version": VERSION, "pytest_fadiag": __version__}
    margins = [{**plain(row), "verdict": row.verdict} for row in audit.margins]
    return {**head, **plain(audit), "rows": [*map(_row, audit.rows)], "margins": margins}


def json_text(audit: Audit) -> str:
    """The document as a file holds it."""
    return json.dumps(document(audit), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def read_audit(path: str | Path) -> Audit:
    """The audit that ``--fa-report=json`` wrote, or of a certificate's folder, judged again.

    >>> read_audit("certificate").rows[0].report.verdict  # doctest: +SKIP
    'needs walk-back: residual stream exploded'
    """
    file = Path(path)
    if file.is_dir():
        file = file / "audit.json"
    values = read_json(file)
    try:
        return audit_of(values)
    except AuditError as error:
        raise AuditError(f"{file}: {error}") from None


def audit_of(values: Any) -> Audit:
    """The audit that :func:`document` wrote."""
    head = {"format": FORMAT, "version": VERSION}
    if not isinstance(values, dict) or not head.items() <= values.items():
        raise AuditError(f"not an audit; expected what --fa-report=json writes, version {VERSION}")
    try:
        audit = msgspec.convert(values, Audit, strict=False)
    except msgspec.ValidationError as error:
        raise AuditError(f"not a valid audit: {error}") from None
    for row in audit.rows:
        name = f"not a valid audit: {row.checkpoint!r:.200}"
        if row.report is None and not JUDGED.isdisjoint(row.outcomes.values()):
            raise AuditError(f"{name} was judged, but has no report")
        try:
            _row(row)
        except Exception as error:  # numbers that contradict each other fail in many ways
            raise AuditError(f"{name}: {type(error).__name__}: {error}") from error
    return audit


def _row(row: Row) -> dict[str, Any]:
    verdict = row.conclusion
    values = plain(row) | {
        "status": words(row),
        "verdict": None if verdict.word is None else verdict.word.value,
        "next": verdict.next,
        "fired": plain(verdict.fired),
    }
    if row.report is not None:
        values["report"] = row.report.to_dict()
    return dict(values)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(msgspec.json.schema(Audit), indent=1, ensure_ascii=False) + "\n")
