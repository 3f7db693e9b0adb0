"""Digests of what a measurement depends on, taken from files alone; free of torch."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from .specs import is_factory


def file_digest(path: Path) -> str:
    """The SHA-256 of a file's bytes, computed once as long as its size and time stay the same."""
    status = path.stat()
    return _digest(str(path), status.st_size, status.st_mtime_ns)


def network_digest(spec: str | None) -> str | None:
    """What identifies a network: its SPEC, and of a factory the sources of the package or folder that it stands in."""
    if spec is None or not is_factory(spec):
        return spec or "reference"
    module = spec.partition(":")[0]
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        found = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return None
    if found is None or (found.origin is None and not found.submodule_search_locations):
        return None
    packaged = found.submodule_search_locations
    folder = Path(next(iter(packaged))) if packaged else Path(str(found.origin)).parent
    sources = sorted(folder.rglob("*.py") if packaged else folder.glob("*.py"))
    return joined([spec, *(f"{path.relative_to(folder)} {file_digest(path)}" for path in sources)])


def joined(parts: Iterable[str]) -> str:
    """One digest of many lines."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@lru_cache(maxsize=4096)
def _digest(path: str, size: int, modified: int) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
