"""Checkpoint files: read without running code, and unpacked from the shapes that people save."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..judge.errors import AuditError
from ..judge.records import check_accuracy
from .huggingface import config_of, parts_of
from .identity import identify
from .names import unprefixed
from .tensorfiles import check_tensors, read_tensor_file

SUFFIXES = (".pt", ".pth", ".ckpt", ".safetensors")
STATE_KEYS = ("state_dict", "model_state_dict", "model", "net", "network")
CONFIG_KEYS = ("config", "hyper_parameters", "hparams", "args")
"""Under what people save how they trained; the second is Lightning's."""


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of a trained network and what is known of their training."""

    path: Path
    state_dict: dict[str, Tensor]
    method: str
    seed: int | None
    config: Mapping[str, Any] = field(default_factory=dict)
    test_acc: float | None = None
    feedback: object = None
    """``Bs``, the feedback matrices that were used, or ``None`` where none were saved."""
    network: nn.Module | None = None
    """The network itself, where a whole one was pickled."""
    content: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """All that the file holds, under its own keys."""

    @property
    def other_weights(self) -> tuple[str, ...]:
        """The keys under which the file holds tensors of the same names that are others, such as an average over steps."""
        held = {key: value for key, value in self.content.items() if isinstance(value, Mapping)}
        return tuple(str(key) for key, value in held.items() if self._differs(value))

    def _differs(self, held: Mapping[Any, Any]) -> bool:
        tensors = {unprefixed(str(name)): value for name, value in held.items() if isinstance(value, Tensor)}
        if not self.state_dict.keys() <= tensors.keys():
            return False
        pairs = ((value, tensors[name]) for name, value in self.state_dict.items())
        return any(
            one is not other and (one.shape != other.shape or one.dtype != other.dtype or not bool((one == other).all()))
            for one, other in pairs
        )


def load_checkpoint(path: str | Path, *, unsafe: bool = False) -> Checkpoint:
    """Read a checkpoint on the CPU; only ``unsafe`` lets its pickle run code."""
    return checkpoint_of(read_content(Path(path), unsafe=unsafe), Path(path))


def read_content(path: Path, *, unsafe: bool) -> Any:
    """What a torch or safetensors file holds, or the files together that one checkpoint was cut into."""
    return _read_parts(path, unsafe=unsafe) if parts_of(path) else read_tensor_file(path, unsafe=unsafe)


def checkpoint_of(content: Any, path: Path) -> Checkpoint:
    """The checkpoint that the content of a file is, in whichever of the usual shapes."""
    if isinstance(content, Checkpoint):
        return content
    if isinstance(content, nn.Module):
        content = {"model": content}
    if not isinstance(content, Mapping):
        raise AuditError(f"{path}: holds a {type(content).__name__}, not a state_dict or a dictionary with one")
    config = _config(content, path)
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
        network=next((unwrapped(held) for key in STATE_KEYS if isinstance(held := content.get(key), nn.Module)), None),
        content=content,
    )


def unwrapped(network: nn.Module) -> nn.Module:
    """A network without what DataParallel and torch.compile put around it."""
    inner = getattr(network, "_orig_mod", None)
    if isinstance(network, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        inner = network.module
    return unwrapped(inner) if isinstance(inner, nn.Module) else network


def _config(content: Mapping[Any, Any], path: Path) -> dict[str, Any]:
    """What is known of the training: under one of the usual keys, else from the config.json of a Hugging Face folder."""
    for key in CONFIG_KEYS:
        held = content.get(key)
        held = vars(held) if isinstance(held, argparse.Namespace) else held
        if isinstance(held, Mapping):
            inner = held.get("config")  # save_hyperparameters() of a module that takes a config
            return {**held, **(inner if isinstance(inner, Mapping) else {})}
    return config_of(path)


def _read_parts(path: Path, *, unsafe: bool) -> dict[str, Any]:
    """The tensors of all the files that an index names."""
    tensors: dict[str, Any] = {}
    for part in parts_of(path):
        held = read_tensor_file(part, unsafe=unsafe)
        if not isinstance(held, Mapping):
            raise AuditError(f"{part}: holds a {type(held).__name__}, not a part of the network of {path.name}")
        tensors.update(held)
    return tensors


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
