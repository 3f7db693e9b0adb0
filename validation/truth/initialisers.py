"""Initialisations of the blocks that are not those of their layers: no range of numbers tells that such blocks are untrained."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

REACH = 8
"""The rows of a smooth matrix are averaged over an eighth of their length."""


def _normal(weight: Tensor, spread: float) -> None:
    nn.init.normal_(weight, std=spread)


def _truncated(weight: Tensor, spread: float) -> None:
    nn.init.trunc_normal_(weight, std=spread, a=-2 * spread, b=2 * spread)


def _xavier(weight: Tensor, spread: float) -> None:
    nn.init.xavier_normal_(weight)


def _smooth(weight: Tensor, spread: float) -> None:
    """Each row is noise averaged over its neighbours, as hand-made filters are."""
    rows = weight.flatten(1)
    width = max(3, rows.shape[1] // REACH) | 1
    noise = torch.randn(len(rows), 1, rows.shape[1] + width - 1)
    window = torch.hann_window(width + 2, periodic=False)[1:-1].view(1, 1, -1)
    smooth = F.conv1d(noise, window)[:, 0]
    weight.copy_((smooth * spread / smooth.std()).view_as(weight))


INITIALISERS = {
    "normal": _normal,
    "truncated": _truncated,
    "xavier": _xavier,
    "smooth": _smooth,
}
"""What draws a weight matrix, by name; the second argument is the spread that its layer gave it."""


@torch.no_grad()
def initialise(block: nn.Module, initialiser: str) -> None:
    """Draw the weights of a block, and set its biases to 0; the constants of norms stay."""
    for name, parameter in block.named_parameters():
        if parameter.dim() > 1:
            INITIALISERS[initialiser](parameter, float(parameter.std()))
        elif name.endswith("bias"):
            parameter.zero_()
