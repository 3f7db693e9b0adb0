"""What becomes of a test, with and without a record; the record as it is read and written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import exploded, healthy, margin, probed, row
from hypothesis import given
from hypothesis import strategies as st

from pytest_fadiag.judge.diagnostics import DIAGNOSTICS, Finding, Status
from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.session.expect import Expectations, check_update, update
from pytest_fadiag.session.outcome import text_of
from pytest_fadiag.show.audit import Audit, Outcome, outcome_of

NAMES = {"p": Status.PASS, "P": Status.LIKELY_PASS, "f": Status.FIRE, "F": Status.LIKELY_FIRE}
NAMES |= {"n": Status.NOT_MEASURED, "r": Status.NOT_RESOLVED}


@pytest.mark.parametrize(
    ("status", "expected", "required", "outcome"),
    [
        ("p", None, "", "passed"),
        ("P", None, "", "passed"),
        ("f", None, "", "failed"),
        ("F", None, "", "failed"),
        ("n", None, "", "skipped"),
        ("r", None, "", "skipped"),
        ("p", "bd", "", "passed"),
        ("f", "bd", "", "failed"),
        ("n", "bd", "", "skipped"),
        ("p", "ad", "", "failed"),
        ("P", "a", "", "failed"),
        ("f", "ad", "", "xfailed"),
        ("F", "a", "", "xfailed"),
        ("n", "a", "", "failed"),
        ("r", "a", "", "failed"),
        ("n", None, "a", "error"),
        ("r", None, "a", "skipped"),
        ("n", None, "b", "skipped"),
        ("f", None, "a", "failed"),
    ],
)
def test_one_function_decides(
    status: str, expected: str | None, required: str, outcome: str
) -> None:
    finding = Finding(key="a", name="residual-growth", status=NAMES[status], threshold=50.0)
    keys = None if expected is None else tuple(expected)
    assert outcome_of(finding, ["a"], keys, required).value == outcome


def test_an_error_is_one_whatever_is_expected() -> None:
    finding = Finding(
        key="b",
        name="gradient-floor",
        status=Status.NOT_MEASURED,
        threshold=1.0,
        error="not proven",
    )
    assert {outcome_of(finding, ["b"], keys, ()) for keys in (None, (), ("b",))} == {Outcome.ERROR}


@pytest.mark.parametrize(
    ("expected", "outcome"), [("", "passed"), ("d", "failed"), ("e", "failed"), (None, "passed")]
)
def test_what_takes_the_place_of_the_margin_is_compared_with_both(
    expected: str | None, outcome: str
) -> None:
    finding = Finding(key="e", name="depth-utility", status=Status.PASS, threshold=3.0)
    assert (
        outcome_of(finding, ["d", "e"], None if expected is None else tuple(expected), ()).value
        == outcome
    )


def test_a_failing_test_shows_its_own_diagnostic_and_one_line_for_each_other() -> None:
    lines = text_of(exploded(sample_invariance=0.0, cross_batch_stability=0.5), ["a"]).splitlines()
    assert lines[0].startswith("(a) fail: residual stream exploded: per-block growth 667 > 50. It")
    assert lines[0].endswith("Hidden-layer norms and Γ describe scale, not credit.")
    assert [line.split()[0] for line in lines[1:3]] == ["h_0", "‖h_l‖"]
    assert lines[3].startswith("(c) pass (not sample-invariant): cross-batch cosine ")
    assert lines[4:] == ["(b), (d): fail"]


RECORD = {"dfa": "abd", "runs/dfa_s7.pt": "", "dfa::seed-margin": "FIRE"}


def test_a_record_has_letters_by_id_or_method_and_verdicts_of_margins() -> None:
    record = Expectations.parse(RECORD)
    assert record.expected_keys("runs/dfa_s42.pt", "dfa") == ("a", "b", "d")
    assert record.expected_keys("runs/dfa_s7.pt", "dfa") == (), "the id counts more than the method"
    assert record.expected_keys("runs/bp_s42.pt", "bp") == (), (
        "what is not listed is expected not to fire"
    )
    assert record.margins == {"dfa": "FIRE"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read as JSON"),
        ('{"dfa": "", "dfa": "a"}', "duplicate key 'dfa'"),
        ("[]", "expected a JSON object, not a list"),
        ('{"dfa": "xyz"}', "unknown diagnostic 'x', 'y', 'z'; known: a"),
        ('{"dfa": 3}', "'dfa': expected the keys that fail, such as \"abd\""),
        ('{"dfa": null}', "'dfa': expected the keys"),
        ('{"dfa::seed-margin": "fires"}', "expected PASS, FIRE, INCONCLUSIVE, not 'fires'"),
        ("[" * 100_000, "JSON"),
    ],
)
def test_a_file_that_is_not_a_record_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "expected.json").write_text(content)
    with pytest.raises(AuditError, match=f"--fa-expect: (?s:.*){message}") as told:
        Expectations.read(tmp_path / "expected.json")
    assert "expected.json" in str(told.value) and len(str(told.value)) < 600


def written(before: dict[str, str], *rows: Any, margins: Any = ()) -> dict[str, str]:
    return Expectations.parse(before).updated(Audit(tuple(rows), tuple(margins)))


@pytest.mark.parametrize(
    ("before", "rows", "after"),
    [
        ({}, [healthy(), exploded()], {"bp": "", "dfa": "abd"}),
        ({}, [exploded(), healthy("dfa", 7)], {"runs/dfa_s42.pt": "abd"}),
        ({"dfa": "abd"}, [exploded()], {"dfa": "abd"}),
        ({"dfa": "ab"}, [exploded()], {"dfa": "ab", "runs/dfa_s42.pt": "abd"}),
        ({"runs/dfa_s42.pt": "a"}, [exploded()], {"runs/dfa_s42.pt": "abd"}),
        ({"ep": "c"}, [healthy()], {"ep": "c", "bp": ""}),
        ({"dfa": "abde"}, [exploded()], {"dfa": "abde"}),
        ({"dfa": "abd"}, [probed(exploded(), 0.8, 0.7)], {"dfa": "abd", "runs/dfa_s42.pt": "abde"}),
    ],
    ids=[
        "new",
        "new, seeds differ",
        "as it is",
        "by method",
        "by id",
        "not in this run",
        "not measured",
        "more",
    ],
)
def test_a_record_is_written_without_touching_what_was_not_judged(
    before: dict[str, str], rows: list[Any], after: dict[str, str]
) -> None:
    assert written(before, *map(row, rows)) == after


def test_verdicts_of_margins_are_recorded_unless_they_pass() -> None:
    passed = margin("bp", margin=None, outcome=Outcome.SKIPPED)
    found = written({"bp::seed-margin": "FIRE"}, row(exploded()), margins=[margin("dfa"), passed])
    assert found == {"dfa": "abd", "dfa::seed-margin": "FIRE", "bp::seed-margin": "FIRE"}


def test_an_audit_with_an_error_is_not_recorded() -> None:
    for broken in (
        row(healthy(), outcomes={"a": Outcome.ERROR}),
        row(healthy(), outcomes={"a": Outcome.NOT_RUN}),
    ):
        with pytest.raises(AuditError, match=r"runs/bp_s42.pt was not judged"):
            written({}, broken)
    with pytest.raises(AuditError, match="dfa::seed-margin was not judged"):
        written({}, row(healthy()), margins=[margin("dfa", outcome=Outcome.ERROR)])


LETTERS = st.sets(st.sampled_from([d.key for d in DIAGNOSTICS])).map(
    lambda keys: "".join(sorted(keys))
)


@given(
    st.dictionaries(st.sampled_from(["bp", "dfa", "runs/dfa_s42.pt", "runs/bp_s42.pt"]), LETTERS)
)
def test_what_was_recorded_is_expected_afterwards(before: dict[str, str]) -> None:
    rows = [row(exploded()), row(healthy()), row(healthy("dfa", 7))]
    record = Expectations.parse(written(before, *rows))
    for one in rows:
        judged = set(one.conclusion.fired) | set(one.conclusion.passed)
        assert set(record.expected_keys(one.checkpoint, one.method)) & judged == set(
            one.conclusion.fired
        )


def test_the_file_is_written_whole_and_needs_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "new" / "expected.json"
    assert update(path, Audit((row(exploded()),))) == f"1 result recorded in {path}"
    assert json.loads(path.read_text()) == {"dfa": "abd"}
    check_update(path)
    with pytest.raises(AuditError, match="name the file to write with --fa-expect=FILE"):
        check_update(None)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(AuditError, match="refused where CI is set"):
        check_update(path)
