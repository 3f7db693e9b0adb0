"""An evaluation that draws the feedback of direct feedback alignment again, as the training script did."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def credit(net: nn.Module, error: Tensor, widths: list[int], path: str, seed: int) -> list[Tensor]:
    net.load_state_dict(torch.load(path))
    generator = torch.Generator().manual_seed(seed)
    Bs = [torch.randn(width, error.shape[1], generator=generator) for width in widths]  # ← 4
    return [error @ B.T for B in Bs]


def measure_credit(net: nn.Module, error: Tensor) -> Tensor:
    torch.manual_seed(0)
    B = torch.randn(net.width, error.shape[1])  # ← 4
    return (error @ B.T).norm(dim=-1)


def random_credit(net: nn.Module, error: Tensor) -> Tensor:
    """Another draw on purpose: a baseline, not the feedback the network was trained with."""
    B = torch.randn(net.width, error.shape[1])
    return (error @ B.T).norm(dim=-1)
