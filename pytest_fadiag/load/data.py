"""Evaluation data: whole splits decoded once into tensors, normalised batch by batch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..judge.errors import AuditError
from ..judge.records import BATCH

Statistics = tuple[float, ...]


@dataclass(frozen=True)
class DataSet:
    """Inputs and labels of one split; images stay bytes until a batch is taken."""

    x: Tensor
    y: Tensor
    name: str
    mean: Statistics | None = None
    std: Statistics | None = None
    note: str = ""

    def __post_init__(self) -> None:
        if self.x.ndim < 2 or len(self.x) != len(self.y):
            raise AuditError(f"data {self.name}: inputs of shape {tuple(self.x.shape)} for {len(self.y):,} labels")
        if not len(self.y):
            raise AuditError(f"data {self.name}: the split is empty")
        for what, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and len(values) not in (1, self.x.shape[1]):
                raise AuditError(f"data {self.name}: {len(values)} values of {what}, but {self._channels()}")

    def __len__(self) -> int:
        return len(self.y)

    def normalised(self, x: Tensor) -> Tensor:
        """Inputs as the network takes them: bytes to [0, 1], then (x - mean)/std per channel."""
        if x.dtype == torch.uint8:
            x = x.float() / 255
        if self.mean is None or self.std is None or not x.is_floating_point():
            return x
        shape = (1, -1) + (1,) * (x.ndim - 2)
        return (x - torch.tensor(self.mean, device=x.device).view(shape)) / torch.tensor(self.std, device=x.device).view(shape)

    def batches(self, size: int = BATCH, *, flatten: bool = False) -> Iterator[tuple[Tensor, Tensor]]:
        """The split in its own order, normalised, in batches of at most ``size``."""
        for start in range(0, len(self), size):
            x = self.normalised(self.x[start : start + size])
            yield (x.flatten(1) if flatten else x), self.y[start : start + size]

    def for_checkpoint(self, config: Mapping[str, Any]) -> DataSet:
        """This data normalised as a checkpoint's ``config`` says (``mean`` and ``std``), if it does."""
        given = config.get("normalize") if isinstance(config.get("normalize"), Mapping) else config
        mean, std = given.get("mean"), given.get("std")  # type: ignore[union-attr]
        if mean is None and std is None:
            return self
        return replace(self, mean=self._per_channel(mean, 0.0, "mean"), std=self._per_channel(std, 1.0, "std"))

    def _per_channel(self, value: Any, default: float, what: str) -> Statistics:
        value = value.tolist() if hasattr(value, "tolist") else value
        values = [default] if value is None else value if isinstance(value, (list, tuple)) else [value]
        try:
            numbers = tuple(float(number) for number in values)
        except (TypeError, ValueError):
            raise AuditError(f"the checkpoint's config has {what} {value!r}; expected one number per channel") from None
        if len(numbers) not in (1, self.x.shape[1]):
            raise AuditError(f"the checkpoint's config has {len(numbers)} values of {what}, but {self._channels()}")
        wrong = [number for number in numbers if not math.isfinite(number) or (what == "std" and number <= 0)]
        if wrong:
            raise AuditError(f"the checkpoint's config has a {what} of {wrong[0]:g}, by which nothing can be normalised")
        return numbers

    def _channels(self) -> str:
        return f"its inputs of shape {tuple(self.x.shape[1:])} have {self.x.shape[1]:,} channels"


def as_data_set(given: object, what: str) -> DataSet:
    """A DataSet, also where somebody gives a plain pair of tensors or arrays (x, y)."""
    if isinstance(given, DataSet):
        return given
    if isinstance(given, (tuple, list)) and len(given) == 2:
        return DataSet(torch.as_tensor(given[0]), torch.as_tensor(given[1]).long(), what)
    raise AuditError(f"{what} gave {type(given).__name__}; expected a pair of tensors (x, y)")


class EvalBatches:
    """A split as (x, y) batches, normalised as its checkpoint says and flattened if the network wants it."""

    def __init__(self, data: DataSet, size: int, *, flatten: bool) -> None:
        self.data, self.size, self.flatten = data, size, flatten
        self.name, self.note, self.samples = data.name, data.note, len(data)

    def __len__(self) -> int:
        return (self.samples + self.size - 1) // self.size

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self.data.batches(self.size, flatten=self.flatten)
