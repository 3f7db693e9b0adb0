"""Alignment of DFA's credit with BP's gradients, by torch's cosine as it comes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class AlignmentMeter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.similarity = nn.CosineSimilarity(dim=1)

    def forward(self, bp_grads: dict[str, Tensor], dfa_grads: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: self.similarity(grad, dfa_grads[name]) for name, grad in bp_grads.items()}  # ← 2


def angles(model: nn.Module, copy: nn.Module) -> list[Tensor]:
    cosine = nn.CosineSimilarity(dim=0, eps=1e-6)
    found = []
    for ours, theirs in zip(model.parameters(), copy.parameters(), strict=True):
        found.append(cosine(ours.grad.flatten(), theirs.grad.flatten()))  # ← 2
    return found


def alignment(loss: Tensor, hidden: Tensor, error: Tensor, feedback: Tensor) -> Tensor:
    g = torch.autograd.grad(loss, hidden, retain_graph=True)[0]
    a = error @ feedback.T
    return F.cosine_similarity(a, g, dim=-1).median()  # ← 2


def stability(batches: list[Tensor], probe: nn.Module) -> Tensor:
    probes = []
    for x in batches:
        probe(x).sum().backward()
        probes.append(probe.weight.grad.clone())
    return torch.cosine_similarity(probes[0], probes[1], dim=-1, eps=1e-8)  # ← 2


def batch_cosine(a: Tensor, b: Tensor) -> Tensor:
    return F.cosine_similarity(a, b, dim=-1)  # ← 2


def report(credits_by_layer: list[Tensor], gradients_by_layer: list[Tensor]) -> list[Tensor]:
    return [batch_cosine(a, g) for a, g in zip(credits_by_layer, gradients_by_layer, strict=True)]


def logged(g_bp: Tensor, grad_dfa: Tensor) -> tuple[Tensor, float]:
    cos = F.cosine_similarity(g_bp, grad_dfa, dim=0)  # ← 2
    norm = grad_dfa.norm()
    ratio = float(g_bp.norm() / norm) if norm > 0 else float("inf")
    return cos, ratio
