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


FACTORIES = ("model", "credit", "step", "loss", "forward")
TEXTS = (*FACTORIES, "train", "stream", "task", "normalize", "device", "state_key")
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
    train: str | DataSet | None = None
    """The training data likewise, to which linear readouts are fitted; ``auto`` is that of a data
    set with splits. Else they are fitted to each half of the test data."""
    model: str | nn.Module | None = None
    """``package.module:factory``, ``torchvision:NAME`` or a network; else ResidualMLP."""
    stream: str | None = None
    """``blocks.* -> out_ln``; else the stream is found."""
    credit: str | Callable[..., Any] | None = None
    """``package.module:function`` or the function, called with (model, x, y, checkpoint)."""
    step: str | Callable[..., Any] | None = None
    """The same, which makes one update of the rule in place; ``checkpoint`` where it is named."""
    loss: str | Callable[..., Any] | None = None
    """``ce``, ``mse``, ``bce``, or a function as for credit, called with (outputs, y)."""
    task: str | None = None
    """``classes``, ``regression`` or ``tokens``; else the targets tell."""
    forward: str | Callable[..., Any] | None = None
    """A function as for credit, called with (model, x, y); else the outputs are model(x)."""
    state_key: str | None = None
    """``a.b``, where checkpoints name their tensors so; else the usual keys are tried."""
    normalize: str | None = None
    """``data``, ``none`` or ``MEAN/STD``; else as each checkpoint says."""
    batch_size: int = 512
    """Samples forwarded at once at most; changes no number."""
    device: str = "auto"
    threads: int = 1
    """CPU threads; another number can change the last digits."""
    memory: float | None = None
    """GB that data of a generator may take; else half of the free memory."""
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
        fields = {}
        for option, value in options.items():
            name = option.replace("-", "_")
            if value is None:
                continue
            if name in (*TEXTS, "log_columns"):
                fields[name] = value
            elif name in ("batch_size", "threads", "log_batch"):
                fields[name] = int(value)
            elif name == "memory":
                fields[name] = float(value)
        return cls(**fields, **others)

    @property
    def identity(self) -> dict[str, Any] | None:
        """What a kept result depends on; ``None`` where an object was given."""
        specs = (self.data, self.train, *self.factories.values())
        if not all(isinstance(spec, str | None) for spec in specs):
            return None
        return {name: getattr(self, name) for name in (*TEXTS, "threads", "unsafe")}

    @property
    def factories(self) -> dict[str, Any]:
        """What may be the user's own code, by option."""
        return {name: getattr(self, name) for name in FACTORIES}


def loss_of(option: Any, config_value: object) -> tuple[Any, str]:
    """The loss of an option, else the one that a config names; and what must be said of it.

    >>> loss_of(None, "nn.MSELoss()")
    ('mse', '')
    """
    text = config_value if isinstance(config_value, str) else ""
    trained_with = _loss_named(text)
    if option is not None:
        if trained_with is not None and option in LOSSES and option != trained_with:
            return option, loss_differs(text, option)
        return option, ""
    if text and trained_with is None:
        return None, loss_differs(text, "the usual one")
    return trained_with, ""


def _loss_named(text: str) -> str | None:
    """The loss that a config spells in one of the usual ways."""
    bare = re.sub("[^a-z0-9]", "", text.lower().rpartition(".")[2]).removesuffix("loss")
    for loss, spellings in LOSSES.items():
        if bare in spellings.split():
            return loss
    return None
