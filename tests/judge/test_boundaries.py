"""Numbers exactly at a boundary, and intervals of few images by hand: what a mutant of the judge would otherwise survive."""

from __future__ import annotations

import math

import pytest
from builders import BP, report

from pytest_fadiag.judge.diagnostics.cause import CauseKind
from pytest_fadiag.judge.diagnostics.direction_drift import class_mix
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


def drifted(value: float = 0.9, **companions: object) -> str:
    return fired(cross_batch_stability=value, companions=AuxiliaryStatistics(**companions))  # type: ignore[arg-type]


def test_an_invariance_of_exactly_its_minimum_excuses_nothing() -> None:
    minimum = DiagnosticThresholds().sample_invariance_minimum
    assert "c" in drifted(sample_invariance=minimum) and "c" not in drifted(sample_invariance=minimum - 1e-6)
    assert "c" in drifted(invariance_between_samples=0.1) and "c" not in drifted(invariance_between_samples=0.0999)


@pytest.mark.parametrize(
    ("classes", "frequent", "share", "fires"),
    [
        (None, None, 0.99, True),
        (None, None, 0.9899, False),
        (3, 0.5, 0.75, True),  # half of what the most frequent label leaves
        (3, 0.5, 0.7499, False),
        (2, 0.5, 0.75, False),  # two classes: nothing is lacking in the probe
    ],
)
def test_where_no_pair_of_classes_is_left_the_share_of_one_class_decides(
    classes: int | None, frequent: float | None, share: float, fires: bool
) -> None:
    seen = {"label_classes": classes, "largest_label_share": frequent, "predicted_class_share": share}
    assert ("c" in drifted(sample_invariance=math.nan, **seen)) is fires


def test_an_output_that_drifts_by_exactly_the_ceiling_is_not_called_biased() -> None:
    for drift, biased in ((0.3, False), (0.301, True)):
        seen = AuxiliaryStatistics(sample_invariance=0.0, output_error_drift=drift)
        causes = report(BP, cross_batch_stability=0.9, companions=seen).finding("c").causes
        assert (CauseKind.BIASED_OUTPUT in [cause.kind for cause in causes]) is biased


def test_a_class_is_overweight_from_a_fifth_above_its_equal_share_on() -> None:
    assert 0.45 - 1 / 4 >= 0.2, "as the rule computes it"
    for share, said in ((0.45, True), (0.449, False)):
        seen = AuxiliaryStatistics(probe_classes=4, classes=4, largest_class_share=share)
        assert bool(class_mix(report(BP, companions=seen))) is said


def test_fewer_than_eight_batches_are_uncertain() -> None:
    for batches, said in ((7, True), (8, False)):
        assert ("make this cosine uncertain" in str(report(BP, companions=AuxiliaryStatistics(batches=batches)))) is said


@pytest.mark.parametrize("per_error", [0.0, math.inf])
def test_a_gradient_per_unit_error_that_is_none_excuses_nothing(per_error: float) -> None:
    at_zero = DiagnosticThresholds(g_norm_floor=0.0)
    seen = AuxiliaryStatistics(gradient_per_unit_error=per_error, output_error_norm=0.01)
    assert "b" in fired(bp_grad_norms=[1e-4] * 4 + [0.0], companions=seen, thresholds=at_zero)


def test_samples_are_confident_below_an_output_error_of_a_tenth() -> None:
    for error, kind in ((0.1, CauseKind.ABOVE_FLOOR_PER_ERROR), (0.0999, CauseKind.SATURATED)):
        seen = AuxiliaryStatistics(gradient_per_unit_error=1e-3, output_error_norm=error)
        judged = report(BP, bp_grad_norms=[1e-4] * 4 + [1e-8], companions=seen)
        assert [cause.kind for cause in judged.finding("b").causes] == [kind]
