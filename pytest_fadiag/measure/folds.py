"""What linear readouts are fitted to and read on: folds, class weights, scores and intervals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from ..judge.margins import Moments, balanced_interval, mean_interval
from ..judge.records import LEAST_IMAGES
from ..judge.words import plural
from .task import Task
from .types import Batch

if TYPE_CHECKING:
    from .run import NetworkSource

LEAST_OF_A_CLASS = 5
TOKENS = 5_000
"""How many tokens of each fold are used at most."""
CHUNK = 2_048
"""So many rows at least are taken at once."""
UNUSED = -1
"""The part of what no readout is fitted to and none is read on."""


def shuffled_by_group(groups: Tensor) -> Tensor:
    """The indices of all samples, group by group, each group shuffled with a fixed seed."""
    shuffled = torch.randperm(len(groups), generator=torch.Generator().manual_seed(0))
    return shuffled[groups[shuffled].argsort(stable=True)]


def dealt(groups: Tensor) -> Tensor:
    """The part of each sample: 0 and 1 are the halves of fold A, 2 and 3 those of fold B.

    Every group is dealt evenly. What is left over of one is dealt on in the next.
    """
    order = shuffled_by_group(groups)
    turn = torch.arange(len(groups))
    parts = torch.empty_like(order)
    parts[order] = 2 * (turn % 2) + turn // 2 % 2
    return parts


def stratified(groups: Tensor, number: int) -> Tensor:
    """The indices of so many samples, of each group the same share, drawn with a fixed seed."""
    order = shuffled_by_group(groups)
    sizes = torch.unique_consecutive(groups[order], return_counts=True)[1]
    starts = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    place = (torch.arange(len(order)) - starts + 0.5) / sizes.repeat_interleave(sizes)
    return order[place.argsort(stable=True)[:number]].sort().values


def balanced(outcomes: Tensor, labels: Tensor) -> float:
    """The mean over classes of the mean outcome."""
    means = torch.bincount(labels, outcomes.double()) / torch.bincount(labels)
    return float(means.nanmean())


def by_class(differences: Tensor, labels: Tensor) -> list[Moments]:
    """What the differences of each class add up to."""
    _, present = torch.unique(labels, return_inverse=True)
    values = differences.double()
    counts = torch.bincount(present)
    sums = torch.bincount(present, values)
    squares = torch.bincount(present, values.square())
    columns = (counts.tolist(), sums.tolist(), squares.tolist())
    return list(map(Moments, *columns))


def clustered(values: Tensor, clusters: Tensor) -> Tensor:
    """The mean of the values, with what each cluster of any size adds to it or takes from it."""
    _, present = torch.unique(clusters, return_inverse=True)
    mean = values.double().mean()
    sums = torch.zeros(int(present.max()) + 1, dtype=torch.float64)
    return mean + sums.index_add_(0, present, values - mean) * len(sums) / len(values)


def chunked(parts: Iterable[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
    """Indices and rows in order, 2,048 or more at once but for the last."""
    pending: list[tuple[Tensor, Tensor]] = []
    number = 0
    for part in parts:
        pending.append(part)
        number += len(part[0])
        if number >= CHUNK:
            yield _joined(pending)
            pending = []
            number = 0
    if pending:
        yield _joined(pending)


def _joined(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    indices, rows = zip(*parts, strict=True)
    return torch.cat(indices), torch.cat(rows)


class Units:
    """What readouts are fitted to or read on: samples, or some of the tokens of sequences."""

    def __init__(self, task: Task, targets: Tensor, parts: Tensor) -> None:
        """``parts`` are those of samples, or of sequences."""
        self.task = task
        self.per_sample = 1
        """How many units each sample has."""
        if task.kind == "tokens":
            self.per_sample = targets.shape[1]
            ranks = task.ranks[targets.clamp(0, len(task.ranks) - 1)]
            targets = torch.where(targets < 0, UNUSED, ranks).flatten()
            parts = parts.repeat_interleave(self.per_sample)
            parts = torch.where(targets < 0, UNUSED, parts)
            for fold in (0, 1):
                tokens = (parts // 2 == fold).nonzero().flatten()
                order = torch.randperm(len(tokens), generator=torch.Generator().manual_seed(0))
                parts[tokens[order[TOKENS:]]] = UNUSED
        self.targets = targets
        self.parts = parts
        self.weights = torch.ones(len(targets), dtype=torch.float64)

    def __len__(self) -> int:
        return int((self.parts != UNUSED).sum())

    def fold(self, number: int) -> Tensor:
        """Whether each unit belongs to fold 0 or 1."""
        return self.parts // 2 == number

    def counts(self, classes: int) -> list[Tensor]:
        """How many units of each class each fold has, of the folds that there are."""
        folds = [self.targets[self.fold(number)] for number in (0, 1)]
        return [torch.bincount(labels, minlength=classes) for labels in folds if len(labels)]

    def keep(self, classes: Tensor) -> None:
        """Leave out all other classes; the rest weigh the same in each fold.

        The weights of a fold add up to the number of its units.
        """
        self.parts = torch.where(classes[self.targets], self.parts, UNUSED)
        for number in (0, 1):
            inside = self.fold(number)
            labels = self.targets[inside]
            by_class = torch.bincount(labels, minlength=len(classes)).clamp_min(1)
            self.weights[inside] = len(labels) / (int(classes.sum()) * by_class[labels].double())

    def of(self, batch: Batch) -> Tensor:
        """The indices of the units that a batch holds, part by part."""
        start = batch.start * self.per_sample
        parts = self.parts[start : start + len(batch.y) * self.per_sample]
        order = parts.argsort(stable=True)
        return start + order[parts[order] != UNUSED]


class Folds:
    """Which units readouts are fitted to, which they are read on, and what predictions are worth.

    Two folds are fitted to in turn, each readout is read on the other fold. Where a training split
    is named, that is the first fold, and all that is measured is the second.
    """

    def __init__(self, source: NetworkSource) -> None:
        self.task = source.task
        self.read = Units(self.task, source.targets, _parts(source))
        self.fit = self.read
        self.numbers: tuple[int, ...] = (0, 1)
        """The folds that are fitted to."""
        training = source.training
        if training is not None:
            self.fit = Units(self.task, training.targets, _parts(training) % 2)
            self.read = Units(self.task, source.targets, torch.full((len(source.labels),), 2))
            self.numbers = (0,)
        self.classes = 1 + max(int(units.targets.max()) for units in (self.fit, self.read))
        """How many classes or tokens there are."""
        self.left_out: tuple[int, ...] = ()
        if self.task.kind == "classes":
            self.left_out = self._leave_out_rare_classes()
        self.chosen = self.read.parts != UNUSED
        """The units that are read."""
        self.targets = self.read.targets[self.chosen]
        self.clusters = source.clusters.repeat_interleave(self.read.per_sample)[self.chosen]
        self.variance = 1.0
        """V of regression."""
        if self.task.kind == "regression":
            spread = self.targets - self.targets.mean(0)
            self.variance = float(spread.square().sum(-1).mean())
        self.problem = self._problem()
        self._scores: list[Tensor] = []

    def _leave_out_rare_classes(self) -> tuple[int, ...]:
        """Leave out classes with fewer than 5 samples in a fold; those that exist are returned."""
        counts = [*self.read.counts(self.classes), *self.fit.counts(self.classes)]
        fewest = torch.stack(counts).amin(0)
        kept = fewest >= LEAST_OF_A_CLASS
        self.read.keep(kept)
        self.fit.keep(kept)
        exists = torch.stack(counts).amax(0) > 0
        return tuple((exists & ~kept).nonzero().flatten().tolist())

    def _problem(self) -> str:
        """Why nothing can be fitted or read; empty where it can."""
        number = len(self.chosen)
        if self.task.kind == "tokens":
            number = int(self.chosen.sum())
        if number < LEAST_IMAGES:
            return f"{plural(number, 'test image')}; a linear readout needs {LEAST_IMAGES:,}"
        if self.task.kind == "classes" and len(torch.unique(self.targets)) < 2:
            images = f"{LEAST_OF_A_CLASS} test images in each half"
            return f"fewer than two classes have {images}"
        return ""

    @property
    def fitted(self) -> int:
        """How many units a readout is fitted to: the larger fold."""
        return max(int(self.fit.fold(number).sum()) for number in self.numbers)

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

    def take_scores(self, batch: Batch) -> None:
        """Take how the network scores."""
        self._scores.append(self.task.scores(batch.outputs, batch.y).cpu())

    def scores(self) -> Tensor:
        """What the network's outputs are worth, of the units that are read."""
        values = torch.cat(self._scores).flatten()[self.chosen].double()
        if self.task.kind == "regression":
            return 1 - (1 - values) / self.variance
        return values

    def mean(self, outcomes: Tensor) -> float:
        """The score of outcomes: classes count equally."""
        if self.task.kind == "classes":
            return balanced(outcomes, self.targets)
        return float(outcomes.mean())

    def interval(self, outcomes: Tensor) -> tuple[float, float]:
        """Of the mean, in pp: stratified by class, clustered by sequence, or plain."""
        if self.task.kind == "classes":
            return balanced_interval(by_class(outcomes, self.targets))
        return mean_interval(clustered(outcomes, self.clusters).tolist())


def _parts(source: NetworkSource) -> Tensor:
    """The part of each sample: classes are dealt evenly, what belongs together stays together."""
    if source.task.kind == "classes":
        return dealt(source.targets)
    clusters, numbers = torch.unique(source.clusters, return_inverse=True)
    return dealt(torch.zeros(len(clusters), dtype=torch.long))[numbers]
