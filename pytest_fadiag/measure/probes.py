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
from ..judge.margins import Z95, mean_interval
from ..judge.records import LEAST_IMAGES
from ..judge.words import plural
from .redraw import as_initialised, retake_statistics, with_reinitialised_blocks
from .types import Batch
from .vectors import median, row_norms

if TYPE_CHECKING:
    from .run import NetworkSource

RIDGE = 1e-3
"""λ for each sample that a probe is fitted to."""
WIDEST = 2_048
"""States with more features are projected to so many."""
LEAST_OF_A_CLASS = 5
TOKENS = 5_000
"""How many tokens of each half of the sequences are probed at most."""
SEEDS = (0, 1)
"""Those of the null."""
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
    means = torch.bincount(labels, right.double()) / torch.bincount(labels)
    return float(means.nanmean())


def balanced_interval(differences: Tensor, labels: Tensor) -> tuple[float, float]:
    """The 95 % interval of the mean over classes of mean differences, in pp, stratified by class.

    As for a margin two images are added, a part of them to each class.
    """
    _, present = torch.unique(labels, return_inverse=True)
    powers = (differences.double() ** power for power in range(3))
    counts, sums, squares = (torch.bincount(present, own) for own in powers)
    means, added = sums / counts, 2 / len(counts)
    number = counts + added
    variance = (((squares + added) / number - means.square()) / number).sum() / len(counts) ** 2
    mean, half = 100 * float(means.mean()), 100 * Z95 * float(variance.clamp_min(0).sqrt())
    return max(mean - half, -100.0), min(mean + half, 100.0)


def clustered(values: Tensor, clusters: Tensor) -> Tensor:
    """The mean of the values, with what each cluster of any size adds to it or takes from it."""
    _, used = torch.unique(clusters, return_inverse=True)
    mean, sums = values.double().mean(), torch.zeros(int(used.max()) + 1, dtype=torch.float64)
    return mean + sums.index_add_(0, used, values - mean) * len(sums) / len(values)


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
    wide = features.double()
    largest = wide.abs().amax(1, keepdim=True)
    z = functional.layer_norm(wide / largest, wide.shape[1:], eps=0.0).nan_to_num(0.0)
    if z.shape[1] > WIDEST:
        z = z @ projection(z.shape[1], z.dtype, z.device)
    return z, int((~torch.isfinite(largest)).sum())


class Units:
    """What probes are fitted to and read on: samples, or some tokens of each half of sequences."""

    def __init__(self, source: NetworkSource) -> None:
        self.task, y = source.task, source.targets
        self.left_out: tuple[int, ...] = ()
        self.per = y.shape[1] if self.task.kind == "tokens" else 1
        """How many units each sample has."""
        if self.task.kind == "tokens":
            self.half, self.shuffled = torch.arange(len(y)) < len(y) // 2, False
            ranks = self.task.ranks[y.clamp_min(0)]
            self.targets = torch.where(y < 0, -1, ranks).flatten()
            kept = torch.zeros(len(self.targets), dtype=torch.bool)
            of_half, generator = self.half.repeat_interleave(self.per), torch.Generator()
            for half in (of_half, ~of_half):
                there = (half & (self.targets >= 0)).nonzero().flatten()
                order = torch.randperm(len(there), generator=generator.manual_seed(0))
                kept[there[order[:TOKENS]]] = True
        else:
            self.half, self.shuffled = halves(self.task.groups(y))
            self.targets, of_half, kept = y, self.half, torch.ones(len(y), dtype=torch.bool)
        self.weights = torch.ones(len(self.targets), dtype=torch.float64)
        if self.task.kind == "classes":
            by_class, kept, self.left_out = balance(y, self.half)
            self.weights = by_class[y]
        self.fit, self.read = of_half & kept, ~of_half & kept
        self.own, self.classes = self.targets[self.read], int(self.targets.max()) + 1
        """The targets that are read; how many classes or tokens there are."""
        self.clusters = source.clusters.repeat_interleave(self.per)[self.read]
        spread = self.own - self.own.double().mean(0)
        self.variance = float(spread.square().sum(-1).mean())
        """V of regression, of the half that is read."""
        number = len(self.targets) if self.per == 1 else int((self.fit | self.read).sum())
        few = f"{plural(number, 'test image')}; a linear readout needs {LEAST_IMAGES:,}"
        self.problem = few if number < LEAST_IMAGES else ""
        if self.task.kind == "classes" and len(torch.unique(self.own)) < 2:
            images = f"{LEAST_OF_A_CLASS} test images in each half"
            self.problem = self.problem or f"fewer than two classes have {images}"
        self.taken: list[Tensor] = []
        """The scores of the network for all samples of each batch."""

    def take(self, batch: Batch) -> None:
        """Take how the network scores."""
        self.taken.append(self.task.scores(batch.outputs, batch.y).cpu())

    def goals(self, targets: Tensor) -> Tensor:
        """What a ridge regression is fitted to: values, or one-hot rows."""
        if self.task.kind == "regression":
            return targets
        return functional.one_hot(targets, self.classes).double()

    def outcomes(self, predicted: Tensor, targets: Tensor) -> Tensor:
        """What predictions are worth: 0 or 1, or c_i."""
        if self.task.kind != "regression":
            return (predicted.argmax(1) == targets).double()
        return 1 - (predicted - targets).square().sum(1) / self.variance

    def scores(self) -> Tensor:
        """What the network's outputs are worth, of the units that are read."""
        of_all = torch.cat(self.taken).flatten()
        own = of_all[self.read[: len(of_all)]].double()
        return 1 - (1 - own) / self.variance if self.task.kind == "regression" else own

    def mean(self, values: Tensor) -> float:
        """The score of outcomes: classes count equally."""
        return balanced(values, self.own) if self.task.kind == "classes" else float(values.mean())

    def interval(self, values: Tensor) -> tuple[float, float]:
        """Of the mean, in pp: stratified by class, clustered by sequence, or plain."""
        if self.task.kind == "classes":
            return balanced_interval(values, self.own)
        return mean_interval(clustered(values, self.clusters).tolist())


class Probe:
    """Ridge regression of the targets on one state: all of fitting and scoring is here.

    Sums are kept, and no sample.
    """

    def __init__(self) -> None:
        self.moments: Tensor | float = 0.0
        """Weighted products of [1, z] and [1, z, targets]."""
        self.solved: tuple[Tensor, Tensor] | None = None
        self.right: list[Tensor] = []
        self.nonfinite = 0

    def fit(self, z: Tensor, targets: Tensor, weights: Tensor) -> None:
        """Take weighted samples to fit to."""
        both = torch.cat([torch.ones_like(z[:, :1]), z, targets], 1)
        weighted = both[:, : z.shape[1] + 1] * weights.unsqueeze(1)
        self.moments = weighted.T @ both + self.moments

    def predict(self, z: Tensor) -> Tensor:
        """What it makes of other samples, once all are fitted to."""
        if self.solved is None:  # inputs and targets are centred, so the bias is not penalised
            assert isinstance(self.moments, Tensor)
            n, own = self.moments[0, 0].item(), len(self.moments)
            means = self.moments[0, 1:] / n
            centred = self.moments[1:, 1:] - n * torch.outer(means[: own - 1], means)
            gram, products = centred[:, : own - 1], centred[:, own - 1 :]
            gram.diagonal().add_(RIDGE * n)
            weights = torch.cholesky_solve(products, torch.linalg.cholesky(gram))
            self.solved = weights, means[own - 1 :] - means[: own - 1] @ weights
            self.moments = 0.0
        weights, bias = self.solved
        return torch.addmm(bias, z, weights)


class Curve:
    """A probe at each of some states of one network."""

    def __init__(self, units: Units) -> None:
        self.units = units
        self.probes: list[Probe] = []

    def take(self, batch: Batch, states: slice, fit: bool, score: bool) -> None:
        """Fit to the units of a batch that are in the fit half, score the others."""
        units, end = self.units, batch.start + len(batch.y)
        part = slice(batch.start * units.per, end * units.per)
        for fitted in [own for own, asked in ((True, fit), (False, score)) if asked]:
            chosen = (units.fit if fitted else units.read)[part].nonzero().flatten()
            if not len(chosen):
                continue
            targets, weights = units.targets[part][chosen], units.weights[part][chosen]
            goals = units.goals(targets) if fitted else targets
            for layer, features in enumerate(batch.features[states]):
                z, broken = normalised(features[chosen.to(features.device)])
                if layer == len(self.probes):
                    self.probes.append(Probe())
                probe = self.probes[layer]
                probe.nonfinite += broken
                if fitted:
                    probe.fit(z, goals.to(z), weights.to(z))
                else:
                    probe.right.append(units.outcomes(probe.predict(z), targets.to(z.device)))

    def outcomes(self) -> list[Tensor]:
        """What each probe makes of the units that are read."""
        return [torch.cat(probe.right).double().cpu() for probe in self.probes]


class Depth:
    """Probes at every state of a network and of its null.

    What keeps them from being measured is part of the result. ``states`` limits the probes to the
    first states, as of a control, which is a null itself and has none.
    """

    def __init__(self, source: NetworkSource, states: int | None = None) -> None:
        self.source, self.states = source, slice(states)
        self.seeds = SEEDS if states is None else ()
        self.network, self.stream = source.network, source.stream
        self.units = units = Units(source)
        self.passes = ((True, False), (False, True)) if units.shuffled else ((True, True),)
        """Whether a pass over the data fits and whether it scores: the fit half may come last."""
        self.own = Curve(units)
        self.change: list[list[Tensor]] = [[] for _ in self.stream.blocks]
        self.problem = units.problem
        if not self.problem:
            try:
                self.words = source.pooling.words
            except AuditError as error:
                self.problem = str(error)
        needs = FEATURES | {"states"} if self.seeds else FEATURES
        self.needs = frozenset[str]() if self.problem else needs

    def update(self, batch: Batch) -> None:
        """Fit in passing, and score too where the fit half comes first."""
        if self.problem:
            return
        self.own.take(batch, self.states, *self.passes[0])
        self.units.take(batch)
        for block, (before, after) in enumerate(pairwise(batch.states)):
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
        own, units = self.own.outcomes(), self.units
        null, null_problem = list[list[Tensor]](), ""
        try:
            null = [self._redrawn(seed, own[0]) for seed in self.seeds]
        except AuditError as error:
            null_problem = str(error)
        return {
            "depth": records.Depth(
                probes=tuple(map(units.mean, own)),
                null=tuple(tuple(map(units.mean, one)) for one in null),
                interval=self._interval(own, null, 0, len(own) - 1),
                step_intervals=tuple(
                    self._interval(own, null, block, block + 1) for block in range(len(own) - 1)
                ),
                change=tuple(
                    median(torch.cat(parts)) if parts else math.nan for parts in self.change
                ),
                fitted=int(units.fit.sum()),
                read=int(units.read.sum()),
                network=units.mean(units.scores()),
                left_out=units.left_out,
                tokens=self.words,
                shuffled=len(self.passes) > 1,
                nonfinite=tuple(probe.nonfinite for probe in self.own.probes),
                as_initialised=as_initialised(self.network, self.stream) if self.seeds else (),
                null_problem=null_problem,
            )
        }

    def _redrawn(self, seed: int, first: Tensor) -> list[Tensor]:
        """The outcomes with re-initialised blocks; ``first`` are those at h_0, which stays."""
        copy = with_reinitialised_blocks(self.network, self.stream, seed)
        retake_statistics(copy, self.stream, self.source.chosen(self.units.half))
        curve, other = Curve(self.units), self.source.redrawn(copy)
        for fit, score in self.passes:
            for batch in other.batches(FEATURES):
                curve.take(batch, slice(1, None), fit, score)
        # States that are not finite would make every network look better than its null.
        if broken := max(probe.nonfinite for probe in curve.probes):
            images = plural(broken, "image")
            raise AuditError(f"with re-initialised blocks, states are NaN or inf for {images}")
        return [first, *curve.outcomes()]

    def _interval(
        self, own: Sequence[Tensor], null: Sequence[Sequence[Tensor]], start: int, end: int
    ) -> tuple[float, float]:
        """That of the gain from one state to another, beyond the null's where it is positive."""
        gain = own[end] - own[start]
        if null:
            by_chance = torch.stack([draw[end] - draw[start] for draw in null]).mean(0)
            gain = gain - by_chance if self.units.mean(by_chance) > 0 else gain
        return self.units.interval(gain)
