"""The training and test split of a run, each one normalised tensor in memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from pytest_fadiag import AuditError, DataSet, load_data

PAD = 4


@dataclass(frozen=True)
class Samples:
    """Both splits on the device, and what the checkpoint says about them."""

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: int
    name: str
    mean: list[float] | None
    std: list[float] | None

    @property
    def d_in(self) -> int:
        """The width of a flattened sample."""
        return self.x[0].numel()


def load_samples(spec: str, device: str) -> Samples:
    """Both splits of a data SPEC; data without a test split of its own is refused."""
    train, test = load_data(spec, split="train"), load_data(spec, split="test")
    if len(train) == len(test) and torch.equal(train.x, test.x):
        raise AuditError(
            f"data {spec!r} has no test split of its own: the accuracy would be that on the training data"
        )
    if train.x.shape[1:] != test.x.shape[1:]:
        raise AuditError(
            f"data {spec!r}: training samples are {[*train.x.shape[1:]]}, test samples {[*test.x.shape[1:]]}"
        )
    return Samples(
        _inputs(train, device),
        train.y.to(device),
        _inputs(test, device),
        test.y.to(device),
        1 + int(max(train.y.max(), test.y.max())),
        train.name,
        None if train.mean is None else list(train.mean),
        None if train.std is None else list(train.std),
    )


def _inputs(data: DataSet, device: str) -> Tensor:
    return data.normalised(data.x).to(device, torch.float32)


def augmented(x: Tensor, generator: torch.Generator) -> Tensor:
    """Images shifted by up to 4 pixels and mirrored at random, a whole batch at once; the margin has the mean colour."""
    n, _, height, width = x.shape
    dy, dx = torch.randint(0, 2 * PAD + 1, (2, n, 1), generator=generator).to(x.device)
    mirror = torch.rand(n, 1, generator=generator).to(x.device) < 0.5
    columns = torch.arange(width, device=x.device)
    columns = dx + torch.where(mirror, columns.flip(0), columns)
    rows = dy + torch.arange(height, device=x.device)
    padded = F.pad(x, (PAD, PAD, PAD, PAD)).permute(0, 2, 3, 1)
    sample = torch.arange(n, device=x.device)[:, None, None]
    return padded[sample, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
