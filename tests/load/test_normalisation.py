"""How inputs are normalised, who decides it, and what the report says of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support import clustered, network
from torch import Tensor

from pytest_fadiag import AuditError, Bench, DiagnosticReport, Setup, audit, diagnose
from pytest_fadiag.judge.inputs import Normalisation, NormalisedBy, StatedInputs
from pytest_fadiag.load.controls import ControlFile
from pytest_fadiag.load.data import DataSet
from pytest_fadiag.load.normalisation import state_inputs

Save = Callable[..., Path]
USUAL = StatedInputs("fashion-mnist", NormalisedBy.USUAL, (0.286,), (0.353,), pixels=True)
BYTES = StatedInputs("x.npz", NormalisedBy.NOTHING, pixels=True)
FRACTIONS = StatedInputs("x.npz", NormalisedBy.NOTHING)
OWN = StatedInputs("mine", NormalisedBy.DATA, (0.1,), (0.2,))
CONFIG = {"mean": [0.5], "std": [0.25]}


@pytest.mark.parametrize(
    ("text", "mean", "std"),
    [
        ("data", None, None),
        ("none", None, None),
        ("0.5/0.25", (0.5,), (0.25,)),
        ("0.49, 0.48,0.45/ 0.25,0.24,0.26", (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)),
        ("0/1,2,3", (0.0,), (1.0, 2.0, 3.0)),
        ("-1e-1/1e1", (-0.1,), (10.0,)),
    ],
)
def test_what_the_option_may_say(text: str, mean: Any, std: Any) -> None:
    parsed = Normalisation.parse(text)
    assert (parsed.mean, parsed.std) == (mean, std)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("usual", "expected data, none, or MEAN/STD such as 0.286/0.353 .*, not 'usual'"),
        ("", "expected data, none"),
        ("0.5", "expected data, none"),
        ("0.5/", "expected data, none"),
        ("/0.5", "expected data, none"),
        ("0.5/0.5/0.5", "expected data, none"),
        ("a/b", "expected data, none"),
        ("0.5/0", "'0.5/0' has a std of 0, by which nothing can be normalised"),
        ("0.5/-1", "a std of -1"),
        ("nan/1", "a mean of nan"),
        ("0/inf", "a std of inf"),
        ("1,2/1,2,3", "2 values of mean and 3 of std"),
    ],
)
def test_what_it_may_not_say(text: str, message: str) -> None:
    with pytest.raises(AuditError, match=message):
        Normalisation.parse(text)
    with pytest.raises(AuditError, match=message):
        Setup("x.npz", normalize=text)


DECISIONS = [
    (USUAL, {}, None, "fashion-mnist, normalised by its usual constants", "mean 0.286 and std 0.353"),
    (USUAL, CONFIG, None, "fashion-mnist, normalised by the checkpoint's mean and std", "mean 0.5 and std 0.25"),
    (USUAL, {"normalize": False}, None, "fashion-mnist, pixels in [0, 1], not normalised, as the checkpoint says", "none"),
    (USUAL, {"normalize": "none"}, None, "fashion-mnist, pixels in [0, 1], not normalised, as the checkpoint says", "none"),
    (USUAL, CONFIG, "none", "fashion-mnist, pixels in [0, 1], not normalised (--fa-normalize=none)", "none"),
    (USUAL, CONFIG, "data", "fashion-mnist, normalised by its usual constants (--fa-normalize=data)", USUAL.normalisation),
    (USUAL, CONFIG, "1/2", "fashion-mnist, normalised by --fa-normalize=1/2", "mean 1 and std 2"),
    (BYTES, {}, None, "x.npz, pixels in [0, 1], not normalised", "none"),
    (BYTES, CONFIG, None, "x.npz, normalised by the checkpoint's mean and std", "mean 0.5 and std 0.25"),
    (FRACTIONS, {}, None, "x.npz, as it is", "none"),
    (FRACTIONS, CONFIG, None, "x.npz, as it is", "none"),
    (FRACTIONS, CONFIG, "none", "x.npz, as it is (--fa-normalize=none)", "none"),
    (FRACTIONS, {}, "1/2", "x.npz, normalised by --fa-normalize=1/2", "mean 1 and std 2"),
    (OWN, CONFIG, None, "mine, normalised by the data's own mean and std", "mean 0.1 and std 0.2"),
    (OWN, CONFIG, "none", "mine, as it is (--fa-normalize=none)", "none"),
]


@pytest.mark.parametrize(("data", "config", "option", "text", "numbers"), DECISIONS, ids=[case[3] for case in DECISIONS])
def test_the_user_decides_then_the_checkpoint_then_the_data(
    data: StatedInputs, config: dict[str, Any], option: str | None, text: str, numbers: str
) -> None:
    stated = state_inputs(data, config, None if option is None else Normalisation.parse(option))
    assert (str(stated), stated.normalisation) == (text, numbers)


@pytest.mark.parametrize(
    ("data", "config", "option", "remark"),
    [
        (USUAL, {}, None, "nothing says how .* of fashion-mnist its usual constants, mean 0.286 and std 0.353, were taken"),
        (
            BYTES,
            {},
            None,
            r"nothing says how .* of x.npz pixels in \[0, 1\] were taken; say it with --fa-normalize=data, none or",
        ),
        (FRACTIONS, CONFIG, None, "mean 0.5 and std 0.25, which were not applied: data .* say --fa-normalize=0.5/0.25"),
        (USUAL, CONFIG, "none", "mean 0.5 and std 0.25, which were not applied: --fa-normalize=none is given"),
        (OWN, CONFIG, None, "which were not applied: the data brings mean 0.1 and std 0.2"),
    ],
)
def test_what_was_assumed_or_left_aside_is_said(
    data: StatedInputs, config: dict[str, Any], option: str | None, remark: str
) -> None:
    (said,) = state_inputs(data, config, None if option is None else Normalisation.parse(option)).remarks()
    assert re.search(remark, said), said


@pytest.mark.parametrize(
    ("data", "config", "option"),
    [(USUAL, CONFIG, None), (USUAL, {}, "data"), (BYTES, {}, "none"), (FRACTIONS, {}, None), (USUAL, CONFIG, "0.5/0.25")],
)
def test_where_nothing_was_assumed_nothing_is_said(data: StatedInputs, config: dict[str, Any], option: str | None) -> None:
    assert not list(state_inputs(data, config, None if option is None else Normalisation.parse(option)).remarks())


# --- in a report -----------------------------------------------------------------------------------------------------


def pixels(**constants: Any) -> DataSet:
    x = torch.randint(0, 256, (300, 1, 4, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return DataSet(x, torch.arange(300) % 5, "images", (0.286,), (0.353,), usual=True, **constants)


def by_hand(mean: float, std: float) -> float:
    x = pixels().x
    assert isinstance(x, Tensor)
    return float(network().embed((x.flatten(1) / 255 - mean) / std).norm(dim=1)[:256].quantile(0.5).detach())


@pytest.mark.parametrize(
    ("normalize", "config", "mean", "std"),
    [
        (None, {}, 0.286, 0.353),
        (None, CONFIG, 0.5, 0.25),
        (None, {"normalize": False}, 0, 1),
        ("none", CONFIG, 0, 1),
        ("data", CONFIG, 0.286, 0.353),
        ("0.1/3", CONFIG, 0.1, 3),
    ],
)
def test_the_numbers_are_those_of_the_inputs_that_are_stated(
    save: Save, normalize: str | None, config: dict[str, Any], mean: float, std: float
) -> None:
    report = audit(save(config=config), data=pixels(), normalize=normalize)
    assert report.residual_norms[0] == pytest.approx(by_hand(mean, std), rel=1e-5)
    assert report.inputs is not None
    assert (report.inputs.mean, report.inputs.std) == ((None, None) if (mean, std) == (0, 1) else ((mean,), (std,)))
    assert f"\n  inputs: {report.inputs}\n" in str(report)
    assert DiagnosticReport.from_dict(report.to_dict()).inputs == report.inputs


def test_fractions_that_are_normalised_already_are_not_normalised_again(save: Save, archive: str) -> None:
    plain, told = (audit(save(config={**held, "activation": "gelu"}), data=archive) for held in ({}, CONFIG))
    assert told.residual_norms == plain.residual_norms
    assert not plain.remarks
    assert any("mean 0.5 and std 0.25, which were not applied" in remark for remark in told.remarks)


def test_a_claim_that_is_missed_names_the_normalisation_in_force(save: Save) -> None:
    missed = audit(save(test_acc=0.99), data=pixels())
    assert any(
        "claims accuracy 0.9900, but" in remark
        and "on images, normalised by its usual constants (normalisation: mean 0.286 and std 0.353)" in remark
        for remark in missed.remarks
    )
    assert missed.headline_acc is not None
    kept = audit(save(test_acc=missed.headline_acc - 0.0049), data=pixels())
    assert not any("claims" in remark for remark in kept.remarks)


def test_a_control_has_the_inputs_that_it_was_trained_on_and_the_report_says_where_they_are_others(save: Save) -> None:
    bench = Bench(Setup(pixels()))
    record = bench.record(save("dfa_s1.pt", config={**CONFIG, "method": "dfa"}))

    def judged(**config: Any) -> DiagnosticReport:
        control = bench.control(ControlFile.named(save("frozen_dfa_s1.pt", config={"method": "dfa", "frozen": True, **config})))
        return record.judge(control, None)

    def of_inputs(report: DiagnosticReport) -> list[str]:
        return [remark for remark in report.remarks if "inputs" in remark]

    assert not of_inputs(judged(**CONFIG))
    (other,) = of_inputs(judged())
    assert "its control frozen_dfa_s1.pt was evaluated on other inputs: images, normalised by its usual constants" in other
    assert "mean 0.286 and std 0.353, here mean 0.5 and std 0.25" in other


def test_batches_of_a_caller_are_said_to_be_as_given() -> None:
    report = diagnose(model=network(), eval_batches=[clustered(300)])
    assert "\n  inputs: batches as they are given\n" in str(report)
    assert not report.remarks


@pytest.mark.parametrize(
    ("scale", "option", "said"), [(255.0, None, True), (1.0, None, False), (255.0, "0/255", False), (255.0, "none", False)]
)
def test_fractions_that_look_like_bytes_are_told(scale: float, option: str | None, said: bool) -> None:
    x = torch.linspace(0, 1, 300 * 20).view(300, 20) * scale
    normalize = None if option is None else Normalisation.parse(option)
    chosen = DataSet(x, torch.arange(300) % 5, "mine").for_checkpoint({}, normalize)
    assert ("its inputs go up to 255 and were taken as they are" in chosen.note) is said
    (first, _), *_ = chosen.batches(300)
    assert isinstance(first, Tensor) and float(first.max()) == pytest.approx(1.0 if option == "0/255" else scale)
