"""How checkpoints are measured; free of torch."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..judge.remarks import loss_differs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import nn

    from .data import DataSet


FACTORIES = ("model", "credit", "loss", "forward")
TEXTS = (*FACTORIES, "stream", "task", "normalize", "device")
LOSSES = {
    "ce": "ce crossentropy softmaxcrossentropy xent nll",
    "mse": "mse meansquarederror squarederror l2",
    "bce": "bce bcewithlogits binarycrossentropy binarycrossentropywithlogits",
}
"""How configs spell the losses, in lower case without signs and without «loss»."""


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
    loss: str | Callable[..., Any] | None = None
    """``ce``, ``mse``, ``bce``, or a function as for credit, called with (outputs, y)."""
    task: str | None = None
    """``classes``, ``regression`` or ``tokens``; else the targets tell."""
    forward: str | Callable[..., Any] | None = None
    """A function as for credit, called with (model, x, y); else the outputs are model(x)."""
    normalize: str | None = None
    """``data``, ``none`` or ``MEAN/STD``; else as each checkpoint says."""
    batch_size: int = 512
    """Samples forwarded at once at most; changes no number."""
    device: str = "auto"
    threads: int = 1
    """CPU threads; another number can change the last digits."""
    log_batch: int | None = None
    """The batch size of the gradients of logs; else as each log says."""
    log_columns: str | None = None
    """``KEY=COLUMN,…``; else the columns of logs are known by their names."""
    unsafe: bool = False
    """Whether a checkpoint's pickle may run code."""
    base: Path = field(default_factory=Path.cwd)
    """The folder at which relative paths and the digest of the user's code start."""

    @classmethod
    def of(cls, options: Mapping[str, Any], **others: Any) -> Setup:
        """The setup that options say by their names; what they leave out keeps its default."""
        given = {name.replace("-", "_"): own for name, own in options.items() if own is not None}
        known = {name: given[name] for name in (*TEXTS, "log_columns") if name in given}
        numbers = ("batch_size", "threads", "log_batch")
        known |= {name: int(given[name]) for name in numbers if name in given}
        return cls(**known, **others)

    @property
    def identity(self) -> dict[str, Any] | None:
        """What a kept result depends on; ``None`` where an object was given."""
        names = (*TEXTS, "threads", "unsafe")
        known = all(isinstance(spec, str | None) for spec in (self.data, *self.factories.values()))
        return {name: getattr(self, name) for name in names} if known else None

    @property
    def factories(self) -> dict[str, Any]:
        """What may be the user's own code, by option."""
        return {name: getattr(self, name) for name in FACTORIES}


def loss_of(given: Any, named: object) -> tuple[Any, str]:
    """The loss that was given, else the one that a config names; and what must be said of it.

    >>> loss_of(None, "nn.MSELoss()")
    ('mse', '')
    """
    text = named if isinstance(named, str) else ""
    bare = re.sub("[^a-z0-9]", "", text.lower().rpartition(".")[2]).removesuffix("loss")
    known = next((loss for loss, names in LOSSES.items() if bare in names.split()), None)
    if given is None:
        return known, loss_differs(text, "the usual one") if text and known is None else ""
    differs = known is not None and given in LOSSES and given != known
    return given, loss_differs(text, given) if differs else ""
