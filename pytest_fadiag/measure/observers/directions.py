"""The direction of the BP gradient at layer L//2: whether disjoint batches agree on it, and whether classes do."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ...judge.observers import DIRECTIONS
from ...judge.records import BATCH
from ..accumulators import GroupSums
from ..vectors import row_norms, wide_dtype
from .base import Gradient, Observer, Output, PassInfo

CHUNK = 1 << 21
"""How many gradient entries are widened to float64 at once, so that little memory is needed beside the network's."""
MOST_ENTRIES = 1 << 23
"""How many numbers the sums of all classes may hold; gradients that are too wide for that are sketched."""


class GradientDirections(Observer[Output | Gradient]):
    """The mean pairwise cosine of the batch-mean gradients, and the mean product of the classes' mean unit gradients."""

    spec = DIRECTIONS
    watches = (Output, Gradient)

    def __init__(self, info: PassInfo) -> None:
        self.batch_sums = GroupSums(info.batches)
        self.class_sums: ClassSums | None = None
        self.predictions: Tensor | None = None
        self.layer = self.samples = 0

    def update(self, seen: Output | Gradient) -> None:
        if isinstance(seen, Output):
            predicted = torch.bincount(seen.logits.argmax(1), minlength=seen.logits.shape[1])
            self.predictions = predicted if self.predictions is None else self.predictions + predicted
        elif seen.layer == seen.depth // 2:
            self._add(seen)

    def _add(self, seen: Gradient) -> None:
        flat = seen.value.flatten(1)
        wide, size = wide_dtype(flat), max(1, CHUNK // flat.shape[1])
        if self.class_sums is None:
            assert self.predictions is not None
            self.class_sums = ClassSums(len(self.predictions), flat.shape[1], flat.device, wide)
        parts = (torch.split(rows, size) for rows in (flat, seen.error.norms, seen.samples.labels))
        for rows, error_norms, labels in zip(*parts, strict=True):
            norms, widened = row_norms(rows), rows.to(wide)
            has_direction = torch.isfinite(norms) & (norms > 0)
            self.batch_sums.add(seen.samples.batch, widened, error_norms)
            units = torch.where(has_direction.unsqueeze(1), widened / norms.unsqueeze(1), 0.0)
            self.class_sums.add(labels, units, has_direction)
        self.layer = seen.layer
        self.samples += len(flat)

    def compute(self) -> dict[str, Any]:
        assert self.class_sums is not None and self.predictions is not None
        classes = self.class_sums
        present = classes.samples > 0
        return {
            "stability_layer": self.layer,
            "cross_batch_stability": self.batch_sums.cosine(),
            "sample_invariance": classes.invariance(without=int(self.predictions.argmax())),
            "zero_gradient_samples": self.samples - int(classes.directions.sum()),
            "probe_classes": int(present.sum()),
            "largest_class_share": float(classes.samples.max() / classes.samples.sum()),
            "batches": self.samples // BATCH,
            "samples": self.samples,
        }


class ClassSums:
    """The sum of the unit gradients of each class.

    Where one sum a class would take too much memory (a thousand classes, and tokens by the hundred), what is summed is a
    sketch: each entry, with a random sign, goes to one of fewer places. Products of two gradients are kept on average.
    """

    def __init__(self, classes: int, width: int, device: torch.device, dtype: torch.dtype) -> None:
        places = max(1, MOST_ENTRIES // classes)
        self.places: Tensor | None = None
        if width > places:
            generator = torch.Generator().manual_seed(0)
            self.places = torch.randint(places, (width,), generator=generator).to(device)
            self.signs = (2 * torch.randint(2, (width,), generator=generator) - 1).to(device, dtype)
        self.sums = torch.zeros(classes, min(width, places), dtype=dtype, device=device)
        self.samples, self.directions = (torch.zeros(classes, dtype=torch.long, device=device) for _ in range(2))

    def add(self, labels: Tensor, units: Tensor, has_direction: Tensor) -> None:
        """Add unit gradients, each to the sum of its class."""
        if self.places is not None:
            sketch = units.new_zeros(len(units), self.sums.shape[1])
            units = sketch.index_add_(1, self.places, units * self.signs)
        self.sums.index_add_(0, labels, units)
        self.samples.index_add_(0, labels, torch.ones_like(labels))
        self.directions.index_add_(0, labels, has_direction.long())

    def invariance(self, without: int) -> float:
        """The mean of ⟨m_a, m_b⟩ over pairs of classes, m their mean unit gradients, one class apart; NaN without a pair."""
        left = self.directions > 0
        left[without] = False
        means = self.sums[left] / self.directions[left].unsqueeze(1)
        k = len(means)
        if k < 2:
            return math.nan
        return float((means.sum(0).square().sum() - means.square().sum()) / (k * (k - 1)))
