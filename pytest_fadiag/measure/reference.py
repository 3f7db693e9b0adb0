"""The reference of (b), (c) and Γ: the derivative of what a network computes, and its proof."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from ..judge.errors import AuditError
from ..judge.records import Reference
from ..judge.words import and_more, limit, sig
from .copies import WIDE, copy_of, redrawn
from .inputs import NetworkError, copied, joined, like, rows
from .stream.sites import OnState, Stream
from .types import ModelInput
from .undo import Departures, passing_on, undone
from .vectors import median

SAMPLES, DIRECTIONS = 8, 4
ROUNDING = 16
"""How many times the machine's epsilon a sum over a network may be off."""
SAME = 1e-6
"""How far the own backward may lie from the reference, relative, and be the same."""
WIDE_STEP = 0.5
"""Relative to ‖h‖, wide enough to cross the steps of a piecewise-constant function."""
WAY_OUT = "audit a plain network with the same weights by --fa-model=package.module:factory"


@dataclass(frozen=True)
class Pass:
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
    watch: OnState | None = None,
    departures: Departures | None = None,
) -> Pass:
    """The states, and at each from ``first`` on the gradient of ``objective(outputs)``.

    That is its derivative, or what the own backward gives. Where a function of the network's own
    only hands a state on, its credit for the block before it is what it gives back: taken there.
    """
    states: list[Tensor] = []

    def on_state(layer: int, state: Tensor) -> None:
        if layer >= first:
            if not state.requires_grad:
                state.requires_grad_()  # h_0, where the graph begins, or one that is detached
            state.retain_grad()  # what arrives there after all hooks
        states.append(state)
        if watch is not None:
            watch(layer, state)

    how: Any = passing_on() if own_backward else undone(network, departures)
    with torch.enable_grad():
        with how as handed:
            outputs = stream.run(network, copied(x), on_state)
        carried = objective(outputs)
    held = [_held(state, handed or ()) for state in states]
    for state in states:
        state.grad = None  # of a forward that differentiates by itself, as by an energy
    if carried.requires_grad:
        try:
            # Reentrant checkpoints refuse torch.autograd.grad; only the first state is a leaf.
            carried.backward()  # type: ignore[no-untyped-call]
        except Exception as error:
            said = f"the network's backward failed: {type(error).__name__}: {error}"
            raise NetworkError(said) from error
    pairs = list(zip(states, stream.batch_dims, strict=True))
    arrived = [next(iter(own), state.grad) for own, state in zip(held, states, strict=True)]
    made = [
        torch.zeros_like(state) if own is None else own
        for own, state in zip(arrived, states, strict=True)
    ]
    return Pass(
        outputs.detach(),
        [state.detach().movedim(dim, 0) for state, dim in pairs],
        [own.detach().movedim(dim, 0) for own, (_, dim) in zip(made, pairs, strict=True)],
        bool(handed),
    )


def _held(state: Tensor, handed: Sequence[Any]) -> list[Tensor | None]:
    """Where what arrives before the functions that handed a state on will be; empty if none did."""
    node, output, held = cast(Any, state.grad_fn), 0, list[Tensor | None]()
    while node is not None and any(node is one for one in handed):
        ((node, output),) = [
            (function, index) for function, index in node.next_functions if function
        ]
    if node is not state.grad_fn:
        held.append(None)
        node.register_prehook(lambda gradients: held.insert(0, gradients[output]))
    return held


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


def differ(one: Sequence[Tensor | None], other: Sequence[Tensor | None]) -> bool:
    """Whether the gradients of two passes are not the same, wherever both have one."""
    pairs = [(a, b) for a, b in zip(one, other, strict=True) if a is not None and b is not None]
    return any(not float((a - b).norm()) <= SAME * float(a.norm()) for a, b in pairs)


@dataclass(frozen=True)
class Proof:
    """What came of the proof: for the record, and how gradients of this network are to be taken."""

    record: Reference
    undoes: bool = True
    """Whether own backwards are undone; where only these are the derivative, they are left."""


def prove(network: nn.Module, stream: Stream, x: ModelInput) -> Proof:
    """Whether autograd's derivative of ⟨u, outputs⟩ is that of the function the network computes.

    One random u per sample: of the outputs rather than the loss, where confident samples drown.
    h_0 moves along random directions, and with it every state after it: where autograd is right,
    ⟨g_l, dh_l⟩ is the same at all of them.
    """
    x, wide = rows(x, slice(SAMPLES)), copy_of(network, torch.float64)
    try:
        proof = _Trial(wide, stream, like(x, wide), FLOAT64).proof()
        if not proof.record.problem or not vars(wide)[WIDE].narrow:
            return proof
        why = "parts of the forward compute in less than float64"
    except NetworkError as error:
        why = f"no float64 copy runs: {str(error).splitlines()[0]}"
    trial = _Trial(network, stream, x, FLOAT32, why)
    try:
        return trial.proof()
    except NetworkError as error:
        return trial.told(str(error).splitlines()[0])


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
    """Derivatives along directions, ``[directions, samples]``, by differences and by gradients."""

    layer: int
    values: Tensor
    noise: Tensor
    """What rounding alone makes of such a difference."""
    along: list[tuple[Tensor, Tensor]]
    """⟨g_l, dh_l⟩ and its noise at the state that was moved, and at those that move with it."""
    responses: list[float]
    """How much each block changes what it adds or returns, relative to the change that enters."""

    @property
    def vanish(self) -> bool:
        """Whether the outputs do not depend on the state, as far as rounding lets one see."""
        return bool((self.values.abs() <= self.noise).all())

    def error(self, layer: int, tolerance: float) -> float:
        """The median relative difference at a state; NaN where rounding drowns it."""
        along, noise = self.along[layer - self.layer]
        size = torch.maximum(along.abs(), self.values.abs())
        resolved = torch.isfinite(size) & (size * tolerance > noise)
        few = 2 * int(resolved.sum()) < resolved.numel()
        return math.nan if few else median(((along - self.values).abs() / size)[resolved])


_Compared = tuple[float, Pass, list[_Differences]]
"""How far the gradients of a pass lie from finite differences; NaN where these resolve nothing."""


class _Trial:
    """One comparison of autograd with finite differences."""

    def __init__(
        self,
        network: nn.Module,
        stream: Stream,
        x: ModelInput,
        precision: _Precision,
        why: str = "",
        *,
        redrawn: bool = False,
    ) -> None:
        self.network, self.stream, self.x, self.precision = network, stream, x, precision
        self.why, self.redrawn, self.departures = why, redrawn, Departures(network)

    def proof(self) -> Proof:
        """At these weights, else at re-initialised ones: it belongs to the architecture."""
        tolerance, found, failure = self.precision.tolerance, list[_Compared](), AuditError()
        for own_backward in (False, True):
            try:
                found.append(self.compared(self.seen(own_backward)))
            except NetworkError as failed:
                failure = failed
                continue
            if found[-1][0] <= tolerance:
                return self.flat(*found[-1]) or self.proven(*found[-1], own_backward)
        if not found:
            raise failure
        error, seen, differences = found[0]
        if not self.redrawn and not all(self.resolved(seen, taken) for taken in differences):
            return self.anew().proof()
        allowed = f"relative ({limit(tolerance)} is allowed)"
        said = f"autograd's derivative lies {sig(error)} from finite differences, {allowed}"
        if math.isnan(error):
            said = "its derivative is not resolved, even at re-initialised weights"
        return self.flat(error, seen, differences) or self.told(said, error)

    def seen(self, own_backward: bool = False) -> Pass:
        """The gradients of ⟨u, outputs⟩ at the states."""
        return passed(
            self.network,
            self.stream,
            self.x,
            lambda outputs: (outputs * drawn_like(outputs, 0)).sum(),
            own_backward=own_backward,
            departures=self.departures,
        )

    def compared(self, seen: Pass) -> _Compared:
        """The largest error of a state; h_0 and h_{L//2} must be resolved, others may be."""
        tolerance, layers = self.precision.tolerance, range(len(seen.states))
        differences, middle = [self.differences(seen)], layers[-1] // 2
        errors = [differences[0].error(layer, tolerance) for layer in layers]
        if math.isnan(errors[middle]) and middle:  # what is done to h_0 does not reach it
            differences.append(self.differences(seen, middle))
            errors[middle] = differences[-1].error(middle, tolerance)
        resolved = [error for error in errors if not math.isnan(error)]
        undecided = math.isnan(errors[0]) or math.isnan(errors[middle])
        return math.nan if undecided else max(resolved), seen, differences

    def differences(self, seen: Pass, layer: int = 0, step: float | None = None) -> _Differences:
        """Move h_l of every sample by a step, relative to its norm, along directions and back."""
        state, u = seen.states[layer], drawn_like(seen.outputs, 0)
        one_each = -1, *[1] * (state.ndim - 1)
        directions = drawn_like(state.expand(DIRECTIONS, *state.shape), 1 + layer)
        directions = directions / _norms(directions).view(DIRECTIONS, *one_each)
        steps = (step or self.precision.step) * _norms(state.unsqueeze(0)).squeeze(0)
        epsilon = ROUNDING * torch.finfo(seen.outputs.dtype).eps / steps
        noise = epsilon * (seen.outputs * u).abs().flatten(1).sum(1)
        along: list[tuple[Tensor, Tensor]] = []
        responses: list[float] = []
        entered: list[Tensor] = []

        def watch(number: int, shown: Tensor) -> None:
            if number < layer:
                return
            own, gradient = seen.states[number], seen.gradients[number]
            shown = shown.movedim(self.stream.batch_dims[number], 0)
            moved = shown.reshape(-1, 2, *own.shape).diff(dim=1).squeeze(1).neg()
            size = (own.abs() * gradient.abs()).flatten(1).sum(1)
            product = (moved * gradient).flatten(2).sum(2)
            along.append((product / (2 * steps), noise + epsilon * size))
            if entered:
                answer, before = _norms(moved), entered.pop()
                if moved.shape == before.shape:
                    answer = torch.minimum(answer, _norms(moved - before))
                shares = (answer / _norms(before)).nan_to_num(math.inf, math.inf)
                responses.append(float(shares.max()))
            entered.append(moved)

        shift = steps.view(one_each) * directions
        shift, x = torch.stack([shift, -shift], 1).flatten(0, 2), joined([self.x] * 2 * DIRECTIONS)
        outputs = shifted(self.network, self.stream, x, layer, shift, watch)
        outputs = outputs.reshape(DIRECTIONS, 2, len(state), -1)
        there, back = (outputs * u.flatten(1)).sum(-1).unbind(1)
        return _Differences(layer, (there - back) / (2 * steps), noise, along, responses)

    def resolved(self, seen: Pass, taken: _Differences) -> bool:
        """Whether differences can be relied on: above rounding, and a wider step gives the same."""
        size, tolerance = taken.values.abs(), self.precision.tolerance
        above = torch.isfinite(size) & (size * tolerance > taken.noise)
        if 2 * int(above.sum()) < above.numel():
            return False
        wider = self.differences(seen, taken.layer, 10 * self.precision.step).values
        return median((wider - taken.values).abs() / size) <= 10 * tolerance

    def anew(self) -> _Trial:
        """The same at re-initialised weights."""
        network = redrawn(copy_of(self.network))
        return _Trial(network, self.stream, self.x, self.precision, self.why, redrawn=True)

    def flat(self, _: float, seen: Pass, differences: list[_Differences]) -> Proof | None:
        """A refusal where a block, or the head, answers wide steps alone, re-initialised."""
        least, responds = self.precision.flat, self.precision.tolerance
        if all(not taken.vanish and min(taken.responses) > least for taken in differences):
            return None
        trial = self if self.redrawn else self.anew()
        try:
            seen = seen if self.redrawn else trial.seen()
        except NetworkError:
            return None
        small, wide = trial.differences(seen), trial.differences(seen, step=WIDE_STEP)
        answers = zip(self.stream.blocks, small.responses, wide.responses, strict=True)
        flat = [f"block {name}" for name, near, far in answers if near <= least and far >= responds]
        if small.vanish and bool((wide.values.abs() > 1e3 * wide.noise).any()):
            flat.append("the head")
        said = "is piecewise constant, as with a straight-through estimator: no useful BP gradient"
        # A plain network of the same weights is as flat: no way out.
        return self.told(f"{flat[0]} {said}", way_out="") if flat else None

    def proven(self, error: float, seen: Pass, _: Any, own_backward: bool) -> Proof:
        """With whether the network's own backward gives another gradient."""
        own = bool(self.departures.modules) and not own_backward
        if own:
            with suppress(NetworkError):
                own = differ(seen.gradients, self.seen(own_backward=True).gradients)
        return replace(self.told("", error, own=own), undoes=not own_backward)

    def told(
        self, problem: str, error: float | None = None, *, way_out: str = WAY_OUT, own: bool = False
    ) -> Proof:
        """What is written down; a problem with the modules that it comes from, and the way out."""
        modules, kinds = tuple(self.departures.modules), ", ".join(self.departures.kinds)
        if problem:
            own = bool(modules)
            whose = f"modules with a backward of their own: {and_more(modules, 4)}" if own else ""
            left = f"cannot be undone: {kinds}" if kinds else ""
            problem = "; ".join(filter(None, (problem, whose, left, way_out)))
        record = Reference(
            problem=problem,
            error=error,
            dtype=self.precision.name,
            remark=self.why,
            reinitialised=self.redrawn,
            own_backward=own,
            modules=modules if own else (),
        )
        return Proof(record)


def _norms(moved: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(moved.flatten(2), dim=2)
    return norms
