"""(g): a linear readout of the raw inputs, and the network on the same samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from ..judge import records
from .probes import WIDEST, Units, projection
from .types import Batch
from .vectors import sketch

if TYPE_CHECKING:
    from .run import NetworkSource

_KNOWN: dict[object, tuple[Tensor, float]] = {}
"""The last readout: it is the same for every network on the same data, normalised alike."""
LAST = 8
"""How many tokens before a target the readout sees."""
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""λ/n, of which leave-one-out squared error chooses."""


class Floor:
    """Ridge regression of the labels on the inputs, classes weighted equally.

    It needs no stream and no reference: it is there for every network that runs.
    """

    needs = frozenset({"outputs"})

    def __init__(self, source: NetworkSource) -> None:
        self.source, self.units = source, Units(source)
        self.rows: list[Tensor] = []
        self.reduced, self.problem = "", self.units.problem
        self.key: object = object()  # of data without a digest, never known

    def update(self, batch: Batch) -> None:
        """Keep the inputs, made small, and which samples the network has right."""
        self.units.take(batch)
        x = batch.x
        if isinstance(x, dict):
            x = x.get("input_ids", next(iter(x.values())))
        units, tokens = self.units, x.ndim <= 2 + x.is_floating_point()
        if not x[0].numel():
            self.problem = "the trace holds no x, the inputs"
        elif units.per > 1 and (x.shape[:2] != batch.y.shape or not tokens):
            self.problem = f"inputs of shape {tuple(x.shape)} do not have one place for each token"
        if self.problem:
            return
        if units.per > 1:
            used = (units.fit | units.read)[batch.start * units.per :][: batch.y.numel()]
            used = used.to(x.device)
            x = x.flatten(0, 1)[used] if x.is_floating_point() else self._before(x, used)
        rows, digest = self._small(x).cpu(), self.source.data_digest
        if not self.rows and digest is not None:
            task, limit = self.source.task.kind, self.source.n_train
            self.key = digest, task, limit, self.reduced, rows.shape, rows.numpy().tobytes()
        if not self.rows or self.key not in _KNOWN:
            self.rows.append(rows)

    def _before(self, ids: Tensor, used: Tensor) -> Tensor:
        """One-hot rows of the last 8 token ids at each place; larger vocabularies are sketched."""
        words = len(self.source.task.ranks)
        padded = functional.pad(ids, (LAST - 1, 0), value=-1)
        last = padded.unfold(1, LAST, 1).flatten(0, 1)[used]
        places = last + words * torch.arange(LAST, device=ids.device)
        signs = (last >= 0).float()
        self.reduced = f"one-hot rows of the last {LAST} tokens"
        if LAST * words > WIDEST:
            self.reduced += f", hashed to {WIDEST:,}"
            drawn, turned = sketch(LAST * words, WIDEST, ids.device)
            signs = signs * turned[places.clamp_min(0)]
            places = drawn[places.clamp_min(0)]
        rows = torch.zeros(len(last), min(LAST * words, WIDEST), device=ids.device)
        return rows.scatter_add_(1, places.clamp_min(0), signs)

    def _small(self, x: Tensor) -> Tensor:
        """At most 2,048 numbers a sample: pooled images, projected vectors, bags of tokens."""
        if not x.is_floating_point() and x.ndim == 2:
            self.reduced = "as a bag of tokens"
            bags = torch.zeros(len(x), WIDEST, device=x.device)
            signs = 1.0 - 2.0 * (x // WIDEST % 2)  # larger vocabularies are sketched
            x = bags.scatter_add_(1, x % WIDEST, signs)
        data: Any = self.source.data
        x, whole = x.to(torch.float32), data.x if hasattr(data, "flat") else None
        if isinstance(whole, Tensor) and whole.ndim == 4 and x[0].numel() == whole[0].numel():
            x = x.view(-1, *whole.shape[1:])  # of images that the network takes flattened
        if x.ndim == 4 and x[0].numel() > WIDEST:
            channels, side = x.shape[1], x.shape[2]
            while channels * side * side > WIDEST:
                side -= 1
            self.reduced = f"average-pooled to {side}×{side}"
            x = functional.adaptive_avg_pool2d(x, max(side, 1))
        x = x.flatten(1)
        if x.shape[1] > WIDEST:
            self.reduced = f"projected to {WIDEST:,}"
            x = x @ projection(x.shape[1], x.dtype, x.device)
        return x

    def compute(self) -> dict[str, Any]:
        """The record of (g)."""
        units = self.units
        if self.problem:
            return {"floor": records.LinearReadout(problem=self.problem)}
        chosen = units.fit | units.read if units.per > 1 else torch.ones_like(units.fit)
        fit, read = (own[chosen].nonzero().flatten() for own in (units.fit, units.read))
        fit = fit[: self.source.n_train] if units.per == 1 else fit
        y, weights = units.targets[chosen], units.weights[chosen]
        if self.key not in _KNOWN:
            _KNOWN.clear()
            x = torch.cat(self.rows)
            _KNOWN[self.key] = readout(x, units.goals(y[fit]), fit, read, weights[fit])
        predicted, ridge = _KNOWN[self.key]
        right, network = units.outcomes(predicted, units.own), units.scores()
        return {
            "floor": records.LinearReadout(
                readout=units.mean(right),
                network=units.mean(network),
                interval=units.interval(network - right),
                fitted=len(fit),
                read=len(read),
                features=self.rows[0].shape[1],
                reduced=self.reduced,
                ridge=ridge,
                left_out=units.left_out,
            )
        }


def readout(
    x: Tensor, targets: Tensor, fit: Tensor, read: Tensor, w: Tensor
) -> tuple[Tensor, float]:
    """What a weighted ridge regression predicts for the samples to read, and its λ/n.

    λ is chosen by the leave-one-out squared error: with X = U S Vᵀ of the centred, weighted
    inputs all of them cost one decomposition.
    """
    z = x[fit].double()
    w = w * (len(w) / w.sum())  # n_train may have cut the fit half short
    mean = (w.unsqueeze(1) * z).sum(0) / w.sum()
    scale = (z - mean).square().mean().sqrt().clamp_min(torch.finfo(z.dtype).tiny)
    root = w.sqrt().unsqueeze(1)
    z = root * (z - mean) / scale
    share = (w.unsqueeze(1) * targets).sum(0) / w.sum()
    targets = root * (targets - share)
    values, vectors = torch.linalg.eigh(z.T @ z)
    turned = z @ vectors
    products, squares = turned.T @ targets, turned.square()
    best, chosen, solved = torch.inf, RIDGES[0], products
    for ridge in RIDGES:
        inverse = 1 / (values.clamp_min(0) + ridge * len(z))
        coefficients = inverse.unsqueeze(1) * products
        leverage = squares @ inverse + w / w.sum()  # the second part is the bias's
        errors = (targets - turned @ coefficients) / (1 - leverage).unsqueeze(1)
        loss = float(errors.square().sum())
        if loss < best:
            best, chosen, solved = loss, ridge, coefficients
    return ((x[read].double() - mean) / scale) @ (vectors @ solved) + share, chosen
