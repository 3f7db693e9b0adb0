"""What makes a control doubtful, and what follows from it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from builders import BP, floored, healthy, probed

from pytest_fadiag.judge.control import (
    Control,
    ControlKind,
    Doubt,
    Fingerprint,
    Severity,
    differing_settings,
)
from pytest_fadiag.judge.records import Score
from pytest_fadiag.judge.report import Report

NETWORK = Fingerprint(
    shapes={"embed": (4, 8), "b.0.w": (4, 4), "b.0.ln": (4,), "out": (4,)},
    weights={"embed": "e", "b.0.w": "w"},
    moved=("b.0.ln", "out"),
    blocks=(("b.0.w", "b.0.ln"),),
)
FROZEN = msgspec.structs.replace(NETWORK, weights={"embed": "f", "b.0.w": "v"}, moved=("out",))


@pytest.mark.parametrize(
    ("changes", "shallow", "severities", "phrase"),
    [
        ({}, False, [], ""),
        (
            {"moved": ("out", "b.0.ln")},
            False,
            ["warning"],
            "blocks were trained: entries of b.0.ln",
        ),
        (
            {"shapes": {**NETWORK.shapes, "embed": (4, 9)}},
            False,
            ["warning"],
            "is (4, 9), here (4, 8)",
        ),
        (
            {"shapes": {**NETWORK.shapes, "more": (1,)}},
            False,
            ["warning"],
            "more is (1,), here absent",
        ),
        ({"shapes": {"embed": (4, 8), "out": (4,)}}, False, ["warning"], "b.0.w is absent"),
        ({"shapes": {"embed": (4, 8), "out": (4,)}}, True, [], ""),
        ({"weights": {"embed": "f", "b.0.w": "w"}}, False, ["warning"], "weights in block 0 of 1"),
    ],
)
def test_tensors_tell_against_a_control(
    changes: dict[str, Any], shallow: bool, severities: list[str], phrase: str
) -> None:
    control = msgspec.structs.replace(FROZEN, **changes)
    doubts = NETWORK.doubts(control, shallow=shallow)
    assert [doubt.severity.value for doubt in doubts] == severities
    assert phrase in " ".join(doubt.text for doubt in doubts)


def test_one_digest_of_all_matrices() -> None:
    assert NETWORK.digest == msgspec.structs.replace(NETWORK, moved=()).digest != FROZEN.digest


@pytest.mark.parametrize(("right", "rejected"), [((860, 45), False), ((900, 0), True)])
def test_on_skewed_data_chance_is_that_of_classes(right: tuple[int, int], rejected: bool) -> None:
    """Nine in ten images are of one class: who always says so is at chance, who reads 0.905 not."""
    labels = [0] * 900 + [1] * 100
    score = Score.of([place < right[label] for place, label in enumerate_classes(labels)])
    score = msgspec.structs.replace(score, class_counts=(900, 100))
    made = healthy(control=Control(score), label_class_share=0.9, label_classes=2)
    texts = [doubt.text for doubt in made.doubts]
    assert ("control rejected: accuracy at chance (0.5000, 1/2)" in texts) == rejected
    own = healthy(headline_acc=score.value, score=score, label_class_share=0.9)
    assert any("accuracy is at chance (1/2)" in remark for remark in own.remarks) == rejected


def enumerate_classes(labels: list[int]) -> list[tuple[int, int]]:
    """The place of each image in its class, and the class."""
    return [(labels[:index].count(label), label) for index, label in enumerate(labels)]


def with_control(value: float, images: int | None = 10_000, **changes: Any) -> Report:
    fields = {*Control.__struct_fields__, "data", "settings"} - {"score", "config", "inputs"}
    given_fields = {name: changes.pop(name) for name in fields & changes.keys()}
    data, config = given_fields.pop("data", None), given_fields.pop("settings", {})
    score = Score(value, images, data=data)
    return healthy(control=Control(score, config=config, **given_fields), **changes)


@pytest.mark.parametrize(
    ("report", "severity", "phrase"),
    [
        (with_control(0.103, classes=10), "invalid", "accuracy at chance (0.1030, 1/10)"),
        (with_control(0.107, classes=10), None, ""),
        (with_control(0.109, None, classes=10, headline_acc=0.9), "invalid", "at chance"),
        (with_control(0.111, None, classes=10, headline_acc=0.9), None, ""),
        (with_control(0.5, classes=10, label_classes=2), "invalid", "1/2"),
        (with_control(0.6, label_class_share=0.6), "invalid", "share of the most frequent class"),
        (with_control(0.3), None, ""),
        (with_control(0.7, data="ff" * 32), "invalid", "measured on other test data (ffff"),
        (with_control(0.7, data="ab" * 32), None, ""),
        (
            with_control(0.7, probes=(0.73,)),
            "warning",
            "accuracy below a linear probe of h_0 (0.7300)",
        ),
        (with_control(0.7, probes=(0.71,)), None, ""),
        (probed(with_control(0.7), 0.73, 0.77, null=None), "warning", "probe of h_0 (0.7300)"),
        (with_control(0.9, probes=(0.73,), balanced=0.7), "warning", "below a linear probe"),
        # 1.3 pp are two standard errors on all 10,000 images, which cross-fitted probes read
        (with_control(0.8, probes=(0.7265,), balanced=0.71), "warning", "below a linear probe"),
        (with_control(0.8, probes=(0.7225,), balanced=0.71), None, ""),
        (with_control(-0.01, task="regression"), "invalid", "R² at chance (−0.0100, R² ≤ 0)"),
        (with_control(0.01, task="regression", gradient_per_unit_error=1.0), None, ""),
        (
            with_control(0.1, task="tokens", classes=10, label_class_share=0.15),
            "invalid",
            "token accuracy at chance (0.1000, 0.1500, the share of the most frequent token)",
        ),
        (floored(with_control(0.76)), "warning", "readout of the inputs (0.7930)"),
        (floored(with_control(0.76), readout=0.77), None, ""),
        (
            with_control(0.745, settings={"epochs": 1, "lr": 1e-9}, config={"epochs": 30}),
            "warning",
            "the control was trained otherwise: epochs 1, here 30",
        ),
        (with_control(0.7, kind=ControlKind.UNMARKED), "remark", "cannot confirm that its blocks"),
        (with_control(0.7, method="fa"), "warning", "the control of fa; bp has none of its own"),
        (with_control(0.7, method="bp", seed=42), None, ""),
        (with_control(0.7, seed=7), "warning", "seed 7, not seed 42"),
        (with_control(0.7, seed=7).replace(seed=None), None, ""),
    ],
)
def test_numbers_tell_against_a_control(report: Report, severity: str | None, phrase: str) -> None:
    assert [doubt.severity.value for doubt in report.doubts] == ([severity] if severity else [])
    assert all(phrase in doubt.text and doubt.text in report.remarks for doubt in report.doubts)
    assert report.questions_control == (severity in ("invalid", "warning"))
    assert (report.margin_pp is None) == (severity == "invalid")
    assert (report.verdict == "trustworthy") == (severity in (None, "remark"))


def test_an_undertrained_control_flatters_only_a_network_above_it() -> None:
    above, below = (with_control(0.7, probes=(0.73,), headline_acc=acc) for acc in (0.75, 0.6))
    assert "so the margin may be too large: " in above.doubts[0].text
    assert "a better one would only lower the margin: " in below.doubts[0].text


def test_on_skewed_data_a_control_is_compared_with_readouts_by_class() -> None:
    """Half of a rare tenth right is 0.95 of all images and 0.75 of the classes."""
    control = Control(Score.of([True] * 9_500 + [False] * 500, labels=[0] * 9_000 + [1] * 1_000))
    below = floored(healthy(control=control), readout=0.79)
    assert below.questions_control and "below a linear readout" in below.doubts[0].text
    assert not floored(healthy(control=control), readout=0.75).questions_control


@pytest.mark.parametrize(
    ("network", "control", "differ"),
    [
        ({"lr": 1e-3}, {"learning_rate": "0.001"}, []),
        ({"lr": 1e-3, "epochs": 30}, {"LR": 1e-9, "n_epochs": 30}, ["lr 1e-9, here 0.001"]),
        ({"optimiser": "AdamW"}, {"optimizer": "torch.optim.adamw"}, []),
        ({"optimiser": "adamw"}, {"opt": "sgd"}, ["optimiser sgd, here adamw"]),
        ({"data": "/a/Fashion_MNIST/"}, {"dataset": "fashion-mnist"}, []),
        ({"data": "cifar10"}, {"dataset": "cifar100"}, ["data cifar100, here cifar10"]),
        ({"batch": 128}, {"batch_size": 64, "epochs": 3}, ["batch size 64, here 128"]),
        ({"epochs": None, "batch": [1]}, {"epochs": 3, "batch": 2}, []),
        ({"wd": 0.1, "method": "bp"}, {"wd": 0.2, "method": "fa"}, []),
    ],
)
def test_settings_are_compared_where_both_configs_tell(
    network: dict[str, Any], control: dict[str, Any], differ: list[str]
) -> None:
    assert differing_settings(network, control) == differ


def test_a_control_that_is_something_else_supports_no_claim_on_random_blocks() -> None:
    doubt = Doubt(Severity.REMARK, "of another kind", mismatched=True)
    report = healthy(control=Control(Score(0.95, 10_000), doubts=(doubt,)))
    explanation = report.finding("d").explanation
    assert explanation.endswith("It does not show that random blocks suffice: of another kind.")
    assert BP.doubts == () and BP.replace(control=None).doubts == ()
