"""The verdict is the network's alone: no name of a file and no kind of control turns it over."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from repo import fit, network, write_data
from support import rings
from torch import nn

from pytest_fadiag import audit, diagnose
from pytest_fadiag.auditor import Auditor
from pytest_fadiag.judge.diagnostics import default_diagnostics
from pytest_fadiag.load.setup import Setup

NAMES = ("bp_s1.pt", "dfa_s1.pt", "model.pt", "epoch-30.pt")
X, Y = rings(1_500, seed=7)


def learnt(steps: int, *, frozen: bool = False, seed: int = 0) -> nn.Module:
    """A network that has learnt the rings for some steps."""
    model = network(20, 24, 3, 4, seed=seed, frozen=frozen)
    return fit(model, *rings(4_000, seed=1), steps).eval()  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def networks() -> dict[str, nn.Module]:
    return {
        "deep": learnt(400),
        "barely trained": learnt(40),
        "hollow": learnt(400, frozen=True, seed=3),
        "control": learnt(400, frozen=True),
    }


@pytest.fixture
def folder(tmp_path: Path, networks: dict[str, nn.Module]) -> Path:
    write_data(tmp_path / "data.npz", X, Y)
    torch.save({"state_dict": networks["control"].state_dict()}, tmp_path / "frozen_bp_s1.pt")
    return tmp_path


def score_of(model: nn.Module) -> float:
    with torch.no_grad():
        return float((model(X).argmax(1) == Y).float().mean())


def word_of(report: Any) -> str:
    return str(report.verdict.partition(":")[0])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("deep", "trustworthy"),
        ("barely trained", "needs walk-back"),
        ("hollow", "needs walk-back"),
    ],
)
def test_the_same_weights_have_one_verdict_or_none(
    name: str, expected: str, folder: Path, networks: dict[str, nn.Module]
) -> None:
    """Under four names, with a control as a file, as a number and as a network."""
    model = networks[name]
    controls = (str(folder / "frozen_bp_s1.pt"), score_of(networks["control"]))
    words = []
    for file in NAMES:
        torch.save({"state_dict": model.state_dict()}, folder / file)
        for control in controls:
            made = audit(folder / file, data="data.npz", frozen=control, base=folder)
            words.append(word_of(made))
    words.append(word_of(diagnose(model, X, Y, control=networks["control"])))
    assert set(words) <= {expected, "incomplete"} and expected in words, words


@pytest.mark.parametrize("above", [-0.02, 0.0, 0.02])
def test_beside_a_number_that_the_noise_reaches_no_result_is_trustworthy(
    above: float, networks: dict[str, nn.Module]
) -> None:
    model = networks["deep"]
    made = diagnose(model, X, Y, control=score_of(model) - above)
    assert made.margin_interval is not None and 0 in made.margin_interval
    assert word_of(made) != "trustworthy"


def test_a_number_hides_what_is_wrong_with_a_control_so_depth_is_measured_too(
    networks: dict[str, nn.Module],
) -> None:
    """Blocks that learnt nothing pass (d) beside the accuracy of a control that is too weak."""
    model = networks["hollow"]
    made = diagnose(model, X, Y, control=score_of(model) - 0.1)
    assert made.finding("d").passed and "e" in made.fired
    assert diagnose(networks["deep"], X, Y, control=networks["control"]).depth is None


def test_only_its_config_makes_a_network_its_own_bp_twin(
    folder: Path, networks: dict[str, nn.Module]
) -> None:
    """Where its own margin fails, a BP network would show that the task needs no depth."""
    model = copy.deepcopy(networks["deep"])
    auditor = Auditor(Setup(data="data.npz", base=folder))
    better = score_of(model) + 0.06
    made = []
    bp = {"method": "bp", "seed": 1}
    for config in ({}, {**bp, "frozen": True}, bp):
        torch.save({"state_dict": model.state_dict(), "config": config}, folder / "bp_s1.pt")
        made.append(
            auditor.report(
                folder / "bp_s1.pt", diagnostics=default_diagnostics(False), control=better
            )
        )
    by_name, frozen, by_config = made
    assert by_name.method_name == by_config.method_name == "bp"
    assert by_name.twin is None and "d" in by_name.fired
    assert frozen.twin is None and "d" in frozen.fired
    assert by_config.twin is not None and by_config.twin.is_itself
    assert any("its own BP twin" in remark for remark in by_config.remarks)
