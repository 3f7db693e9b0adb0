"""Evaluation data: whole splits decoded once into tensors, normalised batch by batch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ..judge.errors import AuditError
from ..judge.records import BATCH, Inputs, Normalisation, NormalisedBy, check_constants
from .fingerprint import bytes_of
from .names import convert, read_files
from .readers import read_arrays, read_cifar10, read_idx, read_images
from .sources import data_files, parse_data
from .specs import call_factory

Statistics = tuple[float, ...]
USUAL: dict[str, tuple[Statistics, Statistics]] = {
    "fashion-mnist": ((0.2860,), (0.3530,)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "folder": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),  # ImageNet's
}
MOST_STATISTICS = 1 << 20
"""Bytes of a mean or a std."""
LABEL_NAMES = ("labels", "label", "label_ids", "targets", "target", "y")


@dataclass(frozen=True)
class DataSet:
    """Inputs and targets of one split; images stay bytes until a batch is taken.

    >>> len(DataSet(torch.zeros(10, 3), torch.arange(10), "mine"))
    10
    """

    x: Tensor | Mapping[str, Tensor]
    """One tensor, or tensors by the names of forward's parameters: input_ids, attention_mask, …"""
    y: Tensor
    """Class indices [N], real targets [N] or [N, k], or tokens [N, T], of which −100 is ignored."""
    name: str
    mean: Statistics | None = None
    std: Statistics | None = None
    note: str = ""
    usual: bool = False
    """Whether mean and std are the constants that people use for this data."""
    inputs: Inputs | None = None
    """What was decided for one network, if it was."""
    groups: Tensor | None = None
    """Which samples belong together, as those of one document: one whole number per sample."""
    size: int = BATCH
    """Samples of a batch at most."""
    flat: bool = False
    """Whether batches are flattened, where a network takes them so."""

    def __post_init__(self) -> None:
        if not self._fits():
            shapes = {}
            for name, tensor in self.tensors.items():
                shapes[name or "x"] = f"{tuple(tensor.shape)} {tensor.dtype}"
            constants = self._constant_counts() or "no"
            raise AuditError(
                f"{self.name}: expected one class index, real target or row of tokens per "
                "sample, one whole number as its group, and one mean and std per channel; got "
                f"{shapes}, {constants} constants".replace("torch.", "")
            )

    def _fits(self) -> bool:
        """Whether the tensors and the constants have shapes that fit together."""
        if self.y.ndim not in (1, 2):
            return False
        if {len(tensor) for tensor in self.tensors.values()} != {len(self.y) or 1}:
            return False
        if self.groups is not None and (self.groups.ndim != 1 or self.groups.is_floating_point()):
            return False
        counts = self._constant_counts()
        if not isinstance(self.x, Tensor):
            return self.y.is_floating_point() or not counts
        if not self.x.is_floating_point() and not self.pixels:
            return not counts
        return counts <= {1, *self.x.shape[1:2]}

    def _constant_counts(self) -> set[int]:
        """How many values mean and std have, where there are any."""
        return {len(constants) for constants in (self.mean, self.std) if constants}

    def __len__(self) -> int:
        return len(self.y)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All that it holds, by name; a single input has none."""
        inputs = self.x
        if isinstance(inputs, Tensor):
            inputs = {"": inputs}
        tensors = {**inputs, "labels": self.y}
        if self.groups is not None:
            tensors["groups"] = self.groups
        return tensors

    @property
    def pixels(self) -> bool:
        """Whether the inputs are images as bytes; where the targets are tokens, bytes are ids."""
        if not isinstance(self.x, Tensor) or self.x.dtype != torch.uint8:
            return False
        return self.y.ndim != 2 or self.y.is_floating_point()

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the tensors, and of how the data itself is normalised."""
        digest = hashlib.sha256(f"{self.mean} {self.std}".encode())
        for name, tensor in self.tensors.items():
            digest.update(
                f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode() + bytes_of(tensor)
            )
        return digest.hexdigest()

    def normalised(self, x: Tensor) -> Tensor:
        """Inputs as the network takes them: bytes to [0, 1], then (x − mean)/std per channel."""
        if self.pixels:
            x = x.float().div_(255)
        elif not x.is_floating_point() and not x.is_complex():
            x = x.long()
        if self.mean is None or self.std is None:
            return x
        shape = (-1,) + (1,) * (x.ndim - 2)
        mean = torch.tensor(self.mean, device=x.device).view(shape)
        std = torch.tensor(self.std, device=x.device).view(shape)
        return (x - mean).div_(std)

    def taken(self, indices: Tensor) -> DataSet:
        """Some of its samples."""
        tensors = {name: tensor[indices] for name, tensor in self.tensors.items()}
        y = tensors.pop("labels")
        groups = tensors.pop("groups", None)
        return replace(self, x=tensors.get("", tensors), y=y, groups=groups)

    def __iter__(self) -> Iterator[tuple[Tensor | dict[str, Tensor], Tensor]]:
        """The split in its own order, normalised, batch by batch."""
        for start in range(0, len(self), self.size):
            part = slice(start, start + self.size)
            if isinstance(self.x, Tensor):
                x = self.normalised(self.x[part])
                if self.flat:
                    x = x.flatten(1)
                yield x, self.y[part]
            else:
                yield {name: tensor[part] for name, tensor in self.x.items()}, self.y[part]

    def for_checkpoint(self, config: Mapping[str, Any], normalize: str | None = None) -> DataSet:
        """The data normalised as the option says, else images as the config does, else as it is."""
        option = None
        if normalize is not None:
            option = Normalisation.parse(normalize)
            if option.text == "data" and self.mean is None:
                raise AuditError(
                    f"--fa-normalize=data: {self.name} has no usual constants; give MEAN/STD"
                )
        checkpoint_mean, checkpoint_std = _constants(config)
        unnormalised = str(config.get("normalize")) in ("False", "none")
        mean = self.mean
        std = self.std
        by = NormalisedBy.DATA
        if option is not None and option.text != "data":
            by = NormalisedBy.OPTION
            mean = option.mean
            std = option.std
        elif option is None and self.pixels and (checkpoint_mean or unnormalised):
            by = NormalisedBy.CHECKPOINT
            mean = checkpoint_mean
            std = checkpoint_std
        elif self.usual:
            by = NormalisedBy.USUAL
        if mean is None and by is not NormalisedBy.CHECKPOINT:
            by = NormalisedBy.NOTHING
        inputs = Inputs(
            data=self.name,
            by=by,
            mean=mean,
            std=std,
            pixels=self.pixels,
            option=None if option is None else option.text,
            checkpoint_mean=checkpoint_mean,
            checkpoint_std=checkpoint_std,
        )
        return replace(self, mean=mean, std=std, inputs=inputs)


def _constants(config: Mapping[str, Any]) -> tuple[Statistics | None, Statistics | None]:
    """The ``mean`` and ``std`` of a config, or those under its ``normalize``."""
    if isinstance(config.get("normalize"), Mapping):
        config = config["normalize"]
    if config.get("mean") is None or config.get("std") is None:
        return None, None
    what = "the checkpoint's mean and std"
    mean = _statistics(config["mean"], what)
    std = _statistics(config["std"], what)
    check_constants(mean, std, what)
    return mean, std


def _statistics(value: Any, what: str) -> Statistics:
    """One number, a list or an array as a tuple."""
    if hasattr(value, "tolist"):
        if value.nbytes > MOST_STATISTICS:
            raise AuditError(f"{what}: expected one number a channel, got {value.nbytes:,} bytes")
        value = value.tolist()
    if not isinstance(value, (list, tuple)):
        value = [value]
    statistics: Statistics = convert(value, Statistics, what)
    return statistics


def load_data(
    spec: str, split: str = "test", base: Path | None = None, *, digest: str | None = None
) -> DataSet:
    """The data that a SPEC names, decoded; relative paths start at ``base``.

    Files whose bytes have another ``digest`` are refused.

    >>> load_data("cifar10:data").x.shape
    torch.Size([10000, 3, 32, 32])
    """
    kind, root = parse_data(spec, base)
    if kind == "factory":
        return from_factory(spec)
    if kind == "file":
        content = read_arrays(read_files([root], digest)[root], root)
        return replace(as_data_set(content, f"data {root}"), name=root.name)
    files = data_files((kind, root), split)
    stored = read_files([path for path, _ in files], digest, root)
    if kind == "folder":
        return _image_folder(root, files, stored)
    images, labels = DECODERS[kind](stored)
    mean, std = USUAL[kind]
    return DataSet(images, labels.long(), kind, mean, std, usual=True)


Stored = Mapping[Path, bytes]


def _decode_idx(files: Stored) -> tuple[Tensor, Tensor]:
    images, labels = (read_idx(stored, path) for path, stored in files.items())
    return images.unsqueeze(1), labels


def _decode_cifar10(files: Stored) -> tuple[Tensor, Tensor]:
    batches = [read_cifar10(stored, path) for path, stored in files.items()]
    images, labels = zip(*batches, strict=True)
    return torch.cat(images), torch.cat(labels)


DECODERS: dict[str, Callable[[Stored], tuple[Tensor, Tensor]]] = {
    "fashion-mnist": _decode_idx,
    "cifar10": _decode_cifar10,
}
"""Images and labels of the files that ``sources.SOURCES`` lists."""


def _image_folder(root: Path, files: Sequence[tuple[Path, int]], stored: Stored) -> DataSet:
    """The images of a folder; class by class, the first 1,280 would be of one class."""
    order = torch.randperm(len(files), generator=torch.Generator().manual_seed(0)).tolist()
    images = read_images({files[index][0]: stored[files[index][0]] for index in order})
    labels = torch.tensor([files[index][1] for index in order])
    note = "images of a folder are taken in a fixed shuffled order"
    data = DataSet(images, labels, f"folder {root.name}", note=note)
    if images.shape[1] == 1:
        return data
    mean, std = USUAL["folder"]
    return replace(data, mean=mean, std=std, usual=True)


def from_factory(spec: str) -> DataSet:
    """What a factory returns: a DataSet, tensors, a torch Dataset, or batches."""
    what = f"data factory {spec!r}"
    content = call_factory(spec, "data factory")
    try:
        parts = [as_data_set(part, what) for part in _parts(content)]
        tensors = {}
        for name in parts[0].tensors:
            tensors[name] = torch.cat([part.tensors[name] for part in parts])
    except AuditError:
        raise
    except Exception as error:  # the user's own code, and whatever it gives
        raise AuditError(
            f"{what}: expected (x, y), tensors by name with labels, a Dataset of samples of one "
            f"shape, or batches; got {type(content).__name__}: {type(error).__name__}: {error}"
        ) from error
    first = parts[0]
    y = tensors.pop("labels")
    groups = tensors.pop("groups", None)
    x = tensors if isinstance(first.x, Mapping) else tensors[""]
    name = spec if first.name == what else first.name
    return replace(first, x=x, y=y, groups=groups, name=name)


def _parts(content: Any) -> Iterable[Any]:
    """What a factory returned, batch by batch."""
    if isinstance(content, (DataSet, Mapping)):
        return [content]
    if isinstance(content, (tuple, list)):
        is_pair = len(content) == 2 and hasattr(content[1], "__array__")
        return [content] if is_pair else content
    if hasattr(content, "__getitem__"):
        return DataLoader(content, len(content), generator=torch.Generator())
    batches: Iterable[Any] = content
    return batches


def as_data_set(data: Any, what: str) -> DataSet:
    """A DataSet, also of a pair (x, y), or of tensors by name with the labels among them."""
    if isinstance(data, DataSet):
        return data
    x, y, groups = _inputs_and_targets(data, what)
    try:
        y = torch.as_tensor(y)
        if groups is not None:
            groups = torch.as_tensor(groups)
        if isinstance(x, Mapping):
            x = {str(name): torch.as_tensor(value) for name, value in x.items()}
        else:
            x = torch.as_tensor(x)
    except (TypeError, ValueError, RuntimeError) as error:
        raise AuditError(f"{what}: expected tensors of numbers: {error}") from error
    if y.ndim == 2 and y.shape[1] == 1:
        y = y.squeeze(1)
    if not y.is_floating_point() and not y.is_complex():
        y = y.long()
    return DataSet(x, y, what, groups=groups)


def _inputs_and_targets(data: Any, what: str) -> tuple[Any, Any, Any]:
    """x, y and the groups, if there are any, of a pair or of tensors by name."""
    if isinstance(data, (tuple, list)) and len(data) == 2:
        return data[0], data[1], None
    kind = type(data).__name__
    if isinstance(data, Mapping):
        tensors = dict(data)
        groups = tensors.pop("groups", None)
        if {"x", "y"} <= tensors.keys():
            return tensors["x"], tensors["y"], groups
        for name in LABEL_NAMES:
            if name in tensors:
                y = tensors.pop(name)
                return tensors, y, groups
        kind = ", ".join(map(str, tensors)) or kind
    raise AuditError(f"{what}: expected a pair (x, y), or tensors by name with labels; got {kind}")
