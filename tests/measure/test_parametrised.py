"""Weights that are computed from others: drawn anew as a new module has them, and told from trained ones."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize
from torch.nn.utils import spectral_norm as hooked_spectral_norm
from torch.nn.utils import weight_norm as hooked_weight_norm

from pytest_fadiag.measure.as_initialised import as_initialised
from pytest_fadiag.measure.reinitialise import reinitialise
from pytest_fadiag.measure.stream.find import find_stream

D, WIDE = 16, 40
Wrap = Callable[[nn.Module], nn.Module]


def orthogonal(kind: str | None, *, trivialised: bool = True) -> Wrap:
    return lambda layer: parametrizations.orthogonal(layer, orthogonal_map=kind, use_trivialization=trivialised)


WEIGHT_NORMS: list[Wrap] = [parametrizations.weight_norm, hooked_weight_norm]
SPECTRAL_NORMS: list[Wrap] = [parametrizations.spectral_norm, hooked_spectral_norm]
ORTHOGONAL = [
    *(orthogonal(kind) for kind in (None, "matrix_exp", "cayley", "householder")),
    *(orthogonal(kind, trivialised=False) for kind in ("matrix_exp", "cayley", "householder")),
]


class Block(nn.Module):
    def __init__(self, wrap: Wrap) -> None:
        super().__init__()
        self.fc1, self.fc2 = wrap(nn.Linear(D, WIDE)), wrap(nn.Linear(WIDE, D))

    def forward(self, h: Tensor) -> Tensor:
        return h + self.fc2(torch.relu(self.fc1(h)))  # type: ignore[no-any-return]


def network(wrap: Wrap, *, trained: bool = True) -> nn.Sequential:
    """Three blocks; trained ones far from how they began, and settled where passes in training mode settle something."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # weight_norm of the older kind
        net = nn.Sequential(nn.Linear(12, D), *(Block(wrap) for _ in range(3)), nn.LayerNorm(D), nn.Linear(D, 3)).train()
    net[1:4].requires_grad_(trained)
    x = torch.randn(256, 12)
    y = (x[:, :4].prod(1).sign() + (x[:, 4] > 0)).long().clamp(0, 2)
    optimiser = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.3)
    for _ in range(15):
        optimiser.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimiser.step()
    return net.eval()


def drawn_weights(net: nn.Sequential) -> list[tuple[Tensor, Tensor]]:
    """What every layer of the blocks computes with before and after they are drawn anew, read from what it answers."""
    layers = [layer for block in net[1:4] for layer in (block.fc1, block.fc2)]  # type: ignore[union-attr]
    before = [matrix(layer) for layer in layers]
    assert reinitialise(net, find_stream(net, torch.randn(8, 12)), seed=3) == []
    return list(zip(before, map(matrix, layers), strict=True))


@torch.no_grad()
def matrix(layer: nn.Module) -> Tensor:
    width = layer.in_features
    return (layer(torch.eye(width)) - layer(torch.zeros(1, width))).T  # type: ignore[no-any-return, operator]


@pytest.mark.parametrize("wrap", WEIGHT_NORMS)
def test_weight_norm_has_the_lengths_of_new_weights(wrap: Wrap) -> None:
    net = network(wrap)
    for parameter in net[1:4].parameters():
        if parameter.ndim == 2 and parameter.shape[1] == 1:
            parameter.data.mul_(50)  # the lengths, as training may leave them
    for before, after in drawn_weights(net):
        bound = after.shape[1] ** -0.5  # nn.Linear draws from U(-1/√n, 1/√n)
        assert 0.9 * bound < float(after.abs().max()) <= bound * 1.0001 < float(before.abs().max())


@pytest.mark.parametrize("wrap", SPECTRAL_NORMS)
def test_spectral_norm_divides_by_the_norm_of_the_new_matrix(wrap: Wrap) -> None:
    for before, after in drawn_weights(network(wrap)):
        assert float(torch.linalg.matrix_norm(after, 2)) == pytest.approx(1, abs=1e-2)
        assert not torch.allclose(before, after, atol=0.05)


@pytest.mark.parametrize("wrap", ORTHOGONAL)
def test_orthogonal_matrices_are_other_orthogonal_matrices(wrap: Wrap) -> None:
    for before, after in drawn_weights(network(wrap)):
        small = after @ after.T if len(after) < after.shape[1] else after.T @ after
        assert torch.allclose(small, torch.eye(D), atol=1e-4)
        assert not torch.allclose(before, after, atol=0.05)


@pytest.mark.parametrize("wrap", [*WEIGHT_NORMS, *SPECTRAL_NORMS, *ORTHOGONAL[:2]])
@pytest.mark.parametrize("trained", [False, True])
def test_blocks_that_did_not_learn_are_told(wrap: Wrap, trained: bool) -> None:
    net = network(wrap, trained=trained)
    assert as_initialised(net, find_stream(net, torch.randn(8, 12))) == (() if trained else (0, 1, 2))


class Doubled(nn.Module):
    """A parametrisation that has no inverse."""

    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


def test_a_parametrisation_without_an_inverse_begins_with_the_weight_itself() -> None:
    def wrap(layer: nn.Module) -> nn.Module:
        parametrize.register_parametrization(layer, "weight", Doubled())
        return layer

    for _, after in drawn_weights(network(wrap)):
        bound = 2 * after.shape[1] ** -0.5
        assert 0.9 * bound < float(after.abs().max()) <= bound * 1.0001


class Own(nn.Module):
    """h + W h of a matrix that no method draws."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(D, D))

    def forward(self, h: Tensor) -> Tensor:
        return h + h @ self.matrix


def test_a_matrix_that_no_method_draws_stays_orthogonal() -> None:
    blocks = [parametrizations.orthogonal(Own(), "matrix") for _ in range(2)]
    net = nn.Sequential(nn.Linear(12, D), *blocks, nn.Linear(D, 3)).eval()
    before = [block.matrix.detach().clone() for block in blocks]
    assert reinitialise(net, find_stream(net, torch.randn(8, 12)), seed=0) == []
    for block, old in zip(blocks, before, strict=True):
        new = block.matrix.detach()
        assert torch.allclose(new @ new.T, torch.eye(D), atol=1e-5)
        assert not torch.allclose(new, old, atol=0.05)
