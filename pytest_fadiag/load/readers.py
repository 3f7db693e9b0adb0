"""Decoders of evaluation data: files to tensors; nothing is allocated before it is bounded."""

from __future__ import annotations

import gzip
import io
import math
import pickle
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..judge.errors import AuditError
from .checkpoint import RATIO, SMALL, check_archive, check_size, check_tensors, tensors_of

FORMATS = ("JPEG", "PNG", "PPM", "BMP", "TIFF", "WEBP")
"""What images may be: not EPS, which Pillow hands to Ghostscript."""
ALLOWED: dict[str, Any] = {
    "_reconstruct": lambda *_: np.zeros(0, np.uint8),
    "ndarray": None,
    "dtype": np.dtype,
    "encode": lambda text, _: text.encode("latin1"),
}
"""What CIFAR-10's pickles need of numpy and _codecs."""


def read_idx(stored: bytes, path: Path) -> Tensor:
    """The unsigned bytes in an idx file, plain or gzipped: 0, 0, type, rank, sizes, data."""
    try:
        content = stored
        if path.suffix == ".gz":
            with gzip.open(io.BytesIO(stored)) as file:
                content = file.read(max(SMALL, RATIO * len(stored)))
    except (OSError, EOFError, zlib.error) as error:
        raise AuditError(f"{path}: cannot be read: {error}") from error
    start = 4
    if content[:3] == b"\0\0\x08" and len(content) > 3:
        start += 4 * content[3]
    shape = [int.from_bytes(content[at : at + 4], "big") for at in range(4, start, 4)]
    if not shape or len(content) != start + math.prod(shape):
        raise AuditError(f"{path}: not an idx file of unsigned bytes, truncated or damaged")
    return torch.frombuffer(bytearray(content[start:]), dtype=torch.uint8).view(shape)


class ArraysOnly(pickle.Unpickler):
    """Unpickles dictionaries of lists and arrays, and refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] not in ("numpy", "_codecs") or name not in ALLOWED:
            raise pickle.UnpicklingError(f"refuses to load {module}.{name}")
        return ALLOWED[name]


def read_cifar10(stored: bytes, path: Path) -> tuple[Tensor, Tensor]:
    """The images ``[N, 3, 32, 32]`` and labels of one batch, without running code."""
    try:
        batch = ArraysOnly(io.BytesIO(stored), encoding="latin1").load()
        images = np.asarray(batch["data"], np.uint8).reshape(-1, 3, 32, 32)
        return torch.from_numpy(images), torch.from_numpy(np.asarray(batch["labels"], np.int64))
    except Exception as error:  # a damaged pickle makes the unpickler raise almost anything
        raise AuditError(
            f"{path}: not a batch of CIFAR-10's Python version: {type(error).__name__}: {error}"
        ) from error


def read_images(files: Mapping[Path, bytes]) -> Tensor:
    """Images of one size ``[N, C, H, W]`` as bytes; if all are grey they keep one channel."""
    from PIL import Image

    images: list[np.ndarray[Any, Any]] = []
    sizes = set()
    stored = sum(map(len, files.values()))
    for path, content in files.items():
        try:
            with Image.open(io.BytesIO(content), formats=FORMATS) as image:
                sizes.add(image.size)
                check_size(3 * len(files) * math.prod(image.size), stored, "the folder")
                if len(sizes) > 1:
                    raise AuditError(f"expected images of one size, got {sizes}; resize them")
                pixels = image if image.mode == "L" else image.convert("RGB")
                images.append(np.array(pixels))
        except Exception as error:  # decoders raise SyntaxError, struct.error and more on damage
            raise AuditError(f"{path}: not a readable image: {error}") from error
    tensors = []
    for array in images:
        tensors.append(torch.from_numpy(array).view(*array.shape[:2], -1).permute(2, 0, 1))
    channels = max(map(len, tensors))
    return torch.stack([tensor.expand(channels, -1, -1) for tensor in tensors])


def read_arrays(stored: bytes, path: Path) -> Any:
    """What a .npz, torch or safetensors file holds."""
    if path.suffix != ".npz":
        content = tensors_of(stored, path)
        if isinstance(content, dict):
            check_tensors(content, path)
        elif isinstance(content, (list, tuple)):
            check_tensors({f"[{number}]": value for number, value in enumerate(content)}, path)
        return content
    try:
        check_archive(stored, path)
        with np.load(io.BytesIO(stored), allow_pickle=False) as archive:
            return dict(archive)
    except Exception as error:  # BadZipFile, zlib.error, ValueError of an array of objects …
        raise AuditError(f"{path}: not a readable .npz file: {error}") from error
