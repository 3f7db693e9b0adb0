"""Measurements kept by content: written atomically under a lock, so that all processes of a run measure each once."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

Record = dict[str, Any]
SHARED: pytest.StashKey[str] = pytest.StashKey()


class ResultCache:
    """Plain records under pytest's cache directory; without a usable one they last as long as the process."""

    def __init__(self, make_folder: Callable[[], Path] | None) -> None:
        self.make_folder = make_folder
        self.memory: dict[str, Record] = {}

    @classmethod
    def of(cls, config: pytest.Config, *, disabled: bool) -> ResultCache:
        """The cache of a run; where there is no cache plugin or it is not wanted, what its workers share while it lasts."""
        provider = getattr(config, "cache", None)
        if not disabled and provider is not None:
            return cls(lambda: provider.mkdir("fadiag"))
        shared = getattr(config, "workerinput", {}).get("fadiag", {}).get("shared")
        return cls(None if shared is None else lambda: _made(Path(shared)))

    @property
    def folder(self) -> Path | None:
        """Where records are kept, made when the first one is asked for: a run without an audit leaves no folder."""
        if self.make_folder is None:
            return None
        try:
            return self.make_folder()
        except OSError as error:
            self._give_up(error)
            return None

    def _give_up(self, error: Exception) -> None:
        """Go on without files, and say so once."""
        self.make_folder = None
        _warn(f"measurements are not kept for the next run: {error}")

    def get(self, key: str) -> Record | None:
        """The record of a key, if there is a readable one."""
        folder = None if key in self.memory else self.folder
        if folder is not None:
            try:
                record = json.loads((folder / f"{key}.json").read_text("utf-8"))
            except (OSError, ValueError):
                return None
            if isinstance(record, dict):
                self.memory[key] = record
        return self.memory.get(key)

    def get_or_make(self, key: str | None, make: Callable[[], Record]) -> Record:
        """The record of a key, made by at most one process at a time; without a key it is made and not kept."""
        if key is None:
            return make()
        found = self.get(key)
        if found is not None:
            return found
        with self._locked(key):
            found = self.get(key)
            if found is None:
                found = make()
                self._put(key, found)
        return found

    def _locked(self, key: str) -> Any:
        folder = self.folder
        if folder is None:
            return nullcontext()
        from filelock import FileLock

        logging.getLogger("filelock").setLevel(logging.WARNING)  # its debug lines would show in captured logs
        try:
            lock = FileLock(folder / f"{key}.lock")
            lock.acquire()
        except (OSError, NotImplementedError) as error:  # the latter where a file system knows no locks
            self._give_up(error)
            return nullcontext()
        return _Released(lock)

    def _put(self, key: str, record: Record) -> None:
        self.memory[key] = record
        folder = self.folder
        if folder is None:
            return
        try:
            write_atomically(folder / f"{key}.json", json.dumps(record, allow_nan=False))
        except OSError as error:
            self._give_up(error)


class _Released:
    def __init__(self, lock: Any) -> None:
        self.lock = lock

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        self.lock.release()


def folder_of_the_run(config: pytest.Config) -> str:
    """A folder for what the workers of one run share and nobody keeps; made by the controller, which removes it."""
    if SHARED not in config.stash:
        config.stash[SHARED] = tempfile.mkdtemp(prefix="fadiag-")
        config.add_cleanup(lambda: shutil.rmtree(config.stash[SHARED], ignore_errors=True))
    return config.stash[SHARED]


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)  # a worker on another host has none yet
    return folder


def key_of(parts: Mapping[str, Any]) -> str:
    """The key of what a record depends on."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:40]


def write_atomically(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _warn(text: str) -> None:
    """Warn; where warnings are errors too, for a checkpoint is not to blame for a full disk."""
    warning = pytest.PytestWarning(f"fadiag: {text}")
    try:
        warnings.warn(warning, stacklevel=3)
    except pytest.PytestWarning:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn(warning, stacklevel=3)
