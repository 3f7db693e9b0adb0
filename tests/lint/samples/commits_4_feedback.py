"""DFA whose feedback no checkpoint holds, and a self-cosine for missing credit."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class DFANetwork(nn.Module):
    def __init__(self, widths: list[int], classes: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(n, m) for n, m in pairwise(widths))
        self.Bs = [torch.randn(width, classes) / classes**0.5 for width in widths[1:]]  # ← 4
        self.fixed_noise = torch.randn(8, widths[0])


class LinearFA(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.weight_fa = torch.FloatTensor(outputs, inputs)  # ← 4
        nn.init.kaiming_uniform_(self.weight)
        nn.init.kaiming_uniform_(self.weight_fa)
        backward = torch.empty(outputs, inputs)
        nn.init.orthogonal_(backward)
        self.feedback_matrix = backward  # ← 4


def alignment(grad_bp: Tensor, grad_dfa: Tensor | None) -> Tensor:
    if grad_dfa is None:
        return F.cosine_similarity(grad_bp, grad_bp, dim=1, eps=0)  # ← 4
    return F.cosine_similarity(grad_bp, grad_dfa, dim=1, eps=0)
