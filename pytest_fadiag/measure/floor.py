"""(g): a linear readout of the raw inputs, and the network on the same samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from ..judge import records
from ..judge.errors import AuditError
from .folds import Folds, Units, stratified
from .probes import WIDEST, projection
from .types import Batch
from .vectors import sketch

if TYPE_CHECKING:
    from .run import NetworkSource

LAST = 8
"""How many tokens before a target the readout sees."""
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""λ/n, of which leave-one-out squared error chooses."""


class Prediction(NamedTuple):
    """What readouts predict of all units that are read."""

    values: Tensor
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
            first = self.inputs.rows[0]
            self.key = (
                digest,
                self.source.task.kind,
                self.source.n_train,
                self.source.training_name,
                self.inputs.reduced,
                first.shape,
                first.numpy().tobytes(),
            )

    def compute(self) -> dict[str, Any]:
        """The record of (g)."""
        if self.problem:
            return {"floor": records.LinearReadout(problem=self.problem)}
        if self.key not in _KNOWN:
            _KNOWN.clear()
            _KNOWN[self.key] = self._prediction()
        prediction = _KNOWN[self.key]
        folds = self.folds
        outcomes = folds.outcomes(prediction.values, folds.targets)
        scores = folds.scores()
        record = records.LinearReadout(
            readout=folds.mean(outcomes),
            network=folds.mean(scores),
            interval=folds.interval(scores - outcomes),
            fitted=prediction.fitted,
            read=len(folds.targets),
            training=self.source.training_name,
            features=self.inputs.rows[0].shape[1],
            reduced=self.inputs.reduced,
            ridges=prediction.ridges,
            left_out=folds.left_out,
        )
        return {"floor": record}

    def _prediction(self) -> Prediction:
        """Fit to each fold and read the other one, or fit to the training split and read all."""
        folds = self.folds
        inputs = self.inputs
        training = self.source.training
        if training is not None:
            inputs = SmallInputs(training, folds.fit)
            for batch in training.batches(frozenset({"inputs"})):
                inputs.take(batch)
        columns = folds.goals(folds.targets[:1]).shape[1]
        values = torch.zeros(len(folds.chosen), columns, dtype=torch.float64)
        ridges = []
        fitted = 0
        for fold in folds.numbers:
            fit = self._units_to_fit(fold)
            read = folds.read.fold(1 - fold).nonzero().flatten()
            goals = folds.goals(folds.fit.targets[fit])
            readout = Readout(inputs.of(fit), goals, folds.fit.weights[fit])
            values[read] = readout(self.inputs.of(read))
            ridges.append(readout.ridge)
            fitted = max(fitted, len(fit))
        return Prediction(values[folds.chosen], tuple(ridges), fitted)

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
    """The inputs of units as at most 2,048 numbers each."""

    def __init__(self, source: NetworkSource, units: Units) -> None:
        self.source = source
        self.units = units
        self.reduced = ""
        """How they were made smaller, in words."""
        self.rows: list[Tensor] = []
        self.indices: list[Tensor] = []

    def take(self, batch: Batch) -> None:
        """Keep those of a batch; an error where a unit has no input of its own."""
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
        self.rows.append(rows.cpu())
        self.indices.append(indices)

    def of(self, indices: Tensor) -> Tensor:
        """The rows of these units, all of them taken before."""
        known = torch.cat(self.indices)
        place = torch.zeros(len(self.units.parts), dtype=torch.long)
        place[known] = torch.arange(len(known))
        return torch.cat(self.rows)[place[indices]]

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
        """At most 2,048 numbers a sample: pooled images, projected vectors, bags of tokens."""
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
            self.reduced = f"projected to {WIDEST:,}"
            x = x @ projection(x.shape[1], x.dtype, x.device)
        return x


class Readout:
    """A weighted ridge regression; λ is chosen by the leave-one-out squared error.

    With Z = U S Vᵀ of the centred, weighted inputs all λ cost one decomposition, of the smaller
    side. Columns that do not vary are left out.
    """

    def __init__(self, x: Tensor, targets: Tensor, weights: Tensor) -> None:
        self.columns = x.amin(0) != x.amax(0)
        """Of the inputs, those that vary."""
        weights = weights * (len(weights) / weights.sum())  # n_train may have cut the fold short
        share = weights.unsqueeze(1) / weights.sum()
        z = x[:, self.columns].double()
        self.mean = (share * z).sum(0)
        self.bias = (share * targets).sum(0)
        z -= self.mean
        self.scale = z.square().mean().sqrt().clamp_min(torch.finfo(z.dtype).tiny)
        root = weights.sqrt().unsqueeze(1)
        z *= root / self.scale
        targets = root * (targets - self.bias)
        values, vectors = _principal(z)
        turned = z @ vectors
        products = turned.T @ targets
        squares = turned.square()
        best = torch.inf
        for ridge in RIDGES:
            inverse = 1 / (values + ridge * len(z))
            coefficients = inverse.unsqueeze(1) * products
            leverage = squares @ inverse + share.squeeze(1)  # the second part is the bias's
            errors = (targets - turned @ coefficients) / (1 - leverage).unsqueeze(1)
            loss = float(errors.square().sum())
            if loss < best:
                best = loss
                self.ridge = ridge
                self.slope = vectors @ coefficients

    def __call__(self, x: Tensor) -> Tensor:
        """What is predicted for other samples."""
        z = (x[:, self.columns].double() - self.mean) / self.scale
        return z @ self.slope + self.bias


def _principal(z: Tensor) -> tuple[Tensor, Tensor]:
    """Squared singular values, and the right singular vectors as columns."""
    samples, features = z.shape
    if features <= samples:
        values, vectors = torch.linalg.eigh(z.T @ z)
        return values.clamp_min(0), vectors
    values, left = torch.linalg.eigh(z @ z.T)
    largest = float(values.amax())
    present = values > samples * torch.finfo(z.dtype).eps * largest
    values = values[present]
    return values, z.T @ left[:, present] / values.sqrt()
