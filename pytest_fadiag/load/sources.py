"""Which data a SPEC names, where its files lie and what identifies them; free of torch."""

from __future__ import annotations

from pathlib import Path

from ..judge.errors import AuditError
from .names import file_digest, joined, walk
from .specs import is_factory

KINDS = ("fashion-mnist", "cifar10", "folder")
"""What may stand before the colon."""
FILES = (".npz", ".pt", ".pth", ".safetensors")
IMAGES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
PLACES = {"cifar10": ("cifar-10-batches-py", ""), "fashion-mnist": ("FashionMNIST/raw", "raw", "")}
NAMES = {
    ("cifar10", "test"): ["test_batch"],
    ("cifar10", "train"): [f"data_batch_{number}" for number in range(1, 6)],
    ("fashion-mnist", "test"): ["t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"],
    ("fashion-mnist", "train"): ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"],
}
"""The files of a data set, as they are distributed, and where they lie below its root."""
ACCEPTED = (
    "fashion-mnist:ROOT, cifar10:ROOT, folder:PATH, "
    f"a file with x and y ({', '.join(FILES)}), package.module:factory"
)


def parse_data(spec: str, base: Path | None = None) -> tuple[str, Path]:
    """The kind of data that a SPEC names and its path, which starts at ``base``; one must exist.

    Apart from :data:`KINDS` there are ``file`` and ``factory``, whose path is the SPEC itself.

    >>> parse_data("package.module:make")[0]
    'factory'
    """
    kind, _, place = spec.partition(":")
    known = kind in KINDS and bool(place)
    if not known and Path(spec).suffix not in FILES:
        if not is_factory(spec):
            raise AuditError(f"unknown data {spec!r}; accepted: {ACCEPTED}")
        return "factory", Path(spec)
    path = (base or Path()) / Path(place if known else spec).expanduser()
    if not path.exists():
        raise AuditError(f"data {spec!r}: no such file or folder\n  {path}")
    return kind if known else "file", path


def data_files(source: tuple[str, Path], split: str = "test") -> list[tuple[Path, int]]:
    """The files of a split in their order; images with the number of their class."""
    kind, root = source
    if kind == "folder":
        return _images(root / split if (root / split).is_dir() else root)
    files = []
    places, names = PLACES[kind], NAMES[kind, split]
    for name in names:
        spelled = [root / place / f"{name}{end}" for place in places for end in ("", ".gz")]
        files += [(path, 0) for path in spelled if path.is_file()][:1]
    if len(files) < len(names):
        raise AuditError(
            f"no {kind} there: expected {', '.join(names)}, or in {places[0]}\n  {root}"
        )
    return files


def _images(root: Path) -> list[tuple[Path, int]]:
    """The images of one sub-folder per class, in the order of torchvision's ImageFolder."""
    samples: list[tuple[Path, int]] = []
    classes = sorted(folder for folder in root.iterdir() if folder.is_dir())
    for label, folder in enumerate(classes):
        images = [file for file in walk(folder) if file.name.lower().endswith(IMAGES)]
        samples += [
            (file, label) for file in sorted(images, key=lambda file: (str(file.parent), file.name))
        ]
    if not samples or len({label for _, label in samples}) < len(classes):
        raise AuditError(
            f"expected one sub-folder of images ({', '.join(IMAGES)}) per class\n  {root}"
        )
    return samples


def data_digest(spec: str, base: Path | None = None) -> str | None:
    """What identifies the content of the test data; ``None`` where only running a factory tells."""
    kind, root = source = parse_data(spec, base)
    if kind in ("factory", "file"):
        return file_digest(root) if kind == "file" else None
    files = [(path.relative_to(root).as_posix(), path) for path, _ in data_files(source)]
    return joined(f"{name} {file_digest(path)}" for name, path in files)
