"""The reference of (b), (c) and Γ: the derivative of what the network computes, proven by finite differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..judge.errors import AuditError
from ..judge.records import Reference
from ..judge.wording import figure, limit
from .inputs import ModelInput, copied, each, rows
from .shifts import Differences, Pass, Shifts, drawn_like
from .stream.sites import Stream
from .through_forward import (
    DATA,
    GRAD_FN,
    ITEM,
    NO_GRAD,
    OPAQUE,
    UNDONE,
    Departures,
    ThroughForward,
    passing_on,
    through_forward,
)
from .vectors import median
from .wide import copy_of, in_float64, redrawn

SAMPLES = 8
SAME = 1e-6
"""How far the network's own backward may lie from the reference, relative, and still be the same."""
WIDE_STEP = 0.5
"""Relative to ‖h‖, wide enough to cross the steps of a piecewise-constant function."""
NOT_FINITE = "its derivative is not finite, and there is nothing to compare with finite differences"
WAY_OUT = "audit a plain network with the same weights by --fa-model=package.module:factory"


@dataclass(frozen=True)
class Precision:
    """How finite differences are taken: the step, relative to ‖h‖, and how far autograd may lie from them."""

    name: str
    step: float
    tolerance: float
    flat: float
    """What is piecewise constant answers a small step with less than this share of it …"""
    responds: float
    """… and a wide one with more than this."""


FLOAT64 = Precision("float64", 1e-6, 1e-3, 1e-8, 1e-3)
"""A larger step crosses the kinks of ReLU: in a wide network 1e-4 is off by 3e-3."""
FLOAT32 = Precision("float32", 1e-3, 5e-2, 1e-3, 5e-2)


@dataclass(frozen=True)
class Proof:
    """What came of the proof: for the record, and how gradients of this network are to be taken."""

    record: Reference
    error: float | None = None
    undoes: bool = True
    """Whether own backwards are undone; where only the network's own are its derivative, it is left as it is."""
    undecided: bool = False
    """Whether there was nothing finite to compare."""

    def forward(self, network: nn.Module) -> AbstractContextManager[ThroughForward | None]:
        """The context of a forward pass whose graph gives the reference."""
        return through_forward(network) if self.undoes else nullcontext()


def prove(network: nn.Module, stream: Stream, x: ModelInput) -> Proof:
    """Whether autograd's derivative of ⟨u, logits⟩ by the states is that of the function which the network computes.

    With one random u a sample: the logits rather than the loss, so that confident samples drown nothing. h_0 is moved along
    random directions, and with it every state behind it: where autograd is right, ⟨g_l, dh_l⟩ is the same at all of them.
    """
    x = rows(x, slice(SAMPLES))
    try:
        wide = copy_of(network, torch.float64)
        device = next(wide.parameters(), torch.empty(0)).device
        on_copy = each(x, lambda tensor: tensor.to(device, torch.float64 if tensor.is_floating_point() else tensor.dtype))
        with in_float64() as mode:
            proof = _Trial(wide, stream, on_copy, FLOAT64).proof()
            if not mode.narrow or not proof.record.problem:
                return proof
            return _Trial(wide, stream, on_copy, FLOAT32, "parts of the forward compute in less than float64").proof()
    except AuditError:
        raise
    except Exception as error:  # a network may do anything with being copied, or with float64
        why = f"no float64 copy runs: {_first_line(error)}"
    trial = _Trial(network, stream, x, FLOAT32, why)
    try:
        return trial.proof()
    except AuditError:
        raise
    except Exception as error:
        return Proof(trial.record(f"it fails: {_first_line(error)}"))


def passed(
    network: nn.Module,
    stream: Stream,
    x: ModelInput,
    objective: Callable[[Tensor], Tensor],
    *,
    own_backward: bool = False,
    departures: Departures | None = None,
) -> Pass:
    """The states, and at each the gradient of ``objective(logits)``: its derivative, or what the own backward gives.

    Where a function of the network's own only passes a state on, what its backward makes of a gradient is the credit of the
    block before it: it is taken there.
    """
    states: list[Tensor] = []
    forward = nullcontext() if own_backward else through_forward(network, departures)
    watched: AbstractContextManager[list[Any]] = passing_on() if own_backward else nullcontext([])
    with torch.enable_grad(), watched as handed, forward as through:

        def on_state(_: int, state: Tensor) -> None:
            with nullcontext() if through is None else through.aside():
                if not state.requires_grad:
                    state.requires_grad_()  # h_0, before which there is nothing to differentiate by, or one that is detached
                state.retain_grad()  # what arrives there after all hooks
                states.append(state)

        logits = stream.run(network, copied(x), on_state)
        with nullcontext() if through is None else through.aside():
            carried = objective(logits)
    for state in states:
        state.grad = None  # a forward that differentiates by itself, as by an energy, has left something there
    before = [_before(state, handed) for state in states]
    if carried.requires_grad:
        # Not torch.autograd.grad, with which reentrant checkpoints refuse to work; nothing but the first state is a leaf.
        carried.backward()  # type: ignore[no-untyped-call]
    arrived = [state.grad if taken is None else next(iter(taken), None) for state, taken in zip(states, before, strict=True)]
    gradients = [torch.zeros_like(state) if g is None else g for state, g in zip(states, arrived, strict=True)]
    return Pass(
        logits.detach(),
        [state.detach().movedim(dim, 0) for state, dim in zip(states, stream.batch_dims, strict=True)],
        [gradient.detach().movedim(dim, 0) for gradient, dim in zip(gradients, stream.batch_dims, strict=True)],
        bool(handed),
    )


def _before(state: Tensor, handed: Sequence[Any]) -> list[Tensor] | None:
    """Where the gradient before the functions that handed a state on will be held; nothing where none did."""
    node, output, held = cast(Any, state.grad_fn), 0, []
    while node is not None and any(node is one for one in handed):
        ((node, output),) = [(function, index) for function, index in node.next_functions if function is not None]
    if node is state.grad_fn:
        return None
    node.register_prehook(lambda gradients: held.append(gradients[output]))
    return held


@dataclass(frozen=True)
class _Comparison:
    """How far the gradients of a pass lie from finite differences; NaN where these resolve nothing."""

    error: float
    seen: Pass
    differences: Sequence[Differences]


class _Trial:
    """One comparison of autograd with finite differences."""

    def __init__(
        self, network: nn.Module, stream: Stream, x: ModelInput, precision: Precision, why: str = "", *, redrawn: bool = False
    ) -> None:
        self.network, self.stream, self.x, self.precision = network, stream, x, precision
        self.why, self.redrawn = why, redrawn
        self.departures = Departures(network)

    def proof(self) -> Proof:
        """The proof at these weights, else with weights drawn anew: the reference belongs to the architecture."""
        derivative = self._attempt()
        found = self._compared(derivative)
        if found is not None and found.error <= self.precision.tolerance:
            return self._flat(found) or self._proven(found)
        own = self._attempt(own_backward=True)
        theirs = self._compared(own)
        if theirs is not None and theirs.error <= self.precision.tolerance:
            return self._flat(theirs) or Proof(self.record(), theirs.error, undoes=False)
        one = found or theirs
        if one is None:
            assert isinstance(own, Exception)
            raise own
        if not self.redrawn and not self._resolved(one):
            anew = self._anew().proof()
            # A derivative that is not finite fires (b), whatever it is the derivative of.
            return Proof(self.record(remark=NOT_FINITE)) if anew.undecided and not one.seen.finite else anew
        self._check_states(one.seen)
        return self._flat(one) or self._not_proven(one.error)

    def _check_states(self, seen: Pass) -> None:
        """An error where a state gets no gradient because the logits do not depend on it: it is none of the stream."""
        for layer, gradient in enumerate(seen.gradients):
            if not bool(gradient.any()) and self._differences(seen, layer).vanish and not self.redrawn:
                raise AuditError(
                    f"no gradient of the loss reaches h_{layer} of the stream ({self.stream.source}), and the logits do not "
                    "depend on it; check the stream (--fa-stream)"
                )

    def _attempt(self, *, own_backward: bool = False) -> Pass | Exception:
        """The gradients at the states, or what keeps autograd from them."""
        try:
            return passed(
                self.network,
                self.stream,
                self.x,
                lambda logits: (logits * _u(logits)).sum(),
                own_backward=own_backward,
                departures=self.departures,
            )
        except Exception as error:
            return error

    def _compared(self, attempt: Pass | Exception) -> _Comparison | None:
        """The largest of the states' errors: h_0 and h_{L//2} must be resolved, and where others are, they count too."""
        if isinstance(attempt, Exception):
            return None
        tolerance, middle = self.precision.tolerance, attempt.depth // 2
        first = self._differences(attempt)
        differences = [first]
        errors = [first.error(layer, tolerance) for layer in range(attempt.depth + 1)]
        if math.isnan(errors[middle]) and middle:  # what is done to h_0 does not reach it: it is moved by itself
            differences.append(self._differences(attempt, middle))
            errors[middle] = differences[-1].error(middle, tolerance)
        if self.redrawn and all(taken.vanish for taken in differences):
            errors = [0.0 if first.zero_along(layer) else 1.0 for layer in range(attempt.depth + 1)]
        resolved = [error for error in errors if not math.isnan(error)]
        undecided = math.isnan(errors[0]) or math.isnan(errors[middle])
        return _Comparison(math.nan if undecided else max(resolved), attempt, differences)

    def _differences(self, seen: Pass, layer: int = 0, step: float | None = None) -> Differences:
        shifts = Shifts(self.network, self.stream, self.x, _u(seen.logits))
        return shifts.differences(seen, layer, step or self.precision.step)

    def _resolved(self, found: _Comparison) -> bool:
        """Whether the differences can be relied on: they are above rounding, and a wider step gives the same."""
        for taken in found.differences:
            size = taken.values.abs()
            above = torch.isfinite(size) & (size * self.precision.tolerance > taken.noise)
            if 2 * int(above.sum()) < above.numel():
                return False
            wider = self._differences(found.seen, taken.layer, 10 * self.precision.step)
            if not median((wider.values - taken.values).abs() / size) <= 10 * self.precision.tolerance:
                return False
        return True

    def _anew(self) -> _Trial:
        network = redrawn(copy_of(self.network))
        return _Trial(network, self.stream, self.x, self.precision, self.why, redrawn=True)

    def _flat(self, found: _Comparison) -> Proof | None:
        """A refusal where a block, or the head, answers no small step though it answers wide ones: weights drawn anew tell."""
        if all(not taken.vanish and min(taken.responses) > self.precision.flat for taken in found.differences):
            return None
        trial = self if self.redrawn else self._anew()
        seen = found.seen if self.redrawn else trial._attempt()
        if isinstance(seen, Exception):
            return None
        flat = trial._flat_blocks(seen)
        if not flat:
            return None
        place = "the head" if flat[0] == seen.depth else f"block {flat[0]}"
        said = f"{place} is piecewise constant, as with a straight-through estimator, and has no useful BP gradient"
        return Proof(self.record(said, way_out=""))  # a plain network of the same weights is as flat

    def _flat_blocks(self, seen: Pass) -> list[int]:
        small, wide = self._differences(seen), self._differences(seen, step=WIDE_STEP)
        pairs = enumerate(zip(small.responses, wide.responses, strict=True))
        flat = [block for block, (near, far) in pairs if near <= self.precision.flat and far >= self.precision.responds]
        moved = bool((wide.values.abs() > 1e3 * wide.noise).any())
        return flat or ([seen.depth] if small.vanish and moved else [])

    def _proven(self, found: _Comparison) -> Proof:
        attempt = self._attempt(own_backward=True) if self.departures.of(*UNDONE) else found.seen
        own = isinstance(attempt, Exception) or differ(found.seen.gradients, attempt.gradients)
        return Proof(self.record(own=own), found.error)

    def _not_proven(self, error: float) -> Proof:
        if math.isnan(error):
            return Proof(self.record("its derivative is not finite, even with weights drawn anew"), undecided=True)
        allowed = f"({limit(self.precision.tolerance)} is allowed)"
        return Proof(
            self.record(f"autograd's derivative lies {figure(error)} from finite differences, relative {allowed}"), error
        )

    def record(self, said: str = "", way_out: str = WAY_OUT, *, own: bool = False, remark: str = "") -> Reference:
        """What is written down; a problem with the modules that it comes from, and the way out."""
        modules = self.departures.of(*UNDONE)
        if said:
            parts = [said, f"modules with a backward of their own: {_some(modules)}" if modules else ""]
            for what in (DATA, NO_GRAD, ITEM, GRAD_FN, OPAQUE):
                places = self.departures.of(what)
                parts.append(f"{what} in {_some(places)} cannot be undone" if places else "")
            said = "; ".join(filter(None, [*parts, way_out]))
        shown = tuple(modules) if said or own else ()
        return Reference(said, self.precision.name, remark or self.why, self.redrawn, own or bool(said and modules), shown)


def _u(logits: Tensor) -> Tensor:
    return drawn_like(logits, seed=0)


def differ(one: Sequence[Tensor | None], other: Sequence[Tensor | None]) -> bool:
    """Whether the gradients of two passes are not the same, wherever both have one."""
    pairs = [(a, b) for a, b in zip(one, other, strict=True) if a is not None and b is not None]
    return any(not float((a - b).norm()) <= SAME * float(a.norm()) for a, b in pairs)


def _some(names: Sequence[str], most: int = 4) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _first_line(error: object) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]
