"""Files: checked before they are read, written whole or not at all."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

from .judge.errors import AuditError

LARGEST = 16 << 30
"""Bytes of a file that is read."""
LARGEST_TEXT = 64 << 20
"""The same of an audit, a record or a log."""
MOST_ENTRIES = 6_000_000
"""Commas, brackets and lines of these."""


def check_file(path: Path, most: int = LARGEST) -> os.stat_result:
    """Refuse what is not a regular file of at most so many bytes: a pipe or a device has no end."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise AuditError(f"{path}: expected a regular file")
    if status.st_size > most:
        raise AuditError(f"{path}: larger than {most >> 20:,} MB")
    return status


def read_bytes(path: Path, most: int = LARGEST) -> bytes:
    """The content of a file that passes :func:`check_file`."""
    check_file(path, most)
    return path.read_bytes()


def text_of(content: bytes) -> str:
    """The text of an audit, a record or a log that has not too many entries."""
    entries = sum(map(content.count, b",[{\n"))
    if entries > MOST_ENTRIES:
        raise AuditError(f"{entries:,} entries; at most {MOST_ENTRIES:,}")
    return content.decode("utf-8-sig")


def parse_json(text: str | bytes) -> Any:
    """JSON in which no key occurs twice in one object."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, value in pairs:
            if key in values:
                raise AuditError(f"duplicate key {key!r:.60}")
            values[key] = value
        return values

    return json.loads(text, object_pairs_hook=unique)


def read_json(path: Path, content: bytes | None = None) -> Any:
    """The JSON of a file, or of its content where that was read."""
    try:
        if content is None:
            content = read_bytes(path, LARGEST_TEXT)
        return parse_json(text_of(content))
    except (OSError, ValueError, RecursionError) as error:
        raise AuditError(f"{path}: cannot be read as JSON: {error}") from error


def write_atomically(path: Path, content: str | bytes) -> None:
    """Put a whole file in the place of another, or nothing."""
    if isinstance(content, str):
        content = content.encode(errors="backslashreplace")
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(name, path.stat().st_mode & 0o777 if path.exists() else 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
