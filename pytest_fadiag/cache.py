"""Results kept by content: whole files under a lock, so that all processes of a run measure each thing once."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import socket
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .judge.errors import AuditError
from .judge.files import write_atomically

Parts = dict[str, Any]
"""The named parts of one record, such as the result of each observer; plain JSON values."""


def key_of(values: Mapping[str, Any]) -> str:
    """The key of what a record, or a part of one, depends on."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:40]


class ResultCache:
    """Records of named parts in a folder; without a usable one they last as long as the process."""

    def __init__(
        self,
        folder: Callable[[], Path] | None = None,
        warn: Callable[[str], None] = warnings.warn,
        run: str | None = None,
    ) -> None:
        self._make_folder, self._warn, self._run = folder, warn, run
        self._memory: dict[str, Parts] = {}

    def parts(
        self,
        key: str,
        wanted: Sequence[str],
        make: Callable[[Sequence[str]], Parts],
        *,
        keep: bool = True,
        usable: Callable[[str, Any], bool] = lambda name, part: isinstance(part, dict),
    ) -> Parts:
        """A record with the parts that are wanted; those it lacks are made by at most one process at a time.

        What is not to be kept, because nothing identifies it beyond this run, stays in the memory of this process.
        """
        if not keep:
            record = self._memory.setdefault(key, {})
            absent = [name for name in wanted if name not in record]
            record.update(make(absent) if absent else {})
            return record
        for look in (self._memory.get, self._read):
            record = look(key) or {}
            if not _lacks(record, wanted, usable):
                return record
        with self._locked(key):
            record = self._read(key)
            absent = _lacks(record, wanted, usable)
            if absent:
                record = {**record, **make(absent)}
                self._write(key, record)
        return record

    @contextmanager
    def attempt(self, path: Path, digest: str) -> Iterator[None]:
        """Let other processes of a run know what is being measured, so that a file which killed one is not tried again.

        Each of a network's tests would kill one more worker. A process that is still there has killed nobody.
        """
        folder = None if self._run is None else self._folder
        if folder is None:
            yield
            return
        note = folder / f"{key_of({'path': str(path), 'file': digest})}.attempt"
        mine = f"{self._run} {socket.gethostname()} {os.getpid()}"
        try:
            earlier = note.read_text("utf-8").split()
        except OSError:
            earlier = []
        if earlier[:2] == mine.split()[:2] and earlier[2:] and not _is_there(earlier[2]):
            raise AuditError(f"{path}: not tried again: a worker of this run died while it measured this network")
        try:
            note.write_text(mine, "utf-8")
        except OSError as error:
            self._give_up(error)
        try:
            yield
        finally:
            note.unlink(missing_ok=True)

    @property
    def _folder(self) -> Path | None:
        """Where records are kept, made when the first one is asked for: a run without an audit leaves no folder."""
        if self._make_folder is None:
            return None
        try:
            return self._make_folder()
        except OSError as error:
            self._give_up(error)
            return None

    def _give_up(self, error: Exception) -> None:
        """Go on without files, and say so once."""
        self._make_folder = None
        self._warn(f"measurements are not kept for the next run: {error}")

    def _read(self, key: str) -> Parts:
        """The record as it is known, in this process and in the file that others may have written to."""
        record = self._memory.get(key, {})
        folder = self._folder
        if folder is not None:
            try:
                kept = json.loads((folder / f"{key}.json").read_text("utf-8"))
            except (OSError, ValueError):
                kept = {}
            record = {**(kept if isinstance(kept, dict) else {}), **record}
        self._memory[key] = record
        return record

    def _write(self, key: str, record: Parts) -> None:
        self._memory[key] = record
        folder = self._folder
        if folder is None:
            return
        try:
            write_atomically(folder / f"{key}.json", json.dumps(record, allow_nan=False))
        except OSError as error:
            self._give_up(error)

    @contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        folder = self._folder
        lock = None
        if folder is not None:
            from filelock import FileLock

            logging.getLogger("filelock").setLevel(logging.WARNING)  # its debug lines would show in captured logs
            try:
                lock = FileLock(folder / f"{key}.lock")
                lock.acquire()
            except (OSError, NotImplementedError) as error:  # the latter where a file system knows no locks
                self._give_up(error)
                lock = None
        try:
            yield
        finally:
            if lock is not None:
                lock.release()


def _is_there(process: str) -> bool:
    """Whether a process of this machine is still running; one that its parent has not asked for yet is dead all the same."""
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except OSError:
        return True  # somebody else's
    try:
        state = Path(f"/proc/{int(process)}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return True  # where there is no /proc, nobody can tell
    return state not in "ZX"


def _lacks(record: Parts, wanted: Sequence[str], usable: Callable[[str, Any], bool]) -> list[str]:
    """The parts that a record does not have, or not so that they can be used."""
    return [name for name in wanted if not usable(name, record.get(name))]
