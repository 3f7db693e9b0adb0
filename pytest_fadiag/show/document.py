"""The audit as one JSON document, from which every other file is made, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .. import __version__
from ..judge.errors import AuditError
from ..judge.margins import ASSUMED_IMAGES, Interval, SeedMargin, Variance
from ..judge.plain import known_fields, number, to_plain
from ..judge.report import DiagnosticReport
from .audit import COLUMNS, Audit, AuditRow, Checklist, MarginRow
from .changes import moves
from .groups import method_groups
from .status import in_a_sentence, in_words

FORMAT = "pytest-fadiag audit"
FORMAT_VERSION = 3
"""1 had neither seed margins, nor logs, nor a checklist; 2 had margins whose intervals were resampled. Both are still read."""


def document(audit: Audit, version: str) -> dict[str, Any]:
    """``reports`` by checkpoint id, ``summary`` a row each, ``means`` and ``seed_margins`` a method each; plain JSON values."""
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "pytest_fadiag": version,
        "shard": None if audit.shard is None else list(audit.shard),
        "reports": {row.checkpoint: row.report.to_dict() for row in audit.rows if row.report is not None},
        "summary": [_summary(row) for row in audit.rows],
        "means": [
            {
                "method": group.method,
                "partial": group.partial,
                "seeds": group.mean.seeds,
                "mean": _by_column(group.mean.values),
                "sd": _by_column(group.mean.deviations),
            }
            for group in method_groups(audit)
            if group.mean is not None
        ],
        "seed_margins": [_margin(margin) for margin in audit.margins],
        "checklist": None if audit.checklist is None else to_plain(asdict(audit.checklist)),
    }


def json_text(audit: Audit) -> str:
    """The JSON document of an audit as a file holds it."""
    return json.dumps(document(audit, __version__), indent=1, allow_nan=False) + "\n"


def read_document(path: Path) -> Audit:
    """The audit behind a file, judged anew; what is no audit of a known version is an error that says so."""
    values = read_json(path)
    try:
        return audit_of(values)
    except (AuditError, AttributeError, KeyError, TypeError, ValueError) as error:
        said = str(error) if isinstance(error, AuditError) else f"not an audit: {type(error).__name__}: {error}"
        raise AuditError(f"{said}\n  {path}") from None


def read_json(path: Path) -> Any:
    """What a JSON file holds."""
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise AuditError(f"cannot be read: {error.strerror or error}\n  {path}") from None
    except ValueError as error:
        raise AuditError(f"not JSON: {error}\n  {path}") from None


def audit_of(values: Any) -> Audit:
    """The audit that :func:`document` wrote, in this version or an earlier one."""
    if not isinstance(values, dict) or "reports" not in values or "summary" not in values:
        raise AuditError("not an audit: expected the JSON object that --fa-report=json writes, with reports and summary")
    version = values.get("format_version", 1)
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise AuditError(
            f"an audit of format version {version!r}, and this pytest-fadiag reads up to {FORMAT_VERSION}: update pytest-fadiag"
        )
    reports = {name: _report(name, report) for name, report in values["reports"].items()}
    checklist = values.get("checklist")
    return Audit(
        [_row(row, reports.get(row["checkpoint"])) for row in values["summary"]],
        [margin_row(margin) for margin in values.get("seed_margins", ())],
        None if checklist is None else Checklist(**known_fields(Checklist, checklist)),
        None if values.get("shard") is None else (int(values["shard"][0]), int(values["shard"][1])),
    )


def _report(name: str, values: Mapping[str, Any]) -> DiagnosticReport:
    """A report behind its JSON object; where an older version did not write the name of its file, its id ends in it."""
    return DiagnosticReport.from_dict({"checkpoint": name.rpartition("/")[2], **values})


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
        "fired": row.fired,
        "expected": row.expected,
        "outcomes": {key: outcome.value for key, outcome in row.outcomes.items()},
        "reason": row.reason,
        "headline_acc": None if row.report is None else row.report.headline_acc,
        "frozen_baseline_acc": None if row.report is None else row.report.frozen_baseline_acc,
        "recorded": None if row.recorded is None else row.recorded.to_dict(),
        "moved": to_plain({column: {"from": move.before, "to": move.now} for column, move in moves(row).items()}),
    }


def _row(values: Mapping[str, Any], report: DiagnosticReport | None) -> AuditRow:
    return AuditRow(
        str(values["checkpoint"]),
        str(values["method"]),
        values["seed"],
        report,
        values.get("outcomes", {}),
        str(values.get("reason", "")),
        values.get("expected"),
        None if values.get("recorded") is None else DiagnosticReport.from_dict(values["recorded"]),
        values["group"] or "" if "group" in values else None,  # version 1 does not know, and later ones may know of none
    )


def _margin(row: MarginRow) -> dict[str, Any]:
    margin = row.margin
    plain: dict[str, Any] = to_plain(
        {
            "name": row.name,
            "method": row.method,
            "partial": row.partial,
            "outcome": row.outcome.value,
            "reason": row.reason,
            "expected": row.expected,
            "margin": None if margin is None else margin_values(margin),
        }
    )
    return plain


def margin_values(margin: SeedMargin) -> dict[str, Any]:
    """A margin over seeds and what follows from it, as plain JSON values."""
    derived = {"verdict": margin.verdict.value, "needed": margin.needed(), "seed_sd": margin.seed_sd}
    plain: dict[str, Any] = to_plain({**asdict(margin), **derived})
    return plain


def margin_row(values: Mapping[str, Any]) -> MarginRow:
    """The row of a margin over seeds behind its JSON object."""
    margin = values.get("margin")
    return MarginRow(**{**known_fields(MarginRow, values), "margin": None if margin is None else margin_of(margin)})


def margin_of(values: Mapping[str, Any]) -> SeedMargin:
    """The margin that :func:`margin_values` wrote, in this version or an earlier one."""
    fields = {name: number(value) for name, value in known_fields(SeedMargin, values).items()}
    parts = values.get("variance")
    variance = _variance_of_version_2(values) if parts is None else Variance(**known_fields(Variance, parts))
    return SeedMargin(**{**fields, "interval": Interval(**values["interval"]), "variance": variance})


def _variance_of_version_2(values: Mapping[str, Any]) -> Variance:
    """Version 2 has the standard deviations from seed to seed, from image to image, and of each seed on each image."""
    seeds, images = values["seeds"], values["images"] or values.get("assumed_images") or ASSUMED_IMAGES
    by_seed, by_image, rest = (values.get(name) or 0.0 for name in ("seed_sd", "image_sd", "specific_part"))
    return Variance(by_seed**2 / seeds, by_image**2 / images, rest**2 / (seeds * images))


def _by_column(values: Sequence[float | None]) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain({column.title: value for column, value in zip(COLUMNS, values, strict=True)})
    return plain
