"""The reference of (b), (c) and Γ: the derivative of what a network computes, and its proof."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..judge.records import Reference
from ..judge.words import and_more, limit, sig
from .copies import copy_of, reinitialised
from .inputs import NetworkError, copied, joined, like, rows
from .stream.sites import OnState, Stream
from .types import ModelInput
from .undo import Undo, recording_handed_on, undone
from .vectors import median

SAMPLES = 8
DIRECTIONS = 4
ROUNDING = 16
"""How many times the machine's epsilon a sum over a network may be off."""
SAME = 1e-6
"""How far the own backward may lie from the reference, relative, and be the same."""
OUTPUTS = 1 << 20
"""More outputs of the samples are computed for one direction at a time."""
WIDE_STEP = 0.5
"""Relative to ‖h‖, wide enough to cross the steps of a piecewise-constant function."""
WAY_OUT = "audit a plain network with the same weights by --fa-model=package.module:factory"


class Pass(NamedTuple):
    """Samples that went through a network and back: outputs, h_l, gradients, samples first."""

    outputs: Tensor
    states: list[Tensor]
    gradients: list[Tensor]
    handed_on: bool = False
    """Whether functions with a backward of their own returned an input as it was."""


class _Watch:
    """Keeps the states of a forward pass, and the tensors whose gradients are their credits."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.states: list[Tensor] = []
        self.credited: list[Tensor] = []
        self.origins: dict[Tensor, Tensor] = {}
        """By what a function with a backward of its own handed on: the input that it equals."""

    def __call__(self, layer: int, state: Tensor) -> None:
        credited = state
        if layer >= self.first:
            if not state.requires_grad:
                state.requires_grad_()  # h_0, where the graph begins, or one that is detached
            while credited in self.origins and self.origins[credited].requires_grad:
                credited = self.origins[credited]
            credited.retain_grad()  # what arrives there after all hooks
        self.states.append(state)
        self.credited.append(credited)


def passed(
    network: nn.Module,
    stream: Stream,
    x: ModelInput,
    objective: Callable[[Tensor], Tensor],
    *,
    own_backward: bool = False,
    first: int = 0,
    undo: Undo | None = None,
) -> Pass:
    """The states, and at each from ``first`` on the gradient of ``objective(outputs)``.

    That is its derivative, or what the own backward gives. A function of the network's own may
    hand a state on as it was: then the gradient is that at its input, which the block before gets.
    """
    watch = _Watch(first)
    with torch.enable_grad():
        if own_backward:
            context = recording_handed_on(watch.origins)
        else:
            context = undone(undo or Undo(network))
        with context:
            outputs = stream.run(network, copied(x), watch)
        scalar = objective(outputs)
    for tensor in watch.credited:
        tensor.grad = None  # of a forward that differentiates by itself, as by an energy
    if scalar.requires_grad:
        try:
            # Reentrant checkpoints refuse torch.autograd.grad; only the first state is a leaf.
            scalar.backward()  # type: ignore[no-untyped-call]
        except Exception as error:
            failure = f"the network's backward failed: {type(error).__name__}: {error}"
            raise NetworkError(failure) from error
    return Pass(
        outputs.detach(),
        _samples_first(watch.states, stream),
        _samples_first([gradient_of(tensor) for tensor in watch.credited], stream),
        handed_on=bool(watch.origins),
    )


def gradient_of(tensor: Tensor) -> Tensor:
    """What a backward pass left at a tensor; zeros where it did not reach it."""
    if tensor.grad is None:
        return torch.zeros_like(tensor)
    return tensor.grad


def _samples_first(tensors: list[Tensor], stream: Stream) -> list[Tensor]:
    pairs = zip(tensors, stream.batch_dims, strict=True)
    return [tensor.detach().movedim(dim, 0) for tensor, dim in pairs]


@torch.no_grad()
def shifted(
    network: nn.Module,
    stream: Stream,
    x: ModelInput,
    layer: int,
    shift: Tensor,
    on_state: OnState | None = None,
) -> Tensor:
    """The outputs with something added to one state in place: sums outside blocks read it."""
    batch_dim = stream.batch_dims[layer]

    def shift_state(number: int, state: Tensor) -> None:
        if number == layer:
            state.movedim(batch_dim, 0).add_(shift)
        if on_state is not None:
            on_state(number, state)

    return stream.run(network, copied(x), shift_state)


def drawn_like(tensor: Tensor, seed: int) -> Tensor:
    """Standard normal numbers that are the same in every run."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(tensor.shape, generator=generator, dtype=torch.float64).to(tensor)


def projected(outputs: Tensor) -> Tensor:
    """⟨u, outputs⟩ with one random u per sample."""
    return (outputs * drawn_like(outputs, 0)).sum()


def differ(expected: Iterable[Tensor], gradients: Iterable[Tensor]) -> bool:
    """Whether the gradients of two passes are not the same; NaN differs from everything."""
    for a, b in zip(expected, gradients, strict=True):
        if not float((a - b).norm()) <= SAME * float(a.norm()):
            return True
    return False


def prove(network: nn.Module, stream: Stream, x: ModelInput) -> Reference:
    """Whether autograd's derivative of ⟨u, outputs⟩ is that of the function the network computes.

    One random u per sample: of the outputs rather than the loss, where confident samples drown.
    h_0 moves along random directions, and with it every state after it: where autograd is right,
    ⟨g_l, dh_l⟩ is the same at all of them.
    """
    x = rows(x, slice(SAMPLES))
    wide = copy_of(network, torch.float64)
    try:
        return _Trial(wide, stream, like(x, wide), FLOAT64).proof()
    except NetworkError as error:
        remark = f"no float64 copy runs: {str(error).splitlines()[0]}"
    trial = _Trial(network, stream, x, FLOAT32, remark)
    try:
        return trial.proof()
    except NetworkError as error:
        return trial.refused(str(error).splitlines()[0])


class _Precision(NamedTuple):
    """How finite differences are taken: the step, relative to ‖h‖, and the error allowed."""

    name: str
    step: float
    tolerance: float
    flat: float
    """What is piecewise constant answers a small step with less than this share of it."""


FLOAT64 = _Precision("float64", 1e-6, 1e-3, 1e-8)
"""A larger step crosses the kinks of ReLU: in a wide network 1e-4 is off by 3e-3."""
FLOAT32 = _Precision("float32", 1e-3, 5e-2, 1e-3)


class _Differences(NamedTuple):
    """How ⟨u, outputs⟩ and the states change where one state moves along directions."""

    values: Tensor
    """Derivatives by differences, ``[directions, samples]``."""
    noise: Tensor
    """What rounding alone makes of such a difference."""
    errors: list[float]
    """How far ⟨g_l, dh_l⟩ lies from ``values`` at the state that moves and at those after it."""
    responses: list[float]
    """Relative response of each block."""

    @property
    def vanish(self) -> bool:
        """Whether the outputs do not depend on the state, as far as rounding lets one see."""
        return bool((self.values.abs() <= self.noise).all())


@dataclass
class _Trial:
    """One comparison of autograd with finite differences."""

    network: nn.Module
    stream: Stream
    x: ModelInput
    precision: _Precision
    remark: str = ""
    """Why it is not taken in float64."""
    is_reinitialised: bool = False

    def __post_init__(self) -> None:
        self.undo = Undo(self.network)

    def gradients(self, *, own_backward: bool = False) -> Pass:
        """The gradients of ⟨u, outputs⟩ at the states."""
        return passed(
            self.network,
            self.stream,
            self.x,
            projected,
            own_backward=own_backward,
            undo=self.undo,
        )

    @cached_property
    def autograd(self) -> Pass:
        """The pass whose gradients are to be proven."""
        return self.gradients()

    def proof(self) -> Reference:
        """At these weights, else at re-initialised ones: it belongs to the architecture."""
        middle = (len(self.autograd.states) - 1) // 2
        differences = {0: self.differences(0)}
        errors = differences[0].errors
        if math.isnan(errors[middle]) and middle:  # what is done to h_0 does not reach it
            differences[middle] = self.differences(middle)
            errors[middle] = differences[middle].errors[0]
        # h_0 and h_{L//2} must be resolved, others may be.
        is_undecided = math.isnan(errors[0]) or math.isnan(errors[middle])
        error = math.nan
        if not is_undecided:
            error = max(value for value in errors if not math.isnan(value))
        is_right = error <= self.precision.tolerance
        may_try_new_weights = not (is_right or self.is_reinitialised)
        if may_try_new_weights and not self.all_resolved(differences):
            return self.at_new_weights().proof()
        part = self.flat_part(differences.values())
        if part:
            return self.refused(
                f"{part} is piecewise constant, as with a straight-through estimator: "
                "no useful BP gradient",
                way_out="",  # a plain network of the same weights is as flat
            )
        if is_right:
            return self.record(self.departing_modules(), error=error)
        if is_undecided:
            problem = "its derivative is not resolved, even at re-initialised weights"
            return self.refused(problem, error)
        return self.refused(
            f"autograd's derivative lies {sig(error)} from finite differences, "
            f"relative ({limit(self.precision.tolerance)} is allowed)",
            error,
        )

    def departing_modules(self) -> Iterable[str]:
        """The modules with a backward of their own, unless it gives the same gradients."""
        if self.undo.own_backwards:
            with suppress(NetworkError):
                own_backward = self.gradients(own_backward=True)
                if not differ(self.autograd.gradients, own_backward.gradients):
                    return ()
        return self.undo.own_backwards

    def differences(self, layer: int, step: float | None = None) -> _Differences:
        """Move h_l of every sample by a step, relative to its norm, along directions and back."""
        outputs = self.autograd.outputs
        u = drawn_like(outputs, 0)
        state = self.autograd.states[layer].flatten(1)
        directions = drawn_like(state.expand(DIRECTIONS, *state.shape), 1 + layer)
        directions = directions / _norms(directions).unsqueeze(2)
        steps = (step or self.precision.step) * _norms(state)
        change, moves = self.moved(layer, steps.unsqueeze(1) * directions, u)
        values = change / (2 * steps)
        epsilon = ROUNDING * torch.finfo(outputs.dtype).eps / steps
        noise = epsilon * (outputs * u).abs_().flatten(1).sum(1)
        errors = []
        for number, move in enumerate(moves, layer):
            state = self.autograd.states[number].flatten(1)
            gradient = self.autograd.gradients[number].flatten(1)
            along = (move * gradient).sum(2) / (2 * steps)
            rounding = noise + epsilon * (state.abs() * gradient.abs()).sum(1)
            size = torch.maximum(along.abs(), values.abs())
            errors.append(self.relative_error(along - values, size, rounding))
        responses = [_response(entering, leaving) for entering, leaving in pairwise(moves)]
        return _Differences(values, noise, errors, responses)

    def moved(self, layer: int, shift: Tensor, u: Tensor) -> tuple[Tensor, list[Tensor]]:
        """How ⟨u, outputs⟩, h_l and later states differ between shifts and their opposites.

        Directions are taken one by one where outputs are many, as those of tokens.
        """
        directions = len(shift)
        if directions > 1 and u.numel() > OUTPUTS:
            parts = [self.moved(layer, direction.unsqueeze(0), u) for direction in shift]
            changes, moves_by_part = zip(*parts, strict=True)
            return torch.cat(changes), list(map(torch.cat, zip(*moves_by_part, strict=True)))
        h = self.autograd.states[layer]
        moves: list[Tensor] = []
        batch_dims = self.stream.batch_dims

        def watch(number: int, state: Tensor) -> None:
            if number >= layer:
                state = state.movedim(batch_dims[number], 0)
                forth, back = state.reshape(directions, 2, len(h), -1).unbind(1)
                moves.append(forth - back)

        both_ways = torch.stack([shift, -shift], 1).view(-1, *h.shape[1:])
        x = joined([self.x] * 2 * directions)
        outputs = shifted(self.network, self.stream, x, layer, both_ways, watch)
        forth, back = outputs.reshape(directions, 2, len(h), -1).unbind(1)
        u = u.flatten(1)
        return (forth * u).sum(-1) - (back * u).sum(-1), moves

    def relative_error(self, difference: Tensor, size: Tensor, noise: Tensor) -> float:
        """The median relative difference; NaN where less than half stands out of the noise."""
        resolved = torch.isfinite(size) & (size * self.precision.tolerance > noise)
        if 2 * int(resolved.sum()) < resolved.numel():
            return math.nan
        return median((difference.abs() / size)[resolved])

    def all_resolved(self, differences: dict[int, _Differences]) -> bool:
        """Whether differences can be relied on: above rounding, and a wider step gives the same."""
        for layer, narrow in differences.items():
            wide = self.differences(layer, 10 * self.precision.step)
            difference = wide.values - narrow.values
            error = self.relative_error(difference, narrow.values.abs(), narrow.noise)
            if not error <= 10 * self.precision.tolerance:
                return False
        return True

    def at_new_weights(self) -> _Trial:
        """The same at re-initialised weights."""
        network = reinitialised(copy_of(self.network))
        return replace(self, network=network, is_reinitialised=True)

    def flat_part(self, differences: Iterable[_Differences]) -> str:
        """The first block, or the head, that answers wide steps alone, re-initialised."""
        least = self.precision.flat
        if all(not near.vanish and min(near.responses) > least for near in differences):
            return ""
        trial = self if self.is_reinitialised else self.at_new_weights()
        near = trial.differences(0)
        far = trial.differences(0, WIDE_STEP)
        responses = zip(self.stream.blocks, near.responses, far.responses, strict=True)
        for name, near_response, far_response in responses:
            if near_response <= least and far_response >= self.precision.tolerance:
                return f"block {name}"
        if near.vanish and bool((far.values.abs() > 1e3 * far.noise).any()):
            return "the head"
        return ""

    def refused(
        self, problem: str, error: float | None = None, way_out: str = WAY_OUT
    ) -> Reference:
        """A problem with the modules that it comes from, and the way out."""
        modules = list(self.undo.own_backwards)
        reasons = [problem]
        if modules:
            reasons.append(f"modules with a backward of their own: {and_more(modules, 4)}")
        if self.undo.not_undone:
            reasons.append(f"cannot be undone: {', '.join(self.undo.not_undone)}")
        if way_out:
            reasons.append(way_out)
        return self.record(modules, problem="; ".join(reasons), error=error)

    def record(
        self, modules: Iterable[str], *, problem: str = "", error: float | None = None
    ) -> Reference:
        """What a report keeps of this trial."""
        return Reference(
            problem=problem,
            error=error,
            dtype=self.precision.name,
            remark=self.remark,
            reinitialised=self.is_reinitialised,
            own_backward=bool(modules),
            modules=tuple(modules),
        )


def _response(entering: Tensor, leaving: Tensor) -> float:
    """How much a block changes what it adds or returns, relative to the change that enters."""
    answer = _norms(leaving)
    if leaving.shape == entering.shape:
        answer = torch.minimum(answer, _norms(leaving - entering))
    return float((answer / _norms(entering)).nan_to_num(math.inf, math.inf).max())


def _norms(rows: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(rows, dim=-1)
    return norms
