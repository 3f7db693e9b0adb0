"""How checkpoints are measured; free of torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from .data import DataSet


@dataclass(frozen=True)
class Setup:
    """What every checkpoint of an audit is measured with."""

    data: str | DataSet | None = None
    """A SPEC such as ``cifar10:ROOT``, or the data itself."""
    model: str | nn.Module | None = None
    """``package.module:factory``, ``torchvision:NAME`` or a network; else ResidualMLP."""
    stream: str | None = None
    """``blocks.* -> out_ln``; else the stream is found."""
    credit: str | Callable[..., Any] | None = None
    """``package.module:function`` or the function, called with (model, x, y, checkpoint)."""
    normalize: str | None = None
    """``data``, ``none`` or ``MEAN/STD``; else as each checkpoint says."""
    batch_size: int = 512
    """Samples forwarded at once at most; changes no number."""
    device: str = "auto"
    threads: int = 1
    """CPU threads; another number can change the last digits."""
    unsafe: bool = False
    """Whether a checkpoint's pickle may run code."""
    base: Path = field(default_factory=Path.cwd)
    """The folder at which relative paths and the digest of the user's code start."""

    @property
    def identity(self) -> dict[str, Any] | None:
        """What a kept result depends on; ``None`` where an object was given."""
        if not all(isinstance(spec, str | None) for spec in (self.data, self.model, self.credit)):
            return None
        names = ("model", "stream", "credit", "normalize", "device", "threads", "unsafe")
        return {name: getattr(self, name) for name in names}
