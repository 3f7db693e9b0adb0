"""The idx files of MNIST and its relatives, plain or gzipped."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..protocol.errors import AuditError

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
    shape = np.frombuffer(content, ">u4", rank, offset=4).astype(int) if len(content) >= 4 + 4 * rank else np.zeros(0, int)
    data = np.frombuffer(content, np.uint8, offset=min(len(content), 4 + 4 * rank))
    if len(shape) != rank or data.size != shape.prod():
        raise AuditError(f"{path}: truncated: {data.size:,} bytes of data, {shape.prod():,} expected")
    return torch.from_numpy(data.reshape(shape).copy())
