"""Norms of states by what they are: a vector, tokens by the last dimension, a feature map as a whole; by hand in float64."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable

import pytest
import torch
from support import Residual, clustered, in_batches
from torch import Tensor, nn

from pytest_fadiag import measure
from pytest_fadiag.judge.codec import read
from pytest_fadiag.judge.depth import Depth
from pytest_fadiag.measure.observe import observe

X, Y = clustered(1280)


class Chain(nn.Module):
    """A stream of blocks, whose states can be spelled out."""

    def __init__(self, embed: nn.Module, blocks: list[nn.Module], head: nn.Module) -> None:
        super().__init__()
        self.embed, self.blocks, self.head = embed, nn.ModuleList(blocks), head

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.states(x)[-1])  # type: ignore[no-any-return]

    def states(self, x: Tensor) -> list[Tensor]:
        states = [self.embed(x)]
        for block in self.blocks:
            states.append(block(states[-1]))
        return states


class Mean(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, h: Tensor) -> Tensor:
        return h.mean(self.dim)


class AsTokens(nn.Module):
    """The positions of a feature map as tokens, through a layer and with their own sum."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, h: Tensor) -> Tensor:
        tokens = h.flatten(2).transpose(1, 2)
        return tokens + self.fc(tokens)  # type: ignore[no-any-return]


def sequence() -> Chain:
    blocks: list[nn.Module] = [Residual(nn.Conv1d(6, 6, 3, padding=1), nn.ReLU()) for _ in range(3)]
    return Chain(nn.Sequential(nn.Unflatten(1, (2, 10)), nn.Conv1d(2, 6, 1)), blocks, nn.Sequential(Mean(2), nn.Linear(6, 5)))


def mixer() -> Chain:
    """Tokens, mixed by convolutions of one position as some write it."""
    blocks: list[nn.Module] = [Residual(nn.LayerNorm(6), nn.Conv1d(10, 10, 1), nn.GELU(), nn.Linear(6, 6)) for _ in range(3)]
    return Chain(nn.Sequential(nn.Unflatten(1, (10, 2)), nn.Linear(2, 6)), blocks, nn.Sequential(Mean(1), nn.Linear(6, 5)))


def map_then_tokens() -> Chain:
    convolved = [Residual(nn.Conv2d(6, 6, 3, padding=1), nn.ReLU()) for _ in range(2)]
    blocks: list[nn.Module] = [*convolved, AsTokens(), Residual(nn.LayerNorm(6), nn.Linear(6, 6))]
    embed = nn.Sequential(nn.Unflatten(1, (1, 4, 5)), nn.Conv2d(1, 6, 1))
    return Chain(embed, blocks, nn.Sequential(Mean(1), nn.Linear(6, 5)))


MAP, TOKENS = (1, 2, 3), (2,)
"""Over which dimensions a norm is taken."""
CASES: list[tuple[Callable[[], Chain], list[tuple[int, ...]]]] = [
    (sequence, [(1, 2)] * 4),
    (mixer, [TOKENS] * 4),
    (map_then_tokens, [MAP, MAP, MAP, TOKENS, TOKENS]),
]


def middle(values: Tensor) -> float:
    ordered = values.detach().flatten().sort().values
    return float((ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2)


@pytest.mark.parametrize(("make", "dims"), CASES, ids=[make.__name__ for make, _ in CASES])
def test_norms_are_those_of_the_definition(make: Callable[[], Chain], dims: list[tuple[int, ...]]) -> None:
    torch.manual_seed(0)
    net = make().eval()
    wide = copy.deepcopy(net).double()
    states = wide.states(X.double())
    for state in states:
        state.retain_grad()
    nn.functional.cross_entropy(wide.head(states[-1]), Y, reduction="sum").backward()
    norms = [middle(state.detach().square().sum(own).sqrt()) for state, own in zip(states, dims, strict=True)]
    gradients = [middle(state.grad.square().sum(own).sqrt() / 128) for state, own in zip(states, dims, strict=True)]
    measured = measure(net, in_batches(X, Y))
    assert measured.residual_norms == pytest.approx(norms, rel=1e-4)
    assert measured.bp_grad_norms == pytest.approx(gradients, rel=1e-4)
    assert measured.stream is not None
    sizes = [torch.Size([state.shape[dim] for dim in own]).numel() for state, own in zip(states, dims, strict=True)]
    assert list(measured.stream.sizes) == sizes


def test_what_a_block_changes_is_relative_to_the_whole_map() -> None:
    torch.manual_seed(0)
    net = sequence().eval()
    states = copy.deepcopy(net).double().states(X.double())
    changes = [
        middle((after - before).flatten(1).norm(dim=1) / before.flatten(1).norm(dim=1))
        for before, after in itertools.pairwise(states)
    ]
    depth = read(Depth, observe(net, in_batches(X, Y), ["depth"]).results["depth"], "depth")
    assert depth.change == pytest.approx(changes, rel=1e-4)
