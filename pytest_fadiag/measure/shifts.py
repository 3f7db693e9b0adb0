"""What the states of a network, and its logits, make of a state that is moved by a little: central differences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .inputs import ModelInput, copied, joined, size_of
from .stream.sites import OnState, Stream
from .vectors import median

DIRECTIONS = 4
CHUNK = 1 << 22
"""How many entries of moved states go through the network at once."""
ROUNDING = 16
"""How many times the machine's epsilon a sum over a network may be off."""


@dataclass(frozen=True)
class Pass:
    """Some samples that went through a network and back: logits, and h_l with the gradient at it, samples first."""

    logits: Tensor
    states: list[Tensor]
    gradients: list[Tensor]
    handed_on: bool = False
    """Whether functions with a backward of their own handed on what they were given, as it was."""

    @property
    def finite(self) -> bool:
        """Whether every gradient is."""
        return all(bool(torch.isfinite(gradient).all()) for gradient in self.gradients)

    @property
    def depth(self) -> int:
        """The L of h_L."""
        return len(self.states) - 1


@dataclass(frozen=True)
class Differences:
    """Derivatives along directions, ``[directions, samples]``: by central differences, and by the gradient at each state."""

    layer: int
    values: Tensor
    noise: Tensor
    """What rounding alone makes of such a difference."""
    along: list[Tensor]
    """⟨g_l, dh_l⟩ at h_l, the state that was moved, and at those behind it, which move with it."""
    along_noise: list[Tensor]
    responses: list[float]
    """How much each block behind the state changes what it adds or returns, relative to the change that entered it."""

    @property
    def vanish(self) -> bool:
        """Whether the logits do not depend on the state, as far as rounding lets one see."""
        return bool((self.values.abs() <= self.noise).all())

    def zero_along(self, layer: int) -> bool:
        """Whether the gradient at a state says so too."""
        return bool((self.along[layer - self.layer].abs() <= self.along_noise[layer - self.layer]).all())

    def error(self, layer: int, tolerance: float) -> float:
        """The median relative difference at a state; NaN where rounding could make half of them exceed the tolerance."""
        along, noise = self.along[layer - self.layer], self.along_noise[layer - self.layer]
        size = torch.maximum(along.abs(), self.values.abs())
        resolved = torch.isfinite(size) & (size * tolerance > noise)
        if 2 * int(resolved.sum()) < resolved.numel():
            return math.nan
        return median((along - self.values).abs()[resolved] / size[resolved])


class Shifts:
    """A network, some of its samples, and fixed random directions in which their states are moved."""

    def __init__(self, network: nn.Module, stream: Stream, x: ModelInput, u: Tensor) -> None:
        self.network, self.stream, self.x, self.u = network, stream, x, u

    def differences(self, taken: Pass, layer: int, step: float) -> Differences:
        """Move h_l of every sample by a step, relative to its norm, there and back."""
        samples, state = size_of(self.x), taken.states[layer]
        directions = _units(state, seed=1 + layer)
        steps = step * torch.linalg.vector_norm(state.flatten(1), dim=1)
        at_once = max(1, min(DIRECTIONS, CHUNK // (2 * state.numel())))
        values, watched = [], []
        for some in torch.split(directions, at_once):
            shift = steps.view(-1, *[1] * (state.ndim - 1)) * some
            watch = _Watch(taken, layer, steps, self.stream.batch_dims)
            moved = torch.stack([shift, -shift], 1).flatten(0, 2)
            logits = self.moved(joined([self.x] * (2 * len(some))), watch, layer, moved)
            carried = (logits.view(len(some), 2, samples, -1) * self.u).sum(-1)
            values.append((carried[:, 0] - carried[:, 1]) / (2 * steps))
            watched.append(watch)
        epsilon = ROUNDING * torch.finfo(taken.logits.dtype).eps / steps
        noise = epsilon * (taken.logits * self.u).abs().sum(1)
        sizes = [
            (state.abs() * gradient.abs()).flatten(1).sum(1)
            for state, gradient in zip(taken.states, taken.gradients, strict=True)
        ]
        return Differences(
            layer,
            torch.cat(values),
            noise,
            [torch.cat(parts) for parts in zip(*(watch.along for watch in watched), strict=True)],
            [noise + epsilon * size for size in sizes[layer:]],
            [max(parts) for parts in zip(*(watch.responses for watch in watched), strict=True)],
        )

    @torch.no_grad()
    def moved(self, x: ModelInput, on_state: OnState, layer: int, shift: Tensor) -> Tensor:
        """The logits with something added to one state, in place: a sum outside of the block must read it too."""
        stream = self.stream

        def shown(number: int, state: Tensor) -> None:
            if number == layer:
                state.movedim(stream.batch_dims[number], 0).add_(shift)
            on_state(number, state)

        return stream.run(self.network, copied(x), shown)


class _Watch:
    """Watches the states of samples that are moved there and back."""

    def __init__(self, taken: Pass, layer: int, steps: Tensor, batch_dims: Sequence[int]) -> None:
        self.taken, self.layer, self.steps, self.batch_dims = taken, layer, steps, batch_dims
        self.before: Tensor | None = None
        self.along: list[Tensor] = []
        self.responses: list[float] = []

    def __call__(self, layer: int, state: Tensor) -> None:
        if layer < self.layer:
            return
        rows = state.movedim(self.batch_dims[layer], 0)
        there, back = rows.reshape(-1, 2, *self.taken.states[layer].shape).unbind(1)
        moved = there - back
        self.along.append((moved * self.taken.gradients[layer]).flatten(2).sum(2) / (2 * self.steps))
        if self.before is not None:
            answer = _norms(moved)
            if moved.shape == self.before.shape:
                answer = torch.minimum(answer, _norms(moved - self.before))
            self.responses.append(float((answer / _norms(self.before)).nan_to_num(math.inf, math.inf).max()))
        self.before = moved


def _norms(moved: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(moved.flatten(2), dim=2)
    return norms


def _units(state: Tensor, seed: int) -> Tensor:
    """Random unit vectors for each sample."""
    drawn = drawn_like(state.expand(DIRECTIONS, *state.shape), seed)
    return drawn / _norms(drawn).view(DIRECTIONS, -1, *[1] * (state.ndim - 1))


def drawn_like(tensor: Tensor, seed: int) -> Tensor:
    """Standard normal numbers that are the same in every run."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(tensor.shape, generator=generator, dtype=torch.float64).to(tensor)
