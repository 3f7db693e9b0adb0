"""A measurement leaves the caller's world as it was found, and importing the package costs nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support import clustered, in_batches
from torch import nn

import pytest_fadiag
from pytest_fadiag import AuditError, ResidualMLP, measure

PACKAGE = Path(pytest_fadiag.__file__).parent


@pytest.mark.parametrize("fails", [False, True])
def test_everything_is_left_as_it_was(fails: bool, trained_network: Callable[[], ResidualMLP]) -> None:
    x, y = clustered(300)
    model = trained_network().train()
    model.blocks[1].eval()
    model.embed.weight.requires_grad_(False)
    model(x).sum().backward()
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    gradients = {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}
    modes = [module.training for module in model.modules()]
    wanted = [parameter.requires_grad for parameter in model.parameters()]
    random, threads = torch.get_rng_state(), torch.get_num_threads()
    with torch.no_grad():
        if fails:
            with pytest.raises(AuditError):
                measure(model, [(x[:, :3], y)])
        else:
            measure(model, in_batches(x, y))
        assert not torch.is_grad_enabled()
    assert [module.training for module in model.modules()] == modes
    assert [parameter.requires_grad for parameter in model.parameters()] == wanted
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.get_num_threads() == threads
    assert torch.get_default_dtype() == torch.float32
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert not x.requires_grad
    for name, value in model.state_dict().items():
        assert torch.equal(value, weights[name])
    for name, parameter in model.named_parameters():
        before = gradients[name]
        assert (parameter.grad is None) == (before is None)
        assert before is None or torch.equal(parameter.grad, before)


def test_a_network_that_draws_random_numbers_does_not_move_the_callers_stream() -> None:
    class Noisy(ResidualMLP):
        def forward(self, x: torch.Tensor, return_hidden: bool = False) -> torch.Tensor:  # type: ignore[override]
            return super().forward(x + 0 * torch.randn_like(x), return_hidden)  # type: ignore[return-value]

    x, y = clustered(300)
    model = Noisy(20, 16, 2, 5)
    before = torch.get_rng_state()
    measure(model, in_batches(x, y))
    assert torch.equal(torch.get_rng_state(), before)


def test_train_mode_and_eval_mode_measure_the_same() -> None:
    x, y = clustered(300)
    block = lambda: nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5), nn.BatchNorm1d(16), nn.ReLU())  # noqa: E731
    model = nn.Sequential(nn.Linear(20, 16), block(), block(), block(), nn.Linear(16, 5))
    training = measure(model.train(), in_batches(x, y))
    evaluating = measure(model.eval(), in_batches(x, y))
    assert training == evaluating


def test_it_works_inside_inference_mode(trained_network: Callable[[], ResidualMLP]) -> None:
    x, y = clustered(300)
    model = trained_network()
    outside = measure(model, in_batches(x, y))
    with torch.inference_mode():
        assert measure(model, in_batches(x, y)).bp_grad_norms == outside.bp_grad_norms


def test_judging_a_stored_measurement_imports_no_torch() -> None:
    code = (
        "import sys; from pytest_fadiag import DiagnosticReport as R;"
        "print(R(method_name='m', residual_norms=[1, 2], bp_grad_norms=[1, 1], stability_layer=0, cross_batch_stability=0.0,"
        " headline_acc=0.5).verdict, 'torch' in sys.modules)"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "incomplete: frozen-margin not measured False"


def test_every_public_name_resolves() -> None:
    for name in pytest_fadiag.__all__:
        assert getattr(pytest_fadiag, name) is not None
    assert set(pytest_fadiag.__all__) <= set(dir(pytest_fadiag))
