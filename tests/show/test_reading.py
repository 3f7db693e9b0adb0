"""A document that somebody edited is read as it is, or an error says what is wrong and where; nothing else is ever raised."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import exploded, healthy, margin, row, traced

from pytest_fadiag.judge.codec import read
from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.judge.records import Accuracy, AuxiliaryStatistics
from pytest_fadiag.show.audit import Audit
from pytest_fadiag.show.document import document, read_audit

Place = tuple[str | int, ...]
BP = ("reports", "runs/bp_s42.pt")
LOG = ("reports", "runs/dfa_s42.pt.log.jsonl")
MARGIN = ("seed_margins", 0, "margin")
DOCUMENTS = [Path(__file__).with_name(f"audit_v{version}.json") for version in (1, 2)]


def places(values: Any, at: Place = ()) -> Iterator[Place]:
    """Every place in a document, containers included."""
    entries = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    for key, value in entries:
        yield (*at, key)
        yield from places(value, (*at, key))


def value_at(values: Any, place: Place) -> Any:
    for key in place:
        values = values[key]
    return values


class Edits:
    """A document as it is, and as it is read with one place of it changed."""

    def __init__(self, text: str, path: Path) -> None:
        self.text, self.path = text, path

    def audit(self, place: Place = (), value: Any = None) -> Audit:
        values = json.loads(self.text)
        if place:
            value_at(values, place[:-1])[place[-1]] = value
        self.path.write_text(json.dumps(values))
        return read_audit(self.path)


@pytest.fixture
def edits(audits: dict[str, Callable[[], Audit]], tmp_path: Path) -> Edits:
    """A document with a checkpoint whose images are known, one that fires, a log, a record, a margin and a checklist."""
    hits = Accuracy.of([True] * 9 + [False])
    known = healthy("bp", 42, accuracy=hits, companions=AuxiliaryStatistics(10, 1280, 0.01, nonfinite_states=(0, 0, 0)))
    logged = traced("dfa", 42, 2)
    assert logged.trajectory is not None
    statistics = AuxiliaryStatistics(sample_invariance=0.2, nonfinite_logits=1)
    points = tuple(replace(point, companions=statistics) for point in logged.trajectory.points)
    course = replace(logged, trajectory=replace(logged.trajectory, points=points))
    rows = [row(known), row(exploded("dfa", 42)), row(course, recorded=healthy("dfa", 42))]
    audit = Audit(rows, [margin("dfa")], audits["usual"]().checklist, (1, 2))
    return Edits(json.dumps(document(audit, "0.3")), tmp_path / "audit.json")


def refused_or_the_same(edits: Edits, place: Place, value: Any) -> str:
    """The error of an edit, which names its place; nothing where the edit does not count, since what follows is judged anew."""
    names = [str(key) for key in place if isinstance(key, str)]
    try:
        audit = edits.audit(place, value)
    except AuditError as error:
        # By its own name, or by what it is in where its name is not one of a field, or was another one in an earlier version.
        assert any(name in str(error) for name in names[-2:]) or place == ("format_version",), (place, value, str(error))
        return str(error)
    assert document(audit, "") == document(edits.audit(), ""), (place, value)
    return ""


def test_every_value_of_a_wrong_type_is_refused_by_its_place(edits: Edits) -> None:
    values = json.loads(edits.text)
    every = list(places(values))
    refused = 0
    for place in every:
        value = value_at(values, place)
        for wrong in [[1]] if isinstance(value, dict) else [{"x": 1}, 5] if isinstance(value, list) else [[1], {"x": {}}]:
            refused += bool(refused_or_the_same(edits, place, wrong))
    assert len(every) > 300 and refused >= len(every)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_an_earlier_document_with_a_value_of_a_wrong_type_is_refused_by_its_place(path: Path, tmp_path: Path) -> None:
    edits = Edits(path.read_text("utf-8"), tmp_path / "audit.json")
    values = json.loads(edits.text)
    for place in places(values):
        if place[0] != "reports" or place[:2] == ("reports", next(iter(values["reports"]))):
            refused_or_the_same(edits, place, [1] if not isinstance(value_at(values, place), list) else {"x": 1})


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("shard",), [1], "audit.shard: Expected `array` of length >= 2"),
        (("shard",), [0, 2], "audit.shard[0]: Expected `int` >= 1"),
        (("checklist",), {"files": "x"}, "audit.checklist.files: Expected `int`, got `str`"),
        (("checklist", "findings"), [3], "audit.checklist.findings[0]: Expected `object`, got `int`"),
        (("summary", 0, "seed"), {}, "audit.summary[0].seed: Expected `int | null`, got `object`"),
        (("summary", 0, "outcomes"), {"a": "lost"}, "audit.summary[0].outcomes['a']: Expected 'passed', 'failed', 'skipped', "),
        ((*BP, "seed"), {}, "audit.reports['runs/bp_s42.pt'].seed: Expected `int | null`, got `object`"),
        ((*BP, "seed"), 10**400, "audit.reports['runs/bp_s42.pt'].seed: Expected `int` of 64 bits at most"),
        ((*BP, "partial"), [1], "audit.reports['runs/bp_s42.pt'].partial: Expected `bool`, got `array`"),
        ((*BP, "stability_layer"), [1], ".stability_layer: Expected `int | null`, got `array`"),
        ((*BP, "stability_layer"), -1, ".stability_layer: Expected `int` >= 0"),
        ((*BP, "headline_acc"), 10**400, ".headline_acc: Number out of range"),
        ((*BP, "headline_acc"), 65.3, "audit.reports['runs/bp_s42.pt']: headline_acc is 65.3, but accuracies are fractions"),
        ((*BP, "headline_acc"), "0.6", ".headline_acc: Expected `float | null`, got `str`"),
        ((*BP, "bp_grad_norms"), [], "bp_grad_norms is empty"),
        ((*BP, "bp_grad_norms", 0), "nan", ".bp_grad_norms[0]: Expected `float | null`, got `str`"),
        ((*BP, "thresholds", "growth"), "fast", ".thresholds.growth: Expected 'cumulative', 'per_block', got 'fast'"),
        ((*BP, "thresholds", "new"), 1, "unknown threshold 'new'"),
        ((*BP, "accuracy", "correct"), "ff", ".accuracy: correct must be 3 hexadecimal digits, a bit for each of 10 images"),
        ((*BP, "accuracy", "correct"), "xyz", ".accuracy: correct must be 3 hexadecimal digits"),
        ((*BP, "accuracy", "images"), 12_000, ".accuracy: correct must be 3000 hexadecimal digits"),
        ((*BP, "accuracy", "images"), -1, ".accuracy: the number of test images is -1"),
        ((*LOG, "trajectory", "drift"), [0.05], ".trajectory: drift must have an entry for each of 2 epochs, not 1"),
        (
            (*LOG, "trajectory", "bp_grad_norms", 0),
            [1.0],
            ".trajectory: bp_grad_norms must have the same layers in every epoch",
        ),
        ((*LOG, "trajectory", "residual_norms"), [[], []], ".trajectory.residual_norms[0]: Expected `array` of length >= 1"),
        (
            (*LOG, "trajectory", "companions", "nonfinite_logits", 1),
            "x",
            "companions of epoch 2.nonfinite_logits: Expected `int`",
        ),
        ((*MARGIN, "seeds"), 1, "audit.seed_margins[0].margin.seeds: Expected `int` >= 2"),
        ((*MARGIN, "images"), 1, "audit.seed_margins[0].margin.images: Expected `int` >= 2"),
        (("format_version",), 4, "an audit of format version 4, and this pytest-fadiag reads up to 3"),
        (("format_version",), True, "an audit of format version True"),
        (("format_version",), 0, "an audit of format version 0"),
        (("\ud800",), 1, "audit: 'utf-8' codec can't encode character"),
    ],
    ids=lambda value: None if isinstance(value, str) else "",
)
def test_the_error_says_what_was_expected_and_where(edits: Edits, place: Place, value: Any, message: str) -> None:
    with pytest.raises(AuditError) as raised:
        edits.audit(place, value)
    assert message in str(raised.value) and str(edits.path) in str(raised.value)


def test_a_file_that_nests_too_deeply_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "audit.json"
    for text in ("[" * 100_000 + "]" * 100_000, '{"reports":{},"summary":' + "[" * 100_000 + "]" * 100_000 + "}"):
        path.write_text(text)
        with pytest.raises(AuditError, match="not JSON: "):
            read_audit(path)


def test_the_words_for_what_is_not_finite_are_numbers_only_where_one_is_expected(edits: Edits) -> None:
    report = edits.audit((*BP, "notes"), "NaN").rows[0].report
    assert report is not None and report.notes == "NaN"
    report = edits.audit((*BP, "environment", "torch"), "Infinity").rows[0].report
    assert report is not None and report.environment["torch"] == "Infinity"
    report = edits.audit((*BP, "environment", "torch"), 0.5).rows[0].report
    assert report is not None and report.environment["torch"] == 0.5
    report = edits.audit((*BP, "residual_norms", 1), "Infinity").rows[0].report
    assert report is not None and report.residual_norms[1] == float("inf")
    with pytest.raises(AuditError, match="Expected `int"):
        read(AuxiliaryStatistics, {"batches": "NaN"}, "companions")
