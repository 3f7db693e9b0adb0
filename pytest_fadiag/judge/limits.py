"""How much of a file is taken: what is larger is an error before memory or time is spent on it."""

from __future__ import annotations

from pathlib import Path

from .errors import AuditError

MOST_LAYERS = 10_000
"""States of a stream."""
MOST_ENTRIES = 5_000
"""Epochs of a log that are judged; of more, evenly chosen ones are, and the report says so."""
LARGEST_JSON = 256 << 20
"""Bytes of an audit, a record or a control: ten thousand rows have less than half of it."""
LARGEST_LOG = 2 << 30
"""Bytes of a training log."""


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a file that has at most so many bytes; a device without an end has more."""
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise AuditError(f"has more than {most >> 20:,} MB, and no more is read\n  {path}")
    return content
