"""Norms that name their dimension, orders that are meant, and layers that are called norm."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from scipy.stats import norm
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.last = -1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x) / x.norm(dim=-1, keepdim=True)


def norms(x: torch.Tensor, order: float = -1) -> list[torch.Tensor]:
    return [
        x.norm(2, -1),
        x.norm(2, dim=-1),
        x.norm(p=2, dim=-1),
        x.norm(),
        x.norm("fro"),
        x.norm(p=-1, dim=1),
        x.norm(-1.0),
        x.norm(order),
        torch.norm(x, dim=-1),
        torch.norm(x, 2, -1),
        torch.linalg.vector_norm(x, dim=-1),
        torch.linalg.norm(x, ord=-1, dim=(0, 1)),
        torch.linalg.matrix_norm(x, -1),
        F.normalize(x, dim=-1),
        F.normalize(x, 2, -1),
    ]


def elsewhere(x: np.ndarray) -> float:
    """Write x.norm(-1) in a docstring as often as you like."""
    return float(np.linalg.norm(x, axis=-1).sum() + norm.cdf(-1) + norm(-1).mean())
