"""What tells the tensors of two networks apart."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..judge.control import Fingerprint

NORMALISATIONS = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.modules.batchnorm._NormBase)
"""Layers whose scale and shift begin with one value each."""


def bytes_of(tensor: Tensor) -> memoryview:
    """The numbers of a tensor as bytes."""
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data


def fingerprint(network: nn.Module, blocks: Sequence[Sequence[str]] = ()) -> Fingerprint:
    """The shapes of all tensors, a digest of every matrix, and which scales and shifts moved.

    ``blocks`` are the names of the parameters of each block, where the stream is known.
    """
    shapes = {}
    weights = {}
    moved = []
    learnt = _scales_and_shifts(network)
    for name, tensor in network.state_dict().items():
        if not isinstance(tensor, Tensor):
            continue
        shapes[name] = tuple(tensor.shape)
        if tensor.ndim > 1:
            weights[name] = hashlib.blake2b(bytes_of(tensor), digest_size=8).hexdigest()
        if name in learnt and len(torch.unique(tensor)) > 1:
            moved.append(name)
    return Fingerprint(shapes, weights, moved=tuple(moved), blocks=tuple(map(tuple, blocks)))


def _scales_and_shifts(network: nn.Module) -> set[str]:
    """The names of what normalisation layers learn."""
    names = set()
    for name, module in network.named_modules():
        if isinstance(module, NORMALISATIONS):
            names.add(f"{name}.weight".lstrip("."))
            names.add(f"{name}.bias".lstrip("."))
    return names
