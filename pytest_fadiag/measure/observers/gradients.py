"""The size of the BP gradient: its norm at every state, and how much of it one unit of output error gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
            "bp_grad_norms": [median(layer * (scale if layer.ndim == 1 else scale.unsqueeze(1))) for layer in read],
            "gradient_per_unit_error": median(read[-1][self.unit_norms.all() != 0]) / BATCH,
            "nonfinite_gradients": self.norms.nonfinite(),
            "tokens": norms[-1].shape[1] if norms[-1].ndim == 2 else None,
            "tokens_without_gradient": _without(norms, read),
            "batches": len(norms[0]) // BATCH,
            "samples": len(norms[0]),
        }


def _without(norms: Sequence[Tensor], read: Sequence[Tensor]) -> list[int]:
    """How many tokens of every layer are left out; nothing where no state has tokens."""
    if all(layer.ndim == 1 for layer in norms):
        return []
    return [0 if layer.ndim == 1 else layer.shape[1] - own.shape[1] for layer, own in zip(norms, read, strict=True)]


def _read_tokens(norms: Tensor) -> Tensor:
    """The norms without tokens that get no gradient in any sample, as all but the class token of a ViT at h_L.

    Unless none gets any: an all-zero gradient stays one.
    """
    if norms.ndim == 1:
        return norms
    read = (norms != 0).any(0)
    return norms[:, read] if bool(read.any()) else norms
