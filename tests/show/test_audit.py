"""Rows, their status, and what a record makes of them."""

from __future__ import annotations

import itertools
from typing import Any

import builders
import msgspec
import pytest
from show.samples import of

from pytest_fadiag.judge.verdict import Word
from pytest_fadiag.show.audit import Audit, Origin, Outcome, Row, decide, united
from pytest_fadiag.show.words import (
    details,
    headline,
    legend,
    margin_words,
    next_steps,
    notes,
    rule,
    setting,
    tone,
    words,
)

PASSED, FAILED, SKIPPED, XFAILED = Outcome.PASSED, Outcome.FAILED, Outcome.SKIPPED, Outcome.XFAILED
NO_CONTROL: dict[str, Any] = {"control": None, "frozen_baseline_acc": None}


@pytest.mark.parametrize(
    ("found", "expected", "outcome"),
    [
        ("PASS", None, PASSED),
        ("FIRE", None, FAILED),
        ("INCONCLUSIVE", None, FAILED),
        (None, None, SKIPPED),
        ("PASS", "PASS", PASSED),
        ("FIRE", "FIRE", XFAILED),
        ("INCONCLUSIVE", "INCONCLUSIVE", XFAILED),
        ("PASS", "FIRE", FAILED),
        ("FIRE", "PASS", FAILED),
        (None, "PASS", SKIPPED),
        (None, "FIRE", FAILED),
    ],
)
def test_a_record_decides_with_what_was_found(found: str, expected: str, outcome: Outcome) -> None:
    assert decide(found, expected) is outcome


@pytest.mark.parametrize(
    ("row", "said", "colour"),
    [
        (builders.row(builders.healthy()), "trustworthy", "green"),
        (builders.row(builders.exploded()), "walk back (a b d)", "red"),
        (builders.row(builders.healthy(**NO_CONTROL)), "incomplete (d not measured)", "yellow"),
        (builders.row(builders.PENALISED), "walk back (d; c not measured)", "red"),
        (builders.row(builders.exploded(), expected=("a", "b", "d")), "walk back (a b d)", "red"),
        (
            builders.row(builders.exploded(), expected=("a",)),
            "walk back (a b d), expected a",
            "red",
        ),
        (builders.row(builders.healthy(), expected=("b",)), "trustworthy, expected b", "green"),
        (
            builders.row(builders.exploded(), expected=()),
            "walk back (a b d), expected nothing",
            "red",
        ),
        (
            Row("x", "x", reason="bad\nfile", outcomes={"a": Outcome.ERROR}),
            "error: bad\\nfile",
            "red",
        ),
        (Row("x", "x", outcomes={"a": Outcome.NOT_RUN}), "not run", "red"),
        (Row("x", "x", outcomes={"a": SKIPPED}), "skipped", ""),
    ],
)
def test_a_row_says_what_became_of_it(row: Row, said: str, colour: str) -> None:
    assert words(row) == said
    assert tone(row) == colour


def test_an_error_of_several_networks_is_told_once_and_names_each_once() -> None:
    rows = []
    for name in ("runs/a.pt", "runs/b.pt"):
        reason = f"{name}: the factory takes width"
        rows.append(Row(name, "x", reason=reason, outcomes={"a": Outcome.ERROR}))
    assert notes(of(*rows)) == ["runs/a.pt and runs/b.pt: the factory takes width"]


def test_an_error_cannot_pass_and_a_fire_in_it_still_counts() -> None:
    errors = dict.fromkeys("ab", Outcome.ERROR) | dict.fromkeys("cd", PASSED)
    healthy, exploded = (
        builders.row(made, outcomes=errors) for made in (builders.healthy(), builders.exploded())
    )
    assert words(healthy) == "incomplete (a b error)"
    assert healthy.conclusion.passed == ("c", "d")
    assert exploded.conclusion.fired == ("a", "b", "d") and exploded.conclusion.errors == ("a", "b")


def test_only_what_ran_counts() -> None:
    report = builders.exploded()
    assert builders.row(report, outcomes={"c": PASSED}).conclusion.fired == ()
    assert builders.row(report, outcomes={"a": FAILED, "b": Outcome.NOT_RUN}).conclusion.fired == (
        "a",
    )
    assert Row("x", "dfa", report=report).conclusion.fired == (
        "a",
        "b",
        "d",
    )  # a test used the whole report


def test_a_likely_fire_has_a_question_mark() -> None:
    fired = builders.row(builders.PENALISED.replace(bp_grad_norms=(None, None, 1e-9, None, None)))
    assert words(fired) == "walk back (b? d; c not measured)"
    assert details(fired) == "b likely"


def test_a_control_in_doubt_leaves_a_row_incomplete() -> None:
    probes = builders.probed(builders.healthy(), 0.85, 0.9, 0.9, 0.9, 0.9, null=0.88)
    row = builders.row(probes, outcomes=dict.fromkeys("abcd", PASSED))
    assert row.conclusion.word is Word.INCOMPLETE
    assert words(row) == "incomplete (d in doubt)"


def test_rows_of_one_checkpoint_become_one() -> None:
    made = builders.exploded()
    whole = builders.row(made)
    single = [
        builders.row(made, outcomes={key: outcome}) for key, outcome in whole.outcomes.items()
    ]
    assert united(reversed(single)) == (whole,)
    worse = builders.row(made, outcomes={"a": Outcome.ERROR}, reason="lost")
    (row,) = united([*single, worse])
    assert row.outcomes == whole.outcomes | {"a": Outcome.ERROR} and row.reason == "lost"
    lenient = made.replace(thresholds=made.thresholds.replace(h_norm_explosion_ratio=1e9))
    for pair in ((made, lenient), (lenient, made)):
        (row,) = united(map(builders.row, pair))
        assert row.report == made  # of two thresholds the one that more falls short of


def test_the_reason_of_a_row_does_not_depend_on_the_order_of_its_tests() -> None:
    report = builders.exploded()
    alone = [
        builders.row(report, outcomes={key: outcome}, reason=f"why {key} {outcome.value}")
        for key, outcome in {
            "a": FAILED,
            "b": FAILED,
            "d": Outcome.ERROR,
            "e": Outcome.ERROR,
        }.items()
    ]
    for rows in itertools.permutations(alone):
        (row,) = united(rows)
        assert row.reason == "why d error" and [*row.outcomes] == ["a", "b", "d", "e"]
    for rows in itertools.permutations(alone[:2]):
        assert united(rows)[0].reason == "why a failed"


def test_reports_of_one_checkpoint_add_up() -> None:
    whole = builders.probed(builders.exploded())
    alone = whole.replace(diagnostics=("depth-utility",), residual_norms=(), bp_grad_norms=())
    rest = whole.replace(diagnostics=whole.diagnostics[:4], depth=None)
    (row,) = united([builders.row(alone), builders.row(rest)])
    assert row.report is not None
    assert row.report == whole.replace(diagnostics=row.report.diagnostics)


def test_rows_cross_a_process_as_they_are(audit: Audit) -> None:
    for row in audit.rows:
        assert msgspec.convert(msgspec.to_builtins(row), Row) == row


@pytest.mark.parametrize(
    ("outcomes", "interrupted", "code"),
    [
        ([PASSED, XFAILED, SKIPPED], False, 0),
        ([PASSED, FAILED], False, 1),
        ([PASSED, Outcome.ERROR], False, 1),
        ([PASSED, Outcome.NOT_RUN], False, 1),
        ([Outcome.NOT_RUN], False, 5),
        ([], False, 5),
        ([PASSED], True, 2),
    ],
)
def test_an_audit_exits_as_pytest_does(
    outcomes: list[Outcome], interrupted: bool, code: int
) -> None:
    row = Row("x", "x", outcomes=dict(zip("abcd", outcomes, strict=False)))
    assert Audit((row,), interrupted=interrupted).exit_code == code


def test_margins_are_called_by_their_interval() -> None:
    high, around = builders.seed_margin(5.0), builders.seed_margin(2.0)
    assert margin_words(builders.margin("dfa")) == "margin < 2 pp [−11.5, −9.9]"
    assert margin_words(builders.margin("dfa", margin=high), bounds=False) == "margin ≥ 2 pp"
    assert margin_words(builders.margin("dfa", margin=around)) == "inconclusive [+1.2, +2.8]"
    assert (
        margin_words(builders.margin("dfa", expected="PASS"), bounds=False)
        == "margin < 2 pp, expected ≥ 2 pp"
    )
    assert margin_words(builders.margin("dfa", margin=None, outcome=SKIPPED)) == "margin not judged"
    assert (
        margin_words(builders.margin("dfa", margin=None, outcome=Outcome.ERROR, reason="x"))
        == "error: x"
    )


def test_the_headline_counts(audit: Audit) -> None:
    assert headline(audit) == (
        "7 checkpoints and 1 log: 3 walk back, 2 trustworthy, 1 incomplete, "
        "2 without a verdict; seed margins: 1 pass, 1 fail, 1 skipped"
    )
    assert headline(of(builders.row(builders.exploded()))) == "dfa, seed 42: walk back (a b d)"
    assert headline(msgspec.structs.replace(audit, interrupted=True)).startswith(
        "interrupted: 7 checkpoints"
    )


def test_a_record_that_is_met_is_one_line(audit: Audit) -> None:
    met = of(
        builders.row(builders.exploded(), expected=("a", "b", "d")),
        builders.row(builders.healthy(), expected=()),
    )
    assert legend(met) == ["✗ fails", "2 verdicts match the record"]
    alone = builders.row(builders.healthy(), expected=())
    with_margin = builders.margin("bp", outcome=PASSED, expected="PASS")
    assert legend(of(alone)) == ["1 verdict matches the record"]
    both = "1 verdict and 1 seed margin match the record"
    assert legend(of(alone, margins=(with_margin,))) == [both]
    assert "differs from expected.json: runs/bp_s2.pt and dfa::seed-margin" in legend(audit)


def test_notes_name_rows_once_and_what_differs() -> None:
    rows = [
        builders.row(builders.healthy(seed=seed, caveats=("cut",)), cached=True) for seed in (1, 2)
    ]
    rows.append(
        builders.row(builders.healthy(seed=3, environment={"torch": "2.0"}).replace(thresholds=LOW))
    )
    found = notes(of(*rows))
    assert "bp (2 networks): cut" in found
    assert "these rows differ in their torch versions: 2.0, 2.13.0" in found
    assert "non-default thresholds: frozen_acc_margin_pp 1 (default 2)" in found


def test_the_next_step_is_one_line_for_all_that_need_the_same() -> None:
    origin = Origin(created="", options={"model": ("lab:Net",), "train": ("auto",)})
    open_ = [builders.healthy(seed=seed, control=None) for seed in (1, 2)]
    rows = [builders.row(made) for made in (*open_, builders.exploded(), builders.healthy("fa"))]
    command = "fadiag control {} --model=lab:Net, then --fa-frozen)"
    assert next_steps(of(*rows, origin=origin)) == [
        f"bp (2 networks): train a control ({command.format('FILE')}",
        "runs/dfa_s42.pt: report no Γ; claim no gain from the blocks",
    ]
    assert next_steps(of(rows[0], origin=origin)) == [
        f"train a control ({command.format('runs/bp_s1.pt')}"
    ]
    errors = msgspec.structs.replace(
        rows[3], outcomes={"a": PASSED, "b": Outcome.ERROR, "d": Outcome.NOT_RUN}
    )
    expected = "mend the error of gradient-floor; run direction-drift and frozen-margin too"
    assert next_steps(of(errors)) == [expected]


def test_notes_that_differ_in_numbers_alone_are_one() -> None:
    texts = ("0.75 of h_0, {} −0.5 pp", "0.9 of h_0, {} −0.5 pp", "0.8 of h_0, {} −1.5e-1 pp")
    rows = [
        builders.row(builders.healthy(method, seed, caveats=(text,)))
        for seed, (method, text) in enumerate(zip(("bp", "dfa", "bp"), texts, strict=True))
    ]
    rows.append(builders.row(builders.healthy(seed=9, caveats=("0.9 of h_1, {} −0.5 pp",))))
    assert notes(of(*rows)) == [
        "bp and dfa (3 networks): 0.75 to 0.9 of h_0, {} −0.5 to −1.5e-1 pp",
        "runs/bp_s9.pt: 0.9 of h_1, {} −0.5 pp",
    ]


LOW = builders.BP.thresholds.replace(margin_pp=1)


def test_thresholds_are_said_in_words(audit: Audit) -> None:
    rules = [rule(diagnostic, audit) for diagnostic in audit.diagnostics]
    assert rules[0] == "growth > 50×" and rules[3] == "margin < 2 pp"
    assert setting(audit)["fails if"].startswith("(a) growth > 50× · (b) ")
