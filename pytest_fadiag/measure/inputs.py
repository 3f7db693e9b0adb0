"""What a network is called with, the one place that calls it, and what is read of its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from ..judge.errors import AuditError
from ..judge.records import BATCH
from .copies import WIDE
from .task import Task
from .types import ModelInput

LABEL_NAMES = ("labels", "label", "label_ids", "targets", "target", "y")
FORWARD = "_fadiag_forward"
"""Where a network and its copies hold the function (model, x, y) that gives their outputs."""


class NetworkError(AuditError):
    """The network's own code failed, in its forward or in its backward."""


def call_network(network: nn.Module, x: ModelInput) -> Any:
    """What a network returns for some samples, a float64 copy in float64 throughout."""
    own, forward = vars(network), network.forward

    def adapted(**_: Tensor) -> Any:
        """The function runs as the forward of the network, which it finds as it was."""
        with patch.object(network, "forward", forward):
            return own[FORWARD](network, *unlabelled(x))

    called = patch.object(network, "forward", adapted) if FORWARD in own else nullcontext()
    try:
        with called, own.get(WIDE, nullcontext()):
            return network(**x) if isinstance(x, dict) else network(x)
    except AuditError:
        raise
    except Exception as error:
        hint = "; say how it is called by --fa-forward=package.module:function"
        hint = hint if "required positional argument" in str(error) else ""
        said = f"the network failed on {describe(x)}{hint}: {type(error).__name__}: {error}"
        raise NetworkError(said) from error


def labelled(x: ModelInput, y: Tensor) -> dict[str, Tensor]:
    """Inputs and targets as one: every pass has both."""
    return {**(x if isinstance(x, dict) else {"": x}), "y": y}


def unlabelled(x: ModelInput) -> tuple[ModelInput, Tensor]:
    """Both of them again."""
    held = dict(x) if isinstance(x, dict) else {"": x}
    y = held.pop("y")
    return held.get("", held), y


def each(x: ModelInput, change: Callable[[Tensor], Tensor]) -> ModelInput:
    """The inputs with every tensor changed."""
    return {name: change(own) for name, own in x.items()} if isinstance(x, dict) else change(x)


def rows(x: ModelInput, part: slice | Tensor) -> ModelInput:
    """The inputs of some of the samples, masks and all."""
    return each(x, lambda tensor: tensor[part])


def copied(x: ModelInput) -> ModelInput:
    """Copies: a network may write to its input in place."""
    return each(x, torch.clone)


def like(x: ModelInput, network: nn.Module) -> ModelInput:
    """The inputs on the device of a network, real numbers in its precision."""
    weight = next(network.parameters(), torch.empty(0))

    def moved(own: Tensor) -> Tensor:
        dtype = weight.dtype if own.is_floating_point() else own.dtype
        return own.detach().to(weight.device, dtype, non_blocking=True)

    return each(x, moved)


def tensors_of(x: ModelInput) -> list[Tensor]:
    """The tensors of the inputs, in their order."""
    return list(x.values()) if isinstance(x, dict) else [x]


def describe(x: ModelInput) -> str:
    """The inputs in words: inputs of shape (3, 784) (torch.float32)."""
    named = x.items() if isinstance(x, dict) else [("of shape", x)]
    return "inputs " + ", ".join(f"{name} {tuple(own.shape)} ({own.dtype})" for name, own in named)


def joined(parts: Sequence[ModelInput]) -> ModelInput:
    """The inputs of several batches as one; an error where their shapes or names differ."""
    kinds = dict.fromkeys(describe(rows(part, slice(0))) for part in parts)
    if len(kinds) > 1:
        said = " and ".join(kinds)
        raise AuditError(f"evaluation batches differ, {said}; resize or pad them to one shape")
    if len(parts) == 1:
        return parts[0]
    whole = [torch.cat(tensors) for tensors in zip(*map(tensors_of, parts), strict=True)]
    return dict(zip(parts[0], whole, strict=True)) if isinstance(parts[0], dict) else whole[0]


def checked(batches: Iterable[Any]) -> Iterator[tuple[ModelInput, Tensor]]:
    """Copies of the inputs and labels of each batch: a loader may fill its buffers again.

    A batch is a pair, or a dictionary with the labels in it.
    """
    for index, batch in enumerate(batches):
        named = dict(batch) if isinstance(batch, Mapping) else {}
        label = next((name for name in LABEL_NAMES if name in named), "")
        pair = isinstance(batch, (tuple, list)) and len(batch) == 2
        if not label and not pair:
            raise AuditError(
                f"evaluation batch {index} is a {type(batch).__name__}; expected a pair "
                "(inputs, labels), or a dictionary of inputs by the names of forward's parameters "
                f"with the labels as one of {', '.join(LABEL_NAMES)}"
            )
        given, labels = batch if pair else (named, named.pop(label))
        try:
            y = torch.as_tensor(labels).clone()
            x = each(dict(given) if isinstance(given, Mapping) else given, torch.as_tensor)
            x = copied(x)
        except (TypeError, ValueError, RuntimeError) as error:
            raise AuditError(f"evaluation batch {index}: expected tensors ({error})") from error
        if y.ndim not in (1, 2):
            raise AuditError(
                f"evaluation batch {index}: targets of shape {tuple(y.shape)}; expected class "
                "indices [B], token ids [B, T] or values [B] or [B, k]"
            )
        if any(tensor.ndim < 1 or len(tensor) != len(y) for tensor in tensors_of(x)):
            raise AuditError(f"evaluation batch {index}: {describe(x)} for {len(y)} labels")
        held = [("", y), *(x.items() if isinstance(x, dict) else [("", x)])]
        # A sum is taken ten times as fast, and may overflow.
        unsure = [own for name, own in held if "mask" not in name and not own.sum().isfinite()]
        if not all(own.isfinite().all() for own in unsure):
            raise AuditError(
                f"evaluation batch {index}: inputs or targets hold NaN or inf; mend them"
            )
        yield x, y


def regrouped(batches: Iterable[Any], groups: int) -> Iterator[tuple[ModelInput, Tensor, bool]]:
    """The first samples in groups of exactly 128, then the rest as it comes, no group."""
    held: list[tuple[ModelInput, Tensor]] = []
    for batch in checked(batches):
        held.append(batch)
        while groups and sum(len(y) for _, y in held) >= BATCH:
            x, y = joined([x for x, _ in held]), torch.cat([y for _, y in held])
            yield rows(x, slice(BATCH)), y[:BATCH], True
            held, groups = [(rows(x, slice(BATCH, None)), y[BATCH:])], groups - 1
        if not groups:
            yield from ((x, y, False) for x, y in held if len(y))
            held = []
    # A rest that fills no group counts for the accuracy alone: (c) depends on the batch size.
    yield from ((x, y, False) for x, y in held if len(y))


@dataclass(frozen=True)
class Outputs:
    """Reads what a network returns: a tensor, ``logits``, or the only tensor that fits."""

    classes: int | None = None
    """How many classes the labels have at least, or values a target."""
    dims: int = 2
    task: Task = field(default_factory=Task)

    def __call__(self, returned: Any) -> Tensor:
        """The outputs of some samples, ``[B, classes]``, or ``[B, T, classes]`` of tokens."""
        return self.task.read(self.found(returned))

    def found(self, returned: Any) -> Tensor:
        """The same as the network returns it."""
        named = returned if isinstance(returned, Mapping) else {}
        logits = named.get("logits", getattr(returned, "logits", returned))
        if isinstance(logits, Tensor):
            return logits
        real = [own for own in tensors_in(returned) if own.is_floating_point()]
        found = [own for own in real if own.ndim == self.dims]
        fitting = [own for own in found if own.shape[-1] == self.classes] or found
        if len(fitting) != 1:
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor in found) or "none"
            raise AuditError(
                f"the network returned {type(returned).__name__} with tensors [B, …]: {shapes}; "
                f"expected one, or one with {self.classes} columns; name the outputs by "
                "--fa-forward=package.module:function, called with (model, x, y)"
            )
        return fitting[0]


def tensors_in(values: Any) -> Iterator[Tensor]:
    """The tensors in nested dictionaries, sequences and dataclasses, in their order."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, (Mapping, tuple, list)):
        for value in values.values() if isinstance(values, Mapping) else values:
            yield from tensors_in(value)
    elif is_dataclass(values) and not isinstance(values, type):
        yield from tensors_in([getattr(values, own.name) for own in fields(values)])


def largest_difference(outputs: Tensor) -> float:
    """The largest difference between two samples' outputs; not finite where one is not."""
    return float((outputs.amax(0) - outputs.amin(0)).max())
