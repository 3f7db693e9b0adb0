"""What each diagnostic decides, case by case, and that it claims no more than its interval."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from builders import BP, PENALISED, credited, floored, healthy, probed, report
from hypothesis import given
from hypothesis import strategies as st

from pytest_fadiag.judge.control import Control, ControlKind, Doubt, Severity
from pytest_fadiag.judge.diagnostics.residual_growth import growth, largest_growth
from pytest_fadiag.judge.records import Log, Precision, Resolution, Score, StreamInfo
from pytest_fadiag.judge.report import Report
from pytest_fadiag.judge.thresholds import DiagnosticThresholds

NAN, INF = math.nan, math.inf


def thresholds(**changes: Any) -> DiagnosticThresholds:
    return DiagnosticThresholds().replace(**changes)


def outcome(made: Report, key: str) -> tuple[str, float | None]:
    finding = made.finding(key)
    return finding.outcome, finding.value


# --- (a) ---


@pytest.mark.parametrize(
    ("norms", "expected"),
    [
        ([1, 50, 50], ("pass", 50.0)),
        ([1, 50.001, 50], ("fail", 50.001)),
        ([1, 40, 1600], ("pass", 40.0)),
        ([1, NAN, 1], ("fail (non-finite)", None)),
        ([1, INF, 1], ("fail (non-finite)", None)),
        ([1, 0, 1], ("fail (all-zero stream)", None)),
        ([0, 0, 0], ("fail (all-zero stream)", None)),
        ([1, None, None, None, 6_250_000], ("likely pass (a bound)", 50.0)),
        ([1, None, None, None, 6_250_001], ("fail", pytest.approx(50.000002))),
        ([9, None, None, None, 4e4], ("likely pass (a bound)", pytest.approx((4e4 / 9) ** 0.25))),
        ([None, None, None, None, 4e4], ("not measured", None)),
        ([9, None, 3, None, 4e4], ("not measured", None)),
        ([None] * 5, ("not measured", None)),
    ],
)
def test_growth_is_the_largest_of_a_block(norms: list[float], expected: tuple[str, Any]) -> None:
    words, value = outcome(report(residual_norms=norms, log=Log(gradient_batch=128)), "a")
    assert words == expected[0]
    assert expected[1] is None or value == expected[1]


@given(st.lists(st.floats(1e-3, 1e6), min_size=2, max_size=9), st.floats(1.5, 1e3))
def test_a_bound_fires_only_where_the_blocks_do(norms: list[float], most: float) -> None:
    """h_0 and h_L alone never fire where all norms pass, and count the blocks that could."""
    ratio = thresholds(h_norm_explosion_ratio=most)
    exact = report(residual_norms=norms, thresholds=ratio).finding("a")
    ends = [norms[0], *[None] * (len(norms) - 2), norms[-1]]
    bound = report(residual_norms=ends, thresholds=ratio, log=Log()).finding("a")
    assert exact.fired == (max(b / a for a, b in pairwise(norms)) > most)
    assert exact.fired or not bound.fired
    assert bound.value is not None and exact.value is not None
    assert bound.value <= exact.value * (1 + 1e-9) or bound.value <= most


def test_the_cumulative_form_compares_with_the_embedding() -> None:
    norms = [1, 30, 900, 10]
    made = report(residual_norms=norms, thresholds=thresholds(growth="cumulative"))
    assert outcome(made, "a") == ("fail", 900.0)
    assert "per-block growth 30.0" in made.lines("a") and "cumulative growth 900" in made.lines("a")
    assert largest_growth([2.0, None, 6.0], "cumulative") == 3
    ends = report(
        residual_norms=[1, None, 0.5], log=Log(), thresholds=thresholds(growth="cumulative")
    )
    assert outcome(ends, "a") == ("likely pass (a bound)", 1.0)


def test_where_the_shape_changes_growth_compares_root_mean_squares() -> None:
    stream = StreamInfo(blocks=("s.0", "s.1"), residual=True, sizes=(1, 10_000, 100))
    made = report(residual_norms=[1, 200, 20], stream=stream)
    assert growth(made) == 2 and "root mean square" in made.lines("a")
    same = msgspec.structs.replace(stream, sizes=(9, 9, 9))
    assert growth(made.replace(stream=same)) == 200


def test_blocks_are_counted_that_could_still_exceed_the_ratio() -> None:
    assert "up to 2 of 4 blocks could exceed it" in PENALISED.finding("a").headline
    tame = PENALISED.replace(residual_norms=[9, None, None, None, 40])
    assert "no block exceeds it unless another shrinks" in tame.finding("a").headline
    unknown = Log(depth_known=False)
    assert outcome(tame.replace(log=unknown), "a")[0] == "likely pass (a bound)"
    assert "log n_blocks" in PENALISED.replace(log=unknown).finding("a").headline


def test_a_flag_names_the_block_that_explodes() -> None:
    stream = StreamInfo(blocks=("body.0", "body.1"), residual=True)
    made = report(residual_norms=[2, 3, 900], stream=stream)
    assert "It explodes in body.1." in made.lines("a")


# --- (b) ---


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ({"bp_grad_norms": [1, 1e-7]}, "pass"),
        ({"bp_grad_norms": [1, 9.99e-8]}, "fail"),
        ({"bp_grad_norms": [1, 0]}, "fail (all-zero gradient)"),
        ({"bp_grad_norms": [NAN, 1]}, "fail (non-finite)"),
        ({"bp_grad_norms": [1, 1], "nonfinite_gradients": (0, 2)}, "fail (non-finite)"),
        ({"gradient_per_unit_error": 1e-7}, "pass (saturated)"),
        ({"gradient_per_unit_error": 9e-8}, "fail"),
        ({"gradient_per_unit_error": INF}, "fail"),
        ({"gradient_per_unit_error": NAN}, "fail"),
        ({"gradient_per_unit_error": 5e-3, "output_error_norm": 0.09}, "pass (saturated)"),
        (
            {"gradient_per_unit_error": 5e-3, "output_error_norm": 0.1},
            "pass (above the floor per unit error)",
        ),
        ({"gradient_per_unit_error": 5e-3, "thresholds": thresholds(confounds="flag")}, "fail"),
        ({"log": Log(gradient_batch=128)}, "fail"),
        ({"log": Log()}, "likely fail (batch size 128 assumed)"),
        ({"log": Log(assumed_batch=1024)}, "likely fail (batch size 1,024 assumed)"),
        (
            {"bp_grad_norms": [None, 1, None], "log": Log(gradient_batch=128)},
            "likely pass (‖g_1‖ as a proxy for ‖g_L‖)",
        ),
        (
            {"bp_grad_norms": [None, 0, None], "log": Log()},
            "likely fail (all-zero gradient; ‖g_1‖ as a proxy for ‖g_L‖)",
        ),
        ({"bp_grad_norms": [None, None], "log": Log()}, "not measured"),
    ],
)
def test_the_deepest_gradient_against_the_floor(numbers: dict[str, Any], expected: str) -> None:
    made = report(**{"bp_grad_norms": [1, 4e-8], **numbers})
    assert made.finding("b").outcome == expected
    assert made.finding("b").exempted == (expected.startswith("pass ("))


@pytest.mark.parametrize(
    ("task", "loss"),
    [("classes", "squared error"), ("regression", "squared error"), ("tokens", "cross-entropy")],
)
def test_outside_cross_entropy_on_classes_the_gradient_per_unit_error_decides(
    task: str, loss: str
) -> None:
    made = report(task=task, loss=loss, bp_grad_norms=[1e-9] * 5, gradient_per_unit_error=1e-3)
    assert made.finding("b").outcome == "pass" and made.finding("b").value == 1e-3
    assert "the gradient per unit error decides" in made.lines("b") and "1.0e-9" in made.lines("b")
    low = made.replace(bp_grad_norms=[1.0] * 5, gradient_per_unit_error=1e-8)
    assert low.finding("b").headline.endswith(": ‖g_L‖ per unit of output error 1.0e-8 < 1e-7")
    for unknown in (None, NAN):
        none = low.replace(gradient_per_unit_error=unknown).finding("b")
        assert none.outcome == "not measured" and none.headline.endswith("it is not defined")
    plain = report(bp_grad_norms=[1e-9] * 5, gradient_per_unit_error=1e-8)
    assert "decides" not in plain.lines("b")


def test_a_small_gradient_is_called_small_and_not_imprecise() -> None:
    dtypes = (
        Resolution(dtype="float32", cosine=1.0),
        Resolution(dtype="float16", cosine=NAN, lost=128),
        Resolution(dtype="bfloat16", problem="does not run"),
    )
    precision = Precision(samples=128, dtypes=dtypes)
    made = report(bp_grad_norms=[1, 4e-8], precision=precision)
    assert made.finding("b").claim == "BP gradient below the protocol floor"
    assert made.verdict == "needs walk-back: BP grad at numerical floor"
    assert "float32 1.0000; float16 lost; bfloat16 does not run" in made.lines("b")


# --- (c) ---


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ({"cross_batch_stability": 0.3}, "pass"),
        ({"cross_batch_stability": -1.0}, "pass"),
        ({}, "fail"),
        ({"cross_batch_stability": NAN}, "fail (undefined)"),
        ({"nonfinite_gradients": (0, 0, 3, 0, 0)}, "fail (non-finite)"),
        ({"nonfinite_gradients": (3, 3, 0, 3, 3)}, "fail"),
        ({"cross_batch_stability": None}, "not measured"),
        ({"eval_classes": 1}, "not measured"),
        ({"sample_invariance": 0.10}, "fail"),
        ({"sample_invariance": 0.099}, "pass (not sample-invariant)"),
        ({"sample_invariance": -INF}, "fail"),
        (
            {"sample_invariance": 0.03, "output_error_drift": 0.55},
            "pass (not sample-invariant; biased output 0.550)",
        ),
        ({"output_error_drift": 0.55}, "fail (biased output 0.550)"),
        ({"sample_invariance": 0.0, "thresholds": thresholds(confounds="flag")}, "fail"),
        ({"sample_invariance": NAN}, "fail"),
        (
            {"sample_invariance": NAN, "predicted_class_share": 0.98},
            "pass (not driven to one class)",
        ),
        ({"sample_invariance": NAN, "predicted_class_share": 0.99}, "fail"),
        (
            {
                "sample_invariance": NAN,
                "predicted_class_share": 0.61,
                "label_classes": 10,
                "label_class_share": 0.2,
            },
            "pass (not driven to one class)",
        ),
        ({"sample_invariance": NAN, "task": "regression"}, "not resolved"),
        ({"sample_invariance": 0.2, "task": "regression"}, "fail"),
        ({"log": Log(gradient_batch=128)}, "fail"),
        ({"log": Log(gradient_batch=1024)}, "likely fail (batches of 1024, not 128)"),
        ({"log": Log()}, "likely fail (batches of unknown size, not 128)"),
    ],
)
def test_one_direction_for_all(numbers: dict[str, Any], expected: str) -> None:
    made = report(**{"cross_batch_stability": 0.5, **numbers})
    assert made.finding("c").outcome == expected


# --- (d) ---


def against(margin: float, images: int | None = 10_000, **control: Any) -> Report:
    theirs = Control(Score(0.7, images), "frozen.pt", **control)
    return BP.replace(score=Score(round(0.7 + margin / 100, 6), images), control=theirs)


@pytest.mark.parametrize(
    ("made", "status", "claim"),
    [
        (against(2.0), "pass (threshold inside the 95 % CI)", ""),
        (against(5.0), "pass", ""),
        (against(-5.0), "fail", "worse than frozen random blocks"),
        (against(0.5), "fail", "no measurable margin over frozen random blocks"),
        (against(1.9), "not resolved", ""),
        (against(1.3, 100_000), "fail", "margin over frozen random blocks below 2 pp"),
        (against(-5.0, None), "fail", "margin over frozen random blocks below 2 pp"),
        (against(-5.0, kind=ControlKind.SHALLOW), "fail", "worse than no blocks"),
        (
            against(-5.0, method="fa"),
            "fail (control in doubt)",
            "margin over this control below 2 pp",
        ),
        (against(3.0, 400), "not resolved", ""),
        (against(1.9, method="fa"), "not resolved", ""),
        (
            against(5.0, doubts=(Doubt(Severity.WARNING, "trained"),)),
            "pass (control in doubt)",
            "",
        ),
        (against(5.0, doubts=(Doubt(Severity.INVALID, "rejected"),)), "not measured", ""),
        (against(-5.0).replace(control=None), "not measured", ""),
        (against(5.0).replace(nonfinite_outputs=3), "fail (non-finite)", "outputs are not finite"),
    ],
)
def test_a_margin_claims_what_its_interval_says(made: Report, status: str, claim: str) -> None:
    finding = made.finding("d")
    assert (finding.outcome, finding.claim) == (status, claim)
    assert not claim or f"fails: {claim}: " in made.lines("d")


def test_a_margin_of_exactly_two_points_passes() -> None:
    made = report(headline_acc=0.369, frozen_baseline_acc=0.349)
    assert made.margin_pp == 2 and not made.finding("d").fired
    short = report(headline_acc=0.3689999, frozen_baseline_acc=0.349)
    assert "margin +1.99999 pp < 2 pp" in short.finding("d").headline


def test_an_unresolved_margin_says_what_would_decide_and_the_published_form_goes_by_its_point() -> (
    None
):
    made = against(1.4, 4_000).replace(protocol="three", diagnostics=("a", "b", "d"))
    finding = made.finding("d")
    assert finding.outcome == "not resolved" and finding.interval is not None
    low, high = finding.interval
    assert low < 1.4 and high > 2
    assert finding.headline.endswith("]: whether it reaches 2 pp is undecided")
    assert finding.remedy.endswith("number or test on about 45,000 samples")
    assert made.frozen_baseline_undercut is None and made.published == "FAIL(D3)"
    above = against(2.4, 4_000).replace(protocol="three", diagnostics=("a", "b", "d"))
    assert above.finding("d").passed and above.published == "PASS"
    assert against(2.4, 400).replace(protocol="three").published == "PASS"
    outcomes = Score.of([True, False, True, True] * 30, "o")
    paired = against(0.0).replace(score=outcomes, control=Control(outcomes, "frozen.pt"))
    assert "samples or audit several seeds" in paired.finding("d").remedy


def test_a_plain_control_decides_nothing_where_classes_differ_in_size() -> None:
    labels = [0] * 600 + [1] * 300
    score = Score.of([True] * 900, labels=labels)
    made = BP.replace(score=score, control=Control(Score(0.5, 900)))
    finding = made.finding("d")
    assert finding.outcome == "not resolved" and "classes differ in size" in finding.headline
    assert finding.remedy == "give the control itself in place of a number"
    itself = Control(Score.of([False, True, True, False, True] * 180, labels=labels), "frozen.pt")
    decided = made.replace(control=itself)
    assert decided.finding("d").passed and decided.margin_pp == 40
    assert "margin of class-balanced" not in decided.lines("d")
    third = Control(Score.of([True] * 750 + [False] * 150, labels=labels), "frozen.pt")
    skewed = made.replace(control=third)
    assert (skewed.margin_pp, skewed.plain_margin_pp) == (25.0, 16.666666667)
    assert "class-balanced accuracies +25.00 pp, of plain +16.67 pp" in skewed.lines("d")


def test_below_zero_the_minimum_itself_is_the_bound() -> None:
    lenient = against(-0.5).replace(thresholds=thresholds(margin_pp=-2.0))
    assert lenient.finding("d").passed
    far = against(-1.9).replace(thresholds=thresholds(margin_pp=-2.0))
    assert far.finding("d").outcome == "not resolved"


def test_a_control_that_cannot_be_read_is_an_error_of_its_test() -> None:
    made = BP.replace(control=None, control_problem="no control fits bp")
    assert made.finding("d").error == "no control fits bp"
    with pytest.raises(ValueError, match="no control fits bp"):
        made.check()


# --- (e) ---


@pytest.mark.parametrize(
    ("probes", "interval", "changes", "status", "claim"),
    [
        ((0.7, 0.73), (1.0, 5.0), {}, "pass (threshold inside the 95 % CI)", ""),
        ((0.7, 0.75), (4.0, 6.0), {}, "pass", ""),
        ((0.7, 0.729), (1.0, 2.95), {}, "fail", "gain with depth below 3 pp"),
        ((0.7, 0.71), (-0.5, 2.5), {}, "fail", "no measurable gain with depth"),
        ((0.7, 0.6), (-12.0, -8.0), {}, "fail", "deep blocks reduce linear readability"),
        ((0.7, 0.73), (-0.1, 6.1), {}, "not resolved", ""),
        ((0.7, 0.72), (1.0, 3.0), {}, "not resolved", ""),
        ((0.7, 0.75), (NAN, NAN), {}, "not resolved", ""),
        ((0.7, 0.75), None, {}, "pass", ""),
        # no room: 100 − 94 is twice the minimum, 100 − 94.1 is not; what random blocks gain counts
        ((0.94, 0.98), (3.5, 4.5), {}, "pass", ""),
        ((0.941, 0.98), (3.5, 4.5), {}, "not resolved", ""),
        ((0.92, 0.98), (3.0, 5.0), {"null": ((0.92, 0.945),) * 2}, "not resolved", ""),
        ((0.92, 0.98), (3.1, 5.0), {"null": ((0.92, 0.94),) * 2}, "pass", ""),
        ((0.977, 0.99), (1.0, 1.6), {}, "not resolved", ""),
        ((0.977, 0.9), (-9.0, -6.0), {}, "fail", "deep blocks reduce linear readability"),
        ((0.977, 0.99), (1.0, 1.6), {"null": ()}, "not resolved", ""),
        # no null: the gain bounds the utility from above
        ((0.7, 0.75), (4.0, 6.0), {"null": ()}, "not resolved", ""),
        ((0.7, 0.71), (0.5, 1.5), {"null": ()}, "fail", "gain with depth below 3 pp"),
        # what random blocks lose does not count
        ((0.7, 0.8), (9.0, 11.0), {"null": ((0.7, 0.5), (0.7, 0.6))}, "pass", ""),
        (
            (0.977, 0.9),
            (-9.0, -6.0),
            {"as_initialised": (0,)},
            "fail (blocks at initialisation)",
            "blocks are still at initialisation",
        ),
        (
            (0.7, 0.75),
            (0.1, 1.9),
            {"null": ((0.7, 0.74),) * 2},
            "fail",
            "gain with depth below 3 pp",
        ),
        (
            (0.7, 0.8),
            (9.0, 11.0),
            {"as_initialised": (0,)},
            "fail (blocks at initialisation)",
            "blocks are still at initialisation",
        ),
        (
            (0.7, 0.8),
            (9.0, 11.0),
            {"nonfinite": (0, 7)},
            "fail (non-finite)",
            "states are not finite",
        ),
        ((), None, {"problem": "fewer than 1,000 images"}, "not measured", ""),
    ],
)
def test_depth_must_help_beyond_random_blocks(
    probes: tuple[float, ...], interval: Any, changes: Any, status: str, claim: str
) -> None:
    made = probed(healthy(), *probes, null=probes[0] if probes else None)
    depth = msgspec.structs.replace(made.depth, interval=interval, **changes)  # type: ignore[type-var]
    finding = made.replace(depth=depth).finding("e")
    assert (finding.outcome, finding.claim) == (status, claim)
    assert finding.measured == (not status.startswith("not"))


def test_what_is_not_resolved_says_why() -> None:
    full = probed(healthy(), 0.977, 0.99, null=0.977).finding("e").headline
    probe = "a linear probe of the embedding reaches 97.7 %"
    assert full == f"{probe}: 2.3 pp are left, 6 are needed"
    wide = probed(healthy(), 0.7, 0.725, null=0.7).finding("e").headline
    assert (
        wide
        == "depth utility +2.50 pp, 95 % CI [+1.50, +3.50]: whether it reaches 3 pp is undecided"
    )
    assert "no null: none was" in probed(healthy(), 0.7, 0.8, null=None).finding("e").headline
    one = probed(healthy(residual_norms=[1, 2], bp_grad_norms=[1, 1]), 0.7, 0.8, null=0.7)
    assert one.verdict == "trustworthy" and "(95 % CI): block" not in one.lines("e")


@pytest.mark.parametrize(
    ("after", "changes", "missing"),
    [
        (0.745, {}, ""),
        (0.738, {}, "alone is not enough: the lower bound is +2.80 pp, below 3 pp"),
        (0.76, {"interval": (2.0, 10.0)}, ""),
        (
            0.76,
            {"interval": (2.0, 10.0), "half_interval": (0.1, 2.3)},
            "alone is not enough: the lower bound is +2.00 pp, below 3 pp",
        ),
        (0.76, {"fitted": 999}, ""),
        (0.78, {"trained": (0, 1)}, ""),
        (
            0.78,
            {"trained": (0,)},
            "alone is not enough: the weights do not show that half of the blocks were trained",
        ),
        (
            0.738,
            {"trained": ()},
            "alone is not enough: the weights do not show that half of the blocks were trained "
            "and the lower bound is +2.80 pp, below 3 pp",
        ),
    ],
)
def test_a_pass_stands_alone_where_blocks_are_trained_and_the_gain_is_sure(
    after: float, changes: Any, missing: str
) -> None:
    made = probed(healthy(), 0.7, 0.7, 0.7, 0.7, after, null=0.7)
    made = made.replace(depth=msgspec.structs.replace(made.depth, **changes))  # type: ignore[type-var]
    finding = made.finding("e")
    assert finding.passed and str(finding.open or "") == missing


def test_a_small_utility_of_probes_that_are_fitted_to_few_is_not_resolved() -> None:
    made = probed(healthy(), 0.7, 0.7, 0.7, 0.7, 0.745, null=0.7)
    made = made.replace(depth=msgspec.structs.replace(made.depth, fitted=999, read=1_998))  # type: ignore[type-var]
    finding = made.finding("e")
    assert finding.status.value == "not resolved"
    assert "fitted to 999: fewer than 1,000" in finding.headline
    assert "test on about 2,000 samples" in finding.remedy


def test_the_report_says_what_probes_were_fitted_to_and_what_weights_tell() -> None:
    made = probed(healthy(), 0.7, 0.8, null=0.7)
    both = "fitted to 5,000 of 10,000 test samples, evaluated on the others, both ways"
    assert both in made.lines("e")
    assert "weights that no initialisation leaves in at least 1 of 1 block" in made.lines("e")
    changes = {"training": "cifar10 (train)", "fitted": 20_000, "half_interval": (1.5, 4.5)}
    made = made.replace(depth=msgspec.structs.replace(made.depth, **changes))  # type: ignore[type-var]
    named = "fitted to 20,000 samples of cifar10 (train), evaluated on 10,000 test samples"
    assert named in made.lines("e")
    assert "with half as many to fit to, depth utility is at least +1.50 pp higher" in made.lines(
        "e"
    )


def test_random_blocks_that_lose_take_nothing_off_the_gain() -> None:
    assert probed(healthy(), 0.6, 0.65, null=0.4).depth_utility_pp == 5
    assert probed(healthy(), 0.6, 0.65, null=0.62).depth_utility_pp == 3


def test_blocks_without_a_part_in_the_gain_are_named() -> None:
    steps = ((0.5, 2.0), (-1.0, 1.0), (-3.0, -1.0), (-1.0, 2.0))
    made = probed(healthy(stream=StreamInfo(blocks=("a.0", "a.1", "a.2", "a.3"), residual=True)))
    made = made.replace(depth=msgspec.structs.replace(made.depth, step_intervals=steps))  # type: ignore[type-var]
    assert "a.1, a.2, a.3: no measurable gain for a linear probe" in made.remarks
    assert "no measurable gain over re-initialised blocks (95 % CI): a.1, a.3" in made.lines("e")
    assert "a.2 adds less than a re-initialised block" in made.lines("e")
    down = msgspec.structs.replace(made.depth, probes=(0.6, 0.7, 0.75, 0.7, 0.8))  # type: ignore[type-var]
    assert "a.2 loses 5.0 pp" in made.replace(depth=down).lines("e")
    wide = made.replace(depth=msgspec.structs.replace(made.depth, interval=(-1.0, 37.0)))  # type: ignore[type-var]
    one = probed(healthy(), 0.7, 0.8, null=0.7)
    one = one.replace(depth=msgspec.structs.replace(one.depth, step_intervals=((-1.0, 1.0),)))  # type: ignore[type-var]
    for other in (wide, one):
        assert not any("no measurable gain" in remark for remark in other.remarks)


# --- (g) ---


@pytest.mark.parametrize(
    ("bounds", "status", "said"),
    [
        ((7.0, 9.0), "pass", "network − readout +8.00 pp, 95 % CI [+7.00, +9.00]"),
        ((-1.0, 3.0), "pass", "+1.00 pp, 95 % CI [−1.00, +3.00]: no evidence that the network"),
        ((-3.0, 0.0), "pass", "−1.50 pp, 95 % CI [−3.00, +0.00]: no evidence"),
        ((-15.0, -0.1), "fail", "a linear readout of the inputs beats the network: network −"),
    ],
)
def test_a_linear_readout_of_the_inputs_is_the_floor(
    bounds: tuple[float, float], status: str, said: str
) -> None:
    made = floored(healthy(), *bounds)
    finding = made.finding("g")
    assert finding.outcome == status and said in finding.headline
    assert made.verdict.startswith("needs walk-back: a linear readout") == finding.fired
    meaning = "[−15.00, −0.10]. This says nothing about credit."
    assert (meaning in str(made)) == finding.fired
    assert "784 values per input, λ/n 0.0100" in made.lines("g")


def test_without_a_readout_nothing_is_decided() -> None:
    made = floored(healthy())
    assert made.replace(floor=None).finding("g").outcome == "not measured"
    assert made.replace(floor=None).verdict == "trustworthy"
    few = msgspec.structs.replace(made.floor, readout=None, problem="900 images are too few")  # type: ignore[type-var]
    assert "(g) linear-floor: not measured\n    900 images are too few" in str(
        made.replace(floor=few)
    )
    left = msgspec.structs.replace(made.floor, left_out=(3, 7), reduced="average-pooled")  # type: ignore[type-var]
    assert "not counted: class 3 and 7" in made.replace(floor=left).lines("g")


# --- (f) ---


@pytest.mark.parametrize(
    ("gamma", "nudge", "status"),
    [
        ((0.9, 0.5, 0.2), None, "pass"),
        ((0.9, 0.5, 0.05), None, "pass"),
        ((0.9, 0.05, 0.05, 0.9), None, "fail"),
        ((0.9, 0.9, 0.9, -0.5), None, "fail"),
        ((0.9, 0.9), -0.1, "fail"),
        ((0.9, 0.9), NAN, "pass"),
        ((-0.9, 0.9, 0.9), NAN, "fail"),
        ((NAN, NAN), NAN, "fail"),
        ((0.9,), None, "pass"),
        ((0.1,), None, "fail"),
    ],
)
def test_credit_must_be_aligned_at_more_than_half_of_the_blocks(
    gamma: tuple[float, ...], nudge: float | None, status: str
) -> None:
    made = credited(healthy(), *gamma, nudge=nudge)
    assert made.finding("f").outcome == status
    assert made.lines("f").count("\n    h_") == len(gamma)


def test_the_embedding_is_shown_and_not_counted() -> None:
    made = credited(healthy(), 0.9, 0.05)
    assert made.credit is not None
    credit = msgspec.structs.replace(made.credit, sites=("h_0", "h_1"))
    made = made.replace(credit=credit)
    assert made.finding("f").headline.startswith("credit is not aligned: aligned at 0 of 1 block")
    assert made.lines("f").index("h_1") < made.lines("f").index("h_0")


@pytest.mark.parametrize(
    ("gamma", "words"),
    [
        ((0.42, 0.01, -0.03, 0.0, 0.0), "the mean over layers is +0.08: h_0 +0.42, the others"),
        ((0.0, 0.9, 0.0, 0.0, -0.01), "+0.18: h_1 +0.90, the others −0.01 to +0.00"),
        ((0.42, 0.9, 0.9, 0.9, 0.0), ""),  # most blocks are aligned
        ((0.12, 0.01, -0.03, 0.0, 0.0), ""),  # chance gives a mean of 0.02
        ((0.0, NAN, 0.9, 0.0, 0.0), ""),
    ],
)
def test_a_mean_over_layers_that_hides_where_credit_is_lost_is_named(
    gamma: tuple[float, ...], words: str
) -> None:
    made = credited(healthy(), *gamma)
    assert made.credit is not None
    sites = tuple(f"h_{layer}" for layer in range(5))
    lines = made.replace(credit=msgspec.structs.replace(made.credit, sites=sites)).lines("f")
    assert words in lines and ("the mean over layers" in lines) == bool(words)


def test_credit_below_the_floor_against_the_gradient_or_equal_to_it_is_said() -> None:
    low = credited(healthy(bp_grad_norms=[1e-9] * 5), 0.9)
    assert low.finding("f").causes == ("reference below the floor",)
    question = "Does the credit have the sign of a gradient?"
    assert question in credited(healthy(), -0.9, 0.9).finding("f").explanation
    assert question not in credited(healthy(), -0.9, 0.9, 0.9).finding("f").explanation
    seen = ("the input of 'a'", "the input of 'b'", "the output of 'b'")
    stream = StreamInfo(blocks=("a", "b"), residual=True, states=seen)
    named = credited(healthy(stream=stream), 0.9, 0.8).lines("f")
    assert "h_1: the input of 'b'; h_2: the output of 'b'" in named
    assert "input of" not in low.lines("f")
    assert "it is returning the BP gradient" in credited(healthy(), 1.0, 1.0).lines("f")
    assert "nothing" not in credited(healthy(), diagnostics=("a",)).verdict
    assert "shown, not judged" in str(credited(healthy(), diagnostics=("a", "b", "c", "d")))


def test_without_a_stream_or_a_proven_reference_what_rests_on_it_is_an_error() -> None:
    made = credited(healthy())
    from pytest_fadiag.judge.records import Reference

    refused = floored(made, stream_problem="2 towers", residual_norms=(), bp_grad_norms=())
    assert [finding.key for finding in refused.findings if finding.error] == [*"abcf"]
    assert refused.finding("d").exact and refused.finding("g").exact
    assert "stream: refused: 2 towers" in str(refused) and "-growth error;" in refused.verdict
    with pytest.raises(ValueError, match="residual-growth: no stream: 2 towers"):
        refused.check()
    unproven = made.replace(reference=Reference(problem="detach"), bp_grad_norms=())
    assert [finding.key for finding in unproven.findings if finding.error] == ["b", "c", "f"]
    assert unproven.finding("a").exact and unproven.finding("d").exact
    with pytest.raises(ValueError, match="not proven: detach"):
        unproven.bp_grad_at_floor  # noqa: B018 (it raises)
