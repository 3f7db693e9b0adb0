"""Hand-built networks whose answers are known, and an independent float64 computation of every number."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from pytest_fadiag import ResidualMLP


@dataclass
class Reference:
    """The protocol's numbers, computed sample by sample with float64 autograd and numpy."""

    residual_norms: list[float] = field(default_factory=list)
    bp_grad_norms: list[float] = field(default_factory=list)
    cross_batch_stability: float = 0.0
    gradient_per_unit_error: float = 0.0
    output_error_norm: float = 0.0
    sample_invariance: float = 0.0
    output_error_drift: float = 0.0
    accuracy: float = 0.0


def mean_pairwise_cosine(vectors: list[np.ndarray]) -> float:
    """The plain double loop over pairs."""
    pairs = [a @ b / np.sqrt(a @ a) / np.sqrt(b @ b) for a, b in itertools.combinations(vectors, 2)]
    return float(np.mean(pairs))


def between_classes(units: np.ndarray, labels: np.ndarray, apart: int) -> float:
    """The mean over pairs of classes of the product of their mean unit gradients, one class apart, by a double loop."""
    means = [units[labels == label].mean(0) for label in np.unique(labels) if label != apart]
    return float(np.mean([a @ b for a, b in itertools.combinations(means, 2)])) if len(means) > 1 else float("nan")


def reference(model: ResidualMLP, x: Tensor, y: Tensor, batches: int = 10) -> Reference:
    """What the definitions of the protocol give for a ResidualMLP, by hand: states spelled out, one backward, loops."""
    net = ResidualMLP(
        model.embed.in_features,
        model.embed.out_features,
        len(model.blocks),
        model.out_head.out_features,
        mlp_ratio=model.blocks[0].fc1.out_features / model.embed.out_features,
        out_ln=isinstance(model.out_ln, nn.LayerNorm),
    ).double()
    net.load_state_dict({name: value.double() for name, value in model.state_dict().items()})
    groups = min(batches, len(y) // 128)
    probe, labels = x[: 128 * groups].double(), y[: 128 * groups]
    h = net.embed(probe).detach().requires_grad_()
    states = [h]
    for block in net.blocks:
        states.append(states[-1] + block(states[-1]))
    for state in states[1:]:
        state.retain_grad()
    logits = net.out_head(net.out_ln(states[-1]))
    nn.functional.cross_entropy(logits, labels, reduction="sum").backward()
    gradients = [state.grad.numpy() / 128 for state in states if state.grad is not None]
    e = (logits.softmax(1) - nn.functional.one_hot(labels, logits.shape[1])).detach().numpy()
    error_norms = np.sqrt((e * e).sum(1))
    middle = gradients[(len(states) - 1) // 2]
    units = middle / np.sqrt((middle * middle).sum(1, keepdims=True))
    with torch.no_grad():
        predicted = net(x.double()).argmax(1)
    most_predicted = int(logits.argmax(1).mode().values)
    return Reference(
        residual_norms=[float(np.median(np.sqrt((s.detach().numpy() ** 2).sum(1)))) for s in states],
        bp_grad_norms=[float(np.median(np.sqrt((g * g).sum(1)))) for g in gradients],
        cross_batch_stability=mean_pairwise_cosine([part.mean(0) for part in np.split(middle, groups)]),
        gradient_per_unit_error=float(np.median(np.sqrt((gradients[-1] ** 2).sum(1)) / error_norms)),
        output_error_norm=float(np.median(error_norms)),
        sample_invariance=between_classes(units, labels.numpy(), most_predicted),
        output_error_drift=mean_pairwise_cosine([part.mean(0) for part in np.split(e, groups)]),
        accuracy=float((predicted == y).double().mean()),
    )


def clustered(samples: int, d_in: int = 20, classes: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Easy classification data: one Gaussian cloud a class."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, d_in, generator=generator) * 2
    y = torch.randint(0, classes, (samples,), generator=generator)
    return centres[y] + torch.randn(samples, d_in, generator=generator), y


def network(d_in: int = 20, d: int = 16, blocks: int = 4, classes: int = 5, seed: int = 0, **options: object) -> ResidualMLP:
    """A ResidualMLP from its own random stream."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ResidualMLP(d_in, d, blocks, classes, **options)  # type: ignore[arg-type]


def trained(
    steps: int, samples: int = 2000, seed: int = 0, lr: float = 3e-3, *, frozen: bool = False, **options: object
) -> ResidualMLP:
    """A ResidualMLP trained by backpropagation on the clustered data; of a frozen one the blocks stay as they are drawn."""
    x, y = clustered(samples)
    model = network(seed=seed, **options)
    model.blocks.requires_grad_(not frozen)
    optimiser = torch.optim.Adam(model.parameters(), lr=lr)
    for step in range(steps):
        part = slice(128 * step % (samples - 128), 128 * step % (samples - 128) + 128)
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x[part]), y[part]).backward()
        optimiser.step()
    return model


def rings(samples: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Four classes by two radii, which no linear readout of the input tells apart: depth is needed."""
    x = torch.randn(samples, 20, generator=torch.Generator().manual_seed(seed))
    return x, (x[:, :4].square().sum(1) > 3.36).long() + 2 * (x[:, 4:8].square().sum(1) > 3.36).long()


def trained_on_rings(steps: int = 400) -> ResidualMLP:
    """A ResidualMLP that has learnt them by backpropagation; with no step, one whose blocks are as drawn."""
    x, y = rings(4_000, seed=1)
    model = network(d=24, blocks=3, classes=4)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(steps):
        part = slice(128 * step % 3_840, 128 * step % 3_840 + 128)
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x[part]), y[part]).backward()
        optimiser.step()
    return model


def in_batches(x: Tensor, y: Tensor, size: int = 128) -> list[tuple[Tensor, Tensor]]:
    """The samples in batches of one size, the last one short."""
    return list(zip(x.split(size), y.split(size), strict=True))


class Residual(nn.Module):
    """h + f(h), f of the given layers."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.f = nn.Sequential(*layers)

    def forward(self, h: Tensor) -> Tensor:
        return h + self.f(h)  # type: ignore[no-any-return]
