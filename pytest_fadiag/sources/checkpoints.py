"""Checkpoint files: read without running code, and unpacked from the shapes that people save."""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..protocol.errors import AuditError
from ..protocol.measurement import check_accuracy
from .identity import identify

SUFFIXES = (".pt", ".pth", ".ckpt", ".safetensors")
STATE_KEYS = ("state_dict", "model_state_dict", "model")
PREFIXES = ("module.", "_orig_mod.")


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of a trained network and what is known of their training."""

    path: Path
    state_dict: dict[str, Tensor]
    method: str
    seed: int | None
    config: Mapping[str, Any] = field(default_factory=dict)
    test_acc: float | None = None
    feedback: Any = None
    """``Bs``, the feedback matrices that were used, or ``None`` where none were saved."""


def load_checkpoint(path: str | Path, *, unsafe: bool = False) -> Checkpoint:
    """Read a checkpoint on the CPU; only ``unsafe`` lets its pickle run code."""
    path = Path(path)
    content = read_file(path, unsafe=unsafe)
    if isinstance(content, torch.nn.Module):
        content = content.state_dict()
    if not isinstance(content, Mapping):
        raise AuditError(f"{path}: holds {type(content).__name__}, not a state_dict or a dictionary with one")
    state = next((content[key] for key in STATE_KEYS if isinstance(content.get(key), Mapping)), content)
    tensors = {_unprefixed(str(name)): value for name, value in state.items() if isinstance(value, Tensor)}
    if not tensors:
        found = ", ".join(map(repr, list(content)[:8])) or "nothing"
        raise AuditError(
            f"{path}: no tensors found; expected a state_dict, or one under {', '.join(STATE_KEYS)}; found {found}"
        )
    config = content.get("config") if isinstance(content.get("config"), Mapping) else {}
    claimed = content.get("test_acc")
    method, seed = identify(path, config)
    return Checkpoint(
        path=path,
        state_dict=tensors,
        method=method,
        seed=seed,
        config=dict(config or {}),
        test_acc=None if claimed is None else check_accuracy(claimed, f"{path}: test_acc"),
        feedback=content.get("Bs"),
    )


def read_file(path: Path, *, unsafe: bool = False) -> Any:
    """The contents of a torch or safetensors file, or an error that says what the file is instead."""
    if path.is_dir():
        raise AuditError(f"{path}: is a directory, not a checkpoint file")
    if not path.is_file():
        raise AuditError(f"{path}: no such file")
    if path.stat().st_size == 0:
        raise AuditError(f"{path}: the file is empty")
    return _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path, unsafe=unsafe)


def _read_torch(path: Path, *, unsafe: bool) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=not unsafe)
    except pickle.UnpicklingError as error:
        refused = _refused_class(str(error))
        if refused:
            raise AuditError(
                f"{path}: refused to load {refused}: only tensors and plain values are read, since a pickle can run code. "
                "If you trust this file, load it with --fa-unsafe-load; better, save its state_dict and plain values"
            ) from error
        raise AuditError(_damaged(path)) from error
    except Exception as error:  # torch reports damage by many types: RuntimeError, EOFError, KeyError, ValueError …
        raise AuditError(_damaged(path)) from error


def _refused_class(text: str) -> str:
    """The class that a weights-only load names in its refusal."""
    named = re.search(r"(?:GLOBAL|Unsupported class|Unsupported global:.*?) ([\w.]+)(?: was not| )", text) or re.search(
        r"Trying to instantiate unsupported object of type ([\w.]+)|Unsupported operand.*?([\w.]+)", text
    )
    return next((group for group in named.groups() if group), "") if named else ""


def _damaged(path: Path) -> str:
    start = path.open("rb").read(512)
    if start.startswith(b"PK"):
        kind = "the archive is truncated or damaged; copy it again from where it was trained"
    elif start.isascii() and all(byte >= 32 or byte in b"\t\r\n\f" for byte in start):
        kind = "this is a text file"
    else:
        kind = "the file is truncated, damaged, or of another format"
    return f"{path}: not a readable torch checkpoint: {kind}"


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors: dict[str, Tensor] = load_file(path, device="cpu")
    except (SafetensorError, OSError, ValueError) as error:
        raise AuditError(f"{path}: not a readable safetensors file: {error}") from error
    return tensors


def _unprefixed(name: str) -> str:
    """A parameter's own name, without what DataParallel and torch.compile put before it, in whatever order."""
    while name.startswith(PREFIXES):
        name = name.removeprefix("module.").removeprefix("_orig_mod.")
    return name
