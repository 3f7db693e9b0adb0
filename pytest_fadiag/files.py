"""Files: read up to a bound, written whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from .judge.errors import AuditError

LARGEST_JSON = 256 << 20
"""Bytes of an audit, a record or a log that are read."""


def read_bytes(path: Path, most: int = LARGEST_JSON) -> bytes:
    """The content of a file of at most so many bytes."""
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise AuditError(f"{path}: larger than {most >> 20:,} MB")
    return content


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


def read_json(path: Path) -> Any:
    """The JSON of a file."""
    try:
        return parse_json(read_bytes(path))
    except (OSError, ValueError, RecursionError) as error:
        raise AuditError(f"{path}: cannot be read as JSON: {error}") from error


def write_atomically(path: Path, content: str | bytes) -> None:
    """Put a whole file in the place of another, or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        os.chmod(name, path.stat().st_mode & 0o777 if path.exists() else 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
