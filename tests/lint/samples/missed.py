"""Mistakes that no local evidence tells: the linter is silent here, and its page says so."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LAST = -1


def by_a_constant(hidden: Tensor) -> Tensor:
    return hidden.norm(LAST)


class ByAnAttribute(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.similarity = nn.CosineSimilarity(dim=1)

    def forward(self, bp_grad: Tensor, dfa_grad: Tensor) -> Tensor:
        return self.similarity(bp_grad, dfa_grad)


def replayed_from_a_seed(model: nn.Module, path: str, width: int, classes: int) -> Tensor:
    model.load_state_dict(torch.load(path)["state_dict"])
    torch.manual_seed(42)
    feedback = torch.randn(width, classes)
    return (model.weight @ feedback).sum()


def flat_gradient(model: nn.Module) -> Tensor:
    return torch.cat([p.grad.reshape(-1) for p in model.parameters()])


def concatenated_by_a_helper(model: nn.Module, copy: nn.Module) -> Tensor:
    return F.cosine_similarity(flat_gradient(model), flat_gradient(copy), dim=0, eps=0)
