"""Gradient norms and cosines that went through float16."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.amp import autocast
from torch.cuda.amp import autocast as cuda_autocast


def norms(model: nn.Module, x: Tensor, y: Tensor) -> list[Tensor]:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x), y)
        grads = torch.autograd.grad(loss, list(model.parameters()))
        return [g.norm() for g in grads]  # ← 3


def norms_after(model: nn.Module, x: Tensor, y: Tensor) -> list[float]:
    with cuda_autocast():
        loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    return [p.grad.abs().mean().item() for p in model.parameters()]  # ← 3


@autocast("cuda")
def measure(model: nn.Module, x: Tensor) -> float:
    model(x).sum().backward()
    return sum(p.grad.norm().item() ** 2 for p in model.parameters()) ** 0.5  # ← 3


def stored(gradient: Tensor) -> tuple[Tensor, Tensor]:
    small = gradient.to(torch.float16)
    return small.std(), gradient.half().norm(dim=-1)  # ← 3 3
