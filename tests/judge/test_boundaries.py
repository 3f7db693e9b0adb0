"""Numbers exactly at a boundary, and intervals of few images by hand: what a mutant of the judge would otherwise survive."""

from __future__ import annotations

import math
import sys
from dataclasses import asdict
from typing import Any

import pytest
from builders import BP, CREDIT, report

from pytest_fadiag.judge.bounds import Segment, ratio
from pytest_fadiag.judge.chance import at_chance, by_outputs
from pytest_fadiag.judge.control import Control
from pytest_fadiag.judge.depth import Depth, paired_mean
from pytest_fadiag.judge.diagnostics import DIAGNOSTICS
from pytest_fadiag.judge.diagnostics.cause import CauseKind
from pytest_fadiag.judge.diagnostics.depth_utility import draws_remark, idle_remark
from pytest_fadiag.judge.diagnostics.direction_drift import class_mix
from pytest_fadiag.judge.diagnostics.frozen_margin import doubts_about, in_words
from pytest_fadiag.judge.doubts import Doubt, DoubtKind, Fingerprint
from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.judge.keys import Keys
from pytest_fadiag.judge.margins import Interval, SeedMargin, Variance, binomial_interval, paired_interval, seed_margin
from pytest_fadiag.judge.records import Accuracy, AuxiliaryStatistics
from pytest_fadiag.judge.scale import scaled_up, spread_growth
from pytest_fadiag.judge.student_t import t95
from pytest_fadiag.judge.thresholds import DiagnosticThresholds, threshold_names
from pytest_fadiag.judge.trajectory import Point, Trajectory, credit_seen, says_something
from pytest_fadiag.judge.verdict import left_open


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
    assert "c" in drifted(sample_invariance=-math.inf) and "c" in drifted(invariance_between_samples=-math.inf)


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


def test_where_nothing_is_odd_nothing_is_said() -> None:
    assert class_mix(BP) == idle_remark(BP) == draws_remark(BP) == ""
    balanced = AuxiliaryStatistics(probe_classes=4, classes=4, largest_class_share=0.25)
    assert class_mix(report(companions=balanced)) == ""


@pytest.mark.parametrize(
    ("value", "low", "high", "said"),
    [
        (-1.0, -2.0, 0.0, "The interval, -2.00 to +0.00 pp, holds 0"),
        (-1.0, -2.0, -0.004, "is better by 1.00 pp (0.004 to 2.00). Trained so, the blocks do harm"),
        (1.0, 0.0, 1.9, "The interval, +0.00 to +1.90 pp, holds 0"),
        (1.0, 0.004, 1.9, "The blocks add 1.00 pp (0.004 to 1.90), less than the 2 pp that the protocol asks"),
        (1.0, 1.0, 1.001, "The blocks add 1.00 pp (1.00 to 1.00)"),
    ],
)
def test_what_a_short_margin_says_at_0(value: float, low: float, high: float, said: str) -> None:
    assert said in in_words(value, Interval(low, high, "by hand"), 2.0, "random blocks")


# --- stretches of the stream -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blocks", "before", "after", "growth"),
    [
        (1, 2.0, 8.0, 4.0),
        (2, 2.0, 8.0, 2.0),
        (2, 4.0, 1.0, 0.5),
        (3, 1.0, 1.0, 1.0),
        (2, 1e-300, 1e300, 1e300),  # the quotient overflows
        (2, 1e300, 1e-300, 1e-300),  # and underflows
        (2, 1e-320, 1e308, math.inf),
        (1, 0.0, 8.0, math.inf),
        (2, 0.0, 8.0, math.nan),
        (2, 8.0, 0.0, math.nan),
        (2, 8.0, math.inf, math.nan),
        (2, math.inf, 8.0, math.nan),
    ],
)
def test_the_growth_of_a_stretch_is_the_geometric_mean_of_its_blocks(
    blocks: int, before: float, after: float, growth: float
) -> None:
    assert Segment(3, 3 + blocks, before, after).growth == pytest.approx(growth, nan_ok=True)


@pytest.mark.parametrize(
    ("blocks", "after", "limit", "exceeds", "could"),
    [
        (1, 50.0, 50.0, False, 0),
        (1, 50.1, 50.0, True, 0),
        (2, 2500.0, 50.0, False, 2),
        (2, 2500.00001, 50.0, True, 2),
        (2, 2499.0, 50.0, False, 1),
        (2, 1.6, 1.5, False, 1),
        (2, 1.0, 0.0, True, 0),
        (2, 1.1, 1.0, True, 0),
        (2, 1.0, 1.0, False, 0),
        (2, 0.5, 2.0, False, 0),
        (2, math.inf, 50.0, False, 0),
        (4, 50.0**3 * 1.5, 50.0, False, 3),
    ],
)
def test_what_a_stretch_of_blocks_must_and_could_exceed(
    blocks: int, after: float, limit: float, exceeds: bool, could: int
) -> None:
    stretch = Segment(0, blocks, 1.0, after)
    assert (stretch.exceeds(limit), stretch.could_exceed(limit)) == (exceeds, could)


@pytest.mark.parametrize("limit", [1.5, 3.0, 7.0, 50.0, 0.3])
def test_an_exact_power_of_the_limit_does_not_exceed_it(limit: float) -> None:
    for blocks in range(2, 180):
        stretch = Segment(0, blocks, 1.0, limit**blocks)
        assert not stretch.exceeds(limit) and stretch.could_exceed(limit) == (blocks if limit > 1 else 0), blocks


def test_a_quotient_of_norms() -> None:
    assert (ratio(5.0, 2.0), ratio(5.0, 0.0), ratio(0.0, 2.0)) == (2.5, math.inf, 0.0) and math.isnan(ratio(0.0, 0.0))


# --- scale -----------------------------------------------------------------------------------------------------------


def along(*factors: float, **changes: Any) -> str:
    norms = [1.0]
    for factor in factors:
        norms.append(norms[-1] * factor)
    return spread_growth(report(residual_norms=norms, **changes))


def test_growth_that_is_spread_is_said_from_the_square_of_the_ratio_on() -> None:
    assert along(50.0, 50.0, 1.0) == "" and "by 2.6e+03 in all" in along(50.0, 50.0, 1.02)
    assert "by 1.09 in all" in along(1.03, 1.03, 1.03, thresholds=DiagnosticThresholds(h_norm_explosion_ratio=1.04))
    assert along(60.0, 60.0) == along(0.5, 0.5, thresholds=DiagnosticThresholds(h_norm_explosion_ratio=0.6)) == ""
    assert along(50.0, 50.0, 1.02, diagnostics=("gradient-floor",)) == along(50.0, 50.0, 1.02, depth_known=False) == ""
    assert spread_growth(report(residual_norms=[1.0, None, 2600.0])) == ""


def test_blocks_grow_alike_up_to_a_factor_of_two_and_a_dozen_is_listed() -> None:
    assert along(40.0, 20.0, 40.0).endswith("every block grows the stream by 20 to 40")
    assert along(42.0, 20.0, 42.0).endswith("its blocks multiply it by 42, 20, 42")
    assert along(20.0, 20.0, 20.0).endswith("every block grows the stream by 20")
    assert along(*[2.0, 5.0] * 6).endswith(", ".join(["2, 5"] * 6)) and along(*[2.0, 5.0] * 6, 2.0).endswith(" 2, 5 …")


def small(size: float, per_error: float, first: float | None = None, **changes: Any) -> str:
    seen = AuxiliaryStatistics(gradient_per_unit_error=per_error)
    norms = [first or size, size, size]
    return scaled_up(report(residual_norms=norms, bp_grad_norms=[1e-9] * 3, companions=seen, **changes))


def test_a_gradient_is_small_by_scale_where_its_product_with_the_stream_is_a_hundredth() -> None:
    assert 1e-8 * 1e6 == 0.01
    assert "per unit error 0.01, as in a healthy network" in small(1e6, 1e-8) and small(9.9e5, 1e-8) == ""
    assert small(1e6, 1e-8, 2e4) and small(1e6, 1e-8, 1.9e4) == "", "grown by 50 and by more"
    flagged = DiagnosticThresholds(confounds="flag")
    assert small(1e300, 1e300, thresholds=flagged) == "" and small(1e6, 1.0, thresholds=flagged)
    assert small(1e6, 1e-3) == "", "excused"


# --- chance, controls, doubts ----------------------------------------------------------------------------------------


def test_an_accuracy_two_standard_errors_from_chance_is_at_chance() -> None:
    two = AuxiliaryStatistics(classes=2)  # of 64 images: 2 * sqrt(0.25 / 64) = 0.125
    assert [at_chance(accuracy, two, 64) is not None for accuracy in (0.375, 0.625, 0.374, 0.626)] == [True, True, False, False]
    assert by_outputs(AuxiliaryStatistics()) == by_outputs(AuxiliaryStatistics(classes=2, label_classes=2)) == ""
    assert by_outputs(two).startswith("chance is taken as 1/2, by the outputs")


def test_what_names_a_control_is_one_line_and_its_config_is_plain() -> None:
    control = Control(Accuracy(0.5), "a\nb", "m\nn", config={"width": 8, "model": object()})
    assert (control.source, control.method, control.config) == ("a\\nb", "m\\nn", {"width": 8})
    assert Control(Accuracy(0.5)).method is None and str(Control(Accuracy(0.5)).kind) == "frozen"
    with pytest.raises(AuditError, match="the kind of a control is frozen, shallow, unmarked, not 'molten'"):
        Control(Accuracy(0.5), kind="molten")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("names", "said"), [("xyz", "it lacks x, y, z"), ("vwxyz", "it lacks v, w, x and 2 more"), ("x", "it lacks x")]
)
def test_three_tensors_are_named(names: str, said: str) -> None:
    (doubt,) = Fingerprint(dict.fromkeys(names, (1,))).doubts(Fingerprint(), shallow=False)
    assert (doubt.kind, doubt.detail) == (DoubtKind.OTHER_SHAPES, said)


@pytest.mark.parametrize(
    ("readout", "images", "accuracy", "doubted"),
    [
        (0.6, 200, 0.47, True),  # 0.6 - 2 * sqrt(0.24/100 + 0.2491/200) = 0.479
        (0.6, 200, 0.49, False),
        (0.5, 8, 0.0, False),  # 0.5 - 2 * sqrt(0.25/4) = 0, and not below it
        (0.6, None, 0.1, False),
    ],
)
def test_a_control_two_standard_errors_below_a_readout_of_half_of_its_images(
    readout: float, images: int | None, accuracy: float, doubted: bool
) -> None:
    control = Control(Accuracy(accuracy, images), probes=(readout, 0.9))
    found = [doubt.kind for doubt in doubts_about(report(frozen_baseline_acc=accuracy, control=control))]
    assert found == [DoubtKind.BELOW_READOUT] * doubted


def test_the_better_of_two_readouts_is_named_and_one_of_no_images_says_nothing() -> None:
    control = Control(Accuracy(0.3, 1000), probes=(0.7, 0.9))
    for read, said in ((500, "0.3000 against 0.8000"), (0, "0.3000 against 0.7000")):
        seen = {"depth": asdict(drawn_depth(probes=(0.8, 0.9), read=read))}
        (doubt,) = doubts_about(report(frozen_baseline_acc=0.3, control=control, observations=seen))
        assert (doubt.kind, doubt.detail) == (DoubtKind.BELOW_READOUT, said)


@pytest.mark.parametrize(("theirs", "said"), [("xy", ["all of their layers"]), ("xz", []), ("zz", [])])
def test_a_block_is_the_controls_where_all_of_its_matrices_are(theirs: str, said: list[str]) -> None:
    names = ("block.one", "block.two")
    own, control = (Fingerprint(weights=dict(zip(names, of, strict=True)), blocks=(names,)) for of in ("xy", theirs))
    assert [doubt.detail for doubt in own.doubts(control, shallow=False)] == said


def test_the_detail_of_a_doubt_has_an_end() -> None:
    assert Doubt(DoubtKind.TRAINED, "x" * 301).detail == "x" * 300


# --- the verdict -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "undecided"),
    [
        ({}, {}),
        ({"f": "error"}, {"f": "error"}),
        ({"f": "likely"}, {}),
        ({"f": "not run", "a": "likely"}, {"a": "likely", "f": "not run"}),
        ({"d": "likely"}, {"d": "likely"}),
        ({"d": "likely", "e": ""}, {}),
        ({"d": "likely", "e": "not measured"}, {"d": "likely", "e": "not measured"}),
    ],
)
def test_what_leaves_a_verdict_open(changed: dict[str, str], undecided: dict[str, str]) -> None:
    assert left_open(DIAGNOSTICS, {**dict.fromkeys("abcd", ""), **changed}, "not asked for") == undecided


# --- margins ---------------------------------------------------------------------------------------------------------


def test_points_are_rounded_to_nine_digits() -> None:
    assert report(headline_acc=2 / 3, frozen_baseline_acc=1 / 3).margin_pp == 33.333333333
    over = seed_margin([Accuracy(2 / 3, 900)] * 2, [Accuracy(1 / 3, 900)] * 2, 2.0)
    assert over.margin == 33.333333333
    assert (over.interval.low, over.interval.high) == (round(over.interval.low, 9), round(over.interval.high, 9))
    assert over.interval.low + over.interval.high == pytest.approx(200 / 3, abs=1e-8)
    assert drawn_depth(probes=(1 / 3, 2 / 3)).gain_pp == 33.333333333


def test_of_seeds_on_test_sets_of_several_sizes_the_smallest_counts() -> None:
    over = seed_margin([Accuracy(0.5, 1000), Accuracy(0.5, 2000)], [Accuracy(0.4, 4000), Accuracy(0.4, 500)], 2.0)
    assert over.variance.over_images == pytest.approx(1e4 * (0.25 / 1000 + 0.24 / 500)) and over.images == 500
    known = seed_margin([Accuracy(0.5, 1000), Accuracy(0.5)], [Accuracy(0.4), Accuracy(0.4, 3000)], 2.0)
    assert known.images == 1000 and known.assumed_images is None
    partly = seed_margin([Accuracy(0.5, 1000), Accuracy(0.5)], [Accuracy(0.4), Accuracy(0.4)], 2.0)
    assert (partly.images, partly.assumed_images) == (None, 1000)
    unknown = seed_margin([Accuracy(0.5)] * 2, [Accuracy(0.4)] * 2, 2.0)
    assert unknown.assumed_images == 10_000 and "10,000 were assumed" in unknown.caveat


def needed(variance: Variance, distance: float, images: int = 10_000) -> str:
    return SeedMargin(3, images, 2.0 + distance, Interval(-99.0, 99.0, ""), 2.0, variance).needed()


def test_a_thousand_seeds_are_the_most_that_are_named() -> None:
    """Without noise of the images the half width of n seeds is t(n - 1) times the root of 3·v_s/n."""
    spread = Variance(1.0, 0.0)
    at = {seeds: t95(seeds - 1) * math.sqrt(3 / seeds) for seeds in (4, 999, 1000)}
    assert needed(spread, at[4] * 1.0001).startswith("about 1 more seed (4 in all) would decide")
    assert needed(spread, at[4] * 0.9999).startswith("about 2 more seeds (5 in all)")
    assert needed(spread, at[1000] * 1.00001).startswith("about 997 more seeds (1,000 in all)")
    assert "so close to the minimum that more than 1,000 seeds" in needed(spread, at[1000] * 0.99999)


def test_endless_seeds_leave_the_noise_of_the_images() -> None:
    """Of three images with variance 1: t(2) = 4.3027, however many seeds."""
    assert t95(2) == pytest.approx(4.302653, abs=1e-6)
    assert "more seeds alone cannot decide" in needed(Variance(0.0, 1.0), 4.30, images=3)
    assert "so close to the minimum" in needed(Variance(1e4, 1.0), 4.31, images=3)


def first_that_decides(v: Variance, distance: float, images: int) -> int | None:
    """The number of seeds from which on every one decides, by the closed form for each of them; of 3 seeds at first."""
    open_at = 0
    for seeds in range(4, 1001):
        v_s, v_e = v.over_seeds * 3 / seeds, v.residual * 3 / seeds
        v_i = max(v.over_images - v.residual, 0.0) + min(v.over_images, v.residual) * 3 / seeds
        total = max(v_s + v_i - v_e, v_i)
        df = total**2 / (v_s**2 / (seeds - 1) + v_i**2 / (images - 1))
        open_at = seeds if t95(df) * math.sqrt(total) > distance else open_at
    return None if open_at == 1000 else max(open_at, 3) + 1


@pytest.mark.parametrize("images", [2, 3, 4, 10, 1000])
@pytest.mark.parametrize("spread", [Variance(6.0, 1.0), Variance(1.0, 0.3, 0.2), Variance(0.2, 0.5, 0.1)], ids=str)
def test_no_number_of_seeds_is_said_that_endless_many_would_undo(spread: Variance, images: int) -> None:
    """Of few images the degrees of freedom fall to theirs as seeds are added, and with 3 of them t rises to 4.3 again."""
    endless = t95(images - 1) * math.sqrt(spread.over_images - spread.residual)
    kinds = set()
    for share in (0.5, 0.9, 0.999, 1.001, 1.02, 1.1, 1.5, 2.5):
        said, least = needed(spread, share * endless, images), first_that_decides(spread, share * endless, images)
        if share < 1:
            assert said.startswith("more seeds alone cannot decide")
        else:
            assert (f"({least:,} in all) would decide" if least else "more than 1,000 seeds would be needed") in said
        kinds.add(said.split()[0])
    assert "about" in kinds


# --- probes ----------------------------------------------------------------------------------------------------------


def drawn_depth(**changes: Any) -> Depth:
    own: dict[str, Any] = {"probes": (0.5, 0.6), "step_intervals": ((0.0, 1.0),), "change": (0.5,), "nonfinite": (0, 0)}
    return Depth(**{**own, **changes})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"probes": (0.5,), "step_intervals": (), "change": (), "nonfinite": (0,)}, "probes has 1 entries"),
        ({"probes": ()}, "probes has 0 entries"),
        ({"nonfinite": (0,)}, "null, probes, nonfinite must have 2 entries each"),
        ({"null": ((0.5, 0.6), (0.5, 0.6, 0.7))}, "must have 2 entries each"),
        ({"step_intervals": ()}, "an entry for each of 1 blocks"),
        ({"change": ()}, "an entry for each of 1 blocks"),
        ({"probes": (0.5, 1.5)}, "fractions in"),
        ({"probes": (-0.1, 0.5)}, "fractions in"),
        ({"null": ((0.5, 1.01),)}, "fractions in"),
    ],
)
def test_probes_of_another_length_or_beyond_1_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(AuditError, match=said):
        drawn_depth(**changes)


def test_probes_that_read_nothing_or_everything_are_fractions_and_a_problem_needs_none() -> None:
    assert drawn_depth(probes=(0.0, 1.0)).gain_pp == 100 and Depth(problem="too few images").problem
    assert drawn_depth().idle == (0,), "an interval from 0 on excludes nothing"


def test_the_interval_of_one_image_ends_at_a_hundred_points() -> None:
    # n = 3, mean 1/3, variance 3/3 - 1/9: half width 1.96 * sqrt(8/27) = 1.067
    assert paired_mean([1.0]) == (pytest.approx(100 / 3 - 196 * math.sqrt(8 / 27), abs=0.01), 100.0)
    assert paired_mean([-1.0])[0] == -100.0


# --- thresholds and trajectories -------------------------------------------------------------------------------------


def test_thresholds_are_finite_floats_by_known_names() -> None:
    whole = DiagnosticThresholds(h_norm_explosion_ratio=sys.float_info.max, g_norm_floor=0)
    assert isinstance(whole.g_norm_floor, float) and whole.h_norm_explosion_ratio == sys.float_info.max
    assert whole.to_dict()["g_norm_floor"] == 0.0 and "others" not in threshold_names()
    assert set(threshold_names(short=True)) - set(threshold_names()) == {"margin_pp"}
    assert DiagnosticThresholds(others={"mine": 2.0}).by_name()["mine"] == 2.0
    assert DiagnosticThresholds(others={"mine": -sys.float_info.max}).others["mine"] == -sys.float_info.max
    for wrong in ({"confounds": "forgive"}, {"growth": "linear"}, {"others": {"mine": math.inf}}, {"g_norm_floor": math.inf}):
        with pytest.raises(AuditError, match=next(iter(wrong)) if "others" not in wrong else "mine"):
            DiagnosticThresholds(**wrong)  # type: ignore[arg-type]


def test_a_trajectory_keeps_what_decides_and_its_deepest_gradient() -> None:
    seen = AuxiliaryStatistics(samples=5, sample_invariance=0.2)
    course = Trajectory(
        (Point(1, (1.0, 2.0), (1e-3, None), companions=seen), Point(2, (1.0, 3.0), (1e-4, 1e-5), credit=CREDIT))
    )
    assert (course.points[0].companions.samples, course.points[0].companions.sample_invariance) == (None, 0.2)
    assert (course.gradient_layer, course.gradient_norm, course.aligned) == (1, (None, 1e-5), (None, 1.0))
    bare = Trajectory((Point(1, (1.0, 2.0), (None, None)),))
    assert (bare.gradient_layer, bare.gradient_norm) == (None, (None,))
    assert credit_seen(course.points[0]) == {} and credit_seen(course.points[1]) == {"credit": asdict(CREDIT)}


def test_the_epochs_at_which_a_number_was_excused() -> None:
    """The cosine of 0.9 is excused by an invariance below 0.1, and fires above it."""
    points = tuple(
        Point(epoch, BP.residual_norms, BP.bp_grad_norms, drift, 0.6, AuxiliaryStatistics(sample_invariance=invariance))  # type: ignore[arg-type]
        for epoch, drift, invariance in ((1, 0.9, 0.0), (2, 0.1, 0.0), (3, 0.9, 0.5), (4, 0.9, 0.05))
    )
    course = report(trajectory=Trajectory(points)).trajectory
    assert course is not None and (course.excused, course.first_fired) == ({"c": (1, 4)}, {"c": 3})
    assert course.line(Keys("")) == "first fired: (c) epoch 3 (not at the end) of 4"
    assert course.line(Keys("bc")) == "first fired: (c) epoch 3 of 4, (b) only in the final numbers"
    quiet = Trajectory(points[:2])
    assert quiet.line(Keys("")) == "" and quiet.line(Keys("b")) == "first fired: (b) not logged by epoch"
    assert Trajectory(points[:1], first_fired={"c": 1}).line(Keys("c")) == ""


@pytest.mark.parametrize(
    ("name", "column", "says"),
    [
        ("nonfinite_states", [(0, 0), (0, 0)], False),
        ("nonfinite_states", [(0, 0), (0, 1)], True),
        ("nonfinite_logits", [0, 0], False),
        ("nonfinite_logits", [0, 3], True),
        ("sample_invariance", [None, 0.0], True),
        ("sample_invariance", [None, None], False),
    ],
)
def test_a_column_of_a_trajectory_that_says_nothing(name: str, column: list[Any], says: bool) -> None:
    assert says_something(name, column) is says
