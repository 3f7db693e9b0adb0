"""The numbers that a report, the reporting form and a flag state: each against one computed by hand, and none too many."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any

import pytest
from builders import BP, PENALISED, probed, report

from pytest_fadiag import DiagnosticReport, Status
from pytest_fadiag.judge.codec import to_plain
from pytest_fadiag.judge.control import Control
from pytest_fadiag.judge.credit import Credit
from pytest_fadiag.judge.depth import Depth
from pytest_fadiag.judge.diagnostics import DIAGNOSTICS, CauseKind
from pytest_fadiag.judge.diagnostics.residual_growth import (
    allowed_norm,
    cumulative_growth,
    deepest,
    not_finite,
    per_block_growth,
)
from pytest_fadiag.judge.observers import PRECISION, Precision, Resolution
from pytest_fadiag.judge.records import Accuracy, AuxiliaryStatistics
from pytest_fadiag.judge.stream import ResidualStream
from pytest_fadiag.judge.thresholds import DiagnosticThresholds

CUMULATIVE = DiagnosticThresholds(growth="cumulative")
STAGED = ResidualStream(("one", "two"), residual=True, sizes=(9, 36, 36))
NONE = (None,) * 5


def lines(key: str, judged: DiagnosticReport, *, form: bool = False) -> list[str]:
    diagnostic = DIAGNOSTICS.get(key)
    assert diagnostic is not None
    return diagnostic.values(judged) if form else diagnostic.lines(judged)


def says(found: list[str], *parts: str) -> None:
    """Each line has its part, and there is no other line."""
    assert len(found) == len(parts), found
    for line, part in zip(found, parts, strict=True):
        assert part in line


# --- (a) -------------------------------------------------------------------------------------------------------------


def test_growth_of_a_stream_without_holes() -> None:
    assert lines("a", BP) == [
        "median ‖h_l‖: h_0 255  h_1 226  h_2 211  h_3 205  h_4 203",
        "per-block growth (max ‖h_l+1‖/‖h_l‖): 0.99    cumulative growth (max ‖h_l‖/‖h_0‖): 1",  # 203/205
    ]
    assert lines("a", BP, form=True) == [
        "h_0 255, h_1 226, h_2 211, h_3 205, h_4 203",
        "per-block growth 0.99",
        "cumulative growth 1",
    ]


def test_growth_of_a_stream_whose_shape_changes_is_that_of_root_mean_squares() -> None:
    judged = report(residual_norms=[3.0, 12.0, 48.0], bp_grad_norms=[1e-3] * 3, stream=STAGED)  # rms 1, 2, 8
    says(
        lines("a", judged),
        "h_0 3  h_1 12  h_2 48",
        "since the shape changes: h_0 1  h_1 2  h_2 8",
        "(max rms h_l+1/rms h_l): 4    cumulative growth (max rms h_l/rms h_0): 8",
    )
    says(lines("a", judged, form=True), "h_2 48", "root mean squares h_0 1, h_1 2, h_2 8", "growth 4", "cumulative growth 8")
    assert allowed_norm(judged, 0, 1) == pytest.approx(1 * 50 * 6)
    assert allowed_norm(judged, 1, 2) == pytest.approx(2 * 50 * 6)
    exploded = report(judged, residual_norms=[3.0, 12.0, 1200.0])
    assert "in block 1 (rms h_1 2 → h_2 200)" in exploded.finding("a").explanation
    cumulated = report(exploded, thresholds=CUMULATIVE)
    assert "explodes to rms 200 from 1:" in cumulated.finding("a").explanation


def test_the_norm_that_is_allowed_where_no_shape_changes() -> None:
    assert allowed_norm(BP, 0, 3) == 50 * 255
    alike = report(residual_norms=[3.0, 12.0, 48.0], stream=ResidualStream(("one", "two"), residual=True, sizes=(9, 9, 9)))
    assert allowed_norm(alike, 1, 2) == 50 * 12
    assert allowed_norm(PENALISED, 1, 2) is None
    holes = report(residual_norms=[3.0, None, 48.0], stream=STAGED)
    assert allowed_norm(holes, 1, 2) is None and allowed_norm(holes, 0, 2) == pytest.approx(300)


@pytest.mark.parametrize(
    ("norms", "known", "parts"),
    [
        ((9.0, None, None, math.nan), True, ["h_0 9  h_3 undefined    (not logged: h_1, h_2)"]),
        ((9.0, None, math.inf), False, ["h_0 9  h_L inf"]),
        (
            (9.0, None, None, None, 4e4),  # 4444^(1/4) = 8.165
            True,
            [
                "h_0 9  h_4 4.0e+04    (not logged: h_1, h_2, h_3)",
                "at least 8.16, the geometric mean over h_0 to h_4",
                "at least 4.4e+03, over",
                "up to 2 of 4 blocks",
            ],
        ),
        (
            (1.0, 30.0, None, 31.0),
            True,
            ["(not logged: h_2)", "at least 30, the geometric mean over the one block after h_0", "at least 31", "no block"],
        ),
        (
            (1.0, None, 100.0),
            True,
            ["(not logged: h_1)", "at least 10, the geometric mean over h_0 to h_2", "100", "up to 1 of 2"],
        ),
        ((9.0, None, None), True, ["(not logged: h_1, h_2)", "cannot be bounded without ‖h_L‖"]),
        ((None, 5.0, 10.0), True, ["(not logged: h_0)", "at least 2, the geometric", "cannot be bounded without ‖h_0‖"]),
        ((None, None), True, ["none logged", "no ‖h_l‖ was logged"]),
        (
            (0.0, 0.0, None, 5.0, 10.0),
            True,
            ["h_0 0", "at least 2, the geometric mean over the one block after h_3", "at least inf", "no block"],
        ),
        (
            (9.0, 90.0),
            False,
            ["h_0 9  h_L 90    (the number of blocks is not known)", "cumulative growth: at least 10", "no block"],
        ),
        ((9.0, None, 90.0), False, ["(not logged: h_1)    (the number", "cumulative growth: at least 10", "no block"]),
    ],
)
def test_growth_of_a_stream_with_holes(norms: tuple[float | None, ...], known: bool, parts: list[str]) -> None:
    judged = report(PENALISED, residual_norms=norms, depth_known=known)
    says(lines("a", judged), *parts, "to make it exact")
    says(lines("a", judged, form=True), "none logged" if None is norms[0] is norms[-1] else "h_")
    if known:
        assert "number of blocks is" not in lines("a", judged)[0]


@pytest.mark.parametrize(
    ("norms", "thresholds", "where"),
    [
        ((1.0, 2.0, 200.0, 201.0), DiagnosticThresholds(), "in block 1 (h_1 2 → h_2 200):"),
        ((1.0, None, 1e4, 1e4), DiagnosticThresholds(), "in one of the blocks 0 to 1 (h_0 1 → h_2 1.0e+04):"),
        ((5.0, 2.0, 400.0, 100.0), CUMULATIVE, "explodes to 400 from 5:"),
        ((5.0, None, 400.0, 100.0), CUMULATIVE, "explodes to 400 from 5:"),
    ],
)
def test_where_a_stream_explodes(norms: Any, thresholds: DiagnosticThresholds, where: str) -> None:
    found = report(residual_norms=norms, thresholds=thresholds).finding("a")
    assert found.status is Status.FIRE and where in found.explanation


@pytest.mark.parametrize(
    ("norms", "ratio", "cumulative", "headline"),
    [
        ((1.0, None, 50.0), 50.0, True, "cumulative growth at least 50 <= 50; a layer that was not logged"),
        ((1.0, 10.0), 50.0, True, "cumulative growth at least 10 <= 50"),
        ((5.0, 5.0), 50.0, False, "‖h_L‖/‖h_0‖ 1 <= 50; no block exceeds 50"),
        ((5.0, 5.0), 1.0, False, "‖h_L‖/‖h_0‖ 1 <= 1; no block exceeds 1"),
        ((5.0, 7.0), 1.5, False, "‖h_L‖/‖h_0‖ 1.4 <= 1.5; no block"),
        ((10.0, 4.0), 0.5, False, "growth cannot be bounded without the number of blocks"),
        ((None, 5.0, 5.0), 50.0, False, "growth cannot be bounded without ‖h_0‖ (as h_0_norm in the log's config or epochs)"),
    ],
)
def test_a_bound_at_the_ratio_and_what_it_leaves_open(norms: Any, ratio: float, cumulative: bool, headline: str) -> None:
    thresholds = DiagnosticThresholds(h_norm_explosion_ratio=ratio, growth="cumulative" if cumulative else "per_block")
    found = report(PENALISED, residual_norms=norms, depth_known=len(norms) == 3 and norms[0] == 1.0, thresholds=thresholds)
    assert found.finding("a").headline.startswith(headline)


@pytest.mark.parametrize(
    ("norms", "counts", "where"),
    [
        ([1.0, 2.0, 3.0], (0, 3, 5), "first at layer 1, 5 samples"),
        ([1.0, math.inf, 3.0], (), "first at layer 1"),
        ([1.0, 2.0, math.nan], (0, 1, 0), "first at layer 1, 1 sample"),
        ([1.0, math.inf, math.inf], (0, 0, 2), "first at layer 1, 2 samples"),
        ([1.0, None, 3.0], (0, 0, 0), ""),
    ],
)
def test_the_first_layer_that_is_not_finite(norms: list[float | None], counts: tuple[int, ...], where: str) -> None:
    assert not_finite(norms, counts) == where


def test_quotients_that_are_none_do_not_hide_the_others() -> None:
    assert per_block_growth([0.0, 0.0, 5.0, 10.0]) == math.inf
    assert per_block_growth([math.inf, math.inf, 5.0, 10.0]) == 2
    assert math.isnan(cumulative_growth([])) and deepest([]) is None and deepest([1.0, 2.0]) == 2


# --- (b) -------------------------------------------------------------------------------------------------------------


def test_gradients_of_a_network() -> None:
    shown = "g_0 4.0e-04  g_1 4.0e-04  g_2 4.0e-04  g_3 4.0e-04  g_4 4.0e-04"
    assert lines("b", BP) == [f"median ‖g_l‖: {shown}"]
    assert lines("b", BP, form=True) == [shown.replace("  ", ", ")]
    seen = AuxiliaryStatistics(gradient_per_unit_error=0.02, tokens_without_gradient=(0, 0, 0, 1, 15), tokens=16)
    judged = report(companions=seen)
    says(
        lines("b", judged),
        shown,
        "‖e‖): 0.02    median output error ‖e‖: undefined",
        "15 of 16 tokens of a sample (the median) have no gradient",
    )
    assert lines("b", judged, form=True)[1:] == ["per unit error 0.02"]
    known = report(companions=AuxiliaryStatistics(gradient_per_unit_error=0.02, output_error_norm=0.5))
    says(lines("b", known), shown, "median output error ‖e‖: 0.5")


def test_gradients_in_narrower_dtypes() -> None:
    rows = (
        Resolution("bfloat16", 0.98765, 3),
        Resolution("float16", math.nan, 8),
        Resolution("float8", None, 0, "runs nowhere"),
    )
    seen = Precision(8, (*rows, Resolution("float32", 1.0, 0)))
    judged = report(observations={PRECISION.name: to_plain(seen)})
    said = "(median of 8 samples): bfloat16 0.9877, lost for 3 of them; float16 lost for all of them; float8 runs nowhere; "
    assert lines("b", judged)[1].endswith(f"{said}float32 1.0000")
    nothing = report(observations={PRECISION.name: to_plain(Precision(0, rows))})
    says(lines("b", nothing), "median", "in no dtype is there a gradient")
    unseen = tuple(Resolution(name, None, 0, "not compared, since float64 does not run") for name in ("float32", "float16"))
    unlike = report(observations={PRECISION.name: to_plain(Precision(0, unseen))})
    says(lines("b", unlike), "median", "the gradient at h_L is resolved is not compared, since float64 does not run")


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"gradient_batch": 128}, ["logged as at batch size 128", "no output error"]),
        ({"gradient_batch": 512}, ["logged at batch size 512, given here as at 128 (times 4)", "no output error"]),
        ({}, ["128 is assumed; a log made at N=1024 reads 8 times lower", "no output error", "to make it exact"]),
        ({"assumed_batch": 1024}, ["the training's own, 1,024, is assumed", "no output error", "to make it exact"]),
        (
            {"gradient_batch": 128, "companions": AuxiliaryStatistics(gradient_per_unit_error=1.0)},
            ["per unit error", "logged as at batch size 128"],
        ),
        (
            {"gradient_batch": 128, "bp_grad_norms": (None, None, 1e-6, None, None)},
            ["logged as at batch size 128", "‖g_2‖ stands in for ‖g_L‖ (a proxy)", "no output error", "to make it exact"],
        ),
        ({"gradient_batch": 512, "bp_grad_norms": NONE}, ["to make it exact"]),
        ({"bp_grad_norms": NONE}, ["to make it exact"]),
    ],
)
def test_what_a_log_says_of_its_gradients(changes: dict[str, Any], parts: list[str]) -> None:
    says(lines("b", report(partial=True, **changes)), "median ‖g_l‖", *parts)


def test_a_gradient_that_is_not_finite_in_some_samples_fires_and_says_where() -> None:
    found = report(companions=AuxiliaryStatistics(nonfinite_gradients=(0, 0, 0, 2, 1))).finding("b")
    assert found.status is Status.FIRE and found.headline == "BP gradient is not finite (first at layer 3, 2 samples)"


# --- (c) -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({}, ["gradient at layer 2: 0.099"]),
        ({"stability_layer": None}, ["gradient at layer L//2: 0.099"]),
        ({"cross_batch_stability": None}, ["at layer 2: not measured"]),
        ({"cross_batch_stability": None, "partial": True, "gradient_batch": 128}, ["not measured", "to make it exact"]),
        ({"partial": True, "gradient_batch": 128}, ["0.099"]),
        ({"partial": True, "gradient_batch": 64}, ["0.099", "to make it exact"]),
        ({"companions": AuxiliaryStatistics(zero_gradient_samples=1)}, ["0.099", "1 sample without a direction"]),
        ({"companions": AuxiliaryStatistics(batches=7)}, ["0.099", "only 7 batches of 128: fewer than 8"]),
        ({"companions": AuxiliaryStatistics(batches=8)}, ["0.099"]),
        ({"companions": AuxiliaryStatistics(sample_invariance=0.2)}, ["0.099"]),
        ({"companions": AuxiliaryStatistics(output_error_drift=0.2)}, ["0.099"]),
        (
            {"companions": AuxiliaryStatistics(sample_invariance=0.2, output_error_drift=0.4)},
            ["0.099", "unit gradients): 0.200    output-error drift: 0.400"],
        ),
        ({"companions": AuxiliaryStatistics(invariance_between_samples=0.3)}, ["0.099", "per-sample gradients): 0.300"]),
    ],
)
def test_the_lines_of_drift(changes: dict[str, Any], parts: list[str]) -> None:
    says(lines("c", report(**changes)), *parts)


def test_an_invariance_that_is_not_defined_says_what_is_predicted() -> None:
    seen = AuxiliaryStatistics(sample_invariance=math.nan, output_error_drift=0.4, predicted_class_share=0.75)
    assert (
        "not defined without two classes beside the one predicted most often (75.0% of"
        in lines("c", report(companions=seen))[1]
    )
    unknown = AuxiliaryStatistics(sample_invariance=math.nan, output_error_drift=0.4)
    assert "unit gradients): undefined    output" in lines("c", report(companions=unknown))[1]


def test_drift_in_the_form() -> None:
    assert lines("c", BP, form=True) == ["layer 2", "cosine 0.099"]
    seen = AuxiliaryStatistics(sample_invariance=0.0, output_error_drift=-0.5)
    judged = report(stability_layer=None, cross_batch_stability=None, companions=seen)
    assert lines("c", judged, form=True) == ["sample invariance 0.000", "output-error drift -0.500"]


def test_what_keeps_drift_from_being_known() -> None:
    assert report(cross_batch_stability=None).finding("c").headline == "cross-batch cosine was not measured"
    assert "the log has no cross-batch cosine" in report(cross_batch_stability=None, partial=True).finding("c").headline
    counts = (0, 0, 3, 0, 0)
    broken = report(companions=AuxiliaryStatistics(nonfinite_gradients=counts)).finding("c")
    assert (broken.status, broken.headline) == (Status.FIRE, "BP gradient is not finite at layer 2 (3 samples)")
    few = report(companions=AuxiliaryStatistics(nonfinite_gradients=(0, 3)))  # the log of two layers: none at layer 2
    assert few.finding("c").status is Status.PASS
    excused = AuxiliaryStatistics(sample_invariance=0.0)
    logged = report(cross_batch_stability=0.9, companions=excused, partial=True, gradient_batch=64)
    assert logged.finding("c").status is Status.LIKELY_PASS
    assert report(logged, gradient_batch=128).finding("c").status is Status.PASS


# --- (d) -------------------------------------------------------------------------------------------------------------


def test_the_lines_and_the_form_of_a_margin() -> None:
    assert lines("d", BP) == [
        "accuracy 0.6090",
        "frozen-random control 0.3490",
        "margin +26.00 pp    (no interval: the number of test images is not known)",
    ]
    assert lines("d", BP, form=True) == ["accuracy 0.6090", "control 0.3490", "margin +26.00", "no interval"]
    logged = report(partial=True)
    assert lines("d", logged)[-1].endswith("not known; state it as n_test in the log's config)")
    without = report(headline_acc=None)
    assert lines("d", without)[0] == "accuracy not logged" and lines("d", without)[-1].endswith("the log has no accuracy")
    images = report(accuracy=Accuracy(0.609, 1))
    assert lines("d", images)[0] == "accuracy 0.6090 over 1 test image"
    assert lines("d", report(accuracy=Accuracy(0.609)))[0] == "accuracy 0.6090"
    assert lines("d", report(frozen_baseline_acc=None))[1:] == ["frozen-random control: none supplied, margin not measured"]


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (0.50, "The blocks add 0.00 pp, less than the 2 pp that the protocol asks."),
        (0.505, "The blocks add 0.50 pp"),
        (0.49, "The same network with random blocks is better by 1.00 pp."),
    ],
)
def test_a_margin_without_images_at_0_and_beside_it(own: float, said: str) -> None:
    assert report(headline_acc=own, frozen_baseline_acc=0.5).finding("d").explanation.startswith(said)


@pytest.mark.parametrize(
    ("own", "which"),
    [
        (0.49, "This control is better than the network by 1.00 pp"),
        (0.5, "The network and this control are equally accurate"),
        (0.505, "The network is better than this control by 0.50 pp"),
    ],
)
def test_what_is_left_to_say_beside_another_control(own: float, which: str) -> None:
    control = Control(Accuracy(0.5), method="ep")
    found = report(headline_acc=own, frozen_baseline_acc=0.5, control=control).finding("d")
    assert found.explanation.startswith(f"{which}. What") and "interval" not in found.explanation
    assert found.causes == ()
    counted = report(headline_acc=own, frozen_baseline_acc=0.5, control=control, accuracy=Accuracy(own, 1000))
    assert f"{which} (95 % interval of the margin -" in counted.finding("d").explanation


def test_a_margin_of_exactly_the_minimum_whose_interval_holds_0_says_so() -> None:
    held = report(
        headline_acc=0.52, frozen_baseline_acc=0.5, accuracy=Accuracy(0.52, 1000), control=Control(Accuracy(0.5, 1000))
    )
    assert lines("d", held)[-1].startswith("the interval holds 0")
    # 521/1002 - 501/1002 = 2.00 pp, ± 1.96 * sqrt((0.2496 + 0.25)/1002) = 4.38
    said = "95 % interval -2.38 to +6.37 (binomial, 1,000 images, unpaired)"
    assert lines("d", held, form=True) == ["accuracy 0.5200", "control 0.5000", "margin +2.00", said]
    assert lines("d", report(frozen_baseline_acc=None), form=True) == ["accuracy 0.6090", "no interval"]
    wide = report(held, headline_acc=0.6, accuracy=Accuracy(0.6, 1000))  # 10 pp, ± 4.3
    assert "holds 0" not in lines("d", wide)[-1]
    near = report(held, headline_acc=0.53, accuracy=Accuracy(0.53, 2300), control=Control(Accuracy(0.5, 2300)))  # 3 pp, ± 2.89
    assert near.margin_interval is not None and 0 < near.margin_interval.low < 1 and "holds 0" not in lines("d", near)[-1]


# --- (e) -------------------------------------------------------------------------------------------------------------


def test_depth_that_was_not_measured() -> None:
    asked = (*BP.diagnostics, "depth-utility")
    assert lines("e", report(diagnostics=asked)) == ["not measured: no probe was read"]
    assert lines("e", report(diagnostics=asked), form=True) == []
    assert report(diagnostics=asked).finding("e").headline == "no probe was read"
    failed = report(diagnostics=asked, observations={"depth": {"problem": "too few images"}})
    assert failed.finding("e").headline == "too few images"
    assert lines("e", failed) == ["not measured: too few images"] and lines("e", failed, form=True) == []


def test_depth_in_the_form() -> None:
    judged = probed(BP, 0.5, 0.6, 0.75)
    assert lines("e", judged, form=True) == [
        "probe 0.5000 at h_0, 0.7500 at h_L",
        "gain +25.00 pp",
        "null +12.00 pp (draws +12.00 and +12.00)",
        "depth utility +13.00 pp",
        "95 % interval +24.00 to +26.00 (paired against the blocks drawn anew)",
    ]


def deep(probes: tuple[float, ...], *, draws: tuple[float, ...] = (), **changes: Any) -> DiagnosticReport:
    """Probes of h_0 to h_L, and of h_L alone for each draw of the blocks; every block adds something."""
    blocks = len(probes) - 1
    own: dict[str, Any] = {
        "probes": probes,
        "null": tuple((*probes[:1] * blocks, last) for last in draws),
        "interval": (1.0, 5.0),
        "step_intervals": ((0.5, 2.0),) * blocks,
        "change": (0.5,) * blocks,
        "fitted": 500,
        "read": 600,
        "nonfinite": (0,) * (blocks + 1),
    }
    seen = Depth(**{**own, **changes})
    return report(diagnostics=(*BP.diagnostics, "depth-utility"), observations={"depth": to_plain(seen)})


def test_the_lines_of_depth() -> None:
    judged = deep((0.5, 0.6, 0.75), draws=(0.6, 0.64), as_initialised=(1,))
    assert lines("e", judged) == [
        "a linear probe reads: h_0 0.5000  h_1 0.6000  h_2 0.7500    (fitted to 500 test images, read on 600, the other half)",
        "with blocks drawn anew: h_0 0.5000  h_1 0.5000  h_2 0.6200    (mean of 2 draws)",
        "a linear readout of the embedding reads 0.500 on these 600 images; the network 0.609",
        "gain +25.00 pp    null +12.00 pp (draws +10.00 and +14.00)    depth utility +13.00 pp    95 % interval +1.00 to +5.00 "
        "(paired against the blocks drawn anew)",
        "step of each block in pp: 0: +10.00 (null +0.00)  1: +15.00 (null +12.00)",
        "block 1 is as a new initialisation leaves it",
        "‖f_l‖/‖h_l‖: 0.5  0.5",
        "block 1 adds nothing beyond what random blocks add, as far as the 95 % interval of each step can tell",
    ]
    alone = report(deep((0.5, 0.6, 0.75), dealt=True, interval=None, undrawn=tuple("vwxyz")), headline_acc=None)
    says(
        lines("e", alone),
        "halves dealt by a fixed shuffle, since the data is sorted)",
        "gain +25.00 pp    95 % interval +25.00 to +25.00 (paired)    no null: v, w, x and 2 more cannot be drawn anew",
        "step of each block in pp: 0: +10.00  1: +15.00",
        "‖f_l‖/‖h_l‖",
        "every block adds something",
    )
    three = deep((0.5, 0.6), undrawn=("x", "y", "z"))
    assert "no null: x, y and z cannot be drawn anew" in lines("e", three)[2]
    assert "no null: its blocks share weights" in lines("e", deep((0.5, 0.6), null_problem="its blocks share weights"))[2]
    control = report(judged, control=Control(Accuracy(0.349), "c.pt", probes=(0.25, 0.5)), frozen_baseline_acc=0.349)
    assert lines("e", control)[2] == "of the control: h_0 0.2500  h_1 0.5000    (c.pt)"


@pytest.mark.parametrize(
    ("interval", "resolved"), [((3.0, 5.0), False), ((1.0, 3.0), False), ((3.01, 5.0), True), ((1.0, 2.99), True)]
)
def test_a_depth_utility_is_resolved_where_its_interval_does_not_hold_the_minimum(
    interval: tuple[float, float], resolved: bool
) -> None:
    found = deep((0.5, 0.54), draws=(0.5, 0.5), interval=interval).finding("e")
    assert (CauseKind.UNRESOLVED not in [cause.kind for cause in found.causes]) is resolved


def test_the_headline_of_depth_names_what_was_compared() -> None:
    assert deep((0.5, 0.54), draws=(0.5, 0.5)).finding("e").headline == "depth utility +4.00 pp >= 3"
    assert deep((0.5, 0.54)).finding("e").headline.startswith("gain +4.00 pp >= 3, but no null")
    assert "beyond the blocks drawn anew" in deep((0.5, 0.54), draws=(0.505,) * 2, as_initialised=(0,)).finding("e").explanation
    broken = deep((0.5, 0.6, 0.7), nonfinite=(0, 2, 1)).finding("e")
    assert broken.headline == "states are not finite: h_1 (2 images) and h_2 (1 image)"


@pytest.mark.parametrize(
    ("last", "draw", "interval", "said"),
    [
        (0.51, 0.5, (0.004, 2.0), "easier to read by 1.00 pp (0.004 to 2.00), less than"),
        (0.51, 0.5, (1.0, 1.004), "easier to read by 1.00 pp (1.00 to 1.00), less than"),
        (0.51, 0.505, (0.1, 0.9), "easier to read than random ones would by 0.50 pp (0.10 to 0.90)"),
        (0.51, 0.5, (0.0, 2.0), "no evidence that the blocks make the class easier to read: +1.00 pp (+0.00 to +2.00)"),
        (0.49, 0.5, (-2.0, 0.0), "There is no evidence that the blocks make"),
        (0.49, 0.5, (-2.0, 0.5), "There is no evidence that the blocks make"),
        (0.49, 0.5, (-2.0, -0.5), "harder to read by 1.00 pp (0.50 to 2.00)"),
        (0.51, 0.5, (0.5, 2.0), "the embedding reads 0.500, of the last state 0.510."),
    ],
)
def test_what_a_small_depth_utility_says(last: float, draw: float, interval: tuple[float, float], said: str) -> None:
    assert said in deep((0.5, last), draws=(draw,) * 2, interval=interval).finding("e").explanation


@pytest.mark.parametrize(("first", "said"), [(0.895, ""), (0.905, ", and 9.5 pp were left to add")])
def test_ten_points_that_are_left_are_enough(first: float, said: str) -> None:
    explained = deep((first, first + 0.01), draws=(first,) * 2).finding("e").explanation
    assert f"of the last state {first + 0.01:.3f}{said}." in explained


@pytest.mark.parametrize(("last", "said"), [(0.5, False), (0.505, True), (0.49, False)])
def test_what_is_read_behind_blocks_as_initialised(last: float, said: bool) -> None:
    found = deep((0.5, last), draws=(0.5, 0.5), as_initialised=(0,)).finding("e")
    assert ("What is read behind them, +0.50 pp beyond h_0, is" in found.explanation) is said
    assert ("What is read" in found.explanation) is said


def test_blocks_that_add_nothing_are_remarked_from_half_of_them_on() -> None:
    probes, idle, busy = (0.5, 0.6, 0.7, 0.8, 0.9), (-1.0, 1.0), (0.5, 2.0)

    def remarked(*steps: tuple[float, float], **changes: Any) -> list[str]:
        judged = deep(probes[: len(steps) + 1], draws=(0.5, 0.5), step_intervals=steps)
        return [remark for remark in replace(judged, **changes).remarks if "nothing to what a linear probe reads" in remark]

    assert remarked(idle, busy, busy, idle) == ["blocks 0, 3 add nothing to what a linear probe reads"]
    assert remarked(busy, (0.0, 1.0)) == ["block 1 adds nothing to what a linear probe reads"]
    assert remarked(idle, busy, busy, busy) == remarked(idle, busy, busy) == []
    assert remarked(idle, idle, diagnostics=BP.diagnostics) == []


# --- (f) -------------------------------------------------------------------------------------------------------------


def credited(gamma: tuple[float, ...], *, first: int = 1, **changes: Any) -> DiagnosticReport:
    """The credit of sites whose null goes from -0.1 to 0.1."""
    n = len(gamma)
    own: dict[str, Any] = {
        "source": "lab.rules:credit",
        "sites": tuple(f"h_{layer}" for layer in range(first, first + n)),
        "gamma": gamma,
        "null_mean": (0.05,) * n,
        "null_sd": (0.05,) * n,
        "null_low": (-0.1,) * n,
        "null_high": (0.1,) * n,
        "nudge": (0.4,) * n,
        "random_nudge": ((-0.01, 0.0, 0.01, 0.02, -0.02),) * n,
        "magnitude": (2.0,) * n,
        "undefined": (0,) * n,
        "samples": 1280,
    }
    asked = (*BP.diagnostics, "credit-alignment")
    return report(diagnostics=asked, observations={"credit": to_plain(asdict(Credit(**{**own, **changes})))})


def test_the_lines_and_the_form_of_credit() -> None:
    seen = credited((0.55, 0.0), undefined=(3, 0), null_sd=(0.05, 0.0))
    head, *sites = lines("f", seen)
    assert head.startswith("credit from lab.rules:credit, 1,280 samples;") and "h_0 stands apart" not in head
    tail = "nudge +0.400 random [-0.02, +0.02]  ‖a‖/‖g‖ 2"
    assert sites == [
        f"h_1 aligned  Γ +0.550  null [-0.100, +0.100] z +10.0  {tail}, undefined for 3 samples",
        f"h_2 null     Γ +0.000  null [-0.100, +0.100] z +nan  {tail}",
    ]
    assert lines("f", seen, form=True) == ["h_1 Γ +0.550 (aligned)", "h_2 Γ +0.000 (null)"]
    embedded = lines("f", credited((0.55, 0.55), first=0))
    assert "h_0 stands apart and is not counted" in embedded[0]
    assert [line.endswith(" (apart)") for line in embedded[1:]] == [False, True]
    assert lines("f", credited((math.nan,)))[1].endswith("is zero or not finite for all samples")
    assert lines("f", BP) == ["not measured: give the method's credit by --fa-credit=package.module:function"]
    assert lines("f", BP, form=True) == lines("f", credited((0.5,), problem="no credit"), form=True) == []
    assert lines("f", credited((0.5,), problem="no credit")) == ["not measured: no credit"]


@pytest.mark.parametrize("gamma", [-0.1, 0.1])
def test_a_gamma_at_the_end_of_its_null_is_within_it(gamma: float) -> None:
    assert "no closer to the gradient than it would be with" in credited((gamma,)).finding("f").explanation


@pytest.mark.parametrize(
    ("gamma", "sizes", "first", "said"),
    [
        ((0.9, 0.9), (1.0, 10.0), 1, True),
        ((0.9, 0.9), (1.0, 9.9), 1, False),
        ((0.899, 0.9), (1.0, 10.0), 1, False),
        ((0.9, 0.5), (1.0, 10.0), 1, False),
        ((0.5, 0.9, 0.9), (1.0, 1.0, 10.0), 0, True),
        ((0.9, 0.9, 0.9), (10.0, 1.0, 1.0), 0, False),
    ],
)
def test_sizes_that_differ_tenfold_where_all_directions_are_right(
    gamma: tuple[float, ...], sizes: tuple[float, ...], first: int, said: bool
) -> None:
    found = lines("f", credited(gamma, first=first, magnitude=sizes))
    assert any("goes from 1 to 10" in line for line in found) is said and len(found) == 1 + len(gamma) + said


@pytest.mark.parametrize(
    ("gamma", "said"), [((1.0, 1 - 1e-6), True), ((1.0, 1 - 1.05e-6), False), ((0.5, 1.0), False), ((math.nan, 1.0), False)]
)
def test_credit_is_the_gradient_up_to_rounding_at_every_site(gamma: tuple[float, ...], said: bool) -> None:
    seen = credited(gamma).credit
    assert seen is not None and seen.is_gradient is said


def test_a_column_without_a_number_says_so() -> None:
    columns = {column.title: column for column in DIAGNOSTICS.columns}
    assert columns["margin"].written(report(frozen_baseline_acc=None)) is None
    assert columns["margin"].show(None) == "not measured"
    assert columns["credit"].written(BP) is None
    assert (columns["margin"].written(BP), columns["frozen"].written(BP)) == ("+26.00", "0.3490")
