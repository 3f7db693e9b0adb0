"""How the reference of the network was proven."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ...judge.observers import REFERENCE
from ..reference import Proof
from .base import FirstBatch, Observer, PassInfo


class ReferenceProof(Observer[FirstBatch]):
    """The relative error of autograd against finite differences, or why there is no reference."""

    spec = REFERENCE
    watches = (FirstBatch,)

    def __init__(self, info: PassInfo) -> None:
        self.proof: Proof | None = None

    def update(self, seen: FirstBatch) -> None:
        self.proof = seen.proof

    def compute(self) -> dict[str, Any]:
        assert self.proof is not None
        return {"reference": asdict(self.proof.record), "reference_error": self.proof.error}
