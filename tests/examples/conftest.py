"""Small networks and data sets for the tests of the training examples."""

from __future__ import annotations

import gzip
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_fadiag import ResidualMLP

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from methods import METHODS
from methods.rule import LearningRule
from methods.settings import Settings
from methods.streams import initialise, streams


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def make_rule() -> Callable[..., LearningRule]:
    """A learning rule on a small network in float64, with branches strong enough to matter."""

    def made(method: str, *, d: int = 6, blocks: int = 3, seed: int = 1, **settings: Any) -> LearningRule:
        net = ResidualMLP(9, d, blocks, 4, mlp_ratio=2)
        own = streams(seed)
        initialise(net, own["initialisation"])
        for block in net.blocks:
            block.fc2.weight.data *= 3
            block.ln.weight.data += 0.3 * torch.randn(d, generator=own["initialisation"])
        net.out_ln.weight.data += 0.3 * torch.randn(d, generator=own["initialisation"])
        net.double().blocks.requires_grad_(not settings.get("frozen", False))
        return METHODS[method](net, Settings(method, "", Path("unused"), seed=seed, d=d, blocks=blocks, **settings), own)

    return made


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(16, 9, generator=generator, dtype=torch.float64)
    return x, torch.randint(0, 4, (16,), generator=generator)


@pytest.fixture(scope="session")
def fashion(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A data SPEC: 300 + 256 images of 4×4 pixels with three classes, in Fashion-MNIST's format."""
    root = tmp_path_factory.mktemp("fashion")
    for part, n in (("train", 300), ("t10k", 256)):
        images, labels = coloured(n, 1)
        _write_idx(root / f"{part}-images-idx3-ubyte.gz", images[:, 0])
        _write_idx(root / f"{part}-labels-idx1-ubyte.gz", labels)
    return f"fashion-mnist:{root}"


@pytest.fixture(scope="session")
def coloured_images() -> Callable[[int, int], tuple[Tensor, Tensor]]:
    return coloured


def coloured(n: int, channels: int, size: int = 4) -> tuple[Tensor, Tensor]:
    """Images that are bright in a third of the picture, which third being the class."""
    generator = torch.Generator().manual_seed(n)
    labels = torch.randint(0, 3, (n,), generator=generator)
    images = torch.randint(0, 120, (n, channels, size, size), generator=generator)
    images[torch.arange(n), :, labels] += 130
    return images.byte(), labels


def _write_idx(path: Path, array: Tensor) -> None:
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    path.write_bytes(gzip.compress(header + array.byte().numpy().tobytes()))
