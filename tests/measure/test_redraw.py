"""Blocks re-initialised, and blocks that are still as an initialisation left them."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from support import (
    Chain,
    Residual,
    changed,
    clustered,
    fitted,
    network,
    seeded,
    trained,
)
from torch import Tensor, nn
from torch.nn.utils import parametrizations, spectral_norm, weight_norm

from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.measure.redraw import with_reinitialised_blocks
from pytest_fadiag.measure.stream.find import find_stream
from pytest_fadiag.measure.stream.sites import Stream
from pytest_fadiag.measure.trained import BlockWeights

D = 16


class Own(nn.Module):
    """A block whose matrix and gain are its own parameters, with no method that draws them."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(D, D) * 0.3 + 0.1)
        self.gain = nn.Parameter(torch.full((D,), 0.5))

    def forward(self, h: Tensor) -> Tensor:
        return h + torch.tanh(h @ self.matrix) * self.gain


class Wanting(Own):
    def reset_parameters(self, scale: float) -> None:
        nn.init.normal_(self.matrix, std=scale)


class Failing(Own):
    def reset_parameters(self) -> None:
        nn.init.zeros_(self.matrix)
        raise RuntimeError("not now")


class Partial(Own):
    def reset_parameters(self) -> None:
        nn.init.constant_(self.gain, 0.5)


class Quiet(Residual):
    """A block that has the last word on its layers."""

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.f[2].weight)  # type: ignore[arg-type]


def chain(*blocks: nn.Module) -> Any:
    return Chain(nn.Linear(20, D), blocks, nn.Linear(D, 5)).eval().requires_grad_(False)


def stream_of(model: nn.Module) -> Stream:
    return find_stream(model.eval(), clustered(16)[0])


def with_new_blocks(model: nn.Module, seed: int = 0) -> Any:
    """The copy with re-initialised blocks, all of which could be."""
    return with_reinitialised_blocks(model, stream_of(model), seed).requires_grad_(False)


def test_blocks_are_what_reset_parameters_draws_and_the_rest_stays() -> None:
    model = trained(30)
    before = copy.deepcopy(model.state_dict())
    other = with_new_blocks(model)
    for name, value in other.state_dict().items():
        assert torch.equal(value, before[name]) is not name.startswith("blocks.")
        assert torch.equal(model.state_dict()[name], before[name])
    for block in other.blocks:  # nn.Linear draws from U(-1/√n, 1/√n), a norm begins with 1 and 0
        bound = block.fc1.in_features**-0.5
        assert 0.9 * bound < float(block.fc1.weight.abs().max()) <= bound
        assert torch.equal(block.ln.weight, torch.ones(D)) and not block.ln.bias.any()


@pytest.mark.parametrize("kind", [Own, Wanting, Failing, Partial])
def test_parameters_that_no_method_draws_keep_their_mean_and_spread(kind: type[Own]) -> None:
    model = chain(kind(), kind())
    changed(model, lambda net: net.blocks[0].matrix.copy_(torch.randn(D, D) * 3 + 40))
    new, old = with_new_blocks(model).blocks[0], model.blocks[0]
    assert not torch.equal(new.matrix, old.matrix)
    assert float(new.matrix.mean()) == pytest.approx(float(old.matrix.mean()), abs=1)
    assert float(new.matrix.std()) == pytest.approx(float(old.matrix.std()), rel=0.3)
    assert torch.equal(new.gain, old.gain), "a constant has no spread"


def test_a_block_has_the_last_word_and_blocks_in_a_plain_list_count() -> None:
    model = chain(*(Quiet(nn.Linear(D, D), nn.ReLU(), nn.Linear(D, D)) for _ in range(2)))
    new = with_new_blocks(model).blocks[0].f
    assert not new[2].weight.any() and not torch.equal(new[0].weight, model.blocks[0].f[0].weight)
    blocks = list(model.blocks)
    del model.blocks
    model.blocks = blocks
    assert not torch.equal(with_new_blocks(model).blocks[0].f[0].weight, blocks[0].f[0].weight)


def test_a_block_whose_values_are_never_finite_is_named() -> None:
    model = chain(Own(), Own())
    stream = stream_of(model)
    nn.init.constant_(model.blocks[1].matrix, float("nan"))
    with pytest.raises(AuditError, match=f"^{stream.blocks[1]} cannot be re-initialised"):
        with_reinitialised_blocks(model, stream, 0)


@pytest.mark.parametrize(
    "wrap",
    [
        *(parametrizations.weight_norm, parametrizations.spectral_norm),
        *(parametrizations.orthogonal, weight_norm, spectral_norm),
    ],
)
def test_a_block_whose_weights_are_computed_from_others_is_named_and_nothing_is_told_of_it(
    wrap: Any,
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # weight_norm of the older kind
        layers = ((wrap(nn.Linear(D, 64)), nn.Tanh(), nn.Linear(64, D)) for _ in range(2))
        model = chain(*(Residual(*own) for own in layers))
    stream = stream_of(model)
    with pytest.raises(AuditError, match=f"^{' and '.join(stream.blocks)} cannot be"):
        with_reinitialised_blocks(model, stream, 0)
    assert BlockWeights(model, stream).as_initialised() == ()


def mlp() -> Chain:
    layers = ((nn.Linear(D, 32), nn.GELU(), nn.Linear(32, D)) for _ in range(3))
    return Chain(nn.Linear(20, D), [Residual(*own) for own in layers], nn.Linear(D, 5))


def convolutions() -> Chain:
    embed = nn.Sequential(nn.Unflatten(1, (1, 4, 5)), nn.Conv2d(1, D, 3, padding=1))
    convolve = ((nn.Conv2d(D, D, 3, padding=1, bias=False), nn.BatchNorm2d(D)) for _ in range(3))
    blocks = [Residual(*own, nn.ReLU()) for own in convolve]
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(D, 5))
    return Chain(embed, blocks, head)


def still(model: nn.Module) -> tuple[int, ...]:
    return BlockWeights(model, stream_of(model)).as_initialised()


@pytest.mark.parametrize("make", [mlp, lambda: network(blocks=3), convolutions])
@pytest.mark.parametrize("untrained", [(), (0, 1, 2), (1, 2)])
def test_the_blocks_that_did_not_learn_are_told(make: Any, untrained: tuple[int, ...]) -> None:
    model = seeded(make)
    for block in untrained:
        model.blocks[block].requires_grad_(False)
    assert still(fitted(model, *clustered(256), 60)) == untrained


def test_a_new_network_is_at_initialisation_also_after_half_precision() -> None:
    for seed in range(20):
        assert still(seeded(mlp, seed).half().float()) == (0, 1, 2)


class Normal(nn.Linear):
    """A layer that begins with normal weights, which have no bounds."""

    def reset_parameters(self) -> None:
        nn.init.kaiming_normal_(self.weight, nonlinearity="linear")
        if self.bias is not None:
            nn.init.zeros_(self.bias)


def normal(*, bias: bool) -> Any:
    return chain(*(Residual(Normal(D, D, bias=bias), nn.GELU()) for _ in range(2)))


def nudged(net: Any) -> None:
    """A step of low rank, as a gradient's, that moves every weight."""
    for block in net.blocks:
        weight, step = block.f[0].weight, torch.outer(torch.randn(D), torch.randn(D))
        weight.add_(step, alpha=0.2 * float(weight.norm() / step.norm()))


def test_what_cannot_be_told_from_an_initialisation_is_not_claimed_to_be_one() -> None:
    def custom(net: Any) -> None:
        for block in net.blocks:
            nn.init.trunc_normal_(block.f[0].weight, std=0.02)

    assert still(changed(mlp(), custom)) == ()  # an initialisation of the authors' own
    assert still(changed(normal(bias=False), nudged)) == still(normal(bias=False)) == ()
    assert still(chain(Own(), Own())) == ()  # drawn by their own mean and spread
    with_bias = normal(bias=True)
    assert still(with_bias) == (0, 1), "biases that never moved tell"
    assert still(changed(with_bias, lambda net: net.blocks[0].f[0].bias.add_(1e-4))) == (1,)
