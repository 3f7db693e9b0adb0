"""Files to read: a checkpoint, a module of the user's, and a pickle that would leave a trace."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support import network

Save = Callable[..., Path]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Write a checkpoint of a small ResidualMLP with extras, or the content given, under a name."""

    def written(name: str = "dfa_s42.pt", content: Any = None, **extras: Any) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = {"state_dict": network().state_dict(), **extras} if content is None else content
        torch.save(whole, path)
        return path

    return written


@pytest.fixture
def write(tmp_path: Path) -> Save:
    """Write text or bytes as they are, a list as JSON lines, anything else as JSON."""

    def written(content: Any, name: str = "dfa_s42.json") -> Path:
        path = tmp_path / name
        lines = [json.dumps(line) for line in content] if isinstance(content, list) else []
        text = "".join(f"{line}\n" for line in lines) if lines else content
        text = text if isinstance(text, (str, bytes)) else json.dumps(text)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return written


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Write a module into the working folder, where a paper's package usually is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    names = iter(range(1000))

    def written(source: str) -> str:
        name = f"paper_{abs(hash(tmp_path))}_{next(names)}"
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(source))
        return name

    return written


class Trace:
    """An object whose unpickling makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return Trace(tmp_path / "it-ran")
