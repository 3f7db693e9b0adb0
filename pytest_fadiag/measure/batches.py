"""Batches of any sizes regrouped to those of the protocol."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ..judge.errors import AuditError
from ..judge.records import BATCH, LABEL_NAMES
from .inputs import ModelInput, joined, rows

Batch = tuple[ModelInput, Tensor]


def regrouped(batches: Iterable[Any], groups: int, *, rest: bool = True) -> Iterator[tuple[int | None, Batch]]:
    """The first ``groups`` times 128 samples in numbered groups of exactly 128, then the rest, unnumbered, as it comes.

    Without the ``rest`` nothing behind the last group is loaded; samples that fill no group come all the same.
    """
    held: list[Batch] = []
    number = 0
    for x, y in checked(batches):
        if number == groups:
            yield None, (x, y)
            continue
        held.append((x, y))
        while number < groups and sum(len(part[1]) for part in held) >= BATCH:
            group, held = _split(held)
            yield number, group
            number += 1
        if number == groups and not rest:
            return
        if number == groups:
            yield from ((None, part) for part in held)
            held = []
    # A rest that fills no group counts for the accuracy only: (c) depends on the size of its batches.
    yield from ((None, part) for part in held)


def _split(held: list[Batch]) -> tuple[Batch, list[Batch]]:
    """One group from the front of what is held, and what is left."""
    taken: list[Batch] = []
    missing = BATCH
    rest = list(held)
    while missing:
        x, y = rest.pop(0)
        taken.append((rows(x, slice(missing)), y[:missing]))
        if len(y) > missing:
            rest.insert(0, (rows(x, slice(missing, None)), y[missing:]))
        missing -= min(missing, len(y))
    return (joined([x for x, _ in taken]), torch.cat([y for _, y in taken])), rest


def checked(batches: Iterable[Any]) -> Iterator[Batch]:
    """The batches as tensors; an error where something is none."""
    if isinstance(batches, Tensor) or not isinstance(batches, Iterable):
        raise AuditError(f"evaluation batches are {type(batches).__name__}; expected a list of pairs (inputs, labels)")
    return (_checked(index, batch) for index, batch in enumerate(batches))


def _checked(index: int, batch: Any) -> Batch:
    """The inputs and labels of a batch: a pair, or a dictionary of tensors with the labels among them."""
    inputs, labels = _pair(index, batch)
    named = inputs if isinstance(inputs, Mapping) else {"": inputs}
    try:
        y = torch.as_tensor(labels)
        tensors = {str(name): torch.as_tensor(value) for name, value in named.items()}
    except (TypeError, ValueError, RuntimeError) as error:
        kinds = " and ".join(type(part).__name__ for part in (*named.values(), labels))
        raise AuditError(f"evaluation batch {index} holds {kinds}; expected tensors or arrays ({error})") from error
    if y.ndim != 1 or y.is_floating_point() or y.is_complex():
        raise AuditError(
            f"evaluation batch {index}: labels have shape {tuple(y.shape)} and dtype {y.dtype}; "
            "expected one class index per sample"
        )
    for name, x in tensors.items():
        if x.ndim < 1 or len(x) != len(y):
            raise AuditError(
                f"evaluation batch {index}: {name and f'{name} has '}inputs of shape {tuple(x.shape)} for {len(y)} labels"
            )
    return (tensors if isinstance(inputs, Mapping) else tensors[""]), y


def _pair(index: int, batch: Any) -> tuple[Any, Any]:
    if isinstance(batch, Mapping):
        name = next((name for name in LABEL_NAMES if name in batch), None)
        inputs = {key: value for key, value in batch.items() if key != name}
        if name is None or not inputs:
            held = ", ".join(map(str, batch)) or "nothing"
            raise AuditError(
                f"evaluation batch {index} holds {held}; expected the inputs by the names of forward's parameters, and the "
                f"labels as {', '.join(map(repr, LABEL_NAMES[:-1]))} or {LABEL_NAMES[-1]!r}"
            )
        return inputs, batch[name]
    if isinstance(batch, (str, Tensor)) or not hasattr(batch, "__len__") or len(batch) != 2:
        size = f" of {len(batch)}" if isinstance(batch, (tuple, list)) else ""
        raise AuditError(
            f"evaluation batch {index} is a {type(batch).__name__}{size}, not a pair (inputs, labels) or a dictionary with the "
            "labels in it; pass a list of such: [(x, y), …] or [{'input_ids': …, 'labels': …}, …]"
        )
    return batch[0], batch[1]
