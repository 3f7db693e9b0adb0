"""Numbers exactly at a boundary, and intervals of few images by hand: what a mutant of the judge would otherwise survive."""

from __future__ import annotations

import math

import pytest
from builders import BP, report

from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.judge.margins import Interval, binomial_interval, paired_interval
from pytest_fadiag.judge.records import AuxiliaryStatistics
from pytest_fadiag.judge.thresholds import DiagnosticThresholds


def test_the_paired_interval_by_hand() -> None:
    # n = 8 + 2, a = (3+1)/10, b = (1+1)/10: centre 0.2, half width 1.96 * sqrt((0.6 - 0.04)/10)
    interval = paired_interval(3, 1, 8)
    half = 1.959964 * math.sqrt(0.056)
    assert (interval.low, interval.high) == (pytest.approx(20 - 100 * half, abs=1e-4), pytest.approx(20 + 100 * half, abs=1e-4))


def test_the_unpaired_interval_by_hand() -> None:
    # (4+1)/10 = 0.5 and (1.5+1)/8 = 0.3125
    interval = binomial_interval(0.5, 8, 0.25, 6)
    half = 1.959964 * math.sqrt(0.25 / 10 + 0.3125 * 0.6875 / 8)
    expected = (pytest.approx(18.75 - 100 * half, abs=1e-4), pytest.approx(18.75 + 100 * half, abs=1e-4))
    assert (interval.low, interval.high) == expected


def test_an_interval_contains_its_ends() -> None:
    interval = Interval(-1.0, 2.0, "by hand")
    assert [value in interval for value in (-1.0, 2.0, -1.0001, 2.0001)] == [True, True, False, False]


def fired(**changes: object) -> str:
    return report(BP, **changes).fired


def test_a_growth_of_exactly_the_ratio_passes_and_a_hair_more_fires() -> None:
    assert "a" not in fired(residual_norms=[1.0, 50.0, 50.0, 50.0, 50.0])
    assert "a" in fired(residual_norms=[1.0, 50.001, 50.0, 50.0, 50.0])


def test_a_gradient_of_exactly_the_floor_passes_and_so_does_one_excused_at_it() -> None:
    below = {"bp_grad_norms": [1e-4] * 4 + [9e-8]}
    assert "b" not in fired(bp_grad_norms=[1e-4] * 4 + [1e-7])
    assert "b" not in fired(**below, companions=AuxiliaryStatistics(gradient_per_unit_error=1e-7))
    assert "b" in fired(**below, companions=AuxiliaryStatistics(gradient_per_unit_error=9.9e-8))
    assert "b" in fired(**below)


def test_a_margin_of_exactly_the_minimum_passes() -> None:
    assert "d" not in fired(headline_acc=0.52, frozen_baseline_acc=0.5)
    assert "d" in fired(headline_acc=0.5199, frozen_baseline_acc=0.5)


def test_the_cumulative_form_judges_the_cumulative_growth() -> None:
    grown = {"residual_norms": [1.0, 10.0, 100.0, 1000.0, 1e4]}
    assert "a" not in fired(**grown)
    judged = report(BP, **grown, thresholds=DiagnosticThresholds().replace(growth="cumulative"))
    assert "a" in judged.fired and "1e+04" in judged.finding("a").headline.replace("1.0e+04", "1e+04")


@pytest.mark.parametrize("value", [True, "2", None, float("nan"), [2]])
def test_a_threshold_is_a_number(value: object) -> None:
    with pytest.raises(AuditError, match="frozen_acc_margin_pp must be a number from -100 to 100"):
        DiagnosticThresholds().replace(frozen_acc_margin_pp=value)
