"""One cosine for the whole network: all its layers end to end."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector


def overall(model: nn.Module, copy: nn.Module) -> Tensor:
    found = []
    for p in model.parameters():
        found.append(p.grad.reshape(-1))
    a, b = torch.cat(found), torch.cat([p.grad.reshape(-1) for p in copy.parameters()])
    return a @ b / (a.norm() * b.norm())  # ← 5


def vectors(loss: Tensor, proxy: Tensor, params: list[nn.Parameter]) -> Tensor:
    a = parameters_to_vector(torch.autograd.grad(loss, params))
    b = parameters_to_vector(torch.autograd.grad(proxy, params))
    dot = (a * b).sum()
    norms = torch.linalg.norm(a) * torch.linalg.norm(b)
    return dot / norms  # ← 5


def blocks(model: nn.Module, teaching: Tensor) -> Tensor:
    grads = [block.weight.grad.flatten() for block in model.blocks]
    return F.cosine_similarity(torch.cat(grads), teaching, dim=0, eps=0)  # ← 5
