"""Blocks that were never trained are told from trained ones, whatever the embedding learnt to put through them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support import Residual
from torch import Tensor, nn
from torch.nn import functional as F

from pytest_fadiag.measure.as_initialised import as_initialised
from pytest_fadiag.measure.stream.find import find_stream

CLASSES = 3


class Heads(nn.Module):
    """Self-attention as a layer of one input."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, h: Tensor) -> Tensor:
        q, k, v = self.qkv(h).chunk(3, -1)
        return self.out(F.scaled_dot_product_attention(q, k, v))  # type: ignore[no-any-return]


class Mean(nn.Module):
    """The mean over tokens or over a map."""

    def forward(self, h: Tensor) -> Tensor:
        return h.mean(1) if h.ndim == 3 else h.mean((2, 3))


def mlp() -> nn.Sequential:
    blocks = [Residual(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in range(3)]
    return nn.Sequential(nn.Linear(12, 16), *blocks, nn.LayerNorm(16), nn.Linear(16, CLASSES))


def attention() -> nn.Sequential:
    blocks = [Residual(nn.LayerNorm(16), Heads(16)) for _ in range(3)]
    return nn.Sequential(nn.Unflatten(1, (4, 3)), nn.Linear(3, 16), *blocks, nn.LayerNorm(16), Mean(), nn.Linear(16, CLASSES))


def convolutions() -> nn.Sequential:
    blocks = [Residual(nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(3)]
    return nn.Sequential(nn.Unflatten(1, (1, 3, 4)), nn.Conv2d(1, 8, 3, padding=1), *blocks, Mean(), nn.Linear(8, CLASSES))


def trained(make: Callable[[], nn.Sequential], seed: int, still: set[int], steps: int = 60) -> tuple[nn.Module, Tensor]:
    """A network trained by BP, some of whose blocks stay as they began."""
    torch.manual_seed(seed)
    net = make().train()
    blocks = [module for module in net if isinstance(module, Residual)]
    for block in still:
        blocks[block].requires_grad_(False)
    x = torch.randn(256, 12)
    y = (x[:, :4].prod(1).sign() + (x[:, 4] > 0)).long().clamp(0, CLASSES - 1)
    optimiser = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=3e-3)
    for _ in range(steps):
        optimiser.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimiser.step()
    return net.eval(), x[:8]


def found(net: nn.Module, x: Tensor) -> tuple[int, ...]:
    return as_initialised(net, find_stream(net, x, None))


@pytest.mark.parametrize("make", [mlp, attention, convolutions])
@pytest.mark.parametrize("still", [set(), {0, 1, 2}, {1, 2}])
def test_the_blocks_that_did_not_learn_are_told(make: Callable[[], nn.Sequential], still: set[int]) -> None:
    for seed in range(2):
        assert found(*trained(make, seed, still)) == tuple(sorted(still))


def test_a_new_network_is_as_initialised_also_in_half_precision() -> None:
    for seed in range(20):
        torch.manual_seed(seed)
        net = mlp().half().float()
        assert found(net, torch.randn(8, 12)) == (0, 1, 2)


def test_an_initialisation_of_the_authors_own_is_not_claimed_to_be_known() -> None:
    net = mlp()
    for block in net[1:4]:
        nn.init.trunc_normal_(block.f[0].weight, std=0.02)  # type: ignore[index, union-attr]
    assert found(net, torch.randn(8, 12)) == ()


class Normal(nn.Linear):
    """A layer that begins with normal weights, which have no bounds."""

    def reset_parameters(self) -> None:
        nn.init.kaiming_normal_(self.weight, nonlinearity="linear")
        if self.bias is not None:
            nn.init.zeros_(self.bias)


def normal(*, bias: bool) -> nn.Sequential:
    blocks = [Residual(Normal(16, 32, bias=bias), nn.GELU(), Normal(32, 16, bias=bias)) for _ in range(3)]
    return nn.Sequential(nn.Linear(12, 16), *blocks, nn.Linear(16, CLASSES))


def test_trained_weights_that_are_still_normal_are_not_taken_for_new_ones() -> None:
    torch.manual_seed(0)
    net = normal(bias=False)
    with torch.no_grad():
        for block in net[1:4]:
            weight = block.f[0].weight  # type: ignore[index, union-attr]
            step = torch.outer(torch.randn(32), torch.randn(16))  # as a gradient: of low rank, and it moves every entry
            weight.add_(step, alpha=0.2 * float(weight.norm() / step.norm()))
    assert found(net, torch.randn(8, 12)) == ()


def test_normal_weights_beside_biases_that_never_moved_are_as_initialised() -> None:
    torch.manual_seed(0)
    net = normal(bias=True)
    assert found(net, torch.randn(8, 12)) == (0, 1, 2)
    with torch.no_grad():
        net[2].f[0].bias.add_(1e-4)  # type: ignore[index, union-attr]
    assert found(net, torch.randn(8, 12)) == (0, 2)


def test_what_is_drawn_by_its_own_mean_and_spread_tells_nothing() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(16, 16))

        def forward(self, h: Tensor) -> Any:
            return h + h @ self.w

    net = nn.Sequential(nn.Linear(12, 16), Scaled(), Scaled(), nn.Linear(16, CLASSES))
    assert found(net, torch.randn(8, 12)) == ()


def test_the_network_and_the_random_state_are_left() -> None:
    net = mlp()
    before, state = [p.clone() for p in net.parameters()], torch.random.get_rng_state()
    x = torch.zeros(8, 12).uniform_(generator=torch.Generator().manual_seed(0))
    found(net, x)
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), before, strict=True))
    assert torch.equal(torch.random.get_rng_state(), state)
