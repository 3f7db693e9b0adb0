"""Random numbers: one generator per purpose, so that drawing more of one thing changes nothing else."""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor, nn

PURPOSES = ("initialisation", "feedback", "data", "augmentation", "bridge", "noise")


def streams(seed: int) -> dict[str, torch.Generator]:
    """A generator for each purpose; all of them follow from the seed and none from another."""
    return {purpose: torch.Generator().manual_seed(_derived(seed, purpose)) for purpose in PURPOSES}


def _derived(seed: int, purpose: str) -> int:
    digest = hashlib.sha256(f"{purpose}/{seed}".encode()).digest()
    return int.from_bytes(digest[:7], "big")


def initialise(network: nn.Module, generator: torch.Generator) -> None:
    """torch's own initialisation of Linear and LayerNorm, drawn from the given generator."""
    for module in network.modules():
        if isinstance(module, nn.Linear):
            like_weight(module.weight.data, generator)
            bound = 1 / math.sqrt(module.in_features)
            nn.init.uniform_(module.bias, -bound, bound, generator=generator)
        elif isinstance(module, nn.LayerNorm):
            module.reset_parameters()


def like_weight(weight: Tensor, generator: torch.Generator) -> Tensor:
    """Fill a matrix as torch initialises the weight of a Linear: uniform within ±1/√fan_in."""
    return nn.init.kaiming_uniform_(weight, a=math.sqrt(5), generator=generator)
