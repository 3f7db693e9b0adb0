"""Checkpoint files: read without running code, and unpacked from the shapes that people save."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..judge.errors import AuditError
from ..judge.records import check_accuracy
from .identity import identify
from .tensorfiles import check_tensors, read_tensor_file

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
    content = read_tensor_file(path, unsafe=unsafe)
    if isinstance(content, nn.Module):
        content = content.state_dict()
    if not isinstance(content, Mapping):
        raise AuditError(f"{path}: holds a {type(content).__name__}, not a state_dict or a dictionary with one")
    config = content.get("config")
    config = dict(config) if isinstance(config, Mapping) else {}
    claimed = content.get("test_acc")
    method, seed = identify(path, config)
    state = _state_dict(content, path)
    check_tensors(state, path)
    return Checkpoint(
        path=path,
        state_dict=state,
        method=method,
        seed=seed,
        config=config,
        test_acc=None if claimed is None else check_accuracy(claimed, f"{path}: test_acc"),
        feedback=content.get("Bs"),
    )


def unprefixed(name: str) -> str:
    """A parameter's own name, without what DataParallel and torch.compile put before it, in whatever order."""
    while name.startswith(PREFIXES):
        name = name.removeprefix("module.").removeprefix("_orig_mod.")
    return name


def _state_dict(content: Mapping[Any, Any], path: Path) -> dict[str, Tensor]:
    """The tensors under one of the usual keys, else those of the dictionary itself, by their unprefixed names."""
    held = (content.get(key) for key in STATE_KEYS)
    states = [state.state_dict() if isinstance(state, nn.Module) else state for state in held]
    for state in [state for state in states if isinstance(state, Mapping)] + [content]:
        tensors = {str(name): value for name, value in state.items() if isinstance(value, Tensor)}
        names = {unprefixed(name): name for name in tensors}
        if len(names) < len(tensors):
            twice = next(name for name in tensors if names[unprefixed(name)] != name)
            raise AuditError(
                f"{path}: holds both {twice} and {names[unprefixed(twice)]}, which name one tensor; save one network per file"
            )
        if tensors:
            return {own: tensors[name] for own, name in names.items()}
    found = ", ".join(map(repr, list(content)[:8])) or "nothing"
    raise AuditError(f"{path}: no tensors found; expected a state_dict, or one under {', '.join(STATE_KEYS)}; found {found}")
