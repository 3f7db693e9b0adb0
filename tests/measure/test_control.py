"""The network to train for a control: random blocks that no training moves, and a rest that it does."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from support import clustered, network, trained
from torch import Tensor, nn

from pytest_fadiag import AuditError, make_control

D = 8


class Block(nn.Module):
    """A convolution behind a normalisation by batch statistics."""

    def __init__(self, affine: bool = True) -> None:
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(D, affine=affine), nn.Conv2d(D, D, 3, padding=1)

    def forward(self, h: Tensor) -> Tensor:
        return self.conv(torch.relu(self.norm(h)))


class Convolutional(nn.Module):
    """A stem with batch statistics of its own, residual blocks, and a head on what is pooled."""

    def __init__(self, *blocks: nn.Module, channels: int = 3) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(channels, D, 3, padding=1), nn.BatchNorm2d(D)
        self.blocks, self.head = nn.ModuleList(blocks), nn.Linear(D, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.stem(x))
        for block in self.blocks:
            h = h + block(h)
        return self.head(h.mean((2, 3)))


class Words(nn.Module):
    """Token ids, one block, a mean."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.block, self.head = nn.Embedding(50, D), nn.Linear(D, D), nn.Linear(D, 5)

    def forward(self, ids: Tensor) -> Tensor:
        h = self.embed(ids)
        return self.head((h + torch.tanh(self.block(h))).mean(1))


def train(model: nn.Module, x: Tensor, y: Tensor, steps: int = 3) -> None:
    """As a training loop does that knows nothing of controls; weight decay moves whatever has a gradient."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.5)
    model.train()
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()


def moved(before: dict[str, Tensor], model: nn.Module) -> set[str]:
    return {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}


def test_the_blocks_are_drawn_anew_and_the_model_stays_what_it_is() -> None:
    model = trained(30)
    before = copy.deepcopy(model.state_dict())
    control = make_control(model, seed=1)
    assert moved(before, model) == set() and all(parameter.requires_grad for parameter in model.parameters())
    changed = moved(before, control)
    assert changed == {name for name in before if name.startswith("blocks.")}
    for name, parameter in control.named_parameters():
        assert parameter.requires_grad is not name.startswith("blocks.")


def test_training_moves_everything_but_the_blocks() -> None:
    control = make_control(network(), seed=1)
    before = copy.deepcopy(control.state_dict())
    train(control, *clustered(64))
    assert moved(before, control) == {name for name in before if not name.startswith("blocks.")}


def test_batch_statistics_of_the_blocks_stay_and_those_of_the_stem_move() -> None:
    model = Convolutional(Block(), Block(affine=False))
    with torch.no_grad():
        for block in model.blocks:
            block.norm.running_mean += 3.0  # of an earlier training
    control = make_control(model, seed=1)
    assert not control.blocks[0].norm.running_mean.any()
    before = copy.deepcopy(control.state_dict())
    train(control, torch.randn(16, 3, 8, 8) + 1, torch.arange(16) % 5)
    still = {name for name in before if name.startswith("blocks.")}
    assert moved(before, control) == set(before) - still
    assert control.norm.training and control.training


def test_a_frozen_block_computes_in_training_what_it_computes_afterwards() -> None:
    control, x = make_control(Convolutional(Block()), seed=1), torch.randn(16, D, 8, 8)
    assert torch.equal(control.train().blocks[0](x), control.eval().blocks[0](x))


def test_the_draw_is_torchs_own_as_at_an_initialisation_or_that_of_a_seed() -> None:
    def weights(**options: Any) -> Tensor:
        return make_control(network(), **options).blocks[0].fc1.weight

    torch.manual_seed(5)
    first, second = weights(), weights()
    torch.manual_seed(5)
    assert torch.equal(weights(), first) and not torch.equal(first, second)
    assert torch.equal(weights(seed=5), weights(seed=5)) and not torch.equal(weights(seed=5), weights(seed=6))


def test_from_scratch_the_rest_is_drawn_too_and_stays_trainable() -> None:
    model = trained(30)
    before = copy.deepcopy(model.state_dict())
    control = make_control(model, seed=1, from_scratch=True)
    assert moved(before, control) == set(before)
    assert torch.equal(control.out_ln.weight, torch.ones_like(control.out_ln.weight))
    assert control.embed.weight.requires_grad and not control.blocks[3].fc2.bias.requires_grad


@pytest.mark.parametrize("seed", [None, 0, 42])
def test_no_two_layers_are_drawn_from_the_same_random_numbers(seed: int | None) -> None:
    """Layers of other sizes scale the same numbers, so that their correlation would be 1; that of 64 others is 0.125 or so."""
    control = make_control(network(), seed=seed, from_scratch=True)
    layers = [parameter.detach().flatten()[:64] for parameter in control.parameters() if parameter.ndim > 1]
    alike = torch.corrcoef(torch.stack(layers)).fill_diagonal_(0)
    assert len(layers) == 10 and float(alike.abs().max()) < 0.6
    if seed is not None:
        again = make_control(network(seed=3), seed=seed, from_scratch=True)
        assert all(map(torch.equal, control.parameters(), again.parameters()))


@pytest.mark.parametrize(
    "model",
    [network(), Convolutional(Block()), Convolutional(Block(), channels=1), Words()],
    ids=["mlp", "rgb", "grey", "words"],
)
def test_inputs_are_guessed_from_the_first_layer(model: nn.Module) -> None:
    frozen = [name for name, parameter in make_control(model).named_parameters() if not parameter.requires_grad]
    assert frozen and all(name.startswith("block") for name in frozen)


class Odd(nn.Module):
    """Takes images of one size alone, which its first layer does not tell."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.block, self.head = nn.Conv2d(1, 4, 3), nn.Linear(4 * 15 * 15, 4 * 15 * 15), nn.Linear(4 * 15 * 15, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x).flatten(1)
        return self.head(h + torch.tanh(self.block(h)))


def test_inputs_that_cannot_be_guessed_are_asked_for() -> None:
    with pytest.raises(AuditError, match=r"runs on no inputs .*make_control\(model, inputs=x\)"):
        make_control(Odd())
    control = make_control(Odd(), inputs=torch.randn(40, 1, 17, 17))
    assert not control.block.weight.requires_grad and control.stem.weight.requires_grad


def test_the_stream_may_be_named() -> None:
    control = make_control(network(), "blocks.* -> out_ln")
    assert not any(parameter.requires_grad for parameter in control.blocks.parameters())
    with pytest.raises(AuditError, match=r"layers\.\*"):
        make_control(network(), "layers.* -> out_ln")


class Tied(nn.Module):
    """Its block reads a matrix that its head reads too."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.matrix = nn.Linear(20, 5), nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        return self.matrix(h + torch.tanh(self.matrix(h)))


def test_a_block_that_cannot_be_drawn_is_an_error_that_names_it() -> None:
    with pytest.raises(AuditError, match="cannot be drawn anew: some of its parameters are read elsewhere too"):
        make_control(Tied())


def test_a_control_can_be_copied_pickled_and_loaded_into_the_network_that_it_is_of() -> None:
    control = make_control(Convolutional(Block()), seed=1)
    again = pickle.loads(pickle.dumps(control))
    assert moved(control.state_dict(), again) == set()
    assert not copy.deepcopy(control).train().blocks[0](torch.randn(4, D, 8, 8)).isnan().any()
    Convolutional(Block()).load_state_dict(control.state_dict())


def test_half_precision_stays_half_precision() -> None:
    control = make_control(network().to(torch.bfloat16), seed=1)
    assert {parameter.dtype for parameter in control.parameters()} == {torch.bfloat16}
