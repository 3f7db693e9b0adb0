"""(g): a linear readout of the raw inputs, and the network on the same samples."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from ..judge import records
from ..judge.margins import balanced_interval
from ..judge.records import LEAST_IMAGES
from ..judge.words import plural
from .probes import WIDEST, balance, balanced, halves, projection
from .types import Batch, ModelInput
from .vectors import wide_dtype

if TYPE_CHECKING:
    from .run import NetworkSource

_KNOWN: dict[bytes, tuple[Tensor, float]] = {}
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""λ/n, of which leave-one-out squared error chooses."""


class Floor:
    """Ridge regression of the labels on the inputs, classes weighted equally.

    It needs no stream and no reference: it is there for every network that runs.
    """

    needs = frozenset({"outputs"})

    def __init__(self, source: NetworkSource) -> None:
        self.source, self.labels = source, source.labels
        self.fitted, _ = halves(self.labels)
        self.rows: list[Tensor] = []
        self.hits: list[Tensor] = []
        self.reduced = ""

    def update(self, batch: Batch) -> None:
        """Keep the inputs, made small, and which samples the network has right."""
        assert batch.outputs is not None
        self.hits.append(self.source.task.hits(batch.outputs, batch.y).cpu())
        self.rows.append(self._small(batch.x).cpu())

    def _small(self, given: ModelInput) -> Tensor:
        """At most 2,048 numbers a sample: pooled images, projected vectors, bags of tokens."""
        x = given
        if isinstance(x, dict):
            x = x.get("input_ids", next(iter(x.values())))
        if not x.is_floating_point() and x.ndim == 2:
            self.reduced = "as a bag of tokens"
            bags = torch.zeros(len(x), WIDEST, device=x.device)
            signs = 1.0 - 2.0 * (x // WIDEST % 2)  # larger vocabularies are sketched
            x = bags.scatter_add_(1, x % WIDEST, signs)
        x = x.to(torch.float32)
        if x.ndim == 4 and x[0].numel() > WIDEST:
            channels, side = x.shape[1], x.shape[2]
            while channels * side * side > WIDEST:
                side -= 1
            self.reduced = f"average-pooled to {side}×{side}"
            x = functional.adaptive_avg_pool2d(x, max(side, 1))
        x = x.flatten(1)
        if x.shape[1] > WIDEST:
            self.reduced = ", ".join(filter(None, [self.reduced, f"projected to {WIDEST:,}"]))
            x = x @ projection(x.shape[1], x.dtype, x.device)
        return x

    def compute(self) -> dict[str, Any]:
        """The record of (g)."""
        hits, x = torch.cat(self.hits), torch.cat(self.rows)
        y = self.labels[: len(hits)]
        if len(y) < LEAST_IMAGES:
            problem = f"{plural(len(y), 'test image')}; a linear readout needs {LEAST_IMAGES:,}"
            return {"floor": records.Floor(problem=problem)}
        weights, kept, left_out = balance(y, self.fitted)
        fit = (self.fitted & kept).nonzero().flatten()[: self.source.n_train]
        read = ~self.fitted & kept
        # The readout is the same for every network on these data.
        key = hashlib.blake2b(x.numpy().tobytes())
        key.update(y.numpy().tobytes() + len(fit).to_bytes(8, "big"))
        if key.digest() not in _KNOWN:
            _KNOWN.clear()
            _KNOWN[key.digest()] = readout(x, y, fit, read, weights)
        right, ridge = _KNOWN[key.digest()]
        network = hits[read].double()
        difference = (network - right).tolist()
        return {
            "floor": records.Floor(
                readout=balanced(right, y[read]),
                network=balanced(network, y[read]),
                interval=balanced_interval(difference, y[read].tolist()),
                fitted=len(fit),
                read=int(read.sum()),
                features=x.shape[1],
                reduced=self.reduced,
                ridge=ridge,
                left_out=left_out,
            )
        }


def readout(
    x: Tensor, y: Tensor, fit: Tensor, read: Tensor, weights: Tensor
) -> tuple[Tensor, float]:
    """Which of the samples to read a weighted ridge regression has right, and its λ/n.

    λ is chosen by the leave-one-out squared error: with X = U S Vᵀ of the centred, weighted
    inputs all of them cost one decomposition.
    """
    dtype = wide_dtype(x)
    z, w = x[fit].to(dtype), weights[y[fit]].to(dtype)
    w = w * (len(w) / w.sum())  # n_train may have cut the fit half short
    mean = (w.unsqueeze(1) * z).sum(0) / w.sum()
    scale = (z - mean).square().mean().sqrt().clamp_min(torch.finfo(dtype).tiny)
    root = w.sqrt().unsqueeze(1)
    z = root * (z - mean) / scale
    targets = functional.one_hot(y[fit], int(y.max()) + 1).to(dtype)
    share = (w.unsqueeze(1) * targets).sum(0) / w.sum()
    targets = root * (targets - share)
    values, vectors = torch.linalg.eigh(z.T @ z)
    turned = z @ vectors
    products = turned.T @ targets
    best, chosen, solved = torch.inf, RIDGES[0], products
    for ridge in RIDGES:
        inverse = 1 / (values.clamp_min(0) + ridge * len(z))
        coefficients = inverse.unsqueeze(1) * products
        leverage = turned.square() @ inverse + w / w.sum()  # the second part is the bias's
        errors = (targets - turned @ coefficients) / (1 - leverage).unsqueeze(1)
        loss = float(errors.square().sum())
        if loss < best:
            best, chosen, solved = loss, ridge, coefficients
    fresh = ((x[read].to(dtype) - mean) / scale) @ (vectors @ solved) + share
    return (fresh.argmax(1) == y[read]).double(), chosen
