"""The size of the residual stream: the norm of every state."""

from __future__ import annotations

from typing import Any

from ...judge.records import BATCH, FIELD_OBSERVERS
from ..accumulators import LayerNorms
from ..vectors import median
from .base import Observer, Setup, State


class StateNorms(Observer[State]):
    """The median ‖h_l‖ of every layer over samples and tokens."""

    name = "states"
    version = FIELD_OBSERVERS[name]
    watches = (State,)

    def __init__(self, setup: Setup) -> None:
        self.norms = LayerNorms(setup.batches * BATCH)

    def update(self, seen: State) -> None:
        self.norms.add(seen.layer, seen.value)

    def compute(self) -> dict[str, Any]:
        norms = self.norms.by_layer()
        return {
            "residual_norms": [median(layer) for layer in norms],
            "nonfinite_states": self.norms.nonfinite(),
            "batches": len(norms[0]) // BATCH,
            "samples": len(norms[0]),
        }
