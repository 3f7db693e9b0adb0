"""What became of a row, as a value: which diagnostics fired, passed or are open, where it stands, and in which words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import exploded, healthy, row, traced

from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.judge.records import AuxiliaryStatistics
from pytest_fadiag.show.audit import AuditRow
from pytest_fadiag.show.document import audit_of
from pytest_fadiag.show.status import Outcome, Standing, in_a_sentence, in_words

NO_CONTROL: dict[str, Any] = {"frozen_baseline_acc": None, "control": None}
SATURATED = AuxiliaryStatistics(gradient_per_unit_error=2e-5, output_error_norm=1e-4)
LOG: dict[str, Any] = {"partial": True, "gradient_batch": 128}
UNKNOWN_BATCH: dict[str, Any] = {"partial": True, "gradient_batch": None}
INCOMPLETE = "incomplete: "


@pytest.mark.parametrize(
    ("made", "standing", "words", "sentence"),
    [
        (row(healthy()), Standing.TRUSTWORTHY, "trustworthy", "trustworthy"),
        (row(healthy(**NO_CONTROL)), Standing.INCOMPLETE, "incomplete no d", INCOMPLETE + "frozen-margin not measured"),
        (row(healthy(bp_grad_norms=[1e-9] * 5, companions=SATURATED)), Standing.TRUSTWORTHY, "trustworthy", "trustworthy"),
        (row(exploded()), Standing.WALK_BACK, "walk-back a b d", "needs walk-back: residual stream exploded; BP grad at "
         "numerical floor; deep blocks fail to beat frozen-random baseline"),
        (row(exploded(), expected="abd"), Standing.WALK_BACK, "walk-back a b d*", None),
        (row(exploded(), expected="abd", outcomes={"a": "xfailed", "b": "xfailed", "c": "passed", "d": "failed"}),
         Standing.WALK_BACK, "walk-back a b d", None),
        (row(exploded(), expected="abd", outcomes={"a": "xfailed", "b": "xfailed", "c": "passed", "d": "xfailed"}),
         Standing.WALK_BACK, "walk-back a b d*", None),
        (row(exploded(), expected="a"), Standing.WALK_BACK, "walk-back a b d (expected a)", None),
        (row(exploded(), expected=""), Standing.WALK_BACK, "walk-back a b d (expected none)", None),
        (row(healthy(), expected=""), Standing.TRUSTWORTHY, "trustworthy*", "trustworthy"),
        (row(healthy(), expected="c"), Standing.TRUSTWORTHY, "trustworthy (expected c)", "trustworthy"),
        (row(healthy(**LOG)), Standing.TRUSTWORTHY, "trustworthy", "trustworthy"),
        (row(healthy(**LOG, **NO_CONTROL)), Standing.INCOMPLETE, "incomplete no d", INCOMPLETE + "frozen-margin not measured"),
        (row(healthy(**UNKNOWN_BATCH, cross_batch_stability=None)), Standing.INCOMPLETE, "incomplete likely b no c",
         INCOMPLETE + "gradient-floor likely; direction-drift not measured"),
        (row(healthy(**UNKNOWN_BATCH), expected=""), Standing.INCOMPLETE, "incomplete* likely b c",
         INCOMPLETE + "gradient-floor likely; direction-drift likely"),
        (row(healthy(**UNKNOWN_BATCH, bp_grad_norms=[1e-9] * 5)), Standing.WALK_BACK, "walk-back b?",
         "needs walk-back: BP grad at numerical floor (likely)"),
        (row(healthy(), outcomes={"a": "passed", "b": "not run", "c": "not run", "d": "not run"}), Standing.INCOMPLETE,
         "incomplete not run b c d", INCOMPLETE + "gradient-floor not run; direction-drift not run; frozen-margin not run"),
        (row(healthy(), outcomes={"d": "passed"}), Standing.INCOMPLETE, "incomplete no a b c",
         INCOMPLETE + "residual-growth not run; gradient-floor not run; direction-drift not run"),
        (row(healthy(**NO_CONTROL), outcomes={"d": "skipped"}), Standing.INCOMPLETE, "incomplete no a b c d", INCOMPLETE +
         "residual-growth not run; gradient-floor not run; direction-drift not run; frozen-margin not measured"),
        (row(healthy(**LOG), outcomes={"a": "passed", "b": "passed"}), Standing.INCOMPLETE, "incomplete no c d",
         INCOMPLETE + "direction-drift not run; frozen-margin not run"),
        (row(exploded(), outcomes={"c": "passed"}), Standing.INCOMPLETE, "incomplete no a b d",
         INCOMPLETE + "residual-growth not run; gradient-floor not run; frozen-margin not run"),
        (row(exploded(), outcomes={"d": "failed"}), Standing.WALK_BACK, "walk-back d",
         "needs walk-back: deep blocks fail to beat frozen-random baseline"),
        (row(healthy(), outcomes={"a": "passed", "b": "passed", "c": "passed", "d": "error"}, reason="unreadable"),
         Standing.INCOMPLETE, "incomplete error d", INCOMPLETE + "frozen-margin error"),
        (row(exploded(), outcomes={"a": "error", "b": "passed", "c": "passed", "d": "passed"}), Standing.WALK_BACK,
         "walk-back a b d error a", None),
        (AuditRow("x.pt", "x", 1, None, {"a": Outcome.ERROR}, "no such file"), Standing.INCOMPLETE,
         "error: no such file", "error: no such file"),
        (AuditRow("x.pt", "x", 1, None, {"a": Outcome.ERROR, "b": Outcome.NOT_RUN}), Standing.INCOMPLETE, "error", "error"),
        (AuditRow("x.pt", "x", 1, None, {"a": Outcome.NOT_RUN}), Standing.INCOMPLETE, "not run", "not run"),
        (AuditRow("x.pt", "x", 1, None, {"a": Outcome.SKIPPED}), Standing.INCOMPLETE, "skipped", "skipped"),
        (AuditRow("x.pt", "x", 1), Standing.INCOMPLETE, "skipped", "skipped"),
        (row(healthy(), outcomes=dict.fromkeys("abcd", "not run"), expected=""), Standing.INCOMPLETE, "not run", "not run"),
    ],
)  # fmt: skip
def test_each_kind_of_row(made: AuditRow, standing: Standing, words: str, sentence: str | None) -> None:
    assert made.status.standing is standing
    assert in_words(made.status) == words
    assert in_words(made.status, mark="") == words.replace("*", "")
    assert sentence is None or in_a_sentence(made.status) == sentence


def test_the_keys_of_a_status() -> None:
    made = row(
        healthy(**UNKNOWN_BATCH, bp_grad_norms=[1e-9] * 5, companions=SATURATED, cross_batch_stability=0.9, **NO_CONTROL),
        outcomes={"a": "error", "b": "passed", "c": "failed", "d": "skipped"},
        reason="broke",
    )
    status = made.status
    assert (status.fired, status.passed, status.likely, status.excused) == ("c", "b", "bc", "b")
    assert (status.unmeasured, status.broken, status.not_run, status.judged) == ("d", "a", "", "bcd")
    assert status.reported and status.reason == "broke" and status.is_alarming


@pytest.mark.parametrize(
    ("changes", "as_expected"),
    [
        ({}, None),
        ({"expected": "abd"}, True),
        ({"expected": "ab"}, False),
        ({"expected": "abcd"}, False),
        ({"expected": "abd", "outcomes": {"b": "xfailed"}}, True),
        ({"expected": "abd", "outcomes": {"c": "passed"}}, True),
        ({"expected": "abcd", "outcomes": {"c": "error"}}, False),
        ({"expected": "", "outcomes": {"c": "error"}}, None),
        ({"expected": "abd", "outcomes": {"a": "not run"}}, None),
        ({"expected": "abd", "report": None}, None),
    ],
)
def test_what_is_as_expected_was_put_to_the_test(changes: dict[str, Any], as_expected: bool | None) -> None:
    assert row(exploded(), **changes).status.as_expected is as_expected


def test_a_report_that_all_of_it_judged_says_in_a_sentence_what_the_row_does() -> None:
    for made in (healthy(), exploded(), healthy(**LOG, **NO_CONTROL), healthy(**UNKNOWN_BATCH, cross_batch_stability=None)):
        assert in_a_sentence(row(made).status) == made.verdict


def test_what_did_not_run_is_not_said_to_have_fired_first() -> None:
    assert row(traced("dfa", 1)).first_fired == {"d": 1, "a": 10, "b": 18}
    assert row(traced("dfa", 1), outcomes={"b": "failed", "d": "failed", "a": "not run"}).first_fired == {"d": 1, "b": 18}
    assert row(traced("dfa", 1, epochs=1)).first_fired == row(exploded()).first_fired == {}, "one epoch is no course"


def test_rows_are_values() -> None:
    made = row(healthy(), outcomes={"d": "passed", "a": "failed"})
    assert list(made.outcomes.items()) == [("a", Outcome.FAILED), ("d", Outcome.PASSED)]
    assert made == replace(made) and made.status == replace(made).status
    with pytest.raises(AttributeError):
        made.method = "other"  # type: ignore[misc]
    with pytest.raises(ValueError, match="'lost' is not a valid Outcome"):
        replace(made, outcomes={"a": "lost"})
    with pytest.raises((AuditError, ValueError)):
        audit_of({"reports": {}, "summary": [{"checkpoint": "x", "method": "x", "seed": None, "outcomes": {"a": "lost"}}]})


def test_outcomes_are_their_words() -> None:
    assert {str(outcome) for outcome in Outcome} == {outcome.value for outcome in Outcome} == set(Outcome)
    assert f"{Outcome.NOT_RUN}" == "not run" and {Outcome.SKIPPED} == {"skipped"}
