"""What tells one network, or one set of batches, that a caller supplies from another, within one process."""

from __future__ import annotations

import hashlib
import itertools
import pickle
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

_numbers = itertools.count()
_met: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""Classes and functions by the order in which they were met: two of the same name may hold different values."""


def supplied_digest(value: object) -> str | None:
    """A digest of everything that a value holds, its tensors included; nothing where that cannot be told."""
    into = _Hash()
    try:
        _Everything(into, protocol=4).dump(value)
    except Exception:  # a generator, a lock, an open file, or whatever an object raises that cannot be pickled
        return None
    return into.digest.hexdigest()


class _Hash:
    def __init__(self) -> None:
        self.digest = hashlib.sha256()

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return len(data)


class _Everything(pickle.Pickler):
    def persistent_id(self, value: Any) -> str | None:
        """What stands for a value that is not written as a pickle would."""
        if isinstance(value, Tensor):  # by its bytes: a pickle has the address of its storage
            plain = value.detach().cpu().contiguous().flatten().view(torch.uint8)
            content = hashlib.sha256(plain.numpy().data).hexdigest()
            return f"tensor {value.dtype} {tuple(value.shape)} {value.device} {value.requires_grad} {content}"
        if isinstance(value, (type, FunctionType)):
            return f"code {_met.setdefault(value, next(_numbers))}"
        return None
