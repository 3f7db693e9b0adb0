"""Mixed-precision training as it should be, and measurements that leave float16."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[tuple[Tensor, Tensor]]
) -> float:
    scaler = torch.amp.GradScaler("cuda")
    total = 0.0
    for x, y in batches:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        total += sum(p.grad.norm().item() for p in model.parameters())
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    return total


def brain_float(model: nn.Module, x: Tensor) -> list[Tensor]:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        grads = torch.autograd.grad(model(x).sum(), list(model.parameters()))
        return [g.norm() for g in grads]


def switched_off(model: nn.Module, x: Tensor) -> Tensor:
    with torch.autocast("cuda", enabled=False):
        return torch.autograd.grad(model(x).sum(), x)[0].norm()


def compressed(gradient: Tensor) -> Tensor:
    return gradient.half().cpu()
