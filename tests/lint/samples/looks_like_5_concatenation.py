"""Concatenations along batches, of one layer's parts, of weights and of features; cosines of each layer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector


def per_layer(grads: list[Tensor], credit: list[Tensor]) -> list[Tensor]:
    return [F.cosine_similarity(g.flatten(1), a.flatten(1), dim=1, eps=0).median() for g, a in zip(grads, credit, strict=True)]


def over_batches(batch_grads: list[Tensor], batch_credit: list[Tensor]) -> Tensor:
    g = torch.cat([grad.flatten(1) for grad in batch_grads])
    a = torch.cat(batch_credit)
    return F.cosine_similarity(g, a, dim=1, eps=0)


def collected(loader: list[Tensor], model: nn.Module, credit: Tensor) -> Tensor:
    rows = []
    for x in loader:
        rows.append(torch.autograd.grad(model(x).sum(), x)[0])
    return F.cosine_similarity(torch.cat(rows), credit, dim=1, eps=0)


def one_layer(layer: nn.Linear, copy: nn.Linear) -> Tensor:
    ours = torch.cat([layer.weight.grad, layer.bias.grad[:, None]], dim=1).flatten()
    theirs = torch.cat([copy.weight.grad, copy.bias.grad[:, None]], dim=1).flatten()
    return F.cosine_similarity(ours, theirs, dim=0, eps=0)


def weights(model: nn.Module, copy: nn.Module) -> Tensor:
    return F.cosine_similarity(parameters_to_vector(model.parameters()), parameters_to_vector(copy.parameters()), dim=0)


def features(layers: list[nn.Module], x: Tensor, y: Tensor) -> Tensor:
    return F.cosine_similarity(
        torch.cat([layer(x) for layer in layers], dim=1), torch.cat([layer(y) for layer in layers], dim=1)
    )


def flat_norm(grads: list[Tensor]) -> Tensor:
    return torch.cat([g.flatten() for g in grads]).norm()
