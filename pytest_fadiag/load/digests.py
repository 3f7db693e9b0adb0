"""Digests of what a measurement depends on, taken from files alone; free of torch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def file_digest(path: Path) -> str:
    """The SHA-256 of a file's bytes, computed once as long as its size and time stay the same."""
    status = path.stat()
    return _digest(str(path), status.st_size, status.st_mtime_ns)


@cache
def installed_version(package: str) -> str:
    """By the installed package's own record, without importing it; nothing where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


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
