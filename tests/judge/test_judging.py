"""The judge on plain numbers: which diagnostics fire, what is excused, and what can never pass."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from builders import BP, report
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_fadiag import Accuracy, AuditError, Control, DiagnosticReport, DiagnosticThresholds
from pytest_fadiag.judge.codec import read, to_plain
from pytest_fadiag.judge.control import ControlKind
from pytest_fadiag.judge.diagnostics import DIAGNOSTICS, Cause, CauseKind, Status
from pytest_fadiag.judge.records import AuxiliaryStatistics, Measurement


def fired(judged: DiagnosticReport) -> str:
    return "".join(finding.key for finding in judged.findings if finding.fired)


def unfolded(judged: DiagnosticReport) -> str:
    """The text of a report with its folded lines joined."""
    return " ".join(str(judged).split())


def test_the_published_bp_network_is_trustworthy() -> None:
    assert report().verdict == "trustworthy"


def test_the_published_dfa_network_needs_a_walk_back_with_three_reasons() -> None:
    judged = report(
        residual_norms=[9.0, 9e3, 4e6, 1e8, 4e8],
        bp_grad_norms=[1e-8, 5e-9, 4e-9, 4e-9, 4e-9],
        headline_acc=0.308,
    )
    assert judged.verdict == (
        "needs walk-back: residual stream exploded; BP grad at numerical floor; deep blocks fail to beat frozen-random baseline"
    )


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        pytest.param({"residual_norms": [1.0, 50.1]}, "a", id="exploded"),
        pytest.param({"residual_norms": [1.0, 50.0]}, "", id="growth at the threshold"),
        pytest.param({"residual_norms": [1.0, 40.0, 1600.0]}, "", id="large only cumulatively"),
        pytest.param({"bp_grad_norms": [1e-3, 9.9e-8]}, "b", id="floored"),
        pytest.param({"bp_grad_norms": [1e-3, 1e-7]}, "", id="gradient at the floor's value"),
        pytest.param({"bp_grad_norms": [1e-9, 1e-3]}, "", id="only the deepest layer decides"),
        pytest.param({"cross_batch_stability": 0.31}, "c", id="drifted"),
        pytest.param({"cross_batch_stability": 0.30}, "", id="drift at the ceiling"),
        pytest.param({"cross_batch_stability": -0.9}, "", id="anti-aligned batches are no drift"),
        pytest.param({"headline_acc": 0.368}, "d", id="undercut"),
        pytest.param({"headline_acc": 0.369}, "", id="margin of exactly 2 pp"),
        pytest.param({"headline_acc": 0.2, "frozen_baseline_acc": None}, "", id="no control, no margin"),
    ],
)
def test_what_fires_without_companions_is_the_published_rule(changes: dict[str, Any], keys: str) -> None:
    assert fired(report(**changes)) == keys


def test_cumulative_growth_is_selectable_and_both_forms_are_printed() -> None:
    norms = [1.0, 40.0, 1600.0]
    thresholds = DiagnosticThresholds(growth="cumulative")
    assert fired(report(residual_norms=norms, thresholds=thresholds)) == "a"
    text = str(report(residual_norms=norms))
    assert "per-block growth (max ‖h_l+1‖/‖h_l‖): 40" in text
    assert "cumulative growth (max ‖h_l‖/‖h_0‖): 1.6e+03" in text


SATURATED = AuxiliaryStatistics(gradient_per_unit_error=5e-3, output_error_norm=2.5e-5)
UNSATURATED = AuxiliaryStatistics(gradient_per_unit_error=5e-3, output_error_norm=0.5)
COLLAPSED = AuxiliaryStatistics(gradient_per_unit_error=1.4e-8, output_error_norm=0.9)
BIASED = AuxiliaryStatistics(sample_invariance=0.03, output_error_drift=0.55)
ONE_CLASS = AuxiliaryStatistics(sample_invariance=0.42, output_error_drift=0.95)
TWO_CLASSES = AuxiliaryStatistics(sample_invariance=math.nan, output_error_drift=0.95, predicted_class_share=0.93)
ONE_OF_TWO = replace(TWO_CLASSES, predicted_class_share=0.995)
SORTED = replace(TWO_CLASSES, probe_classes=2, label_classes=10, largest_label_share=0.1, predicted_class_share=0.54)


@pytest.mark.parametrize(
    ("changes", "excused", "flagged"),
    [
        pytest.param({"bp_grad_norms": [7e-8, 7e-8], "companions": SATURATED}, "", "b", id="saturated"),
        pytest.param({"bp_grad_norms": [4e-9, 4e-9], "companions": COLLAPSED}, "b", "b", id="collapsed"),
        pytest.param({"bp_grad_norms": [7e-8, 7e-8], "companions": UNSATURATED}, "", "b", id="above the floor per error"),
        pytest.param({"bp_grad_norms": [7e-8, 7e-8], "companions": SATURATED, "partial": True}, "", "b", id="likely saturated"),
        pytest.param({"cross_batch_stability": 0.35, "companions": BIASED}, "", "c", id="biased output"),
        pytest.param({"cross_batch_stability": 0.93, "companions": ONE_CLASS}, "c", "c", id="one class only"),
        pytest.param(
            {"cross_batch_stability": 0.93, "companions": AuxiliaryStatistics(sample_invariance=0.157)}, "c", "c", id="conv"
        ),
        pytest.param({"cross_batch_stability": 0.35, "companions": SORTED}, "", "c", id="sorted, one class a bit too often"),
        pytest.param(
            {"cross_batch_stability": 0.35, "companions": replace(SORTED, predicted_class_share=0.56)},
            "c",
            "c",
            id="sorted, driven",
        ),
        pytest.param({"cross_batch_stability": 0.998, "companions": TWO_CLASSES}, "", "c", id="two classes, both predicted"),
        pytest.param({"cross_batch_stability": 0.998, "companions": ONE_OF_TWO}, "c", "c", id="two classes, one predicted"),
    ],
)
def test_confounds_are_excused_or_flagged(changes: dict[str, Any], excused: str, flagged: str) -> None:
    judged = report(**changes)
    assert fired(judged) == excused
    assert {finding.key for finding in judged.findings if finding.excused} == set(flagged) - set(excused)
    assert fired(report(**changes, thresholds=DiagnosticThresholds(confounds="flag"))) == flagged


def test_what_was_excused_is_said_with_the_companions_number() -> None:
    saturated = report(bp_grad_norms=[7e-8, 7e-8], companions=SATURATED)
    assert "(b) gradient-floor: pass (saturated)" in str(saturated)
    assert "gradient per unit error (median ‖g_L‖/‖e‖): 5.0e-03" in str(saturated)
    biased = report(cross_batch_stability=0.35, companions=BIASED)
    assert "(c) direction-drift: pass (not sample-invariant; biased output 0.550)" in str(biased)
    assert "sample invariance (mean product of two classes' mean unit gradients): 0.030" in str(biased)
    skewed = report(cross_batch_stability=0.998, companions=TWO_CLASSES)
    assert "(c) direction-drift: pass (not driven to one class; biased output 0.950)" in str(skewed)
    assert "not defined without two classes beside the one predicted most often (93.0% of the predictions)" in unfolded(skewed)


def test_a_record_from_before_classes_were_told_apart_is_judged_as_it_was() -> None:
    values = report(cross_batch_stability=0.35).to_dict()
    for invariance, expected in ((0.09, ""), (0.11, "c")):
        older = DiagnosticReport.from_dict({**values, "companions": {"sample_invariance": invariance, "batches": 10}})
        assert older.companions.sample_invariance is None and older.fired == expected
        assert f"sample invariance (mean cosine of per-sample gradients): {invariance:.3f}" in str(older)
        assert DiagnosticReport.from_dict(older.to_dict()) == older


def test_a_probe_of_one_class_measures_no_drift() -> None:
    judged = report(cross_batch_stability=0.9, companions=AuxiliaryStatistics(probe_classes=1, classes=10))
    assert judged.finding("c").status is Status.NOT_MEASURED
    assert judged.verdict == "incomplete: direction-drift not measured"
    assert any("the probe has 1 of 10 classes" in remark for remark in judged.remarks)
    assert report(cross_batch_stability=math.nan, companions=AuxiliaryStatistics(probe_classes=1)).fired == "c"


@pytest.mark.parametrize(
    ("companions", "said"),
    [
        (AuxiliaryStatistics(classes=10, probe_classes=4), "the probe has 4 of 10 classes"),
        (AuxiliaryStatistics(classes=10, probe_classes=5, largest_class_share=0.3), ""),
        (AuxiliaryStatistics(classes=10, probe_classes=10, largest_class_share=0.5), "50% of the probe are of one class"),
        (AuxiliaryStatistics(classes=2, probe_classes=2, largest_class_share=0.9), "90% of the probe are of one class"),
        (AuxiliaryStatistics(classes=2, probe_classes=2, largest_class_share=0.55), ""),
        (AuxiliaryStatistics(classes=10), ""),
    ],
)
def test_a_probe_of_few_or_unequal_classes_is_noted(companions: AuxiliaryStatistics, said: str) -> None:
    remarks = [remark for remark in report(companions=companions).remarks if "probe" in remark]
    assert len(remarks) == bool(said) and all(said in remark for remark in remarks)
    assert not report(companions=companions, diagnostics=("residual-growth",)).remarks


LOG: dict[str, Any] = {"partial": True, "gradient_batch": 128}


@pytest.mark.parametrize(
    ("key", "changes", "kinds", "text"),
    [
        ("b", {"bp_grad_norms": [7e-8] * 2, "companions": SATURATED}, [CauseKind.SATURATED], "pass (saturated)"),
        ("b", {"bp_grad_norms": [7e-8] * 2, "companions": UNSATURATED},
         [CauseKind.ABOVE_FLOOR_PER_ERROR], "pass (above the floor per unit error)"),
        ("c", {"cross_batch_stability": 0.35, "companions": BIASED},
         [CauseKind.NOT_SAMPLE_INVARIANT, CauseKind.BIASED_OUTPUT], "pass (not sample-invariant; biased output 0.550)"),
        ("d", {"accuracy": Accuracy(0.609, 10), "control": Control(Accuracy(0.349, 10))}, [CauseKind.UNRESOLVED],
         "pass (not resolved by one test set)"),
        ("a", {"residual_norms": [1.0, math.inf]}, [CauseKind.NON_FINITE], "fire (non-finite)"),
        ("a", {"residual_norms": [1.0, 0.0]}, [CauseKind.ZERO_STREAM], "fire (all-zero stream)"),
        ("b", {"bp_grad_norms": [1.0, 0.0]}, [CauseKind.ZERO_GRADIENT], "fire (all-zero gradient)"),
        ("c", {"cross_batch_stability": math.nan}, [CauseKind.UNDEFINED], "fire (undefined)"),
        ("a", {**LOG, "residual_norms": [1.0, None, 2.0]}, [CauseKind.BOUND], "likely pass (a bound)"),
        ("b", {**LOG, "bp_grad_norms": [None, 1e-3, None]}, [CauseKind.PROXY], "likely pass (‖g_1‖ stands in for ‖g_L‖)"),
        ("b", {"partial": True}, [CauseKind.BATCH_ASSUMED], "likely pass (batch size 128 assumed)"),
        ("b", {"partial": True, "assumed_batch": 1024}, [CauseKind.TRAINING_BATCH_ASSUMED],
         "likely pass (batch size 1,024 assumed, that of the training)"),
        ("c", {**LOG, "gradient_batch": 1024}, [CauseKind.OTHER_BATCHES], "likely pass (batches of 1,024, not 128)"),
        ("c", {"partial": True}, [CauseKind.UNKNOWN_BATCHES], "likely pass (batches of unknown size, not 128)"),
    ],
)  # fmt: skip
def test_every_cause_is_a_value_with_its_words(key: str, changes: dict[str, Any], kinds: list[CauseKind], text: str) -> None:
    finding = report(**changes).finding(key)
    assert [cause.kind for cause in finding.causes] == kinds and finding.outcome == text
    assert finding.to_dict()["causes"] == [cause.text for cause in finding.causes]


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({"residual_norms": [1.0, math.nan]}, "a"),
        ({"residual_norms": [1.0, math.inf]}, "a"),
        ({"residual_norms": [0.0, 0.0]}, "a"),
        ({"residual_norms": [0.0, 1.0]}, "a"),
        ({"companions": AuxiliaryStatistics(nonfinite_states=(0, 1))}, "a"),
        ({"bp_grad_norms": [math.nan, 1.0]}, "b"),
        ({"bp_grad_norms": [1.0, math.inf]}, "b"),
        ({"bp_grad_norms": [0.0, 0.0]}, "b"),
        ({"companions": AuxiliaryStatistics(nonfinite_gradients=(0, 0, 3))}, "bc"),
        ({"cross_batch_stability": math.nan}, "c"),
        ({"companions": AuxiliaryStatistics(nonfinite_logits=2)}, "d"),
        ({"companions": AuxiliaryStatistics(nonfinite_logits=2), "frozen_baseline_acc": None}, "d"),
    ],
)
@pytest.mark.parametrize("confounds", ["excuse", "flag"])
def test_non_finite_and_all_zero_fire_their_own_diagnostic(changes: dict[str, Any], keys: str, confounds: str) -> None:
    lax = DiagnosticThresholds(
        g_norm_floor=0.0,
        h_norm_explosion_ratio=1e300,
        stability_drift_ceiling=1.0,
        frozen_acc_margin_pp=-100,
        confounds=confounds,
    )
    judged = report(**changes, thresholds=lax)
    assert fired(judged) == keys
    assert judged.verdict.startswith("needs walk-back")
    assert "FLAG" in str(judged)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"residual_norms": []}, "empty"),
        ({"bp_grad_norms": []}, "empty"),
        ({"residual_norms": [1.0]}, "without blocks"),
        ({"residual_norms": [1.0, -1.0]}, "never negative"),
        ({"headline_acc": 34.9}, "did you pass a percentage?"),
        ({"frozen_baseline_acc": 34.9}, "did you pass a percentage?"),
        ({"headline_acc": -0.1}, "in [0, 1]"),
        ({"headline_acc": math.nan}, "in [0, 1]"),
        ({"headline_acc": "high"}, "'high'"),
    ],
)
def test_what_cannot_be_judged_is_an_error(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(AuditError, match=words.replace("[", r"\[").replace("?", r"\?")):
        report(**changes)


def test_thresholds_reject_slips() -> None:
    with pytest.raises(AuditError, match="stability_drift_ceiling must be a number from -1 to 1, not 30"):
        DiagnosticThresholds(stability_drift_ceiling=30)
    with pytest.raises(AuditError, match=r"unknown threshold 'margin'; known: .*frozen_acc_margin_pp.*margin_pp"):
        DiagnosticThresholds().replace(margin=1.0)
    with pytest.raises(AuditError, match="growth must be one of per_block, cumulative"):
        DiagnosticThresholds(growth="block")
    for endless in (math.nan, math.inf, 10**400):
        with pytest.raises(AuditError, match="g_norm_floor must be a number from 0 on, and finite, not "):
            DiagnosticThresholds(g_norm_floor=endless)
        with pytest.raises(AuditError, match="threshold mine must be a finite number, not "):
            DiagnosticThresholds(others={"mine": endless})
    assert DiagnosticThresholds().replace(margin_pp=3).frozen_acc_margin_pp == 3.0


def test_diagnostics_are_selected_by_key() -> None:
    assert [diagnostic.name for diagnostic in DIAGNOSTICS.select("da")] == ["residual-growth", "frozen-margin"]
    with pytest.raises(AuditError, match=r"unknown key 'x'.*a \(residual-growth\)"):
        DIAGNOSTICS.select("ax")
    with pytest.raises(AuditError, match="no key"):
        DIAGNOSTICS.select("")


def test_an_accuracy_at_chance_is_named() -> None:
    at_chance = report(headline_acc=0.103, companions=AuxiliaryStatistics(classes=10), accuracy=Accuracy(0.103, 10_000))
    assert "accuracy is at chance (1/10)" in str(at_chance)
    above = report(headline_acc=0.12, companions=AuxiliaryStatistics(classes=10), accuracy=Accuracy(0.12, 10_000))
    assert "at chance" not in str(above)


def test_a_flag_line_says_number_threshold_and_meaning() -> None:
    text = str(report(residual_norms=[9.0, 2.52e4], frozen_baseline_acc=0.7))
    assert "FLAG: residual stream exploded: per-block growth 2.8e+03 > 50." in text
    assert "FLAG: deep blocks fail to beat frozen-random baseline: margin -9.10 pp < 2." in text
    assert text.splitlines()[0] == "FA diagnostic report: bp"
    assert text.splitlines()[-1].startswith("VERDICT: needs walk-back: ")


def test_the_sections_come_in_the_order_of_the_protocol() -> None:
    lines = str(report(notes="d=256, 100 epochs")).splitlines()
    assert lines[1] == "  d=256, 100 epochs"
    heads = [line[:3] for line in lines if line.startswith("(")]
    assert heads == ["(a)", "(b)", "(c)", "(d)"]


def test_a_paired_interval_uses_the_discordant_images() -> None:
    """10,000 images, 1,600 only ours and 1,460 only theirs: +1.4 pp, SE sqrt(0.306 - 0.014²)/100 = 0.553 pp."""
    ours = [True] * 1600 + [False] * 1460 + [True] * 2030 + [False] * 4910
    theirs = [False] * 1600 + [True] * 1460 + [True] * 2030 + [False] * 4910
    judged = report(
        headline_acc=0.363,
        frozen_baseline_acc=0.349,
        accuracy=Accuracy.of(ours),
        control=Control(Accuracy.of(theirs), "frozen_s42.pt"),
    )
    assert fired(judged) == "d"
    assert "95 % interval +0.32 to +2.48 (paired over 10,000 images)" in str(judged)
    assert judged.finding("d").causes == (Cause(CauseKind.UNRESOLVED),)


def test_without_the_controls_images_the_interval_is_binomial() -> None:
    judged = report(headline_acc=0.363, accuracy=Accuracy(0.363, 10_000), control=Control(Accuracy(0.349)))
    se = 100 * math.sqrt((0.363 * 0.637 + 0.349 * 0.651) / 10_000)
    assert f"{1.4 - 1.96 * se:+.2f} to {1.4 + 1.96 * se:+.2f}" in str(judged)


def compared(only_ours: int, only_theirs: int, images: int = 10_000, **changes: Any) -> DiagnosticReport:
    """A network and its control that tell apart on so many images, and are both right on a third of the others."""
    both = (images - only_ours - only_theirs) // 3
    neither = images - only_ours - only_theirs - both
    ours = [True] * (only_ours + both) + [False] * (only_theirs + neither)
    theirs = [False] * only_ours + [True] * (both + only_theirs) + [False] * neither
    accuracy, control = Accuracy.of(ours), Control(Accuracy.of(theirs), "frozen_s42.pt")
    return report(
        headline_acc=accuracy.value, frozen_baseline_acc=control.accuracy.value, accuracy=accuracy, control=control, **changes
    )


# Ends by hand: d ± 1.96·sqrt((a + b - d²)/n), a = only ours, b = only theirs, each with one image added, as shares of n + 2.
@pytest.mark.parametrize(
    ("only_ours", "only_theirs", "images", "said"),
    [
        (287, 150, 10_000, "The blocks add 1.37 pp (0.96 to 1.78), less than the 2 pp that the protocol asks."),
        (500, 470, 10_000, "The interval, -0.31 to +0.91 pp, holds 0: no evidence that the blocks help."),
        (470, 500, 10_000, "The interval, -0.91 to +0.31 pp, holds 0: no evidence that the blocks help."),
        (300, 1374, 10_000, "The same network with random blocks is better by 10.74 pp (9.96 to 11.51). Trained so,"),
        (1390, 1317, 10_000, "holds 0: no evidence that the blocks help."),
    ],
)
def test_what_a_short_margin_says_is_what_its_interval_carries(
    only_ours: int, only_theirs: int, images: int, said: str
) -> None:
    judged = compared(only_ours, only_theirs, images)
    assert fired(judged) == "d" and said in str(judged)
    share = [only_ours / images, only_theirs / images]
    half = 1.96 * math.sqrt((sum(share) - (share[0] - share[1]) ** 2) / images)
    holds_zero = abs(share[0] - share[1]) <= half
    assert ("no evidence" in str(judged)) is holds_zero


def test_an_interval_that_only_just_excludes_zero_is_written_so_that_one_sees_it() -> None:
    judged = report(
        headline_acc=0.6,
        frozen_baseline_acc=0.59,
        accuracy=Accuracy(0.6, 18_550),
        control=Control(Accuracy(0.59, 18_550)),
    )
    assert judged.margin_interval is not None
    low = judged.margin_interval.low
    assert 0 < low < 0.005 and f"({low:.3g} to " in judged.finding("d").explanation


def test_a_minimum_of_ones_own_is_not_the_protocols() -> None:
    judged = compared(287, 150, thresholds=DiagnosticThresholds(frozen_acc_margin_pp=1.5))
    assert "less than the 1.5 pp that were asked for." in str(judged)


def test_a_margin_that_passes_on_an_interval_that_holds_zero_says_so() -> None:
    judged = compared(12, 8, 100)
    assert judged.finding("d").status is Status.PASS
    assert "the interval holds 0: no evidence that the blocks help" in str(judged)
    assert "holds 0" not in str(compared(1200, 800))


def test_without_the_number_of_images_nothing_is_said_of_how_sure_a_margin_is() -> None:
    judged = report(headline_acc=0.363, frozen_baseline_acc=0.349)
    assert "The blocks add 1.40 pp, less than the 2 pp that the protocol asks. Without the number of test" in str(judged)
    assert "with random blocks is better by 9.10 pp. Without the number" in str(report(frozen_baseline_acc=0.7))


def test_a_control_of_another_method_is_labelled() -> None:
    control = Control(Accuracy(0.349), "frozen_bp_s42.pt", method="bp", seed=42)
    text = str(report(method_name="dfa", seed=42, control=control))
    assert "frozen-random control 0.3490 (frozen_bp_s42.pt, seed 42, control of another method: bp, not dfa)" in text


@pytest.mark.parametrize(
    ("seed", "own", "said"), [(42, 42, "seed 42"), (42, 7, "control of another seed: 42"), (42, None, "seed 42"), (None, 7, "")]
)
def test_a_control_of_another_seed_is_labelled_where_both_seeds_are_known(seed: int | None, own: int | None, said: str) -> None:
    control = Control(Accuracy(0.349), "x.pt", seed=seed)
    assert f"({', '.join(filter(None, ['x.pt', said]))})" in str(report(seed=own, control=control))


def test_the_kind_of_a_control_is_one_of_three() -> None:
    shallow, unmarked = (Control(Accuracy(0.7), "x.pt", kind=ControlKind(name)) for name in ("shallow", "unmarked"))
    text = str(report(control=shallow, frozen_baseline_acc=0.7))
    assert "shallow control 0.7000 (x.pt)" in text and "with no blocks is better by 9.10 pp" in text
    assert "frozen-random control 0.7000 (x.pt, nothing in its name or config says" in str(
        report(control=unmarked, frozen_baseline_acc=0.7)
    )
    assert to_plain(shallow)["kind"] == "shallow" and read(Control, to_plain(shallow), "control") == shallow
    with pytest.raises(AuditError, match=r"control\.kind: Expected 'frozen', 'shallow', 'unmarked', got 'deep'"):
        read(Control, {**to_plain(shallow), "kind": "deep"}, "control")


norms = st.lists(
    st.one_of(st.floats(min_value=0, allow_nan=False), st.sampled_from([math.nan, math.inf, 0.0])), min_size=2, max_size=6
)
companion_norms = st.one_of(st.none(), st.floats(min_value=0), st.just(math.nan))
companion_cosines = st.one_of(st.none(), st.floats(-1, 1), st.sampled_from([math.nan, math.inf, -math.inf]))
companions = st.builds(
    AuxiliaryStatistics,
    batches=st.one_of(st.none(), st.integers(2, 20)),
    gradient_per_unit_error=companion_norms,
    output_error_norm=companion_norms,
    sample_invariance=companion_cosines,
    output_error_drift=companion_cosines,
    nonfinite_states=st.lists(st.integers(0, 3), max_size=3).map(tuple),
    nonfinite_gradients=st.lists(st.integers(0, 3), max_size=3).map(tuple),
    nonfinite_logits=st.integers(0, 2),
    classes=st.one_of(st.none(), st.integers(2, 10)),
)
threshold_sets = st.builds(
    DiagnosticThresholds,
    g_norm_floor=st.floats(0, 1e300),
    h_norm_explosion_ratio=st.floats(0, 1e300),
    stability_drift_ceiling=st.floats(-1, 1),
    frozen_acc_margin_pp=st.floats(-100, 100),
    sample_invariance_minimum=st.floats(-1, 1),
    growth=st.sampled_from(["per_block", "cumulative"]),
    confounds=st.sampled_from(["excuse", "flag"]),
)
accuracies = st.lists(st.booleans(), min_size=1, max_size=40).map(Accuracy.of)
reports = st.builds(
    DiagnosticReport,
    method_name=st.text(max_size=8),
    notes=st.text(max_size=20),
    residual_norms=norms,
    bp_grad_norms=norms,
    stability_layer=st.integers(0, 5),
    cross_batch_stability=st.one_of(st.floats(-1, 1), st.just(math.nan)),
    headline_acc=st.floats(0, 1),
    frozen_baseline_acc=st.one_of(st.none(), st.floats(0, 1)),
    thresholds=threshold_sets,
    seed=st.one_of(st.none(), st.integers(0, 999)),
    companions=companions,
    accuracy=st.one_of(st.none(), accuracies),
    control=st.one_of(st.none(), st.builds(Control, accuracy=accuracies, source=st.text(max_size=5))),
)


@given(reports)
def test_property_non_finite_never_passes(judged: DiagnosticReport) -> None:
    if not all(map(math.isfinite, judged.residual_norms)) or any(judged.companions.nonfinite_states):
        assert judged.residual_stream_exploded
    if not all(map(math.isfinite, judged.bp_grad_norms)) or any(judged.companions.nonfinite_gradients):
        assert judged.bp_grad_at_floor
    if not math.isfinite(judged.cross_batch_stability or 0.0):
        assert judged.reference_drift_dominated
    if judged.companions.nonfinite_logits:
        assert judged.finding("d").fired
    assert (judged.verdict == "trustworthy") == (not fired(judged))


@given(reports)
def test_property_what_is_excused_would_fire_if_nothing_were(judged: DiagnosticReport) -> None:
    strict = report(judged, thresholds=judged.thresholds.replace(confounds="flag"))
    excused = {finding.key for finding in judged.findings if finding.excused}
    assert excused == set(fired(strict)) - set(fired(judged))


@given(reports, st.data())
def test_property_every_threshold_is_monotone(judged: DiagnosticReport, data: st.DataObject) -> None:
    """Making a threshold stricter never turns a fire into a pass; no other diagnostic changes."""
    stricter = {
        "g_norm_floor": ("b", max),
        "h_norm_explosion_ratio": ("a", min),
        "stability_drift_ceiling": ("c", min),
        "frozen_acc_margin_pp": ("d", max),
        "sample_invariance_minimum": ("c", min),
    }
    name = data.draw(st.sampled_from(sorted(stricter)))
    key, towards = stricter[name]
    value = towards(getattr(judged.thresholds, name), getattr(data.draw(threshold_sets), name))
    fields = {f: getattr(judged, f) for f in judged.__dataclass_fields__}
    strict = DiagnosticReport(**{**fields, "thresholds": judged.thresholds.replace(**{name: value})})
    assert set(fired(judged)) <= set(fired(strict))
    assert set(fired(strict)) - set(fired(judged)) <= {key}


@given(reports)
@settings(max_examples=200)
def test_property_json_round_trip_is_exact(judged: DiagnosticReport) -> None:
    written = json.dumps(judged.to_dict(), allow_nan=False)
    again = DiagnosticReport.from_dict(json.loads(written))
    assert json.dumps(again.to_dict(), allow_nan=False) == written
    assert str(again) == str(judged)


@given(norms, norms, companions, accuracies, st.one_of(st.floats(-1, 1), st.just(math.nan)))
def test_property_a_measurement_round_trips_through_json(
    states: list[float], gradients: list[float], beside: AuxiliaryStatistics, accuracy: Accuracy, drift: float
) -> None:
    measured = Measurement(tuple(states), tuple(gradients), 1, drift, beside, accuracy, {"torch": "2", "threads": 1})
    written = json.dumps(measured.to_dict(), allow_nan=False)
    again = Measurement.from_dict(json.loads(written))
    assert json.dumps(again.to_dict(), allow_nan=False) == written


@given(st.lists(st.booleans(), min_size=1, max_size=300))
def test_property_per_image_outcomes_are_packed_without_loss(hits: list[bool]) -> None:
    packed = Accuracy.of(hits)
    assert packed.correct is not None and len(packed.correct) == -(-len(hits) // 4)
    assert [bit == "1" for bit in f"{packed.bits():0{4 * len(packed.correct)}b}"][: len(hits)] == hits


def test_a_hand_written_report_needs_only_the_published_fields() -> None:
    published = ("method_name", "notes", "residual_norms", "bp_grad_norms", "stability_layer", "cross_batch_stability",
                 "headline_acc", "frozen_baseline_acc")  # fmt: skip
    given_fields = {**{name: BP.to_dict()[name] for name in published}, "thresholds": {"g_norm_floor": 1e-6}}
    judged = DiagnosticReport.from_dict(given_fields)
    assert judged.thresholds.g_norm_floor == 1e-6
    assert judged.thresholds.h_norm_explosion_ratio == 50.0
    with pytest.raises(AuditError, match="report: Object missing required field `residual_norms`"):
        DiagnosticReport.from_dict({k: v for k, v in given_fields.items() if k != "residual_norms"})


def test_every_diagnostic_has_what_the_outputs_are_made_from() -> None:
    assert "".join(d.key for d in DIAGNOSTICS.by_default) == "abcd"
    for diagnostic in DIAGNOSTICS:
        assert diagnostic.name
        assert diagnostic.question.endswith("?")
        assert diagnostic.walk_back
        assert hasattr(DiagnosticThresholds(), diagnostic.threshold)
        assert diagnostic.columns
        assert diagnostic.judge(report()).status in Status


@pytest.mark.parametrize(
    ("changes", "headline"),
    [
        ({"residual_norms": [1.0, 50.001]}, "per-block growth 50.001 > 50"),
        ({"bp_grad_norms": [1.0, 9.9999e-8]}, "‖g_L‖ 9.9999e-08 < 1e-07"),
        ({"cross_batch_stability": 0.3001}, "cross-batch cosine 0.3001 > 0.3"),
        ({"headline_acc": 0.36899}, "margin 1.999 pp < 2"),
    ],
)
def test_a_number_near_its_threshold_has_the_digits_to_differ(changes: dict[str, Any], headline: str) -> None:
    judged = report(**changes)
    assert [finding.headline for finding in judged.findings if finding.fired] == [headline]


def test_a_flag_is_one_line() -> None:
    text = str(report(residual_norms=[9.0, 2.52e4], bp_grad_norms=[1.0, 1e-9], cross_batch_stability=0.9, headline_acc=0.1))
    flags = [line for line in text.splitlines() if "FLAG:" in line]
    assert len(flags) == 4
    assert all(line.endswith(".") for line in flags)


def test_outcomes_on_other_images_are_not_paired() -> None:
    hits = [True] * 60 + [False] * 40
    same, other = Accuracy.of(hits, "one order"), Accuracy.of(hits, "another")
    assert "paired over 100 images" in str(report(headline_acc=0.6, accuracy=same, control=Control(same)))
    assert "unpaired" in str(report(headline_acc=0.6, accuracy=same, control=Control(other)))


def test_text_that_looks_like_a_number_stays_text() -> None:
    judged = report(method_name="NaN", notes="Infinity", checkpoint="-Infinity")
    assert DiagnosticReport.from_dict(judged.to_dict()) == judged
