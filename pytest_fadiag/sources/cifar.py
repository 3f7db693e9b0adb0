"""The Python version of CIFAR-10, read without running what a pickle may contain."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..protocol.errors import AuditError

FOLDER = "cifar-10-batches-py"
SPLITS = {"test": ["test_batch"], "train": [f"data_batch_{number}" for number in range(1, 6)]}


class _ArraysOnly(pickle.Unpickler):
    """Unpickles what the batches are made of, dictionaries of lists and arrays, and refuses every other class."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return np.zeros(0).__reduce__()[0]
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        if module == "_codecs" and name == "encode":
            return _encoded
        raise pickle.UnpicklingError(f"refuses to load {module}.{name}")


def _encoded(text: str, encoding: str) -> bytes:
    return text.encode(encoding)


def read_cifar10(root: Path, split: str) -> tuple[Tensor, Tensor]:
    """The images ``[N, 3, 32, 32]`` and labels of one split below ``ROOT/cifar-10-batches-py``."""
    folder = root / FOLDER if (root / FOLDER).is_dir() else root
    present = [folder / name for name in SPLITS[split] if (folder / name).is_file()]
    if not present:
        raise AuditError(f"{root}: no CIFAR-10 there: expected {FOLDER}/{SPLITS[split][0]} (the extracted Python version)")
    images, labels = [], []
    for path in present:
        try:
            with path.open("rb") as file:
                batch = _ArraysOnly(file, encoding="latin1").load()
            images.append(np.asarray(batch["data"], np.uint8).reshape(-1, 3, 32, 32))
            labels.append(np.asarray(batch["labels"], np.int64))
        except (pickle.UnpicklingError, EOFError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise AuditError(f"{path}: not a batch of CIFAR-10's Python version: {error}") from error
    return torch.from_numpy(np.concatenate(images)), torch.from_numpy(np.concatenate(labels))
