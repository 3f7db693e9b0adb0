"""(f) judged: which sites count, what fires, and what a reader is told beside Γ."""

from __future__ import annotations

import math
from dataclasses import asdict

import pytest

from pytest_fadiag import DiagnosticReport, Status
from pytest_fadiag.judge.credit import Credit, SiteState

LETTERS = {"+": (0.5, 0.4), "0": (0.05, 0.01), "-": (-0.5, -0.4), "?": (math.nan, math.nan)}
"""Γ and nudge of a site that is aligned, null, against and undefined; the null goes from -0.1 to 0.1."""


def credit(states: str, *, embedding: str = "", **changes: object) -> Credit:
    pairs = [LETTERS[state] for state in embedding + states]
    n = len(pairs)
    values = {
        "source": "lab.rules:credit",
        "sites": tuple(f"h_{layer}" for layer in range(1 - len(embedding), len(states) + 1)),
        "gamma": tuple(gamma for gamma, _ in pairs),
        "null_mean": (0.0,) * n,
        "null_sd": (0.05,) * n,
        "null_low": (-0.1,) * n,
        "null_high": (0.1,) * n,
        "nudge": tuple(nudge for _, nudge in pairs),
        "random_nudge": ((-0.01, 0.0, 0.01, 0.02, -0.02),) * n,
        "magnitude": (2.0,) * n,
        "undefined": (0,) * n,
        "samples": 1280,
    }
    return Credit(**{**values, **changes})  # type: ignore[arg-type]


def report(seen: Credit, **changes: object) -> DiagnosticReport:
    values = {
        "method_name": "dfa",
        "residual_norms": [1.0, 1.1, 1.2],
        "bp_grad_norms": [1e-3, 1e-3, 1e-3],
        "stability_layer": 1,
        "cross_batch_stability": 0.0,
        "headline_acc": 0.9,
        "frozen_baseline_acc": 0.5,
        "diagnostics": ("residual-growth", "gradient-floor", "direction-drift", "frozen-margin", "credit-alignment"),
        "observations": {"credit": asdict(seen)},
    }
    return DiagnosticReport(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("gamma", "nudge", "state"),
    [
        (0.11, 0.01, "aligned"),
        (0.10, 0.50, "null"),
        (0.50, 0.0, "null"),
        (0.50, -0.1, "null"),
        (0.50, math.nan, "aligned"),
        (-0.11, -0.01, "against"),
        (-0.10, -0.5, "null"),
        (-0.5, 0.1, "null"),
        (-0.5, math.nan, "against"),
        (math.nan, 0.5, "undefined"),
    ],
)
def test_a_site_needs_gamma_beyond_its_null_and_a_nudge_that_agrees(gamma: float, nudge: float, state: str) -> None:
    assert credit("+", gamma=(gamma,), nudge=(nudge,)).state == (SiteState(state),)


@pytest.mark.parametrize(
    ("states", "fires"),
    [
        ("++++", False),
        ("+++0", False),
        ("++00", True),
        ("+000", True),
        ("+++-", True),
        ("++0", False),
        ("+00", True),
        ("?++", False),
    ],
)
def test_it_fires_where_half_of_the_block_sites_are_not_aligned_or_one_is_against(states: str, fires: bool) -> None:
    judged = report(credit(states)).finding("f")
    assert judged.fired is fires
    assert judged.value == states.count("+") / len(states)


def test_the_embedding_is_shown_and_never_counted() -> None:
    shown = report(credit("+00", embedding="+"))
    assert shown.finding("f").headline == "1 of 3 block sites aligned, not more than 50%"
    lines = [line.strip() for line in str(shown).splitlines() if line.strip().startswith("h_")]
    assert [line[:11] for line in lines] == ["h_1 aligned", "h_2 null   ", "h_3 null   ", "h_0 aligned"]
    assert lines[-1].endswith("(apart)")
    assert "null [-0.100, +0.100] z +10.0  nudge +0.400 random [-0.02, +0.02]  ‖a‖/‖g‖ 2" in lines[0]
    assert not report(credit("++", embedding="-")).finding("f").fired


def test_what_fired_says_where_and_the_verdict_names_it_last() -> None:
    fired = report(credit("+00-"), frozen_baseline_acc=0.89)
    assert fired.verdict == "needs walk-back: deep blocks fail to beat frozen-random baseline; credit is not aligned"
    flag = next(line for line in str(fired).splitlines() if "FLAG: credit" in line)
    assert "1 of 4 block sites aligned, and against the gradient at h_4. At h_4 a step along the credit raises the loss" in flag
    other = next(line for line in str(report(credit("+00"))).splitlines() if "FLAG: credit" in line)
    assert "At h_2 and h_3 the credit is no closer to the gradient than it would be with its features shuffled" in other


def test_the_share_is_a_threshold() -> None:
    thresholds = report(credit("+000")).thresholds
    assert not report(credit("+000"), thresholds=thresholds.replace(credit_aligned_share=0.2)).finding("f").fired
    assert report(credit("+++0"), thresholds=thresholds.replace(credit_aligned_share=1)).finding("f").fired
    assert not report(credit("++++"), thresholds=thresholds.replace(credit_aligned_share=1)).finding("f").fired


def test_gamma_against_a_reference_at_the_floor_says_so() -> None:
    shown = report(credit("++"), bp_grad_norms=[1e-3, 1e-8, 1e-9])
    assert shown.finding("f").outcome == "pass (against a reference at the floor)"
    assert "Γ is taken against a reference at the floor" in str(shown)
    assert "floor" not in report(credit("++")).finding("f").outcome


def test_credit_that_is_the_gradient_is_told_and_so_is_one_that_has_not_settled() -> None:
    ones = credit("++", gamma=(1.0, 1 - 1e-7), magnitude=(1.0, 1.0))
    assert "the credit is the BP gradient itself" in str(report(ones))
    unsettled = str(report(credit("+++", gamma=(0.99, 0.99, 0.999), magnitude=(4e-5, 0.014, 0.9))))
    assert "‖a‖/‖g‖ goes from 4.0e-05 to 0.9" in unsettled
    assert "BP gradient itself" not in unsettled
    assert "goes from" not in str(report(credit("+++", magnitude=(4e-5, 0.014, 0.9))))


def test_a_nudge_that_is_not_resolved_is_said() -> None:
    assert "nudge not resolved, so that Γ alone decides" in str(report(credit("+", nudge=(math.nan,))))


def test_what_was_not_measured_is_no_verdict() -> None:
    shown = report(credit("", problem="the credit function lab.rules:credit raised KeyError: 'Bs'"))
    assert shown.finding("f").status is Status.NOT_MEASURED
    assert "not measured: the credit function lab.rules:credit raised KeyError" in str(shown)
    assert shown.to_dict()["credit"] is None


def test_the_table_writes_how_many_of_how_many() -> None:
    shown = report(credit("+++0", embedding="+"))
    column = next(column for column in shown.available.columns if column.title == "credit")
    assert (column.value(shown), column.written(shown), column.show(2 / 3)) == (3, "3/4", "0.667")


def test_json_has_the_lists_and_reads_back_to_the_same_report() -> None:
    shown = report(credit("+0?", embedding="+"))
    values = shown.to_dict()
    assert values["credit"]["state"] == ["aligned", "aligned", "null", "undefined"]
    assert values["credit"]["gamma"] == [0.5, 0.5, 0.05, "NaN"]
    assert values["credit"]["z"][1] == pytest.approx(10)
    again = DiagnosticReport.from_dict(values)
    assert again.to_dict() == values
    assert str(again) == str(shown)


@pytest.mark.parametrize(("undefined", "state"), [(640, "aligned"), (641, "undefined"), (1277, "undefined")])
def test_a_gamma_of_fewer_than_half_of_the_samples_is_none(undefined: int, state: str) -> None:
    few = credit("++", gamma=(1.0, 1.0), undefined=(undefined,) * 2, magnitude=(1.0, 100.0))
    aligned = state == "aligned"
    assert few.state == (SiteState(state),) * 2
    shown = report(few)
    assert shown.finding("f").fired is not aligned
    assert ("the credit is the BP gradient itself" in str(shown)) is aligned
    assert ("the directions agree" in str(shown)) is aligned
    assert (
        f"is zero or not finite for {undefined:,} of 1,280 samples; Γ +1.000 is that of the others" in str(shown)
    ) is not aligned


SHUFFLED = "At {} the credit is no closer to the gradient than it would be with its features shuffled"
NO_DIRECTION = "At {} there is no direction to learn from"
RAISES = "At {} a step along the credit raises the loss."
BY_GAMMA = "At {} the credit points away from the gradient by Γ alone: where a step along it leads is not resolved."
NOT_DOWN = (
    "At {} the credit is closer to the gradient than with its features shuffled, yet a step along it does not lower the loss."
)
NOT_UP = "At {} the credit points away from the gradient by Γ, though a step along it does not raise the loss."
KINDS = (SHUFFLED, NO_DIRECTION, RAISES, BY_GAMMA, NOT_DOWN, NOT_UP)


@pytest.mark.parametrize(
    ("gamma", "nudge", "said"),
    [
        ((-0.5, 0.9, 0.9), (math.nan, 1.0, 1.0), {BY_GAMMA: "h_1"}),
        ((-0.5, -0.5, 0.9), (math.nan, -0.2, 1.0), {BY_GAMMA: "h_1", RAISES: "h_2"}),
        ((0.3, 0.3, 0.9), (-0.2, 0.0, 1.0), {NOT_DOWN: "h_1 and h_2"}),
        ((-0.3, -0.3, 0.9), (0.2, 0.0, 1.0), {NOT_UP: "h_1 and h_2"}),
        ((math.nan, 0.0, 0.9), (math.nan, -0.1, 1.0), {NO_DIRECTION: "h_1", SHUFFLED: "h_2"}),
        ((0.0, 0.3, -0.3), (0.1, -0.1, 0.1), {SHUFFLED: "h_1", NOT_DOWN: "h_2", NOT_UP: "h_3"}),
    ],
)
def test_a_flag_says_of_each_site_what_was_measured_there(
    gamma: tuple[float, ...], nudge: tuple[float, ...], said: dict[str, str]
) -> None:
    shown = report(credit("+++", gamma=gamma, nudge=nudge))
    flag = next(line for line in str(shown).splitlines() if "FLAG: credit" in line)
    for kind in KINDS:
        assert (kind.format(said[kind]) in flag) if kind in said else (kind.split("{} ")[1] not in flag), kind


def test_the_report_says_which_gradient_the_size_is_relative_to() -> None:
    assert "the g of ‖a‖/‖g‖ is that of the summed loss, without the 1/128 of (b)" in " ".join(str(report(credit("+"))).split())
