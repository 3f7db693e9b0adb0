"""Fixtures of the tests that read files: a checkpoint to write, and a pickle that would leave a trace."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support import clustered, network

Save = Callable[..., Path]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Write a checkpoint of a small ResidualMLP, or of the content given, under a name."""

    def written(name: str = "dfa_s42.pt", content: Any = None, **extras: Any) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save({"state_dict": network().state_dict(), **extras} if content is None else content, path)
        return path

    return written


@pytest.fixture
def archive(tmp_path: Path) -> str:
    """Data for the small network, as a SPEC: two full batches and a rest."""
    x, y = clustered(300)
    path = tmp_path / "data.pt"
    torch.save({"x": x, "y": y}, path)
    return str(path)


class Trace:
    """An object whose unpickling makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return Trace(tmp_path / "it-ran")
