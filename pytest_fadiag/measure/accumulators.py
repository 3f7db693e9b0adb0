"""What observers gather from batch to batch: rows, the norms of each layer, sums over groups of samples; on the device."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .vectors import pairwise_cosine, row_norms


class Rows:
    """Rows that arrive batch by batch, in room that is made once.

    Small tensors that outlive the activations between which they were allocated would keep the allocator from reusing that
    memory: on a 12-block ViT the process grew by a third.
    """

    def __init__(self, samples: int) -> None:
        self.samples, self.filled = samples, 0
        self.room: Tensor | None = None

    def add(self, rows: Tensor) -> None:
        """Append the rows of one batch."""
        if self.room is None:
            self.room = rows.new_zeros(self.samples, *rows.shape[1:])
        self.room[self.filled : self.filled + len(rows)] = rows
        self.filled += len(rows)

    def all(self) -> Tensor:
        """Every row so far."""
        assert self.room is not None
        return self.room[: self.filled]


def norm_size(shape: Sequence[int], *, tokens: bool) -> int:
    """How many numbers each norm of a sample's state of this shape is over."""
    return shape[-1] if tokens else math.prod(shape)


def per_sample_norms(values: Tensor, *, tokens: bool) -> Tensor:
    """``[B]``, or of tokens ``[B, T]``: the norms that :func:`norm_size` tells the size of."""
    return row_norms(values if tokens else values.flatten(1))


class LayerNorms:
    """Per-sample norms of each layer of the stream: of a vector, of each token, or of a whole feature map."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.layers: dict[int, Rows] = {}

    def add(self, layer: int, values: Tensor, *, tokens: bool) -> None:
        """Take the norms of one batch, ``[B]`` or for tokens ``[B, T]``."""
        self.layers.setdefault(layer, Rows(self.samples)).add(per_sample_norms(values, tokens=tokens))

    def by_layer(self) -> list[Tensor]:
        """The norms of every layer, from h_0 on."""
        return [self.layers[layer].all() for layer in range(len(self.layers))]

    def nonfinite(self) -> list[int]:
        """How many samples of each layer have a norm that is not finite."""
        finite = (torch.isfinite(norms) for norms in self.by_layer())
        return [int((~(rows.all(1) if rows.ndim == 2 else rows)).sum()) for rows in finite]


class GroupSums:
    """Weighted sums of rows over disjoint groups of samples."""

    def __init__(self, groups: int) -> None:
        self.groups, self.filled = groups, 0
        self.sums: Tensor | None = None

    def add(self, group: int, rows: Tensor, weights: Tensor) -> None:
        """Add some rows of a group, each times its weight."""
        if self.sums is None:
            self.sums = rows.new_zeros(self.groups, rows.shape[1])
        self.sums[group] += weights @ rows
        self.filled = max(self.filled, group + 1)

    def cosine(self) -> float:
        """The mean cosine between the sums of two groups."""
        assert self.sums is not None
        return pairwise_cosine(self.sums[: self.filled])
