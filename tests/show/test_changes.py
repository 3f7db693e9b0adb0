"""Numbers that moved since they were recorded, and what they were not measured alike with."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from typing import Any

import jsonschema
import pytest

from pytest_fadiag.judge.records import AuxiliaryStatistics
from pytest_fadiag.show.audit import Audit, AuditRow
from pytest_fadiag.show.changes import environment_notes, moves
from pytest_fadiag.show.document import document
from pytest_fadiag.show.html import html
from pytest_fadiag.show.table import render

Audits = dict[str, Callable[[], Audit]]
NAN, INF = math.nan, math.inf
SCHEMA = json.loads((files("pytest_fadiag.show") / "audit.schema.json").read_text("utf-8"))


def compared(audits: Audits, then: dict[str, Any], now: dict[str, Any]) -> AuditRow:
    """A row and its record, which differ in these fields alone."""
    (row,) = audits["one"]().rows
    assert row.report is not None
    plain = replace(row.report, accuracy=None, control=None)
    return replace(row, report=replace(plain, **now), recorded=replace(plain, **then))


def gradients(value: float) -> dict[str, Any]:
    return {"bp_grad_norms": [1e-5, value]}


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (1e-5, 1.25e-5, "+25%"),
        (1e-5, 0.8e-5, "-20%"),
        (1e-5, 0.5e-5, "-50%"),
        (1e-5, 2e-5, "+100%"),
        (1e-5, 1e-8, "÷1000"),
        (1e-5, 0.0, "was 1.0e-05"),
        (0.0, 1e-5, "was 0"),
        (1e-6, 1.4e-5, "×14"),
        (1e-6, 2.34e-6, "×2.3"),
        (1e-6, 9.97e-6, "×10"),
        (1e-9, 1.23e-3, "×1.2e+06"),
        (1.2e-5, INF, "was 1.2e-05"),
        (1.2e-5, NAN, "was 1.2e-05"),
        (NAN, 1.2e-5, "was undefined"),
        (INF, 1.2e-5, "was inf"),
        (INF, NAN, "was inf"),
        (5e-324, 1e300, "was 4.9e-324"),
    ],
)
def test_how_far_a_norm_moved(audits: Audits, before: float, now: float, said: str) -> None:
    row = compared(audits, gradients(before), gradients(now))
    assert str(moves(row)["‖g_L‖"]) == said
    shown = next(cell.text for cell in render(Audit([row]), 400)[1] if "(" in cell.text)
    assert shown.strip().endswith(f"({said})")
    assert f"({said.replace('×', 'x').replace('÷', '/')})" in "".join(
        cell.text for cell in render(Audit([row]), 400, ascii_only=True)[1]
    )


@pytest.mark.parametrize("same", [NAN, INF, 0.0, 1e-5])
def test_what_is_as_undefined_or_infinite_as_before_has_not_moved(audits: Audits, same: float) -> None:
    assert "‖g_L‖" not in moves(compared(audits, gradients(same), gradients(same)))


@pytest.mark.parametrize("before", [0.3, 0.45, 0.7, 0.9, 0.97])
def test_exactly_one_percent_is_not_more_than_one_percent_however_it_rounds(audits: Audits, before: float) -> None:
    for factor in (1.01, 0.99):
        assert "acc" not in moves(compared(audits, {"headline_acc": before}, {"headline_acc": before * factor}))
    assert "acc" in moves(compared(audits, {"headline_acc": before}, {"headline_acc": before * 1.0101}))


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (0.001, 0.051, "+0.05"),
        (0.02, -0.03, "-0.05"),
        (-0.06, 0.0, "+0.06"),
        (0.0, 0.2, "+0.20"),
        (0.06, NAN, "was 0.060"),
        (0.001, 0.002, None),
        (0.05, 0.06, None),
        (0.4, 0.41, None),
    ],
)
def test_a_cosine_moves_by_an_amount_with_its_sign(audits: Audits, before: float, now: float, said: str | None) -> None:
    found = moves(compared(audits, {"cross_batch_stability": before}, {"cross_batch_stability": now})).get("drift")
    assert (None if found is None else str(found)) == said


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [(0.7601, 0.7602, None), (0.76, 0.762, "+0.20"), (0.75, 0.77, "+2.00"), (0.9, 0.9014, None), (0.9, 0.91, "+1.00")],
)
def test_a_margin_moves_by_points(audits: Audits, before: float, now: float, said: str | None) -> None:
    found = moves(compared(audits, {"headline_acc": before}, {"headline_acc": now})).get("margin")
    assert (None if found is None else str(found)) == said


def test_a_number_that_came_or_went_is_shown(audits: Audits) -> None:
    gone = compared(audits, {}, {"frozen_baseline_acc": None})
    assert {title: str(move) for title, move in moves(gone).items()} == {"frozen": "was 0.7600", "margin": "was +14.00"}
    come = compared(audits, {"frozen_baseline_acc": None}, {})
    assert {title: str(move) for title, move in moves(come).items()} == {"frozen": "new", "margin": "new"}
    cells = [cell.text.strip() for cell in render(Audit([gone]), 400)[1]]
    assert "- (was 0.7600)" in cells
    for row in (gone, come):
        assert "margin not measured → +14.00" in (page := html(Audit([row]), "1")) or "margin +14.00 → not measured" in page
        jsonschema.validate(json.loads(json.dumps(document(Audit([row]), "1"), allow_nan=False)), SCHEMA)


def test_another_number_of_probe_batches_is_named(audits: Audits) -> None:
    now, then = {"companions": AuxiliaryStatistics(batches=10)}, {"companions": AuxiliaryStatistics(batches=2)}
    row = compared(audits, then, now)
    assert environment_notes([row]) == ["runs/bp_sNone.pt: probe batches were 2 when recorded and are 10 now"]
    assert environment_notes([compared(audits, now, now)]) == environment_notes([compared(audits, {}, now)]) == []
    assert environment_notes([compared(audits, now, now), compared(audits, then, then)]) == [
        "these rows differ in probe batches: 2, 10"
    ]
