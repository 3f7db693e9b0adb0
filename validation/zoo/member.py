"""A member of the zoo: a network, inputs for it, and the truth about its stream, by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

CLASSES = 5
SAMPLES = 4

Inputs = Tensor | dict[str, Tensor]
States = Callable[[nn.Module, Inputs], tuple[Tensor, list[Tensor]]]
"""A forward pass by hand: the logits, and h_0 … h_L on the way to them."""


@dataclass(frozen=True)
class Stream:
    """Which modules are the blocks: what enters each is a state, what the last returns is h_L.

    Between two stages, where layers change its size for the next block, the state is what the block
    before returned.
    """

    blocks: tuple[str, ...] = ()
    last: str = ""
    """The module that h_L enters, where the residual is added outside the last block."""
    batch_dim: int = 0
    by_hand: States | None = None
    """Where no module sees the states."""
    within: Callable[[nn.Module], nn.Module] = field(default=lambda model: model)
    """The plain network with the same weights, of which names and gradients are taken."""


@dataclass(frozen=True)
class Refusal:
    """That no stream can be followed, and in which words it must be said."""

    why: str
    says: str
    """A regular expression that the error must contain."""


@dataclass(frozen=True)
class Member:
    """One architecture."""

    family: str
    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[], Inputs]
    truth: Stream | Refusal
    named: str | None = None
    """The SPEC to find it by, where it is not to be found by itself."""
    grows: bool | None = None
    """Whether a block grows the stream by more than 50, where that was written down."""


def images(size: int = 32, channels: int = 3) -> Callable[[], Tensor]:
    """Noise in the shape of images."""
    return lambda: torch.randn(SAMPLES, channels, size, size)


def vectors(width: int) -> Callable[[], Tensor]:
    """Noise in the shape of vectors."""
    return lambda: torch.randn(SAMPLES, width)


def tokens(length: int = 7, words: int = 50) -> Callable[[], dict[str, Tensor]]:
    """Sentences of random words, with a mask that leaves none out."""

    def make() -> dict[str, Tensor]:
        ids = torch.randint(5, words, (SAMPLES, length))
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    return make


def each(pattern: str, depths: Sequence[int], first: int = 0) -> tuple[str, ...]:
    """The names of stages of so many blocks: ``each("layer{}.{}", [2, 2], 1)``."""
    return tuple(
        pattern.format(stage, block)
        for stage, depth in enumerate(depths, first)
        for block in range(depth)
    )


def row(pattern: str, depth: int) -> tuple[str, ...]:
    """The names of so many blocks in a row."""
    return tuple(pattern.format(block) for block in range(depth))
