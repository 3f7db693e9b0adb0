"""Readers of the kinds of evaluation data: each decodes a whole split into tensors, images as bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..judge.errors import AuditError
from .cifar import read_cifar10
from .data import DataSet, split_labels
from .folder import read_folder
from .idx import read_idx
from .normalisation import Statistics
from .places import fashion_mnist_files, split_folder
from .specs import call_factory
from .tensorfiles import read_tensor_file

FASHION_MNIST = ((0.2860,), (0.3530,))
CIFAR10 = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
MAIN_INPUTS = ("input_ids", "inputs_embeds", "pixel_values", "input_values", "input_features")
"""What networks of Hugging Face call their first input."""
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def fashion_mnist(root: Path, split: str) -> DataSet:
    """Fashion-MNIST as its idx files lie in ROOT or where torchvision puts them."""
    images, labels = fashion_mnist_files(root, split)
    x, y = read_idx(images), read_idx(labels)
    if x.ndim != 3 or y.ndim != 1:
        raise AuditError(f"{images}: {x.ndim} dimensions, and {y.ndim} of the labels; images have 3 and labels 1")
    return DataSet(x.unsqueeze(1), y.long(), "fashion-mnist", *FASHION_MNIST, usual=True)


def cifar10(root: Path, split: str) -> DataSet:
    """CIFAR-10 as its Python version lies in ROOT."""
    images, labels = read_cifar10(root, split)
    return DataSet(images, labels, "cifar10", *CIFAR10, usual=True)


def image_folder(root: Path, split: str) -> DataSet:
    """The images of an ImageFolder tree, ``PATH/<split>`` if there is one, in a fixed shuffled order.

    ImageFolder lists class after class: its first 1,280 images would be of one class.
    """
    root = split_folder(root, split)
    images, labels = read_folder(root)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    note = "images of a class-by-class folder are taken in a fixed shuffled order"
    grey = images.shape[1] == 1
    usual: tuple[Statistics | None, Statistics | None] = (None, None) if grey else IMAGENET
    return DataSet(images[order], labels[order], f"folder {root.name}", *usual, note, usual=not grey)


def arrays(path: Path, split: str) -> DataSet:
    """A file with x and y, or with tensors by Hugging Face's names; it is one split, whichever is asked for."""
    if not path.is_file():
        raise AuditError(f"data {path}: " + ("is a directory, not a file" if path.is_dir() else "no such file"))
    content = _read_npz(path) if path.suffix == ".npz" else _read_tensors(path)
    if isinstance(content, Mapping) and "x" in content and "y" in content:
        return _data_set(content["x"], content["y"], path.name, f"data {path}")
    inputs, labels = split_labels(content)
    if labels is None or not any(name in inputs for name in MAIN_INPUTS):
        entries = ", ".join(map(str, content)) if isinstance(content, Mapping) else type(content).__name__
        raise AuditError(
            f"data {path}: expected the entries x and y, found: {entries} (or one of {', '.join(MAIN_INPUTS)} with what else "
            "forward takes, and labels)"
        )
    return _data_set(inputs, labels, path.name, f"data {path}")


def from_factory(spec: str) -> DataSet:
    """What a factory returns: a pair of tensors, tensors by name, a DataSet, a torch Dataset, or batches."""
    what = f"data factory {spec!r}"
    made = call_factory(spec, "data factory")
    if isinstance(made, DataSet):
        return made
    if isinstance(made, (tuple, list)) and len(made) == 2 and _holds_arrays(made[0]) and hasattr(made[1], "__array__"):
        return _data_set(made[0], made[1], spec, what)
    named = isinstance(made, Mapping)
    samples = hasattr(made, "__getitem__") and hasattr(made, "__len__") and not (named or isinstance(made, (tuple, list)))
    try:
        if named:
            return _data_set(*_pair(made), spec, what)
        parts = map(made.__getitem__, range(len(made))) if samples else made
        pairs = [_pair(part) for part in parts]
    except AuditError:
        raise
    except Exception as error:
        raise AuditError(
            f"{what} returned {type(made).__name__}; expected (x, y), tensors by name with labels, a Dataset of such samples, "
            f"or batches ({type(error).__name__}: {error})"
        ) from error
    if not pairs:
        raise AuditError(f"{what} yielded no samples")
    gather = torch.stack if samples else torch.cat
    try:
        x, y = _gathered([x for x, _ in pairs], gather, what), gather([_tensor(y, what) for _, y in pairs])
    except (RuntimeError, KeyError, TypeError) as error:
        raise AuditError(f"{what} yields samples of different shapes or names: {error}") from error
    return _data_set(x, y, spec, what)


def _pair(part: Any) -> tuple[Any, Any]:
    """The inputs and the labels of a sample or a batch."""
    if not isinstance(part, Mapping):
        x, y = part
        return x, y
    inputs, labels = split_labels(part)
    if labels is None:
        raise ValueError(f"no labels among {', '.join(map(str, part))}")
    return inputs, labels


def _gathered(parts: list[Any], gather: Callable[[list[Tensor]], Tensor], what: str) -> Any:
    if not isinstance(parts[0], Mapping):
        return gather([_tensor(part, what) for part in parts])
    return {name: gather([_tensor(part[name], what) for part in parts]) for name in parts[0]}


def _holds_arrays(part: Any) -> bool:
    return all(map(_holds_arrays, part.values())) if isinstance(part, Mapping) else hasattr(part, "__array__")


def _data_set(inputs: Any, labels: Any, name: str, what: str) -> DataSet:
    """A split of these inputs, one tensor or several by name."""
    x = {str(key): _tensor(value, what) for key, value in inputs.items()} if isinstance(inputs, Mapping) else None
    return DataSet(_tensor(inputs, what) if x is None else x, _labels(labels, name), name)


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
