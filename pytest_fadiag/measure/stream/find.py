"""The search for the residual stream of a network: the values that carry everything, found on a copy and tested there."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ...judge.errors import AuditError
from ...judge.wording import count
from ..eager import refuse_scripted
from ..features import Layout
from ..inputs import ModelInput, call_network, copied, each, rows, tensors_of
from ..modules import named_modules
from ..outputs import Outputs, largest_difference
from ..wide import copy_of, in_float64, redrawn
from .blocks import Anatomy
from .choice import Choice, between, found, named
from .graph import Graph
from .known import recall, remember, structure_of
from .record import of_one_sample, recorded
from .samples import test_samples
from .sites import Stream
from .specs import Spec
from .states import AmbiguousSamples, States
from .tape import Tape


@dataclass(frozen=True)
class Precision:
    """What a copy computes in, and how far two ways to the same logits may differ, by the largest difference of two samples."""

    dtype: torch.dtype
    tolerance: float

    def __call__(self) -> AbstractContextManager[Any]:
        """The context of its forward passes."""
        return in_float64() if self.dtype is torch.float64 else nullcontext()


FLOAT64, FLOAT32 = Precision(torch.float64, 1e-9), Precision(torch.float32, 1e-4)
SIZES = (3, 5, 7, 11, 13)
"""Numbers of test samples; one that no other dimension has tells where the samples are."""
ATTEMPTS = ((1.0, False), (1.0, True), (2.0, False), (0.5, False), (2.0, True), (4.0, False))
"""How large the weights of the copy are drawn, and whether token ids are; the next where the logits tell no samples apart."""
PARTLY_NARROW = 1e-6
"""Up to here two passes may differ because parts of the forward, such as scripted functions, compute in less than float64."""
APART = 1e-4
"""How far the logits of two samples must lie apart, relative to their size: nearer ones are told apart by rounding."""


def find_stream(model: nn.Module, x: ModelInput, spec: str | None = None, outputs: Outputs | None = None) -> Stream:
    """The stream of a network: what the user names, else what is found; ``x`` is a handful of samples.

    It is looked for once an architecture: networks of one structure have one stream.
    """
    refuse_scripted(model)
    outputs = outputs or Outputs()
    structure = structure_of(model, x, spec, outputs.classes, outputs.place)
    known = recall(structure)
    if known is None:
        known = _searched(model, x, spec, outputs)
        remember(structure, known)
    return replace(known, outputs=outputs)


def _searched(model: nn.Module, x: ModelInput, spec: str | None, outputs: Outputs) -> Stream:
    parsed = None if spec is None else Spec.parse(spec)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        try:
            return _Search(model, x, outputs, FLOAT64).stream(parsed)
        except AuditError:
            raise
        except Exception as error:  # some networks cannot run in float64
            try:
                return _Search(model, x, outputs, FLOAT32).stream(parsed)
            except AuditError:
                raise
            except Exception:
                raise error from None


class _Search:
    """One network's copy, the test samples, and what they give."""

    def __init__(self, model: nn.Module, x: ModelInput, outputs: Outputs, precision: Precision) -> None:
        self.x, self.outputs, self.precision = x, outputs, precision
        self._begin(model)

    def stream(self, spec: Spec | None) -> Stream:
        """The stream, every state of it tested; with other numbers of samples where dimensions of their size get in the way."""
        for size in SIZES[1:]:
            try:
                return self._stream(spec)
            except AmbiguousSamples:
                self.samples = self._drawn_samples(size)
                self.logits = self._run(self.samples)
        return self._stream(spec)

    def _stream(self, spec: Spec | None) -> Stream:
        anatomy = self._anatomy()
        if spec is not None:
            return self._tested(anatomy, named(anatomy, self.network, spec), f"named {spec.text!r}", spec.text)
        returned = self._returned(anatomy)
        if returned is not None:
            return self._tested(anatomy, returned, "return_hidden=True")
        return self._tested(anatomy, found(anatomy), "found")

    def _tested(self, anatomy: Anatomy, choice: Choice, source: str, named_by: str = "") -> Stream:
        states = States(anatomy, choice.blocks, choice.last)
        parameters = tuple(block.parameters | anatomy.unread_in(block) for block in choice.blocks)
        outside = anatomy.parameters_outside(choice.blocks)
        stream = Stream(states.sites(), outputs=self.outputs, parameters=parameters, outside=outside)
        layout = Layout(self.network, stream)
        tokens = tuple(layout.are_tokens(of_one_sample(node.shape, anatomy.tape.batch)) for node in states.nodes())
        record = recorded(anatomy, choice, states.nodes(), tokens, named_by)
        described = f"{source}: {record.ends}, {count(len(record.blocks), 'block')}"
        stream = replace(stream, blocks=record.blocks, source=described, tokens=tokens, record=record)
        broken = self._broken(stream)
        if broken:
            raise AuditError(
                f"the state at {stream.sites[broken[0]]} does not carry all that the logits depend on: with its samples in "
                f"another order, the logits do not come in that order ({source})"
            )
        return stream

    def _begin(self, model: nn.Module) -> None:
        """Find weights and samples of which the logits can be told apart, and not by rounding alone."""
        most, best = 0.0, None
        for attempt in ATTEMPTS:
            apart = self._attempt(model, *attempt)
            if apart >= APART:
                return
            if apart > most:
                most, best = apart, attempt
        if best is None:
            raise AuditError(
                "the logits are the same for all samples, or not finite, whatever weights the network has: its stream cannot "
                "be tested"
            )
        self._attempt(model, *best)

    def _attempt(self, model: nn.Module, gain: float, drawn: bool) -> float:
        """How far the logits of two samples lie from each other, relative to their size, with weights of a gain."""
        self.drawn = drawn
        self.network = _copy(model, self.precision.dtype, gain)
        self.samples = self._drawn_samples(SIZES[0])
        self.logits = self._run(self.samples)
        if self.logits.ndim != 2 or len(self.logits) != SIZES[0]:
            raise AuditError(
                f"the network returned logits of shape {tuple(self.logits.shape)} for {SIZES[0]} samples; "
                f"expected [{SIZES[0]}, classes]"
            )
        size = float(self.logits.abs().max())
        return largest_difference(self.logits) / size if 0 < size < math.inf else 0.0

    def _drawn_samples(self, number: int) -> ModelInput:
        dtype = self.precision.dtype
        return each(
            test_samples(self.x, number, drawn=self.drawn), lambda own: own.to(dtype) if own.is_floating_point() else own
        )

    def _run(self, samples: ModelInput) -> Tensor:
        with self.precision():
            return self.outputs(call_network(self.network, copied(samples)))

    def _differs(self, logits: Tensor, expected: Tensor, tolerance: float = 0.0) -> bool:
        if logits.shape != expected.shape:
            return True
        allowed = max(tolerance, self.precision.tolerance) * largest_difference(self.logits)
        return not float((logits - expected).abs().max()) <= allowed

    def _anatomy(self) -> Anatomy:
        """The forward pass taken apart; an error where a second pass or fewer samples in a batch give other logits."""
        tape, output = self._recorded()
        logits = self.outputs(output)
        if self._differs(logits, self.logits, PARTLY_NARROW):
            raise AuditError(
                "the forward is random: two passes of the same samples give different logits, in eval mode. Take out what "
                "draws random numbers, such as dropout that is called with training=True"
            )
        apart = float((logits - self.logits).abs().max()) / largest_difference(self.logits)
        self.precision = replace(self.precision, tolerance=max(self.precision.tolerance, 10 * apart))
        if self._differs(self._run(rows(self.samples, slice(2))), self.logits[:2]):
            raise AuditError(
                "samples interact: the logits of a sample depend on which others are in its batch, so it has no gradient of "
                "its own. Batch statistics must come from running averages in eval mode"
            )
        node = tape.node_of(logits)
        if node is None:
            raise AuditError("the logits do not depend on the samples in a way that could be followed")
        return Anatomy(tape, Graph(tape.nodes, node.index))

    def _recorded(self, **options: Any) -> tuple[Tape, Any]:
        tape, given = Tape(self.network, len(self.logits)), copied(self.samples)
        with self.precision():
            return tape, tape.record(lambda: call_network(self.network, given, **options), tensors_of(given))

    def _returned(self, anatomy: Anatomy) -> Choice | None:
        """The blocks between the states that the network itself gives, if they are states and leave no block out."""
        try:
            takes = "return_hidden" in inspect.signature(self.network.forward).parameters
        except (TypeError, ValueError):
            takes = False
        if not takes:
            return None
        tape, answer = self._recorded(return_hidden=True)
        if not (isinstance(answer, (tuple, list)) and len(answer) == 2 and isinstance(answer[1], (tuple, list))):
            return None
        nodes = [tape.node_of(state) if isinstance(state, Tensor) else None for state in answer[1]]
        same = [node.op for node in tape.nodes] == [node.op for node in anatomy.tape.nodes]
        return between(anatomy, [node.index for node in nodes if node is not None]) if same and None not in nodes else None

    def _broken(self, stream: Stream) -> list[int]:
        """The states that fail the cut test: with their samples in another order, the logits do not come in that order.

        All states are shifted in each of a few passes: in the first by 1, in the second where the next digit of the layer's
        number to the base of the samples changes, and so on. Whatever goes around some of them is out of step in one of these.
        """
        number, layers = len(self.logits), range(len(stream.sites))
        passes, power = [], 1
        while power <= len(stream.sites):
            shifts = [((layer + 1) // power - layer // power) % number for layer in layers]
            passes.append(shifts)
            power *= number
        if all(self._passes(stream, shifts) for shifts in passes):
            return []
        return [layer for layer in layers if not self._passes(stream, [int(own == layer) for own in layers])]

    def _passes(self, stream: Stream, shifts: Sequence[int]) -> bool:
        def shift(layer: int, state: Tensor) -> None:
            if shifts[layer]:
                state.copy_(state.roll(shifts[layer], stream.batch_dims[layer]))

        with self.precision():
            logits = stream.run(self.network, copied(self.samples), shift)
        return not self._differs(logits, self.logits.roll(sum(shifts), 0))


def _copy(model: nn.Module, dtype: torch.dtype, gain: float) -> nn.Module:
    """A copy with weights drawn anew: the stream belongs to the architecture, not to what it has learned."""
    try:
        network = redrawn(copy_of(model, dtype), gain=gain)
    except Exception as error:
        raise AuditError(
            f"the network cannot be copied, so its stream cannot be tested ({type(error).__name__}: {error}); let its modules "
            "hold nothing that copy.deepcopy refuses"
        ) from error
    for module in named_modules(network).values():
        module.training = False
    return network
