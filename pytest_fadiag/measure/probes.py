"""Linear probes of the classes in the states of a stream: ridge regression on normalised states, fitted and read in passing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ..judge.errors import AuditError
from ..judge.wording import count
from .accumulators import Rows
from .features import Layout
from .vectors import wide_dtype

RIDGE = 1e-3
"""λ for each sample that a probe is fitted to."""
WIDEST = 2_048
"""States with more features are projected to so many."""


GRID = 1_024
"""As many features at most has a state of which the places count: more cells would cost more than the network."""
FLAT = 2.0**40
"""How many times as large as the spread of its entries the mean of a vector of float32 is only if they are all the same."""


class Features:
    """What probes see of a state: a vector of mean 0 and variance 1 for each sample.

    A feature map is pooled over space, a sequence of tokens over those that the head reads (all, where nobody knows). Where
    the head tells places apart, the mean over all of them is not what it reads: that of each cell of a grid is taken.
    """

    def __init__(self, layout: Layout, tokens: Tensor | None = None, *, places: bool = False) -> None:
        self.layout, self.tokens, self.places = layout, tokens, places
        self.projections: dict[int, Tensor] = {}

    def __call__(self, value: Tensor) -> tuple[Tensor, int]:
        """z of every sample, zeros for a vector that is constant or not finite, and how many of the latter there are.

        There is no epsilon: a vector is scaled by its largest entry first, unless what is narrower than float64 leaves room.
        """
        pooled = self._pooled(value)
        if value.dtype != pooled.dtype:
            z, mean, inverse = torch.native_layer_norm(pooled, pooled.shape[1:], None, None, 0.0)
            if bool((inverse * mean.abs() < FLAT).all()):  # not where one is constant, or not finite
                return self._projected(z), 0
        return self._scaled(pooled)

    def _scaled(self, pooled: Tensor) -> tuple[Tensor, int]:
        largest = pooled.abs().amax(1, keepdim=True)
        finite = torch.isfinite(largest)
        pooled = torch.where(finite, pooled / torch.where(finite & (largest > 0), largest, 1.0), 0.0)
        centred = pooled - pooled.mean(1, keepdim=True)
        deviation = centred.square().mean(1, keepdim=True).sqrt()
        return self._projected(centred / torch.where(deviation > 0, deviation, 1.0)), int((~finite).sum())

    def _pooled(self, value: Tensor) -> Tensor:
        dtype = wide_dtype(value)
        if value.ndim == 2:
            return value.to(dtype)
        if self.places:
            by_channel = self._by_channel(value).to(dtype)
            pool: Any = getattr(functional, f"adaptive_avg_pool{by_channel.ndim - 2}d")
            cells: Tensor = pool(by_channel, _cells(by_channel))
            return cells.flatten(1)
        tokens = self._tokens_of(value)
        read = self.layout.by_feature(value) if tokens is None else self._read(value, tokens)
        pooled: Tensor = read.mean(1, dtype=dtype)
        return pooled

    def _by_channel(self, value: Tensor) -> Tensor:
        """What the head reads of a state, features in the second dimension, places behind."""
        tokens = self._tokens_of(value)
        if tokens is not None:
            return self._read(value, tokens).transpose(1, 2)
        return value if self.layout.is_map(value) else value.movedim(-1, 1)

    def in_words(self, value: Tensor) -> str:
        """Which tokens or places of a state are read, where these are not all of them together."""
        if self.places and value.ndim > 2:
            return f"the {' × '.join(map(str, _cells(self._by_channel(value))))} cells"
        tokens = self._tokens_of(value)
        if tokens is None or bool(tokens.all()):
            return ""
        read = tokens.nonzero().flatten().tolist()
        return "the class token" if read == [0] else f"the {count(len(read), 'token')} that the head reads"

    def _tokens_of(self, value: Tensor) -> Tensor | None:
        """Those that the head reads, where a state is a sequence of tokens and somebody knows."""
        return self.tokens if value.ndim == 3 and not self.layout.is_map(value) else None

    @staticmethod
    def _read(value: Tensor, tokens: Tensor) -> Tensor:
        """The tokens that the head reads; of a state with another number of tokens the first ones, or all."""
        read = tokens.nonzero().flatten()
        if len(read) == len(tokens):
            return value
        if value.shape[1] == len(tokens):
            return value[:, read]
        if int(read[-1]) == len(read) - 1 < value.shape[1]:
            return value[:, : len(read)]
        raise AuditError(
            f"the head reads {len(read)} of the {len(tokens)} tokens of h_L, not the first ones, and another state has "
            f"{value.shape[1]} tokens: which of these they are cannot be told"
        )

    def _projected(self, z: Tensor) -> Tensor:
        width = z.shape[1]
        if width <= WIDEST:
            return z
        if width not in self.projections:
            drawn = torch.randn(width, WIDEST, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
            self.projections[width] = (drawn / WIDEST**0.5).to(z)
        return z @ self.projections[width]


def _cells(by_channel: Tensor) -> list[int]:
    """How many cells a grid has in each direction, for at most so many features in all."""
    channels, *sizes = by_channel.shape[1:]
    most = int((GRID / channels) ** (1 / len(sizes)) + 1e-9)
    if most < 2 <= max(sizes):
        raise AuditError(
            f"the head tells places apart, and with {channels} features at each no grid of at most {GRID:,} is left to probe"
        )
    return [min(max(most, 1), size) for size in sizes]


class Probe:
    """One ridge regression of the classes, by one-hot targets; sums are kept, and no sample."""

    def __init__(self, width: int, like: Tensor) -> None:
        self.gram = like.new_zeros(width, width)
        self.sums = like.new_zeros(0, width)
        self.counts = like.new_zeros(0)
        self.solved: tuple[Tensor, Tensor] | None = None

    def fit(self, z: Tensor, labels: Tensor, counts: Tensor) -> None:
        """Take samples to fit to, and how many of them each class has."""
        more = len(counts) - len(self.sums)
        if more > 0:
            self.sums = torch.cat([self.sums, self.sums.new_zeros(more, self.sums.shape[1])])
            self.counts = torch.cat([self.counts, self.counts.new_zeros(more)])
        self.gram.addmm_(z.T, z)
        self.sums.index_add_(0, labels, z)
        self.counts[: len(counts)] += counts

    def predict(self, z: Tensor) -> Tensor:
        """The classes of other samples."""
        if self.solved is None:
            self.solved = self._solution()
        weights, bias = self.solved
        return torch.addmm(bias, z, weights).argmax(1)

    def _solution(self) -> tuple[Tensor, Tensor]:
        """Inputs and targets are centred, so that the bias is not penalised."""
        n = self.counts.sum()
        mean, share = self.sums.sum(0) / n, self.counts / n
        gram = self.gram - n * torch.outer(mean, mean)
        gram.diagonal().add_(RIDGE * n)
        weights = torch.cholesky_solve(self.sums.T - n * torch.outer(mean, share), torch.linalg.cholesky(gram))
        self.gram = gram[:0]
        return weights, share - mean @ weights


class Part:
    """The labels of some samples, and which of them probes are fitted to or read on, the same at every state."""

    def __init__(self, labels: Tensor, fitted: Tensor) -> None:
        some, all_of_them = bool(fitted.any()), bool(fitted.all())
        self.fit = slice(None) if all_of_them else fitted if some else None
        self.read = None if all_of_them else ~fitted if some else slice(None)
        self.fit_labels, self.read_labels = (labels[:0] if part is None else labels[part] for part in (self.fit, self.read))
        self.counts = torch.bincount(self.fit_labels)


class Curve:
    """Probes at the states of one network, and which of the samples that they are read on each of them has right."""

    def __init__(self, features: Features, read: int) -> None:
        self.features, self.read = features, read
        self.probes: dict[int, Probe] = {}
        self.right: dict[int, Rows] = {}
        self.broken: dict[int, int] = {}
        self.tokens = ""
        """Which tokens are read of h_0."""

    def take(self, layer: int, value: Tensor, part: Part) -> None:
        """A state of some samples, samples first; probes are fitted to some of them, and read on the others behind these."""
        z, broken = self.features(value)
        if layer not in self.probes:
            self.probes[layer], self.right[layer] = Probe(z.shape[1], z), Rows(self.read)
            self.tokens = self.features.in_words(value) if layer == 0 else self.tokens
            self.broken[layer] = 0
        self.broken[layer] += broken
        if part.fit is not None:
            self.probes[layer].fit(z[part.fit], part.fit_labels, part.counts)
        if part.read is not None:
            self.right[layer].add(self.probes[layer].predict(z[part.read]) == part.read_labels)

    def outcomes(self) -> list[Tensor]:
        """Which images each probe has right, from h_0 on, as far as there are any."""
        return [self.right[layer].all().double().cpu() for layer in sorted(self.right)]
