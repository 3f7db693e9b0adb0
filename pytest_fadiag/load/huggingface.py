"""Folders as Hugging Face's Trainer writes them: one network, its config, and files that are no networks; free of torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..judge.codec import parse_json
from ..judge.errors import AuditError
from ..judge.limits import read_bytes

MODELS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
"""The network of such a folder, the first of these that is there; an index names the files that it is divided into."""
BESIDE = ("config.json", "trainer_state.json", "training_args.bin", "optimizer.pt")
"""What tells such a folder from one in which a network happens to be called model.safetensors."""
INDEX = ".index.json"
LARGEST = 64 << 20
"""Bytes of JSON that no config and no index needs."""
_NO_NETWORK = re.compile(r"(?:optimizer|scheduler|scaler|rng_state|training_args)(?:_\w+)?\.(?:pt|pth|bin)")


def is_network(path: Path) -> bool:
    """Whether a file may hold a network, by its name: the states of optimizers, schedulers and random numbers do not."""
    return _NO_NETWORK.fullmatch(path.name) is None


def model_file(folder: Path) -> Path | None:
    """The network in a folder of this kind; nothing where it is another kind of folder."""
    model = next((folder / name for name in MODELS if (folder / name).is_file()), None)
    return model if model is not None and any((folder / name).exists() for name in BESIDE) else None


def files_of(path: Path) -> list[Path]:
    """All files that make up a checkpoint: itself, the parts that an index names, and the config beside them."""
    if path.name not in MODELS:
        return [path]
    config = path.with_name("config.json")
    return [path, *(part for part in parts_of(path) if part.is_file()), *([config] if config.is_file() else [])]


def parts_of(path: Path) -> list[Path]:
    """The files that an index names; none of what is no index."""
    if not path.name.endswith(INDEX):
        return []
    places = _read(path).get("weight_map")
    names = set(places.values()) if isinstance(places, dict) else set()
    if not names or not all(isinstance(name, str) and name == Path(name).name for name in names):
        raise AuditError(f"{path}: not an index of the parts of a network: expected a weight_map of tensors to files beside it")
    return [path.with_name(name) for name in sorted(names)]


def config_of(path: Path) -> dict[str, Any]:
    """The config.json beside a network; empty where there is none, or the file is no such network."""
    config = path.with_name("config.json")
    return _read(config) if path.name in MODELS and config.is_file() else {}


def advice(path: Path, config: Mapping[str, Any]) -> str:
    """How to name the network of such a folder; nothing for other files."""
    if path.name not in MODELS or "model_type" not in config:
        return ""
    named = config.get("architectures")
    network = named[0] if isinstance(named, list) and named else None
    plain = isinstance(network, str) and network.isidentifier()
    made = f"transformers.{network if plain else 'AutoModelForSequenceClassification.from_config'}"
    made += "(transformers.AutoConfig.for_model(**config))"
    return f". For this folder of Hugging Face's: def make(config): return {made}"


def _read(path: Path) -> dict[str, Any]:
    try:
        content = parse_json(read_bytes(path, LARGEST))
    except (OSError, ValueError, RecursionError) as error:
        raise AuditError(f"{path}: cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise AuditError(f"{path}: expected an object, found {type(content).__name__}")
    return content
