"""Tiny networks and data whose answers are known, and every number of the protocol by hand."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pytest_fadiag.judge.records import Measurement
from pytest_fadiag.load.network import ResidualMLP
from pytest_fadiag.measure.run import NetworkSource, measure

PASS = ("states", "gradients", "directions", "output-error", "accuracy")
"""What (a) to (d) are judged by."""


def measured(
    model: nn.Module, batches: Any, metrics: Sequence[str] = PASS, **options: Any
) -> Measurement:
    """What these metrics compute of a network."""
    return measure(NetworkSource(model, batches, **options), metrics)


def clustered(
    samples: int, d_in: int = 20, classes: int = 5, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Easy classification data: one Gaussian cloud per class."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, d_in, generator=generator) * 2
    y = torch.randint(0, classes, (samples,), generator=generator)
    return centres[y] + torch.randn(samples, d_in, generator=generator), y


def rings(samples: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Four classes by two radii, which no linear readout of the input tells apart."""
    x = torch.randn(samples, 20, generator=torch.Generator().manual_seed(seed))
    inner, outer = (x[:, part].square().sum(1) > 3.36 for part in (slice(4), slice(4, 8)))
    return x, inner.long() + 2 * outer.long()


def in_batches(x: Tensor, y: Tensor, size: int = 128) -> list[tuple[Tensor, Tensor]]:
    """The samples in batches of one size, the last one short."""
    return list(zip(x.split(size), y.split(size), strict=True))


def seeded(make: Callable[[], Any], seed: int = 0) -> Any:
    """What is made from a random stream of its own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def network(
    d_in: int = 20, d: int = 16, blocks: int = 4, classes: int = 5, seed: int = 0, **options: Any
) -> ResidualMLP:
    """A ResidualMLP as initialised."""
    return seeded(lambda: ResidualMLP(d_in, d, blocks, classes, **options), seed)


def changed(model: nn.Module, change: Callable[[Any], Any]) -> Any:
    """The network after its weights were written to."""
    with torch.no_grad():
        change(model)
    return model


def fitted(model: nn.Module, x: Tensor, y: Tensor, steps: int, lr: float = 3e-3) -> Any:
    """The network after some steps of backpropagation."""
    wanted = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser, batches = torch.optim.Adam(wanted, lr=lr), in_batches(x, y)
    for _, (images, labels) in zip(range(steps), itertools.cycle(batches), strict=False):
        optimiser.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimiser.step()
    return model


def trained(steps: int, *, frozen: bool = False, **options: Any) -> ResidualMLP:
    """A ResidualMLP trained on the clustered data; frozen: its blocks stay as initialised."""
    model = network(**options)
    model.blocks.requires_grad_(not frozen)
    return fitted(model, *clustered(2_048), steps)


def trained_on_rings(steps: int = 400) -> ResidualMLP:
    """A ResidualMLP that has learnt the rings; with no step, one as initialised."""
    return fitted(network(d=24, blocks=3, classes=4), *rings(3_840, seed=1), steps)


class Residual(nn.Module):
    """h + f(h), f of the given layers."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.f = nn.Sequential(*layers)

    def forward(self, h: Tensor) -> Tensor:
        return h + self.f(h)  # type: ignore[no-any-return]


class Chain(nn.Module):
    """A stream of blocks, whose states can be spelled out."""

    def __init__(self, embed: nn.Module, blocks: Sequence[nn.Module], head: nn.Module) -> None:
        super().__init__()
        self.embed, self.blocks, self.head = embed, nn.ModuleList(blocks), head

    def states(self, x: Tensor) -> list[Tensor]:
        states = [self.embed(x)]
        for block in self.blocks:
            states.append(block(states[-1]))
        return states

    def read(self, h: Tensor) -> Tensor:
        return self.head(h)  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        return self.read(self.states(x)[-1])


class Mean(nn.Module):
    """The mean over one dimension."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, h: Tensor) -> Tensor:
        return h.mean(self.dim)


def states_and_head(model: Any, x: Tensor) -> tuple[list[Tensor], Tensor]:
    """h_0 … h_L and the logits, of a ResidualMLP spelled out."""
    if hasattr(model, "states"):
        states = model.states(x)
        return states, model.read(states[-1])
    states = [model.embed(x)]
    for block in model.blocks:
        states.append(states[-1] + block(states[-1]))
    return states, model.out_head(model.out_ln(states[-1]))


def by_hand(
    model: nn.Module, x: Tensor, y: Tensor, dims: Sequence[tuple[int, ...]] | None = None
) -> dict[str, Any]:
    """What the protocol's definitions give: float64, states spelled out, one backward, loops.

    ``dims``: over which dimensions the norm of each state is taken, where it is not a vector.
    """
    wide = copy.deepcopy(model).double().eval()
    batches = min(10, len(y) // 128)
    few, labels = x[: 128 * batches].double(), y[: 128 * batches]
    states, logits = states_and_head(wide, few)
    for state in states:
        state.retain_grad()
    F.cross_entropy(logits, labels, reduction="sum").backward()
    gradients = [state.grad / 128 for state in states if state.grad is not None]
    e = (logits.softmax(1) - F.one_hot(labels, logits.shape[1])).detach().numpy()
    sizes = np.sqrt((e * e).sum(1))
    own = dims or [(1,)] * len(states)
    norms, gradient_norms = (
        [
            value.detach().square().sum(dim).sqrt().numpy()
            for value, dim in zip(of, own, strict=True)
        ]
        for of in (states, gradients)
    )
    middle = gradients[max((len(states) - 1) // 2, 1)].flatten(1).numpy()
    units = middle / np.sqrt((middle * middle).sum(1, keepdims=True))
    predicted = int(logits.argmax(1).mode().values)
    with torch.no_grad():
        hits = states_and_head(wide, x.double())[1].argmax(1) == y
    return {
        "residual_norms": [float(np.median(norm)) for norm in norms],
        "bp_grad_norms": [float(np.median(norm)) for norm in gradient_norms],
        "cross_batch_stability": mean_cosine([part.mean(0) for part in np.split(middle, batches)]),
        "gradient_per_unit_error": float(
            np.median(gradient_norms[-1].reshape(len(e), -1) / sizes[:, None])
        ),
        "output_error_norm": float(np.median(sizes)),
        "sample_invariance": between_classes(units, labels.numpy(), predicted),
        "output_error_drift": mean_cosine([part.mean(0) for part in np.split(e, batches)]),
        "accuracy": float(hits.double().mean()),
    }


def mean_cosine(vectors: Sequence[Any]) -> float:
    """The mean over pairs, by a loop."""
    pairs = itertools.combinations(vectors, 2)
    return float(np.mean([a @ b / np.sqrt(a @ a) / np.sqrt(b @ b) for a, b in pairs]))


def between_classes(units: Any, labels: Any, left_out: int) -> float:
    """The mean product of two classes' mean unit gradients, one class left out, by a loop."""
    means = [units[labels == label].mean(0) for label in np.unique(labels) if label != left_out]
    return float(np.mean([a @ b for a, b in itertools.combinations(means, 2)]))
