"""Evaluation data: whole splits decoded once into tensors, normalised batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..protocol.errors import AuditError
from ..protocol.measurement import BATCH
from .specs import call_factory, is_factory

Statistics = tuple[float, ...]

FASHION_MNIST = ((0.2860,), (0.3530,))
CIFAR10 = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))

KINDS = "fashion-mnist:ROOT, cifar10:ROOT, folder:PATH, a .npz, .pt or .safetensors file with x and y, package.module:factory"


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
        if len(self.x) != len(self.y):
            raise AuditError(f"data {self.name}: {len(self.x):,} inputs for {len(self.y):,} labels")
        if not len(self.y):
            raise AuditError(f"data {self.name}: the split is empty")

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
        channels = self.x.shape[1] if self.x.ndim > 1 else 1
        values = [default] if value is None else list(value) if isinstance(value, Sequence) else [value]
        try:
            numbers = tuple(float(number) for number in values)
        except (TypeError, ValueError):
            raise AuditError(f"the checkpoint's config has {what} {value!r}; expected one number per channel") from None
        if len(numbers) not in (1, channels):
            raise AuditError(
                f"the checkpoint's config has {len(numbers)} values of {what}, but the data has {channels} channels"
            )
        if what == "std" and not all(numbers):
            raise AuditError("the checkpoint's config has a std of 0, by which nothing can be normalised")
        return numbers


def load_data(spec: str, split: str = "test") -> DataSet:
    """The data behind a SPEC, decoded once."""
    kind, colon, rest = spec.partition(":")
    reader = _READERS.get(kind) if colon else None
    if reader is not None:
        if not rest:
            raise AuditError(f"data {spec!r} names no folder; write {kind}:ROOT")
        return reader(Path(rest).expanduser(), split)
    path = Path(spec).expanduser()
    if path.suffix in _ARRAY_READERS:
        return _from_arrays(path)
    if is_factory(spec):
        return _from_factory(spec)
    raise AuditError(f"unknown data {spec!r}; accepted: {KINDS}")


def _fashion_mnist(root: Path, split: str) -> DataSet:
    from .idx import read_idx

    stem = {"test": "t10k", "train": "train"}[split]
    images, labels = (_idx_file(root, f"{stem}-{part}-ubyte") for part in ("images-idx3", "labels-idx1"))
    mean, std = FASHION_MNIST
    return DataSet(read_idx(images).unsqueeze(1), read_idx(labels).long(), "fashion-mnist", mean, std)


def _idx_file(root: Path, name: str) -> Path:
    """The idx file where torchvision puts it or in ROOT itself, plain or gzipped."""
    for folder in (root / "FashionMNIST" / "raw", root):
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                return path
    raise AuditError(f"{root}: no Fashion-MNIST there: expected {name} or {name}.gz in it or in FashionMNIST/raw")


def _cifar10(root: Path, split: str) -> DataSet:
    from .cifar import read_cifar10

    images, labels = read_cifar10(root, split)
    return DataSet(images, labels, "cifar10", *CIFAR10)


def _folder(root: Path, split: str) -> DataSet:
    """The images of an ImageFolder tree, ``PATH/<split>`` if there is one, in a fixed shuffled order.

    ImageFolder lists class after class: its first 1,280 images would be of one class.
    """
    from .folder import read_folder

    root = root / split if (root / split).is_dir() else root
    images, labels = read_folder(root)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    note = "images of a class-by-class folder are taken in a fixed shuffled order"
    return DataSet(images[order], labels[order], f"folder {root.name}", *IMAGENET, note)


def _from_arrays(path: Path) -> DataSet:
    if not path.is_file():
        raise AuditError(f"data {path}: no such file")
    arrays = _ARRAY_READERS[path.suffix](path)
    if not isinstance(arrays, Mapping) or "x" not in arrays or "y" not in arrays:
        found = ", ".join(map(str, arrays)) if isinstance(arrays, Mapping) else type(arrays).__name__
        raise AuditError(f"data {path}: expected the entries x and y, found: {found}")
    return DataSet(torch.as_tensor(arrays["x"]), _labels(arrays["y"], str(path)), path.name)


def _from_factory(spec: str) -> DataSet:
    """What a factory returns: a pair of tensors, a DataSet, a torch Dataset, or batches."""
    made = call_factory(spec, None, "data factory")
    if isinstance(made, DataSet):
        return made
    if isinstance(made, (tuple, list)) and len(made) == 2 and all(isinstance(part, Tensor) for part in made):
        return DataSet(made[0], _labels(made[1], spec), spec)
    if hasattr(made, "__getitem__") and hasattr(made, "__len__") and not isinstance(made, (tuple, list)):
        made = (made[index] for index in range(len(made)))
        pairs = [(torch.as_tensor(x).unsqueeze(0), torch.as_tensor([int(y)])) for x, y in _pairs(made, spec)]
    else:
        pairs = [(torch.as_tensor(x), torch.as_tensor(y)) for x, y in _pairs(made, spec)]
    if not pairs:
        raise AuditError(f"data factory {spec!r} yielded no samples")
    return DataSet(torch.cat([x for x, _ in pairs]), _labels(torch.cat([y for _, y in pairs]), spec), spec)


def _pairs(made: Any, spec: str) -> Iterator[tuple[Any, Any]]:
    try:
        yield from ((x, y) for x, y in made)
    except (TypeError, ValueError) as error:
        raise AuditError(
            f"data factory {spec!r} returned {type(made).__name__}; expected (x, y), a Dataset of pairs, or batches ({error})"
        ) from error


def _labels(values: Any, name: str) -> Tensor:
    labels = torch.as_tensor(values)
    if labels.ndim != 1 or labels.is_floating_point():
        raise AuditError(
            f"data {name}: labels have shape {tuple(labels.shape)} and dtype {labels.dtype}; expected class indices"
        )
    return labels.long()


def _read_npz(path: Path) -> Mapping[str, Any]:
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError) as error:
        raise AuditError(f"data {path}: not a readable .npz file: {error}") from error


def _read_tensors(path: Path) -> Mapping[str, Any]:
    from .checkpoints import read_file

    contents: Mapping[str, Any] = read_file(path)
    return contents


_READERS: dict[str, Callable[[Path, str], DataSet]] = {
    "fashion-mnist": _fashion_mnist,
    "cifar10": _cifar10,
    "folder": _folder,
}
_ARRAY_READERS: dict[str, Callable[[Path], Mapping[str, Any]]] = {
    ".npz": _read_npz,
    ".pt": _read_tensors,
    ".pth": _read_tensors,
    ".safetensors": _read_tensors,
}
