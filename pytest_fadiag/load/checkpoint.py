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
from .specs import look_here

STATE_KEYS = ("state_dict", "model_state_dict", "model", "net", "network")
CONFIG_KEYS = ("config", "hyper_parameters", "hparams", "args")
"""Under what people save how they trained; the second is Lightning's."""
PREFIXES = ("module.", "_orig_mod.")
"""What DataParallel and torch.compile put before the names of a network."""
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
"""Those that torch computes in."""


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


def load_checkpoint(path: str | Path, *, unsafe: bool = False) -> Checkpoint:
    """Read a checkpoint on the CPU; only ``unsafe`` lets its pickle run code.

    >>> load_checkpoint("runs/dfa_s42.pt").method
    'dfa'
    """
    path = Path(path)
    held = [read_tensors(part, unsafe=unsafe) for part in parts_of(path) or [path]]
    whole = {name: value for part in held for name, value in part.items()} if held[1:] else held[0]
    return checkpoint_of(whole, path)


def checkpoint_of(content: Any, path: Path) -> Checkpoint:
    """The checkpoint that the content of a file is, in whichever of the usual shapes."""
    content = {"model": content} if isinstance(content, nn.Module) else content
    if not isinstance(content, Mapping):
        raise AuditError(f"{path}: expected a state_dict, got {type(content).__name__}")
    beside = [file for file in files_of(path) if file.name == "config.json"]
    config = convert(read_json(beside[0]), dict[str, Any], str(beside[0])) if beside else {}
    for value in (content.get(key) for key in reversed(CONFIG_KEYS)):
        held = vars(value) if isinstance(value, argparse.Namespace) else value
        if isinstance(held, Mapping):
            inner = held.get("config")  # save_hyperparameters() of a module that takes a config
            config = {**held, **(inner if isinstance(inner, Mapping) else {})}
    state: dict[str, Tensor] = {}
    network = None
    for value in (content, *(content.get(key) for key in reversed(STATE_KEYS))):
        network = value if isinstance(value, nn.Module) else network
        held = value.state_dict() if isinstance(value, nn.Module) else value
        if isinstance(held, Mapping):
            state = {str(k): own for k, own in held.items() if isinstance(own, Tensor)} or state
    named = {unprefixed(name): value for name, value in state.items()}
    if not state or len(named) < len(state):
        found = ", ".join(map(repr, list(state or content)[:8])) or "nothing"
        where = f"bare or under {', '.join(STATE_KEYS)}"
        raise AuditError(f"{path}: expected the tensors of one network, {where}; found {found}")
    check_tensors(named, path)
    claimed = content.get("test_acc")
    claimed = (
        None if claimed is None else check_accuracy(claimed, f"{path}: test_acc", "regression")
    )
    return Checkpoint(path, named, *identify(path, config), config, claimed, network, content)


def unprefixed(name: str, prefixes: tuple[str, ...] = PREFIXES) -> str:
    """A tensor's own name, without what wrappers put before it, in whatever order."""
    while name.startswith(prefixes):
        name = name.partition(".")[2]
    return name


def check_size(declared: int, held: int, what: str) -> None:
    """Refuse what a small file declares to be large, before memory is taken for it."""
    if declared > max(SMALL, RATIO * held):
        raise AuditError(f"{what} declares {declared:,} bytes and holds {held:,}; save it plainly")


def check_archive(path: Path) -> None:
    """The same for a zip archive."""
    with zipfile.ZipFile(path) as archive:
        check_size(
            sum(record.file_size for record in archive.infolist()), path.stat().st_size, str(path)
        )


def check_tensors(tensors: Mapping[str, Any], path: Path) -> None:
    """Refuse tensors that hold no numbers, or repeat a few, before anything is computed."""
    for name, tensor in tensors.items():
        if isinstance(tensor, Tensor):
            what = f"{path}: {one_line(name[:80])}"
            if tensor.is_meta or tensor.layout is not torch.strided or tensor.dtype not in DTYPES:
                kind = f"{tensor.dtype}, {tensor.layout}, device {tensor.device}".replace(
                    "torch.", ""
                )
                raise AuditError(f"{what}: expected a dense tensor of numbers, got {kind}")
            check_size(
                tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes(), what
            )


def read_tensors(path: Path, *, unsafe: bool = False) -> Any:
    """What a torch or safetensors file holds; only ``unsafe`` lets a pickle run code."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        if zipfile.is_zipfile(path):
            check_archive(path)
        if unsafe:
            look_here()
        with warnings.catch_warnings(), torch.serialization.safe_globals(PLAIN):
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=not unsafe)
    except AuditError:
        raise
    except FileNotFoundError as error:
        raise AuditError(f"{path}: no such file") from error
    except Exception as error:  # torch and safetensors report damage by many types
        refused = re.search(r"GLOBAL (\S+)", str(error))
        said = (
            f"refused to load {refused[1]}: only tensors and plain values are read, since a pickle "
            "can run code. Save plain values; for a checkpoint that you trust, add --fa-unsafe-load"
            if refused
            else "not a readable file of tensors: truncated, damaged or another format "
            f"({type(error).__name__}: {str(error).partition('Weights only')[0][:200]})"
        )
        raise AuditError(f"{path}: {said}") from error
