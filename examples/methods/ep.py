"""Equilibrium propagation (Scellier & Bengio 2017; nudged both ways as Laborieux et al. 2021) on the residual network.

    ε_0 = h_0 − embed(x),   ε_l = h_l − h_{l−1} − f_{l−1}(h_{l−1})
    E = ½ Σ_l ‖ε_l‖²,       F = E + β·ℓ

Free phase (β = 0): the forward pass, where E = 0 and every ∂E/∂θ = 0. Nudged phases at +β and −β: the states that minimise F,

    ∂F/∂h_L = ε_L + β ∂ℓ/∂h_L = 0,      ∂F/∂h_l = ε_l − (I + J_l)ᵀ ε_{l+1} = 0

with J_l the Jacobian of f_l at the nudged h_l. Each layer needs only its neighbour's error. Update of blocks and embedding:
[∂E(+β) − ∂E(−β)]/(2β) at fixed states; head and out_ln descend the loss at the free h_L. Credit at layer l is −ε_l/β.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from pytest_fadiag import ResidualMLP

from .rule import LearningRule
from .settings import Settings

TOLERANCE = 1e-3
SWEEPS = 48
PATIENCE = 6
FLOOR = 1e-6


class NotAtEquilibrium(ArithmeticError):
    """The nudged phase did not settle: its errors would have the right direction and a wrong, layer-dependent size."""


@dataclass(frozen=True)
class Equilibrium:
    """Both nudged phases as one batch, those of +β first: h_0 … h_L, ε_0 … ε_L, the signed β of each row, the residual."""

    h: list[Tensor]
    errors: list[Tensor]
    beta: Tensor
    residual: float
    sweeps: int


def relax(
    net: ResidualMLP,
    embedded: Tensor,
    y: Tensor,
    beta: float,
    *,
    tolerance: float = TOLERANCE,
    sweeps: int = SWEEPS,
) -> Equilibrium:
    """Settle the states of both nudged phases, or raise.

    A sweep sets the states upwards from the errors, h_l = h_{l−1} + f_{l−1}(h_{l−1}) + ε_l, and the errors downwards from the
    loss, ε_l ← (I + J_l)ᵀ ε_{l+1}. What a sweep would still change, max_{l,i} ‖Δε_l,i‖/‖ε_l,i‖, is zero exactly where
    ∂F/∂h = 0. Errors are carried rather than subtracted from the states, so they keep their digits when small beside h.

    A sample with a tiny state (an almost black image) is curved too sharply by LayerNorm to settle at a common β. It is nudged
    ten times less, in both phases alike: −ε/β does not depend on β to first order, but it must be settled to mean anything.
    """
    n = len(y)
    embedded, y = torch.cat([embedded, embedded]).detach(), torch.cat([y, y])
    signed = torch.full((2 * n, 1), beta, dtype=embedded.dtype, device=embedded.device)
    signed[n:] *= -1
    errors = [torch.zeros_like(embedded) for _ in range(len(net.blocks) + 1)]
    residual = float("inf")
    for sweep in range(1, sweeps + 1):
        h, predicted = _upwards(net, embedded, errors)
        balanced = _downwards(net, h, predicted, y, signed)
        change = torch.stack(
            [_relative_change(new, old) for new, old in zip(balanced, errors, strict=True)]
        ).amax(0)
        residual = float(change.max())
        if residual <= tolerance:
            return Equilibrium([state.detach() for state in h], errors, signed, residual, sweep)
        errors = balanced
        if sweep % PATIENCE == 0:
            unsettled = ~(change <= tolerance).view(2, n).all(0).repeat(2)
            less = torch.where(unsettled, 0.1, 1.0).to(signed)[:, None]
            signed, errors = signed * less, [error * less for error in errors]
    raise NotAtEquilibrium(
        f"the nudged phases of EP have not settled after {sweeps} sweeps: residual {residual:.1e}, tolerance {tolerance:.0e}; "
        "try a smaller --beta"
    )


def _upwards(
    net: ResidualMLP, embedded: Tensor, errors: list[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """The states that have these errors, each a leaf, and h_l + f_l(h_l) as a function of each."""
    h, predicted = [(embedded + errors[0]).requires_grad_()], []
    for block, error in zip(net.blocks, errors[1:], strict=True):
        with torch.enable_grad():
            predicted.append(h[-1] + block(h[-1]))
        h.append((predicted[-1].detach() + error).requires_grad_())
    return h, predicted


def _downwards(
    net: ResidualMLP, h: list[Tensor], predicted: list[Tensor], y: Tensor, beta: Tensor
) -> list[Tensor]:
    """The errors that would balance these states, from the top."""
    with torch.enable_grad():
        loss = F.cross_entropy(net.out_head(net.out_ln(h[-1])), y, reduction="sum")
    errors = [-beta * torch.autograd.grad(loss, h[-1])[0]]
    for state, output in zip(reversed(h[:-1]), reversed(predicted), strict=True):
        errors.insert(0, torch.autograd.grad(output, state, errors[0])[0])
    return errors


def _relative_change(new: Tensor, old: Tensor) -> Tensor:
    """‖Δε_i‖/‖ε_i‖ per sample; an error a million times smaller than the batch's largest is as good as none."""
    size = new.norm(dim=1)
    tiny = torch.finfo(new.dtype).tiny
    return (new - old).norm(dim=1) / torch.maximum(size, FLOOR * size.max()).clamp_min(tiny)


class EquilibriumPropagation(LearningRule):
    """EP with both nudged phases settled together, as one batch of twice the size."""

    summary = "equilibrium propagation: two nudged phases, settled to a checked residual"

    def __init__(
        self, net: ResidualMLP, settings: Settings, streams: Mapping[str, torch.Generator]
    ) -> None:
        super().__init__(net, settings, streams)
        self.residual, self.sweeps = 0.0, 0

    def credit(self, x: Tensor, y: Tensor) -> list[Tensor]:
        """−ε_l/β for every layer, the mean of both phases: the estimate of g_l."""
        nudged = relax(self.net, self.net.embed(x.flatten(1)), y, self.settings.beta)
        return [-(error / nudged.beta).view(2, len(y), -1).mean(0) for error in nudged.errors]

    def backward(self, x: Tensor, y: Tensor) -> Tensor:
        net, n = self.net, len(y)
        embedded = net.embed(x.flatten(1))
        nudged = relax(net, embedded, y, self.settings.beta)
        self.residual, self.sweeps = nudged.residual, nudged.sweeps
        # ∂E/∂θ_l at fixed states is −⟨ε_{l+1}, ∂f_l⟩: its difference over the two phases is the gradient of Σ ⟨f_l, −ε/(2β)⟩.
        halves = [-error / (2 * nudged.beta) for error in nudged.errors]
        loss = (embedded * halves[0].view(2, n, -1).sum(0)).sum()
        if not self.settings.frozen:
            for block, state, half in zip(net.blocks, nudged.h[:-1], halves[1:], strict=True):
                loss = loss + (block(state) * half).sum()
        free = embedded.detach()
        with torch.no_grad():
            for block in net.blocks:
                free = free + block(free)
        logits = net.out_head(net.out_ln(free))
        (loss / n + F.cross_entropy(logits, y)).backward()
        return logits.detach()
