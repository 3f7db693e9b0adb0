"""Readers of the kinds of evaluation data: each decodes a whole split into tensors, images as bytes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..judge.errors import AuditError
from .cifar import read_cifar10
from .data import DataSet, Statistics
from .idx import read_idx
from .places import fashion_mnist_files, split_folder
from .specs import call_factory
from .tensorfiles import read_tensor_file

FASHION_MNIST = ((0.2860,), (0.3530,))
CIFAR10 = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def fashion_mnist(root: Path, split: str) -> DataSet:
    """Fashion-MNIST as its idx files lie in ROOT or where torchvision puts them."""
    images, labels = fashion_mnist_files(root, split)
    x, y = read_idx(images), read_idx(labels)
    if x.ndim != 3 or y.ndim != 1:
        raise AuditError(f"{images}: {x.ndim} dimensions, and {y.ndim} of the labels; images have 3 and labels 1")
    return DataSet(x.unsqueeze(1), y.long(), "fashion-mnist", *FASHION_MNIST)


def cifar10(root: Path, split: str) -> DataSet:
    """CIFAR-10 as its Python version lies in ROOT."""
    images, labels = read_cifar10(root, split)
    return DataSet(images, labels, "cifar10", *CIFAR10)


def image_folder(root: Path, split: str) -> DataSet:
    """The images of an ImageFolder tree, ``PATH/<split>`` if there is one, in a fixed shuffled order.

    ImageFolder lists class after class: its first 1,280 images would be of one class.
    """
    from .folder import read_folder

    root = split_folder(root, split)
    images, labels = read_folder(root)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    note = "images of a class-by-class folder are taken in a fixed shuffled order"
    usual: tuple[Statistics | None, Statistics | None] = IMAGENET
    if images.shape[1] == 1:
        usual = (None, None)
        note += "; grey images have no usual constants, so pixels are in [0, 1] unless config has mean and std"
    return DataSet(images[order], labels[order], f"folder {root.name}", *usual, note)


def arrays(path: Path, split: str) -> DataSet:
    """A file with x and y; it is one split, whichever is asked for."""
    if not path.is_file():
        raise AuditError(f"data {path}: " + ("is a directory, not a file" if path.is_dir() else "no such file"))
    content = _read_npz(path) if path.suffix == ".npz" else _read_tensors(path)
    if not isinstance(content, Mapping) or "x" not in content or "y" not in content:
        entries = ", ".join(map(str, content)) if isinstance(content, Mapping) else type(content).__name__
        raise AuditError(f"data {path}: expected the entries x and y, found: {entries}")
    return DataSet(_tensor(content["x"], f"data {path}"), _labels(content["y"], str(path)), path.name)


def from_factory(spec: str) -> DataSet:
    """What a factory returns: a pair of tensors, a DataSet, a torch Dataset, or batches."""
    what = f"data factory {spec!r}"
    made = call_factory(spec, "data factory")
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
    contents: Mapping[str, Any] = read_tensor_file(path, advice="Save the data as a dictionary of the tensors x and y")
    return contents
