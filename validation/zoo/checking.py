"""What the audit finds of a member against the truth: states and gradients by other hooks."""

from __future__ import annotations

import copy
import enum
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.measure.copies import working_copy
from pytest_fadiag.measure.inputs import Outputs
from pytest_fadiag.measure.reference import passed
from pytest_fadiag.measure.stream.find import find_stream
from pytest_fadiag.measure.task import Task

from .member import CLASSES, Inputs, Member, Refusal, Stream

TOLERANCE = 1e-8
SPEC = re.compile(r"--fa-stream='([^']*)'")


class Outcome(str, enum.Enum):
    """How the audit did."""

    RIGHT = "right"
    NAMED = "refused, and the SPEC of the message is right"
    REFUSED = "refused for the true reason"
    UNHELPFUL = "refused without help"
    WRONG = "wrong"


@dataclass(frozen=True)
class Result:
    """What came of one member."""

    member: Member
    outcome: Outcome
    blocks: int
    said: str


@dataclass(frozen=True)
class _Seen:
    states: list[Tensor]
    gradients: list[Tensor]


def check(member: Member) -> Result:
    """Find the stream of a member and compare it with the truth."""
    torch.manual_seed(0)
    model, x = _ready(member.make()), _wide(member.inputs())
    try:
        found = _found(model, x, member.named)
    except AuditError as error:
        return _refused(member, model, x, str(error))
    except Exception as error:  # of the audit's own making: no reader should see it
        return Result(member, Outcome.UNHELPFUL, 0, f"{type(error).__name__}: {error}")
    if isinstance(member.truth, Refusal):
        return Result(
            member, Outcome.WRONG, len(found.states) - 1, f"accepted, but {member.truth.why}"
        )
    difference = _difference(found, _true(member.truth, model, x))
    if not difference and member.grows is not None and _grows(found) is not member.grows:
        difference = f"the stream {'does not grow' if member.grows else 'grows'} by more than 50"
    return Result(
        member, Outcome.WRONG if difference else Outcome.RIGHT, len(found.states) - 1, difference
    )


def _grows(found: _Seen) -> bool:
    """Whether one block grows the root mean square of the median sample by more than 50."""
    sizes = [float(state.flatten(1).square().mean(1).sqrt().median()) for state in found.states]
    return any(after > 50 * before for before, after in pairwise(sizes))


def _refused(member: Member, model: nn.Module, x: Inputs, said: str) -> Result:
    offered = SPEC.search(said)
    if isinstance(member.truth, Refusal):
        helpful = re.search(member.truth.says, said) is not None and (
            offered is None or _passes(model, x, offered[1])
        )
        return Result(member, Outcome.REFUSED if helpful else Outcome.UNHELPFUL, 0, said)
    if offered is None:
        return Result(member, Outcome.UNHELPFUL, 0, said)
    try:
        found = _found(model, x, offered[1])
    except Exception as error:
        return Result(member, Outcome.UNHELPFUL, 0, f"{said}\nand the SPEC that it offers: {error}")
    difference = _difference(found, _true(member.truth, model, x))
    if difference:
        return Result(
            member,
            Outcome.WRONG,
            len(found.states) - 1,
            f"{said}\nand the SPEC that it offers: {difference}",
        )
    return Result(member, Outcome.NAMED, len(found.states) - 1, said)


def _passes(model: nn.Module, x: Inputs, spec: str) -> bool:
    """Whether a SPEC that a message offers is one by which the network can be audited."""
    try:
        return bool(_found(model, x, spec).states)
    except AuditError:
        return False


def _ready(model: nn.Module) -> nn.Module:
    """In float64 and eval mode, with every parameter moved: nothing that begins with 0 is off."""
    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_complex():  # which double() leaves as they are
                parameter.data = parameter.data.to(torch.complex128)
            parameter.requires_grad_(False).add_(0.05 * torch.randn_like(parameter))
    return model


def _wide(x: Inputs) -> Inputs:
    if isinstance(x, Tensor):
        return x.double() if x.is_floating_point() else x
    return {
        name: tensor.double() if tensor.is_floating_point() else tensor
        for name, tensor in x.items()
    }


def _labels(x: Inputs) -> Tensor:
    samples = len(x) if isinstance(x, Tensor) else len(next(iter(x.values())))
    return torch.arange(1, samples + 1) % CLASSES


def _loss(logits: Tensor) -> Tensor:
    return F.cross_entropy(logits, torch.arange(1, len(logits) + 1) % CLASSES, reduction="sum")


def _found(model: nn.Module, x: Inputs, spec: str | None) -> _Seen:
    network, outputs = working_copy(model), Outputs(CLASSES)
    stream = find_stream(network, x, spec, outputs)
    with torch.no_grad():
        logits = outputs(_called(network, x))
    Task().check(logits, _labels(x))
    # Logits of a few samples at initialisation may all lie in [0, 1]: probabilities add up to 1.
    if (logits >= 0).all() and logits.sum(1).allclose(torch.ones(1).to(logits)):
        Task().refuse_probabilities()
    seen = passed(network, stream, x, _loss)
    return _Seen(seen.states, seen.gradients)


def _true(truth: Stream, model: nn.Module, x: Inputs) -> _Seen:
    """States and gradients of the plain network, by hooks on the modules that were written down."""
    plain = copy.deepcopy(
        truth.within(model)
    ).requires_grad_()  # what it caches of a graph is not the other's
    tensors: list[Tensor] = []
    values: list[Tensor] = []
    gradients: dict[int, Tensor] = {}

    def take(tensor: Tensor, value: Tensor) -> None:
        number = len(tensors)
        tensors.append(tensor)
        values.append(value.detach().clone())  # what comes after may write to it
        tensor.register_hook(
            lambda gradient: gradients.__setitem__(number, gradient.detach().clone())
        )

    if truth.by_hand is not None:
        logits, states = truth.by_hand(plain, x)
        for state in states:
            take(state, state)
    else:
        logits = _watched(plain, x, truth, take)
    _loss(logits).backward()
    missing = [number for number in range(len(tensors)) if number not in gradients]
    assert not missing, f"the truth is wrong: no gradient at state {missing[0]}"
    arrived = [gradients[number] for number in range(len(tensors))]
    return _Seen(
        *([value.movedim(truth.batch_dim, 0) for value in taken] for taken in (values, arrived))
    )


def _watched(
    plain: nn.Module, x: Inputs, truth: Stream, take: Callable[[Tensor, Tensor], None]
) -> Tensor:
    modules = dict(plain.named_modules(remove_duplicate=False))
    handles = []
    remaining = [0]
    left: list[tuple[Tensor, Tensor]] = []
    worked: list[nn.Module] = []

    def enter(_module: nn.Module, args: Any, kwargs: Any) -> None:
        state = _first((args, kwargs))
        before, value = left.pop() if left else (state, state)
        between_stages = bool(worked) and before.numel() != state.numel()
        take(*((before, value) if between_stages else (state, state)))

    def work(module: nn.Module, _args: Any, _output: Any) -> None:
        worked.append(module)

    def leave(_module: nn.Module, _args: Any, output: Any) -> None:
        remaining[0] -= 1
        worked.clear()
        if not truth.last:
            left[:] = [(_first(output), _first(output).detach().clone())]
        if not remaining[0] and not truth.last:
            take(*left.pop())

    try:
        for module in modules.values():
            if next(module.parameters(recurse=False), None) is not None:
                handles.append(module.register_forward_hook(work))
        for name in dict.fromkeys(truth.blocks):
            handles.append(modules[name].register_forward_pre_hook(enter, with_kwargs=True))
            handles.append(modules[name].register_forward_hook(leave))
        if truth.last:
            handles.append(modules[truth.last].register_forward_pre_hook(enter, with_kwargs=True))
        remaining[0] = len(truth.blocks)
        return _logits(_called(plain, x))
    finally:
        for handle in handles:
            handle.remove()


def _called(model: nn.Module, x: Inputs) -> Any:
    return model(x.clone()) if isinstance(x, Tensor) else model(**x)


def _first(values: Any) -> Tensor:
    """The first tensor of fractions among arguments or results."""
    waiting = [values]
    while waiting:
        value = waiting.pop(0)
        if isinstance(value, Tensor) and value.is_floating_point():
            return value
        if isinstance(value, Mapping):
            waiting[:0] = value.values()
        elif isinstance(value, (tuple, list)):
            waiting[:0] = value
    raise AssertionError("the truth is wrong: no tensor of fractions enters or leaves this module")


def _logits(output: Any) -> Tensor:
    """The first tensor of the right shape."""
    if is_dataclass(output) and not isinstance(output, Mapping):
        output = vars(output)
    given = (
        [output]
        if isinstance(output, Tensor)
        else list(output.values() if isinstance(output, Mapping) else output)
    )
    return next(
        value
        for value in given
        if isinstance(value, Tensor) and value.ndim == 2 and value.shape[1] == CLASSES
    )


def _difference(found: _Seen, true: _Seen) -> str:
    """In what they differ, or nothing."""
    if len(found.states) != len(true.states):
        return f"{len(found.states) - 1} blocks were found, and there are {len(true.states) - 1}"
    for what, ours, theirs in (
        ("h", found.states, true.states),
        ("g", found.gradients, true.gradients),
    ):
        for layer, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            if not _same(one, other):
                return f"{what}_{layer} is another: {_sizes(one)} and {_sizes(other)}"
    return ""


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether two values are the same, in one shape or rearranged to another."""
    if one.shape != other.shape:
        if one.numel() != other.numel():
            return False
        one, other = (value.flatten(1).sort(1).values for value in (one, other))
    return bool((one - other).norm() <= TOLERANCE * other.norm())


def _sizes(value: Tensor) -> str:
    return f"{tuple(value.shape)} of norm {float(value.norm()):.6g}"


def tally(results: Sequence[Result]) -> dict[Outcome, int]:
    """How many results there are of each kind."""
    return {outcome: sum(result.outcome is outcome for result in results) for outcome in Outcome}
