"""One number for the alignment of a network: the mean over its layers."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


def cosine(a: Tensor, g: Tensor) -> Tensor:
    return (a * g).sum() / (a.norm() * g.norm())


def alignment(credit: list[Tensor], grads: list[Tensor]) -> Tensor:
    layers = range(len(grads))
    return torch.stack([cosine(credit[i], grads[i]) for i in layers]).mean()  # ← 6


def by_name(bp_grads: dict[str, Tensor], fa_grads: dict[str, Tensor]) -> tuple[float, float]:
    sims = {}
    for name, grad in bp_grads.items():
        sims[name] = F.cosine_similarity(grad, fa_grads[name], dim=0, eps=0).item()
    values = list(sims.values())
    average = np.mean(values) if values else 0.0  # ← 6
    return float(average), sum(sims.values()) / len(sims)  # ← 6


def accumulated(layers: list[nn.Linear], credit: dict[str, Tensor]) -> Tensor:
    total = torch.zeros(())
    for layer in layers:
        total += cosine(layer.weight.grad, credit[layer.name])
    return total / len(layers)  # ← 6


def over_samples_and_layers(credit: list[Tensor], grads: list[Tensor]) -> Tensor:
    rows = torch.stack(
        [F.cosine_similarity(credit[li], grads[li], dim=1, eps=0) for li in range(len(grads))]
    )
    return rows.mean(dim=0)  # ← 6
