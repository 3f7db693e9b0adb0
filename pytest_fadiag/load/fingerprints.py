"""The fingerprint of a network's tensors, by which a control is compared with the network that it controls."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor, nn

from ..judge.doubts import Fingerprint

NORMALISATIONS: tuple[type[nn.Module], ...] = (
    nn.LayerNorm,
    nn.GroupNorm,
    nn.modules.batchnorm._NormBase,
    *([nn.RMSNorm] if hasattr(nn, "RMSNorm") else []),
)
"""Layers whose scale and shift begin with one value each."""


def fingerprint(network: nn.Module) -> Fingerprint:
    """The shapes of all tensors, a digest of every matrix, and which normalisation layers learnt something."""
    tensors = {name: value.detach() for name, value in network.state_dict().items() if isinstance(value, Tensor)}
    return Fingerprint(
        shapes={name: tuple(tensor.shape) for name, tensor in tensors.items()},
        weights={name: _digest(tensor) for name, tensor in tensors.items() if tensor.ndim > 1},
        moved=tuple(name for name in _scales_and_shifts(network) if name in tensors and not _is_constant(tensors[name])),
    )


def _scales_and_shifts(network: nn.Module) -> list[str]:
    return [
        f"{prefix}.{name}" if prefix else name
        for prefix, module in network.named_modules()
        if isinstance(module, NORMALISATIONS)
        for name in ("weight", "bias")
    ]


def _is_constant(tensor: Tensor) -> bool:
    return tensor.numel() == 0 or bool((tensor == tensor.flatten()[0]).all())


def _digest(tensor: Tensor) -> str:
    plain = tensor.cpu().contiguous().flatten().view(torch.uint8)
    return hashlib.blake2b(plain.numpy().tobytes(), digest_size=8).hexdigest()
