"""The output error: how large it is, and whether disjoint batches agree on its direction."""

from __future__ import annotations

from typing import Any

from ...judge.observers import OUTPUT_ERROR
from ...judge.records import BATCH
from ..accumulators import GroupSums, Rows
from ..vectors import median
from .base import Observer, OutputError, PassInfo


class OutputErrors(Observer[OutputError]):
    """The median ‖e‖, and the mean pairwise cosine of the batch-mean output errors."""

    spec = OUTPUT_ERROR
    watches = (OutputError,)

    def __init__(self, info: PassInfo) -> None:
        self.norms = Rows(info.batches * BATCH)
        self.batch_sums = GroupSums(info.batches)

    def update(self, seen: OutputError) -> None:
        self.norms.add(seen.norms)
        self.batch_sums.add(seen.samples.batch, seen.units, seen.norms)

    def compute(self) -> dict[str, Any]:
        return {"output_error_norm": median(self.norms.all()), "output_error_drift": self.batch_sums.cosine()}
