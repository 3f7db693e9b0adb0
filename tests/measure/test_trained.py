"""Whether weights tell that a block was trained: shipped networks, and all kinds of drawing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import Chain, Residual, fitted, rings, seeded
from torch import nn

from pytest_fadiag.load.network import ResidualMLP
from pytest_fadiag.measure.stream.find import find_stream
from pytest_fadiag.measure.trained import BlockWeights, fit_each_other, shows_order

SHIPPED = sorted((Path(__file__).parents[2] / "fixtures" / "checkpoints").glob("*.pt"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_blocks_show_order_where_they_were_trained(path: Any) -> None:
    tensors = torch.load(path, weights_only=True)["state_dict"]
    for block in range(4):
        matrices = [tensors[f"blocks.{block}.{name}.weight"].numpy() for name in ("fc1", "fc2")]
        told = any(map(shows_order, matrices))
        assert told == (not path.stem.startswith("frozen"))


def smoothed(matrix: Any) -> Any:
    """Each row low-pass, as by an initialiser that draws smooth rows."""
    return sum(np.roll(matrix, shift, 1) for shift in range(5))


INITIALISERS: dict[str, Any] = {
    "uniform": lambda rng, shape: rng.uniform(-1, 1, shape),
    "normal": lambda rng, shape: rng.normal(size=shape),
    "heavy tails": lambda rng, shape: rng.standard_t(4, shape),
    "sparse": lambda rng, shape: rng.normal(size=shape) * (rng.random(shape) < 0.1),
    "rows of many sizes": lambda rng, shape: (
        rng.normal(size=shape) * rng.lognormal(0, 1, (shape[0], 1))
    ),
    "columns of many sizes": lambda rng, shape: (
        rng.normal(size=shape) * rng.lognormal(0, 1, shape[1])
    ),
    "orthogonal": lambda rng, shape: np.linalg.qr(rng.normal(size=shape[::-1]))[0].T,
    "smooth rows": lambda rng, shape: smoothed(rng.normal(size=shape)),
    "smooth columns": lambda rng, shape: smoothed(rng.normal(size=shape[::-1])).T,
    "repeated rows": lambda rng, shape: np.repeat(rng.normal(size=(shape[0] // 4, shape[1])), 4, 0),
    "repeated columns": lambda rng, shape: np.repeat(rng.normal(size=(shape[0], 40)), 4, 1),
    "one number": lambda rng, shape: np.full(shape, 0.1),
    "zeros": lambda rng, shape: np.zeros(shape),
}


@pytest.mark.parametrize("name", INITIALISERS)
def test_no_independent_drawing_shows_order(name: str) -> None:
    for seed in range(5):
        matrix = INITIALISERS[name](np.random.default_rng(seed), (40, 160))
        assert not shows_order(matrix.astype(np.float32))


@pytest.mark.parametrize("shape", [(40, 160), (160, 40), (40, 2_000), (300, 1_200)])
def test_a_direction_that_training_adds_is_order(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=shape)
    left, right = rng.normal(size=(shape[0], 1)), rng.normal(size=shape[1])
    largest = shape[0] ** 0.5 + shape[1] ** 0.5  # of the noise alone
    added = left * right / np.linalg.norm(left) / np.linalg.norm(right)
    assert shows_order((noise + 1.5 * largest * added).astype(np.float32))
    assert not shows_order((noise + 0.1 * largest * added).astype(np.float32))


@pytest.mark.parametrize("name", INITIALISERS)
def test_matrices_that_are_drawn_apart_do_not_fit_each_other(name: str) -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        written, read = (INITIALISERS[name](rng, (16, 64)) for _ in range(2))
        assert not fit_each_other(written, read)


def test_one_order_of_units_in_both_matrices_is_no_fit() -> None:
    rng = np.random.default_rng(2)
    fits = 0
    for _ in range(400):
        written, read = (smoothed(rng.normal(size=(24, 32)).T).T for _ in range(2))
        fits += fit_each_other(written, read)
    assert fits <= 1


def test_what_writes_units_and_what_reads_them_fit_each_other_after_training() -> None:
    rng = np.random.default_rng(3)
    written = rng.normal(size=(16, 40))
    read = written @ rng.normal(size=(40, 24)) + rng.normal(size=(16, 24))
    assert fit_each_other(written, read)
    assert not fit_each_other(written, read[rng.permutation(16)])
    assert not fit_each_other(written, read[:12]), "units that are not the same"


def test_two_pairs_of_neighbours_tell_of_two_blocks_and_one_pair_of_none() -> None:
    model: Any = seeded(
        lambda: Chain(nn.Linear(20, 16), [plain_layer() for _ in range(4)], nn.Linear(16, 4))
    )
    assert trained_blocks(model) == ()
    for block in (0, 2):
        first, second = (model.blocks[index][0].weight for index in (block, block + 1))
        with torch.no_grad():
            second.copy_(first.T + 0.3 * second)
        assert trained_blocks(model) == ((1, 3) if block else ())


def test_copies_of_one_drawing_do_not_tell() -> None:
    layers = [plain_layer() for _ in range(4)]
    model: Any = seeded(lambda: Chain(nn.Linear(20, 16), layers, nn.Linear(16, 4)))
    drawn = torch.rand(16, 16, generator=torch.Generator().manual_seed(0)) - 0.5
    for block in model.blocks:
        with torch.no_grad():
            block[0].weight.copy_(drawn + drawn.T)
    assert trained_blocks(model) == ()


def plain_layer() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 16), nn.Tanh())


def trained_blocks(model: nn.Module) -> tuple[int, ...]:
    return BlockWeights(model.eval(), find_stream(model.eval(), rings(8)[0])).trained()


def with_normals(blocks: int = 4) -> ResidualMLP:
    """Linear layers with an initialiser that their own does not bound."""
    model = ResidualMLP(20, 24, blocks, 4)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.2)
            nn.init.zeros_(module.bias)
    return model


def test_norm_scales_tell_of_blocks_and_of_frozen_ones_nothing_does() -> None:
    model = seeded(with_normals)
    assert trained_blocks(model) == ()
    model.blocks.requires_grad_(False)
    fitted(model, *rings(1_280), 30)
    assert trained_blocks(model) == ()
    model.blocks[1:].requires_grad_(True)
    fitted(model, *rings(1_280), 3)
    assert trained_blocks(model) == (1, 2), "half of the blocks are enough"


def test_weights_and_biases_that_were_drawn_otherwise_are_no_sign() -> None:
    model: Any = seeded(
        lambda: Chain(
            nn.Linear(20, 8),
            [Residual(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 8)) for _ in range(2)],
            nn.Linear(8, 4),
        )
    )
    for parameter in model.blocks.parameters():
        nn.init.normal_(parameter)
    assert trained_blocks(model) == ()


def test_without_norms_the_order_of_matrices_tells() -> None:
    def plain() -> Chain:
        layers = ((nn.Linear(24, 96), nn.GELU(), nn.Linear(96, 24)) for _ in range(2))
        return Chain(nn.Linear(20, 24), [Residual(*parts) for parts in layers], nn.Linear(24, 4))

    model = seeded(plain)
    assert trained_blocks(model) == ()
    fitted(model, *rings(1_280), 300)
    assert trained_blocks(model) == (0,)


def test_tables_and_what_a_module_makes_without_chance_are_not_looked_at() -> None:
    generator = torch.Generator().manual_seed(0)
    columns = torch.randn(24, 2, generator=generator)
    places = columns @ columns.T  # of low rank, as tables of positions are

    class Fixed(nn.Linear):
        def reset_parameters(self) -> None:
            with torch.no_grad():
                self.weight.copy_(places + places[0])
                nn.init.zeros_(self.bias)

    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(places.clone())
            self.linear = nn.Linear(24, 24)

        def forward(self, h: torch.Tensor) -> torch.Tensor:
            return h + self.linear(h @ self.weight).relu()

    def model(block: Any) -> Any:
        return seeded(lambda: Chain(nn.Linear(20, 24), [block(), block()], nn.Linear(24, 4)))

    assert shows_order(places.numpy())
    assert trained_blocks(model(lambda: Residual(Fixed(24, 24), nn.ReLU()))) == ()
    assert trained_blocks(model(Table)) == ()
