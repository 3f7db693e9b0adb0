"""Blocks drawn anew: what is learnt in them is gone, what is outside stays, and what cannot be drawn is named."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from support import clustered, network, trained
from torch import Tensor, nn
from torch.nn import functional as F

from pytest_fadiag.measure.reinitialise import reinitialise
from pytest_fadiag.measure.stream.find import find_stream
from pytest_fadiag.measure.stream.sites import Stream

D = 8


class Net(nn.Module):
    """h + block(h), three times, between an embedding and a head."""

    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.embed, self.blocks, self.head = nn.Linear(20, D), nn.ModuleList(blocks), nn.Linear(D, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for block in self.blocks:
            h = h + block(h)
        return self.head(h)


class Own(nn.Module):
    """A block whose matrix and gain are its own parameters, with no method that draws them."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(D, D) * 0.3 + 0.1)
        self.gain = nn.Parameter(torch.full((D,), 0.5))

    def forward(self, h: Tensor) -> Tensor:
        return torch.tanh(h @ self.matrix) * self.gain


class Experts(nn.Module):
    """Sends each sample to one of sixteen layers, more than there are test samples."""

    def __init__(self) -> None:
        super().__init__()
        self.router, self.experts = nn.Linear(D, 16), nn.ModuleList(nn.Linear(D, D) for _ in range(16))

    def forward(self, h: Tensor) -> Tensor:
        chosen, result = self.router(h).argmax(1), torch.zeros_like(h)
        for number, expert in enumerate(self.experts):
            if (chosen == number).any():
                result[chosen == number] = expert(h[chosen == number])
        return result


def stream_of(model: nn.Module) -> Stream:
    """The stream on the usual data."""
    return find_stream(model.eval(), clustered(16)[0])


def values(model: nn.Module, prefix: str) -> dict[str, Tensor]:
    """A copy of what the parameters and buffers of some modules are."""
    return {name: value.clone() for name, value in model.state_dict().items() if name.startswith(prefix)}


def test_blocks_are_what_reset_parameters_draws_and_the_rest_stays() -> None:
    model = trained(30)
    stream, before = stream_of(model), copy.deepcopy(model.state_dict())
    assert reinitialise(model, stream, seed=3) == []
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]) is not name.startswith("blocks.")
    for block in model.blocks:  # nn.Linear draws from U(-1/√n, 1/√n), LayerNorm begins with ones and zeros
        bound = block.fc1.in_features**-0.5
        assert 0.9 * bound < float(block.fc1.weight.detach().abs().max()) <= bound
        assert torch.equal(block.ln.weight, torch.ones_like(block.ln.weight))
        assert not block.ln.bias.any()


def test_a_seed_gives_its_draw_and_the_global_random_state_stays() -> None:
    drawn = []
    for seed in (0, 0, 1):
        model = network()
        stream = stream_of(model)
        torch.manual_seed(77)
        expected = torch.random.get_rng_state()
        reinitialise(model, stream, seed)
        assert torch.equal(torch.random.get_rng_state(), expected)
        drawn.append(model.blocks[0].fc1.weight.detach())
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_own_parameters_keep_their_mean_and_spread() -> None:
    model = Net(Own(), Own(), Own())
    with torch.no_grad():
        model.blocks[0].matrix.copy_(torch.randn(D, D) * 3 + 40)
    before = copy.deepcopy(model)
    assert reinitialise(model, stream_of(model), 0) == []
    matrix, trained_matrix = model.blocks[0].matrix.detach(), before.blocks[0].matrix.detach()
    assert not torch.equal(matrix, trained_matrix)
    assert float(matrix.mean()) == pytest.approx(float(trained_matrix.mean()), abs=3 * 3 / D)
    assert float(matrix.std()) == pytest.approx(float(trained_matrix.std()), rel=0.3)
    assert torch.equal(model.blocks[0].gain, before.blocks[0].gain)  # a constant has no spread


def test_experts_that_no_test_sample_was_sent_to_are_drawn_too() -> None:
    model = Net(Experts(), Experts())
    stream, before = stream_of(model), values(model, "")
    assert reinitialise(model, stream, seed=0) == []
    assert {name for name, value in values(model, "").items() if torch.equal(value, before[name])} == {
        *values(model, "embed"),
        *values(model, "head"),
    }
    assert all("embed.weight" not in block for block in stream.parameters), "whose shape alone the first block takes"


def test_batch_statistics_are_those_of_a_new_module() -> None:
    def block(affine: bool) -> nn.Module:
        return nn.Sequential(nn.Linear(D, D), nn.BatchNorm1d(D, affine=affine), nn.ReLU())

    model = Net(block(True), block(False), block(True)).train()
    for _ in range(5):
        model(clustered(64)[0])
    reinitialise(model, stream_of(model), 0)
    for own in model.blocks:
        assert not own[1].running_mean.any()
        assert torch.equal(own[1].running_var, torch.ones(D))
        assert int(own[1].num_batches_tracked) == 0


def test_a_weight_that_is_computed_from_others_is_drawn_by_those() -> None:
    """A reparametrised layer's own method draws a weight that the next pass throws away."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        old = nn.utils.weight_norm(nn.Linear(D, D))
    new = nn.utils.parametrizations.weight_norm(nn.Linear(D, D))
    model = Net(*(nn.Sequential(layer, nn.Tanh()) for layer in (old, new, nn.Linear(D, D))))
    before = values(model, "blocks.")
    assert reinitialise(model, stream_of(model), 0) == []
    matrices = [name for name, value in before.items() if value.ndim == 2 and min(value.shape) > 1 and "weight_g" not in name]
    assert len(matrices) == 3
    for name in matrices:
        assert not torch.equal(model.state_dict()[name], before[name])


def test_a_block_has_the_last_word_on_its_layers() -> None:
    class Quiet(nn.Sequential):
        def reset_parameters(self) -> None:
            nn.init.zeros_(self[2].weight)

    model = Net(*(Quiet(nn.Linear(D, D), nn.ReLU(), nn.Linear(D, D)) for _ in range(3)))
    before = model.blocks[0][0].weight.detach().clone()
    assert reinitialise(model, stream_of(model), 0) == []
    assert not model.blocks[0][2].weight.any()
    assert not torch.equal(model.blocks[0][0].weight, before)


def test_a_method_that_wants_arguments_is_undone_and_the_parameters_are_drawn() -> None:
    class Wanting(Own):
        def reset_parameters(self, scale: float) -> None:
            nn.init.normal_(self.matrix, std=scale)

    class Failing(Own):
        def reset_parameters(self) -> None:
            nn.init.zeros_(self.matrix)
            raise RuntimeError("not now")

    model = Net(Wanting(), Failing(), Own())
    before = copy.deepcopy(model)
    assert reinitialise(model, stream_of(model), 0) == []
    for own, earlier in zip(model.blocks, before.blocks, strict=True):
        assert own.matrix.any()
        assert not torch.equal(own.matrix, earlier.matrix)


def test_what_is_read_outside_the_blocks_stays_and_is_named() -> None:
    class Tied(nn.Module):
        def __init__(self, weight: nn.Parameter) -> None:
            super().__init__()
            self.weight = weight

        def forward(self, h: Tensor) -> Tensor:
            return F.relu(h @ self.weight.T @ self.weight)

    model = Net(nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D))
    model.blocks[1] = Tied(model.head.weight)
    before = model.head.weight.detach().clone()
    named = reinitialise(model, stream_of(model), 0)
    assert len(named) == 1
    assert torch.equal(model.head.weight, before)


def test_a_block_without_a_finite_value_of_its_own_is_named() -> None:
    model = Net(Own(), Own(), Own())
    stream = stream_of(model)
    nn.init.constant_(model.blocks[2].matrix, float("nan"))
    assert reinitialise(model, stream, 0) == ["blocks.2"]


def test_blocks_in_a_plain_list_are_drawn_too() -> None:
    class Listed(Net):
        def __init__(self) -> None:
            super().__init__()
            del self.blocks
            self.blocks = [nn.Linear(D, D) for _ in range(3)]  # type: ignore[assignment]

    model = Listed()
    before = [block.weight.detach().clone() for block in model.blocks]
    assert reinitialise(model, stream_of(model), 0) == []
    assert not any(torch.equal(block.weight, own) for block, own in zip(model.blocks, before, strict=True))
