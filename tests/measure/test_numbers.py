"""Every measured number against a float64 computation by hand."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from support import (
    Chain,
    Mean,
    Residual,
    by_hand,
    changed,
    clustered,
    in_batches,
    measured,
    network,
    seeded,
    trained,
)
from torch import Tensor, nn
from torch.nn import functional as F

from pytest_fadiag.measure.vectors import (
    median,
    pairwise_cosine,
    row_cosines,
    row_norms,
    unit_rows,
)

X, Y = clustered(1300)
COSINES = ("cross_batch_stability", "sample_invariance", "output_error_drift")
SIZES = ("residual_norms", "bp_grad_norms", "gradient_per_unit_error", "output_error_norm")


def assert_by_hand(
    model: nn.Module, x: Tensor = X, y: Tensor = Y, dims: Any = None, **options: Any
) -> Any:
    """Sizes within 1e-5 relative, cosines within 1e-5 absolute; gives what was measured."""
    found, expected = measured(model, in_batches(x, y), **options), by_hand(model, x, y, dims)
    for name in SIZES:
        assert getattr(found, name) == pytest.approx(expected[name], rel=1e-5, abs=0), name
    for name in COSINES:
        assert getattr(found, name) == pytest.approx(expected[name], rel=1e-5, abs=2e-6), name
    assert found.score is not None
    assert found.score.value == expected["accuracy"]
    return found


@pytest.mark.parametrize("size", [1.0, 1e3, 1e9])
def test_a_stream_of_any_size(size: float) -> None:
    net = changed(network(), lambda net: net.blocks[1].fc2.weight.mul_(size))
    assert size == 1.0 or assert_by_hand(net).residual_norms[-1] > 0.1 * size


@pytest.mark.parametrize("size", [1e-2, 1e-7, 1e-12])
def test_a_gradient_of_any_size(size: float) -> None:
    net = changed(network(out_ln=False), lambda net: net.out_head.weight.mul_(100 * size))
    assert size / 10 < assert_by_hand(net).bp_grad_norms[-1] < size * 10


def test_confident_samples_keep_their_output_error_exact() -> None:
    """Of p − 1 float32 keeps no digit at 1e-8; the float64 step at the logits does."""
    heavy = changed(
        trained(300), lambda net: [net.out_head.weight.mul_(3), net.out_head.bias.mul_(3)]
    )
    found, expected = measured(heavy, in_batches(X, Y)), by_hand(heavy, X, Y)
    assert found.output_error_norm is not None and found.output_error_norm < 1e-6
    for name in ("bp_grad_norms", "output_error_norm"):
        assert getattr(found, name) == pytest.approx(expected[name], rel=1e-4, abs=0)


@pytest.mark.parametrize(("blocks", "layer"), [(1, 1), (2, 1), (5, 2)])
def test_directions_are_those_at_half_depth(blocks: int, layer: int) -> None:
    assert assert_by_hand(network(blocks=blocks)).stability_layer == layer


@pytest.mark.parametrize(("samples", "batches"), [(256, 2), (511, 3), (1500, 10)])
def test_gradients_are_taken_on_ten_whole_batches_and_every_sample_is_scored(
    samples: int, batches: int
) -> None:
    found = assert_by_hand(trained(50), *clustered(samples))
    assert (found.batches, found.samples) == (batches, 128 * batches)
    assert found.score.images == samples


@pytest.mark.parametrize(("size", "at_once"), [(16, 128), (100, 50), (512, 1000), (1300, 7)])
def test_the_batch_size_changes_no_number(size: int, at_once: int) -> None:
    net = trained(50)
    whole = measured(net, [(X, Y)])
    parts = measured(net, in_batches(X, Y, size), batch_size=at_once)
    for name in (*SIZES, *COSINES):
        assert getattr(parts, name) == pytest.approx(getattr(whole, name), rel=1e-6, abs=0), name
    assert parts.score == whole.score


def test_a_hand_built_stream_has_the_norms_that_were_built_in() -> None:
    """Blocks whose fc2 is zero add nothing; the second adds a constant of norm 300 to norm 1."""

    def build(net: Any) -> None:
        net.embed.weight.copy_(torch.eye(20))
        net.embed.bias.zero_()
        for block in net.blocks:
            block.fc2.weight.zero_()
            block.fc2.bias.zero_()
        net.blocks[1].fc2.bias.fill_(300 / math.sqrt(20))

    unit = F.normalize(X[:300], dim=1)
    norms = measured(changed(network(d=20), build), [(unit, Y[:300])]).residual_norms
    assert norms == pytest.approx([1, 1, *[pytest.approx(300, rel=0.01)] * 3])
    assert norms[2] == norms[3] == norms[4]


def test_the_gradient_at_h_0_is_that_of_finite_differences() -> None:
    net = network(blocks=2).double()
    step, norms, basis = 1e-6, [], torch.eye(16).double()
    for h, label in zip(net.embed(X[:256].double()).detach(), Y[:256], strict=True):
        moved = torch.cat([h + step * basis, h - step * basis])
        for block in net.blocks:
            moved = moved + block(moved)
        logits = net.out_head(net.out_ln(moved))
        losses = F.cross_entropy(logits, label.expand(32), reduction="none").detach()
        norms.append(float(((losses[:16] - losses[16:]) / (2 * step)).norm()) / 128)
    found = measured(net, [(X[:256], Y[:256])], ["gradients"]).bp_grad_norms[0]
    assert found == pytest.approx(np.median(norms), rel=1e-6)


# --- norms by what a state is ---------------------------------------------------------------------


def sequence() -> Chain:
    embed = nn.Sequential(nn.Unflatten(1, (2, 10)), nn.Conv1d(2, 6, 1))
    blocks = [Residual(nn.Conv1d(6, 6, 3, padding=1), nn.ReLU()) for _ in range(3)]
    return Chain(embed, blocks, nn.Sequential(Mean(2), nn.Linear(6, 5)))


def mixer() -> Chain:
    """Tokens, mixed by convolutions of one position as some write it."""
    embed = nn.Sequential(nn.Unflatten(1, (10, 2)), nn.Linear(2, 6))
    layers = lambda: (nn.LayerNorm(6), nn.Conv1d(10, 10, 1), nn.GELU(), nn.Linear(6, 6))  # noqa: E731
    blocks = [Residual(*layers()) for _ in range(3)]
    return Chain(embed, blocks, nn.Sequential(Mean(1), nn.Linear(6, 5)))


def images() -> Chain:
    embed = nn.Sequential(nn.Unflatten(1, (1, 4, 5)), nn.Conv2d(1, 6, 1))
    blocks = [Residual(nn.Conv2d(6, 6, 3, padding=1), nn.ReLU()) for _ in range(2)]
    return Chain(embed, blocks, nn.Sequential(nn.Flatten(), nn.Linear(120, 5)))


@pytest.mark.parametrize(
    ("make", "dims"),
    [(sequence, (1, 2)), (mixer, (2,)), (images, (1, 2, 3))],
    ids=lambda own: str(own)[:20],
)
def test_tokens_have_norms_of_their_own_and_a_map_has_one(
    make: Callable[[], Chain], dims: tuple[int, ...]
) -> None:
    net = seeded(make)
    found = assert_by_hand(net, dims=[dims] * (len(net.blocks) + 1))
    assert found.tokens == (10 if make is mixer else None)


class Reader(nn.Module):
    """The head reads the tokens that a mask lets through, and no others get a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(30, 8), nn.Linear(8, 5)
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def states(self, ids: Tensor) -> list[Tensor]:
        states = [self.embed(ids)]
        for block in self.blocks:
            states.append(states[-1] + torch.tanh(block(states[-1])))
        return states

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        h, kept = self.states(ids)[-1], mask[..., None]
        return self.head((h * kept).sum(1) / kept.sum(1))  # type: ignore[no-any-return]


@pytest.mark.parametrize("most", [12, 4])
def test_padding_has_no_gradient_and_counts_for_none(most: int) -> None:
    net = seeded(Reader)
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(30, (256, 12), generator=draw)
    mask = (torch.arange(12) < torch.randint(1, most + 1, (256, 1), generator=draw)).long()
    found = measured(net, [{"ids": ids, "mask": mask, "labels": Y[:256]}])
    wide = copy.deepcopy(net).double()
    states = wide.states(ids)
    for state in states:
        state.retain_grad()
    kept = mask[..., None]
    logits = wide.head((states[-1] * kept).sum(1) / kept.sum(1))
    F.cross_entropy(logits, Y[:256], reduction="sum").backward()
    norms = [
        state.grad.norm(dim=2)[mask.bool()].numpy() / 128
        for state in states
        if state.grad is not None
    ]
    assert found.bp_grad_norms == pytest.approx([np.median(own) for own in norms], rel=1e-5)
    e = (logits.softmax(1) - F.one_hot(Y[:256], 5)).norm(dim=1, keepdim=True).detach()
    last = (states[-1].grad.norm(dim=2) / e)[mask.bool()].numpy() / 128  # type: ignore[union-attr]
    assert found.gradient_per_unit_error == pytest.approx(np.median(last), rel=1e-5)
    assert found.tokens_without_gradient == (int(np.median((1 - mask).sum(1))),) * 4
    assert found.tokens == 12


# --- vectors --------------------------------------------------------------------------------------


def test_cosines_are_not_clamped_by_an_epsilon_and_a_zero_vector_has_no_direction() -> None:
    """Of such vectors torch's own cosine, whose norms are at least 1e-8, reads 0.24."""
    tiny = torch.tensor([[3e-9, 4e-9], [4e-9, 3e-9]], dtype=torch.float64)
    for scale in (1, 1e-200, 1e200):
        assert pairwise_cosine(tiny * scale) == pytest.approx(0.96)
        assert row_cosines(tiny[:1] * scale, tiny[1:]).item() == pytest.approx(0.96)
    assert float(F.cosine_similarity(tiny[0], tiny[1], dim=0)) < 0.5
    for broken in (0.0, math.inf, math.nan):
        assert math.isnan(pairwise_cosine(torch.tensor([[1.0, 0.0], [0.0, broken]])))
    assert unit_rows(torch.tensor([[3e-30, 4e-30]])).tolist() == [
        [pytest.approx(0.6), pytest.approx(0.8)]
    ]


def test_norms_are_l2_along_the_last_dimension_and_neither_overflow_nor_underflow() -> None:
    """``tensor.norm(-1)`` would be the L₋₁ norm of everything."""
    rows = torch.tensor([[3.0, 4.0], [6.0, 8.0], [0.0, 0.0]])
    assert row_norms(rows).tolist() == [5, 10, 0]
    assert row_norms(rows * 1e30).tolist() == pytest.approx([5e30, 1e31, 0])
    assert row_norms(rows.double() * 1e200).tolist() == pytest.approx([5e200, 1e201, 0])
    assert row_norms(rows.double() * 1e-200).tolist() == pytest.approx([5e-200, 1e-199, 0])
    assert row_norms(torch.tensor([[math.inf, 1.0]]).double()).tolist() == [math.inf]


def test_medians_average_the_middle_two() -> None:
    assert [median(torch.tensor(own)) for own in ([4.0, 1, 3, 2], [3.0, 1, 2])] == [2.5, 2]
    assert median(torch.full((2,), math.inf)) == math.inf
    assert math.isnan(median(torch.tensor([])))
