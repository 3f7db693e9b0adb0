"""Running statistics of states and gradients: per sample, in float64, kept on the device."""

from __future__ import annotations

import math

import torch
from torch import Tensor

CHUNK = 1 << 21
"""How many gradient entries are widened to float64 at once, so that the tally needs little memory beside the network."""


def wide_dtype(tensor: Tensor) -> torch.dtype:
    """float64, or float32 on devices that have no float64."""
    return torch.float32 if tensor.device.type == "mps" else torch.float64


def row_norms(rows: Tensor) -> Tensor:
    """The L2 norm along the last dimension, accumulated in float64; float64 rows are scaled by their largest entry first."""
    if rows.dtype != torch.float64:
        norms: Tensor = torch.linalg.vector_norm(rows, dim=-1, dtype=wide_dtype(rows))
        return norms
    scale = rows.abs().amax(-1, keepdim=True)
    safe = torch.where((scale > 0) & torch.isfinite(scale), scale, 1.0)
    scaled: Tensor = torch.linalg.vector_norm(rows / safe, dim=-1)
    return scaled * safe.squeeze(-1)


def median(values: Tensor) -> float:
    """The median of the values, the mean of the middle two for an even number; NaN for none."""
    if not values.numel():
        return math.nan
    ordered = values.flatten().sort().values
    low, high = ordered[(len(ordered) - 1) // 2].item(), ordered[len(ordered) // 2].item()
    return low if low == high else (low + high) / 2


def pairwise_cosine(vectors: Tensor) -> float:
    """The mean cosine over all pairs of rows; NaN if a row is zero or not finite, since it has no direction."""
    scale = vectors.abs().amax(1, keepdim=True)
    if not bool((torch.isfinite(scale) & (scale > 0)).all()):
        return math.nan
    units = vectors / scale
    units = units / torch.linalg.vector_norm(units, dim=1, keepdim=True)
    n = len(units)
    cosines = units @ units.T
    return float((cosines.sum() - cosines.diagonal().sum()) / (n * (n - 1)))


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


class NormTally:
    """Per-sample norms of each layer of the stream: of a vector, of each token, or of a whole feature map."""

    def __init__(self, samples: int, batch_dim: int) -> None:
        self.samples, self.batch_dim = samples, batch_dim
        self.layers: dict[int, Rows] = {}

    def __len__(self) -> int:
        return len(self.layers)

    def add(self, layer: int, values: Tensor) -> None:
        """Take the norms of one batch, ``[B]`` or for tokens ``[B, T]``."""
        values = values.movedim(self.batch_dim, 0)
        norms = row_norms(values if values.ndim == 3 else values.flatten(1))
        self.layers.setdefault(layer, Rows(self.samples)).add(norms)

    def seen(self, layer: int) -> int:
        """How many samples a layer has seen."""
        return self.layers[layer].filled if layer in self.layers else 0

    @property
    def tokens(self) -> int | None:
        """How many tokens a sample has, or ``None`` for vectors and feature maps."""
        norms = self._all(0)
        return norms.shape[1] if norms.ndim == 2 else None

    def medians(self, scale: Tensor | None = None) -> tuple[float, ...]:
        """The median of each layer over samples and tokens; of gradients, ``scale`` times what the head reads of them."""
        if scale is None:
            return tuple(median(self._all(layer)) for layer in range(len(self)))
        columns = scale if self.tokens is None else scale.unsqueeze(1)
        return tuple(median(self._read(layer) * columns) for layer in range(len(self)))

    def median_where(self, layer: int, keep: Tensor) -> float:
        """The median of one layer over the samples to keep and the tokens that the head reads; NaN if there are none."""
        return median(self._read(layer)[keep])

    def nonfinite(self) -> tuple[int, ...]:
        """How many samples of each layer have a norm that is not finite."""
        finite = (torch.isfinite(self._all(layer)) for layer in range(len(self)))
        return tuple(int((~(rows.all(1) if rows.ndim == 2 else rows)).sum()) for rows in finite)

    def unread(self) -> tuple[int, ...]:
        """How many tokens of each layer get no gradient in any sample, as all but the class token of a ViT at h_L."""
        if self.tokens is None:
            return ()
        return tuple(self.tokens - self._read(layer).shape[1] for layer in range(len(self)))

    def _all(self, layer: int) -> Tensor:
        return self.layers[layer].all()

    def _read(self, layer: int) -> Tensor:
        """The norms without the columns that are zero throughout, unless all are: an all-zero gradient stays one."""
        norms = self._all(layer)
        if norms.ndim == 1:
            return norms
        read = (norms != 0).any(0)
        return norms[:, read] if bool(read.any()) else norms


class DirectionTally:
    """Sums of gradients per group of samples, and the sum of their unit vectors."""

    def __init__(self, groups: int) -> None:
        self.groups = groups
        self.group_sums: Tensor | None = None
        self.unit_sum: Tensor | None = None
        self.counted: Tensor | None = None
        self.seen = 0

    def add(self, group: int, gradients: Tensor, scale: Tensor) -> None:
        """Take the gradients of one part of a group, each times its scale; one that is zero or not finite has no direction."""
        flat = gradients.flatten(1)
        wide = wide_dtype(flat)
        if self.group_sums is None or self.unit_sum is None or self.counted is None:
            self.group_sums = torch.zeros(self.groups, flat.shape[1], dtype=wide, device=flat.device)
            self.unit_sum = torch.zeros(flat.shape[1], dtype=wide, device=flat.device)
            self.counted = torch.zeros((), dtype=torch.long, device=flat.device)
        size = max(1, CHUNK // flat.shape[1])
        for rows, factors in zip(torch.split(flat, size), torch.split(scale.to(wide), size), strict=True):
            norms = row_norms(rows)
            directed = torch.isfinite(norms) & (norms > 0)
            weights = torch.where(directed, 1 / norms, 0.0)
            widened = rows.to(wide)
            self.group_sums[group] += factors @ widened
            self.unit_sum += weights @ torch.where(directed.unsqueeze(1), widened, 0.0)
            self.counted += directed.sum()
        self.seen += len(flat)

    def sums(self, groups: int) -> Tensor:
        """The summed gradient of each of the first groups."""
        assert self.group_sums is not None
        return self.group_sums[:groups]

    def directionless(self) -> int:
        """How many samples had no direction."""
        return self.seen - int(self.counted if self.counted is not None else 0)

    def invariance(self) -> float:
        """(n‖mean u‖² - 1)/(n - 1) over the n unit vectors u: their mean pairwise cosine."""
        n = self.seen - self.directionless()
        if n < 2 or self.unit_sum is None:
            return math.nan
        return float((self.unit_sum.square().sum() / n - 1) / (n - 1))
