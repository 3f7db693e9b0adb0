"""The idx files of MNIST and its relatives, plain or gzipped."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..judge.errors import AuditError

UNSIGNED_BYTE = 0x08


def read_idx(path: Path) -> Tensor:
    """The array of unsigned bytes in an idx file: two zero bytes, type, rank, the sizes as big-endian integers, the data."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise AuditError(f"{path}: cannot be read: {error}") from error
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != UNSIGNED_BYTE:
        raise AuditError(f"{path}: not an idx file of unsigned bytes")
    rank = content[3]
    start = 4 + 4 * rank
    shape = tuple(int.from_bytes(content[at : at + 4], "big") for at in range(4, start, 4))
    expected = math.prod(shape)
    if len(content) != start + expected:
        raise AuditError(
            f"{path}: truncated or damaged: {max(0, len(content) - start):,} bytes of data, "
            f"but its header says {' × '.join(map(str, shape))} = {expected:,}"
        )
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy())
