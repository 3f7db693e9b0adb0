"""What a learning rule is: from a batch to a gradient on every trained parameter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pytest_fadiag import ResidualMLP

from .settings import Settings


class LearningRule(ABC):
    """A method fills ``.grad``; one AdamW then steps all parameters at once.

    AdamW treats each parameter by itself, so one optimiser over everything equals one for each block, the embedding and the
    head; and since it steps last, every credit comes from the network as it was before the step.
    """

    summary: ClassVar[str]

    def __init__(
        self, net: ResidualMLP, settings: Settings, streams: Mapping[str, torch.Generator]
    ) -> None:
        self.net, self.settings, self.streams = net, settings, streams
        self.feedback: list[Tensor] = []
        """The fixed random matrices ``Bs``, saved with the checkpoint: they cannot be replayed from a seed elsewhere."""
        self.auxiliary = nn.ModuleDict()
        """Networks that belong to the method and not to the result, such as a bridge."""
        self.bridge: nn.Module | None = None
        """The one of them that gives the credit, saved with the checkpoint: without it the credit is lost."""

    @abstractmethod
    def backward(self, x: Tensor, y: Tensor) -> Tensor:
        """Give every trained parameter its gradient for this batch; the logits before the step are returned."""

    @abstractmethod
    def credit(self, x: Tensor, y: Tensor) -> list[Tensor]:
        """a_0 … a_L: what the rule puts in the place of ∂ℓ_i/∂h_0 … ∂ℓ_i/∂h_L, of each sample's own loss.

        Where the update divides credit by its RMS, this is the credit before: that changes its size and no direction.
        """

    def after_step(self) -> None:  # noqa: B027 (most rules need nothing here)
        """What follows the optimiser's step, if anything does."""


def output_error(logits: Tensor, y: Tensor) -> Tensor:
    """e_i = softmax(logits_i) − one-hot(y_i), not divided by the batch size."""
    error = logits.detach().softmax(-1)
    error[torch.arange(len(y), device=y.device), y] -= 1
    return error


def terminal_gradient(net: ResidualMLP, h_L: Tensor, y: Tensor) -> Tensor:
    """δ_L,i = ∂ℓ_i/∂h_L,i, the true gradient at the last state: through head and out_ln only."""
    with torch.enable_grad():
        h_L = h_L.detach().requires_grad_()
        loss = F.cross_entropy(net.out_head(net.out_ln(h_L)), y, reduction="sum")
        return torch.autograd.grad(loss, h_L)[0]
