"""The file of a recorder: whole lines whatever happens to the process, and resumption; free of torch."""

from __future__ import annotations

import json
import math
import os
import warnings
from pathlib import Path
from typing import Any

from ..judge.codec import parse_json, to_plain
from ..judge.errors import AuditError
from ..judge.files import write_atomically
from ..judge.records import BATCH
from .logformats import FORMAT_VERSION, RECORDER

BEGINNING = f'{{"recorder":"{RECORDER}"'.encode()

NO_FILE = (0, 0, 0)
LAST = 1 << 16
"""How many bytes at the end of a log are looked at to see what its last line has."""


class Recording:
    """A log on disk, one JSON object a line behind a header; only what one call writes can ever be cut."""

    def __init__(self, path: Path, config: dict[str, Any], method: str | None, seed: int | None, digits: int | None) -> None:
        self.path, self.digits = path, digits
        self.left, self.cut, self.found = NO_FILE, b"", b""
        self.entries: list[tuple[int, bytes]] = []
        self.written: int | None = None
        head = {"recorder": RECORDER, "format_version": FORMAT_VERSION, "config": config, "method": method, "seed": seed}
        self.header = _line({**head, "batch": BATCH}, default=str)
        self._look()

    def write(self, entry: dict[str, Any]) -> None:
        """Add one epoch, in place of itself and of later ones that an earlier run left there."""
        self.check_forward(entry["epoch"])
        line, epoch = _line(_rounded(to_plain(entry), self.digits)), entry["epoch"]
        try:
            self._check_unchanged()
            kept = [(earlier, text) for earlier, text in self.entries if earlier < epoch]
            if kept:
                self._check_same_run()
            later = [earlier for earlier, _ in self.entries if earlier > epoch]
            if not self.cut and self.found == self.header and len(kept) == len(self.entries):
                self._append(line)
            else:
                self._replace(self.header + b"".join(text for _, text in kept) + line)
        except OSError as error:
            raise AuditError(f"the log cannot be written: {error.strerror or error}\n  {self.path}") from error
        self.found, self.cut, self.entries = self.header, b"", [*kept, (epoch, line)]
        self.left = self._on_disk()
        self.written = epoch
        if later:
            span = f"epoch {later[0]} is" if len(later) == 1 else f"epochs {later[0]} to {later[-1]} ({len(later)}) are"
            said = f"the log goes on with epoch {epoch}: {span} dropped from it, which an earlier run recorded"
            warnings.warn(f"{said}\n  {self.path}", stacklevel=3)

    def check_forward(self, epoch: int) -> None:
        """A recorder that goes back would drop what it recorded itself: that is a slip in the training's loop."""
        if self.written is not None and epoch < self.written:
            raise AuditError(
                f"epoch {epoch} comes after epoch {self.written}, which this recorder has recorded; count epochs upwards, "
                f"or go on with a new Recorder from a checkpoint of epoch {epoch}\n  {self.path}"
            )

    def _look(self) -> None:
        """Take note of what is there; a file that no recorder wrote is left alone."""
        try:
            self.left = self._on_disk()  # before its content: what changes in between is noticed
            content = self.path.read_bytes() if self.path.exists() else b""
        except OSError as error:
            raise AuditError(f"the log cannot be read: {error.strerror or error}\n  {self.path}") from error
        lines = [line for line in content.splitlines(keepends=True) if line.endswith(b"\n")]
        self.cut = content[sum(map(len, lines)) :]
        self.found = lines[0] if lines else b""
        try:
            ours = content.startswith(BEGINNING) or BEGINNING.startswith(content)  # the latter: cut while it began
            self.entries = [(int(parse_json(line)["epoch"]), line) for line in lines[1:]]
        except (ValueError, KeyError, TypeError):
            ours = False
        if not ours:
            raise AuditError(
                f"there is a file already that is no recorder's log, and it is not overwritten; name another\n  {self.path}"
            )

    def _check_same_run(self) -> None:
        """Epochs of one run do not continue those of another; a config may change on the way, as with more epochs to train."""
        theirs, ours = (_identity(parse_json(header)) for header in (self.found, self.header))
        if theirs != ours:
            raise AuditError(
                f"the log is of {_named(theirs)}, and this is {_named(ours)}; record from its first epoch on to replace it, or "
                f"name another file\n  {self.path}"
            )

    def _check_unchanged(self) -> None:
        """Two recorders on one file would each drop what the other recorded; a file that was removed is begun anew."""
        if self._on_disk() == self.left:
            return
        known, own = self._content(), dict(vars(self))
        self._look()
        if self._content() not in (known, b""):
            vars(self).update(own)  # trying once more is refused too
            raise AuditError(
                "the log was changed while this recorder was at work: another recorder, or another program, writes to the same "
                f"file; give each training a log of its own\n  {self.path}"
            )

    def _content(self) -> bytes:
        return b"".join([self.found, *(text for _, text in self.entries), self.cut])

    def _on_disk(self) -> tuple[int, int, int]:
        """What tells whether somebody else wrote to the file: its size, its time and which file it is."""
        if not self.path.exists():
            return NO_FILE
        status = self.path.stat()
        return status.st_size, status.st_mtime_ns, status.st_ino

    def _append(self, line: bytes) -> None:
        """One write of the whole line, on the disk when this returns: a crash leaves it or leaves it out."""
        with self.path.open("ab", buffering=0) as file:
            file.write(line)
            os.fsync(file.fileno())

    def _replace(self, content: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, content, durable=True)


def records_credit(path: Path) -> bool:
    """Whether the last line of a recorder's log has Γ; whatever else a file is, it has none."""
    try:
        with path.open("rb") as file:
            if file.read(len(BEGINNING)) != BEGINNING:
                return False
            file.seek(max(0, file.seek(0, os.SEEK_END) - LAST))
            lines = file.read().splitlines()
    except OSError:
        return False
    return bool(lines) and b'"credit":{' in lines[-1]


def _identity(header: dict[str, Any]) -> tuple[Any, Any]:
    config = header.get("config") or {}
    method, seed = ((header.get(key) if header.get(key) is not None else config.get(key)) for key in ("method", "seed"))
    return method, seed


def _named(identity: tuple[Any, Any]) -> str:
    method, seed = identity
    return f"{'no named method' if method is None else method}{'' if seed is None else f', seed {seed}'}"


def _line(value: Any, default: Any = None) -> bytes:
    try:
        return json.dumps(to_plain(value), separators=(",", ":"), allow_nan=False, default=default).encode() + b"\n"
    except (TypeError, ValueError) as error:
        raise AuditError(f"cannot be written to a log as JSON: {error}") from error


def _rounded(value: Any, digits: int | None) -> Any:
    """Fewer digits where a log is to stay small, or the same whatever the order of a summation; all of them otherwise."""
    if digits is None:
        return value
    if isinstance(value, dict):
        return {key: _rounded(item, digits) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item, digits) for item in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) and math.isfinite(value) else value
