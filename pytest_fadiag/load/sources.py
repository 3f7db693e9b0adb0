"""Which data a SPEC names, where its files lie and what identifies them; free of torch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..judge.errors import AuditError
from .names import file_digest, joined, walk
from .specs import is_factory


class Source(NamedTuple):
    """A data set as it is distributed."""

    places: tuple[str, ...]
    """Where its files lie below the root."""
    test: tuple[str, ...]
    """The names of the files, plain or gzipped."""
    train: tuple[str, ...]


SOURCES = {
    "fashion-mnist": Source(
        places=("FashionMNIST/raw", "raw", ""),
        test=("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
        train=("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    ),
    "cifar10": Source(
        places=("cifar-10-batches-py", ""),
        test=("test_batch",),
        train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    ),
}
KINDS = (*SOURCES, "folder")
"""What may stand before the colon."""
FILES = (".npz", ".pt", ".pth", ".safetensors")
IMAGES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
ACCEPTED = (
    f"{', '.join(f'{name}:ROOT' for name in SOURCES)}, folder:PATH, "
    f"a file with x and y ({', '.join(FILES)}), package.module:factory"
)


def parse_data(spec: str, base: Path | None = None) -> tuple[str, Path]:
    """The kind of data that a SPEC names and its path, which starts at ``base``; one must exist.

    Apart from :data:`KINDS` there are ``file`` and ``factory``, whose path is the SPEC itself.

    >>> parse_data("package.module:make")[0]
    'factory'
    """
    kind, _, place = spec.partition(":")
    if kind not in KINDS or not place:
        if Path(spec).suffix in FILES:
            kind = "file"
            place = spec
        elif is_factory(spec):
            return "factory", Path(spec)
        else:
            raise AuditError(f"unknown data {spec!r}; accepted: {ACCEPTED}")
    path = (base or Path()) / os.path.expanduser(place)
    if not path.exists():
        raise AuditError(f"data {spec!r}: no such file or folder\n  {path}")
    return kind, path


def data_files(spec: tuple[str, Path], split: str = "test") -> list[tuple[Path, int]]:
    """The files of a split in their order; images with the number of their class."""
    kind, root = spec
    if kind == "folder":
        subfolder = root / split
        if split != "test" and not subfolder.is_dir():
            raise AuditError(f"no training split: expected a folder {split} there\n  {root}")
        return _images(subfolder if subfolder.is_dir() else root)
    source = SOURCES[kind]
    names = source.test if split == "test" else source.train
    files = []
    for name in names:
        path = _first_file(root, source.places, name)
        if path is None:
            expected = f"{', '.join(names)}, or in {source.places[0]}"
            raise AuditError(f"no {kind} there: expected {expected}\n  {root}")
        files.append((path, 0))
    return files


def _first_file(root: Path, places: Sequence[str], name: str) -> Path | None:
    """The file of this name, plain or gzipped, in the first of the places that has it."""
    for place in places:
        for path in (root / place / name, root / place / f"{name}.gz"):
            if path.is_file():
                return path
    return None


def _images(root: Path) -> list[tuple[Path, int]]:
    """The images of one sub-folder per class, in the order of torchvision's ImageFolder."""
    samples: list[tuple[Path, int]] = []
    classes = sorted(filter(Path.is_dir, root.iterdir())) if root.is_dir() else []
    empty = not classes
    for label, folder in enumerate(classes):
        images = [file for file in walk(folder) if file.name.lower().endswith(IMAGES)]
        images.sort(key=lambda file: (str(file.parent), file.name))
        samples.extend((file, label) for file in images)
        if not images:
            empty = True
    if empty:
        raise AuditError(
            f"expected one sub-folder of images ({', '.join(IMAGES)}) per class\n  {root}"
        )
    return samples


def training_spec(train: str, data: object) -> str:
    """The SPEC of the training data: ``auto`` stands for that of a data set with splits."""
    if train != "auto":
        return train
    kind = str(data).partition(":")[0]
    if not isinstance(data, str) or kind not in KINDS:
        known = ", ".join(f"{name}:" for name in KINDS)
        raise AuditError(f"auto training data: only {known} have a training split; name it")
    return data


def data_digest(spec: str, base: Path | None = None, split: str = "test") -> str | None:
    """What identifies the content of a split; ``None`` where only running a factory tells."""
    kind, root = parse_data(spec, base)
    if kind == "factory":
        return None
    if kind == "file":
        return file_digest(root)
    files = data_files((kind, root), split)
    return joined({path: file_digest(path) for path, _ in files}, root)
