"""The method and the seed of a checkpoint or a training log; free of torch, since collection asks for them by name alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_NAME = re.compile(r"(?P<method>.+?)_s(?:eed)?(?P<seed>\d+)")
_LOG = re.compile(r"(?:\.(?:pt|pth|ckpt|safetensors))?(?:\.log)?\.jsonl?$")


def identify(path: Path, config: Mapping[str, Any] | None = None) -> tuple[str, int | None]:
    """The method and seed that ``config`` gives, else those of a name ``<method>_s<seed>``, else the stem and no seed.

    A control is told from the method that it controls: ``dfa-frozen``.
    """
    config = config or {}
    stem = bare_name(path)
    named = _NAME.fullmatch(stem)
    method = config.get("method") or (named["method"] if named else stem)
    if config.get("method"):
        method = "-".join([str(method), *(kind for kind in ("frozen", "shallow") if config.get(kind))])
    seed = config.get("seed")
    if seed is None and named:
        seed = named["seed"]
    try:
        return str(method), None if seed is None else int(seed)
    except (TypeError, ValueError):
        return str(method), None


def bare_name(path: Path) -> str:
    """The name without what says what kind of file it is; a log may carry that of its checkpoint: dfa_s42.pt.log.jsonl."""
    bare = _LOG.sub("", path.name)
    return bare if bare and bare != path.name else path.stem
