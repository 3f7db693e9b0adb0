"""What the head reads of a state: its features, its tokens, and whether it tells places apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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

    def __init__(self, network: nn.Module, exclusive: frozenset[str]) -> None:
        self.first: set[tuple[int, int, int]] = set()
        """Evidence for the first dimension: how many there are, its size and the strength."""
        self.last: set[tuple[int, int]] = set()
        """Evidence for the last dimension: its size and the strength."""
        for module, _ in modules_of_blocks(network, exclusive):
            self._add_evidence(module)

    def _add_evidence(self, module: nn.Module) -> None:
        if isinstance(module, nn.modules.conv._ConvNd):
            dims = 1 + len(module.kernel_size)
            strength = 3 if max(module.kernel_size) > 1 else 2
            for channels in (module.in_channels, module.out_channels):
                self.first.add((dims, channels, strength))
        elif isinstance(module, nn.GroupNorm):
            self.first.update((dims, module.num_channels, 3) for dims in _NORMS)
        elif isinstance(module, nn.modules.batchnorm._NormBase):
            fitting = [dims for dims, kinds in _NORMS.items() if isinstance(module, kinds)]
            self.first.update((dims, module.num_features, 3) for dims in fitting or _NORMS)
        elif isinstance(module, nn.Linear):
            self.last |= {(module.in_features, 2), (module.out_features, 2)}
        else:  # LayerNorm, or a norm of the authors' own: one number for each feature
            for parameter in module._parameters.values():
                if parameter is not None and parameter.ndim == 1:
                    self.last.add((len(parameter), 3))

    def is_map(self, shape: Sequence[int]) -> bool:
        """Whether the first dimension of one sample's state counts its features, as in a map."""
        if len(shape) < 2:
            return False
        first = 0
        for dims, size, strength in self.first:
            if size == shape[0]:
                first = max(first, strength if dims == len(shape) else 1)
        last = max((strength for size, strength in self.last if size == shape[-1]), default=0)
        if first == last > 0:
            raise AuditError(
                f"the features of a state of shape {list(shape)} cannot be told from its tokens: "
                "layers of the blocks fit its first and its last dimension"
            )
        if first or last:
            return first > last
        # No layer tells: a map, unless it is a list of tokens or an image with its sides first.
        has_sides_first = shape[0] == shape[1] != shape[-1]
        return len(shape) > 2 and not has_sides_first

    def are_tokens(self, shape: Sequence[int]) -> bool:
        """Whether one sample's state is a list of tokens, each of which has a norm of its own."""
        return len(shape) == 2 and not self.is_map(shape)

    def by_feature(self, values: Tensor) -> Tensor:
        """States as ``[N, tokens, features]``: a vector is one token, a place of a map too."""
        if values.ndim == 2:
            return values.unsqueeze(1)
        if self.is_map(values.shape[1:]):
            return values.flatten(2).transpose(1, 2)
        return values.flatten(1, -2)


@dataclass
class _Head:
    """What the head of a network reads of h_L, as some samples tell."""

    network: nn.Module
    stream: Stream
    x: ModelInput

    def __post_init__(self) -> None:
        self.trial = passed(self.network, self.stream, self.x, projected)

    def reads(self, shift: Tensor, tolerance: float) -> bool:
        """Whether the outputs change where something is added to h_L."""
        outputs = self.trial.outputs
        layer = len(self.trial.states) - 1
        change = shifted(self.network, self.stream, self.x, layer, shift) - outputs
        return float(change.abs().max()) > tolerance * largest_difference(outputs)

    def tokens(self) -> Tensor:
        """Which of the tokens of h_L it reads; an error where that depends on the sample."""
        last = self.trial.states[-1]
        by_sample = (self.trial.gradients[-1] != 0).any(2)
        read = by_sample.any(0)
        is_uneven = bool((by_sample != read).any())
        # Tokens that a maximum passes over have no gradient, and count all the same.
        noise = last.abs().amax() * drawn_like(last, 1)
        reads_others = self.reads(noise * ~by_sample.unsqueeze(2), UNCHANGED)
        if is_uneven != reads_others or not bool(read.any()):
            raise AuditError(
                "the head reads different tokens of different samples, as in padded sequences, "
                "or tokens that no gradient reaches: linear probes need the same of all samples"
            )
        return read

    def tells_places_apart(self, layout: Layout, tokens: Tensor | None) -> bool:
        """Whether the outputs change where places, or those of the tokens, are reordered."""
        last = self.trial.states[-1]
        reordered = last.clone(memory_format=torch.contiguous_format)
        places = layout.by_feature(reordered)  # a view
        chosen = torch.arange(places.shape[1]) if tokens is None else tokens.cpu()
        order = torch.randperm(len(chosen), generator=torch.Generator().manual_seed(0))
        places[:, chosen] = layout.by_feature(last)[:, chosen[order]]
        return self.reads(reordered - last, REORDERED)


class Pooling:
    """Makes one vector of each sample's state: what linear probes see.

    A map is averaged over its places, a sequence over the tokens that the head reads. Where the
    head tells places apart, each cell of a grid is averaged instead.
    """

    def __init__(self, network: nn.Module, stream: Stream, x: ModelInput) -> None:
        self.layout = stream.layout
        # What a head reads belongs to the architecture, so a re-initialised copy tells it.
        head = _Head(reinitialised(copy_of(network)), stream, x)
        states = head.trial.states
        self.tokens: Tensor | None = None
        """Which of the tokens of h_L the head reads, where it does not read all."""
        self.token_count = 0
        if stream.tokens[-1]:
            read = head.tokens()
            self.token_count = len(read)
            if not bool(read.all()):
                self.tokens = read.nonzero().flatten()
        self.places = states[-1].ndim > 2 and head.tells_places_apart(self.layout, self.tokens)
        """Whether the head tells places apart."""
        for state in states:
            self(state)  # what is wrong with one is said before the data is read
        self.words = ""
        """Which tokens or places of h_0 are read, where it is not the mean of all."""
        if self.places and states[0].ndim > 2:
            cells = _cells(self._read(states[0]))
            self.words = f"the {' × '.join(map(str, cells))} cells"
        elif self.tokens is not None and self.layout.are_tokens(states[0].shape[1:]):
            self.words = f"the {plural(len(self.tokens), 'token')} that the head reads"

    def __call__(self, state: Tensor) -> Tensor:
        """``[N, features]`` of a state, samples first."""
        if state.ndim == 2:
            return state
        read = self._read(state)
        if not self.places:
            return read.flatten(2).mean(2)
        pool: Any = getattr(functional, f"adaptive_avg_pool{read.ndim - 2}d")
        cells: Tensor = pool(read, _cells(read))
        return cells.flatten(1)

    def _read(self, state: Tensor) -> Tensor:
        """What the head reads of a state, features in the second dimension, places after it."""
        if self.layout.is_map(state.shape[1:]):
            return state
        if self.tokens is not None and state.ndim == 3:
            if state.shape[1] != self.token_count:
                raise AuditError(
                    f"the head reads {len(self.tokens)} of the {self.token_count} tokens of h_L: "
                    f"which of {state.shape[1]} in another state these are is unknown"
                )
            state = state[:, self.tokens]
        return state.movedim(-1, 1)


class EachToken:
    """The tokens of each sample's state as so many samples: what linear probes see of sequences."""

    words = ""

    def __init__(self, network: nn.Module, stream: Stream, x: ModelInput) -> None:
        shapes: list[torch.Size] = []

        def on_state(layer: int, state: Tensor) -> None:
            shapes.append(state.movedim(stream.batch_dims[layer], 0).shape)

        outputs = stream.run(network, copied(x), on_state)
        if not all(stream.tokens) or any(shape[:2] != outputs.shape[:2] for shape in shapes):
            by_sample = [tuple(shape[1:]) for shape in shapes]
            raise AuditError(
                f"the states have shapes {by_sample}; linear probes need "
                f"one vector for each of the {outputs.shape[1]} tokens that have outputs"
            )

    def __call__(self, state: Tensor) -> Tensor:
        """``[N · tokens, features]`` of a state, samples first."""
        return state.flatten(0, 1)


def _cells(read: Tensor) -> list[int]:
    """How many cells a grid has in each direction."""
    channels, *sizes = read.shape[1:]
    limit = int((GRID / channels) ** (1 / len(sizes)) + 1e-9)
    if limit < 2 <= max(sizes):
        raise AuditError(
            f"the head tells places apart, and {channels} features at each place leave no grid of "
            f"at most {GRID:,} features to probe"
        )
    return [min(max(limit, 1), size) for size in sizes]
