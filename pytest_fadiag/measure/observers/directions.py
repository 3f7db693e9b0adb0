"""The direction of the BP gradient at layer L//2: whether disjoint batches agree on it, and whether single samples do."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ...judge.observers import DIRECTIONS
from ...judge.records import BATCH
from ..accumulators import GroupSums
from ..vectors import row_norms, wide_dtype
from .base import Gradient, Observer, PassInfo

CHUNK = 1 << 21
"""How many gradient entries are widened to float64 at once, so that little memory is needed beside the network's."""


class GradientDirections(Observer[Gradient]):
    """The mean pairwise cosine of the batch-mean gradients, and that of the samples' unit gradients."""

    spec = DIRECTIONS
    watches = (Gradient,)

    def __init__(self, info: PassInfo) -> None:
        self.batch_sums = GroupSums(info.batches)
        self.unit_sum: Tensor | None = None
        self.with_direction: Tensor | None = None
        self.layer = self.samples = 0

    def update(self, seen: Gradient) -> None:
        if seen.layer != seen.depth // 2:
            return
        flat = seen.value.flatten(1)
        wide, size = wide_dtype(flat), max(1, CHUNK // flat.shape[1])
        if self.unit_sum is None or self.with_direction is None:
            self.unit_sum = torch.zeros(flat.shape[1], dtype=wide, device=flat.device)
            self.with_direction = torch.zeros((), dtype=torch.long, device=flat.device)
        for rows, error_norms in zip(torch.split(flat, size), torch.split(seen.error.norms, size), strict=True):
            norms, widened = row_norms(rows), rows.to(wide)
            has_direction = torch.isfinite(norms) & (norms > 0)
            self.batch_sums.add(seen.samples.batch, widened, error_norms)
            self.unit_sum += torch.where(has_direction, 1 / norms, 0.0) @ torch.where(has_direction.unsqueeze(1), widened, 0.0)
            self.with_direction += has_direction.sum()
        self.layer = seen.layer
        self.samples += len(flat)

    def compute(self) -> dict[str, Any]:
        assert self.with_direction is not None
        with_direction = int(self.with_direction)
        return {
            "stability_layer": self.layer,
            "cross_batch_stability": self.batch_sums.cosine(),
            "sample_invariance": self._invariance(with_direction),
            "zero_gradient_samples": self.samples - with_direction,
            "batches": self.samples // BATCH,
            "samples": self.samples,
        }

    def _invariance(self, n: int) -> float:
        """(n‖mean u‖² - 1)/(n - 1) over the n unit vectors u: their mean pairwise cosine."""
        if n < 2 or self.unit_sum is None:
            return math.nan
        return float((self.unit_sum.square().sum() / n - 1) / (n - 1))
