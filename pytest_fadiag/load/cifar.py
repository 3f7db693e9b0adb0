"""The Python version of CIFAR-10, read without running what a pickle may contain."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..judge.errors import AuditError
from .places import cifar10_files


class _ArraysOnly(pickle.Unpickler):
    """Unpickles what the batches are made of, dictionaries of lists and arrays, and refuses every other class."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return np.zeros(0).__reduce__()[0]  # by the name that this version of numpy gives it
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        if module == "_codecs" and name == "encode":
            return _encoded
        raise pickle.UnpicklingError(f"refuses to load {module}.{name}")


def _encoded(text: str, encoding: str) -> bytes:
    return text.encode(encoding)


def read_cifar10(root: Path, split: str) -> tuple[Tensor, Tensor]:
    """The images ``[N, 3, 32, 32]`` and labels of one split below ``ROOT/cifar-10-batches-py``."""
    paths = cifar10_files(root, split)
    images, labels = zip(*map(_read_batch, paths), strict=True)
    return torch.cat(images), torch.cat(labels)


def _read_batch(path: Path) -> tuple[Tensor, Tensor]:
    try:
        with path.open("rb") as file:
            batch = _ArraysOnly(file, encoding="latin1").load()
        absent = {"data", "labels"} - set(batch)
        if absent:
            raise ValueError(f"no entry {' and '.join(sorted(absent))}; it has {', '.join(map(str, batch))}")
        images = np.asarray(batch["data"], np.uint8).reshape(-1, 3, 32, 32)
        labels = np.asarray(batch["labels"], np.int64)
    except Exception as error:  # a damaged pickle makes the unpickler raise almost anything
        raise AuditError(f"{path}: not a batch of CIFAR-10's Python version: {error or type(error).__name__}") from error
    return torch.from_numpy(images), torch.from_numpy(labels)
