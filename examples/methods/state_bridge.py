"""State Bridge, in this project's own reading: what is published is an outline, so this is one possible method of that name.

    G(h_l, l, e) ≈ h_L                       a net that learns to jump from any state to the last one
    min_G  mean_{l,i} ‖G(h_l,i) − h_L,i‖²     states detached, in units of each layer's RMS
    a_l = (∂G/∂h_l)ᵀ δ_L                     δ_L = ∂ℓ/∂h_L, the true gradient at the last state
    block l descends  mean_i ⟨f_l(h_l), a_{l+1}⟩,   embed  mean_i ⟨embed(x), a_0⟩

Nothing is propagated through the blocks: G's Jacobian stands in for theirs. The rest of the update is DFA's.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from pytest_fadiag import ResidualMLP

from .bridge import BridgeNet, in_own_units
from .local import LocalPass, descend, local_pass, per_rms
from .rule import LearningRule, output_error, terminal_gradient
from .settings import Settings


class StateBridge(LearningRule):
    """Credit through the Jacobian of a learned predictor of h_L."""

    summary = (
        "State Bridge (this project's reading): credit through a net that predicts the last state"
    )

    def __init__(
        self, net: ResidualMLP, settings: Settings, streams: Mapping[str, torch.Generator]
    ) -> None:
        super().__init__(net, settings, streams)
        self.bridge: BridgeNet = BridgeNet(net, settings.d, streams["bridge"])
        self.auxiliary["G"] = self.bridge

    def credits(self, forward: LocalPass, y: Tensor) -> tuple[Tensor, Tensor]:
        """a_0 … a_L as one tensor ``[L+1, N, d]``, and the regression loss of G."""
        delta = terminal_gradient(self.net, forward.h[-1], y)
        states, scale = in_own_units(forward.h)
        states.requires_grad_()
        predicted = self.bridge(states, output_error(forward.logits, y))
        loss = (predicted - states[-1].detach()).square().mean()
        (jacobian_t_delta,) = torch.autograd.grad(
            predicted, states, delta.expand_as(predicted), retain_graph=True
        )
        return jacobian_t_delta * scale[-1] / scale, loss

    def backward(self, x: Tensor, y: Tensor) -> Tensor:
        forward = local_pass(self.net, x)
        a, loss = self.credits(forward, y)
        loss.backward(inputs=list(self.bridge.parameters()))
        if self.settings.normalize_credit:
            a = per_rms(a)
        descend(self.net, forward, y, embed=a[0], blocks=list(a[1:]))
        return forward.logits.detach()

    def credit(self, x: Tensor, y: Tensor) -> list[Tensor]:
        return list(self.credits(local_pass(self.net, x), y)[0])
