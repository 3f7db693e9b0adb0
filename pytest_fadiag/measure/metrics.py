"""The numbers of (a) to (d): states, gradients, directions, output error, accuracy, precision."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..judge.errors import AuditError
from ..judge.records import BATCH, Score
from .folds import clustered
from .task import GROUPS, IGNORED, LOSSES, Task
from .types import Batch, Numbers
from .vectors import (
    directed,
    median,
    pairwise_cosine,
    row_norms,
    sketched,
    unit_rows,
)

if TYPE_CHECKING:
    from .run import NetworkSource

WIDE = 4_096
"""Gradients of more numbers are not asked for their rank."""
MOST_ENTRIES = 1 << 23
"""How many numbers the sums of all classes may hold; wider gradients are sketched."""


class _Collecting:
    """Keeps what it takes of each batch."""

    def __init__(self, source: NetworkSource) -> None:
        self.source = source
        self.task = source.task
        self.collected: list[list[Tensor]] = []

    def columns(self) -> list[Tensor]:
        """What was taken, of all batches as one."""
        return [torch.cat(parts) for parts in zip(*self.collected, strict=True)]


class SumsByBatch:
    """Sums over the samples of each evaluation batch, which may come in slices."""

    def __init__(self) -> None:
        self.sums: dict[int, Tensor] = {}

    def add(self, batch: Batch, weights: Tensor, rows: Tensor) -> None:
        """Add the weighted sum of the rows of a slice."""
        number = batch.start // BATCH
        if number not in self.sums:
            self.sums[number] = rows.new_zeros(rows.shape[1])
        self.sums[number].addmv_(rows.T, weights)

    def rows(self) -> Tensor:
        """One row a batch."""
        return torch.stack([*self.sums.values()])


class States(_Collecting):
    """The median ‖h_l‖ of every layer over samples and tokens."""

    needs = frozenset({"states"})

    def update(self, batch: Batch) -> None:
        """Take the norms."""
        self.collected.append(_norms(batch.states, self.source))

    def compute(self) -> Numbers:
        """Their medians."""
        layers = self.columns()
        return {
            "residual_norms": tuple(map(median, layers)),
            "nonfinite_states": _nonfinite(layers),
        }


class Gradients(_Collecting):
    """The median ‖g_l‖ of every layer over samples and read tokens, and median(‖g_L‖/‖e‖).

    With them the effective rank, exp of the entropy of the spectrum of unit gradients: the
    smallest of all states, divided by that of the output errors.
    """

    needs = frozenset({"gradients"})

    def __init__(self, source: NetworkSource) -> None:
        super().__init__(source)
        self.narrow: list[list[Tensor]] = []
        """The gradients of every layer that are not too wide, and the output errors."""

    def update(self, batch: Batch) -> None:
        """Take the norms, those of the errors, and all of what is not too wide."""
        norms = _norms(batch.gradients, self.source)
        self.collected.append([*norms, batch.error.norms.unsqueeze(1)])
        vectors = (*batch.gradients, batch.error.units)
        self.narrow.append([_if_narrow(values.flatten(1)).float() for values in vectors])

    def compute(self) -> Numbers:
        """Their medians, of the tokens that get a gradient.

        Padding gets none, nor at h_L all but the class token of a ViT. A sample without any
        gradient counts with a zero for every token that another sample reads.
        """
        *layers, errors = self.columns()
        reads = [_tokens_read(norms) for norms in layers]
        medians = []
        unread = []
        for norms, read in zip(layers, reads, strict=True):
            medians.append(median((norms * errors / BATCH)[read]))
            unread.append(int(median((~read).sum(1))))
        per_error = layers[-1][reads[-1] & (errors != 0)]
        if self.task.kind == "tokens":  # of which many share the error of their sequence
            per_error = row_norms(layers[-1])[errors[:, 0] != 0]
        numbers = {
            "effective_rank": self.relative_rank(),
            "bp_grad_norms": tuple(medians),
            "gradient_per_unit_error": median(per_error) / BATCH,
            "nonfinite_gradients": _nonfinite(layers),
        }
        tokens = self.source.stream.tokens
        if tokens[-1]:
            numbers["tokens"] = layers[-1].shape[1]
        if any(tokens):
            numbers["tokens_without_gradient"] = tuple(unread)
        return numbers

    def relative_rank(self) -> float | None:
        """The smallest effective rank of the states beside that of the errors, if both exist."""
        columns = zip(*self.narrow, strict=True)
        *ranks, rank_of_errors = (effective_rank(torch.cat(parts)) for parts in columns)
        positive = list(filter(None, ranks))
        if not positive or not rank_of_errors:
            return None
        return min(positive) / rank_of_errors


def _tokens_read(norms: Tensor) -> Tensor:
    """Which norms count: those that are not 0, and of a sample without any all that others have."""
    read = norms != 0
    of_others = read.any(0) | ~read.any()
    return torch.where(read.any(1, keepdim=True), read, of_others)


def _if_narrow(rows: Tensor) -> Tensor:
    """The rows, or rows of nothing where they are too wide to be asked for their rank."""
    if rows.shape[1] > WIDE:
        return rows.new_empty(len(rows), 0)  # no view, which would keep them
    return rows


def effective_rank(rows: Tensor) -> float:
    """exp of the entropy of the spectrum of unit rows; 0 where fewer than two have a direction."""
    if not rows.shape[1]:
        return 0.0
    units = unit_rows(rows[directed(row_norms(rows))])
    number = len(units)
    if number < 2:
        return 0.0
    if units.shape[1] < len(units):
        units = units.T
    gram = units @ units.T
    shares = torch.linalg.eigvalsh(gram).clamp_min(0) / number
    return float(torch.special.entr(shares).sum().exp())


def _norms(values: list[Tensor], source: NetworkSource) -> list[Tensor]:
    """Of each layer ``[B, 1]``, for tokens ``[B, T]``."""
    norms = []
    for layer, are_tokens in zip(values, source.stream.tokens, strict=True):
        if are_tokens:
            norms.append(row_norms(layer))
        else:
            norms.append(row_norms(layer.flatten(1).unsqueeze(1)))
    return norms


def _nonfinite(layers: list[Tensor]) -> tuple[int, ...]:
    return tuple(int((~torch.isfinite(norms).all(1)).sum()) for norms in layers)


class Directions(_Collecting):
    """The mean cosine of two batch-mean gradients at L//2, and of two classes' mean unit gradients.

    Where one sum per class would take too much memory (a thousand classes, tokens by the hundred),
    a sketch is summed: each entry, with a random sign, goes to one of fewer places, which keeps
    products of two gradients on average.
    """

    needs = frozenset({"gradients"})
    sums: Any = 0
    directionless = 0

    def __init__(self, source: NetworkSource) -> None:
        super().__init__(source)
        self.batch_sums = SumsByBatch()

    def update(self, batch: Batch) -> None:
        """Add the gradients of the batch, and by class their unit vectors."""
        self.layer = max((len(batch.gradients) - 1) // 2, 1)
        gradients = batch.gradients[self.layer].flatten(1)
        self.batch_sums.add(batch, batch.error.norms, gradients.double())
        self.directionless += int((~directed(row_norms(gradients))).sum())
        gradients, groups, predicted = self.by_group(batch)
        number = self.group_count(batch)
        norms = row_norms(gradients)
        counted = directed(norms) & (groups >= 0)
        units = gradients[counted].double() / norms[counted].unsqueeze(1)
        buckets = max(1, MOST_ENTRIES // number)
        if units.shape[1] > buckets:
            units = sketched(units, buckets)
        sums = units.new_zeros(number, units.shape[1])
        self.sums = self.sums + sums.index_add_(0, groups[counted], units)
        members = (groups[groups >= 0], groups[counted], predicted[predicted >= 0])
        counts = torch.stack([values.bincount(minlength=number) for values in members])
        self.collected.append([counts.unsqueeze(0)])

    def by_group(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """One gradient in each row with its group, and the groups that are predicted."""
        gradients = batch.gradients[self.layer]
        targets = self.task.targets(batch.y)
        groups = self.task.groups(targets)
        predicted = self.task.groups(self.task.predicted(batch.outputs))
        if self.task.kind != "tokens":
            return gradients.flatten(1), groups, predicted
        predicted = torch.where(targets == IGNORED, -1, predicted).flatten()
        if gradients.ndim == 3 and gradients.shape[:2] == targets.shape:
            return gradients.flatten(0, 1), groups.flatten(), predicted
        # States have other tokens, so their gradients have no group.
        return gradients.flatten(1), groups.new_full(groups.shape[:1], -1), predicted

    def group_count(self, batch: Batch) -> int:
        """How many groups the task has."""
        if self.task.kind == "tokens":
            return GROUPS
        if self.task.kind == "regression":
            return len(self.task.edges) + 1
        return batch.outputs.shape[-1]

    def compute(self) -> Numbers:
        """Both cosines; the group that is predicted most often is left out of the second."""
        (counts,) = self.columns()
        samples, gradients, predicted = counts.sum(0)
        included = gradients > 0
        if self.task.kind == "regression" and int(included.sum()) < 3:
            included[:] = False
        if bool(predicted.any()):
            included[predicted.argmax()] = False
        means = self.sums[included] / gradients[included].unsqueeze(1)
        pairs = len(means) * (len(means) - 1)
        invariance = math.nan
        if pairs:
            invariance = float(means.sum(0).square().sum() - means.square().sum()) / pairs
        return {
            "stability_layer": self.layer,
            "cross_batch_stability": pairwise_cosine(self.batch_sums.rows()),
            "sample_invariance": invariance,
            "zero_gradient_samples": self.directionless,
            "eval_classes": int((samples > 0).sum()),
        }


class OutputErrors(_Collecting):
    """The median ‖e‖, and the mean cosine of two batch-mean output errors.

    Where the loss is assumed, also how biased the errors of other losses are: those of the loss
    that a network was trained by have a mean near 0.
    """

    needs = frozenset({"error"})

    def __init__(self, source: NetworkSource) -> None:
        super().__init__(source)
        self.unnamed: dict[str, Task] = {}
        """This task by the losses that it may have had instead, by the names of these."""
        if self.task.assumed and self.task.kind == "classes":
            self.unnamed = {loss: replace(self.task, loss=loss) for loss in ("mse", "bce")}
        self.sums = [SumsByBatch() for _ in range(1 + len(self.unnamed))]
        """By loss: the errors of each batch together."""

    def update(self, batch: Batch) -> None:
        """Take the sizes of the errors, and their sum."""
        errors = [batch.error]
        for task in self.unnamed.values():
            errors.append(task.error(batch.outputs, batch.y))
        for error, sums in zip(errors, self.sums, strict=True):
            sums.add(batch, error.norms, error.units.flatten(1))
        self.collected.append([error.norms for error in errors])

    def compute(self) -> Numbers:
        """Size, drift and bias."""
        norms, *of_unnamed = self.columns()
        sums, *sums_of_unnamed = self.sums
        bias = {}
        if self.unnamed:
            bias[self.task.name] = _bias(norms, sums.rows())
        for loss, sizes, vectors in zip(self.unnamed, of_unnamed, sums_of_unnamed, strict=True):
            bias[LOSSES[loss]] = _bias(sizes, vectors.rows())
        return {
            "output_error_norm": median(norms),
            "output_error_drift": pairwise_cosine(sums.rows()),
            "loss_bias": bias,
        }


def _bias(norms: Tensor, sums: Tensor) -> float:
    """‖mean e‖/mean‖e‖, by the sizes of the errors and their sums over batches."""
    return float(sums.sum(0).norm() / norms.sum())


class Accuracy(_Collecting):
    """Which samples are classified correctly, and what is odd about the predictions."""

    needs = frozenset({"outputs"})

    def update(self, batch: Batch) -> None:
        """Take targets, scores, predictions, and which samples' outputs are finite."""
        targets = self.task.targets(batch.y)
        predicted = self.task.predicted(batch.outputs)
        if self.task.kind == "regression":
            predicted = self.task.groups(predicted)
        scores = self.task.scores(batch.outputs, batch.y)
        finite = torch.isfinite(batch.outputs).flatten(1).all(1)
        self.collected.append([targets, scores, predicted, finite])
        self.classes = batch.outputs.shape[-1]

    def compute(self) -> Numbers:
        """The score, and the shares of the most frequent label and prediction."""
        targets, scores, predictions, finite = (values.cpu() for values in self.columns())
        counted = torch.ones(len(targets), dtype=torch.bool)
        if self.task.kind == "tokens":
            counted = targets != IGNORED
        predicted = predictions[counted].bincount()
        weights = self.source.network.state_dict()
        return {
            "score": self.score(targets, scores, counted),
            **self.label_shares(targets[counted]),
            "predicted_class_share": float(predicted.max() / predicted.sum()),
            "nonfinite_outputs": int((~finite).sum()),
            "nonfinite_weights": tuple(
                name for name, weight in weights.items() if not bool(torch.isfinite(weight).all())
            ),
        }

    def score(self, targets: Tensor, scores: Tensor, counted: Tensor) -> Score:
        """The score of all samples, paired with that of others by the order of the targets."""
        order = hashlib.sha256(targets.numpy().tobytes()).hexdigest()
        data = self.source.data_digest
        if self.task.kind == "classes":
            return Score.of(scores.bool().tolist(), order, data, targets.tolist())
        clusters = self.source.clusters[: len(scores)]
        if scores.ndim == 2:
            clusters = clusters[:, None].expand_as(scores)
        parts = clustered(scores[counted], clusters[counted])
        return Score.of_parts(parts.tolist(), order, data)

    def label_shares(self, labels: Tensor) -> Numbers:
        """How many classes there are, and the share of the most frequent; of values nothing."""
        if self.task.kind == "regression":
            return {}
        counts = labels.bincount()
        if len(labels) == int(counts.max()):
            raise AuditError(
                f"all {len(labels):,} labels are {int(labels[0])}: one class measures neither "
                "accuracy nor direction; check the labels, or shuffle data sorted by class"
            )
        return {
            "classes": self.classes,
            "label_classes": int((counts > 0).sum()),
            "label_class_share": int(counts.max()) / len(labels),
        }
