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
    tensors = {
        name: value for name, value in network.state_dict().items() if isinstance(value, Tensor)
    }
    learnt = {
        f"{name}.{kind}".lstrip(".")
        for name, module in network.named_modules()
        for kind in ("weight", "bias")
        if isinstance(module, NORMALISATIONS)
    }
    return Fingerprint(
        shapes={name: tuple(tensor.shape) for name, tensor in tensors.items()},
        weights={
            name: hashlib.blake2b(bytes_of(tensor), digest_size=8).hexdigest()
            for name, tensor in tensors.items()
            if tensor.ndim > 1
        },
        moved=tuple(
            name
            for name, value in tensors.items()
            if name in learnt and len(torch.unique(value)) > 1
        ),
        blocks=tuple(map(tuple, blocks)),
    )
