"""Batches of any sizes regrouped to those of the protocol."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ..judge.errors import AuditError
from ..judge.records import BATCH

Batch = tuple[Tensor, Tensor]


def regrouped(batches: Iterable[Any], groups: int, *, rest: bool = True) -> Iterator[tuple[int | None, Batch]]:
    """The first ``groups`` times 128 samples in numbered groups of exactly 128, then the rest, unnumbered, as it comes.

    Without the ``rest`` nothing behind the last group is loaded; samples that fill no group come all the same.
    """
    held: list[Batch] = []
    number = 0
    if isinstance(batches, Tensor) or not isinstance(batches, Iterable):
        raise AuditError(f"evaluation batches are {type(batches).__name__}; expected a list of pairs (inputs, labels)")
    for x, y in (_checked(index, batch) for index, batch in enumerate(batches)):
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
    taken, missing = [], BATCH
    rest = list(held)
    while missing:
        x, y = rest.pop(0)
        taken.append((x[:missing], y[:missing]))
        if len(y) > missing:
            rest.insert(0, (x[missing:], y[missing:]))
        missing -= min(missing, len(y))
    if len(taken) == 1:
        return taken[0], rest
    shapes = list(dict.fromkeys(tuple(x.shape[1:]) for x, _ in taken))
    if len(shapes) > 1:
        raise AuditError(
            f"samples of different shapes, {shapes[0]} and {shapes[1]}, cannot be regrouped to batches of {BATCH}; "
            "resize or pad them to one shape"
        )
    return (torch.cat([x for x, _ in taken]), torch.cat([y for _, y in taken])), rest


def _checked(index: int, batch: Any) -> Batch:
    if isinstance(batch, (Mapping, str, Tensor)) or not hasattr(batch, "__len__") or len(batch) != 2:
        size = f" of {len(batch)}" if isinstance(batch, (tuple, list)) else ""
        raise AuditError(
            f"evaluation batch {index} is a {type(batch).__name__}{size}, not a pair (inputs, labels); "
            "pass a list of such pairs: [(x, y), …]"
        )
    try:
        x, y = (torch.as_tensor(part) for part in batch)
    except (TypeError, ValueError, RuntimeError) as error:
        kinds = " and ".join(type(part).__name__ for part in batch)
        raise AuditError(f"evaluation batch {index} holds {kinds}; expected tensors or arrays ({error})") from error
    if y.ndim != 1 or y.is_floating_point() or y.is_complex():
        raise AuditError(
            f"evaluation batch {index}: labels have shape {tuple(y.shape)} and dtype {y.dtype}; "
            "expected one class index per sample"
        )
    if x.ndim < 1 or len(x) != len(y):
        raise AuditError(f"evaluation batch {index}: inputs of shape {tuple(x.shape)} for {len(y)} labels")
    return x, y
