"""Digests of what a measurement depends on, taken from files alone; free of torch."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterable
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ..judge.errors import AuditError
from .huggingface import files_of


def file_digest(path: Path) -> str:
    """The SHA-256 of a file's bytes, computed once as long as its stamp stays the same."""
    return _digest(str(path), *file_stamp(path))


def file_stamp(path: Path) -> tuple[int, int, int, int]:
    """What changes with the content of a file: its size and time can be set to what they were, inode and ctime cannot."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns


def checkpoint_digest(path: Path) -> str:
    """The digest of a checkpoint: a file, or a folder of files."""
    try:
        files = files_of(path)
        return file_digest(path) if files == [path] else joined(f"{file.name} {file_digest(file)}" for file in files)
    except FileNotFoundError as error:
        raise AuditError(f"{path}: no such file, or it was moved or deleted since the run began") from error
    except IsADirectoryError as error:
        raise AuditError(f"{path}: is a directory, not a file") from error
    except OSError as error:
        raise AuditError(f"{path}: cannot be read: {error.strerror or error}") from error


@cache
def installed_version(package: str) -> str:
    """By the installed package's own record, without importing it; nothing where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


@cache
def code_digest(module: str) -> str | None:
    """What identifies the code of a module: all of its package, found without importing it; nothing where it is not found."""
    try:
        found = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return None
    folders = [] if found is None else [Path(folder) for folder in found.submodule_search_locations or ()]
    files = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    if found is not None and not folders and found.origin is not None:
        files = [Path(found.origin)]
    return joined(f"{path.name} {file_digest(path)}" for path in files) if files else None


def joined(parts: Iterable[str]) -> str:
    """One digest of many lines."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@lru_cache(maxsize=4096)
def _digest(path: str, *stamp: int) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
