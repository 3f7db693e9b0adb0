"""Which dimension of a state counts its features, by the layers of the blocks; what probes see."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from depth_oracle import layer_norm
from support import Residual
from torch import nn

from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.measure.pooling import Layout
from pytest_fadiag.measure.probes import normalised


def layout(*layers: nn.Module) -> Layout:
    """As told by one block of these layers."""
    block = Residual(*layers)
    return Layout(block, frozenset(dict(block.named_parameters())))


@pytest.mark.parametrize(
    ("layers", "shape", "is_map"),
    [
        ([nn.Conv1d(6, 6, 3)], (6, 10), True),
        ([nn.Linear(6, 6)], (10, 6), False),
        ([nn.Conv2d(16, 16, 3)], (16, 16, 8), True),  # as many channels as rows
        ([nn.Conv2d(16, 16, 3)], (16, 16, 16), True),
        ([nn.Conv2d(16, 16, 3), nn.Linear(16, 8)], (16, 8, 8), True),  # squeeze and excitation
        ([nn.GroupNorm(2, 16)], (16, 5, 7), True),
        ([nn.Linear(16, 16)], (5, 7, 16), False),  # channels at the end of an oblong image
        ([nn.Linear(16, 16)], (16, 7, 16), False),
        ([nn.LayerNorm(16), nn.Conv1d(10, 10, 1)], (10, 16), False),  # a mixer of tokens
        (
            [nn.LayerNorm(16), nn.Conv2d(16, 16, 2, 2), nn.Linear(16, 16)],
            (16, 16),
            False,
        ),  # a pyramid
        ([nn.BatchNorm2d(16), nn.LayerNorm(16)], (16, 16), False),
        ([nn.Tanh()], (3, 8, 8), True),  # no layer tells
        ([nn.Tanh()], (8, 8, 3), False),
        ([nn.Tanh()], (8, 8), False),
    ],
)
def test_features_are_told_from_tokens_and_places(
    layers: list[nn.Module], shape: tuple[int, ...], is_map: bool
) -> None:
    told = layout(*layers)
    assert told.is_map(shape) is is_map
    assert told.are_tokens(shape) is (len(shape) == 2 and not is_map)
    values = torch.randn(4, *shape)
    expected = values.flatten(2).mT if is_map else values.reshape(4, -1, shape[-1])
    assert torch.equal(told.by_feature(values), expected)


def test_a_state_that_both_kinds_of_layers_fit_is_refused() -> None:
    told = layout(nn.Conv2d(5, 5, 3), nn.LayerNorm(16))
    with pytest.raises(AuditError, match=r"state of shape \[5, 7, 16\] cannot be told"):
        told.by_feature(torch.zeros(8, 5, 7, 16))


@pytest.mark.parametrize(("dtype", "far"), [(torch.float32, 1e30), (torch.float64, 1e200)])
def test_vectors_of_any_size_are_normalised_without_an_epsilon(dtype: Any, far: float) -> None:
    rows = torch.randn(8, 33, generator=torch.Generator().manual_seed(0)).to(dtype)
    rows[2:4] *= torch.tensor([[far], [1 / far]], dtype=dtype)
    rows[:2] = 0.1  # constant, and nearly so
    rows[1, 4] += 1e-8
    z, broken = normalised(rows)
    assert torch.allclose(z, torch.from_numpy(layer_norm(rows.double().numpy())).float(), atol=1e-6)
    assert not broken.any() and not z[0].any() and z[1].any()
    rows[5, 3], rows[6, 0] = torch.inf, torch.nan
    z, broken = normalised(rows)
    assert broken.tolist() == [False] * 5 + [True] * 2 + [False] and not z[5:7].any()
    assert z[4].any()


def test_wide_vectors_are_projected_by_a_fixed_matrix() -> None:
    rows = torch.randn(4, 2_100, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    drawn = torch.randn(
        2_100, 2_048, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    expected = layer_norm(rows.numpy()) @ drawn.numpy() / 2_048**0.5
    assert torch.allclose(normalised(rows)[0], torch.from_numpy(expected).float())
