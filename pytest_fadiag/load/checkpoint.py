"""Checkpoint files: read without running code, and unpacked from the shapes that people save."""

from __future__ import annotations

import argparse
import io
import re
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PosixPath
from typing import Any

import torch
from safetensors.torch import load
from torch import Tensor, nn

from ..files import read_json
from ..judge.errors import AuditError
from ..judge.records import check_accuracy
from ..judge.words import one_line
from .names import files_of, identify, read_files
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
SAVE = "save the tensors and a few plain values"
PICKLE = 4 << 20
"""Bytes of the pickle in an archive, or of a safetensors header; the tensors are not part of it."""
MOST_ENTRIES = 1_000_000
DEEPEST = 100
"""How many entries a file may hold, and in how many levels."""
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
    path: str | Path,
    *,
    unsafe: bool = False,
    state_key: str | None = None,
    digest: str | None = None,
) -> Checkpoint:
    """Read a checkpoint on the CPU; only ``unsafe`` lets its pickle run code.

    ``state_key`` says where its tensors are, if not where they usually are: ``agents.policy``.
    A file whose bytes have another ``digest`` is refused.

    >>> load_checkpoint("runs/dfa_s42.pt").method
    'dfa'
    """
    path = Path(path)
    content: Any = None
    for file, stored in read_files(files_of(path), digest).items():
        if file.name == "config.json":
            part: Any = {"config": read_json(file, stored)}
        elif file.name.endswith(".index.json"):
            continue
        else:
            part = tensors_of(stored, file, unsafe=unsafe)
        if content is None:
            content = part
        elif isinstance(content, Mapping) and isinstance(part, Mapping):
            content = {**part, **content}
    return checkpoint_of(content, path, state_key)


def checkpoint_of(content: Any, path: Path, state_key: str | None = None) -> Checkpoint:
    """The checkpoint that the content of a file is, in whichever of the usual shapes."""
    if isinstance(content, nn.Module):
        content = {"model": content}
    if not isinstance(content, Mapping):
        raise AuditError(f"{path}: expected a state_dict, got {type(content).__name__}")
    config = _config_of(content)
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


def _config_of(content: Mapping[Any, Any]) -> dict[str, Any]:
    """How the network was trained, as the file says, else the config.json of its folder."""
    config: dict[str, Any] = {}
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
        state = _tensors_in(items) or state
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
    state = _tensors_in(value)
    if not state:
        candidates = ", ".join(_state_keys(content)) or "none"
        raise AuditError(f"{path}: no tensors at {state_key!r}; there are some at: {candidates}")
    return state, None


def _state_keys(content: Mapping[Any, Any], prefix: str = "", depth: int = 3) -> list[str]:
    """Where a file holds tensors by name: the keys that lead there, joined by dots."""
    keys = []
    for key, value in content.items():
        if isinstance(value, Mapping) and depth:
            if _tensors_in(value):
                keys.append(f"{prefix}{key}")
            else:
                keys += _state_keys(value, f"{prefix}{key}.", depth - 1)
    return keys[:8]


def _tensors_in(value: Any) -> dict[str, Tensor]:
    """The tensors of a mapping by name; none of anything else."""
    if not isinstance(value, Mapping):
        return {}
    return {str(name): item for name, item in value.items() if isinstance(item, Tensor)}


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


def check_archive(content: bytes, path: Path) -> None:
    """Refuse a zip archive that unpacks to far more than its size, or whose checksums are wrong."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        records = archive.infolist()
        check_size(sum(record.file_size for record in records), len(content), str(path))
        for record in records:
            if record.filename.endswith(".pkl") and record.file_size > PICKLE:
                raise AuditError(f"{path}: its pickle is larger than {PICKLE >> 20} MB; {SAVE}")
        damaged = archive.testzip()
    if damaged:
        raise zipfile.BadZipFile(f"wrong checksum of {damaged}")


def check_entries(content: Any, path: Path) -> None:
    """Refuse lists and mappings that hold too much, a shared one counted each time it occurs."""
    entries = 0
    level = [content]
    for _ in range(DEEPEST):
        values: list[Any] = []
        for value in level:
            if isinstance(value, argparse.Namespace):
                values.append(vars(value))
            elif isinstance(value, (Mapping, list, tuple, set)):
                entries += len(value)
                if entries > MOST_ENTRIES:
                    raise AuditError(f"{path}: more than {MOST_ENTRIES:,} entries; {SAVE}")
                values.extend(value)
                if isinstance(value, Mapping):
                    values.extend(value.values())
        level = values
    if level:
        raise AuditError(f"{path}: more than {DEEPEST} levels of lists; {SAVE}")


def check_tensors(tensors: Mapping[str, Any], path: Path) -> None:
    """Refuse tensors that hold no numbers, or repeat a few, before anything is computed."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            continue
        what = f"{path}: {one_line(name[:80])}"
        is_dense = tensor.layout is torch.strided and not (tensor.is_meta or tensor.is_nested)
        if not is_dense or tensor.dtype not in DTYPES:
            kind = f"{tensor.dtype}, {tensor.layout}, device {tensor.device}"
            raise AuditError(
                f"{what}: expected a dense tensor of numbers, got {kind.replace('torch.', '')}"
            )
        check_size(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes(), what)


class _Pickled(io.BytesIO):
    """Bytes that are read in so many pieces at most: an old file is a pickle of any length."""

    pieces = 0

    def read(self, size: int | None = -1) -> bytes:
        self.pieces += 1
        if self.pieces > MOST_ENTRIES:
            raise AuditError(f"more than {MOST_ENTRIES:,} entries; {SAVE}")
        return super().read(size)


def tensors_of(content: bytes, path: Path, *, unsafe: bool = False) -> Any:
    """What a torch or safetensors file holds; only ``unsafe`` lets a pickle run code."""
    try:
        if path.suffix == ".safetensors":
            if PICKLE < int.from_bytes(content[:8], "little") < len(content):
                raise AuditError(f"{path}: its header is larger than {PICKLE >> 20} MB; {SAVE}")
            return load(content)
        if zipfile.is_zipfile(io.BytesIO(content)):
            check_archive(content, path)
        if unsafe:
            add_cwd_to_path()
        with warnings.catch_warnings(), torch.serialization.safe_globals(PLAIN):
            warnings.simplefilter("ignore")
            file = _Pickled(content)
            values = torch.load(file, map_location="cpu", weights_only=not unsafe)
        check_entries(values, path)
        return values
    except AuditError:
        raise
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
