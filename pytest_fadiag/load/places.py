"""Where the files of a data set lie: told once, for who reads them and for who takes their digest; free of torch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ..judge.errors import AuditError

CIFAR10 = "cifar-10-batches-py"
CIFAR10_SPLITS = {"test": ["test_batch"], "train": [f"data_batch_{number}" for number in range(1, 6)]}


def fashion_mnist_files(root: Path, split: str) -> list[Path]:
    """The idx files of images and labels, where torchvision puts them or in ROOT itself, plain or gzipped."""
    stem = {"test": "t10k", "train": "train"}[split]
    return [_idx_file(root, f"{stem}-{part}-ubyte") for part in ("images-idx3", "labels-idx1")]


def _idx_file(root: Path, name: str) -> Path:
    for folder in (root / "FashionMNIST" / "raw", root / "raw", root):
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                return path
    raise AuditError(f"{root}: no Fashion-MNIST there: expected {name} or {name}.gz in it or in FashionMNIST/raw")


def cifar10_files(root: Path, split: str) -> list[Path]:
    """The batches of a split below ROOT or ``ROOT/cifar-10-batches-py``."""
    folder = root / CIFAR10 if (root / CIFAR10).is_dir() else root
    paths = [folder / name for name in CIFAR10_SPLITS[split]]
    missing = next((path for path in paths if not path.is_file()), None)
    if missing is not None:
        raise AuditError(
            f"{root}: no CIFAR-10 there: expected {CIFAR10}/{missing.name} in it (the extracted Python version of the data set)"
        )
    return paths


def split_folder(root: Path, split: str) -> Path:
    """The folder of a split in a tree of images, ``PATH/<split>`` if there is one."""
    return root / split if (root / split).is_dir() else root


def image_files(root: Path, split: str) -> list[Path]:
    """Every file of a split's folder, also behind symbolic links, each folder once."""
    met: set[str] = set()
    files: list[Path] = []
    for folder, folders, names in os.walk(split_folder(root, split), followlinks=True):
        real = os.path.realpath(folder)
        if real in met:
            folders.clear()  # a link back to a folder above it has no end
        else:
            met.add(real)
            files += [Path(folder, name) for name in names]
    return sorted(path for path in files if path.is_file())


def the_file(path: Path, split: str) -> Sequence[Path]:
    """A file that is one split."""
    return [path] if path.is_file() else []
