"""The size of the residual stream: the norm of every state."""

from __future__ import annotations

from typing import Any

from ...judge.observers import STATES
from ...judge.records import BATCH
from ..accumulators import LayerNorms
from ..vectors import median
from .base import Observer, PassInfo, State


class StateNorms(Observer[State]):
    """The median ‖h_l‖ of every layer over samples and tokens."""

    spec = STATES
    watches = (State,)

    def __init__(self, info: PassInfo) -> None:
        self.norms = LayerNorms(info.batches * BATCH)

    def update(self, seen: State) -> None:
        self.norms.add(seen.layer, seen.value, tokens=seen.tokens)

    def compute(self) -> dict[str, Any]:
        norms = self.norms.by_layer()
        return {
            "residual_norms": [median(layer) for layer in norms],
            "nonfinite_states": self.norms.nonfinite(),
            "batches": len(norms[0]) // BATCH,
            "samples": len(norms[0]),
        }
