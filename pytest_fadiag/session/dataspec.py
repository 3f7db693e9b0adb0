"""What a data SPEC names, told without loading anything."""

from __future__ import annotations

from pathlib import Path

FILE_DATA = (".npz", ".pt", ".pth", ".safetensors")
NAMED_DATA = ("fashion-mnist", "cifar10", "folder")


def absolute_spec(spec: str, base: Path) -> str:
    """A data SPEC whose path does not depend on the working folder any more."""
    kind, colon, rest = spec.partition(":")
    if colon and kind in NAMED_DATA:
        return f"{kind}:{base / Path(rest).expanduser()}" if rest else spec
    path = Path(spec).expanduser()
    return str(base / path) if path.suffix in FILE_DATA else spec


def data_name(spec: str) -> str:
    """What a report calls the data: a kind, or the name of a file wherever it lies."""
    kind, colon, _ = spec.partition(":")
    return kind if colon and kind in NAMED_DATA else Path(spec).name
