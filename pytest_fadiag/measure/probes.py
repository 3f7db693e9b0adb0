"""(e): linear probes along the stream, and along that of re-initialised blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import torch
from torch import Tensor
from torch.nn import functional

from ..judge import records
from ..judge.errors import AuditError
from ..judge.margins import Z95
from ..judge.words import plural
from .folds import Folds, Units, chunked
from .redraw import retake_statistics, with_reinitialised_blocks
from .trained import BlockWeights
from .types import Batch, Numbers
from .vectors import median, row_norms

if TYPE_CHECKING:
    from .run import NetworkSource

RIDGE = 1e-3
"""λ for each sample that a probe is fitted to."""
WIDEST = 2_048
"""States with more features are projected to so many."""
SEEDS = (0, 1)
"""Those of the null."""
STATISTICS = 2_560
"""Batch statistics of the null are those of so many samples, spread evenly over the data."""
KEPT_BYTES = 512 * 2**20
"""Features that take more are computed again, in another pass."""
FEATURES = frozenset({"features"})


@lru_cache(maxsize=4)
def projection(width: int, device: torch.device) -> Tensor:
    """A fixed N(0, 1/2048) matrix."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(width, WIDEST, generator=generator, dtype=torch.float64)
    return drawn.div(WIDEST**0.5).to(device)


def normalised(features: Tensor) -> tuple[Tensor, Tensor]:
    """Each sample's vector with mean 0 and variance 1, and which samples are NaN or inf.

    These are zeros, as constant vectors are. There is no epsilon: a vector is scaled by its
    largest entry first. What is fitted to and read is rounded to float32, in which it is kept.
    """
    wide = features.double()
    largest = wide.abs().amax(1, keepdim=True)
    z = functional.layer_norm(wide / largest, wide.shape[1:], eps=0.0).nan_to_num(0.0)
    if z.shape[1] > WIDEST:
        z = z @ projection(z.shape[1], z.device)
    return z.float(), ~torch.isfinite(largest).squeeze(1)


class Ridge(NamedTuple):
    """A linear readout of z."""

    weights: Tensor
    bias: Tensor

    @classmethod
    def of(cls, moments: Tensor, features: int) -> Ridge:
        """The ridge regression with these weighted products of [1, z] and [1, z, targets]."""
        number = moments[0, 0].item()
        means = moments[0, 1:] / number
        # Inputs and targets are centred, so the bias is not penalised.
        centred = moments[1:, 1:] - number * torch.outer(means[:features], means)
        gram = centred[:, :features]
        gram.diagonal().add_(RIDGE * number)
        weights = torch.cholesky_solve(centred[:, features:], torch.linalg.cholesky(gram))
        return cls(weights, means[features:] - means[:features] @ weights)


class Probe:
    """Ridge regressions of the targets on one state, fitted to each fold and read on the other.

    Of what is fitted to, sums are kept; with ``halves`` those of the two halves of a fold apart.
    """

    def __init__(self, folds: Folds, *, halves: bool) -> None:
        self.folds = folds
        self.halves = halves
        self.unread: list[tuple[Tensor, Tensor]] = []
        """Indices of units, and their features, until they can be read."""
        self.moments: dict[int, Tensor] = {}
        """Weighted products of [1, z] and [1, z, targets], by part."""
        self.ridges: dict[int, list[Ridge]] = {}
        """By fold: fitted to all of it, and with ``halves`` to half of it."""
        self.outcomes = torch.zeros(len(folds.chosen), dtype=torch.float64)
        self.half_outcomes = torch.zeros_like(self.outcomes)
        """Of what is fitted to half of a fold."""
        self.broken = torch.zeros(len(folds.chosen), dtype=torch.bool)
        """Which units are NaN or inf."""

    def fit(self, z: Tensor, units: Tensor) -> None:
        """Take samples to fit to."""
        fit = self.folds.fit
        wide = z.double()
        goals = self.folds.goals(fit.targets[units])
        rows = torch.cat([torch.ones_like(wide[:, :1]), wide, goals.to(wide)], 1)
        weights = fit.weights[units].unsqueeze(1)
        weighted = weights.to(wide) * rows[:, : wide.shape[1] + 1]
        parts = fit.parts[units]
        if not self.halves:
            parts = parts // 2 * 2
        for part in torch.unique(parts).tolist():
            chosen = parts == part
            self.moments[part] = weighted[chosen].T @ rows[chosen] + self.moments.get(part, 0.0)

    def normalised(self, features: Tensor, units: Tensor) -> Tensor:
        """The z of units that are read, of which the broken ones are noted."""
        z, broken = normalised(features)
        self.broken[units] = broken.cpu()
        return z

    def solve(self) -> None:
        """Fit, once all samples have been taken, and read what was taken along.

        What is fitted to and read alike is fitted to here, in pieces that are larger than a batch.
        """
        pieces = []
        for units, features in chunked(self.unread):
            pieces.append((units, self.normalised(features, units)))
        self.unread = []
        if self.folds.fit is self.folds.read:
            for units, z in pieces:
                self.fit(z, units)
        for fold in self.folds.numbers:
            moments = [self.moments[part] for part in sorted(self.moments) if part // 2 == fold]
            features_of_z = len(moments[0]) - 1
            self.ridges[fold] = [Ridge.of(sum(moments[1:], moments[0]), features_of_z)]
            if self.halves:
                self.ridges[fold].append(Ridge.of(moments[0], features_of_z))
        self.moments = {}
        for units, z in pieces:
            self.read(z, units)

    def read(self, z: Tensor, units: Tensor) -> None:
        """Predict the samples of each fold by what is fitted to the other one."""
        read = self.folds.read
        for fold, ridges in self.ridges.items():
            other = (read.parts[units] // 2 != fold).nonzero().flatten()
            indices = units[other]
            wide = z[other.to(z.device)].double()
            targets = read.targets[indices].to(z.device)
            for ridge, outcomes in zip(ridges, (self.outcomes, self.half_outcomes), strict=False):
                predicted = torch.addmm(ridge.bias, wide, ridge.weights)
                outcomes[indices] = self.folds.outcomes(predicted, targets).double().cpu()


class ProbesOfStates:
    """A probe at each state of a network from ``first`` on, or at that alone."""

    def __init__(self, folds: Folds, first: int, *, alone: bool = False) -> None:
        self.folds = folds
        self.states = slice(first, first + 1 if alone else None)
        self.probes: list[Probe] = []
        self.keeps = True
        """Whether what is read is kept until it can be."""

    def take(self, batch: Batch, samples: Units) -> None:
        """Take the units of a batch along, or fit to them where they are not kept."""
        for probe, units, features in self._units(batch, samples):
            if self.keeps and samples is self.folds.read:
                probe.unread.append((units, features))
            elif samples is self.folds.fit:
                probe.fit(normalised(features)[0], units)

    def _units(self, batch: Batch, samples: Units) -> Iterator[tuple[Probe, Tensor, Tensor]]:
        """By probe the units of a batch and their features."""
        states = batch.features[self.states]
        if not self.probes:
            self._make_probes([state.shape[1] for state in states])
        units = samples.of(batch)
        for probe, state in zip(self.probes, states, strict=True):
            rows = (units - batch.start * samples.per_sample).to(state.device)
            yield probe, units, state[rows]

    def _make_probes(self, widths: list[int]) -> None:
        self.keeps = 4 * sum(widths) * len(self.folds.read) <= KEPT_BYTES
        last = len(widths) - 1
        for layer in range(len(widths)):
            self.probes.append(Probe(self.folds, halves=layer in (0, last)))

    def finish(self, source: NetworkSource) -> None:
        """Fit to the training split where there is one, then read what was not kept."""
        training = source.training
        if training is not None:
            for batch in training.batches(FEATURES):
                self.take(batch, self.folds.fit)
        for probe in self.probes:
            probe.solve()
        if self.keeps:
            return
        for batch in source.batches(FEATURES):
            for probe, units, features in self._units(batch, self.folds.read):
                probe.read(probe.normalised(features, units), units)

    def outcomes(self) -> list[Tensor]:
        """What each probe makes of the units that are read."""
        return [probe.outcomes[self.folds.chosen] for probe in self.probes]

    def half_outcomes(self) -> list[Tensor]:
        """The same at both ends, of probes that are fitted to half as many units."""
        ends = (self.probes[0], self.probes[-1])
        return [probe.half_outcomes[self.folds.chosen] for probe in ends]


class DepthProbes:
    """Probes at every state of a network and of its null.

    What keeps them from being measured is part of the result. A control is a null itself: only its
    embedding is probed (``embedding_alone``).
    """

    def __init__(self, source: NetworkSource, *, embedding_alone: bool = False) -> None:
        self.source = source
        self.embedding_alone = embedding_alone
        self.folds = Folds(source)
        self.curve = ProbesOfStates(self.folds, 0, alone=embedding_alone)
        self.change: list[list[Tensor]] = [[] for _ in source.stream.blocks]
        self.problem = self.folds.problem
        if not self.problem:
            try:
                self.words = source.pooling.words
            except AuditError as error:
                self.problem = str(error)
        self.needs = frozenset[str]()
        if not self.problem:
            self.needs = FEATURES | {"states"}

    def update(self, batch: Batch) -> None:
        """Fit in passing, unless a training split is there to be fitted to."""
        if self.problem:
            return
        self.curve.take(batch, self.folds.read)
        self.folds.take_scores(batch)
        for block, (before, after) in enumerate(pairwise(batch.states)):
            if before.shape == after.shape:
                dim = 1
                if self.source.stream.tokens[block]:
                    dim = 2
                change = row_norms((after - before).flatten(dim))
                self.change[block].append(change / row_norms(before.flatten(dim)))

    def compute(self) -> Numbers:
        """The record of (e)."""
        if self.problem:
            return {"depth": records.Depth(problem=self.problem)}
        folds = self.folds
        self.curve.finish(self.source)
        outcomes = self.curve.outcomes()
        record = records.Depth(
            probes=tuple(map(folds.mean, outcomes)),
            fitted=folds.fitted,
            read=len(folds.targets),
            training=self.source.training_name,
            network=folds.mean(folds.scores()),
            left_out=folds.left_out,
            tokens=self.words,
            nonfinite=tuple(int(probe.broken.sum()) for probe in self.curve.probes),
        )
        if not self.embedding_alone:
            record = self._beside_null(record, outcomes)
        return {"depth": record}

    def _beside_null(self, record: records.Depth, outcomes: list[Tensor]) -> records.Depth:
        """The record with the null, and all that is compared with it."""
        null: list[list[Tensor]] = []
        half_null: list[list[Tensor]] = []
        null_problem = ""
        try:
            for seed in SEEDS:
                curve = self._redrawn(seed)
                null.append([outcomes[0], *curve.outcomes()])
                half_null.append([self.curve.half_outcomes()[0], curve.half_outcomes()[-1]])
        except AuditError as error:
            null = half_null = []
            null_problem = str(error)
        interval = self._interval(outcomes, null, 0, len(outcomes) - 1)
        steps = range(len(outcomes) - 1)
        weights = BlockWeights(self.source.network, self.source.stream)
        record = msgspec.structs.replace(
            record,
            null=tuple(tuple(map(self.folds.mean, draw)) for draw in null),
            interval=interval,
            half_interval=self.folds.interval(
                self._beyond_null(self.curve.half_outcomes(), half_null)
                - self._beyond_null(outcomes, null)
            ),
            step_intervals=tuple(self._interval(outcomes, null, n, n + 1) for n in steps),
            change=tuple(map(_median, self.change)),
            as_initialised=weights.as_initialised(),
            null_problem=null_problem,
        )
        low, high = interval
        trained: tuple[int, ...] = ()
        if low > record.allowance_pp and not record.untrained:
            trained = weights.trained()
        return msgspec.structs.replace(
            record, interval=(low - record.allowance_pp, high), trained=trained
        )

    def _redrawn(self, seed: int) -> ProbesOfStates:
        """The probes at h_1 … h_L with re-initialised blocks; h_0 stays."""
        network = with_reinitialised_blocks(self.source.network, self.source.stream, seed)
        samples = len(self.source.labels)
        spread = torch.linspace(0, samples - 1, min(STATISTICS, samples)).round().long()
        chosen = torch.zeros(samples, dtype=torch.bool).index_fill_(0, spread, True)
        retake_statistics(network, self.source.stream, self.source.chosen(chosen))
        source = self.source.redrawn(network)
        curve = ProbesOfStates(self.folds, 1)
        for batch in source.batches(FEATURES):
            curve.take(batch, self.folds.read)
        curve.finish(source)
        # States that are not finite would make every network look better than its null.
        broken = max(int(probe.broken.sum()) for probe in curve.probes)
        if broken:
            images = plural(broken, "image")
            raise AuditError(f"with re-initialised blocks, states are NaN or inf for {images}")
        return curve

    def _beyond_null(
        self,
        outcomes: Sequence[Tensor],
        null: Sequence[Sequence[Tensor]],
        start: int = 0,
        end: int = -1,
    ) -> Tensor:
        """The gain of each unit from one state to another, less the null's where that gains."""
        gain = outcomes[end] - outcomes[start]
        if not null:
            return gain
        null_gain = torch.stack([draw[end] - draw[start] for draw in null]).mean(0)
        return gain - null_gain if self.folds.mean(null_gain) > 0 else gain

    def _interval(
        self, outcomes: Sequence[Tensor], null: Sequence[Sequence[Tensor]], start: int, end: int
    ) -> tuple[float, float]:
        """That of the gain from one state to another, beyond the null's where it is positive.

        It holds the noise of the images and that of the null's two draws.
        """
        gain = self._beyond_null(outcomes, null, start, end)
        noise = 0.0
        if null:
            null_gains = [100 * self.folds.mean(draw[end] - draw[start]) for draw in null]
            first, second = (max(null_gain, 0.0) for null_gain in null_gains)
            noise = Z95 * abs(first - second) / 2
        centre = 100 * self.folds.mean(gain)
        low, high = self.folds.interval(gain)
        return centre - math.hypot(centre - low, noise), centre + math.hypot(high - centre, noise)


def _median(parts: list[Tensor]) -> float:
    if not parts:
        return math.nan
    return median(torch.cat(parts))
