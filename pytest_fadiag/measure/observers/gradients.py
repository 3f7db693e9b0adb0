"""The size of the BP gradient: its norm at every state, and how much of it one unit of output error gives."""

from __future__ import annotations

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
        read = [_read_tokens(layer) for layer in norms]
        scale = self.error_norms.all() / BATCH
        return {
            "bp_grad_norms": [median(_times(layer, scale)[own]) for layer, own in zip(norms, read, strict=True)],
            "gradient_per_unit_error": median(norms[-1][_of(read[-1], self.unit_norms.all() != 0)]) / BATCH,
            "nonfinite_gradients": self.norms.nonfinite(),
            "tokens": norms[-1].shape[1] if norms[-1].ndim == 2 else None,
            "tokens_without_gradient": [] if all(layer.ndim == 1 for layer in norms) else [_without(own) for own in read],
            "batches": len(norms[0]) // BATCH,
            "samples": len(norms[0]),
        }


def _without(read: Tensor) -> int:
    """How many tokens of a sample are left out, by the median."""
    return 0 if read.ndim == 1 else int(median((~read).sum(1)))


def _read_tokens(norms: Tensor) -> Tensor:
    """Which norms count: of a sample with a gradient those of the tokens that get one.

    Padding gets none, nor at h_L all but the class token of a ViT. A sample without any gradient counts with a zero for every
    token that another sample reads, and where none has any all are zeros.
    """
    if norms.ndim == 1:
        return torch.ones_like(norms, dtype=torch.bool)
    read = norms != 0
    some = read.any(0) if bool(read.any()) else torch.ones_like(read[0])
    return torch.where(read.any(1, keepdim=True), read, some)


def _times(norms: Tensor, scale: Tensor) -> Tensor:
    return norms * (scale if norms.ndim == 1 else scale.unsqueeze(1))


def _of(read: Tensor, samples: Tensor) -> Tensor:
    return read & (samples if read.ndim == 1 else samples.unsqueeze(1))
