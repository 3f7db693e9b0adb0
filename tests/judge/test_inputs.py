"""What a report states of its inputs, and what --fa-normalize takes."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.judge.inputs import Normalisation, NormalisedBy, StatedInputs, check_constants

BY, OF = {"mean": (0.5,), "std": (0.25,)}, {"checkpoint_mean": (0.4, 0.3), "checkpoint_std": (0.2, 0.1)}


def stated(by: NormalisedBy, data: str = "cifar10", **changes: Any) -> StatedInputs:
    return StatedInputs(data, by, **changes)


@pytest.mark.parametrize(
    ("inputs", "text", "numbers"),
    [
        (
            stated(NormalisedBy.OPTION, option="0.5/0.25", **BY),
            "normalised by --fa-normalize=0.5/0.25",
            "mean 0.5 and std 0.25",
        ),
        (stated(NormalisedBy.CHECKPOINT, **BY), "normalised by the checkpoint's mean and std", "mean 0.5 and std 0.25"),
        (stated(NormalisedBy.CHECKPOINT, pixels=True), "pixels in [0, 1], not normalised, as the checkpoint says", "none"),
        (stated(NormalisedBy.CHECKPOINT), "as it is, as the checkpoint says", "none"),
        (
            stated(NormalisedBy.USUAL, option="data", **BY),
            "normalised by its usual constants (--fa-normalize=data)",
            "mean 0.5 and std 0.25",
        ),
        (
            stated(NormalisedBy.DATA, mean=(0.5, 0.4), std=(1.0,)),
            "normalised by the data's own mean and std",
            "mean 0.5,0.4 and std 1",
        ),
        (
            stated(NormalisedBy.NOTHING, pixels=True, option="none"),
            "pixels in [0, 1], not normalised (--fa-normalize=none)",
            "none",
        ),
        (stated(NormalisedBy.NOTHING), "as it is", "none"),
        (stated(NormalisedBy.NOTHING, mean=(0.5,)), "as it is", "none"),
        (stated(NormalisedBy.CALLER), "batches as they are given", "given batches"),
    ],
)
def test_inputs_in_words(inputs: StatedInputs, text: str, numbers: str) -> None:
    assert (str(inputs), inputs.normalisation) == (f"cifar10, {text}", numbers)
    assert str(StatedInputs("", NormalisedBy.CALLER)) == "batches as they are given"


@pytest.mark.parametrize(
    ("inputs", "assumed"),
    [
        (stated(NormalisedBy.USUAL, pixels=True, **BY), True),
        (stated(NormalisedBy.NOTHING, pixels=True), True),
        (stated(NormalisedBy.NOTHING), False),
        (stated(NormalisedBy.NOTHING, pixels=True, option="none"), False),
        (stated(NormalisedBy.CHECKPOINT, pixels=True, **BY), False),
    ],
)
def test_what_nobody_said_is_assumed_and_remarked(inputs: StatedInputs, assumed: bool) -> None:
    assert inputs.assumed is assumed and len(list(inputs.remarks())) == assumed
    if assumed:
        taken = "its usual constants, mean 0.5 and std 0.25," if inputs.mean else "pixels in [0, 1]"
        assert f"in training, so of cifar10 {taken} were taken" in next(inputs.remarks())


@pytest.mark.parametrize(
    ("inputs", "why"),
    [
        (stated(NormalisedBy.OPTION, option="0.5/0.25", **BY, **OF), "--fa-normalize=0.5/0.25 is given"),
        (stated(NormalisedBy.DATA, **BY, **OF), "the data brings mean 0.5 and std 0.25"),
        (
            stated(NormalisedBy.NOTHING, **OF),
            "data of fractions is taken as it is; if it is not normalised yet, say --fa-normalize=0.4,0.3/0.2,0.1",
        ),
        (stated(NormalisedBy.CHECKPOINT, **BY, **OF), ""),
        (stated(NormalisedBy.OPTION, option="same", mean=(0.4, 0.3), std=(0.2, 0.1), **OF), ""),
        (stated(NormalisedBy.DATA, **BY, checkpoint_mean=(0.4,)), ""),
        (stated(NormalisedBy.DATA, **BY, checkpoint_std=(0.4,)), ""),
    ],
)
def test_what_the_checkpoint_says_and_was_not_done(inputs: StatedInputs, why: str) -> None:
    said = f"the checkpoint's config has mean 0.4,0.3 and std 0.2,0.1, which were not applied: {why}"
    assert list(inputs.remarks()) == ([said] if why else [])


@pytest.mark.parametrize(
    ("text", "mean", "std"),
    [
        ("data", None, None),
        (" none ", None, None),
        ("0.5/0.25", (0.5,), (0.25,)),
        ("0.5, 0.4/0.25, 1", (0.5, 0.4), (0.25, 1.0)),
        ("0.5,0.4,0.3/0.25", (0.5, 0.4, 0.3), (0.25,)),
        ("0/0.5,0.25", (0.0,), (0.5, 0.25)),
        ("-1/1", (-1.0,), (1.0,)),
    ],
)
def test_what_normalises(text: str, mean: tuple[float, ...] | None, std: tuple[float, ...] | None) -> None:
    assert Normalisation.parse(text) == Normalisation("".join(text.split()), mean, std)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("usual", "expected data, none, or MEAN/STD .*, not 'usual'"),
        ("0.5", "expected data, none, or MEAN/STD .*, not '0.5'"),
        ("0.5/x", "expected data, none, or MEAN/STD .*, not '0.5/x'"),
        ("0.5,0.4,0.3/0.2,0.1", "has 3 values of mean and 2 of std"),
        ("0.5,0.4/0.3,0.2,0.1", "has 2 values of mean and 3 of std"),
        ("0.5/0", "has a std of 0, by which nothing can be normalised"),
        ("0.5/-1", "has a std of -1, by which"),
        ("nan/1", "has a mean of nan, by which"),
        ("0.5/1,inf", "has a std of inf, by which"),
    ],
)
def test_what_does_not_normalise(text: str, said: str) -> None:
    with pytest.raises(AuditError, match=said):
        Normalisation.parse(text)


def test_constants_are_finite_and_there() -> None:
    check_constants([0.0, -1.0], [1e-9], "its config has")
    for means, stds, said in (
        ([], [1.0], "no mean"),
        ([1.0], [], "no std"),
        ([1.0, math.nan, math.inf], [1.0], "a mean of nan"),
    ):
        with pytest.raises(AuditError, match=f"^its config has {said}, by which nothing can be normalised$"):
            check_constants(means, stds, "its config has")
