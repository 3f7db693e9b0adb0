"""(e) judged: what fires, what is only likely, what the report says of it, and what the verdict makes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import BP, report

from pytest_fadiag import Accuracy, AuditError, DiagnosticReport
from pytest_fadiag.judge.codec import to_plain
from pytest_fadiag.judge.depth import Depth, paired_mean
from pytest_fadiag.judge.diagnostics import CauseKind, Status
from pytest_fadiag.judge.inputs import NormalisedBy, StatedInputs
from pytest_fadiag.judge.verdict import BELOW_EMBEDDING

ABCDE = ("residual-growth", "gradient-floor", "direction-drift", "frozen-margin", "depth-utility")
DEEP: dict[str, Any] = {
    "probes": (0.60, 0.70, 0.78, 0.80),
    "null": ((0.60, 0.60, 0.61, 0.61), (0.60, 0.60, 0.61, 0.63)),
    "interval": (16.0, 20.0),
    "step_intervals": ((8.0, 12.0), (5.0, 9.0), (0.2, 3.0)),
    "change": (0.5, 0.4, 0.3),
    "fitted": 5_000,
    "read": 5_000,
    "nonfinite": (0, 0, 0, 0),
}


def probed(**changes: Any) -> DiagnosticReport:
    """A report without a control whose probes were read."""
    depth = to_plain(Depth(**{**DEEP, **changes}))
    return report(BP, frozen_baseline_acc=None, diagnostics=ABCDE, observations={"depth": depth})


def test_utility_is_the_gain_without_what_random_blocks_gain() -> None:
    one = probed()
    assert one.probe_accuracies == (0.60, 0.70, 0.78, 0.80)
    assert one.null_probe_accuracies == pytest.approx((0.60, 0.60, 0.61, 0.62))
    assert (one.depth_null_pp, one.depth_utility_pp, one.depth_interval_pp) == (2.0, 18.0, (16.0, 20.0))
    assert one.depth is not None and one.depth.steps_pp == (10.0, 8.0, 2.0) and one.depth.null_gains_pp == (1.0, 3.0)
    assert one.finding("e").status is Status.PASS and one.finding("e").value == 18.0


def test_blocks_that_only_keep_what_random_ones_lose_have_added_nothing() -> None:
    lost = probed(probes=(0.7, 0.7, 0.7, 0.7), null=((0.7, 0.6, 0.5, 0.45), (0.7, 0.6, 0.5, 0.55)), interval=(-0.4, 0.4))
    assert (lost.depth_null_pp, lost.depth_utility_pp) == (-20.0, 0.0)
    assert lost.finding("e").fired


@pytest.mark.parametrize(("last", "fires"), [(0.6299, True), (0.63, False)])
def test_it_fires_below_three_points_and_not_at_them(last: float, fires: bool) -> None:
    null = ((0.6, 0.6, 0.6, 0.6),) * 2
    assert probed(probes=(0.6, 0.6, 0.6, last), null=null).finding("e").fired is fires


def test_the_threshold_is_the_users() -> None:
    one = probed()
    moved = DiagnosticReport.from_dict({**one.to_dict(), "thresholds": {"depth_utility_minimum_pp": 18.5}})
    assert moved.finding("e").fired and moved.verdict == "needs walk-back: depth adds nothing to read"


@pytest.mark.parametrize(
    ("last", "interval", "said"),
    [
        (0.50, (-11.0, -9.0), "harder to read by 10.00 pp (9.00 to 11.00)"),
        (0.605, (-0.4, 1.4), "no evidence that the blocks make the class easier to read: +0.50 pp (-0.40 to +1.40)"),
        (0.62, (1.0, 3.0), "make the class easier to read by 2.00 pp (1.00 to 3.00), less than the 3 pp that are asked"),
    ],
)
def test_a_flag_says_what_its_interval_says(last: float, interval: tuple[float, float], said: str) -> None:
    one = probed(probes=(0.6, 0.6, 0.6, last), null=((0.6, 0.6, 0.6, 0.6),) * 2, interval=interval)
    flag = next(line for line in str(one).splitlines() if "FLAG: depth adds nothing to read" in line)
    assert said in flag and f"of the embedding reads 0.600, of the last state {last:.3f}" in flag
    assert ("The accuracy is no evidence that depth was learnt" in flag) is (interval[0] <= 0)


@pytest.mark.parametrize(
    ("last", "interval", "said"),
    [
        (0.60, (-12.0, -8.0), "harder to read than random ones would by 10.00 pp (8.00 to 12.00); a linear"),
        (0.70, (-2.0, 2.0), "easier to read than random ones would: +0.00 pp (-2.00 to +2.00); a linear"),
        (0.72, (0.004, 4.0), "easier to read than random ones would by 2.00 pp (0.004 to 4.00), less than"),
    ],
)
def test_a_flag_compares_with_random_blocks_where_these_add_something(
    last: float, interval: tuple[float, float], said: str
) -> None:
    one = probed(probes=(0.3, 0.5, 0.6, last), null=((0.3, 0.6, 0.6, 0.7),) * 2, interval=interval)
    flag = next(line for line in str(one).splitlines() if "FLAG: depth adds nothing to read" in line)
    assert said in flag and "beyond" not in flag


def test_ends_of_an_interval_show_that_they_exclude_0() -> None:
    assert "95 % interval +0.004 to +20.00 (paired" in " ".join(str(probed(interval=(0.004, 20.0))).split())


def test_the_report_shows_every_probe_the_null_with_both_draws_and_each_block() -> None:
    text = str(probed())
    for part in (
        "h_0 0.6000  h_1 0.7000  h_2 0.7800  h_3 0.8000",
        "h_0 0.6000  h_1 0.6000  h_2 0.6100  h_3 0.6200",
        "a linear readout of the embedding reads 0.600 on these 5,000 images; the network 0.609",
        "null +2.00 pp (draws +1.00 and +3.00)",
        "depth utility +18.00 pp",
        "+16.00 to +20.00 (paired against the blocks drawn anew)",
        "0: +10.00 (null +0.00)  1: +8.00 (null +1.00)  2: +2.00 (null +1.00)",
        "‖f_l‖/‖h_l‖: 0.5  0.4  0.3",
        "every block adds something",
    ):
        assert part in " ".join(text.split()) or part in text, part


def test_where_depth_helps_and_half_of_the_blocks_do_not_they_are_named() -> None:
    one = probed(step_intervals=((15.0, 20.0), (-0.1, 0.1), (-0.2, 0.3)))
    assert one.idle_blocks == (1, 2)
    assert "blocks 1–2 add nothing to what a linear probe reads" in one.remarks
    assert probed(step_intervals=((15.0, 20.0), (1.0, 2.0), (-0.2, 0.3))).remarks == ()
    hollow = probed(probes=(0.6,) * 4, step_intervals=((-0.1, 0.1),) * 3)
    assert "blocks 0–2 add nothing" in str(hollow) and hollow.remarks == ()  # that it fires says enough


def test_without_a_null_a_small_gain_fires_and_a_large_one_is_only_likely() -> None:
    """A ViT gains 56 points by random blocks: a gain alone proves nothing."""
    large = probed(null=(), undrawn=("blocks.1",))
    assert large.finding("e").status is Status.LIKELY_PASS and large.depth_utility_pp is None
    assert "blocks.1 cannot be drawn anew" in str(large)
    assert large.verdict == "incomplete: frozen-margin not measured; depth-utility likely"
    assert probed(probes=(0.6, 0.6, 0.6, 0.62), null=(), undrawn=("blocks.1",)).finding("e").status is Status.FIRE
    broken = probed(null=(), null_problem="with blocks drawn anew, states are not finite for 3 images")
    assert broken.finding("e").status is Status.LIKELY_PASS and "no null: with blocks drawn anew, states" in str(broken)


def test_states_that_are_not_finite_fire() -> None:
    one = probed(nonfinite=(0, 0, 3, 0))
    assert one.finding("e").fired and "h_2 (3 images)" in one.finding("e").headline


def test_what_was_not_measured_is_not_judged() -> None:
    few = probed(problem="900 test images; a probe needs 1,000")
    assert few.finding("e").status is Status.NOT_MEASURED and few.depth_utility_pp is None and few.probe_accuracies is None
    assert few.verdict == "incomplete: frozen-margin not measured; depth-utility not measured"


def test_a_verdict_needs_d_or_e() -> None:
    assert probed().verdict == "trustworthy"
    assert report(BP, diagnostics=ABCDE).verdict == "trustworthy"
    assert report(BP, frozen_baseline_acc=None).verdict == "incomplete: frozen-margin not measured"
    assert report(BP, diagnostics=ABCDE[:3]).verdict == "incomplete: frozen-margin not asked for"
    without_control = tuple(name for name in ABCDE if name != "frozen-margin")
    assert DiagnosticReport.from_dict({**probed().to_dict(), "diagnostics": list(without_control)}).verdict == "trustworthy"


def test_a_report_comes_back_from_json_as_it_was() -> None:
    one = probed()
    plain = one.to_dict()
    assert plain["probe_accuracies"] == [0.60, 0.70, 0.78, 0.80] and plain["depth_interval_pp"] == [16.0, 20.0]
    assert DiagnosticReport.from_dict(plain).to_dict() == plain


@pytest.mark.parametrize(
    "broken",
    [
        {"probes": ["a"]},
        {"probes": [0.5]},
        {**to_plain(DEEP), "probes": [0.5, 0.6]},
        {**to_plain(DEEP), "probes": [60, 70, 78, 80]},
        {**to_plain(DEEP), "change": [0.5]},
    ],
)
def test_probes_that_are_none_are_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(AuditError, match="depth"):
        report(BP, diagnostics=ABCDE, observations={"depth": broken})


def test_the_interval_is_that_of_paired_proportions() -> None:
    from pytest_fadiag.judge.margins import paired_interval

    assert paired_mean([1.0] * 30 + [-1.0] * 10 + [0.0] * 60) == pytest.approx(
        (paired_interval(30, 10, 100).low, paired_interval(30, 10, 100).high)
    )
    low, high = paired_mean([0.0] * 100)
    assert low < 0 < high


def test_blocks_as_initialised_have_learnt_nothing_whatever_is_read_behind_them() -> None:
    frozen = probed(as_initialised=(0, 1, 2))
    finding = frozen.finding("e")
    assert finding.fired and finding.value == 18.0 and "every block is as a new initialisation leaves it" in str(frozen)
    assert frozen.verdict == "needs walk-back: depth adds nothing to read"
    some = probed(as_initialised=(1, 2))
    assert not some.finding("e").fired and some.idle_blocks == (1, 2)
    assert "blocks 1–2 are as a new initialisation leaves them" in str(some) and "blocks 1–2 add nothing" in str(some)


@pytest.mark.parametrize(("first", "said"), [(0.93, "0.940, and 7.0 pp were left to add."), (0.89, "0.900.")])
def test_data_that_leave_little_to_add_are_told_where_depth_adds_little(first: float, said: str) -> None:
    finding = probed(probes=(first, first, first, first + 0.01), null=((first,) * 4,) * 2, interval=(0.1, 1.9)).finding("e")
    assert finding.fired and finding.explanation.endswith(f"of the last state {said}")


def test_what_is_read_of_a_class_token_is_not_said_of_the_embedding() -> None:
    text = str(probed(probes=(0.2, 0.2, 0.2, 0.2), null=((0.2,) * 4,) * 2, interval=(-1.0, 1.0), tokens="the class token"))
    assert "a linear readout of the class token at h_0 reads 0.200 on these 5,000 images; the network 0.609" in text
    assert "; a linear readout of the class token at h_0 reads 0.200, of the last state 0.200." in text
    assert "of the embedding" not in text


@pytest.mark.parametrize(
    ("draws", "differ"),
    [((0.40, 0.78), True), ((0.62, 0.66), True), ((0.62, 0.65), False), ((0.40, 0.62), False), ((0.20, 0.50), False)],
)
def test_draws_of_the_null_that_differ_by_more_than_is_asked_resolve_nothing(draws: tuple[float, float], differ: bool) -> None:
    one = probed(null=tuple((0.60, 0.60, 0.60, last) for last in draws))
    assert (CauseKind.DRAWS_DIFFER in [cause.kind for cause in one.finding("e").causes]) is differ
    assert any(remark.startswith("blocks drawn anew gain") for remark in one.remarks) is differ
    if draws == (0.40, 0.78):
        assert (
            "blocks drawn anew gain -20.00 and +18.00 pp: the depth utility differs with the draw by 18.00 pp, more than the "
            "3 pp that are asked"
        ) in one.remarks
        assert one.finding("e").outcome == "pass (not resolved: the draws of the null differ)"


@pytest.mark.parametrize(
    ("null", "beyond"),
    [
        (DEEP["null"], "+18.00 pp beyond the blocks drawn anew"),
        (((0.6,) * 4,) * 2, "+20.00 pp beyond h_0"),
        ((), "+20.00 pp beyond h_0"),
    ],
)
def test_of_blocks_as_initialised_it_is_said_beyond_what_the_rest_is_read(null: Any, beyond: str) -> None:
    assert f"What is read behind them, {beyond}, is what" in str(probed(as_initialised=(0, 1, 2), null=null))


def test_of_blocks_as_initialised_that_lose_nothing_is_said_to_be_read_behind_them() -> None:
    text = str(probed(probes=(0.6, 0.6, 0.6, 0.5), as_initialised=(0, 1, 2)))
    assert "leaves it. Nothing was learnt in the blocks.\n" in text and "What is read behind" not in text


@pytest.mark.parametrize(
    ("by", "accuracy", "said"),
    [(NormalisedBy.USUAL, 0.4, True), (NormalisedBy.USUAL, 0.56, False), (NormalisedBy.CHECKPOINT, 0.4, False)],
)
def test_a_network_far_below_its_own_embedding_was_perhaps_given_other_inputs(
    by: NormalisedBy, accuracy: float, said: bool
) -> None:
    inputs = StatedInputs("images", by, (0.286,), (0.353,), pixels=True)
    judged = replace(probed(), inputs=inputs, headline_acc=accuracy)
    assert judged.probe_accuracies is not None and judged.probe_accuracies[0] == 0.6
    assert any("normalised otherwise than in training" in remark for remark in judged.remarks) is said


@pytest.mark.parametrize(
    ("accuracy", "share", "verdict"),
    [
        (0.585, 0.1, "trustworthy"),  # √(0.6·0.4/5,000 + 0.585·0.415/10,000) is 0.85 points
        (0.581, 0.1, f"incomplete: frozen-margin not measured; depth-utility {BELOW_EMBEDDING}"),
        (0.3, 0.2, "trustworthy"),
        (0.299, 0.2, f"incomplete: frozen-margin not measured; depth-utility {BELOW_EMBEDDING}"),
    ],
)
def test_depth_that_the_network_loses_again_is_not_trustworthy(accuracy: float, share: float, verdict: str) -> None:
    """By half where a class is frequent: a probe learns that, and the network need not have been told."""
    companions = replace(BP.companions, label_classes=10, largest_label_share=share)
    judged = replace(probed(), headline_acc=accuracy, accuracy=Accuracy(accuracy, 10_000), companions=companions)
    assert not judged.fired and judged.verdict == verdict
