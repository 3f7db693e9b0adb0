"""The effective rank (tr C)²/tr C² of the states' covariance C: d if all directions are used alike."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pytest_fadiag import Batch


class StateRanks:
    """Keeps the first and second moments of the states, never the states."""

    needs = frozenset({"states"})

    def __init__(self, source: object) -> None:
        self.origins: list[Tensor] = []
        self.sums: list[Tensor] = []
        self.products: list[Tensor] = []
        self.samples = 0

    def update(self, batch: Batch) -> None:
        states = [pooled(state.double()) for state in batch.states or ()]
        if not self.samples:
            self.origins = [h[0] for h in states]
            self.sums = [torch.zeros_like(h[0]) for h in states]
            self.products = [torch.zeros_like(torch.outer(h[0], h[0])) for h in states]
        self.samples += len(batch.y)
        for layer, state in enumerate(states):
            h = state - self.origins[layer]  # else a large mean drowns the spread around it
            self.sums[layer] += h.sum(0)
            self.products[layer] += h.T @ h

    def compute(self) -> dict[str, list[float]]:
        return {"effective_ranks": [self._rank(layer) for layer in range(len(self.sums))]}

    def _rank(self, layer: int) -> float:
        mean = self.sums[layer] / self.samples
        covariance = self.products[layer] / self.samples - torch.outer(mean, mean)
        largest = covariance.abs().amax()
        if not (bool(torch.isfinite(largest)) and largest > 0):
            return math.nan
        covariance = covariance / largest
        return float(covariance.trace() ** 2 / covariance.square().sum())


def pooled(h: Tensor) -> Tensor:
    """The mean over tokens, or over space."""
    return h.mean(1) if h.ndim == 3 else h.flatten(2).mean(2) if h.ndim > 3 else h
