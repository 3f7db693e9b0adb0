"""(g): a linear readout of the raw inputs, and the network on the same samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from ..judge import records
from ..judge.errors import AuditError
from .folds import Folds, Units, chunked, stratified
from .probes import WIDEST
from .types import Batch, Numbers
from .vectors import sketch, sketched

if TYPE_CHECKING:
    from .run import NetworkSource

LAST = 8
"""How many tokens before a target the readout sees."""
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""λ/n, of which leave-one-out squared error chooses."""
HASHED = 1_024
"""Signed sums of a vector of more than 2,048 numbers: a readout reads as much of twice as many."""
KEPT_BYTES = 256 * 2**20
"""Inputs that take more are read again for each pass."""
COLUMNS = 512
"""So many columns of a product are computed at once, and those left of them not again."""
INPUTS = frozenset({"inputs"})


class Prediction(NamedTuple):
    """What the predictions of readouts are worth, of all units that are read."""

    outcomes: Tensor
    ridges: tuple[float, ...]
    fitted: int


_KNOWN: dict[object, Prediction] = {}
"""The last one: it is the same for every network on the same data, normalised alike."""


class Floor:
    """Ridge regression of the labels on the inputs, classes weighted equally.

    It needs no stream and no reference: it is there for every network that runs.
    """

    needs = frozenset({"outputs"})

    def __init__(self, source: NetworkSource) -> None:
        self.source = source
        self.folds = Folds(source)
        self.problem = self.folds.problem
        self.inputs = SmallInputs(source, self.folds.read)
        self.key: object = object()  # of data without a digest, never known

    def update(self, batch: Batch) -> None:
        """Keep the inputs, made small, and which samples the network has right."""
        self.folds.take_scores(batch)
        if self.problem or self.key in _KNOWN:
            return
        try:
            self.inputs.take(batch)
        except AuditError as error:
            self.problem = str(error)
            return
        digest = self.source.data_digest
        if batch.start == 0 and digest is not None:
            first = self.inputs.first
            self.key = (
                digest,
                self.source.task.kind,
                self.source.n_train,
                getattr(self.source.training_data, "digest", ""),
                self.inputs.reduced,
                first.shape,
                first.numpy().tobytes(),
            )

    def compute(self) -> Numbers:
        """The record of (g)."""
        if self.problem:
            return {"floor": records.LinearReadout(problem=self.problem)}
        if self.key not in _KNOWN:
            _KNOWN.clear()
            _KNOWN[self.key] = self._prediction()
        prediction = _KNOWN[self.key]
        folds = self.folds
        scores = folds.scores()
        record = records.LinearReadout(
            readout=folds.mean(prediction.outcomes),
            network=folds.mean(scores),
            interval=folds.interval(scores - prediction.outcomes),
            fitted=prediction.fitted,
            read=len(folds.targets),
            training=self.source.training_name,
            features=self.inputs.first.shape[1],
            reduced=self.inputs.reduced,
            ridges=prediction.ridges,
            left_out=folds.left_out,
        )
        return {"floor": record}

    def _prediction(self) -> Prediction:
        """Fit to each fold and read the other one, or fit to the training split and read all.

        Sums, then what leaving samples out costs, then predictions: each takes one pass.
        """
        folds = self.folds
        inputs = self.inputs
        training = self.source.training
        if training is not None:
            inputs = SmallInputs(training, folds.fit)
            for batch in training.batches(INPUTS):
                inputs.take(batch)
        readouts = [Readout(self._weights(fold)) for fold in folds.numbers]
        for readout, samples in self._to_fit(inputs, readouts):
            readout.take(*samples)
        for readout in readouts:
            readout.decompose()
        for readout, samples in self._to_fit(inputs, readouts):
            readout.leave_out(*samples)
        outcomes = torch.zeros(len(folds.chosen), dtype=torch.float64)
        for readout in readouts:
            readout.solve()
        for indices, rows in self.inputs.chunks():
            for fold, readout in zip(folds.numbers, readouts, strict=True):
                other = folds.read.parts[indices] // 2 != fold
                read = indices[other]
                predicted = readout(rows[other])
                outcomes[read] = folds.outcomes(predicted, folds.read.targets[read])
        ridges = tuple(readout.ridge for readout in readouts)
        fitted = max(int((readout.weights > 0).sum()) for readout in readouts)
        return Prediction(outcomes[folds.chosen], ridges, fitted)

    def _to_fit(
        self, inputs: SmallInputs, readouts: list[Readout]
    ) -> Iterator[tuple[Readout, tuple[Tensor, Tensor, Tensor]]]:
        """What each readout is fitted to: rows, goals and weights, chunk by chunk."""
        folds = self.folds
        for indices, rows in inputs.chunks():
            for readout in readouts:
                chosen = readout.weights[indices] > 0
                units = indices[chosen]
                goals = folds.goals(folds.fit.targets[units])
                yield readout, (rows[chosen], goals, readout.weights[units])

    def _weights(self, fold: int) -> Tensor:
        """The weights of the units of a fold, on average 1; 0 for all others."""
        units = self._units_to_fit(fold)
        weights = self.folds.fit.weights[units]
        weights = weights * (len(units) / weights.sum())  # n_train may have cut the fold short
        return torch.zeros_like(self.folds.fit.weights).index_copy_(0, units, weights)

    def _units_to_fit(self, fold: int) -> Tensor:
        """The units of a fold; no more samples than the network was trained on."""
        fit = self.folds.fit
        units = fit.fold(fold).nonzero().flatten()
        limit = self.source.n_train
        if limit is None or limit >= len(units) or fit.per_sample > 1:
            return units
        groups = torch.zeros(len(units), dtype=torch.long)
        if self.source.task.kind == "classes":
            groups = fit.targets[units]
        return units[stratified(groups, limit)]


class SmallInputs:
    """The inputs of units as at most 2,048 numbers each; those of more than 256 MB are read again.

    They come in chunks of units: their indices, and their rows.
    """

    def __init__(self, source: NetworkSource, units: Units) -> None:
        self.source = source
        self.units = units
        self.reduced = ""
        """How they were made smaller, in words."""
        self.first = torch.empty(0)
        """The rows of the first batch."""
        self.keeps = True
        self.kept: list[tuple[Tensor, Tensor]] = []

    def take(self, batch: Batch) -> None:
        """Keep those of a batch; an error where a unit has no input of its own."""
        if not self.keeps:
            return
        indices, rows = self._of(batch)
        if not self.kept:
            self.first = rows
            self.keeps = 4 * rows.shape[1] * len(self.units) <= KEPT_BYTES
        if self.keeps:
            self.kept.append((indices, rows))

    def chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """All units, many at once."""
        parts: Iterable[tuple[Tensor, Tensor]] = self.kept
        if not self.keeps:
            parts = map(self._of, self.source.batches(INPUTS))
        return chunked(parts)

    def _of(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The units of a batch and their rows."""
        x = batch.x
        if isinstance(x, dict):
            x = x.get("input_ids", next(iter(x.values())))
        if not x[0].numel():
            raise AuditError("the trace holds no x, the inputs")
        indices = self.units.of(batch)
        places = (indices - batch.start * self.units.per_sample).to(x.device)
        if self.units.per_sample == 1:
            rows = self.small(x[places])
        else:
            is_one_a_token = x.ndim <= 2 + x.is_floating_point()
            if x.shape[:2] != batch.y.shape or not is_one_a_token:
                raise AuditError(
                    f"inputs of shape {tuple(x.shape)} do not have one place for each token"
                )
            if x.is_floating_point():
                rows = self.small(x.flatten(0, 1)[places])
            else:
                rows = self._last_tokens(x, places)
        return indices, rows.cpu()

    def _last_tokens(self, ids: Tensor, places: Tensor) -> Tensor:
        """One-hot rows of the last 8 token ids at each place; larger vocabularies are sketched."""
        words = len(self.source.task.ranks)
        padded = functional.pad(ids, (LAST - 1, 0), value=-1)
        last = padded.unfold(1, LAST, 1).flatten(0, 1)[places]
        columns = last + words * torch.arange(LAST, device=ids.device)
        signs = (last >= 0).float()
        self.reduced = f"one-hot rows of the last {LAST} tokens"
        width = LAST * words
        if width > WIDEST:
            self.reduced += f", hashed to {WIDEST:,}"
            bucket, sign = sketch(width, WIDEST, ids.device)
            signs = signs * sign[columns.clamp_min(0)]
            columns = bucket[columns.clamp_min(0)]
            width = WIDEST
        rows = torch.zeros(len(last), width, device=ids.device)
        return rows.scatter_add_(1, columns.clamp_min(0), signs)

    def small(self, x: Tensor) -> Tensor:
        """At most 2,048 numbers a sample: pooled images, hashed vectors, bags of tokens."""
        if not x.is_floating_point() and x.ndim == 2:
            self.reduced = "as a bag of tokens"
            bags = torch.zeros(len(x), WIDEST, device=x.device)
            signs = 1.0 - 2.0 * (x // WIDEST % 2)  # larger vocabularies are sketched
            x = bags.scatter_add_(1, x % WIDEST, signs)
        data: Any = self.source.data
        x = x.to(torch.float32)
        images = data.x if hasattr(data, "flat") else None
        if isinstance(images, Tensor) and images.ndim == 4 and x[0].numel() == images[0].numel():
            x = x.view(-1, *images.shape[1:])  # of images that the network takes flattened
        if x.ndim == 4 and x[0].numel() > WIDEST:
            channels, side = x.shape[1:3]
            while channels * side * side > WIDEST:
                side -= 1
            self.reduced = f"average-pooled to {side}×{side}"
            x = functional.adaptive_avg_pool2d(x, max(side, 1))
        x = x.flatten(1)
        if x.shape[1] > WIDEST:
            self.reduced = f"hashed to {HASHED:,}"
            x = sketched(x, HASHED)
        return x


class Readout:
    """A weighted ridge regression; λ is chosen by the leave-one-out squared error.

    With Z = U S Vᵀ of the centred, weighted inputs all λ cost one decomposition, of the smaller
    side: in float32 that of the features, where the λ chosen is solved for again. Columns that do
    not vary are left out. ``weights`` are those of all units; of those that
    are not 0 the mean is 1. The same samples are taken, then left out one by one.
    """

    def __init__(self, weights: Tensor) -> None:
        self.weights = weights
        self.number = int((weights > 0).sum())
        self.parts: list[tuple[Tensor, Tensor]] = []
        """Inputs and weights, where there are fewer samples than features."""
        self.losses = torch.zeros(len(RIDGES), dtype=torch.float64)

    def take(self, x: Tensor, goals: Tensor, weights: Tensor) -> None:
        """Add samples to the sums."""
        if not hasattr(self, "shift"):
            self._begin(x, goals.shape[1])
        torch.minimum(self.low, x.amin(0), out=self.low)
        torch.maximum(self.high, x.amax(0), out=self.high)
        z = x.double() - self.shift
        self.sums += z.sum(0)
        self.squares += z.square().sum(0)
        self.mean += weights @ z / self.number
        self.bias += weights @ goals / self.number
        roots = weights.sqrt().unsqueeze(1)
        z *= roots
        self.products.addmm_(z.T, roots * goals)
        for start in range(0, z.shape[1], COLUMNS):
            end = start + COLUMNS
            self.gram[start:end, start:].addmm_(z[:, start:end].T, z[:, start:])
        if self.number < x.shape[1]:
            self.parts.append((x, weights))

    def _begin(self, x: Tensor, columns: int) -> None:
        """Empty sums, around a point near the mean of the inputs: then they do not cancel."""
        features = x.shape[1]
        self.shift = x.double().mean(0)
        self.low = x[0].clone()
        self.high = x[0].clone()
        self.sums = torch.zeros_like(self.shift)
        self.squares = torch.zeros_like(self.shift)
        self.mean = torch.zeros_like(self.shift)
        self.bias = self.shift.new_zeros(columns)
        self.products = self.shift.new_zeros(features, columns)
        self.gram = self.shift.new_zeros(features, features)

    def decompose(self) -> None:
        """Centre and scale the sums, and find the principal directions."""
        self.columns = self.low != self.high
        """Of the inputs, those that vary."""
        mean = self.mean[self.columns]
        squares = self.squares[self.columns] - 2 * mean * self.sums[self.columns]
        spread = squares.mean() / self.number + mean.square().mean()
        self.scale = spread.sqrt().clamp_min(torch.finfo(spread.dtype).tiny)
        products = self.products[self.columns] - self.number * torch.outer(mean, self.bias)
        self.products = products / self.scale
        gram = self.gram[self.columns][:, self.columns].addr_(mean, mean, alpha=-self.number)
        self.gram = gram / self.scale**2
        self.mean = mean + self.shift[self.columns]
        if self.parts:
            x, weights = map(torch.cat, zip(*self.parts, strict=True))
            values, vectors = _principal(self._scaled(x, weights))
            self.parts = []
        else:
            values, vectors = torch.linalg.eigh(self.gram.float(), UPLO="U")
        self.vectors = vectors.float()
        self.turned = self.vectors.double().T @ self.products
        self.inverses = []
        """By λ, of the eigenvalues with it."""
        for ridge in RIDGES:
            self.inverses.append(1 / (values.double().clamp_min(0) + ridge * self.number))

    def _scaled(self, x: Tensor, weights: Tensor) -> Tensor:
        """The inputs that vary, centred, scaled and weighted."""
        z = x[:, self.columns].double() - self.mean
        return z.mul_(weights.sqrt().unsqueeze(1) / self.scale)

    def leave_out(self, x: Tensor, goals: Tensor, weights: Tensor) -> None:
        """Add what the prediction of each sample costs, by λ, by all samples but itself."""
        z = self._scaled(x, weights)
        turned = (z.float() @ self.vectors).double()  # enough to choose one of five λ
        squares = turned.square()
        targets = weights.sqrt().unsqueeze(1) * (goals - self.bias)
        for number, inverse in enumerate(self.inverses):
            # The second part of the leverage is the bias's.
            leverage = squares @ inverse + weights / self.number
            predicted = turned @ (inverse.unsqueeze(1) * self.turned)
            errors = (targets - predicted) / (1 - leverage).unsqueeze(1)
            self.losses[number] += errors.square().sum()

    def solve(self) -> None:
        """Choose λ, and solve for it."""
        self.ridge = RIDGES[int(self.losses.nan_to_num(torch.inf).argmin())]
        self.gram.diagonal().add_(self.ridge * self.number)
        root = torch.linalg.cholesky(self.gram, upper=True)
        self.slope = torch.cholesky_solve(self.products, root, upper=True) / self.scale

    def __call__(self, x: Tensor) -> Tensor:
        """What is predicted for other samples."""
        return (x[:, self.columns].double() - self.mean) @ self.slope + self.bias


def _principal(z: Tensor) -> tuple[Tensor, Tensor]:
    """Squared singular values, and the right singular vectors as columns, of few samples."""
    values, left = torch.linalg.eigh(z @ z.T)
    present = values > len(z) * torch.finfo(z.dtype).eps * values.amax()
    values = values[present]
    return values, z.T @ left[:, present] / values.sqrt()
