"""Which dimension of a state counts the features, by the layers of the blocks and not by the sizes alone."""

from __future__ import annotations

import pytest
import torch
from support import Residual
from torch import Tensor, nn

from pytest_fadiag import AuditError
from pytest_fadiag.measure.features import Layout
from pytest_fadiag.measure.stream.find import find_stream


class Reads(nn.Module):
    """The mean over all dimensions but one."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, h: Tensor) -> Tensor:
        kept = self.dim % h.ndim
        return h.mean([dim for dim in range(1, h.ndim) if dim != kept])


def layout(embed: nn.Module, make: type[nn.Module], dim: int, d: int, x: Tensor) -> Layout:
    blocks = [Residual(make(d)) for _ in range(2)]  # type: ignore[call-arg]
    net = nn.Sequential(embed, *blocks, Reads(dim), nn.Linear(d, 3)).eval()
    return Layout(net, find_stream(net, x, None))


class Convolved(nn.Conv1d):
    def __init__(self, d: int) -> None:
        super().__init__(d, d, 3, padding=1)


class Image(nn.Conv2d):
    def __init__(self, d: int) -> None:
        super().__init__(d, d, 3, padding=1)


class Mixed(nn.Linear):
    def __init__(self, d: int) -> None:
        super().__init__(d, d)


def test_a_sequence_of_convolutions_has_its_features_in_the_second_dimension() -> None:
    told = layout(nn.Conv1d(2, 6, 1), Convolved, 1, 6, torch.randn(8, 2, 10))
    assert told.is_map(torch.zeros(8, 6, 10)) and told.by_feature(torch.zeros(8, 6, 10)).shape == (8, 10, 6)


def test_tokens_have_them_in_the_last() -> None:
    told = layout(nn.Linear(2, 6), Mixed, -1, 6, torch.randn(8, 10, 2))
    assert not told.is_map(torch.zeros(8, 10, 6)) and told.by_feature(torch.zeros(8, 10, 6)).shape == (8, 10, 6)


@pytest.mark.parametrize("shape", [(16, 16, 8), (16, 5, 7), (16, 16, 16)])
def test_a_map_whose_channels_are_as_many_as_its_rows_is_a_map(shape: tuple[int, ...]) -> None:
    told = layout(nn.Conv2d(1, 16, 1), Image, 1, 16, torch.randn(8, 1, *shape[1:]))
    assert told.by_feature(torch.zeros(8, *shape)).shape == (8, shape[1] * shape[2], 16)


@pytest.mark.parametrize("shape", [(5, 7, 16), (7, 7, 16), (16, 7, 16)])
def test_channels_at_the_end_of_an_oblong_image_are_found(shape: tuple[int, ...]) -> None:
    told = layout(nn.Linear(1, 16), Mixed, -1, 16, torch.randn(8, *shape[:2], 1))
    values = torch.arange(8.0 * shape[0] * shape[1] * 16).view(8, *shape)
    assert torch.equal(told.by_feature(values), values.reshape(8, -1, 16))


def test_what_layers_of_both_kinds_fit_is_refused() -> None:
    told = layout(nn.Linear(1, 16), Mixed, -1, 16, torch.randn(8, 5, 7, 1))
    told.second = told.surely_second = {(3, 5)}
    told.surely_last = {16}
    with pytest.raises(AuditError, match="which of them counts the features cannot be told"):
        told.by_feature(torch.zeros(8, 5, 7, 16))


class Reduced(nn.Module):
    """Attention to tokens that a convolution over the image makes fewer, as in a pyramid."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.norm, self.reduce, self.fc = nn.LayerNorm(d), nn.Conv2d(d, d, 2, 2), nn.Linear(d, d)

    def forward(self, h: Tensor) -> Tensor:
        h = self.norm(h)
        side = int(h.shape[1] ** 0.5)
        fewer = self.reduce(h.transpose(1, 2).unflatten(2, (side, side))).flatten(2).transpose(1, 2)
        return self.fc(torch.softmax(h @ fewer.transpose(1, 2), -1) @ fewer)  # type: ignore[no-any-return]


def test_as_many_tokens_as_a_convolution_of_images_has_channels_are_tokens() -> None:
    told = layout(nn.Linear(2, 16), Reduced, -1, 16, torch.randn(8, 16, 2))
    assert told.are_tokens((16, 16)) and not told.is_map(torch.zeros(8, 16, 16))
