"""Probes along the stream and their null, against a computation in numpy that shares nothing with them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from depth_oracle import interval, probes, utility
from support import in_batches, rings, trained_on_rings
from torch import Tensor, nn

from pytest_fadiag.judge.codec import read
from pytest_fadiag.judge.depth import Depth
from pytest_fadiag.measure.observe import observe

IMAGES = 1_300


def depth_of(model: nn.Module, batches: Iterable[Any], **options: Any) -> Depth:
    """What is observed of a network's depth."""
    return read(Depth, observe(model, batches, ["depth"], **options).results["depth"], "depth")


def states_of(model: Any, x: Tensor) -> list[Tensor]:
    """h_0 … h_L of a ResidualMLP, spelled out."""
    states = [model.embed(x)]
    for block in model.blocks:
        states.append(states[-1] + block(states[-1]))
    return states


def drawn(model: Any, seed: int) -> nn.Module:
    """A copy whose blocks are drawn as their layers draw themselves, from one seed, in the order of their names."""
    other = copy.deepcopy(model)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        for block in other.blocks:
            for layer in (block.ln, block.fc1, block.fc2):
                layer.reset_parameters()
    return other


@pytest.fixture(scope="module")
def learnt() -> tuple[nn.Module, Tensor, Tensor]:
    """A network whose depth helps, and its data."""
    x, y = rings(IMAGES)
    return trained_on_rings().double().eval(), x.double(), y


def assert_is(seen: Depth, own: Sequence[np.ndarray], null: Sequence[Sequence[np.ndarray]]) -> None:
    """Every number of a measurement is that of the oracle."""
    gain, by_chance, useful = utility(own, null)
    assert seen.probes == pytest.approx([right.mean() for right in own], abs=1e-6)
    for draw, expected in zip(seen.null, null, strict=True):
        assert draw == pytest.approx([right.mean() for right in expected], abs=1e-6)
    assert seen.gain_pp == pytest.approx(gain, abs=1e-6)
    assert seen.null_pp == pytest.approx(by_chance, abs=1e-6)
    assert seen.utility_pp == pytest.approx(useful, abs=1e-6)
    differences = own[-1] - own[0] - (np.mean([draw[-1] - draw[0] for draw in null], 0) if by_chance > 0 else 0)
    assert seen.interval == pytest.approx(interval(differences), abs=0.3)  # an image is added to each side of 650
    for block, bounds in enumerate(seen.step_intervals):
        step = own[block + 1] - own[block]
        of_null = np.mean([draw[block + 1] - draw[block] for draw in null], 0)
        assert bounds == pytest.approx(interval(step - of_null if of_null.mean() > 0 else step), abs=0.3)


def test_probes_null_utility_and_intervals_are_what_the_definition_gives(learnt: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = learnt
    own = probes(states_of(model, x), y)
    null = [probes(states_of(drawn(model, seed), x), y) for seed in (0, 1)]
    seen = depth_of(model, in_batches(x, y))
    assert_is(seen, own, null)
    assert seen.gain_pp > 20  # the comparison is one of numbers that differ
    assert seen.null[0] != seen.null[1]
    assert (seen.fitted, seen.read, seen.dealt, seen.problem, seen.undrawn) == (650, 650, False, "", ())
    states = [state.detach().numpy() for state in states_of(model, x[:1_280])]
    change = [np.median(np.linalg.norm(b - a, axis=1) / np.linalg.norm(a, axis=1)) for a, b in pairwise(states)]
    assert seen.change == pytest.approx(change, rel=1e-6)


@pytest.mark.parametrize("size", [16, 100, 512])
def test_batch_sizes_change_nothing(learnt: tuple[nn.Module, Tensor, Tensor], size: int) -> None:
    model, x, y = learnt
    single, x = copy.deepcopy(model).float(), x.float()
    usual, seen = depth_of(single, in_batches(x, y)), depth_of(single, in_batches(x, y, size), batch_size=size)
    one_image = 1 / usual.read + 1e-9
    assert seen.probes == pytest.approx(usual.probes, abs=one_image)
    for draw, other in zip(seen.null, usual.null, strict=True):
        assert draw == pytest.approx(other, abs=one_image)
