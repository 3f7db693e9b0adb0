"""What a report accepts, what it makes of it, and what it says of itself."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import pytest
from builders import BP, CREDIT, exploded, probed, report

from pytest_fadiag import AuditError, DiagnosticReport
from pytest_fadiag.judge.control import Control
from pytest_fadiag.judge.diagnostics import DIAGNOSTICS
from pytest_fadiag.judge.errors import AuditFailure
from pytest_fadiag.judge.inputs import NormalisedBy, StatedInputs
from pytest_fadiag.judge.keys import Keys
from pytest_fadiag.judge.records import Accuracy, AuxiliaryStatistics, Measurement, Reference
from pytest_fadiag.judge.reference import reference_line
from pytest_fadiag.judge.stream import ResidualStream
from pytest_fadiag.judge.thresholds import DiagnosticThresholds
from pytest_fadiag.judge.trajectory import Trajectory

UNPROVEN = Reference("autograd and finite differences differ by 0.3", "float64")
ONLY_D = ("frozen-margin",)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"residual_norms": []}, "residual_norms is empty"),
        ({"residual_norms": [3.0]}, r"residual_norms has one entry \(3\): a network"),
        ({"residual_norms": [None]}, "residual_norms has one entry: a network"),
        ({"bp_grad_norms": []}, "bp_grad_norms is empty"),
        ({"cross_batch_stability": 1.1}, "must be a cosine in"),
        ({"cross_batch_stability": 1 + 1.05e-9}, "must be a cosine in"),
        ({"cross_batch_stability": -2.0}, "must be a cosine in"),
        ({"cross_batch_stability": "0.1"}, "must be a cosine in"),
        ({"headline_acc": 60.9}, "headline_acc is 60.9"),
        ({"frozen_baseline_acc": -0.1}, "frozen_baseline_acc must be"),
        ({"claimed_acc": math.nan}, "claimed_acc must be"),
        ({"protocol": "five"}, "protocol must be one of three, four, not 'five'"),
        ({"diagnostics": (*BP.diagnostics, "my-own", "my-other")}, "no diagnostic 'my-own' here"),
        ({"observations": {"depth": {"probes": 3}}, "diagnostics": ("depth-utility",)}, "observations"),
        ({"method_name": "m" * 501}, "the method's name has 501 characters"),
        ({"notes": "n" * 100_001}, "the note of a report has 100,001 characters"),
        ({"checkpoint": "c" * 4097}, "the name of a file has 4,097 characters"),
        ({"caveats": ["c" * 100_001]}, "a caveat has 100,001 characters"),
    ],
)
def test_numbers_and_names_that_are_none_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(AuditError, match=said):
        report(**changes)


def test_what_was_not_asked_for_need_not_be_there() -> None:
    bare = report(residual_norms=[], bp_grad_norms=[], diagnostics=ONLY_D)
    assert bare.verdict.startswith("incomplete: residual-growth not asked for") and bare.fired == ""
    assert report(bp_grad_norms=[], reference=UNPROVEN).finding("b").headline == "the reference is not proven"
    for cosine in (1.0, -1.0, 1 + 1e-9, math.nan):
        assert report(cross_batch_stability=cosine).finding("c").measured


def test_lists_become_tuples_and_names_one_line() -> None:
    made = report(
        residual_norms=[1, 2],
        bp_grad_norms=[1, 1],
        diagnostics=list(BP.diagnostics),
        caveats=["a\x07"],
        method_name="a\nb",
        notes="a\x07\nb",
        checkpoint="a\nb",
        config={"width": 8, "model": object()},
        expected="da",
    )
    assert (made.residual_norms, made.bp_grad_norms, made.diagnostics) == ((1.0, 2.0), (1.0, 1.0), BP.diagnostics)
    assert (made.caveats, made.method_name, made.checkpoint) == (("a\\x07",), "a\\nb", "a\\nb")
    assert (made.notes, made.config, made.expected, BP.checkpoint) == ("a\\x07\nb", {"width": 8}, "ad", None)
    assert isinstance(made.expected, Keys) and BP.expected is None


@pytest.mark.parametrize(
    ("changes", "partial"),
    [
        ({}, False),
        ({"residual_norms": [1.0, None, 1.0]}, True),
        ({"bp_grad_norms": [None, 1.0]}, True),
        ({"headline_acc": None}, True),
        ({"depth_known": False}, True),
        ({"cross_batch_stability": None}, False),
    ],
)
def test_a_report_with_holes_is_partial(changes: dict[str, Any], partial: bool) -> None:
    assert report(**changes).partial is partial


MEASURED = Measurement((1.0, 2.0), (1e-3, 1e-3), 1, 0.1, accuracy=Accuracy(0.5, 4))


@pytest.mark.parametrize(
    ("accuracy", "headline", "kept"),
    [
        (Accuracy(0.5, 4), None, Accuracy(0.5, 4)),
        (Accuracy(0.5, 4), 0.6, Accuracy(0.5, 4)),  # less than half an image away
        (Accuracy(0.5, 4), 0.625, Accuracy(0.625)),  # exactly half an image
        (Accuracy(0.5, 4), 0.375, Accuracy(0.375)),
        (Accuracy(0.5), 0.6, Accuracy(0.6)),  # of how many images nobody knows
        (None, 0.6, Accuracy(0.6)),
        (None, None, None),
    ],
)
def test_an_accuracy_from_elsewhere_replaces_the_measured_one(
    accuracy: Accuracy | None, headline: float | None, kept: Accuracy | None
) -> None:
    seen = Measurement((1.0, 2.0), (1e-3, 1e-3), 1, 0.1, accuracy=accuracy)
    made = DiagnosticReport.from_measurement(seen, method_name="bp", headline_acc=headline)
    assert (made.accuracy, made.headline_acc) == (kept, None if kept is None else kept.value)


def test_a_measurement_becomes_a_report_by_the_thresholds_and_the_control_that_are_given() -> None:
    plain = DiagnosticReport.from_measurement(MEASURED, method_name="bp")
    assert (plain.thresholds, plain.diagnostics, plain.frozen_baseline_acc) == (DiagnosticThresholds(), BP.diagnostics, None)
    control = Control(Accuracy(0.25, 4))
    made = DiagnosticReport.from_measurement(
        MEASURED, method_name="bp", control=control, thresholds={"margin_pp": 5.0}, diagnostics=ONLY_D
    )
    assert (made.thresholds.frozen_acc_margin_pp, made.diagnostics, made.frozen_baseline_acc) == (5.0, ONLY_D, 0.25)
    strict = DiagnosticThresholds(g_norm_floor=1.0)
    assert DiagnosticReport.from_measurement(MEASURED, method_name="bp", thresholds=strict).fired == "b"


def test_each_flag_is_that_of_its_diagnostic_and_an_error_where_nobody_knows() -> None:
    names = ("residual_stream_exploded", "bp_grad_at_floor", "reference_drift_dominated", "frozen_baseline_undercut")
    assert [getattr(exploded(), name) for name in names] == [True, True, False, True]
    assert [exploded().to_dict()[name] for name in names] == [True, True, False, True]
    assert BP.frozen_baseline_undercut is False and report(frozen_baseline_acc=None).frozen_baseline_undercut is None
    only = report(diagnostics=ONLY_D)
    with pytest.raises(AuditError, match=r"\(a\) was not asked for, .* this report is of frozen-margin"):
        _ = only.residual_stream_exploded
    assert [only.to_dict()[name] for name in names] == [None, None, None, False]
    unproven = report(reference=UNPROVEN)
    with pytest.raises(AuditError, match=r"whether \(b\) fires, since the reference is not proven: autograd and finite"):
        _ = unproven.bp_grad_at_floor
    assert unproven.residual_stream_exploded is False and unproven.fired == ""
    assert [unproven.to_dict()[name] for name in names] == [False, None, None, False]
    assert report(diagnostics=("residual-growth",)).to_dict()["frozen_baseline_undercut"] is None
    assert unproven.verdict == "incomplete: gradient-floor not measured; direction-drift not measured"


def test_a_finding_by_key_or_name_and_one_that_was_not_asked_for() -> None:
    assert BP.finding("a") is BP.finding("residual-growth") is BP.findings[0]
    assert (BP.finding("e").headline, BP.finding("e").measured, BP.asks_for("e")) == ("was not asked for", False, False)
    assert BP.asks_for("d") and not report(diagnostics=ONLY_D).asks_for("a")
    with pytest.raises(KeyError, match="z"):
        BP.finding("z")


def test_a_control_that_was_supplied_and_is_none() -> None:
    ten = AuxiliaryStatistics(classes=10)
    assert report(frozen_baseline_acc=0.1, companions=ten).lacks_usable_control is True
    for usable in (BP, report(frozen_baseline_acc=None), report(headline_acc=None)):
        assert usable.lacks_usable_control is False
    asked = ("residual-growth",)
    assert report(frozen_baseline_acc=0.1, companions=ten, diagnostics=asked).lacks_usable_control is False


def test_exactly_the_expected_diagnostics_may_fire() -> None:
    assert exploded().fired == "abd"
    for fine in (BP, report(expected=""), report(exploded(), expected="abd"), report(exploded(), expected="abde")):
        fine.check()
    exploded().check("abd")
    exploded().check(["a", "bd"])
    BP.check("f")  # what was not asked for is not compared
    with pytest.raises(AuditFailure) as plain:
        exploded().check()
    found = exploded()
    assert plain.value.headline == "; ".join(found.finding(key).headline for key in "abd")
    assert str(plain.value) == str(found)
    with pytest.raises(AuditFailure) as none:
        exploded().check("")
    assert none.value.headline == plain.value.headline
    with pytest.raises(AuditFailure) as changed:
        report(exploded(), expected="abc").check()
    drift, margin = (found.finding(key).headline for key in "cd")
    both = [
        f"direction-drift was expected to fire and does not: pass, {drift}",
        f"frozen-margin was expected to pass and does not: fire, {margin}",
    ]
    assert changed.value.headline == "; ".join(both)
    assert str(changed.value) == "\n".join([str(found), *(f"CHANGED: {one}" for one in both)])
    with pytest.raises(AuditFailure, match="residual-growth was expected to fire and does not: pass"):
        BP.check("a")
    with pytest.raises(AuditError, match="gradient-floor and direction-drift cannot be judged, since the reference is not"):
        report(reference=UNPROVEN).check()
    report(reference=UNPROVEN, diagnostics=("residual-growth",)).check()


def test_the_text_of_a_report() -> None:
    whole = report(
        seed=3,
        notes="one\ntwo",
        stream=ResidualStream(("blocks.0", "blocks.3"), residual=True),
        inputs=StatedInputs("cifar10", NormalisedBy.NOTHING),
        reference=Reference("", "float64"),
        reference_error=2e-8,
        caveats=["its last line was cut"],
        protocol="three",
    )
    lines = str(whole).splitlines()
    assert lines[:3] == ["FA diagnostic report: bp, seed 3", "  one", "  two"] and lines[3].startswith("  stream: blocks.0 … ")
    assert lines[4] == "  note: its last line was cut" and lines[5].startswith("  inputs: cifar10")
    assert lines[6] == "  reference: BP gradient, agrees with finite differences to 2.0e-08"
    assert lines[7] == "(a) residual-growth: pass" and lines[-1] == "VERDICT: trustworthy [PASS]"
    short = str(BP).splitlines()
    assert short[:2] == ["FA diagnostic report: bp", "(a) residual-growth: pass"] and short[-1] == "VERDICT: trustworthy"
    assert not [line for line in short if "FLAG" in line or "shown" in line]
    assert len([line for line in str(exploded()).splitlines() if line.startswith("    FLAG: ")]) == 3
    unproven = str(report(reference=UNPROVEN))
    assert "reference: not proven: autograd" in unproven and "median ‖g_l‖" not in unproven and "median ‖h_l‖" in unproven


def test_credit_that_was_not_asked_for_is_shown_and_not_judged() -> None:
    beside = report(observations={"credit": asdict(CREDIT)})
    assert "(f) credit-alignment: shown, not judged\n    credit from log, 128 samples" in str(beside)
    assert [diagnostic.key for diagnostic in beside.shown] == ["f"] and beside.verdict == "trustworthy"
    asked = report(beside, diagnostics=(*BP.diagnostics, "credit-alignment"))
    assert asked.shown == BP.shown == () and "shown, not judged" not in str(asked)
    assert beside.to_dict()["credit"]["sites"] == ["h_1"] and BP.to_dict()["credit"] is None


def test_the_words_of_the_published_form() -> None:
    assert (BP.published, report(protocol="three").published, report(protocol="four").published) == ("", "PASS", "")
    assert report(exploded(), protocol="three").published == "FAIL(D1+D2+D3)"
    assert report(protocol="three", frozen_baseline_acc=None).published == "INCOMPLETE(D3)"


def test_what_is_wrong_with_a_document_is_said_with_its_place() -> None:
    plain = BP.to_dict()
    assert plain == BP.plain and plain["margin_pp"] == 26.0 and plain["margin_interval"] is None
    assert DiagnosticReport.from_dict(plain).to_dict() == plain
    with pytest.raises(AuditError, match=r"^reports\[2\]: residual_norms has one entry"):
        DiagnosticReport.from_dict({**plain, "residual_norms": [1.0]}, "reports[2]")
    with pytest.raises(AuditError, match="unknown threshold 'g_floor'"):
        DiagnosticReport.from_dict({**plain, "thresholds": {"g_floor": 1e-7}})
    newer = ("probe_classes", "invariance_between_samples")
    older = {name: value for name, value in plain["companions"].items() if name not in newer}
    read = DiagnosticReport.from_dict({**plain, "companions": {**older, "sample_invariance": 0.05}})
    assert (read.companions.sample_invariance, read.companions.invariance_between_samples) == (None, 0.05)
    assert DiagnosticReport.from_dict(plain).trajectory is None and plain["trajectory"] is None
    assert report(trajectory=Trajectory(())).to_dict()["trajectory"] is not None


# --- what belongs to it ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reference", "error", "line"),
    [
        (None, None, ""),
        (UNPROVEN, 0.3, "not proven: autograd and finite differences differ by 0.3"),
        (Reference("", "float64"), None, "BP gradient"),
        (Reference("", "float32", "it runs in no other"), 2e-4, "{}2.0e-04; in float32, since it runs in no other"),
        (Reference("", "float64", "there is nothing to compare"), None, "BP gradient; there is nothing to compare"),
        (
            Reference("", "float64", redrawn=True),
            0.5,
            "{}0.5; with weights drawn anew, since at the network's own nothing is resolved",
        ),
        (
            Reference("", "float64", own_backward=True, modules=("a", "b", "c")),
            0.5,
            "{}0.5; the own backward of 3 modules: a, b, c is not used",
        ),
        (
            Reference("", "float64", own_backward=True, modules=("a", "b", "c", "d")),
            0.5,
            "{}0.5; the own backward of 4 modules: a, b, c … is not used",
        ),
    ],
)
def test_the_reference_in_words(reference: Reference | None, error: float | None, line: str) -> None:
    expected = line.format("BP gradient, agrees with finite differences to ")
    assert reference_line(report(reference=reference, reference_error=error)) == expected


def test_the_numbers_of_the_probes_under_their_names() -> None:
    seen = probed(BP, 0.5, 0.6, 0.75, null=0.62)
    assert (seen.probe_accuracies, seen.null_probe_accuracies) == ((0.5, 0.6, 0.75), (0.5, 0.5, 0.62))
    assert (seen.depth_null_pp, seen.depth_utility_pp, seen.depth_interval_pp) == (12.0, 13.0, (24.0, 26.0))
    assert (seen.block_change, seen.idle_blocks) == ((0.5, 0.5), ())
    assert (probed(BP, 0.5, 0.6, null=None).null_probe_accuracies, probed(BP, 0.5, 0.6, null=None).depth_null_pp) == (
        None,
        None,
    )
    failed = report(observations={"depth": {"problem": "too few images"}}, diagnostics=("depth-utility",))
    for nothing in (BP, failed):
        assert nothing.probe_accuracies is nothing.null_probe_accuracies is nothing.depth_utility_pp is None
        assert nothing.block_change is nothing.idle_blocks is nothing.depth_interval_pp is None


@pytest.mark.parametrize(
    ("outside", "said"),
    [
        (0.0, "0 %"),
        (1.0, "100 %"),
        (0.0009, "< 0.1 %"),
        (0.001, "0.1 %"),
        (0.999, "99.9 %"),
        (0.25, "25 %"),
        (0.9899, "99 %"),
        (0.99, "99.0 %"),
        (0.9985, "99.9 %"),
        (0.9995, "> 99.9 %"),
        (0.993, "99.3 %"),
    ],
)
def test_a_share_of_the_parameters(outside: float, said: str) -> None:
    assert f", {said} of the parameters outside" in str(ResidualStream(("one", "two"), residual=True, outside=outside))


def test_a_stream_and_what_else_it_could_have_been() -> None:
    def remarks(*names: str) -> list[str]:
        return list(ResidualStream(("x", "y"), residual=True, alternatives=names).remarks())

    assert remarks() == []
    assert remarks("a", "b", "c")[0].startswith("the stream was guessed: a, b and c could each be taken for one block; the 2")
    assert remarks("a", "b", "c", "d", "e")[0].startswith("the stream was guessed: a, b, c and 2 more could")
    for sizes, states, changes in (((4, 9), 2, True), ((4, 4), 2, False), ((4, 9), 3, False), ((), 0, False)):
        assert ResidualStream(("x",), residual=True, sizes=sizes).changes_shape(states) is changes
    assert ResidualStream(("x",), residual=True, sizes=(1, 1), outside=1).sizes == (1, 1)
    for sizes in ((0, 4), (4,), (4, 4, 4)):
        with pytest.raises(AuditError, match="sizes must be 2 numbers from 1 on"):
            ResidualStream(("x",), residual=True, sizes=sizes)
    with pytest.raises(AuditError, match="outside must be a share in"):
        ResidualStream(("x",), residual=True, outside=1.01)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"claimed_acc": 0.6141}, "the checkpoint claims accuracy 0.6141, but 0.6090 was measured; check"),
        ({"claimed_acc": 0.61398}, ""),
        ({"claimed_acc": 0.005, "headline_acc": 0.0}, ""),
        ({"claimed_acc": 0.6039}, "the checkpoint claims accuracy 0.6039"),
        ({"claimed_acc": 0.9, "headline_acc": None}, ""),
        ({"environment": {"dtype": "bfloat16"}}, "half precision (bfloat16)"),
        ({"environment": {"dtype": "float32"}}, ""),
        ({"companions": AuxiliaryStatistics(nonfinite_weights=("a", "b", "c"))}, "3 weight tensors with NaN or inf: a, b, c"),
        (
            {"companions": AuxiliaryStatistics(nonfinite_weights=("a", "b", "c", "d"))},
            "4 weight tensors with NaN or inf: a, b, c …",
        ),
        (
            {"companions": AuxiliaryStatistics(nonfinite_logits=1)},
            "the logits are not finite for 1 image, which count as errors",
        ),
        ({"frozen_baseline_acc": 0.1, "companions": AuxiliaryStatistics(classes=10)}, "the control is at chance"),
        (
            {"frozen_baseline_acc": 0.1, "companions": AuxiliaryStatistics(classes=10), "diagnostics": ("residual-growth",)},
            "",
        ),
        ({"control": Control(Accuracy(0.349), method="ep")}, ""),
        ({"companions": AuxiliaryStatistics(probe_classes=2, classes=10)}, "the probe has 2 of 10 classes"),
        ({"companions": AuxiliaryStatistics(probe_classes=2, classes=10), "diagnostics": ONLY_D}, ""),
    ],
)
def test_what_is_remarked_and_what_is_not(changes: dict[str, Any], said: str) -> None:
    remarks = report(**changes).remarks
    assert len(remarks) == bool(said) and all(remark.startswith(said) or said in remark for remark in remarks)
    assert all(not remark.endswith("…") or said.endswith("…") for remark in remarks)


def test_known_diagnostics_are_all_judged_where_all_are_asked_for() -> None:
    everything = report(diagnostics=[diagnostic.name for diagnostic in DIAGNOSTICS])
    assert [finding.key for finding in everything.findings] == [*"abcdef"]
