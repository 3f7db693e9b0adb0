"""Alignment of DFA's credit with BP's gradients, by torch's cosine as it comes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


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
