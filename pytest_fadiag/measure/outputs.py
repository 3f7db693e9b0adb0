"""The logits in whatever a network returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from ..judge.errors import AuditError

Place = tuple[str | int, ...]
"""The keys and indices that lead to one tensor of what a network returns."""


class Outputs:
    """Reads the logits: what is called so, else the one tensor that has a column for every class; two such are refused.

    ``classes`` is how many the labels have at least; which tensor it is, is decided once.
    """

    def __init__(self, classes: int | None = None) -> None:
        self.classes = classes
        self.place: Place | None = None
        self.checked = False

    def __call__(self, output: Any) -> Tensor:
        """The logits of some samples."""
        if isinstance(output, Tensor):
            return output
        named = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
        if isinstance(named, Tensor):
            return named
        tensors = dict(_tensors(output))
        if self.place is None or self.place not in tensors:
            self.place = self._choice(output, tensors)
        return tensors[self.place]

    def expect(self, labels: Tensor) -> None:
        """Take note of labels: there are as many classes at least."""
        self.classes = max(self.classes or 0, int(labels.max()) + 1)

    def check(self, logits: Tensor) -> None:
        """An error where a network returns probabilities: their gradient is not that of the logits."""
        if self.checked or logits.ndim != 2 or logits.shape[1] < 2 or not len(logits):
            return
        self.checked = True
        if _are_probabilities(logits):
            raise AuditError(
                "the network returns probabilities: every row is non-negative and sums to 1, as after a softmax. The loss "
                "takes its softmax again, so every gradient would be too small; let forward return the logits (or log-softmax)"
            )

    def _choice(self, output: Any, tensors: Mapping[Place, Tensor]) -> Place:
        candidates = {place: tensor for place, tensor in tensors.items() if tensor.ndim == 2 and tensor.is_floating_point()}
        if not candidates:
            raise AuditError(
                f"the network returned {type(output).__name__}, which holds no logits; let it return a tensor [B, classes]"
            )
        first = next(iter(candidates))
        if self.classes is None:
            return first
        exact = [place for place, tensor in candidates.items() if tensor.shape[1] == self.classes]
        enough = [place for place, tensor in candidates.items() if tensor.shape[1] >= self.classes]
        fitting = [place for place in exact or enough if not _are_probabilities(candidates[place])]
        if len(fitting) == 1:
            return fitting[0]
        shapes = ", ".join(f"{_named(place)} {tuple(tensor.shape)}" for place, tensor in candidates.items())
        raise AuditError(
            f"the network returned {type(output).__name__} with {shapes}: which of them are the logits cannot be told by the "
            f"labels, which have {self.classes} classes; let forward return the logits alone, or under the name 'logits'"
        )


def _are_probabilities(rows: Tensor) -> bool:
    values = rows.detach().double()
    return bool((values >= 0).all()) and bool(((values.sum(1) - 1).abs() < 1e-4).all())


def _tensors(values: Any, place: Place = ()) -> Iterator[tuple[Place, Tensor]]:
    if isinstance(values, Tensor):
        yield place, values
    elif isinstance(values, Mapping):
        for key, value in values.items():
            yield from _tensors(value, (*place, key))
    elif isinstance(values, (tuple, list)):
        for index, value in enumerate(values):
            yield from _tensors(value, (*place, index))
    elif is_dataclass(values) and not isinstance(values, type):
        for own in fields(values):
            yield from _tensors(getattr(values, own.name), (*place, own.name))


def _named(place: Place) -> str:
    return "".join(f"[{key!r}]" for key in place) or "a tensor"


def largest_difference(logits: Tensor) -> float:
    """The largest difference between two samples' logits."""
    return float((logits.amax(0) - logits.amin(0)).max()) if torch.isfinite(logits).all() else float("nan")
