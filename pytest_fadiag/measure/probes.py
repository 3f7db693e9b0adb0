"""(e): linear probes along the stream, and along that of re-initialised blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from ..judge import records
from ..judge.errors import AuditError
from ..judge.margins import balanced_interval
from ..judge.records import LEAST_IMAGES
from ..judge.words import plural
from .redraw import as_initialised, redrawn_blocks, retake_statistics
from .types import Batch
from .vectors import median, row_norms, wide_dtype

if TYPE_CHECKING:
    from .run import NetworkSource

RIDGE = 1e-3
"""λ for each sample that a probe is fitted to."""
WIDEST = 2_048
"""States with more features are projected to so many."""
LEAST_OF_A_CLASS = 5
FEATURES = frozenset({"features"})


def halves(labels: Tensor) -> tuple[Tensor, bool]:
    """Which samples probes are fitted to, and whether they were shuffled.

    They are the first half; where a class is missing in a half, that of a fixed shuffle.
    """
    number, classes = len(labels), len(torch.unique(labels))
    fitted = torch.arange(number) < number // 2
    if all(len(torch.unique(labels[half])) == classes for half in (fitted, ~fitted)):
        return fitted, False
    order = torch.randperm(number, generator=torch.Generator().manual_seed(0))
    return torch.zeros(number, dtype=torch.bool).index_fill_(0, order[: number // 2], True), True


def balance(labels: Tensor, fitted: Tensor) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """Weights of the classes that count them equally, the samples that count, and who does not.

    Classes with fewer than 5 samples in a half are left out. The weights of the samples to fit to
    add up to their number.
    """
    classes = int(labels.max()) + 1
    counts, others = (torch.bincount(labels[half], minlength=classes) for half in (fitted, ~fitted))
    kept = (counts >= LEAST_OF_A_CLASS) & (others >= LEAST_OF_A_CLASS)
    number = counts[kept].sum() / kept.sum().clamp_min(1)
    weights = torch.where(kept, number / counts.clamp_min(1), 0.0).double()
    present = counts + others > 0
    return weights, kept[labels], tuple((present & ~kept).nonzero().flatten().tolist())


def balanced(right: Tensor, labels: Tensor) -> float:
    """The mean over classes of the share that is right."""
    counts = torch.bincount(labels)
    sums = torch.zeros(len(counts), dtype=torch.float64).index_add_(0, labels, right.double())
    return float((sums / counts)[counts > 0].mean())


@lru_cache(maxsize=4)
def projection(width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A fixed N(0, 1/2048) matrix."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(width, WIDEST, generator=generator, dtype=torch.float64)
    return drawn.div(WIDEST**0.5).to(device, dtype)


def normalised(features: Tensor) -> tuple[Tensor, int]:
    """Each sample's vector with mean 0 and variance 1, and how many samples are NaN or inf.

    These are zeros, as constant vectors are. There is no epsilon: a vector is scaled by its
    largest entry first.
    """
    wide = features.to(wide_dtype(features))
    largest = wide.abs().amax(1, keepdim=True)
    z = functional.layer_norm(wide / largest, wide.shape[1:], eps=0.0).nan_to_num(0.0)
    if z.shape[1] > WIDEST:
        z = z @ projection(z.shape[1], z.dtype, z.device)
    return z, int((~torch.isfinite(largest)).sum())


class Probe:
    """Ridge regression of one-hot labels on one state: all of fitting and scoring is here.

    Sums are kept, and no sample.
    """

    def __init__(self, weights: Tensor, like: Tensor) -> None:
        self.weights, width = weights.to(like), like.shape[1]
        self.gram, self.sums = like.new_zeros(width, width), like.new_zeros(len(weights), width)
        self.counts, self.nonfinite = like.new_zeros(len(weights)), 0
        self.solved: tuple[Tensor, Tensor] | None = None
        self.right: list[Tensor] = []

    def fit(self, z: Tensor, y: Tensor) -> None:
        """Take samples to fit to, each with the weight of its class."""
        weighted = z * self.weights[y].unsqueeze(1)
        self.gram.addmm_(weighted.T, z)
        self.sums.index_add_(0, y, weighted)
        self.counts += torch.bincount(y, minlength=len(self.counts)) * self.weights

    def score(self, z: Tensor, y: Tensor) -> None:
        """Take other samples, once all are fitted to: which of them are classified correctly."""
        if self.solved is None:  # inputs and targets are centred, so the bias is not penalised
            n = self.counts.sum()
            mean, share = self.sums.sum(0) / n, self.counts / n
            gram = self.gram - n * torch.outer(mean, mean)
            gram.diagonal().add_(RIDGE * n)
            products = self.sums.T - n * torch.outer(mean, share)
            weights = torch.cholesky_solve(products, torch.linalg.cholesky(gram))
            self.solved, self.gram = (weights, share - mean @ weights), gram.new_empty(0)
        weights, bias = self.solved
        self.right.append(torch.addmm(bias, z, weights).argmax(1) == y)


class Curve:
    """A probe at each of some states of one network."""

    def __init__(self, weights: Tensor, fitted: Tensor) -> None:
        self.weights, self.fitted = weights, fitted
        self.probes: list[Probe] = []

    def take(self, batch: Batch, states: slice, fit: bool, score: bool) -> None:
        """Fit to the samples of a batch that are in the fit half, score the others."""
        part = slice(batch.start, batch.start + len(batch.y))
        chosen = self.fitted[part].to(batch.y.device)
        for layer, features in enumerate((batch.features or [])[states]):
            z, broken = normalised(features)
            if layer == len(self.probes):
                self.probes.append(Probe(self.weights, z))
            probe = self.probes[layer]
            probe.nonfinite += fit * broken
            if fit and bool(chosen.any()):
                probe.fit(z[chosen], batch.y[chosen])
            if score and not bool(chosen.all()):
                probe.score(z[~chosen], batch.y[~chosen])

    def outcomes(self) -> list[Tensor]:
        """Which samples of the other half each probe has right, 0 or 1."""
        return [torch.cat(probe.right).double().cpu() for probe in self.probes]


class Depth:
    """Probes at every state of a network and of its null.

    What keeps them from being measured is part of the result. ``seeds`` are those of the null:
    none for a control, which is a null itself. ``states`` limits the probes to the first states.
    """

    def __init__(
        self, source: NetworkSource, seeds: Sequence[int] = (0, 1), states: int | None = None
    ) -> None:
        self.source, self.seeds, self.states, self.problem = source, seeds, slice(states), ""
        self.network, self.stream, self.labels = source.network, source.stream, source.labels
        self.fitted, shuffled = halves(self.labels)
        self.passes = ((True, False), (False, True)) if shuffled else ((True, True),)
        """Whether a pass over the data fits and whether it scores: the fit half may come last."""
        self.weights, kept, self.left_out = balance(self.labels, self.fitted)
        self.read = kept[~self.fitted]
        """Which of the samples to read belong to classes that count."""
        self.classes = self.labels[~self.fitted][self.read]
        self.own = Curve(self.weights, self.fitted)
        self.hits: list[Tensor] = []
        self.change: list[list[Tensor]] = [[] for _ in self.stream.blocks]
        try:
            if len(self.labels) < LEAST_IMAGES:
                images = plural(len(self.labels), "test image")
                raise AuditError(
                    f"{images}; linear probes need {LEAST_IMAGES:,}, half of them to fit"
                )
            self.words = source.pooling.words
        except AuditError as error:
            self.problem = str(error)
        needs = FEATURES | {"states"} if seeds else FEATURES
        self.needs = frozenset[str]() if self.problem else needs

    def update(self, batch: Batch) -> None:
        """Fit in passing, and score too where the fit half comes first."""
        if self.problem:
            return
        self.own.take(batch, self.states, *self.passes[0])
        if batch.outputs is not None:
            self.hits.append(self.source.task.hits(batch.outputs, batch.y).cpu())
        for block, (before, after) in enumerate(pairwise(batch.states or ())):
            if before.shape == after.shape:
                tokens = self.stream.tokens[block]
                both = (row_norms(h if tokens else h.flatten(1)) for h in (after - before, before))
                self.change[block].append(next(both) / next(both))

    def compute(self) -> dict[str, Any]:
        """The record of (e)."""
        if self.problem:
            return {"depth": records.Depth(problem=self.problem)}
        for fit, score in self.passes[1:]:
            for batch in self.source.batches(FEATURES):
                self.own.take(batch, self.states, fit, score)
        own = [right[self.read] for right in self.own.outcomes()]
        null, failed, null_problem = self._null(own[0])
        network = torch.cat(self.hits)[~self.fitted][self.read]
        return {
            "depth": records.Depth(
                probes=tuple(balanced(right, self.classes) for right in own),
                null=tuple(tuple(balanced(right, self.classes) for right in one) for one in null),
                interval=self._interval(own, null, 0, len(own) - 1),
                step_intervals=tuple(
                    self._interval(own, null, block, block + 1) for block in range(len(own) - 1)
                ),
                change=tuple(
                    median(torch.cat(parts)) if parts else math.nan for parts in self.change
                ),
                fitted=int((self.fitted & (self.weights[self.labels] > 0)).sum()),
                read=int(self.read.sum()),
                network=balanced(network, self.classes),
                left_out=self.left_out,
                tokens=self.words,
                shuffled=len(self.passes) > 1,
                nonfinite=tuple(probe.nonfinite for probe in self.own.probes),
                as_initialised=as_initialised(self.network, self.stream) if self.seeds else (),
                not_reinitialised=failed,
                null_problem=null_problem,
            )
        }

    def _null(self, first: Tensor) -> tuple[list[list[Tensor]], tuple[str, ...], str]:
        """The outcomes with re-initialised blocks for each seed, or the blocks that cannot be
        re-initialised, or another reason why there are none.

        ``first`` are the outcomes at h_0, which is the network's own.
        """
        null = []
        try:
            for seed in self.seeds:
                copy, failed = redrawn_blocks(self.network, self.stream, seed)
                if failed:
                    return [], failed, ""
                retake_statistics(copy, self.stream, self.source.chosen(self.fitted))
                curve, other = Curve(self.weights, self.fitted), self.source.redrawn(copy)
                for fit, score in self.passes:
                    for batch in other.batches(FEATURES):
                        curve.take(batch, slice(1, None), fit, score)
                # States that are not finite would make every network look better than its null.
                if broken := max(probe.nonfinite for probe in curve.probes):
                    images = plural(broken, "image")
                    return [], (), f"with re-initialised blocks, states are NaN or inf for {images}"
                null.append([first, *(right[self.read] for right in curve.outcomes())])
        except AuditError as error:
            return [], (), str(error)
        return null, (), ""

    def _interval(
        self, own: Sequence[Tensor], null: Sequence[Sequence[Tensor]], start: int, end: int
    ) -> tuple[float, float]:
        """That of the gain from one state to another, beyond the null's where it is positive."""
        gain = own[end] - own[start]
        if null:
            by_chance = torch.stack([draw[end] - draw[start] for draw in null]).mean(0)
            gain = gain - by_chance if balanced(by_chance, self.classes) > 0 else gain
        return balanced_interval(gain.tolist(), self.classes.tolist())
