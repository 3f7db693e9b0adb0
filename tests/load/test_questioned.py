"""Controls on disk that are none, or not this network's: what the report says of each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support import network, trained
from torch import nn

from pytest_fadiag import DiagnosticReport, ResidualMLP, Status, audit
from pytest_fadiag.judge.doubts import DoubtKind
from pytest_fadiag.load.fingerprints import fingerprint

Save = Callable[..., Path]


@pytest.fixture
def learned(save: Save) -> Path:
    return save("bp_s42.pt", {"state_dict": trained(60, samples=300).state_dict(), "config": {"method": "bp", "seed": 42}})


@pytest.fixture
def against(save: Save, learned: Path, archive: str) -> Callable[..., DiagnosticReport]:
    """The report of the trained network against a network in the role of its control."""

    def judged(control: nn.Module, **config: Any) -> DiagnosticReport:
        own = {"method": "bp", "seed": 42, "frozen": True, **config}
        path = save("frozen_bp_s42.pt", {"state_dict": control.state_dict(), "config": own})
        return audit(learned, data=archive, frozen=path)

    return judged


def doubted(report: DiagnosticReport) -> list[DoubtKind]:
    assert report.control is not None
    return [doubt.kind for doubt in report.control.doubts]


def test_a_frozen_control_is_not_questioned(against: Callable[..., DiagnosticReport]) -> None:
    report = against(trained(4, seed=1, frozen=True))
    assert doubted(report) == [] and report.finding("d").outcome == "pass"


def test_one_of_the_networks_own_seed_is_not_questioned_either(against: Callable[..., DiagnosticReport]) -> None:
    assert doubted(against(trained(8, seed=0, frozen=True))) == []


def test_an_untrained_control_is_at_chance_and_there_is_no_margin(against: Callable[..., DiagnosticReport]) -> None:
    control = trained(8, seed=1, frozen=True)
    with torch.no_grad():
        control.out_head.weight.zero_()
    report = against(control)
    assert report.finding("d").status is Status.NOT_MEASURED and "at chance" in report.finding("d").headline
    assert report.verdict.startswith("incomplete: frozen-margin not measured"), "300 images are too few for (e) to stand in"


def test_a_control_of_another_width_is_named(against: Callable[..., DiagnosticReport]) -> None:
    report = against(trained(8, seed=1, frozen=True, d=24))
    assert doubted(report) == [DoubtKind.OTHER_SHAPES]
    assert "embed.weight is 24x20 there and 16x20 here" in str(report)


def test_a_control_of_another_depth_is_named(against: Callable[..., DiagnosticReport]) -> None:
    assert "it lacks blocks.2.ln.weight, blocks.2.ln.bias, blocks.2.fc1.weight and 9 more" in " ".join(
        str(against(trained(8, seed=1, frozen=True, blocks=2))).split()
    )
    assert "the network lacks blocks.4." in str(against(trained(8, seed=1, frozen=True, blocks=5)))


def test_a_shallow_control_lacks_blocks_and_is_not_questioned(against: Callable[..., DiagnosticReport]) -> None:
    assert doubted(against(trained(8, seed=1, blocks=1, frozen=True), frozen=False, shallow=True)) == []


def test_trained_blocks_are_told_by_their_normalisation_layers(against: Callable[..., DiagnosticReport]) -> None:
    report = against(trained(4, seed=1))
    assert doubted(report) == [DoubtKind.TRAINED]
    assert report.finding("d").outcome.endswith("questioned control: trained)")
    assert "the control's blocks were trained: blocks.0.ln.weight, blocks.0.ln.bias" in str(report)


def test_a_config_that_says_not_frozen_is_believed_before_the_name(against: Callable[..., DiagnosticReport]) -> None:
    report = against(trained(8, seed=1, frozen=True), frozen=False)
    assert doubted(report) == [DoubtKind.TRAINED]
    assert "the control's blocks were trained: its config says frozen: False" in str(report)


def test_the_network_itself_is_no_control(against: Callable[..., DiagnosticReport]) -> None:
    report = against(trained(60, samples=300))
    assert DoubtKind.SAME_BLOCKS in doubted(report) and "the same weights in all of their layers" in str(report)


def test_blocks_that_were_never_trained_are_those_of_the_control(save: Save, archive: str) -> None:
    """Of one seed, with block 0 alone trained: the others are what both were drawn with."""
    partly = network()
    partly.load_state_dict(trained(60, frozen=True).state_dict())
    with torch.no_grad():
        partly.blocks[0].fc1.weight.mul_(1.5)
    audited = save("bp_s42.pt", {"state_dict": partly.state_dict(), "config": {"method": "bp", "seed": 42}})
    frozen = save("frozen_bp_s42.pt", {"state_dict": trained(8, frozen=True).state_dict()})
    report = audit(audited, data=archive, frozen=frozen)
    assert doubted(report) == [DoubtKind.SAME_BLOCKS]
    assert "the same weights in blocks 1, 2 and 3 of 4: either the network's were never trained" in " ".join(
        str(report).split()
    )


def test_batch_and_group_normalisation_tell_too_and_what_is_outside_the_blocks_does_not() -> None:
    layers = [nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.LayerNorm(4), nn.RMSNorm(4)]
    model = nn.Sequential(*layers, nn.Linear(4, 4))
    assert fingerprint(model).moved == ()
    with torch.no_grad():
        for layer in layers:
            layer.weight[0] = 2.0
    assert fingerprint(model).moved == ("0.weight", "1.weight", "2.weight", "3.weight")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_any_dtype_has_a_fingerprint(dtype: torch.dtype) -> None:
    one, other = (fingerprint(network(seed=seed).to(dtype)) for seed in (0, 1))
    assert one == fingerprint(network(seed=0).to(dtype)) and one.weights.keys() == other.weights.keys()
    assert not set(one.weights.values()) & set(other.weights.values())


def test_the_shapes_are_those_of_every_tensor() -> None:
    model = ResidualMLP(4, 8, 1, 3)
    assert fingerprint(model).shapes == {name: tuple(value.shape) for name, value in model.state_dict().items()}
