"""Measurements kept by content, one file a key, so that all workers measure each once."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from .files import read_bytes, write_atomically


def key_of(values: Mapping[str, Any]) -> str:
    """The key of what a result depends on."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:40]


def _checksum(key: str, text: bytes) -> bytes:
    return hashlib.sha256(key.encode() + text).hexdigest().encode()


class Cache:
    """JSON values by key in a folder; without a usable one a warning, and nothing is kept."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder

    def get(self, key: str) -> Any:
        """What is kept; ``None`` where nothing is, or what is there is broken."""
        if self.folder is None:
            return None
        try:
            checksum, text = read_bytes(self.folder / f"{key}.json").split(b"\n", 1)
            return json.loads(text) if checksum == _checksum(key, text) else None
        except (OSError, ValueError, RecursionError):
            return None

    def put(self, key: str, value: Any) -> None:
        """Keep a value in one step."""
        if self.folder is None:
            return
        try:
            text = json.dumps(value, allow_nan=False).encode()
            entry = _checksum(key, text) + b"\n" + text
            write_atomically(self.folder / f"{key}.json", entry)
        except OSError as error:
            self.give_up(f"{self.folder}: {error.strerror}")

    @contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """Let one process at a time measure what a key stands for."""
        with ExitStack() as lock:
            if self.folder is not None:
                from filelock import FileLock

                try:
                    self.folder.mkdir(parents=True, exist_ok=True)
                    lock.enter_context(FileLock(self.folder / f"{key}.lock"))
                except (OSError, NotImplementedError) as error:  # file systems without locks
                    self.give_up(f"{self.folder}: {getattr(error, 'strerror', error)}")
            yield

    def give_up(self, reason: str) -> None:
        """Keep nothing from now on, and say why; a filter that makes warnings errors does not."""
        self.folder = None
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn(f"measurements are not kept for the next run: {reason}", stacklevel=3)
