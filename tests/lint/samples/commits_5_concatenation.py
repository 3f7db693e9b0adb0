"""One cosine for the whole network: all its layers end to end."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector


def total(grads1: list[Tensor], grads2: list[Tensor]) -> float:
    flat1 = torch.cat([g.view(-1) for g in grads1])
    flat2 = torch.cat([g.view(-1) for g in grads2])
    return F.cosine_similarity(flat1, flat2, dim=0, eps=0).item()  # ← 5


def flat_gradient(model: nn.Module) -> Tensor:
    found = []
    for p in model.parameters():
        found.append(p.grad.reshape(-1))
    return torch.cat(found)


def overall(model: nn.Module, copy: nn.Module) -> Tensor:
    a, b = flat_gradient(model), flat_gradient(copy)
    return a @ b / (a.norm() * b.norm())  # ← 5


def vectors(loss: Tensor, proxy: Tensor, params: list[nn.Parameter]) -> Tensor:
    a = parameters_to_vector(torch.autograd.grad(loss, params))
    b = parameters_to_vector(torch.autograd.grad(proxy, params))
    dot = (a * b).sum()
    norms = torch.linalg.norm(a) * torch.linalg.norm(b)
    return dot / norms  # ← 5


def numpy_cosine(layers: list[nn.Linear], credit: list[np.ndarray]) -> float:
    g = np.concatenate([layer.weight.grad.numpy().ravel() for layer in layers])
    a = np.concatenate([c.ravel() for c in credit])
    return float(np.dot(a, g) / (np.linalg.norm(a) * np.linalg.norm(g) + 1e-12))  # ← 5


def stacked(model: nn.Module, teaching: Tensor) -> Tensor:
    grads = [block.weight.grad for block in model.blocks]
    return F.cosine_similarity(torch.stack(grads).flatten(), teaching, dim=0, eps=0)  # ← 5


def summed(grads_a: list[Tensor], grads_b: list[Tensor]) -> Tensor:
    dot = sum((a * b).sum() for a, b in zip(grads_a, grads_b, strict=True))
    norm_a = sum(a.pow(2).sum() for a in grads_a).sqrt()
    norm_b = sum(b.pow(2).sum() for b in grads_b).sqrt()
    return dot / (norm_a * norm_b)  # ← 5


def two_layers(net: nn.Module, reference: Tensor) -> Tensor:
    joined = torch.cat([net.fc1.weight.grad.flatten(), net.fc2.weight.grad.flatten()])
    return F.cosine_similarity(joined, reference, dim=0, eps=0)  # ← 5
