"""Feedback alignment (Lillicrap et al. 2016): backpropagation in which no weight is transported back.

    z = W a + b          forward, as ever
    δ_a = Bᵀ δ_z         backward, with a fixed random B of W's shape in W's place
    ∂W = δ_z aᵀ, ∂b = δ_z

Every Linear that has something below it gets its own B: fc1 and fc2 of each block, and the head. LayerNorm and activation keep
their true derivatives, and the identity path of each residual block carries δ down unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pytest_fadiag import ResidualMLP

from .rule import LearningRule
from .settings import Settings
from .streams import like_weight


class _FeedbackLinear(torch.autograd.Function):
    """W a + b, differentiated with respect to a as if the weight were B."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, weight: Tensor, bias: Tensor, feedback: Tensor) -> Tensor:
        ctx.save_for_backward(a, feedback)
        return F.linear(a, weight, bias)

    @staticmethod
    def backward(
        ctx: Any, *deltas: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        (delta,) = deltas
        a, feedback = ctx.saved_tensors
        below, weight, bias, _ = ctx.needs_input_grad
        return (
            delta @ feedback if below else None,
            delta.T @ a if weight else None,
            delta.sum(0) if bias else None,
            None,
        )


def feedback_linear(a: Tensor, linear: nn.Linear, feedback: Tensor) -> Tensor:
    """A Linear whose backward pass goes through a fixed matrix."""
    return _FeedbackLinear.apply(a, linear.weight, linear.bias, feedback)  # type: ignore[no-any-return,no-untyped-call]


class FeedbackAlignment(LearningRule):
    """Lillicrap's rule, with Bs = [B of blocks.0.fc1, of blocks.0.fc2, …, of out_head]."""

    summary = "feedback alignment: backward through fixed random matrices"

    def __init__(
        self, net: ResidualMLP, settings: Settings, streams: Mapping[str, torch.Generator]
    ) -> None:
        super().__init__(net, settings, streams)
        linears = [linear for block in net.blocks for linear in (block.fc1, block.fc2)] + [
            net.out_head
        ]
        for linear in linears:
            # Drawn as the weights are: alignment then starts from matrices of the right size.
            drawn = like_weight(torch.empty(linear.weight.shape), streams["feedback"])
            self.feedback.append(drawn.to(linear.weight))

    def backward(self, x: Tensor, y: Tensor) -> Tensor:
        logits = self._forward(x)[0]
        F.cross_entropy(logits, y).backward()
        return logits.detach()

    def credit(self, x: Tensor, y: Tensor) -> list[Tensor]:
        logits, states = self._forward(x.detach().requires_grad_())
        return list(torch.autograd.grad(F.cross_entropy(logits, y, reduction="sum"), states))

    def _forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The logits, and h_0 … h_L on the way to them; both differentiate through the feedback."""
        net, Bs = self.net, iter(self.feedback)
        h = [net.embed(x.flatten(1))]
        for block in net.blocks:
            f = block.act(feedback_linear(block.ln(h[-1]), block.fc1, next(Bs)))
            h.append(h[-1] + feedback_linear(f, block.fc2, next(Bs)))
        return feedback_linear(net.out_ln(h[-1]), net.out_head, next(Bs)), h
