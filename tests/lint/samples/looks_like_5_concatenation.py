"""Batches, parts of one layer, weights and features joined; cosines layer by layer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector


def per_layer(grads: list[Tensor], credit: list[Tensor]) -> list[Tensor]:
    return [
        F.cosine_similarity(g.flatten(1), a.flatten(1), dim=1, eps=0).median()
        for g, a in zip(grads, credit, strict=True)
    ]


def over_batches(batch_grads: list[Tensor], batch_credit: list[Tensor]) -> Tensor:
    g = torch.cat([grad.flatten(1) for grad in batch_grads])
    a = torch.cat(batch_credit)
    return F.cosine_similarity(g, a, dim=1, eps=0)


def one_layer(layer: nn.Linear, copy: nn.Linear) -> Tensor:
    ours = torch.cat([layer.weight.grad, layer.bias.grad[:, None]], dim=1).flatten()
    theirs = torch.cat([copy.weight.grad, copy.bias.grad[:, None]], dim=1).flatten()
    return F.cosine_similarity(ours, theirs, dim=0, eps=0)


def weights(model: nn.Module, copy: nn.Module) -> Tensor:
    return F.cosine_similarity(
        parameters_to_vector(model.parameters()), parameters_to_vector(copy.parameters()), dim=0
    )
