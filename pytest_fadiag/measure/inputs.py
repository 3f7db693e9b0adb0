"""What a network is called with, the one place that calls it, and what is wrong with the evaluation data."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..judge.errors import AuditError
from ..judge.records import LABEL_NAMES
from ..judge.wording import count

ModelInput = Tensor | dict[str, Tensor]
"""The inputs of some samples: one tensor, or tensors by the names of forward's parameters, as Hugging Face makes them."""


def call_network(network: nn.Module, x: ModelInput, **options: Any) -> Any:
    """What a network returns for some samples; every call of a network that is measured goes through here."""
    return network(**x, **options) if isinstance(x, dict) else network(x, **options)


def each(x: ModelInput, change: Callable[[Tensor], Tensor]) -> ModelInput:
    """The inputs with every tensor changed."""
    return {name: change(tensor) for name, tensor in x.items()} if isinstance(x, dict) else change(x)


def rows(x: ModelInput, part: slice | Tensor) -> ModelInput:
    """The inputs of some of the samples, masks and all."""
    return each(x, lambda tensor: tensor[part])


def copied(x: ModelInput) -> ModelInput:
    """Copies: a network may write to its input in place."""
    return each(x, torch.clone)


def tensors_of(x: ModelInput) -> list[Tensor]:
    """The tensors of the inputs, in their order."""
    return list(x.values()) if isinstance(x, dict) else [x]


def size_of(x: ModelInput) -> int:
    """How many samples these are."""
    return len(tensors_of(x)[0])


def describe(x: ModelInput) -> str:
    """The inputs in words: of shape (3, 784) (torch.float32)."""
    if not isinstance(x, dict):
        return f"inputs of shape {tuple(x.shape)} ({x.dtype})"
    return "inputs " + ", ".join(f"{name} {tuple(tensor.shape)} ({tensor.dtype})" for name, tensor in x.items())


def joined(parts: Sequence[ModelInput]) -> ModelInput:
    """The inputs of several batches as one; an error where their shapes or names differ."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, dict):
        for part in parts:
            if not isinstance(part, dict) or set(part) != set(first):
                names = ", ".join(part) if isinstance(part, dict) else "one tensor without a name"
                raise AuditError(f"evaluation batches differ: one holds {', '.join(first)}, another {names}")
        return {name: _cat([part[name] for part in parts], f" of {name}") for name in first}  # type: ignore[index]
    if any(isinstance(part, dict) for part in parts):
        raise AuditError("evaluation batches differ: some hold one tensor, others tensors by name")
    return _cat(parts, "")  # type: ignore[arg-type]


def _cat(tensors: Sequence[Tensor], what: str) -> Tensor:
    shapes = list(dict.fromkeys(tuple(tensor.shape[1:]) for tensor in tensors))
    if len(shapes) > 1:
        raise AuditError(
            f"samples of different shapes{what}, {shapes[0]} and {shapes[1]}, cannot be regrouped to batches of one size; "
            "resize or pad them to one shape"
        )
    return torch.cat(list(tensors))


class Inputs:
    """Moves samples to the device of a network, named as its forward takes them, and remembers what its checks need."""

    def __init__(self, network: nn.Module) -> None:
        weight = next(network.parameters(), torch.empty(0))
        self.network, self.device, self.dtype = network, weight.device, weight.dtype
        self.parameters = _parameters(network)
        self.label_name = _label_name(self.parameters)
        self.labels: set[int] = set()
        self.nonfinite: list[Tensor] = []

    def on_device(self, x: ModelInput, y: Tensor) -> tuple[ModelInput, Tensor]:
        """Copies on the device: a network may write to its input in place, and the caller's data serve the next one too.

        Where the forward pass insists on labels, they are among the inputs.
        """
        self.labels.update(y.tolist())
        if min(self.labels, default=0) < 0:
            raise AuditError(f"label {min(self.labels)} is out of range: labels are class indices, from 0 on")
        moved, labels = self.moved(x, y)
        named = moved if isinstance(moved, dict) else {"": moved}
        for name, tensor in named.items():
            if not tensor.is_floating_point() or "mask" in name:  # a mask that is added to scores holds -inf
                continue
            if tensor.is_cpu and math.isfinite(tensor.sum()):
                continue  # no need to look at each; on another device asking for the sum would wait for it
            # Only NaN and inf times 0 is not 0; isfinite takes thrice as long.
            self.nonfinite.append((tensor * 0).count_nonzero())
        return moved, labels

    def moved(self, x: ModelInput, y: Tensor) -> tuple[ModelInput, Tensor]:
        """The copies alone, of which nothing is remembered."""
        if isinstance(x, dict):
            self._check_names(x)
        labels = y.to(self.device, torch.long, non_blocking=True, copy=True)
        return self._with_labels(each(x, self._moved), labels), labels

    def _moved(self, tensor: Tensor) -> Tensor:
        dtype = self.dtype if tensor.is_floating_point() else tensor.dtype
        return tensor.detach().to(self.device, dtype, non_blocking=True, copy=True)

    def _check_names(self, x: Mapping[str, Tensor]) -> None:
        """An error where forward does not take what a batch holds: left aside, a misspelled mask would mask nothing."""
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in self.parameters.values()):
            return
        unknown = [name for name in x if name not in self.parameters]
        if self.parameters and unknown:
            raise AuditError(
                f"the evaluation batches hold {', '.join(map(repr, unknown))}, which the network's forward does not take "
                f"({', '.join(self.parameters)}); leave it out of the batches, or name it as forward does"
            )

    def _with_labels(self, x: ModelInput, labels: Tensor) -> ModelInput:
        if self.label_name is None:
            return x
        named = x if isinstance(x, dict) else {next(iter(self.parameters)): x}
        return {self.label_name: labels, **named}

    def with_other_labels(self, x: ModelInput, classes: int) -> ModelInput | None:
        """The inputs with every label another one, or nothing where the network gets none."""
        if self.label_name is None or not isinstance(x, dict):
            return None
        return {**x, self.label_name: (x[self.label_name] + 1) % classes}

    def check_logits(self, logits: Tensor, y: Tensor) -> None:
        """An error where the logits are not those of these samples, or a label is none of the network's classes."""
        if logits.ndim != 2 or len(logits) != len(y):
            raise AuditError(
                f"the network returned logits of shape {tuple(logits.shape)} for {len(y)} samples; expected [{len(y)}, classes]"
            )
        classes = logits.shape[1]
        outside = sorted(label for label in self.labels if not 0 <= label < classes)
        if outside:
            raise AuditError(
                f"label {outside[0]} is out of range: the network has {classes} outputs, so labels run from 0 to {classes - 1}"
            )

    def check_values(self) -> None:
        """An error where inputs are not finite: what the network makes of them says nothing of it."""
        broken = int(torch.stack(self.nonfinite).sum()) if self.nonfinite else 0
        if broken:
            raise AuditError(f"{count(broken, 'input value')} NaN or inf; the evaluation data is broken, not the network")

    def check_classes(self, samples: int) -> None:
        """An error where all labels are one."""
        if len(self.labels) == 1:
            raise AuditError(
                f"all {samples:,} labels are {min(self.labels)}: one class only measures neither accuracy nor direction; "
                "check the labels, or shuffle data that is sorted by class"
            )


def optional_label(network: nn.Module) -> str | None:
    """The parameter by which forward takes labels if they are given; nothing where it takes none, or insists on them."""
    parameters = _parameters(network)
    behind = [name for name in list(parameters)[1:] if name in LABEL_NAMES]
    return behind[0] if behind and _label_name(parameters) is None else None


def given_labels(network: nn.Module, x: ModelInput, y: Tensor) -> ModelInput | None:
    """The inputs with the labels among them, or nothing where forward does not take them if they are given."""
    name = optional_label(network)
    if name is None:
        return None
    named = x if isinstance(x, dict) else {next(iter(_parameters(network))): x}
    return {**named, name: y.to(next(iter(named.values())).device)}


def _label_name(parameters: Mapping[str, inspect.Parameter]) -> str | None:
    """The parameter by which forward insists on labels; as its first one, «y» is what others call x."""
    behind = [name for name in list(parameters)[1:] if parameters[name].default is inspect.Parameter.empty]
    return next((name for name in behind if name in LABEL_NAMES), None)


def _parameters(network: nn.Module) -> dict[str, inspect.Parameter]:
    """The parameters that forward takes by name, or nothing where that cannot be told."""
    try:
        parameters = inspect.signature(network.forward).parameters
    except (TypeError, ValueError):
        return {}
    return {
        name: parameter
        for name, parameter in parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD)
    }
