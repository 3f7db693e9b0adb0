"""Checkpoint files: read without running code, and unpacked from the shapes that people save."""

from __future__ import annotations

import argparse
import re
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PosixPath
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from ..files import read_json
from ..judge.errors import AuditError
from ..judge.records import check_accuracy
from ..judge.words import one_line
from .names import convert, files_of, identify, parts_of
from .specs import add_cwd_to_path

STATE_KEYS = ("state_dict", "model_state_dict", "model", "net", "network")
CONFIG_KEYS = ("config", "hyper_parameters", "hparams", "args")
"""The keys under which people save how they trained; the second is Lightning's."""
PREFIXES = ("module.", "_orig_mod.")
"""What DataParallel and torch.compile put before the names of tensors."""
SMALL = 1 << 28
"""Bytes that a file may declare however small it is."""
RATIO = 100
"""How many times its own size a larger file may declare."""
PLAIN: list[Any] = [argparse.Namespace, PosixPath]
"""Classes of plain values, which people save as their options."""
DTYPES = {
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.complex64, torch.complex128),
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
}
"""The types of number that torch computes in."""


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of a trained network and what is known of their training."""

    path: Path
    state_dict: dict[str, Tensor]
    method: str
    seed: int | None
    config: Mapping[str, Any] = field(default_factory=dict)
    test_acc: float | None = None
    network: nn.Module | None = None
    """The network itself, where a whole one was pickled."""
    content: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """All that the file holds, under its own keys."""


def load_checkpoint(
    path: str | Path, *, unsafe: bool = False, state_key: str | None = None
) -> Checkpoint:
    """Read a checkpoint on the CPU; only ``unsafe`` lets its pickle run code.

    ``state_key`` says where its tensors are, if not where they usually are: ``agents.policy``.

    >>> load_checkpoint("runs/dfa_s42.pt").method
    'dfa'
    """
    path = Path(path)
    files = parts_of(path) or [path]
    content = read_tensors(files[0], unsafe=unsafe)
    for file in files[1:]:
        content = {**content, **read_tensors(file, unsafe=unsafe)}
    return checkpoint_of(content, path, state_key)


def checkpoint_of(content: Any, path: Path, state_key: str | None = None) -> Checkpoint:
    """The checkpoint that the content of a file is, in whichever of the usual shapes."""
    if isinstance(content, nn.Module):
        content = {"model": content}
    if not isinstance(content, Mapping):
        raise AuditError(f"{path}: expected a state_dict, got {type(content).__name__}")
    config = _config_of(content, path)
    if state_key is None:
        state, network = _state_of(content)
    else:
        state, network = _state_at(content, state_key, path)
    tensors = {unprefixed(name): tensor for name, tensor in state.items()}
    if not state or len(tensors) < len(state):
        names = ", ".join(map(repr, list(state or content)[:8])) or "nothing"
        places = f"bare or under {', '.join(STATE_KEYS)}"
        candidates = _state_keys(content)
        hint = f"; name them with --fa-state-key={candidates[0]}" if candidates else ""
        if len(candidates) > 1:
            hint += f" (or {', '.join(candidates[1:])})"
        raise AuditError(
            f"{path}: expected the tensors of one network, {places}; found {names}{hint}"
        )
    check_tensors(tensors, path)
    accuracy = content.get("test_acc")
    if accuracy is not None:
        accuracy = check_accuracy(accuracy, f"{path}: test_acc", "regression")
    method, seed = identify(path, config)
    return Checkpoint(path, tensors, method, seed, config, accuracy, network, content)


def _config_of(content: Mapping[Any, Any], path: Path) -> dict[str, Any]:
    """How the network was trained, as the file says, else the config.json of its folder."""
    config: dict[str, Any] = {}
    for file in files_of(path):
        if file.name == "config.json":
            config = convert(read_json(file), dict[str, Any], str(file))
    for key in reversed(CONFIG_KEYS):
        options = content.get(key)
        if isinstance(options, argparse.Namespace):
            options = vars(options)
        if isinstance(options, Mapping):
            config = dict(options)
            nested = options.get("config")  # save_hyperparameters() of a module with a config
            if isinstance(nested, Mapping):
                config.update(nested)
    return config


def _state_of(content: Mapping[Any, Any]) -> tuple[dict[str, Tensor], nn.Module | None]:
    """The tensors of the network, and the network itself where a whole one was pickled."""
    state: dict[str, Tensor] = {}
    network = None
    for value in (content, *(content.get(key) for key in reversed(STATE_KEYS))):
        items = value
        if isinstance(value, nn.Module):
            network = value
            items = value.state_dict()
        if isinstance(items, Mapping):
            tensors = {str(name): item for name, item in items.items() if isinstance(item, Tensor)}
            state = tensors or state
    return state, network


def _state_at(
    content: Mapping[Any, Any], state_key: str, path: Path
) -> tuple[dict[str, Tensor], nn.Module | None]:
    """The tensors below a key that the user names, and the network where one was pickled there."""
    value: Any = content
    for key in state_key.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    if isinstance(value, nn.Module):
        return _state_of({"model": value})
    if not isinstance(value, Mapping) or not _holds_tensors(value):
        candidates = ", ".join(_state_keys(content)) or "none"
        raise AuditError(f"{path}: no tensors at {state_key!r}; there are some at: {candidates}")
    return {str(name): item for name, item in value.items() if isinstance(item, Tensor)}, None


def _state_keys(content: Mapping[Any, Any], prefix: str = "", depth: int = 3) -> list[str]:
    """Where a file holds tensors by name: the keys that lead there, joined by dots."""
    keys = []
    for key, value in content.items():
        if isinstance(value, Mapping) and depth:
            if _holds_tensors(value):
                keys.append(f"{prefix}{key}")
            else:
                keys += _state_keys(value, f"{prefix}{key}.", depth - 1)
    return keys[:8]


def _holds_tensors(value: Mapping[Any, Any]) -> bool:
    return any(isinstance(item, Tensor) for item in value.values())


def unprefixed(name: str, prefixes: tuple[str, ...] = PREFIXES) -> str:
    """A tensor's name without what wrappers put before it, in whatever order."""
    while name.startswith(prefixes):
        name = name.partition(".")[2]
    return name


def check_size(declared: int, stored: int, what: str) -> None:
    """Refuse what a small file declares to be large, before memory is taken for it."""
    if declared > max(SMALL, RATIO * stored):
        raise AuditError(
            f"{what} declares {declared:,} bytes and holds {stored:,}; save it plainly"
        )


def check_archive(path: Path) -> None:
    """Refuse a zip archive that unpacks to far more than its size."""
    with zipfile.ZipFile(path) as archive:
        declared = sum(record.file_size for record in archive.infolist())
    check_size(declared, path.stat().st_size, str(path))


def check_tensors(tensors: Mapping[str, Any], path: Path) -> None:
    """Refuse tensors that hold no numbers, or repeat a few, before anything is computed."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            continue
        what = f"{path}: {one_line(name[:80])}"
        if tensor.is_meta or tensor.layout is not torch.strided or tensor.dtype not in DTYPES:
            kind = f"{tensor.dtype}, {tensor.layout}, device {tensor.device}"
            raise AuditError(
                f"{what}: expected a dense tensor of numbers, got {kind.replace('torch.', '')}"
            )
        check_size(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes(), what)


def read_tensors(path: Path, *, unsafe: bool = False) -> Any:
    """What a torch or safetensors file holds; only ``unsafe`` lets a pickle run code."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        if zipfile.is_zipfile(path):
            check_archive(path)
        if unsafe:
            add_cwd_to_path()
        with warnings.catch_warnings(), torch.serialization.safe_globals(PLAIN):
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=not unsafe)
    except AuditError:
        raise
    except FileNotFoundError as error:
        raise AuditError(f"{path}: no such file") from error
    except Exception as error:  # torch and safetensors report damage by many types
        raise AuditError(f"{path}: {_why_unreadable(error)}") from error


def _why_unreadable(error: Exception) -> str:
    name = re.search(r"GLOBAL (\S+)", str(error))
    if name:
        return (
            f"refused to load {name[1]}: only tensors and plain values are read, since a pickle "
            "can run code. Save plain values; for a checkpoint that you trust, add --fa-unsafe-load"
        )
    reason = str(error).partition("Weights only")[0][:200]
    return (
        "not a readable file of tensors: truncated, damaged or another format "
        f"({type(error).__name__}: {reason})"
    )
