"""The method and the seed of a checkpoint; free of torch, since collection asks for them by name alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_NAME = re.compile(r"(?P<method>.+?)_s(?:eed)?(?P<seed>\d+)")


def identify(path: Path, config: Mapping[str, Any] | None = None) -> tuple[str, int | None]:
    """The method and seed that ``config`` gives, else those of a name ``<method>_s<seed>``, else the stem and no seed.

    A control is told from the method that it controls: ``dfa-frozen``.
    """
    config = config or {}
    named = _NAME.fullmatch(path.stem)
    method = config.get("method") or (named["method"] if named else path.stem)
    if config.get("method"):
        method = "-".join([str(method), *(kind for kind in ("frozen", "shallow") if config.get(kind))])
    seed = config.get("seed")
    if seed is None and named:
        seed = named["seed"]
    try:
        return str(method), None if seed is None else int(seed)
    except (TypeError, ValueError):
        return str(method), None
