"""The published schema of the JSON document, and documents of the versions before."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pytest_fadiag.judge.seed_report import SeedReport
from pytest_fadiag.show.audit import Audit
from pytest_fadiag.show.document import audit_of, document, read_audit
from pytest_fadiag.show.schema import schema
from pytest_fadiag.show.upgrade import FORMAT_VERSION

SCHEMA: dict[str, Any] = json.loads((files("pytest_fadiag.show") / "audit.schema.json").read_text("utf-8"))
VERSION_1, VERSION_2 = (Path(__file__).with_name(f"audit_v{version}.json") for version in (1, 2))
NAMES_BEFORE = {"zero_gradient_samples": "directionless_samples", "tokens_without_gradient": "unread_tokens"}
Audits = dict[str, Callable[[], Audit]]


def errors(values: Any) -> list[str]:
    return [error.message for error in jsonschema.Draft202012Validator(SCHEMA).iter_errors(values)]


def within(old: Any, new: Any) -> Any:
    """What is new of a value, as far as an earlier version had it: each version may add fields."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {key: within(value, new[key]) for key, value in old.items() if key in new}
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [within(before, now) for before, now in zip(old, new, strict=True)]
    return new


def test_the_schema_is_one_and_is_that_of_the_version_that_is_written() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"]["format_version"]["enum"] == [FORMAT_VERSION]


def test_the_shipped_schema_is_the_one_that_the_types_make() -> None:
    assert schema() == SCHEMA, "renew it: python -m pytest_fadiag.show.schema"


def test_every_audit_validates_also_after_a_round_trip_through_a_file(audit: Audit) -> None:
    values = json.loads(json.dumps(document(audit, "0.3"), allow_nan=False))
    assert errors(values) == []
    assert all(row["moved"] for row in values["summary"] if row["recorded"])
    again = document(audit_of(values), "0.3")
    assert errors(again) == [] and json.dumps(again, sort_keys=True) == json.dumps(values, sort_keys=True)


def test_the_schema_names_every_field_that_is_written(audits: Audits) -> None:
    values = document(audits["usual"](), "0.3")
    logged = next(report for report in values["reports"].values() if report["trajectory"])
    whole = next(report for report in values["reports"].values() if report["accuracy"])
    written = {
        "ReportValues": whole,
        "DiagnosticThresholds": whole["thresholds"],
        "AuxiliaryStatistics": whole["companions"],
        "Accuracy": whole["accuracy"],
        "Control": whole["control"],
        "Interval": whole["margin_interval"],
        "FindingValues": whole["findings"][0],
        "TrajectoryValues": logged["trajectory"],
        "RowValues": values["summary"][0],
        "MeanValues": values["means"][0],
        "MarginRowValues": values["seed_margins"][0],
        "SeedMarginValues": values["seed_margins"][0]["margin"],
        "Variance": values["seed_margins"][0]["margin"]["variance"],
        "ChecklistValues": values["checklist"],
    }
    assert set(values) == set(SCHEMA["properties"])
    for name, fields in written.items():
        assert set(fields) == set(SCHEMA["$defs"][name]["properties"]), name


def edits() -> dict[str, Callable[[dict[str, Any]], object]]:
    """What somebody may do to a document, each with the report that it is done to."""

    def first(values: dict[str, Any]) -> dict[str, Any]:
        return next(report for report in values["reports"].values() if report["trajectory"])

    return {
        "no reports": lambda values: values.pop("reports"),
        "another format": lambda values: values.update(format="something"),
        "another version": lambda values: values.update(format_version=FORMAT_VERSION + 1),
        "a list of reports": lambda values: values.update(reports=[]),
        "a negative norm": lambda values: first(values).update(residual_norms=[-1.0, 2.0]),
        "a word for a number": lambda values: first(values).update(residual_norms=["big", 2.0]),
        "a percentage": lambda values: first(values).update(headline_acc=65.3),
        "no cosine": lambda values: first(values).update(cross_batch_stability=3),
        "no verdict": lambda values: first(values).pop("verdict"),
        "an unknown status": lambda values: first(values)["findings"][0].update(status="maybe"),
        "an unknown growth": lambda values: first(values)["thresholds"].update(growth="fast"),
        "an epoch in words": lambda values: first(values)["trajectory"].update(epochs=["one"]),
        "first fired of no diagnostic": lambda values: first(values)["trajectory"].update(first_fired={"ab": 1}),
        "a trajectory without accuracy": lambda values: first(values)["trajectory"].pop("accuracy"),
        "an accuracy without value": lambda values: values["reports"]["runs/bp_s42.pt"]["accuracy"].pop("value"),
        "a row without method": lambda values: values["summary"][0].pop("method"),
        "a mean of one seed": lambda values: values["means"][0].update(seeds=1),
        "a margin without interval": lambda values: values["seed_margins"][0]["margin"].pop("interval"),
        "a margin without variance": lambda values: values["seed_margins"][0]["margin"].pop("variance"),
        "an unknown seed verdict": lambda values: values["seed_margins"][0]["margin"].update(verdict="MAYBE"),
        "a pitfall without a line": lambda values: values["checklist"]["findings"][0].pop("line"),
        "a pitfall without a number": lambda values: values["checklist"]["findings"][0].update(number=0),
    }


@pytest.fixture(scope="module")
def usual(audits: Audits) -> dict[str, Any]:
    """A document that validates."""
    values = document(audits["usual"](), "0.3")
    assert errors(values) == []
    return values


@pytest.mark.parametrize("edit", edits())
def test_a_broken_document_does_not_validate(edit: str, usual: dict[str, Any]) -> None:
    values = copy.deepcopy(usual)
    edits()[edit](values)
    assert errors(values)


def test_fields_of_a_newer_writer_do_no_harm(audits: Audits) -> None:
    values = document(audits["usual"](), "0.4")
    values["more"] = 1
    for report in values["reports"].values():
        report["more"] = report["companions"]["more"] = 1
    assert errors(values) == []
    assert len(audit_of(values).rows) == 12


def test_a_document_of_version_1_is_still_read_and_written_as_this_version() -> None:
    recorded = json.loads(VERSION_1.read_text("utf-8"))
    assert recorded["format_version"] == 1 and errors(recorded)
    audit = read_audit(VERSION_1)
    assert [(row.method, row.seed, row.fired) for row in audit.rows] == [
        ("bp", 42, ""),
        ("dfa", 42, "abd"),
        ("dfa", 123, "abd"),
    ]
    assert not audit.margins and audit.checklist is None and not any(row.partial for row in audit.rows)
    assert [row.report.checkpoint for row in audit.rows if row.report] == ["bp_s42.pt", "dfa_s42.pt", "dfa_s123.pt"]
    now = document(audit, "0.3")
    assert errors(now) == []
    for name, report in recorded["reports"].items():
        names = NAMES_BEFORE | {"invariance_between_samples": "sample_invariance"}
        report["companions"] = {new: report["companions"].pop(old) for new, old in names.items()} | report["companions"]
        for finding in report["findings"]:
            del finding["explanation"]  # numbers and statuses stay; how they are worded need not
        assert within(report, now["reports"][name]) == report


def test_a_document_with_the_names_before_is_read(audits: Audits) -> None:
    values = document(audits["usual"](), "0.3")
    whole = values["reports"]["runs/bp_s42.pt"]["companions"]
    whole |= {"zero_gradient_samples": 7, "tokens_without_gradient": [0, 16]}
    now = document(audit_of(values), "0.3")
    for report in values["reports"].values():
        for new, old in NAMES_BEFORE.items():
            report["companions"][old] = report["companions"].pop(new)
    assert document(audit_of(values), "0.3") == now


def test_a_document_of_version_2_is_still_read_with_the_margins_that_it_records() -> None:
    recorded = json.loads(VERSION_2.read_text("utf-8"))
    assert recorded["format_version"] == 2 and errors(recorded)
    audit = read_audit(VERSION_2)
    now = document(audit, "0.3")
    assert errors(now) == []
    assert [report["checkpoint"] for report in now["reports"].values()] == ["fa_s42.pt", "fa_s123.pt", "fa_s456.pt"]
    for before, after in zip(recorded["seed_margins"], now["seed_margins"], strict=True):
        for name in ("seeds", "images", "margin", "interval", "minimum", "verdict", "needed"):
            assert after["margin"][name] == before["margin"][name]
        assert after["margin"]["seed_sd"] == pytest.approx(before["margin"]["seed_sd"])
        assert after["margin"]["degrees_of_freedom"] is None, "its interval was resampled"


def test_the_spread_that_version_2_records_is_that_of_its_reports() -> None:
    audit = read_audit(VERSION_2)
    anew = SeedReport.of([row.report for row in audit.rows if row.report is not None], 2.0).margin
    (recorded,) = [row.margin for row in audit.margins if row.name == "fa" and row.margin is not None]
    assert recorded.interval.kind.startswith("bootstrap") and anew.interval.kind.endswith("paired")
    assert asdict(recorded.variance) == pytest.approx(asdict(anew.variance))
    assert (recorded.margin, recorded.seed_sd) == (anew.margin, pytest.approx(anew.seed_sd))
