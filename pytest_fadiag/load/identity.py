"""The method and the seed of a checkpoint or a training log; free of torch, since collection asks for them by name alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..judge.names import as_name

_NAME = re.compile(r"(?P<method>.+?)_s(?:eed)?(?P<seed>\d+)")
_LOG = re.compile(r"(?:\.(?:pt|pth|ckpt|safetensors))?(?:\.log)?\.jsonl?$")


def identify(path: Path, config: Mapping[str, Any] | None = None) -> tuple[str, int | None]:
    """The method and seed that ``config`` gives, else those of a name ``<method>_s<seed>``, else the stem and no seed.

    A control is told from the method that it controls: ``dfa-frozen``.
    """
    config = config or {}
    stem = bare_name(path)
    named = _NAME.fullmatch(stem)
    given = config.get("method") if isinstance(config.get("method"), (str, int, float)) else None
    method = given or (named["method"] if named else stem)
    if given:
        method = "-".join([str(method), *(kind for kind in ("frozen", "shallow") if says_yes(config, kind))])
    method = as_name(method, f"{path}: the method's name")
    seed = config.get("seed")
    if seed is None and named:
        seed = named["seed"]
    try:
        number = None if seed is None else int(seed)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last of a tensor with several entries
        number = None
    return method, number if number is None or number.bit_length() < 64 else None


def says_yes(config: Mapping[str, Any], key: str) -> bool:
    """Whether a config has a plain value under a key, and it is true; a tensor of several entries is neither."""
    value = config.get(key)
    return isinstance(value, (str, int, float)) and bool(value)


def bare_name(path: Path) -> str:
    """The name without what says what kind of file it is; a log may carry that of its checkpoint: dfa_s42.pt.log.jsonl."""
    bare = _LOG.sub("", path.name)
    return bare if bare and bare != path.name else path.stem
