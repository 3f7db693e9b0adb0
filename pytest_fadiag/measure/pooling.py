"""What the head reads of a state: its features, its tokens, and whether it tells places apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..judge.errors import AuditError
from ..judge.words import plural
from .copies import copy_of, reinitialised
from .inputs import copied, largest_difference
from .redraw import modules_of_blocks
from .reference import drawn_like, passed, projected, shifted
from .types import ModelInput

if TYPE_CHECKING:
    from .stream.sites import Stream

GRID = 1_024
"""Features at most of a state whose places count: more would cost more than the network."""
UNCHANGED = 1e-6
"""Relative to the largest difference of two samples' outputs: less is no change."""
REORDERED = 1e-3
"""The same where sums are taken in another order."""

_NORMS: dict[int, tuple[type[nn.Module], ...]] = {
    2: (nn.BatchNorm1d, nn.InstanceNorm1d),
    3: (nn.BatchNorm2d, nn.InstanceNorm2d),
    4: (nn.BatchNorm3d, nn.InstanceNorm3d),
}
"""By the number of dimensions of one sample; other norms take any."""


class Layout:
    """Tells by the layers of the blocks which dimension of a sample's state counts its features.

    It is the first or the last. Linear layers and convolutions of one position may mix tokens
    instead, so wider convolutions and norms count for more.
    """

    def __init__(self, network: nn.Module, own: frozenset[str]) -> None:
        self.first, self.last = set[tuple[int, int, int]](), set[tuple[int, int]]()
        """Evidence: the size of the dimension and the strength, of the first after how many
        dimensions there are.
        """
        for module, _ in modules_of_blocks(network, own):
            if isinstance(module, nn.modules.conv._ConvNd):
                dims, strength = 1 + len(module.kernel_size), 2 + (max(module.kernel_size) > 1)
                sizes = module.in_channels, module.out_channels
                self.first |= {(dims, size, strength) for size in sizes}
            elif isinstance(module, nn.GroupNorm):
                self.first |= {(dims, module.num_channels, 3) for dims in _NORMS}
            elif isinstance(module, nn.modules.batchnorm._NormBase):
                taken = [dims for dims, kinds in _NORMS.items() if isinstance(module, kinds)]
                self.first |= {(dims, module.num_features, 3) for dims in taken or _NORMS}
            elif isinstance(module, nn.Linear):
                self.last |= {(module.in_features, 2), (module.out_features, 2)}
            else:  # LayerNorm, or a norm of the authors' own: one number for each feature
                vectors = [own for own in module._parameters.values() if own is not None]
                self.last |= {(len(vector), 3) for vector in vectors if vector.ndim == 1}

    def is_map(self, shape: Sequence[int]) -> bool:
        """Whether the first dimension of one sample's state counts its features, as in a map."""
        if len(shape) < 2:
            return False
        fitting = [(dims, strength) for dims, size, strength in self.first if size == shape[0]]
        first = max((own if dims == len(shape) else 1 for dims, own in fitting), default=0)
        last = max((own for size, own in self.last if size == shape[-1]), default=0)
        if first == last > 0:
            raise AuditError(
                f"the features of a state of shape {list(shape)} cannot be told from its tokens: "
                "layers of the blocks fit its first and its last dimension"
            )
        if first or last:
            return first > last
        # No layer tells: a map, unless it is a list of tokens or an image with its sides first.
        return len(shape) > 2 and not (shape[0] == shape[1] != shape[-1])

    def are_tokens(self, shape: Sequence[int]) -> bool:
        """Whether one sample's state is a list of tokens, each of which has a norm of its own."""
        return len(shape) == 2 and not self.is_map(shape)

    def by_feature(self, values: Tensor) -> Tensor:
        """States as ``[N, tokens, features]``: a vector is one token, a place of a map too."""
        if values.ndim == 2:
            return values.unsqueeze(1)
        features_first = self.is_map(values.shape[1:])
        return values.flatten(2).transpose(1, 2) if features_first else values.flatten(1, -2)


class Pooling:
    """Makes one vector of each sample's state: what linear probes see.

    A map is averaged over its places, a sequence over the tokens that the head reads. Where the
    head tells places apart, each cell of a grid is averaged instead. Both belong to the
    architecture, so a re-initialised copy tells them.
    """

    def __init__(self, network: nn.Module, stream: Stream, x: ModelInput) -> None:
        self.layout = Layout(network, frozenset().union(*stream.own))
        copy = reinitialised(copy_of(network))
        taken = passed(copy, stream, x, projected)
        first, last = taken.states[0], taken.states[-1]

        def matters(shift: Tensor, tolerance: float) -> bool:
            """Whether the outputs change where something is added to h_L."""
            change = shifted(copy, stream, x, len(taken.states) - 1, shift) - taken.outputs
            return float(change.abs().max()) > tolerance * largest_difference(taken.outputs)

        self.tokens: Tensor | None = None
        """Which of the tokens of h_L the head reads, where it does not read all."""
        if stream.tokens[-1]:
            by_sample = (taken.gradients[-1] != 0).any(2)
            read = by_sample.any(0)
            uneven = bool((by_sample != read).any())
            # Tokens that a maximum passes over have no gradient, and count all the same.
            noise = last.abs().amax() * drawn_like(last, 1)
            beyond = matters(noise * ~by_sample.unsqueeze(2), UNCHANGED)
            if uneven != beyond or not bool(read.any()):
                raise AuditError(
                    "the head reads different tokens of different samples, as in padded sequences, "
                    "or tokens that no gradient reaches: linear probes need the same of all samples"
                )
            self.tokens, self.of = None if bool(read.all()) else read.nonzero().flatten(), len(read)
        self.places = False
        """Whether the head tells places apart."""
        if last.ndim > 2:
            moved = last.clone(memory_format=torch.contiguous_format)
            places = self.layout.by_feature(moved)  # a view
            chosen = torch.arange(places.shape[1]) if self.tokens is None else self.tokens.cpu()
            order = torch.randperm(len(chosen), generator=torch.Generator().manual_seed(0))
            places[:, chosen] = self.layout.by_feature(last)[:, chosen[order]]
            self.places = matters(moved - last, REORDERED)
        for state in taken.states:
            self(state)  # what is wrong with one is said before the data is read
        self.words = ""
        """Which tokens or places of h_0 are read, where it is not the mean of all."""
        if self.places and first.ndim > 2:
            self.words = f"the {' × '.join(map(str, _cells(self._read(first))))} cells"
        elif self.tokens is not None and self.layout.are_tokens(first.shape[1:]):
            self.words = f"the {plural(len(self.tokens), 'token')} that the head reads"

    def __call__(self, state: Tensor) -> Tensor:
        """``[N, features]`` of a state, samples first."""
        if state.ndim == 2:
            return state
        read = self._read(state)
        if not self.places:
            return read.flatten(2).mean(2, dtype=torch.float64)
        pool: Any = getattr(functional, f"adaptive_avg_pool{read.ndim - 2}d")
        cells: Tensor = pool(read.double(), _cells(read))
        return cells.flatten(1)

    def _read(self, state: Tensor) -> Tensor:
        """What the head reads of a state, features in the second dimension, places after it."""
        if self.layout.is_map(state.shape[1:]):
            return state
        if self.tokens is not None and state.ndim == 3:
            if state.shape[1] != self.of:
                raise AuditError(
                    f"the head reads {len(self.tokens)} of the {self.of} tokens of h_L: which of "
                    f"{state.shape[1]} in another state these are is unknown"
                )
            state = state[:, self.tokens]
        return state.movedim(-1, 1)


class EachToken:
    """The tokens of each sample's state as so many samples: what linear probes see of sequences."""

    words = ""

    def __init__(self, network: nn.Module, stream: Stream, x: ModelInput) -> None:
        shapes: list[torch.Size] = []

        def seen(layer: int, state: Tensor) -> None:
            shapes.append(state.movedim(stream.batch_dims[layer], 0).shape)

        outputs = stream.run(network, copied(x), seen)
        if not all(stream.tokens) or any(own[:2] != outputs.shape[:2] for own in shapes):
            raise AuditError(
                f"the states have shapes {[tuple(own[1:]) for own in shapes]}; linear probes need "
                f"one vector for each of the {outputs.shape[1]} tokens that have outputs"
            )

    def __call__(self, state: Tensor) -> Tensor:
        """``[N · tokens, features]`` of a state, samples first."""
        return state.flatten(0, 1)


def _cells(read: Tensor) -> list[int]:
    """How many cells a grid has in each direction."""
    channels, *sizes = read.shape[1:]
    most = int((GRID / channels) ** (1 / len(sizes)) + 1e-9)
    if most < 2 <= max(sizes):
        raise AuditError(
            f"the head tells places apart, and {channels} features at each place leave no grid of "
            f"at most {GRID:,} features to probe"
        )
    return [min(max(most, 1), size) for size in sizes]
