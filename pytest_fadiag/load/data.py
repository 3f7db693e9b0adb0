"""Evaluation data: whole splits decoded once into tensors, normalised batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..judge.errors import AuditError
from ..judge.inputs import Normalisation, NormalisedBy, StatedInputs
from ..judge.records import BATCH, LABEL_NAMES
from .normalisation import Statistics, state_inputs

Named = Mapping[str, Tensor]
"""Tensors by the names of forward's parameters: input_ids, attention_mask, …"""
BYTES = 100.0
"""Fractions that are never negative and reach this look like bytes that nobody scaled."""


@dataclass(frozen=True)
class DataSet:
    """Inputs and labels of one split; images stay bytes until a batch is taken."""

    x: Tensor | Named
    y: Tensor
    name: str
    mean: Statistics | None = None
    std: Statistics | None = None
    note: str = ""
    usual: bool = False
    """Whether mean and std are the constants that people use for this data, rather than what somebody chose."""
    digest: str | None = None
    """What identifies the data, where whoever made it knows: its measurements are then kept."""
    inputs: StatedInputs | None = None
    """What was decided for one network, if it was."""

    def __post_init__(self) -> None:
        named = self.x if isinstance(self.x, Mapping) else {"inputs": self.x}
        for name, x in named.items():
            if x.ndim < (1 if isinstance(self.x, Mapping) else 2) or len(x) != len(self.y):
                raise AuditError(f"data {self.name}: {name} of shape {tuple(x.shape)} for {len(self.y):,} labels")
        if not len(self.y):
            raise AuditError(f"data {self.name}: the split is empty")
        self._check_channels(self.mean, self.std, f"data {self.name}:")

    def __len__(self) -> int:
        return len(self.y)

    def normalised(self, x: Tensor) -> Tensor:
        """Inputs as the network takes them: bytes to [0, 1], then (x - mean)/std per channel."""
        if x.dtype == torch.uint8:
            x = x.float().div_(255)
        if self.mean is None or self.std is None or not x.is_floating_point():
            return x
        mean, std = (values.to(x.device).view((-1,) + (1,) * (x.ndim - 2)) for values in self._constants)
        return (x - mean).div_(std)

    @cached_property
    def _constants(self) -> tuple[Tensor, Tensor]:
        return torch.tensor(self.mean), torch.tensor(self.std)

    def batches(self, size: int = BATCH, *, flatten: bool = False) -> Iterator[tuple[Tensor | dict[str, Tensor], Tensor]]:
        """The split in its own order, normalised, in batches of at most ``size``."""
        for start in range(0, len(self), size):
            part = slice(start, start + size)
            if isinstance(self.x, Mapping):
                yield {name: tensor[part] for name, tensor in self.x.items()}, self.y[part]
                continue
            x = self.normalised(self.x[part])
            yield (x.flatten(1) if flatten else x), self.y[part]

    def for_checkpoint(self, config: Mapping[str, Any], normalize: Normalisation | None = None) -> DataSet:
        """This data normalised as the user says, else as the checkpoint's ``config`` does (images only), else as it is."""
        pixels = isinstance(self.x, Tensor) and self.x.dtype == torch.uint8
        by = NormalisedBy.NOTHING if self.mean is None else NormalisedBy.USUAL if self.usual else NormalisedBy.DATA
        stated = state_inputs(StatedInputs(self.name, by, self.mean, self.std, pixels), config, normalize)
        whose = "--fa-normalize has" if stated.by is NormalisedBy.OPTION else "the checkpoint's config has"
        if stated.by is NormalisedBy.OPTION and not (pixels or self._fractions):
            raise AuditError(f"--fa-normalize={stated.option}: {self.name} holds {self._kinds}, which cannot be normalised")
        self._check_channels(stated.mean, stated.std, whose)
        return replace(self, mean=stated.mean, std=stated.std, inputs=stated, note=self.note or self._unscaled(stated))

    def _unscaled(self, stated: StatedInputs) -> str:
        """That fractions look like bytes, where nobody says what to do with them."""
        said = stated.by is not NormalisedBy.NOTHING or stated.option is not None
        if said or not isinstance(self.x, Tensor) or not self._fractions or not self.x.numel():
            return ""
        low, high = (float(end) for end in torch.aminmax(self.x))
        if not (low >= 0 and BYTES <= high <= 255):
            return ""
        ways = "for pixels in [0, 1] save bytes, or say --fa-normalize=0/255"
        return f"its inputs go up to {high:g} and were taken as they are; {ways}"

    @property
    def _fractions(self) -> bool:
        return isinstance(self.x, Tensor) and self.x.is_floating_point()

    @property
    def _kinds(self) -> str:
        if isinstance(self.x, Mapping):
            return f"tensors by name ({', '.join(self.x)})"
        return f"whole numbers ({str(self.x.dtype).removeprefix('torch.')})"

    def _check_channels(self, mean: Statistics | None, std: Statistics | None, whose: str) -> None:
        for what, values in (("mean", mean), ("std", std)):
            if values is None:
                continue
            if isinstance(self.x, Mapping):
                raise AuditError(f"{whose} a {what}, but {self.name} holds {self._kinds}, which cannot be normalised")
            if len(values) not in (1, self.x.shape[1]):
                raise AuditError(
                    f"{whose} {len(values)} values of {what}, but its inputs of shape {tuple(self.x.shape[1:])} have "
                    f"{self.x.shape[1]:,} channels"
                )


def as_data_set(given: object, what: str) -> DataSet:
    """A DataSet, also where somebody gives a pair of arrays (x, y), or arrays by name with the labels among them."""
    if isinstance(given, DataSet):
        return given
    inputs, labels = given if isinstance(given, (tuple, list)) and len(given) == 2 else split_labels(given)
    if labels is None:
        raise AuditError(f"{what} gave {type(given).__name__}; expected a pair of tensors (x, y), or a dictionary with labels")
    y = torch.as_tensor(labels).long()
    if isinstance(inputs, Mapping):
        return DataSet({str(name): torch.as_tensor(value) for name, value in inputs.items()}, y, what)
    return DataSet(torch.as_tensor(inputs), y, what)


def split_labels(given: object) -> tuple[Any, Any]:
    """What a dictionary holds beside its labels, and the labels; nothing where it is none, or has none."""
    name = next((name for name in LABEL_NAMES if name in given), None) if isinstance(given, Mapping) else None
    if name is None or not isinstance(given, Mapping):
        return None, None
    return {key: value for key, value in given.items() if key != name}, given[name]


class EvalBatches:
    """A split as (x, y) batches, normalised as its checkpoint says and flattened if the network wants it."""

    def __init__(self, data: DataSet, size: int, *, flatten: bool) -> None:
        self.data, self.size, self.flatten = data, size, flatten
        self.name, self.note, self.samples, self.inputs = data.name, data.note, len(data), data.inputs
        self.labels = data.y
        """All of them, for whoever must know them before the images are read."""

    def __len__(self) -> int:
        return (self.samples + self.size - 1) // self.size

    def __iter__(self) -> Iterator[tuple[Tensor | dict[str, Tensor], Tensor]]:
        return self.data.batches(self.size, flatten=self.flatten)
