"""One update by the rule that trained a checkpoint, for ``--fa-step=examples.methods:step``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pytest_fadiag import ResidualMLP

from .credit import restored

LEARNING_RATE = 0.1


def step(model: ResidualMLP, x: Tensor, y: Tensor, checkpoint: Mapping[str, Any]) -> None:
    """The rule fills ``.grad`` as in training; plain SGD in AdamW's place, without decay."""
    restored(model, checkpoint).backward(x.flatten(1), y)
    torch.optim.SGD(model.parameters(), LEARNING_RATE).step()
