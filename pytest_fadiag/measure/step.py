"""(f) by one step: what a rule's update changes in each part, beside the BP gradient."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from msgspec.structs import replace
from torch import Tensor, nn

from ..judge import records
from ..judge.errors import AuditError
from ..judge.margins import t95
from .copies import (
    copy_of,
    differentiable_parameters,
    named_modules,
    named_parameters,
    precisions,
    quiet,
    rebound,
    trainable,
    unwrapped,
    working_copy,
)
from .inputs import call_network, copied, labelled, unlabelled
from .reference import gradient_of
from .task import name_of
from .types import Batch, ModelInput, Numbers, columns_of
from .undo import Undo, undone

if TYPE_CHECKING:
    from .run import NetworkSource

Tensors = dict[str, Tensor]
"""One for each parameter, by its name."""
SAME = 0.99
"""Steps under two random states with a lower cosine are random."""
STATES = 16
"""How many random states a random step is averaged over."""
RESOLVED = 10
"""A change of fewer roundings of the parameters has lost its direction."""

OF_LOSS = ", a step of SGD on the loss that it returns"
"""What a report adds to the name of a function that changes nothing itself."""


@dataclass(frozen=True)
class StepSource:
    """The function that makes one update of a network in place.

    >>> StepSource(my_update, "paper.rules:my_update", checkpoint)
    """

    function: Callable[..., Any]
    name: str = ""
    """What a report calls the function, where it is not by its own name."""
    checkpoint: Mapping[str, Any] = field(default_factory=dict)
    """The content of the file, for a function with a parameter of that name."""


class Moved(NamedTuple):
    """What one step took off the parameters, and the BP gradient for the same labels."""

    change: Tensors
    gradient: Tensors


class Compared(NamedTuple):
    """The numbers of one part in one batch."""

    plain: float
    contrast: float
    change: float
    """‖Δ‖/‖θ‖."""
    label_share: float
    """‖Δ(y) − Δ(ỹ)‖/‖Δ(y)‖."""


class Step:
    """Compares updates of copies with BP gradients; what is wrong with a step is in the record."""

    needs = frozenset({"reference"})

    def __init__(self, source: NetworkSource) -> None:
        assert source.step is not None
        self.source = source
        self.rule = source.step
        self.name = self.rule.name or name_of(self.rule.function)
        self.parts = parts_of(source)
        self.batches: list[list[Compared]] = []
        self.states = 1
        self.returns_loss = False
        self.trains = False
        """Whether the step leaves a module in training mode."""
        self.problem = ""

    def update(self, batch: Batch) -> None:
        """Measure an evaluation batch, unless there is a training split."""
        if self.source.training_data is None:
            self._measure(batch)

    def _measure(self, batch: Batch) -> None:
        if self.problem:
            return
        try:
            self.batches.append(self._compared(batch))
        except AuditError as error:
            self.problem = str(error)

    def _compared(self, batch: Batch) -> list[Compared]:
        """The numbers of each part: with the labels as they are, and in another order."""
        y = batch.y
        start = batch.start
        generator = torch.Generator().manual_seed(start)
        other_y = y[torch.randperm(len(y), generator=generator).to(y.device)]
        if torch.equal(y, other_y):
            raise AuditError("a batch has one label alone, so no contrast; shuffle the data")
        steps = [self._moved(batch.x, y, state) for state in (start, start + 1)]
        names = list(steps[0].change)
        states = 1
        if not _cosine(steps[0].change, steps[1].change, names) >= SAME:
            states = STATES
        self.states = max(self.states, states)
        for state in range(start + 2, start + states):
            steps.append(self._moved(batch.x, y, state))
        reordered = [self._moved(batch.x, other_y, start + state) for state in range(states)]
        true = _combined(_mean, *steps[:states])
        contrast = _combined(torch.sub, true, _combined(_mean, *reordered))
        return [self._numbers(part, true, contrast) for part in self.parts]

    def _numbers(self, part: str, true: Moved, contrast: Moved) -> Compared:
        """The cosines of one part, without tensors that are frozen."""
        weights = named_parameters(self.source.network)
        trained = trainable(self.source.network)
        names = []
        for name in self.parts[part]:
            if name in trained or bool(true.change[name].any()):
                names.append(name)
        size = _norm(true.change, names)
        by_labels = _norm(contrast.change, names)
        weight = _norm(weights, names)
        dtype = precisions(self.source.network)[0]
        rounding = 0 if self.returns_loss else RESOLVED * torch.finfo(dtype).eps * weight
        depends = by_labels > records.LABEL_FREE * size
        if 0 < size < rounding or (depends and by_labels < rounding):
            raise AuditError(
                f"the step of {self.name} changes {part} by less than "
                f"{str(dtype).removeprefix('torch.')} resolves; make a larger step"
            )
        if size and self.trains and not _norm(true.gradient, names):
            raise AuditError(
                f"in training mode, in which {self.name} leaves the network, no gradient reaches "
                f"{part}; end the step with model.eval()"
            )
        return Compared(
            _cosine(true.change, true.gradient, names),
            _cosine(contrast.change, contrast.gradient, names),
            size / weight if weight else size,
            by_labels / size if size else math.nan,
        )

    def _moved(self, x: ModelInput, y: Tensor, state: int) -> Moved:
        """One step on a new copy under a random state, and the BP gradient in the step's mode."""
        network = copy_of(self.source.network)
        parameters = named_parameters(network)
        for name in trainable(network):
            parameters[name].requires_grad_()
        inputs = x
        if self.source.forward is not None:
            inputs, _ = unlabelled(x)
            x = labelled(inputs, y)
        rule = rebound(self.rule.function, unwrapped(self.source.original), network)
        signature = inspect.signature(rule)
        arguments = [network, copied(inputs), y.clone()]
        keywords = {}
        if "checkpoint" in signature.parameters:
            keywords["checkpoint"] = self.rule.checkpoint
        if rule is not self.rule.function and not _takes(signature, *arguments, **keywords):
            del arguments[0]  # the rule holds the network
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(state)
            try:
                with torch.enable_grad():
                    loss = rule(*arguments, **keywords)
            except Exception as error:
                failure = f"{type(error).__name__}: {error}"
                raise AuditError(f"the step function {self.name} raised {failure}") from error
            change = self._change(named_parameters(network), loss)
            fresh = copy_of(self.source.network)
            _set_modes(fresh, network)
            self.trains = any(module.training for module in fresh.modules())
            torch.manual_seed(state)
            return Moved(change, bp_gradient(self.source, fresh, x, y))

    def _change(self, after: Tensors, loss: Any) -> Tensors:
        """What a step took off the parameters, or plain SGD would by the loss that it returned; an
        error where that cannot be compared.
        """
        change = {}
        for name, before in named_parameters(self.source.network).items():
            weight = after.get(name, before[:0])
            if weight.shape != before.shape:
                raise AuditError(f"the step of {self.name} reshaped {name}")
            change[name] = before - weight.detach()
        if not _any(change):
            self._refuse_change_of_original()
            leaves = {name: weight for name, weight in after.items() if weight.requires_grad}
            what = "let it make its rule and its optimiser for that copy"
            if any(weight.grad is not None for weight in leaves.values()):
                what = "it left gradients: end with torch.optim.SGD(model.parameters(), 0.1).step()"
            elif isinstance(loss, Tensor) and loss.requires_grad:
                with suppress(RuntimeError):  # of a graph that a backward elsewhere has freed
                    gradients = torch.autograd.grad(
                        loss, list(leaves.values()), torch.ones_like(loss), materialize_grads=True
                    )
                    change |= zip(leaves, gradients, strict=True)
                self.returns_loss = True
            if not _any(change):
                problem = "changed no parameter of the network that it is called with"
                raise AuditError(f"{self.name} {problem}; {what}")
        for name, difference in change.items():
            if not bool(torch.isfinite(difference).all()):
                raise AuditError(f"the step of {self.name} left {name} NaN or inf")
        return change

    def _refuse_change_of_original(self) -> None:
        original = named_parameters(self.source.original)
        for name, before in named_parameters(self.source.network).items():
            if name in original and not torch.equal(original[name].detach().to(before), before):
                raise AuditError(
                    f"{self.name} changed the network itself, not the copy that it is called "
                    "with; let it make its rule for that copy, and load the network again"
                )

    def compute(self) -> Numbers:
        """The record of the step."""
        training = self.source.training
        if training is not None:
            for batch in training.batches(self.needs):
                if batch.whole is not None:
                    self._measure(batch.whole)
        if len(self.batches) < 2 and not self.problem:
            self.problem = "a step is measured on two batches of 128 at least"
        record = records.Step(
            source=self.name + (OF_LOSS if self.returns_loss else ""),
            problem=self.problem,
            batches=len(self.batches),
            states=self.states,
            training=self.source.training_name,
        )
        if self.problem:
            return {"step": record}
        columns = columns_of(list(map(_summary, zip(*self.batches, strict=True))))
        return {"step": replace(record, parts=tuple(self.parts), **columns)}


class Updates:
    """The plain cosines of updates while a network is trained, part by part."""

    def __init__(self, source: NetworkSource) -> None:
        self.source = source
        self.parts = parts_of(source)
        self.plain: list[list[float]] = []
        self.change: list[list[float]] = []

    @contextmanager
    def watched(self, model: nn.Module, x: ModelInput, y: Tensor) -> Iterator[None]:
        """Compare the update that is made within with the BP gradient before it."""
        model = unwrapped(model)
        copy = working_copy(model)
        _set_modes(copy, model)
        y = y.to(self.source.device)
        with quiet(copy):
            gradient = bp_gradient(self.source, copy, self.source.inputs(x, y), y)
        yield
        before = {name: weight.detach() for name, weight in named_parameters(copy).items()}
        after = named_parameters(model)
        change = {name: weight - after[name].detach() for name, weight in before.items()}
        plain = []
        sizes = []
        for part in self.parts.values():
            names = [name for name in part if after[name].requires_grad or change[name].any()]
            size = _norm(change, names)
            weight = _norm(before, part)
            is_lost = size < RESOLVED * torch.finfo(self.source.dtype).eps * weight
            plain.append(math.nan if is_lost else _cosine(change, gradient, names))
            sizes.append(size / weight if weight else size)
        self.plain.append(plain)
        self.change.append(sizes)

    def taken(self) -> records.Step | None:
        """What was compared since the last call."""
        if not self.plain:
            return None
        step = records.Step(
            parts=tuple(self.parts),
            plain=tuple(map(fmean, zip(*self.plain, strict=True))),
            least_plain=tuple(map(_least, zip(*self.plain, strict=True))),
            change=tuple(map(fmean, zip(*self.change, strict=True))),
            batches=len(self.plain),
        )
        self.plain = []
        self.change = []
        return step


def _any(tensors: Tensors) -> bool:
    return any(bool(tensor.any()) for tensor in tensors.values())


def _takes(signature: inspect.Signature, *arguments: Any, **keywords: Any) -> bool:
    try:
        signature.bind(*arguments, **keywords)
    except TypeError:
        return False
    return True


def _set_modes(network: nn.Module, like: nn.Module) -> None:
    """Training or evaluation for each module as in another network."""
    modules = named_modules(like)
    for name, module in named_modules(network).items():
        module.training = modules.get(name, module).training


def _summary(batches: Sequence[Compared]) -> Numbers:
    """One part over all batches, the contrast with its t-interval."""
    plain = [batch.plain for batch in batches]
    contrast = [batch.contrast for batch in batches]
    mean = fmean(contrast)
    deviation = float(torch.tensor(contrast, dtype=torch.float64).std())
    margin = t95(len(batches) - 1) * deviation / math.sqrt(len(batches))
    return {
        "plain": fmean(plain),
        "least_plain": _least(plain),
        "contrast": mean,
        "low": mean - margin,
        "high": mean + margin,
        "change": fmean(batch.change for batch in batches),
        "label_share": max(batch.label_share for batch in batches),
    }


def _least(values: Sequence[float]) -> float:
    return math.nan if any(map(math.isnan, values)) else min(values)


@torch.enable_grad()
def bp_gradient(source: NetworkSource, network: nn.Module, x: ModelInput, y: Tensor) -> Tensors:
    """The gradient of the summed loss by every parameter, through what the network computes."""
    parameters = differentiable_parameters(network)
    with undone(Undo(network)):
        outputs = source.outputs(call_network(network, copied(x)))
    for parameter in parameters.values():
        parameter.grad = None  # of a forward that stores its update there
    error = source.task.error(outputs, y).whole
    (outputs * error.to(outputs.dtype)).sum().backward()  # type: ignore[no-untyped-call]
    return {name: gradient_of(parameter) for name, parameter in parameters.items()}


def parts_of(source: NetworkSource) -> dict[str, list[str]]:
    """The parameters of embedding, blocks and head, by name.

    The embedding is what h_0 depends on, the head what is read outside the blocks and h_L does not
    depend on; what lies between two blocks is in no part.
    """
    stream = source.stream
    before = _reached(source, 0) & stream.outside
    between = _reached(source, len(stream.blocks)) - before
    parts = {"embedding": sorted(before)}
    for block, names in zip(stream.blocks, stream.exclusive_parameters, strict=True):
        parts.setdefault(block, []).extend(names)
    parts["head"] = sorted(stream.outside - before - between)
    return {part: names for part, names in parts.items() if names}


@torch.enable_grad()
def _reached(source: NetworkSource, layer: int) -> set[str]:
    """The parameters that a state depends on."""
    network = copy_of(source.network)
    parameters = differentiable_parameters(network)
    sums: list[Tensor] = []
    with undone(Undo(network)):
        x = copied(source.first[0])
        source.stream.run(network, x, lambda _, state: sums.append(state.sum()))
    if sums[layer].requires_grad:
        sums[layer].backward()  # type: ignore[no-untyped-call]
    return {name for name, tensor in parameters.items() if tensor.grad is not None}


def _mean(*tensors: Tensor) -> Tensor:
    return sum(tensors[1:], tensors[0]) / len(tensors)


def _combined(combine: Callable[..., Tensor], *steps: Moved) -> Moved:
    """Change and gradient of several steps as one, tensor by tensor."""
    change, gradient = (
        {name: combine(*(tensors[name] for tensors in kind)) for name in kind[0]}
        for kind in zip(*steps, strict=True)
    )
    return Moved(change, gradient)


def _product(a: Tensors, b: Tensors, names: Sequence[str]) -> float:
    return sum(float((a[name].double() * b[name].double()).sum()) for name in names)


def _norm(a: Tensors, names: Sequence[str]) -> float:
    return math.sqrt(_product(a, a, names))


def _cosine(a: Tensors, b: Tensors, names: Sequence[str]) -> float:
    """The cosine of both as one vector; NaN where one of them is 0."""
    size = _norm(a, names) * _norm(b, names)
    return _product(a, b, names) / size if size else math.nan
