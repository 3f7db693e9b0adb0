"""Evaluation data: whole splits decoded once into tensors, normalised batch by batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..judge.errors import AuditError
from ..judge.records import BATCH
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
    if not is_factory(spec):
        raise AuditError(f"unknown data {spec!r}; accepted: {KINDS}")
    try:
        return _from_factory(spec)
    except AuditError as error:
        if "." in kind or not isinstance(error.__cause__, ModuleNotFoundError):
            raise
        raise AuditError(f"unknown data {spec!r}, and no module {kind!r} to import; accepted: {KINDS}") from error


def _fashion_mnist(root: Path, split: str) -> DataSet:
    from .idx import read_idx

    stem = {"test": "t10k", "train": "train"}[split]
    images, labels = (_idx_file(root, f"{stem}-{part}-ubyte") for part in ("images-idx3", "labels-idx1"))
    x, y = read_idx(images), read_idx(labels)
    if x.ndim != 3 or y.ndim != 1:
        raise AuditError(f"{images}: {x.ndim} dimensions, and {y.ndim} of the labels; images have 3 and labels 1")
    return DataSet(x.unsqueeze(1), y.long(), "fashion-mnist", *FASHION_MNIST)


def _idx_file(root: Path, name: str) -> Path:
    """The idx file where torchvision puts it or in ROOT itself, plain or gzipped."""
    for folder in (root / "FashionMNIST" / "raw", root / "raw", root):
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
    usual: tuple[Statistics | None, Statistics | None] = IMAGENET
    if images.shape[1] == 1:
        usual = (None, None)
        note += "; grey images have no usual constants, so pixels are in [0, 1] unless config has mean and std"
    return DataSet(images[order], labels[order], f"folder {root.name}", *usual, note)


def _from_arrays(path: Path) -> DataSet:
    if not path.is_file():
        raise AuditError(f"data {path}: " + ("is a directory, not a file" if path.is_dir() else "no such file"))
    arrays = _ARRAY_READERS[path.suffix](path)
    if not isinstance(arrays, Mapping) or "x" not in arrays or "y" not in arrays:
        found = ", ".join(map(str, arrays)) if isinstance(arrays, Mapping) else type(arrays).__name__
        raise AuditError(f"data {path}: expected the entries x and y, found: {found}")
    return DataSet(_tensor(arrays["x"], f"data {path}"), _labels(arrays["y"], str(path)), path.name)


def _from_factory(spec: str) -> DataSet:
    """What a factory returns: a pair of tensors, a DataSet, a torch Dataset, or batches."""
    made, what = call_factory(spec, "data factory"), f"data factory {spec!r}"
    if isinstance(made, DataSet):
        return made
    if isinstance(made, (tuple, list)) and len(made) == 2 and all(hasattr(part, "__array__") for part in made):
        return DataSet(_tensor(made[0], what), _labels(made[1], spec), spec)
    samples = hasattr(made, "__getitem__") and hasattr(made, "__len__") and not isinstance(made, (tuple, list))
    try:
        pairs = [(x, y) for x, y in (map(made.__getitem__, range(len(made))) if samples else made)]
    except Exception as error:
        raise AuditError(
            f"{what} returned {type(made).__name__}; expected (x, y), a Dataset of pairs, or batches "
            f"({type(error).__name__}: {error})"
        ) from error
    if not pairs:
        raise AuditError(f"{what} yielded no samples")
    gather = torch.stack if samples else torch.cat
    try:
        x, y = gather([_tensor(x, what) for x, _ in pairs]), gather([_tensor(y, what) for _, y in pairs])
    except RuntimeError as error:
        raise AuditError(f"{what} yields samples of different shapes: {error}") from error
    return DataSet(x, _labels(y, spec), spec)


def _tensor(values: Any, what: str) -> Tensor:
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        kind = getattr(values, "dtype", type(values).__name__)
        raise AuditError(f"{what} holds {kind}, which is no tensor of numbers; convert it ({error})") from error


def _labels(values: Any, name: str) -> Tensor:
    labels = _tensor(values, f"data {name}")
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels.squeeze(1)
    if labels.ndim != 1 or labels.is_floating_point() or labels.is_complex():
        raise AuditError(
            f"data {name}: labels have shape {tuple(labels.shape)} and dtype {labels.dtype}; expected class indices"
        )
    return labels.long()


def _read_npz(path: Path) -> Mapping[str, Any]:
    import numpy as np

    try:
        with path.open("rb") as file:  # numpy leaves a damaged file open
            archive = np.load(file, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                raise ValueError("it holds one array; save two with numpy.savez(path, x=…, y=…)")
            return {name: archive[name] for name in archive.files}
    except Exception as error:  # BadZipFile, zlib.error, ValueError of an array of objects …
        raise AuditError(f"data {path}: not a readable .npz file: {error or type(error).__name__}") from error


def _read_tensors(path: Path) -> Mapping[str, Any]:
    from .tensorfiles import read_tensor_file

    contents: Mapping[str, Any] = read_tensor_file(path, advice="Save the data as a dictionary of the tensors x and y")
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
