"""The document: what is written is read back, and what is not an audit is refused."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import builders
import pytest
from hypothesis import given
from hypothesis import strategies as st
from show.samples import of

from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.show.audit import Audit
from pytest_fadiag.show.json import audit_of, document, json_text, read_audit
from pytest_fadiag.show.words import words

numbers = st.floats(0, allow_nan=False) | st.just(math.inf)


def test_what_is_written_is_read_back(audit: Audit, evil: Audit, tmp_path: Path) -> None:
    for number, made in enumerate((audit, evil, Audit((), shard=(1, 2), interrupted=True))):
        file = tmp_path / f"{number}.json"
        file.write_text(json_text(made), "utf-8")
        assert read_audit(file) == made
    (tmp_path / "audit.json").write_text(json_text(audit), "utf-8")
    assert read_audit(tmp_path) == audit  # a certificate


@given(
    st.lists(numbers, min_size=2, max_size=5),
    st.text(),
    st.dictionaries(st.text(), st.integers() | st.text()),
)
def test_any_number_and_text_is_read_back(
    norms: list[float], text: str, config: dict[str, Any]
) -> None:
    report = builders.healthy(notes=text, residual_norms=tuple(norms), config=config)
    made = of(builders.row(report, reason=text))
    assert audit_of(json.loads(json_text(made))) == made


def test_undefined_numbers_are_read_back() -> None:
    made = of(builders.row(builders.healthy(cross_batch_stability=math.nan)))
    (row,) = audit_of(json.loads(json_text(made))).rows
    assert row.report is not None and math.isnan(row.report.cross_batch_stability or 0)


def test_the_document_says_what_every_output_says(audit: Audit) -> None:
    values = document(audit)
    assert [row["status"] for row in values["rows"]] == [words(row) for row in audit.rows]
    assert values["rows"][0]["report"]["verdict"] and values["margins"][0]["verdict"] == "PASS"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "else"}, "not an audit"),
        ({"version": 3}, "not an audit; expected .*, version 1"),
        ({"rows": [{"checkpoint": 1}]}, "not a valid audit: Expected `str`, got `int`"),
        (
            {"rows": [{"checkpoint": "x", "method": "x", "outcomes": {"a": "passed"}}]},
            "was judged, but has no report",
        ),
        (
            {
                "rows": [
                    {
                        "checkpoint": "x",
                        "method": "x",
                        "report": {"diagnostics": [], "headline_acc": 34.9},
                    }
                ]
            },
            "did you pass a percentage",
        ),
    ],
)
def test_what_is_not_an_audit_is_refused(
    change: dict[str, Any], said: str, audit: Audit, tmp_path: Path
) -> None:
    file = tmp_path / "audit.json"
    file.write_text(json.dumps({**document(audit), **change}), "utf-8")
    with pytest.raises(AuditError, match=said) as error:
        read_audit(file)
    assert str(file) in str(error.value)


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match=r"cannot be read as JSON: .*No such file"):
        read_audit(tmp_path / "none.json")
    for content in (b'{"format": ', b'{"format": "\xff"}', b'{"format": 1, "format": 2}'):
        (tmp_path / "cut.json").write_bytes(content)
        with pytest.raises(AuditError, match=r"as JSON|duplicate key"):
            read_audit(tmp_path / "cut.json")


def test_the_schema_is_made_of_the_structs(audit: Audit) -> None:
    command = [sys.executable, "-m", "pytest_fadiag.show.json"]
    schema = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert {"rows", "margins", "origin"} <= set(schema["$defs"]["Audit"]["properties"])
