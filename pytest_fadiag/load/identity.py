"""The method and the seed of a checkpoint or a training log; free of torch, since collection asks for them by name alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..judge.names import as_name

_NAME = re.compile(r"(?P<method>.+?)_s(?:eed)?(?P<seed>\d+)")
_LOG = re.compile(r"(?:\.(?:pt|pth|ckpt|safetensors))?(?:\.log)?\.jsonl?$")


_SEED = re.compile(r"s(?:eed)?[_=-]?(?P<seed>\d+)")
_WORDS = re.compile(r"[a-z]+|\d+")
_SAY_NOTHING = frozenset(
    [
        "model",
        "net",
        "network",
        "checkpoint",
        "ckpt",
        "weights",
        "state",
        "dict",
        "best",
        "last",
        "latest",
        "final",
        "acc",
        "accuracy",
        "loss",
        "val",
        "test",
        "train",
        "epoch",
        "step",
        "iter",
        "pytorch",
        "of",
        "log",
        "logs",
        "metrics",
        "history",
        "result",
        "results",
    ]
)
"""Of these are names such as model_best_acc, checkpoint-500 and epoch=3-step=100, for which the folder tells more."""
_LAYER = re.compile(r"(?:checkpoints?|ckpts?|weights|models?|best|last|final|version)(?:[-_]?\d+)?|\d+")
"""Folders between a run's own and its files."""
_MANY_RUNS = re.compile(
    r"(?:(?:runs?|results?|outputs?|logs?|lightning_logs|experiments?|exps?|trained|saved|artifacts|controls?|fixtures|tmp)"
    r"(?:[-_]?\d+)?)?"
)
"""Folders that hold many runs, whose name is no method."""


def identify(path: Path, config: Mapping[str, Any] | None = None) -> tuple[str, int | None]:
    """The method and seed that ``config`` gives, else those of a name ``<method>_s<seed>``, else the stem and no seed.

    Of a file whose name says nothing, such as model_best.pt, the folder's name tells. A control is told from the method that
    it controls: ``dfa-frozen``.
    """
    config = config or {}
    named, told = _by_name(path)
    given = config.get("method") if isinstance(config.get("method"), (str, int, float)) else None
    method = given or named
    if given:
        method = "-".join([str(method), *(kind for kind in ("frozen", "shallow") if says_yes(config, kind))])
    method = as_name(method, f"{path}: the method's name")
    seed = told if config.get("seed") is None else config["seed"]
    try:
        number = None if seed is None else int(seed)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last of a tensor with several entries
        number = None
    return method, number if number is None or number.bit_length() < 64 else None


def says_yes(config: Mapping[str, Any], key: str) -> bool:
    """Whether a config has a plain value under a key, and it is true; a tensor of several entries is neither."""
    value = config.get(key)
    return isinstance(value, (str, int, float)) and bool(value)


def _by_name(path: Path) -> tuple[str, str | None]:
    """The method and the seed that the file's name gives, or where that says nothing the folder's."""
    stem = bare_name(path)
    named = _NAME.fullmatch(stem)
    if named:
        return named["method"], named["seed"]
    if not all(word.isdigit() or word in _SAY_NOTHING for word in _WORDS.findall(stem.lower())):
        return stem, None
    seed = None
    for folder in [parent.name for parent in path.parents][:4]:
        named = _NAME.fullmatch(folder)
        if named:
            return named["method"], named["seed"]
        own = _SEED.fullmatch(folder.lower())
        seed = own["seed"] if own and seed is None else seed
        if _MANY_RUNS.fullmatch(folder.lower()):
            break
        if not own and _LAYER.fullmatch(folder.lower()) is None:
            return folder, seed
    return stem, seed


def bare_name(path: Path) -> str:
    """The name without what says what kind of file it is; a log may carry that of its checkpoint: dfa_s42.pt.log.jsonl."""
    bare = _LOG.sub("", path.name.removesuffix(".index.json"))  # the index of a network that lies in several files
    return Path(bare).stem if bare == path.name or bare.endswith((".safetensors", ".bin")) else bare or path.stem
