"""Credit Bridge, in this project's own reading: what is published is an outline, so this is one possible method of that name.

    V(h_l, l, e)                             a scalar net, whose slope is the credit:  a_l = ∇_h V(h_l, l, e)
    terminal   ‖∇_h V(h_L) − δ_L‖²            δ_L = ∂ℓ/∂h_L, the true gradient at the last state; weight 1
    between    (V(h_l) − mean_k V̄(h_{l+1} + σ ξ_k))²   V̄ a slow copy of V (EMA 0.995), 8 draws ξ ~ N(0, I), σ = 0.1; weight 0.1
    block l descends  mean_i ⟨f_l(h_l), a_{l+1}⟩,   embed  mean_i ⟨embed(x), a_0⟩

Only the last state sees a true gradient; from there V carries it down by agreeing with itself from layer to layer. States are
in units of each layer's RMS and δ_L in units of its RMS over the batch. The rest of the update is DFA's.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import Tensor

from pytest_fadiag import ResidualMLP

from .bridge import BridgeNet, in_own_units
from .local import LocalPass, descend, local_pass, per_rms
from .rule import LearningRule, output_error, terminal_gradient
from .settings import Settings

TERMINAL, BETWEEN = 1.0, 0.1
SIGMA, DRAWS = 0.1, 8
DECAY = 0.995


class CreditBridge(LearningRule):
    """Credit as the gradient of a learned scalar."""

    summary = "Credit Bridge (this project's reading): credit is the slope of a learned scalar"

    def __init__(
        self, net: ResidualMLP, settings: Settings, streams: Mapping[str, torch.Generator]
    ) -> None:
        super().__init__(net, settings, streams)
        self.bridge: BridgeNet = BridgeNet(net, 1, streams["bridge"])
        self.slow = copy.deepcopy(self.bridge).requires_grad_(False)
        self.auxiliary["V"], self.auxiliary["slow"] = self.bridge, self.slow

    def credits(self, forward: LocalPass, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """a_0 … a_L as one tensor ``[L+1, N, d]``, and the two losses of V: terminal and between."""
        e = output_error(forward.logits, y)
        states, scale = in_own_units(forward.h)
        states.requires_grad_()
        value = self.bridge(states, e).squeeze(-1)
        (slope,) = torch.autograd.grad(value.sum(), states, create_graph=True)

        delta = terminal_gradient(self.net, forward.h[-1], y) * scale[-1]
        unit = delta.square().mean().sqrt().clamp_min(torch.finfo(delta.dtype).tiny)
        terminal = (slope[-1] - delta / unit).square().mean()
        between = (
            (value[:-1] - self._above(states.detach()[1:], e)).square().mean()
            if len(states) > 1
            else value.sum() * 0
        )
        return slope.detach() * unit / scale, terminal, between

    @torch.no_grad()
    def _above(self, states: Tensor, e: Tensor) -> Tensor:
        """mean_k V̄(h_{l+1} + σ ξ_k) for each layer but the last."""
        noise = torch.randn((DRAWS, *states.shape), generator=self.streams["noise"]).to(states)
        above: Tensor = self.slow(states + SIGMA * noise, e, first=1).squeeze(-1)
        return above.mean(0)

    def backward(self, x: Tensor, y: Tensor) -> Tensor:
        forward = local_pass(self.net, x)
        a, terminal, between = self.credits(forward, y)
        (TERMINAL * terminal + BETWEEN * between).backward(inputs=list(self.bridge.parameters()))
        if self.settings.normalize_credit:
            a = per_rms(a)
        descend(self.net, forward, y, embed=a[0], blocks=list(a[1:]))
        return forward.logits.detach()

    def credit(self, x: Tensor, y: Tensor) -> list[Tensor]:
        return list(self.credits(local_pass(self.net, x), y)[0])

    @torch.no_grad()
    def after_step(self) -> None:
        for slow, fast in zip(self.slow.parameters(), self.bridge.parameters(), strict=True):
            slow.lerp_(fast, 1 - DECAY)
