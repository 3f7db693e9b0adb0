"""What a run writes: checkpoint, log and the state to resume from; nobody ever sees half a file."""

from __future__ import annotations

import io
import json
import math
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
    """The log of a run: one JSON object a line, one line an epoch."""
    return out.with_name(out.name + ".log.jsonl")


def append_log(out: Path, entry: dict[str, Any]) -> None:
    """Add one epoch to the log."""
    path = log_path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(_rounded(entry), separators=(",", ":")) + "\n")


def truncate_log(out: Path, epoch: int) -> None:
    """Drop what was logged after ``epoch``: a run that resumes there will log it again."""
    path = log_path(out)
    if path.exists():
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if line.endswith("\n") and json.loads(line)["epoch"] <= epoch]
        replace(path, "".join(kept).encode())


def _rounded(value: Any) -> Any:
    """Five significant digits, which another order of summation leaves alone; what is not finite becomes its name."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else str(value)
    return value
