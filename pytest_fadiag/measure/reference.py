"""The reference of (b), (c) and Γ: the derivative of what a network computes, and its proof."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..judge.records import Reference
from ..judge.words import and_more, limit, sig
from .copies import copy_of, redrawn
from .inputs import NetworkError, copied, joined, like, rows
from .stream.sites import OnState, Stream
from .types import ModelInput
from .undo import Undo, handing_on, undone
from .vectors import median

SAMPLES, DIRECTIONS = 8, 4
ROUNDING = 16
"""How many times the machine's epsilon a sum over a network may be off."""
SAME = 1e-6
"""How far the own backward may lie from the reference, relative, and be the same."""
WIDE_STEP = 0.5
"""Relative to ‖h‖, wide enough to cross the steps of a piecewise-constant function."""
WAY_OUT = "audit a plain network with the same weights by --fa-model=package.module:factory"


class Pass(NamedTuple):
    """Samples that went through a network and back: outputs, h_l, gradients, samples first."""

    outputs: Tensor
    states: list[Tensor]
    gradients: list[Tensor]
    handed_on: bool = False
    """Whether functions with a backward of their own handed on what they were given, as it was."""


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

    That is its derivative, or what the own backward gives. Where a function of the network's own
    only hands a state on, its credit for the block before it is what it gives back: taken there.
    """
    states: list[Tensor] = []
    credited: list[Tensor] = []
    given: dict[Tensor, Tensor] = {}

    def on_state(layer: int, state: Tensor) -> None:
        own = state
        if layer >= first:
            if not state.requires_grad:
                state.requires_grad_()  # h_0, where the graph begins, or one that is detached
            while own in given and given[own].requires_grad:
                own = given[own]
            own.retain_grad()  # what arrives there after all hooks
        states.append(state)
        credited.append(own)

    with torch.enable_grad():
        with handing_on(given) if own_backward else undone(undo or Undo(network)):
            outputs = stream.run(network, copied(x), on_state)
        carried = objective(outputs)
    for own in credited:
        own.grad = None  # of a forward that differentiates by itself, as by an energy
    if carried.requires_grad:
        try:
            # Reentrant checkpoints refuse torch.autograd.grad; only the first state is a leaf.
            carried.backward()  # type: ignore[no-untyped-call]
        except Exception as error:
            said = f"the network's backward failed: {type(error).__name__}: {error}"
            raise NetworkError(said) from error

    def samples_first(tensors: list[Tensor]) -> list[Tensor]:
        pairs = zip(tensors, stream.batch_dims, strict=True)
        return [tensor.detach().movedim(dim, 0) for tensor, dim in pairs]

    gradients = [torch.zeros_like(own) if own.grad is None else own.grad for own in credited]
    return Pass(outputs.detach(), samples_first(states), samples_first(gradients), bool(given))


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

    def shown(number: int, state: Tensor) -> None:
        if number == layer:
            state.movedim(stream.batch_dims[number], 0).add_(shift)
        if on_state is not None:
            on_state(number, state)

    return stream.run(network, copied(x), shown)


def drawn_like(tensor: Tensor, seed: int) -> Tensor:
    """Standard normal numbers that are the same in every run."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(tensor.shape, generator=generator, dtype=torch.float64).to(tensor)


def projected(outputs: Tensor) -> Tensor:
    """⟨u, outputs⟩ with one random u per sample."""
    return (outputs * drawn_like(outputs, 0)).sum()


def differ(one: Iterable[Tensor], other: Iterable[Tensor]) -> bool:
    """Whether the gradients of two passes are not the same."""
    pairs = zip(one, other, strict=True)
    return any(not float((a - b).norm()) <= SAME * float(a.norm()) for a, b in pairs)


def prove(network: nn.Module, stream: Stream, x: ModelInput) -> Reference:
    """Whether autograd's derivative of ⟨u, outputs⟩ is that of the function the network computes.

    One random u per sample: of the outputs rather than the loss, where confident samples drown.
    h_0 moves along random directions, and with it every state after it: where autograd is right,
    ⟨g_l, dh_l⟩ is the same at all of them.
    """
    x, wide = rows(x, slice(SAMPLES)), copy_of(network, torch.float64)
    try:
        return _Trial(wide, stream, like(x, wide), FLOAT64).proof()
    except NetworkError as error:
        why = f"no float64 copy runs: {str(error).splitlines()[0]}"
    trial = _Trial(network, stream, x, FLOAT32, why)
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
    """What becomes of the outputs where one state moves along directions."""

    values: Tensor
    """Derivatives by differences, ``[directions, samples]``."""
    noise: Tensor
    """What rounding alone makes of such a difference."""
    errors: list[float]
    """How far ⟨g_l, dh_l⟩ lies from these at the state that moves and at those after it."""
    responses: list[float]
    """Those of the blocks."""

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
    why: str = ""
    """Why it is not taken in float64."""
    redrawn: bool = False

    def __post_init__(self) -> None:
        self.undo = Undo(self.network)

    def passed(self, own_backward: bool = False) -> Pass:
        """The gradients of ⟨u, outputs⟩ at the states."""
        network, stream, undo = self.network, self.stream, self.undo
        return passed(network, stream, self.x, projected, own_backward=own_backward, undo=undo)

    @cached_property
    def seen(self) -> Pass:
        """Those that are to be proven."""
        return self.passed()

    def proof(self) -> Reference:
        """At these weights, else at re-initialised ones: it belongs to the architecture."""
        tolerance, middle = self.precision.tolerance, (len(self.seen.states) - 1) // 2
        differences = {0: self.differences(0)}
        errors = differences[0].errors
        if math.isnan(errors[middle]) and middle:  # what is done to h_0 does not reach it
            differences[middle] = self.differences(middle)
            errors[middle] = differences[middle].errors[0]
        # h_0 and h_{L//2} must be resolved, others may be.
        undecided = math.isnan(errors[0]) or math.isnan(errors[middle])
        error = math.nan if undecided else max(own for own in errors if not math.isnan(own))
        right = error <= tolerance
        if not (right or self.redrawn or all(self.resolved(*own) for own in differences.items())):
            return self.anew().proof()
        if flat := self.flat(differences.values()):
            said = "is piecewise constant, as with a straight-through estimator"
            # A plain network of the same weights is as flat: no way out.
            return self.refused(f"{flat} {said}: no useful BP gradient", way_out="")
        if right:
            own = bool(self.undo.modules)
            if own:
                with suppress(NetworkError):
                    own = differ(self.seen.gradients, self.passed(own_backward=True).gradients)
            return self.told(self.undo.modules if own else (), error=error)
        allowed = f"relative ({limit(tolerance)} is allowed)"
        said = f"autograd's derivative lies {sig(error)} from finite differences, {allowed}"
        if undecided:
            said = "its derivative is not resolved, even at re-initialised weights"
        return self.refused(said, error)

    def differences(self, layer: int, step: float | None = None) -> _Differences:
        """Move h_l of every sample by a step, relative to its norm, along directions and back."""
        seen, moves = self.seen, list[Tensor]()
        state, u = seen.states[layer].flatten(1), drawn_like(seen.outputs, 0)
        directions = drawn_like(state.expand(DIRECTIONS, *state.shape), 1 + layer)
        directions = directions / _norms(directions).unsqueeze(2)
        steps = (step or self.precision.step) * _norms(state)

        def watch(number: int, shown: Tensor) -> None:
            if number >= layer:
                shown = shown.movedim(self.stream.batch_dims[number], 0)
                there, back = shown.reshape(DIRECTIONS, 2, len(state), -1).unbind(1)
                moves.append(there - back)

        shift = steps.unsqueeze(1) * directions
        shift = torch.stack([shift, -shift], 1).view(-1, *seen.states[layer].shape[1:])
        x = joined([self.x] * 2 * DIRECTIONS)
        outputs = shifted(self.network, self.stream, x, layer, shift, watch)
        outputs = outputs.reshape(DIRECTIONS, 2, len(state), -1)
        there, back = (outputs * u.flatten(1)).sum(-1).unbind(1)
        values = (there - back) / (2 * steps)
        epsilon = ROUNDING * torch.finfo(seen.outputs.dtype).eps / steps
        noise, errors = epsilon * (seen.outputs * u).abs().flatten(1).sum(1), []
        for number, moved in enumerate(moves, layer):
            own, gradient = (kind[number].flatten(1) for kind in (seen.states, seen.gradients))
            along = (moved * gradient).sum(2) / (2 * steps)
            rounding = noise + epsilon * (own.abs() * gradient.abs()).sum(1)
            size = torch.maximum(along.abs(), values.abs())
            errors.append(self.relative(along - values, size, rounding))
        responses = [_response(*pair) for pair in pairwise(moves)]
        return _Differences(values, noise, errors, responses)

    def relative(self, apart: Tensor, size: Tensor, noise: Tensor) -> float:
        """The median relative difference; NaN where less than half stands out of the noise."""
        resolved = torch.isfinite(size) & (size * self.precision.tolerance > noise)
        few = 2 * int(resolved.sum()) < resolved.numel()
        return math.nan if few else median((apart.abs() / size)[resolved])

    def resolved(self, layer: int, taken: _Differences) -> bool:
        """Whether differences can be relied on: above rounding, and a wider step gives the same."""
        apart = self.differences(layer, 10 * self.precision.step).values - taken.values
        error = self.relative(apart, taken.values.abs(), taken.noise)
        return error <= 10 * self.precision.tolerance

    def anew(self) -> _Trial:
        """The same at re-initialised weights."""
        return replace(self, network=redrawn(copy_of(self.network)), redrawn=True)

    def flat(self, differences: Iterable[_Differences]) -> str:
        """The first block, or the head, that answers wide steps alone, re-initialised."""
        least, responds = self.precision.flat, self.precision.tolerance
        if all(not taken.vanish and min(taken.responses) > least for taken in differences):
            return ""
        trial = self if self.redrawn else self.anew()
        small, wide = trial.differences(0), trial.differences(0, WIDE_STEP)
        for name, near, far in zip(
            self.stream.blocks, small.responses, wide.responses, strict=True
        ):
            if near <= least and far >= responds:
                return f"block {name}"
        head = small.vanish and bool((wide.values.abs() > 1e3 * wide.noise).any())
        return "the head" if head else ""

    def refused(
        self, problem: str, error: float | None = None, way_out: str = WAY_OUT
    ) -> Reference:
        """A problem with the modules that it comes from, and the way out."""
        modules, kinds = list(self.undo.modules), ", ".join(self.undo.kinds)
        whose = f"modules with a backward of their own: {and_more(modules, 4)}" if modules else ""
        left = f"cannot be undone: {kinds}" if kinds else ""
        said = "; ".join(filter(None, (problem, whose, left, way_out)))
        return self.told(modules, problem=said, error=error)

    def told(self, modules: Iterable[str], **outcome: Any) -> Reference:
        """What is written down."""
        return Reference(
            dtype=self.precision.name,
            remark=self.why,
            reinitialised=self.redrawn,
            own_backward=bool(modules),
            modules=tuple(modules),
            **outcome,
        )


def _response(entered: Tensor, left: Tensor) -> float:
    """How much a block changes what it adds or returns, relative to the change that enters."""
    answer = _norms(left)
    if left.shape == entered.shape:
        answer = torch.minimum(answer, _norms(left - entered))
    return float((answer / _norms(entered)).nan_to_num(math.inf, math.inf).max())


def _norms(rows: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(rows, dim=-1)
    return norms
