"""Means over samples, batches and seeds; means over layers of what is no alignment."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


def per_layer(credit: list[Tensor], grads: list[Tensor]) -> list[Tensor]:
    return [
        F.cosine_similarity(a, g, dim=1, eps=0).mean() for a, g in zip(credit, grads, strict=True)
    ]


def apart(credit: list[Tensor], grads: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    cosines = torch.stack(
        [F.cosine_similarity(a, g, dim=1, eps=0) for a, g in zip(credit, grads, strict=True)]
    )
    return cosines.mean(dim=1), cosines[0].mean(), cosines[1:].mean()


def over_batches(
    batches: list[Tensor], grad_of: dict[int, Tensor], reference_grad: Tensor
) -> float:
    cosines = []
    for batch, _ in enumerate(batches):
        cosines.append(F.cosine_similarity(grad_of[batch], reference_grad, dim=0, eps=0).item())
    return float(np.mean(cosines))


def each_layer_over_batches(
    layers: list[nn.Linear], batch_credit: list[list[Tensor]]
) -> dict[int, float]:
    found = {}
    for index, layer in enumerate(layers):
        cosines = []
        for credit in batch_credit:
            cosines.append(
                F.cosine_similarity(layer.weight.grad, credit[index], dim=0, eps=0).mean().item()
            )
        found[index] = sum(cosines) / len(cosines)
    return found


def features(layers: list[nn.Module], x: Tensor, y: Tensor) -> Tensor:
    return torch.stack([F.cosine_similarity(layer(x), layer(y)) for layer in layers]).mean()


def over_samples(grads: list[Tensor], reference_grad: Tensor) -> Tensor:
    return torch.stack([F.cosine_similarity(g, reference_grad, dim=0, eps=0) for g in grads]).mean()


def each_layer_over_samples(
    layers: list[nn.Linear], credit: dict[str, Tensor]
) -> tuple[dict[str, Tensor], list[Tensor], Tensor]:
    cosines = {}
    for layer in layers:
        cosines[layer.name] = F.cosine_similarity(layer.weight.grad, credit[layer.name], eps=0)
    for of_samples in cosines.values():
        print(of_samples.mean())
    first = cosines["embed"]
    means = {name: of_samples.mean() for name, of_samples in cosines.items()}
    return means, [np.mean(of_samples) for of_samples in cosines.values()], first.mean()
