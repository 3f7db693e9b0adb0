"""The effective rank (tr C)²/tr C² of the states' covariance C: d if all directions are used alike, 1 if one alone is."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pytest_fadiag import Observer, PassInfo, State

from .diagnostic import RANKS


class StateRanks(Observer[State]):
    """Keeps the states' first and second moments, never the states."""

    spec = RANKS
    watches = (State,)

    def __init__(self, info: PassInfo) -> None:
        self.origins: dict[int, Tensor] = {}
        self.sums: dict[int, Tensor] = {}
        self.products: dict[int, Tensor] = {}
        self.samples: dict[int, int] = {}

    def update(self, seen: State) -> None:
        h = seen.value.detach().double()
        h = h.mean(1) if h.ndim == 3 else h.flatten(2).mean(2) if h.ndim > 3 else h  # over tokens, or over space
        layer = seen.layer
        if layer not in self.sums:
            self.origins[layer] = h[0]
            self.sums[layer], self.products[layer] = h.new_zeros(h.shape[1]), h.new_zeros(h.shape[1], h.shape[1])
        h = h - self.origins[layer]  # else a large mean drowns the spread around it
        self.sums[layer] += h.sum(0)
        self.products[layer] += h.T @ h
        self.samples[layer] = self.samples.get(layer, 0) + len(h)

    def compute(self) -> dict[str, list[float]]:
        return {"effective_ranks": [self._rank(layer) for layer in sorted(self.sums)]}

    def _rank(self, layer: int) -> float:
        mean = self.sums[layer] / self.samples[layer]
        covariance = self.products[layer] / self.samples[layer] - torch.outer(mean, mean)
        largest = covariance.abs().amax()
        if not (bool(torch.isfinite(largest)) and largest > 0):
            return math.nan
        covariance = covariance / largest
        return float(covariance.trace() ** 2 / covariance.square().sum())
