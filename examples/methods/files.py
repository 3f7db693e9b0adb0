"""What a run writes besides its log: the checkpoint and the state to resume from, each whole."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import torch


def save(content: dict[str, Any], path: Path) -> None:
    """Write a torch file in one step; equal contents give equal bytes, whatever the file is called."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    replace(path, buffer.getvalue())


def replace(path: Path, content: bytes) -> None:
    """Put a complete file in the place of ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def partial_path(out: Path) -> Path:
    """The state of an unfinished run."""
    return out.with_name(out.name + ".partial")


def log_path(out: Path) -> Path:
    """The log of a run, as the recorder writes it: one JSON object a line, one line an epoch."""
    return out.with_name(out.name + ".log.jsonl")
