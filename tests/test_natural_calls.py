"""Calls that a newcomer would try first."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pytest_fadiag import AuditError, ResidualMLP, diagnose, make_control
from pytest_fadiag.load.checkpoint import checkpoint_of, load_checkpoint
from pytest_fadiag.load.network import build_network
from pytest_fadiag.load.specs import call_factory
from pytest_fadiag.measure.task import Task


@pytest.fixture(scope="module")
def network() -> nn.Module:
    torch.manual_seed(0)
    return ResidualMLP(12, 8, 2, 3)


@pytest.fixture(scope="module")
def data() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(1_280, 12), torch.arange(1_280) % 3


def test_x_and_y_are_taken_as_they_are(network: nn.Module, data: tuple[Tensor, Tensor]) -> None:
    x, y = data
    direct = diagnose(network, x, y, progress=False)
    assert direct.residual_norms == diagnose(network, [data], progress=False).residual_norms
    arrays = diagnose(network, x.numpy(), y.numpy(), progress=False)
    assert arrays.residual_norms == direct.residual_norms


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_a_loss_of_torch_is_known_however_it_reduces(reduction: str) -> None:
    outputs, y = torch.randn(4, 3, dtype=torch.float64), torch.tensor([0, 2, 1, 0])
    for module, name in ((nn.CrossEntropyLoss, "ce"), (nn.MSELoss, "mse")):
        assert Task(loss=module(reduction=reduction)).key == Task(loss=module).key == name
    smoothed = Task(loss=nn.CrossEntropyLoss(label_smoothing=0.1, reduction=reduction))
    log_p = outputs.log_softmax(1)
    expected = -0.9 * log_p[torch.arange(4), y] - 0.1 * log_p.mean(1)
    assert smoothed.name == "CrossEntropyLoss"
    torch.testing.assert_close(smoothed.key(outputs, y), expected)  # type: ignore[operator]


def test_a_control_may_be_the_path_of_its_checkpoint(
    network: nn.Module, data: tuple[Tensor, Tensor], tmp_path: Path
) -> None:
    control = make_control(network)
    torch.save({"state_dict": control.state_dict()}, tmp_path / "frozen_s0.pt")
    by_path = diagnose(network, *data, control=tmp_path / "frozen_s0.pt", progress=False)
    by_network = diagnose(network, *data, control=control, progress=False)
    assert by_path.frozen_baseline_acc == by_network.frozen_baseline_acc is not None


def test_a_state_key_names_the_tensors_and_a_wrong_one_is_answered_by_those_that_exist(
    network: nn.Module, tmp_path: Path
) -> None:
    path = tmp_path / "agent_s1.pt"
    torch.save({"agents": {"policy": network.state_dict(), "value": network.state_dict()}}, path)
    loaded = load_checkpoint(path, state_key="agents.policy")
    assert loaded.state_dict.keys() == network.state_dict().keys()
    with pytest.raises(AuditError, match=r"--fa-state-key=agents\.policy \(or agents\.value\)"):
        load_checkpoint(path)
    with pytest.raises(AuditError, match=r"no tensors at 'agent'.*agents\.policy, agents\.value"):
        load_checkpoint(path, state_key="agent")


FACTORIES = """
from pytest_fadiag import ResidualMLP

def by_shapes(state_dict):
    return ResidualMLP(*reversed(state_dict["embed.weight"].shape), blocks=2, classes=3)

def by_config(c):
    return ResidualMLP(c["inputs"], 8, 2, 3)

def by_others(batch_size, width=8):
    raise RuntimeError("must not be called")
"""


def test_a_factory_may_take_the_tensors_and_is_not_called_with_what_it_does_not_mean(
    network: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "factories_of_a_newcomer.py").write_text(FACTORIES)
    monkeypatch.syspath_prepend(tmp_path)
    content = {"state_dict": network.state_dict(), "config": {"inputs": 12}}
    checkpoint = checkpoint_of(content, Path("net_s1.pt"))
    for name in ("by_shapes", "by_config"):
        built = build_network(checkpoint, f"factories_of_a_newcomer:{name}")
        torch.testing.assert_close(built.state_dict(), network.state_dict())
    with pytest.raises(AuditError, match=r"takes batch_size, .* write a factory of one parameter"):
        call_factory("factories_of_a_newcomer:by_others", "network factory", {"inputs": 12})


def test_feedback_that_the_checkpoint_lacks_stays_as_the_factory_makes_it(
    network: nn.Module,
) -> None:
    with_feedback: Any = copy.deepcopy(network)
    with_feedback.register_buffer("feedback", torch.ones(3, 8))
    checkpoint = checkpoint_of(network.state_dict(), Path("bp_s1.pt"))
    assert build_network(checkpoint, with_feedback).feedback.sum() == 24


def test_a_network_may_call_its_rule_train(data: tuple[Tensor, Tensor]) -> None:
    """Forward-forward's takes a positive and a negative batch; nothing here calls it."""

    class Net(ResidualMLP):
        def train(self, x_pos: Tensor, x_neg: Tensor) -> None:  # type: ignore[override]
            raise NotImplementedError

    assert len(diagnose(Net(12, 8, 2, 3), *data, progress=False).residual_norms) == 3


def test_what_cannot_be_copied_is_named(network: nn.Module, data: tuple[Tensor, Tensor]) -> None:
    holder: Any = copy.deepcopy(network)
    holder.blocks[1].stream = (number for number in range(3))
    with pytest.raises(AuditError, match=r"copied: 'stream' of blocks\.1 cannot"):
        diagnose(holder, *data, progress=False)


def test_a_control_is_made_of_a_network_that_a_function_calls(
    data: tuple[Tensor, Tensor],
) -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = ResidualMLP(12, 8, 2, 3)

        def forward(self, x: Tensor, scale: float) -> tuple[Tensor, float]:
            return self.inner(x) * scale, scale

    model = Pair()
    control = make_control(model, inputs=data, forward=lambda model, x, y: model(x, 2.0)[0])
    frozen = [name for name, p in control.named_parameters() if not p.requires_grad]
    assert frozen and all(name.startswith("inner.blocks.") for name in frozen)
