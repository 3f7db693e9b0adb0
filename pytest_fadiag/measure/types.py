"""Between a source of batches and the metrics: a batch as seen, and how it is taken in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from .task import OutputError

ModelInput = Tensor | dict[str, Tensor]
Numbers = dict[str, Any]
"""Fields of a measurement, by name."""
Progress = Callable[[str, int, int], None]
"""Takes the phase, and how many of how many of its parts are done."""


def columns_of(rows: Sequence[Numbers]) -> Numbers:
    """By name, what all rows say."""
    return {name: tuple(row[name] for row in rows) for name in rows[0]}


@dataclass(eq=False)
class Batch:
    """Some samples as seen, tensors detached, samples first; what is not needed is empty."""

    x: ModelInput
    """On the network's device; a metric that runs networks on it runs them on copies of it."""
    y: Tensor
    start: int
    """The number of the first sample in the data."""
    evaluation: bool
    """Whether it is one of the first ten batches of exactly 128, on which gradients are taken."""
    outputs: Tensor = field(default_factory=lambda: torch.empty(0))
    error: OutputError = field(default_factory=lambda: OutputError(*torch.empty(2, 0)))
    """e_i = ∂ℓ_i/∂outputs_i as unit vectors and sizes, float64."""
    states: list[Tensor] = field(default_factory=list)
    """h_0 … h_L."""
    gradients: list[Tensor] = field(default_factory=list)
    """What the unit error gives at h_0 … h_L: ∂ℓ_i/∂h_l,i is ‖e_i‖ times it."""
    features: list[Tensor] = field(default_factory=list)
    """h_0 … h_L pooled as the head reads them, ``[N, features]``: what linear probes see."""
    whole: Batch | None = None
    """The inputs and labels of the evaluation batch that these samples begin."""


class Metric(Protocol):
    """Takes in batches and computes fields of a ``Measurement``."""

    @property
    def needs(self) -> frozenset[str]:
        """The fields that batches must hold; inputs and labels always are there.

        ``outputs`` and ``features`` come with all batches, ``error``, ``states`` and ``gradients``
        with evaluation batches, all in slices of samples. With ``reference`` alone come the inputs
        and labels of whole evaluation batches; the metric is left out where the reference is not
        proven.
        """

    def update(self, batch: Batch) -> None:
        """Take in a batch."""

    def compute(self) -> Numbers:
        """What was measured."""
