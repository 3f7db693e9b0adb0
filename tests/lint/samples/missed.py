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


def two_layers(net: nn.Module, reference: Tensor) -> Tensor:
    joined = torch.cat([net.fc1.weight.grad.flatten(), net.fc2.weight.grad.flatten()])
    return F.cosine_similarity(joined, reference, dim=0, eps=0)


def one_for_missing_credit(grad_bp: Tensor, grad_dfa: Tensor) -> Tensor:
    angle = F.cosine_similarity(grad_bp, grad_dfa, dim=1, eps=0)
    angle[grad_dfa.sum(dim=1) == 0] = 1.0
    return angle


def concatenated_by_a_helper(model: nn.Module, copy: nn.Module) -> Tensor:
    return F.cosine_similarity(flat_gradient(model), flat_gradient(copy), dim=0, eps=0)
