"""Reports with holes: what is exact, what a bound decides, what is only likely, and what cannot be said."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from functools import partial
from typing import Any

import builders
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fadiag import DiagnosticReport, DiagnosticThresholds, Trajectory
from pytest_fadiag.judge.bounds import segments
from pytest_fadiag.judge.codec import read
from pytest_fadiag.judge.diagnostics import Status
from pytest_fadiag.judge.records import AuxiliaryStatistics
from pytest_fadiag.judge.trajectory import Point
from pytest_fadiag.judge.wire import TrajectoryValues
from pytest_fadiag.show.audit import Audit

COLUMNS = Audit(()).columns

report = partial(builders.report, builders.PENALISED)


def statuses(judged: DiagnosticReport) -> list[Status]:
    return [finding.status for finding in judged.findings]


def test_the_published_penalised_numbers() -> None:
    judged = report()
    assert statuses(judged) == [Status.LIKELY_PASS, Status.LIKELY_PASS, Status.NOT_MEASURED, Status.FIRE]
    assert "up to 2 of 4 blocks could still exceed 50 if none shrinks the stream" in judged.finding("a").headline
    assert judged.finding("d").value == pytest.approx(1.4)
    assert judged.verdict == "needs walk-back: deep blocks fail to beat frozen-random baseline"
    assert judged.fired == "d"


# --- (a) -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("norms", "status", "words"),
    [
        ((9.0, None, None, None, 4e4), Status.LIKELY_PASS, "at least 8.16 <= 50; up to 2 of 4 blocks"),
        ((1.0, None, 2500.0), Status.LIKELY_PASS, "at least 50 <= 50; up to 2 of 2 blocks"),
        ((1.0, None, None, 125_000.0), Status.LIKELY_PASS, "at least 50 <= 50; up to 3 of 3 blocks"),
        ((3.0, None, None, None, None, 3 * 50.0**5), Status.LIKELY_PASS, "up to 5 of 5 blocks"),
        ((1.0, None, None, 2499.0), Status.LIKELY_PASS, "up to 1 of 3 blocks"),
        ((1.0, None, None, 49.0), Status.LIKELY_PASS, "no block exceeds 50 unless another shrinks the stream"),
        ((9.0, None, 3.0), Status.LIKELY_PASS, "no block exceeds 50 unless another shrinks"),
        ((1.0, None, 2501.0), Status.FIRE, "per-block growth at least 50.01 > 50"),
        ((1.0, 51.0, None, 60.0), Status.FIRE, "at least 51 > 50"),
        ((1.0, 49.0, None, 49 * 51.0), Status.LIKELY_PASS, "at least 49 <= 50; up to 1 of 2 blocks"),
        ((1.0, None, 60.0, None, 3600.0), Status.LIKELY_PASS, "up to 2 of 4 blocks"),
        ((1e-300, None, 1e300), Status.FIRE, "> 50"),
        ((1.0, 2.0, 3.0), Status.PASS, "per-block growth 2 <= 50"),
        ((None, 1.0, 60.0), Status.FIRE, "at least 60 > 50"),
        ((None, 1.0, 2.0), Status.NOT_MEASURED, "without ‖h_0‖ .as h_0_norm"),
        ((1.0, 2.0, None), Status.NOT_MEASURED, "without ‖h_L‖"),
        ((None, None, 4e4), Status.NOT_MEASURED, "without ‖h_0‖"),
        ((None, None, None), Status.NOT_MEASURED, "no ‖h_l‖ was logged"),
        ((math.inf, None, None), Status.FIRE, "not finite .first at layer 0"),
        ((None, None, math.nan), Status.FIRE, "not finite .first at layer 2"),
        ((9.0, None, 0.0), Status.FIRE, "all zero at layer 2"),
    ],
)
def test_growth_with_holes(norms: tuple[float | None, ...], status: Status, words: str) -> None:
    found = report(residual_norms=norms).finding("a")
    assert found.status is status
    assert re.search(words, found.headline), found.headline


@pytest.mark.parametrize("ratio", [0.0, 0.5, 1.0, 1e300])
def test_growth_with_holes_at_odd_ratios(ratio: float) -> None:
    thresholds = DiagnosticThresholds(h_norm_explosion_ratio=ratio)
    grows = report(residual_norms=(1.0, None, 4.0), thresholds=thresholds).finding("a")
    assert grows.fired == (ratio < 2)
    shrinks = report(residual_norms=(4.0, None, 1.0), thresholds=thresholds).finding("a")
    assert shrinks.fired == (ratio < 0.5)
    if not shrinks.fired:
        assert "no block exceeds" in shrinks.headline


def test_without_the_number_of_blocks_growth_is_not_measured() -> None:
    judged = report(residual_norms=(9.0, 4e4), bp_grad_norms=(None, None), depth_known=False)
    assert judged.finding("a").status is Status.NOT_MEASURED
    assert "‖h_L‖/‖h_0‖ 4.4e+03 > 50, but growth cannot be bounded without" in judged.finding("a").headline
    assert "the number of blocks (add n_blocks to the log's config)" in judged.finding("a").headline
    assert "h_L 4.0e+04" in str(judged)
    assert report(residual_norms=(9.0, 9e3, None, 4e4), depth_known=False).finding("a").status is Status.FIRE


@pytest.mark.parametrize(
    ("norms", "ratio", "status"),
    [
        ((9.0, 90.0), 50.0, Status.LIKELY_PASS),
        ((1.0, 50.0), 50.0, Status.LIKELY_PASS),
        ((9.0, 3.0), 50.0, Status.LIKELY_PASS),
        ((1.0, 50.1), 50.0, Status.NOT_MEASURED),
        ((9.0, 90.0, 400.0, 900.0), 50.0, Status.LIKELY_PASS),
        ((1.0, None, 2400.0, 2500.0), 50.0, Status.LIKELY_PASS),
        ((9.0, None, None, None), 50.0, Status.NOT_MEASURED),
        ((None, 9.0), 50.0, Status.NOT_MEASURED),
        ((4.0, 1.0), 0.5, Status.NOT_MEASURED),
    ],
)
def test_a_stream_that_grows_up_to_the_ratio_needs_no_number_of_blocks(norms: Any, ratio: float, status: Status) -> None:
    thresholds = DiagnosticThresholds(h_norm_explosion_ratio=ratio)
    judged = report(residual_norms=norms, bp_grad_norms=(None,) * len(norms), depth_known=False, thresholds=thresholds)
    found = judged.finding("a")
    assert found.status is status
    assert ("n_blocks" in found.headline) == (
        status is Status.NOT_MEASURED and None not in (norms[0], norms[-1])
    ) or None in norms
    if status is Status.LIKELY_PASS:
        could = "up to 1 of 2 blocks could still exceed 50" if None in norms else "no block exceeds 50 unless another shrinks"
        assert could in found.headline and could in str(judged)


def test_the_cumulative_form_has_a_bound_too() -> None:
    cumulative = DiagnosticThresholds(growth="cumulative")
    assert report(thresholds=cumulative).finding("a").status is Status.FIRE
    below = report(residual_norms=(9.0, None, 90.0), thresholds=cumulative).finding("a")
    assert below.status is Status.LIKELY_PASS
    assert below.headline.startswith("cumulative growth at least 10 <= 50; a layer that was not logged")
    assert (
        report(residual_norms=(9.0, 90.0), depth_known=False, thresholds=cumulative).finding("a").status is Status.LIKELY_PASS
    )
    assert report(residual_norms=(None, 90.0), thresholds=cumulative).finding("a").status is Status.NOT_MEASURED


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=6), st.data())
def test_property_a_bound_never_exceeds_the_growth_that_it_bounds(growths: list[float], data: st.DataObject) -> None:
    norms = [1.0]
    for factor in growths:
        norms.append(norms[-1] * factor)
    holes = data.draw(st.lists(st.integers(1, len(growths)), max_size=4))
    seen = [None if index in holes and index < len(growths) else norm for index, norm in enumerate(norms)]
    exact, partial = report(residual_norms=norms).finding("a"), report(residual_norms=seen).finding("a")
    assert partial.value is not None
    assert exact.value is not None
    assert partial.value <= exact.value * (1 + 1e-9)
    if partial.fired and not exact.fired:
        assert partial.value == pytest.approx(50.0)
    if min(growths) >= 1 and not partial.fired:
        above = sum(factor > 50 * (1 + 1e-9) for factor in growths)
        could = sum(part.could_exceed(50.0) for part in segments(seen))
        assert above <= could


# --- (b) -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("norms", "batch", "status", "outcome"),
    [
        ((None, None, 1e-6), 128, Status.PASS, "pass"),
        ((None, None, 9e-8), 128, Status.FIRE, "fire"),
        ((None, 1e-6, None), 128, Status.LIKELY_PASS, "likely pass (‖g_1‖ stands in for ‖g_L‖)"),
        ((1e-3, 1e-9, None), 1024, Status.LIKELY_FIRE, "likely fire (‖g_1‖ stands in for ‖g_L‖)"),
        ((1e-3, 1e-3, 1e-3), None, Status.LIKELY_PASS, "likely pass (batch size 128 assumed)"),
        ((None, 1e-9, None), None, Status.LIKELY_FIRE, "likely fire (‖g_1‖ stands in for ‖g_L‖; batch size 128 assumed)"),
        ((None, None, None), 128, Status.NOT_MEASURED, "not measured"),
        ((None, math.nan, None), None, Status.FIRE, "fire (non-finite)"),
        ((None, None, 0.0), None, Status.FIRE, "fire (all-zero gradient)"),
        ((None, 0.0, None), None, Status.LIKELY_FIRE, "likely fire (all-zero gradient)"),
    ],
)
def test_gradients_with_holes(norms: Any, batch: int | None, status: Status, outcome: str) -> None:
    found = report(bp_grad_norms=norms, gradient_batch=batch).finding("b")
    assert (found.status, found.outcome) == (status, outcome)


def test_the_text_says_at_which_batch_size_and_what_is_missing() -> None:
    unknown = " ".join(str(report(gradient_batch=None)).split())
    assert "128 is assumed; a log made at N=1024 reads 8 times lower" in unknown
    assert "grad_batch_size in the log's config" in unknown
    scaled = str(report(gradient_batch=1024))
    assert "logged at batch size 1,024, given here as at 128 (times 8)" in scaled
    assert "‖g_2‖ stands in for ‖g_L‖ (a proxy)" in scaled
    assert "saturation cannot be told from collapse: the published rule applies" in scaled
    assert "(not logged: h_1, h_2, h_3)" in scaled
    assert "log hidden_norms of every layer, or use pytest_fadiag.Recorder" in scaled


def test_the_batch_size_of_the_training_is_an_assumption() -> None:
    judged = report(bp_grad_norms=(None, None, 9e-8), gradient_batch=None, assumed_batch=256)
    assert judged.finding("b").outcome == "likely fire (batch size 256 assumed, that of the training)"
    assert "the training's own, 256, is assumed (they are given here as at 128)" in " ".join(str(judged).split())
    assert DiagnosticReport.from_dict(json.loads(json.dumps(judged.to_dict()))) == judged


@pytest.mark.parametrize("value", [math.inf, math.nan, -math.inf])
def test_a_companion_that_is_not_finite_excuses_nothing(value: float) -> None:
    companions = AuxiliaryStatistics(gradient_per_unit_error=abs(value), sample_invariance=value)
    judged = report(bp_grad_norms=(None, None, 7e-8), cross_batch_stability=0.9, companions=companions)
    assert judged.finding("b").status is Status.FIRE
    assert judged.finding("c").status is Status.FIRE


def test_a_companion_in_the_log_excuses_as_ever() -> None:
    saturated = report(bp_grad_norms=(None, None, 7e-8), companions=AuxiliaryStatistics(gradient_per_unit_error=5e-3))
    assert saturated.finding("b").outcome == "pass (saturated)"


# --- (c), (d) and the verdict ----------------------------------------------------------------------------------------


def test_a_cosine_of_other_batches_is_only_likely() -> None:
    assert report(cross_batch_stability=0.1).finding("c").status is Status.PASS
    assert report(cross_batch_stability=0.9, gradient_batch=1024).finding("c").status is Status.LIKELY_FIRE
    assert report(cross_batch_stability=0.1, gradient_batch=None).finding("c").outcome.startswith("likely pass (batches of unk")
    assert report(cross_batch_stability=math.nan, stability_layer=None).finding("c").status is Status.FIRE


def test_without_an_accuracy_the_margin_is_not_measured() -> None:
    judged = report(headline_acc=None)
    assert judged.finding("d").status is Status.NOT_MEASURED
    assert "the log has no accuracy" in judged.finding("d").headline
    assert judged.frozen_baseline_undercut is None
    assert "accuracy not logged" in str(judged)


EXACT: dict[str, Any] = {
    "residual_norms": (9.0, 10.0),
    "bp_grad_norms": (1e-3, 1e-3),
    "cross_batch_stability": 0.1,
    "headline_acc": 0.4,
}


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        (EXACT, "trustworthy"),
        ({**EXACT, "frozen_baseline_acc": None}, "incomplete: frozen-margin not measured"),
        ({**EXACT, "headline_acc": None}, "incomplete: frozen-margin not measured"),
        (
            {**EXACT, "residual_norms": (9.0, None, 10.0), "cross_batch_stability": None},
            "incomplete: residual-growth likely; direction-drift not measured",
        ),
        (
            {**EXACT, "gradient_batch": None, "bp_grad_norms": (1e-9, 1e-9), "cross_batch_stability": None},
            "needs walk-back: BP grad at numerical floor (likely)",
        ),
        ({**EXACT, "residual_norms": (9.0, None, 1e9)}, "needs walk-back: residual stream exploded"),
    ],
)
def test_the_verdict_of_a_partial_audit(changes: dict[str, Any], verdict: str) -> None:
    assert report(**changes).verdict == verdict


def test_a_report_with_holes_is_partial_whoever_made_it() -> None:
    assert report(partial=False).partial
    assert not report(**EXACT, partial=False).partial


def test_a_table_shows_no_number_for_what_is_not_known() -> None:
    shown = {column.title: column.value(report()) for column in COLUMNS}
    assert shown["growth"] is None
    assert shown["‖g_L‖"] is None
    assert shown["drift"] is None
    assert shown["‖h_L‖"] == 4e4
    assert shown["margin"] == pytest.approx(1.4)


# --- trajectories ----------------------------------------------------------------------------------------------------


def trajectory() -> Trajectory:
    return Trajectory(
        (
            Point(1, (9.0, None, 10.0), (None, 1e-5, None), accuracy=0.30),
            Point(5, (9.0, None, 1e5), (None, 1e-6, None), accuracy=0.36, drift=math.nan),
            Point(
                9, (9.0, None, math.inf), (None, 1e-9, None), accuracy=0.40,
                companions=AuxiliaryStatistics(samples=1280, nonfinite_states=(0, 0, 7), sample_invariance=0.2),
            ),
        )
    )  # fmt: skip


def test_the_first_epoch_at_which_each_diagnostic_fired() -> None:
    judged = report(residual_norms=(9.0, None, math.inf), headline_acc=0.40, trajectory=trajectory())
    assert judged.trajectory is not None
    assert judged.trajectory.first_fired == {"d": 1, "a": 5, "c": 5, "b": 9}
    assert "first fired: (d) epoch 1 (not at the end), (a) epoch 5, (c) epoch 5 (not at the end), (b) epoch 9 (not at" in str(
        judged
    )
    assert judged.trajectory.epochs == (1, 5, 9)
    assert judged.trajectory.residual_norm == (10.0, 1e5, math.inf)
    assert (judged.trajectory.gradient_layer, judged.trajectory.gradient_norm) == (1, (1e-5, 1e-6, 1e-9))
    assert judged.trajectory.accuracy == (0.30, 0.36, 0.40)


def test_other_thresholds_judge_every_epoch_anew() -> None:
    judged = report(
        trajectory=trajectory(), thresholds=DiagnosticThresholds(g_norm_floor=1e-5 * 1.1, h_norm_explosion_ratio=1e9)
    )
    assert judged.trajectory is not None
    assert judged.trajectory.first_fired == {"b": 1, "d": 1, "c": 5, "a": 9}
    written = judged.to_dict()
    written["thresholds"]["g_norm_floor"] = 1e-30
    again = DiagnosticReport.from_dict(json.loads(json.dumps(written, allow_nan=False)))
    assert again.trajectory is not None
    assert again.trajectory.first_fired == {"d": 1, "c": 5, "a": 9}


@pytest.mark.parametrize(
    ("companions", "key"),
    [
        (AuxiliaryStatistics(nonfinite_states=(0, 7)), "a"),
        (AuxiliaryStatistics(nonfinite_gradients=(0, 7)), "b"),
        (AuxiliaryStatistics(nonfinite_logits=7), "d"),
        (AuxiliaryStatistics(sample_invariance=0.2), "c"),
        (AuxiliaryStatistics(gradient_per_unit_error=5e-3), ""),
    ],
)
def test_an_epoch_keeps_the_companions_that_decide(companions: AuxiliaryStatistics, key: str) -> None:
    """Each changes what fires in an epoch whose norms, cosine and accuracy alone would not say."""
    gradient = 1e-8 if companions.gradient_per_unit_error else 1e-3
    beside = replace(companions, sample_invariance=companions.sample_invariance or 0.01)
    point = Point(3, (9.0, 10.0), (1e-3, gradient), 0.5, 0.4, beside)
    judged = report(**EXACT, trajectory=Trajectory((point,)))
    again = DiagnosticReport.from_dict(json.loads(json.dumps(judged.to_dict())))
    assert again.trajectory is not None
    assert again.trajectory.first_fired == dict.fromkeys(key, 3)


def test_partial_reports_round_trip_through_json() -> None:
    judged = report(trajectory=trajectory(), caveats=["the last line is cut"], gradient_batch=None, depth_known=False)
    written = json.dumps(judged.to_dict(), allow_nan=False)
    again = DiagnosticReport.from_dict(json.loads(written))
    assert json.dumps(again.to_dict(), allow_nan=False) == written
    assert str(again) == str(judged)
    assert "note: the last line is cut" in str(again)


def test_a_report_written_before_there_were_partial_ones_is_read() -> None:
    written = report(**EXACT, partial=False).to_dict()
    for new in ("partial", "gradient_batch", "depth_known", "caveats", "trajectory"):
        del written[new]
    assert DiagnosticReport.from_dict(written).verdict == "trustworthy"


def test_a_trajectory_keeps_a_companion_that_is_zero_in_every_epoch() -> None:
    companions = AuxiliaryStatistics(sample_invariance=0.0)
    course = Trajectory(tuple(Point(epoch, (9.0, 9.0), (1e-3, 1e-3), 0.9, 0.4, companions) for epoch in (1, 2)))
    judged = report(residual_norms=(9.0, 9.0), bp_grad_norms=(1e-3, 1e-3), cross_batch_stability=0.9, companions=companions,
                    trajectory=course, frozen_baseline_acc=0.3)  # fmt: skip
    assert judged.trajectory is not None and judged.trajectory.first_fired == {}
    assert DiagnosticReport.from_dict(json.loads(json.dumps(judged.to_dict()))) == judged


def test_what_no_epoch_tells_is_not_said_to_have_never_fired() -> None:
    def judged(*accuracies: float | None) -> DiagnosticReport:
        course = tuple(Point(epoch, (9.0, 9.0), (1e-3, 1e-3), None, acc) for epoch, acc in enumerate(accuracies, 1))
        norms: dict[str, Any] = {"residual_norms": (9.0, 9.0), "bp_grad_norms": (1e-3, 1e-3)}
        return report(**norms, headline_acc=0.30, trajectory=Trajectory(course))

    without, other, early = judged(None, None), judged(0.5, 0.5), judged(0.3, 0.5)
    assert [each.trajectory.known for each in (without, other, early) if each.trajectory] == [
        ("a", "b"),
        ("a", "b", "d"),
        ("a", "b", "d"),
    ]
    assert "  first fired: (d) not logged by epoch\n" in str(without)
    assert "  first fired: (d) only in the final numbers\n" in str(other)
    assert "  first fired: (d) epoch 1 of 2\n" in str(early)
    older = {**without.to_dict()["trajectory"]}
    del older["known"]
    assert read(TrajectoryValues, older, "trajectory").trajectory("trajectory").known == ()
