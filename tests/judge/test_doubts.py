"""A control is questioned: at chance it is none, and what its file tells against it is in the report and below the table."""

from __future__ import annotations

import math
from typing import Any

import pytest
from builders import report, row

from pytest_fadiag import Accuracy, AuditError, Control, DiagnosticReport, Status
from pytest_fadiag.judge.codec import read, to_plain
from pytest_fadiag.judge.depth import Depth
from pytest_fadiag.judge.diagnostics import Cause, CauseKind
from pytest_fadiag.judge.doubts import Doubt, DoubtKind, Fingerprint
from pytest_fadiag.judge.records import AuxiliaryStatistics
from pytest_fadiag.judge.seed_report import SeedReport
from pytest_fadiag.show.notes import notes_of
from pytest_fadiag.show.status import RowStatus, Standing, in_a_sentence, in_words

TEN = AuxiliaryStatistics(classes=10)
SHAPES = {
    "embed.weight": (8, 4),
    "out_ln.weight": (8,),
    "blocks.0.ln.weight": (8,),
    "blocks.0.fc.weight": (8, 8),
    "blocks.1.fc.weight": (8, 8),
}
NETWORK = Fingerprint(
    shapes=SHAPES,
    weights={"embed.weight": "e", "blocks.0.fc.weight": "a", "blocks.1.fc.weight": "b"},
    moved=("out_ln.weight", "blocks.0.ln.weight"),
    blocks=(("blocks.0.fc.weight", "blocks.0.ln.weight"), ("blocks.1.fc.weight",)),
)


def controlled(accuracy: float, images: int | None = 10_000, **changes: Any) -> DiagnosticReport:
    control = Control(Accuracy(accuracy, images), "frozen_bp_s42.pt", "bp", 42, **changes)
    return report(
        headline_acc=0.9,
        accuracy=Accuracy(0.9, 10_000),
        frozen_baseline_acc=accuracy,
        control=control,
        companions=TEN,
        seed=42,
    )


def control_like(**changes: Any) -> Fingerprint:
    """The fingerprint of a control that was drawn and left alone."""
    drawn: dict[str, Any] = {
        "shapes": SHAPES,
        "weights": {"embed.weight": "f", "blocks.0.fc.weight": "c", "blocks.1.fc.weight": "d"},
        "moved": ("out_ln.weight",),
    }
    return Fingerprint(**{**drawn, **changes})


# --- at chance -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accuracy", [0.0, 0.05, 0.1, 0.106])
def test_a_control_at_chance_is_none_and_the_margin_is_not_measured(accuracy: float) -> None:
    judged = controlled(accuracy)
    found = judged.finding("d")
    assert found.status is Status.NOT_MEASURED
    assert found.headline == f"the control is at chance, {accuracy:.4f} with 10 classes: it is no control"
    assert (judged.margin_pp, judged.margin_interval, judged.frozen_baseline_undercut) == (None, None, None)
    assert judged.verdict == "incomplete: frozen-margin not measured"
    assert f"note: {found.headline}" in str(judged) and f"margin not measured: {found.headline}" in str(judged)
    assert any(found.headline in note for note in notes_of([row(judged)]))


def test_a_control_above_chance_is_one() -> None:
    """Two standard errors of guessing one of ten classes on 10,000 images are 0.6 points; on 400, 3 points."""
    assert controlled(0.1061).finding("d").status is Status.PASS
    assert controlled(0.1299, 400).finding("d").status is Status.NOT_MEASURED
    assert controlled(0.1301, 400).finding("d").status is Status.PASS


def test_where_no_number_of_images_is_known_one_point_is_left() -> None:
    for accuracy, measured in ((0.1099, False), (0.11, False), (0.1101, True)):
        judged = report(headline_acc=0.9, frozen_baseline_acc=accuracy, companions=TEN)
        assert judged.finding("d").measured is measured


def test_without_the_number_of_classes_nobody_can_tell() -> None:
    assert report(headline_acc=0.9, frozen_baseline_acc=0.1).finding("d").status is Status.PASS


def test_a_seed_whose_control_is_none_has_no_margin_over_seeds() -> None:
    with pytest.raises(AuditError, match=r"seed 42 of bp: the control is at chance, 0\.1000"):
        SeedReport.of([controlled(0.1), report(controlled(0.5), seed=7)], 2.0)


def labelled(accuracy: float, outputs: int, classes: int, share: float, own: float = 0.95) -> DiagnosticReport:
    """A control on test images whose labels were counted."""
    statistics = AuxiliaryStatistics(classes=outputs, label_classes=classes, largest_label_share=share)
    return report(controlled(accuracy), companions=statistics, headline_acc=own, accuracy=Accuracy(own, 10_000))


def test_chance_is_that_of_the_classes_that_occur_and_not_of_the_outputs() -> None:
    found = labelled(0.1, 1000, 10, 0.1).finding("d")
    assert found.status is Status.NOT_MEASURED
    assert found.headline == "the control is at chance, 0.1000 with 10 classes: it is no control"
    assert labelled(0.1061, 1000, 10, 0.1).finding("d").status is Status.PASS


def test_guessing_the_most_frequent_class_is_chance() -> None:
    """Two standard errors of 0.9 on 10,000 images are 0.6 points."""
    found = labelled(0.9, 2, 2, 0.9).finding("d")
    assert found.status is Status.NOT_MEASURED
    assert "is at chance, 0.9000 where 0.9000 of the images are of one class: it is no control" in found.headline
    assert not labelled(0.9059, 2, 2, 0.9).finding("d").measured and labelled(0.9061, 2, 2, 0.9).finding("d").measured


def test_where_nobody_counted_the_labels_the_report_says_by_what_chance_is_known() -> None:
    said = "chance is taken as 1/1000, by the outputs: the classes of the labels were not counted"
    assert said in str(report(controlled(0.1), companions=AuxiliaryStatistics(classes=1000)))
    assert "chance" not in str(labelled(0.5, 1000, 10, 0.1)) and "chance" not in str(report())


@pytest.mark.parametrize(
    ("own", "said"),
    [(0.001, "(1/1000)"), (0.1, "(1/10)"), (0.3, "(0.3000, the share of the most frequent class)"), (0.2, ""), (0.5, "")],
)
def test_a_network_that_guesses_in_either_way_is_said_to_be_at_chance(own: float, said: str) -> None:
    remarks = " ".join(labelled(0.5, 1000, 10, 0.3, own).remarks)
    assert ("accuracy is at chance" in remarks) is bool(said) and said in remarks


# --- logits that are not finite -----------------------------------------------------------------------------------------

ALONE = "Nothing was compared with a control: it fires for the logits alone."


def test_logits_that_are_not_finite_fire_and_say_where_nothing_was_compared() -> None:
    broken = AuxiliaryStatistics(classes=10, nonfinite_logits=3)
    for base, compared in ((report(frozen_baseline_acc=None), False), (controlled(0.1), False), (controlled(0.5), True)):
        judged = report(base, companions=broken)
        (flag,) = [line for line in str(judged).splitlines() if "FLAG" in line]
        assert judged.fired == "d" and "logits are not finite (3 images)" in flag
        assert (ALONE not in flag) is compared


# --- weaker than a readout of the embedding --------------------------------------------------------------------------


def readable(accuracy: float, images: int | None = 10_000, read: int = 5_000) -> DiagnosticReport:
    """A network of which a linear probe reads 0.8 at h_0, beside a control."""
    depth = Depth(
        probes=(0.8, 0.85),
        interval=(3.0, 7.0),
        step_intervals=((3.0, 7.0),),
        change=(0.5,),
        fitted=5_000,
        read=read,
        nonfinite=(0, 0),
    )
    return report(controlled(accuracy, images), observations={"depth": to_plain(depth)})


def test_a_control_that_is_weaker_than_a_readout_of_the_embedding_was_trained_too_little() -> None:
    judged = readable(0.6)
    assert judged.finding("d").outcome == "pass (questioned control: below the readout of h_0)"
    said = "the control is weaker than a linear readout of h_0, 0.6000 against 0.8000: it was trained too little"
    assert said in judged.remarks and said in " ".join(notes_of([row(judged)]))


def test_a_control_that_is_weaker_than_a_readout_of_its_own_embedding_leaves_the_verdict_open() -> None:
    """√(0.75·0.25/5,000 + 0.6·0.4/10,000) is 0.8 points."""
    weak, fair = (controlled(0.6, probes=(readout, 0.5)) for readout in (0.75, 0.61))
    assert "0.6000 against 0.7500: it was trained too little" in str(weak)
    assert weak.verdict == "incomplete: frozen-margin against a control that was trained too little"
    assert fair.verdict == "trustworthy" and fair.remarks == ()


def test_two_standard_errors_below_a_readout_are_noise() -> None:
    """√(0.8·0.2/5,000 + 0.787·0.213/10,000) is 0.7 points."""
    half = 2 * math.sqrt(0.8 * 0.2 / 5_000 + 0.787 * 0.213 / 10_000)
    assert 0.0135 < half < 0.0145
    assert readable(0.8 - 0.0135).finding("d").causes == ()
    assert len(readable(0.8 - 0.0145).finding("d").causes) == 1
    assert readable(0.9).finding("d").status is Status.FIRE and readable(0.95).remarks == ()


def test_where_no_probe_was_read_nothing_is_said() -> None:
    assert controlled(0.6).finding("d").outcome == "pass"


# --- what files tell -------------------------------------------------------------------------------------------------


def test_a_control_that_was_drawn_and_left_alone_is_not_questioned() -> None:
    assert NETWORK.doubts(control_like(), shallow=False) == ()


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        (
            {"shapes": {**SHAPES, "blocks.0.fc.weight": (16, 8)}},
            DoubtKind.OTHER_SHAPES,
            "control of another architecture: blocks.0.fc.weight is 16x8 there and 8x8 here",
        ),
        (
            {"shapes": {name: shape for name, shape in SHAPES.items() if "blocks.1" not in name}},
            DoubtKind.OTHER_SHAPES,
            "control of another architecture: it lacks blocks.1.fc.weight",
        ),
        (
            {"shapes": {**SHAPES, "blocks.2.fc.weight": (8, 8)}},
            DoubtKind.OTHER_SHAPES,
            "control of another architecture: the network lacks blocks.2.fc.weight",
        ),
        (
            {"moved": ("out_ln.weight", "blocks.0.ln.weight")},
            DoubtKind.TRAINED,
            "the control's blocks were trained: blocks.0.ln.weight: entries differ, and begin with one value",
        ),
        (
            {"moved": ()},
            DoubtKind.HARDLY_TRAINED,
            "the control was hardly trained: out_ln.weight is as it begins, and the network's is not",
        ),
        (
            {"weights": {**control_like().weights, "blocks.1.fc.weight": "b"}},
            DoubtKind.SAME_BLOCKS,
            "network and control have the same weights in block 1 of 2: either",
        ),
        (
            {"weights": {"embed.weight": "f", "blocks.0.fc.weight": "a", "blocks.1.fc.weight": "b"}},
            DoubtKind.SAME_BLOCKS,
            "network and control have the same weights in blocks 0 and 1 of 2: either",
        ),
        (
            {"weights": NETWORK.weights},
            DoubtKind.SAME_BLOCKS,
            "network and control have the same weights in all of their layers: either",
        ),
    ],
)
def test_what_its_tensors_tell_against_a_control(changes: dict[str, Any], kind: DoubtKind, text: str) -> None:
    (doubt,) = NETWORK.doubts(control_like(**changes), shallow=False)
    assert doubt.kind is kind and doubt.text.startswith(text)


def test_a_shallow_control_may_lack_the_blocks_and_nothing_else_may_differ() -> None:
    shallow = control_like(shapes={"embed.weight": (8, 4), "out_ln.weight": (8,)}, weights={"embed.weight": "f"})
    assert NETWORK.doubts(shallow, shallow=True) == ()
    wider = control_like(shapes={"embed.weight": (16, 4), "out_ln.weight": (8,)}, weights={"embed.weight": "f"})
    assert [doubt.kind for doubt in NETWORK.doubts(wider, shallow=True)] == [DoubtKind.OTHER_SHAPES]


def test_where_nobody_looked_for_the_stream_blocks_tell_nothing() -> None:
    nowhere = Fingerprint(NETWORK.shapes, NETWORK.weights, NETWORK.moved)
    assert nowhere.doubts(control_like(moved=("blocks.0.ln.weight",)), shallow=False) == ()


TRAINED = Doubt(DoubtKind.TRAINED, "its config says frozen: False")


def test_a_doubt_is_in_the_report_below_the_table_in_json_and_beside_the_outcome() -> None:
    judged = controlled(0.7, doubts=(TRAINED,))
    assert judged.finding("d").outcome == "pass (questioned control: trained)"
    assert judged.finding("d").causes == (Cause(CauseKind.QUESTIONED, "trained"),)
    assert "note: the control's blocks were trained: its config says frozen: False" in str(judged)
    assert "runs/bp_s42.pt: the control's blocks were trained: its config says frozen: False" in notes_of([row(judged)])
    again = DiagnosticReport.from_dict(judged.to_dict())
    assert again.control is not None and again.control.doubts == (TRAINED,) and str(again) == str(judged)


@pytest.mark.parametrize("kind", DoubtKind)
def test_no_result_is_trustworthy_by_a_control_that_is_no_frozen_control_of_its_network(kind: DoubtKind) -> None:
    judged = controlled(0.7, doubts=(Doubt(kind, "x"),))
    status = RowStatus.of(judged, {}, None, "")
    against = dict.fromkeys((DoubtKind.TRAINED, DoubtKind.OTHER_SHAPES), "no frozen control of this network")
    against[DoubtKind.BELOW_READOUT] = "a control that was trained too little"
    if kind in against:
        assert judged.verdict == f"incomplete: frozen-margin against {against[kind]}" == in_a_sentence(status)
        assert in_words(status) == "incomplete questioned d" and judged.finding("d").status is Status.PASS
        assert (report(judged, protocol="three").published, judged.fired) == ("INCOMPLETE(D3)", "")
        assert RowStatus.of(report(judged, protocol="three"), {}, None, "").published == "INCOMPLETE(D3)"
    else:
        assert (judged.verdict == "trustworthy") is (not Doubt(kind, "x").voids) and status.questioned == ""
    fired = controlled(0.89, doubts=(Doubt(DoubtKind.TRAINED, "x"),))
    assert fired.verdict == "needs walk-back: deep blocks fail to beat frozen-random baseline"


def test_depth_utility_that_passes_stands_in_for_a_margin_over_another_network() -> None:
    judged = controlled(0.7, doubts=(TRAINED,))
    asked = report(judged, diagnostics=(*judged.diagnostics, "depth-utility"))
    assert asked.verdict.startswith("incomplete: frozen-margin against") and "depth-utility not measured" in asked.verdict
    depth = Depth(
        probes=(0.8, 0.85),
        null=((0.8, 0.8), (0.8, 0.8)),
        interval=(3.5, 6.5),
        step_intervals=((3.5, 6.5),),
        change=(0.5,),
        fitted=5_000,
        read=5_000,
        nonfinite=(0, 0),
    )
    probed = report(asked, observations={"depth": to_plain(depth)})
    assert probed.finding("e").status is Status.PASS and probed.verdict == "trustworthy"
    assert RowStatus.of(probed, {}, None, "").standing is Standing.TRUSTWORTHY


def test_a_control_that_nothing_calls_one_is_questioned() -> None:
    judged = report(controlled(0.5), control=Control(Accuracy(0.5, 10_000), "hol_s42.jsonl", "bp", 42, "unmarked"))
    assert judged.finding("d").outcome == "pass (questioned control: unmarked)"
    assert "the control hol_s42.jsonl: nothing in its name or config says that its blocks are frozen" in judged.remarks


HARM = ("random blocks is better", "do harm", "The blocks add")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"doubts": (TRAINED,)}, "the control's blocks were trained: its config says frozen: False"),
        ({"doubts": (Doubt(DoubtKind.OTHER_SHAPES, "it lacks x"),)}, "control of another architecture: it lacks x"),
        (
            {"doubts": (Doubt(DoubtKind.SAME_BLOCKS, "block 0 of 2"),)},
            "network and control have the same weights in block 0 of 2",
        ),
        ({"kind": "unmarked"}, "nothing in its name or config says that its blocks are frozen"),
        ({"method": "dfa"}, "control of another method: dfa"),
    ],
)
@pytest.mark.parametrize("images", [10_000, None])
@pytest.mark.parametrize("accuracy", [0.95, 0.9, 0.895])
def test_a_flag_says_of_random_blocks_only_what_a_control_with_random_blocks_shows(
    changes: dict[str, Any], why: str, images: int | None, accuracy: float
) -> None:
    given: dict[str, Any] = {"source": "c.pt", "method": "bp", "seed": 42, **changes}
    judged = report(controlled(accuracy), control=Control(Accuracy(accuracy, images), **given))
    (flag,) = [line for line in str(judged).splitlines() if "FLAG" in line]
    assert judged.finding("d").status is Status.FIRE and why in flag and "this control" in flag.lower()
    assert not any(words in flag for words in HARM)
    over_seeds = str(SeedReport.of([judged, report(controlled(0.95), seed=7)], 2.0))
    assert why in over_seeds and not any(words in over_seeds for words in HARM)


@pytest.mark.parametrize("changes", [{}, {"doubts": (Doubt(DoubtKind.HARDLY_TRAINED, "out_ln.weight"),)}])
def test_a_weak_control_with_random_blocks_that_is_better_shows_that_trained_ones_do_harm(changes: dict[str, Any]) -> None:
    judged = controlled(0.95, **changes)
    assert "The same network with random blocks is better by 5.00 pp" in str(judged) and "do harm" in str(judged)


def test_a_control_that_was_never_trained_is_none() -> None:
    judged = controlled(0.42, doubts=(Doubt(DoubtKind.UNTRAINED, "as fadiag control wrote it"),))
    assert judged.finding("d").status is Status.NOT_MEASURED and judged.margin_pp is None
    assert judged.finding("d").headline.startswith("the control was never trained, as fadiag control wrote it")


def test_two_doubts_are_two_notes_and_one_cause() -> None:
    judged = controlled(0.7, doubts=(TRAINED, Doubt(DoubtKind.OTHER_SHAPES, "it lacks x")))
    assert judged.finding("d").outcome == "pass (questioned control: trained, other shapes)"
    assert sum("control" in remark for remark in judged.remarks) == 2


def test_the_margin_over_seeds_names_the_doubts_of_each_seed() -> None:
    questioned, other = controlled(0.7, doubts=(TRAINED,)), report(controlled(0.7), seed=7)
    assert "note: seed 42: the control's blocks were trained" in str(SeedReport.of([questioned, other], 2.0))


def test_names_of_tensors_cannot_forge_a_line() -> None:
    assert "\n" not in Doubt(DoubtKind.OTHER_SHAPES, "it lacks a\n===== 8 passed").text
    assert len(Doubt(DoubtKind.OTHER_SHAPES, "x" * 10_000).text) < 1_000


def test_controls_can_be_told_apart_by_their_hashes() -> None:
    """A run keeps its reports by their controls, and a margin over seeds counts those that seeds share."""
    control = Control(Accuracy(0.7), "x.pt", doubts=(TRAINED,), config={"epochs": 3})
    assert len({control, Control(Accuracy(0.7), "x.pt", doubts=(TRAINED,), config={"epochs": 3}), Control(Accuracy(0.7))}) == 2


def test_a_fingerprint_survives_json() -> None:
    assert read(Fingerprint, to_plain(NETWORK), "tensors") == NETWORK
