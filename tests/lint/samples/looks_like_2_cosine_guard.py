"""Cosines of embeddings, and cosines of gradients whose authors saw to small norms themselves."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FLOOR = 1e-10


def retrieval(
    model: nn.Module, images: Tensor, texts: Tensor, lr: float, grad: Tensor
) -> list[Tensor]:
    with torch.no_grad():
        moved = model(images - lr * grad)
    return [
        F.cosine_similarity(model(images), texts, dim=-1),
        nn.CosineSimilarity(dim=1)(moved, texts),
        F.cosine_similarity(model.weight.requires_grad_(False), texts),
    ]


def with_eps(grad_a: Tensor, grad_b: Tensor) -> Tensor:
    return F.cosine_similarity(grad_a, grad_b, dim=-1, eps=0.0)


def in_double(grad_a: Tensor, grad_b: Tensor) -> Tensor:
    return F.cosine_similarity(grad_a.double(), grad_b.to(torch.float64), dim=-1, eps=1e-10)


def rescaled(grad_a: Tensor, grad_b: Tensor) -> Tensor:
    a = grad_a / grad_a.norm(dim=-1, keepdim=True)
    size = grad_b.abs().amax()
    b = grad_b.flatten(1)
    b /= size
    return F.cosine_similarity(a, b, dim=-1)


def normalised(grad_a: Tensor, grad_b: Tensor) -> Tensor:
    return F.cosine_similarity(F.normalize(grad_a, dim=-1), F.normalize(grad_b, dim=-1), dim=-1)


def left_early(grad_a: Tensor, grad_b: Tensor) -> float:
    if min(grad_a.norm(), grad_b.norm()) < FLOOR:
        return float("nan")
    return F.cosine_similarity(grad_a, grad_b, dim=0).item()
