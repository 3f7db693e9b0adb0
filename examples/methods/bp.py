"""Backpropagation: the reference that every other method is compared with.

∂ℓ/∂θ by the chain rule through all blocks
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from .rule import LearningRule


class Backpropagation(LearningRule):
    """Gradient of the mean cross-entropy."""

    summary = "backpropagation"

    def backward(self, x: Tensor, y: Tensor) -> Tensor:
        logits = self.net(x)
        F.cross_entropy(logits, y).backward()
        return logits.detach()

    def credit(self, x: Tensor, y: Tensor) -> list[Tensor]:
        logits, states = self.net(x.detach().requires_grad_(), return_hidden=True)
        return list(torch.autograd.grad(F.cross_entropy(logits, y, reduction="sum"), states))
