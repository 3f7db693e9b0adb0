"""What makes a control doubtful, and what follows from it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from builders import BP, healthy, probed

from pytest_fadiag.judge.control import Control, ControlKind, Doubt, Fingerprint, Severity
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
    ("changes", "shallow", "severities", "said"),
    [
        ({}, False, [], ""),
        (
            {"moved": ("out", "b.0.ln")},
            False,
            ["warning"],
            "blocks were trained: entries of b.0.ln",
        ),
        ({"moved": ()}, False, ["remark"], "undertrained: out still at the initial value"),
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
        ({"weights": {"embed": "f", "b.0.w": "w"}}, False, ["remark"], "weights in block 0 of 1"),
        ({"weights": NETWORK.weights}, False, ["remark"], "share their weights in all layers"),
    ],
)
def test_tensors_tell_against_a_control(
    changes: dict[str, Any], shallow: bool, severities: list[str], said: str
) -> None:
    control = msgspec.structs.replace(FROZEN, **changes)
    doubts = NETWORK.doubts(control, shallow=shallow)
    assert [doubt.severity.value for doubt in doubts] == severities
    assert said in " ".join(doubt.text for doubt in doubts)


def test_one_digest_of_all_matrices() -> None:
    assert NETWORK.digest == msgspec.structs.replace(NETWORK, moved=()).digest != FROZEN.digest


def with_control(value: float, images: int | None = 10_000, **changes: Any) -> Report:
    fields = ("source", "method", "seed", "kind", "probes", "data", "doubts")
    own = {name: changes.pop(name) for name in fields if name in changes}
    data = own.pop("data", None)
    return healthy(control=Control(Score(value, images, data=data), **own), **changes)


@pytest.mark.parametrize(
    ("made", "severity", "said"),
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
            "accuracy 0.7000, linear probe of h_0 0.7300",
        ),
        (with_control(0.7, probes=(0.71,)), None, ""),
        (probed(with_control(0.7), 0.73, 0.9, null=None), "warning", "linear probe of h_0 0.7300"),
        (with_control(0.7, kind=ControlKind.UNMARKED), "remark", "cannot confirm that its blocks"),
        (with_control(0.7, method="fa"), "remark", "the control of fa; bp has none of its own"),
        (with_control(0.7, method="bp", seed=42), None, ""),
        (with_control(0.7, seed=7), "remark", "seed 7, not seed 42"),
        (with_control(0.7, seed=7).replace(seed=None), None, ""),
    ],
)
def test_numbers_tell_against_a_control(made: Report, severity: str | None, said: str) -> None:
    assert [doubt.severity.value for doubt in made.doubts] == ([severity] if severity else [])
    assert all(said in doubt.text and doubt.text in made.remarks for doubt in made.doubts)
    assert made.lacks_usable_control == (severity == "invalid")
    assert (made.margin_pp is None) == (severity == "invalid")
    assert (made.verdict == "trustworthy") == (severity in (None, "remark"))


def test_a_control_that_is_something_else_supports_no_claim_on_random_blocks() -> None:
    doubt = Doubt(Severity.REMARK, "of another kind", other=True)
    made = healthy(control=Control(Score(0.95, 10_000), doubts=(doubt,)))
    said = made.finding("d").explanation
    assert said.endswith("Not attributable to random blocks: of another kind.")
    assert BP.doubts == () and BP.replace(control=None).doubts == ()
