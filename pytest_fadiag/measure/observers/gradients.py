"""The size of the BP gradient: its norm at every state, and how much of it one unit of output error gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...judge.observers import GRADIENTS
from ...judge.records import BATCH
from ..accumulators import LayerNorms, Rows
from ..vectors import median, row_norms
from .base import Gradient, Observer, PassInfo


class GradientNorms(Observer[Gradient]):
    """The median ‖g_l‖ of every layer over the samples and the tokens that the head reads, and median(‖g_L‖/‖e‖)."""

    spec = GRADIENTS
    watches = (Gradient,)

    def __init__(self, info: PassInfo) -> None:
        samples = info.batches * BATCH
        self.norms = LayerNorms(samples)
        self.error_norms, self.unit_norms = Rows(samples), Rows(samples)

    def update(self, seen: Gradient) -> None:
        self.norms.add(seen.layer, seen.value, tokens=seen.tokens)
        if seen.layer == 0:  # the error of these samples is the same at every layer
            self.error_norms.add(seen.error.norms)
            self.unit_norms.add(row_norms(seen.error.units))

    def compute(self) -> dict[str, Any]:
        norms = self.norms.by_layer()
        read = [*map(_read, norms[:-1]), _read(norms[-1], by_sample=True)]
        scale = self.error_norms.all() / BATCH
        scaled = [layer * (scale if layer.ndim == 1 else scale.unsqueeze(1)) for layer in norms]
        there = self.unit_norms.all() != 0
        return {
            "bp_grad_norms": [median(layer[own]) for layer, own in zip(scaled, read, strict=True)],
            "gradient_per_unit_error": median(norms[-1][there][read[-1][there]]) / BATCH,
            "nonfinite_gradients": self.norms.nonfinite(),
            "tokens": norms[-1].shape[1] if norms[-1].ndim == 2 else None,
            "tokens_without_gradient": _without(norms, read),
            "batches": len(norms[0]) // BATCH,
            "samples": len(norms[0]),
        }


def _without(norms: Sequence[Tensor], read: Sequence[Tensor]) -> list[int]:
    """How many tokens of every layer are left out of all samples; nothing where no state has tokens."""
    if all(layer.ndim == 1 for layer in norms):
        return []
    return [0 if own.ndim == 1 else int((~own.any(0)).sum()) for own in read]


def _read(norms: Tensor, *, by_sample: bool = False) -> Tensor:
    """Which norms count: those of tokens that get a gradient in some sample, as all do but at h_L.

    There the head reads the class token alone of a ViT, or of each sequence the last token before its padding: of a sample
    that has a gradient, the tokens without one are those that it does not read. An all-zero gradient stays one.
    """
    there = norms != 0
    if norms.ndim == 1 or not bool(there.any()):
        return torch.ones_like(there)
    read = there.any(0).expand_as(there)
    return read & (there | ~there.any(1, keepdim=True)) if by_sample else read
