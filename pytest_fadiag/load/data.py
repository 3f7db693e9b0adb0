"""Evaluation data: whole splits decoded once into tensors, normalised batch by batch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
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
from .names import convert
from .readers import read_arrays, read_cifar10, read_idx, read_images
from .sources import data_files, parse_data
from .specs import call_factory

Statistics = tuple[float, ...]
USUAL: dict[str, tuple[Statistics, Statistics]] = {
    "fashion-mnist": ((0.2860,), (0.3530,)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "folder": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),  # ImageNet's
}
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
        y, groups, x = self.y, self.groups, self.named.get("", self.y)
        constants = {len(values) for values in (self.mean, self.std) if values}
        real = x.is_floating_point() or self.pixels
        fits = constants <= {1, *x.shape[1:2]} if real else not constants
        fits &= y.ndim in (1, 2) and {len(own) for own in self.tensors.values()} == {len(y) or 1}
        fits &= groups is None or (groups.ndim == 1 and not groups.is_floating_point())
        if not fits:
            shapes = {
                name or "x": f"{tuple(x.shape)} {x.dtype}" for name, x in self.tensors.items()
            }
            raise AuditError(
                f"{self.name}: expected one class index, real target or row of tokens per "
                "sample, one whole number as its group, and one mean and std per channel; got "
                f"{shapes}, {constants or 'no'} constants".replace("torch.", "")
            )

    def __len__(self) -> int:
        return len(self.y)

    @property
    def named(self) -> Mapping[str, Tensor]:
        """The inputs by name."""
        return self.x if isinstance(self.x, Mapping) else {"": self.x}

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All that it holds, by name."""
        groups = {} if self.groups is None else {"groups": self.groups}
        return {**self.named, "labels": self.y, **groups}

    @property
    def pixels(self) -> bool:
        """Whether the inputs are images as bytes; where the targets are tokens, bytes are ids."""
        tokens = self.y.ndim == 2 and not self.y.is_floating_point()
        return isinstance(self.x, Tensor) and self.x.dtype == torch.uint8 and not tokens

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
        if not x.is_floating_point() and not x.is_complex():
            x = x.float().div_(255) if self.pixels else x.long()
        if self.mean is None or self.std is None:
            return x
        shape = (-1,) + (1,) * (x.ndim - 2)
        mean, std = (
            torch.tensor(own, device=x.device).view(shape) for own in (self.mean, self.std)
        )
        return (x - mean).div_(std)

    def __iter__(self) -> Iterator[tuple[Tensor | dict[str, Tensor], Tensor]]:
        """The split in its own order, normalised, batch by batch."""
        for start in range(0, len(self), self.size):
            part = slice(start, start + self.size)
            if isinstance(self.x, Tensor):
                x = self.normalised(self.x[part])
                yield (x.flatten(1) if self.flat else x), self.y[part]
            else:
                yield {name: tensor[part] for name, tensor in self.x.items()}, self.y[part]

    def for_checkpoint(self, config: Mapping[str, Any], normalize: str | None = None) -> DataSet:
        """The data normalised as the option says, else images as the config does, else as it is."""
        option = None if normalize is None else Normalisation.parse(normalize)
        own, raw = _constants(config), str(config.get("normalize")) in ("False", "none")
        by, mean, std = NormalisedBy.USUAL if self.usual else NormalisedBy.DATA, self.mean, self.std
        if option is None:
            if self.pixels and (own or raw):
                by, (mean, std) = NormalisedBy.CHECKPOINT, own or (None, None)
        elif option.text != "data":
            by, mean, std = NormalisedBy.OPTION, option.mean, option.std
        elif mean is None:
            raise AuditError(
                f"--fa-normalize=data: {self.name} has no usual constants; give MEAN/STD"
            )
        if mean is None and by is not NormalisedBy.CHECKPOINT:
            by = NormalisedBy.NOTHING
        stated = Inputs(
            data=self.name,
            by=by,
            mean=mean,
            std=std,
            pixels=self.pixels,
            option=None if option is None else option.text,
            checkpoint_mean=own and own[0],
            checkpoint_std=own and own[1],
        )
        return replace(self, mean=mean, std=std, inputs=stated)


def _constants(config: Mapping[str, Any]) -> tuple[Statistics, Statistics] | None:
    """The ``mean`` and ``std`` of a config, or those under its ``normalize``."""
    given = config["normalize"] if isinstance(config.get("normalize"), Mapping) else config
    if given.get("mean") is None or given.get("std") is None:
        return None
    what, pair = "the checkpoint's mean and std", list[Statistics]()
    for value in (given["mean"], given["std"]):
        plain = value.tolist() if hasattr(value, "tolist") else value
        listed = plain if isinstance(plain, (list, tuple)) else [plain]
        pair.append(convert(listed, Statistics, what))
    check_constants(pair[0], pair[1], what)
    return pair[0], pair[1]


def load_data(spec: str, split: str = "test", base: Path | None = None) -> DataSet:
    """The data that a SPEC names, decoded; relative paths start at ``base``.

    >>> load_data("cifar10:data").x.shape
    torch.Size([10000, 3, 32, 32])
    """
    kind, root = source = parse_data(spec, base)
    if kind == "factory":
        return from_factory(spec)
    if kind == "file":
        return replace(as_data_set(read_arrays(root), f"data {root}"), name=root.name)
    files = data_files(source, split)
    name, note = kind, ""
    if kind == "fashion-mnist":
        x, y = (read_idx(path) for path, _ in files)
        x = x.unsqueeze(1)
    elif kind == "cifar10":
        x, y = map(torch.cat, zip(*(read_cifar10(path) for path, _ in files), strict=True))
    else:  # class by class, the first 1,280 images would be of one class
        order = torch.randperm(len(files), generator=torch.Generator().manual_seed(0)).tolist()
        x = read_images([files[index][0] for index in order])
        y = torch.tensor([files[index][1] for index in order])
        name, note = f"folder {root.name}", "images of a folder are taken in a fixed shuffled order"
    mean, std = (None, None) if kind == "folder" and x.shape[1] == 1 else USUAL[kind]
    return DataSet(x, y.long(), name, mean, std, note, usual=mean is not None)


def from_factory(spec: str) -> DataSet:
    """What a factory returns: a DataSet, tensors, a torch Dataset, or batches."""
    what, made = f"data factory {spec!r}", call_factory(spec, "data factory")
    pair = isinstance(made, (tuple, list)) and len(made) == 2 and hasattr(made[1], "__array__")
    try:
        if pair or isinstance(made, (DataSet, Mapping)):
            made = [made]
        elif hasattr(made, "__getitem__") and not isinstance(made, (tuple, list)):
            made = DataLoader(made, len(made), generator=torch.Generator())
        parts = [as_data_set(part, what) for part in made]
        names = parts[0].tensors
        held = {name: torch.cat([part.tensors[name] for part in parts]) for name in names}
    except AuditError:
        raise
    except Exception as error:  # the user's own code, and whatever it gives
        raise AuditError(
            f"{what}: expected (x, y), tensors by name with labels, a Dataset of samples of one "
            f"shape, or batches; got {type(made).__name__}: {type(error).__name__}: {error}"
        ) from error
    first, y, groups = parts[0], held.pop("labels"), held.pop("groups", None)
    x = held if isinstance(first.x, Mapping) else held[""]
    return replace(first, x=x, y=y, groups=groups, name=spec if first.name == what else first.name)


def as_data_set(given: Any, what: str) -> DataSet:
    """A DataSet, also of a pair (x, y), or of tensors by name with the labels among them."""
    if isinstance(given, DataSet):
        return given
    named = dict(given) if isinstance(given, Mapping) else {}
    groups, label = named.pop("groups", None), next((n for n in LABEL_NAMES if n in named), None)
    if {"x", "y"} <= named.keys():
        x, y = named["x"], named["y"]
    elif label is not None:
        x, y = named, named.pop(label)
    elif isinstance(given, (tuple, list)) and len(given) == 2:
        x, y = given
    else:
        kind = ", ".join(map(str, named)) or type(given).__name__
        raise AuditError(
            f"{what}: expected a pair (x, y), or tensors by name with labels; got {kind}"
        )
    try:
        y = torch.as_tensor(y)
        groups = None if groups is None else torch.as_tensor(groups)
        if isinstance(x, Mapping):
            x = {str(name): torch.as_tensor(value) for name, value in x.items()}
        else:
            x = torch.as_tensor(x)
    except (TypeError, ValueError, RuntimeError) as error:
        raise AuditError(f"{what}: expected tensors of numbers: {error}") from error
    y = y.squeeze(1) if y.ndim == 2 and y.shape[1] == 1 else y
    return DataSet(x, y if y.is_floating_point() else y.long(), what, groups=groups)
