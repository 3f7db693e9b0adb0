"""What a network is called with, the one place that calls it, and what is read of its answer."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from ..judge.errors import AuditError
from ..judge.records import BATCH
from .copies import WIDE
from .task import Task
from .types import ModelInput

LABEL_NAMES = ("labels", "label", "label_ids", "targets", "target", "y")
PIECE = 4_096
"""How many samples of a batch are copied at once."""
FORWARD = "_fadiag_forward"
"""Where a network and its copies hold the function (model, x, y) that gives their outputs."""


class NetworkError(AuditError):
    """The network's own code failed, in its forward or in its backward."""


def call_network(network: nn.Module, x: ModelInput) -> Any:
    """What a network returns for some samples, a float64 copy in float64 throughout."""
    forward = network.forward

    def adapted(**_: Tensor) -> Any:
        """The user's function, which finds the network as it was and may call it."""
        with patch.object(network, "forward", forward):
            return vars(network)[FORWARD](network, *unlabelled(x))

    try:
        with ExitStack() as stack:
            if FORWARD in vars(network):
                stack.enter_context(patch.object(network, "forward", adapted))
            if WIDE in vars(network):
                stack.enter_context(vars(network)[WIDE])
            return network(**x) if isinstance(x, dict) else network(x)
    except AuditError:
        raise
    except Exception as error:
        hint = ""
        if "required positional argument" in str(error):
            hint = "; say how it is called by --fa-forward=package.module:function"
        failure = f"the network failed on {describe(x)}{hint}: {type(error).__name__}: {error}"
        raise NetworkError(failure) from error


def labelled(x: ModelInput, y: Tensor) -> dict[str, Tensor]:
    """Inputs and targets in one dictionary: every pass has both."""
    return {**_by_name(x), "y": y}


def unlabelled(x: ModelInput) -> tuple[ModelInput, Tensor]:
    """The inputs and the targets of a dictionary that ``labelled`` made."""
    inputs = dict(_by_name(x))
    y = inputs.pop("y")
    return inputs.get("", inputs), y


def _by_name(x: ModelInput) -> dict[str, Tensor]:
    """The inputs by their names; a tensor alone has an empty one."""
    if isinstance(x, dict):
        return x
    return {"": x}


def each(x: ModelInput, change: Callable[[Tensor], Tensor]) -> ModelInput:
    """The inputs with every tensor changed."""
    if isinstance(x, dict):
        return {name: change(tensor) for name, tensor in x.items()}
    return change(x)


def rows(x: ModelInput, part: slice | Tensor) -> ModelInput:
    """The inputs of some of the samples, masks and all."""
    return each(x, lambda tensor: tensor[part])


def copied(x: ModelInput) -> ModelInput:
    """Copies: a network may write to its input in place."""
    return each(x, torch.clone)


def like(x: ModelInput, network: nn.Module) -> ModelInput:
    """The inputs on the device of a network, real numbers in its precision."""
    weight = next(network.parameters(), torch.empty(0))

    def moved(tensor: Tensor) -> Tensor:
        dtype = weight.dtype if tensor.is_floating_point() else tensor.dtype
        return tensor.detach().to(weight.device, dtype, non_blocking=True)

    return each(x, moved)


def tensors_of(x: ModelInput) -> list[Tensor]:
    """The tensors of the inputs, in their order."""
    return list(_by_name(x).values())


def describe(x: ModelInput) -> str:
    """The inputs in words: inputs of shape (3, 784) (torch.float32)."""
    tensors = x if isinstance(x, dict) else {"of shape": x}
    parts = [f"{name} {tuple(tensor.shape)} ({tensor.dtype})" for name, tensor in tensors.items()]
    return "inputs " + ", ".join(parts)


def joined(parts: Sequence[ModelInput]) -> ModelInput:
    """The inputs of several batches as one; an error where their shapes or names differ."""
    kinds = dict.fromkeys(describe(rows(part, slice(0))) for part in parts)
    if len(kinds) > 1:
        shapes = " and ".join(kinds)
        raise AuditError(f"evaluation batches differ, {shapes}; resize or pad them to one shape")
    if len(parts) == 1:
        return parts[0]
    return tree_map(lambda *tensors: torch.cat(tensors), *parts)  # type: ignore[no-any-return]


def checked(batches: Iterable[Any]) -> Iterator[tuple[ModelInput, Tensor]]:
    """Copies of the inputs and labels of each batch: a loader may fill its buffers again.

    A batch is a pair, or a dictionary with the labels in it; large ones come in pieces.
    """
    for index, batch in enumerate(batches):
        inputs, labels = _split(batch, index)
        try:
            y = torch.as_tensor(labels)
            if isinstance(inputs, Mapping):
                inputs = dict(inputs)
            x = each(inputs, torch.as_tensor)
        except (TypeError, ValueError, RuntimeError) as error:
            raise AuditError(f"evaluation batch {index}: expected tensors ({error})") from error
        problem = _problem(x, y)
        if problem:
            raise AuditError(f"evaluation batch {index}: {problem}")
        for start in range(0, len(y), PIECE):
            part = slice(start, start + PIECE)
            yield copied(rows(x, part)), y[part].clone()


def read_once(batches: Iterable[Any], memory: float | None = None) -> Iterable[Any]:
    """Copies of the batches of a generator, of at most so many GB; other data as it is."""
    if not isinstance(batches, Iterator):
        return batches
    limit = math.inf if memory is None else memory * 1e9
    if memory is None and Path("/proc/meminfo").exists():
        _, available = Path("/proc/meminfo").read_text().split("MemAvailable:")
        limit = 1024 * int(available.split()[0]) / 2
    size = 0
    copies = []
    for batch in batches:
        copies.append(copy.deepcopy(batch))
        size += sum(getattr(leaf, "nbytes", 0) for leaf in tree_leaves(batch))
        if size > limit:
            raise AuditError(
                f"the data of a generator takes more than {limit / 1e9:.3g} GB, since it must be "
                "kept; give a DataLoader or a list, which are read again, or more by "
                "--fa-memory=GB (memory=)"
            )
    return copies


def _split(batch: Any, index: int) -> tuple[Any, Any]:
    """The inputs and the labels of a batch."""
    if isinstance(batch, Mapping):
        inputs = dict(batch)
        for name in LABEL_NAMES:
            if name in inputs:
                labels = inputs.pop(name)
                return inputs, labels
    elif isinstance(batch, (tuple, list)) and len(batch) == 2:
        return batch[0], batch[1]
    raise AuditError(
        f"evaluation batch {index} is a {type(batch).__name__}; expected a pair "
        "(inputs, labels), or a dictionary of inputs by the names of forward's parameters "
        f"with the labels as one of {', '.join(LABEL_NAMES)}"
    )


def _problem(x: ModelInput, y: Tensor) -> str:
    """What is wrong with the inputs and labels of a batch, in words; empty where nothing is."""
    if y.ndim not in (1, 2):
        return (
            f"targets of shape {tuple(y.shape)}; expected class "
            "indices [B], token ids [B, T] or values [B] or [B, k]"
        )
    if any(tensor.ndim < 1 or len(tensor) != len(y) for tensor in tensors_of(x)):
        return f"{describe(x)} for {len(y)} labels"
    for name, tensor in [("", y), *_by_name(x).items()]:
        if tensor.is_complex():
            return "complex numbers; give real and imaginary parts as real ones"
        if "mask" not in name and not _is_finite(tensor):  # an additive mask holds -inf
            return "inputs or targets hold NaN or inf; mend them"
    return ""


def _is_finite(tensor: Tensor) -> bool:
    # A sum is taken ten times as fast, and may overflow.
    return bool(tensor.sum().isfinite() or tensor.isfinite().all())


def regrouped(batches: Iterable[Any], groups: int) -> Iterator[tuple[ModelInput, Tensor, bool]]:
    """The first samples in groups of exactly 128, then the rest as it comes, no group.

    The first of the rest may be empty.
    """
    pending: list[tuple[ModelInput, Tensor]] = []
    for batch in checked(batches):
        pending.append(batch)
        while groups and sum(len(y) for _, y in pending) >= BATCH:
            xs, ys = zip(*pending, strict=True)
            x = joined(xs)
            y = torch.cat(ys)
            yield rows(x, slice(BATCH)), y[:BATCH], True
            pending = [(rows(x, slice(BATCH, None)), y[BATCH:])]
            groups -= 1
        while pending and not groups:
            yield *pending.pop(0), False
    # A rest that fills no group counts for the accuracy alone: (c) depends on the batch size.
    for x, y in pending:
        yield x, y, False


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
        """The outputs as the network returns them, before its task reads them."""
        logits = getattr(returned, "logits", returned)
        if isinstance(returned, Mapping):
            logits = returned.get("logits", logits)
        if isinstance(logits, Tensor):
            return logits
        candidates = []
        for tensor in tensors_in(returned):
            if tensor.is_floating_point() and tensor.ndim == self.dims:
                candidates.append(tensor)
        fitting = [tensor for tensor in candidates if tensor.shape[-1] == self.classes]
        fitting = fitting or candidates
        if len(fitting) != 1:
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor in candidates) or "none"
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
    elif isinstance(values, Mapping):
        yield from tensors_in(list(values.values()))
    elif isinstance(values, (tuple, list)):
        for value in values:
            yield from tensors_in(value)
    elif is_dataclass(values) and not isinstance(values, type):
        for member in fields(values):
            yield from tensors_in(getattr(values, member.name))


def largest_difference(outputs: Tensor) -> float:
    """The largest difference between two samples' outputs; not finite where one is not."""
    return float((outputs.amax(0) - outputs.amin(0)).max())
