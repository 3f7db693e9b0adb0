"""The public functions: the network stays as it was, and the report says what was given."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

import pytest_fadiag
from pytest_fadiag import (
    AuditError,
    ResidualMLP,
    bp_grad_norms,
    cross_batch_direction_stability,
    diagnose,
    residual_norms,
)


def data(samples: int = 1300) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(samples, 6, generator=generator)
    return [(x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long())]


@pytest.fixture(scope="module")
def network() -> ResidualMLP:
    torch.manual_seed(0)
    return ResidualMLP(6, 10, 3, 3)


def test_every_public_name_is_there_and_importing_the_package_imports_no_torch() -> None:
    for name in pytest_fadiag.__all__:
        assert getattr(pytest_fadiag, name) is not None
    code = "import pytest_fadiag, sys; print({'torch', 'numpy', 'msgspec'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = pytest_fadiag.nonsense


def test_the_network_is_never_touched(network: ResidualMLP) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.calls, self.seen = copy.deepcopy(network), torch.zeros(()), []
            self.register_buffer("steps", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.steps += 1
            self.seen.append(x)
            return self.net(x)

    model = Counting().train()
    model.net.embed.weight.grad = torch.ones_like(model.net.embed.weight)
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    diagnose(model, data())
    assert model.training and not model.seen and model.net.embed.weight.requires_grad
    assert bool((model.net.embed.weight.grad == 1).all())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())


def test_the_single_quantities_are_those_of_the_report(network: ResidualMLP) -> None:
    report = diagnose(network, data(), frozen_baseline_acc=0.9)
    assert residual_norms(network, data()) == list(report.residual_norms)
    assert bp_grad_norms(network, data()) == list(report.bp_grad_norms)
    assert cross_batch_direction_stability(network, data()) == report.cross_batch_stability


def test_what_runs_follows_from_what_is_given(network: ResidualMLP) -> None:
    def credit(model: nn.Module, x: Tensor, y: Tensor) -> list[Tensor]:
        return [torch.ones(len(x), 10)] * 3

    names = {"control": diagnose(network, data(), frozen_baseline_acc=0.9).diagnostics}
    names["none"] = diagnose(network, data()).diagnostics
    names["credit"] = diagnose(network, data(), frozen_baseline_acc=0.9, credit=credit).diagnostics
    assert "depth-utility" not in names["control"] and "depth-utility" in names["none"]
    assert "credit-alignment" in names["credit"] and "credit-alignment" not in names["none"]


def test_a_given_accuracy_replaces_the_measured_one_and_a_contradiction_is_noted(
    network: ResidualMLP,
) -> None:
    report = diagnose(network, data(), headline_acc=0.99, method_name="dfa", seed=3)
    assert report.headline_acc == 0.99 and report.seed == 3 and "was measured" in report.notes
    for wrong in ({"headline_acc": 34.9}, {"frozen_baseline_acc": 34.9}):
        with pytest.raises(AuditError, match="percentage"):
            diagnose(network, data(), **wrong)
