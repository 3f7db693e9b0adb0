"""The block-local update that DFA and the bridges share: they differ only in where the credit comes from.

head, out_ln   ∂/∂θ  mean_i ℓ_i                                  on detached h_L
block l        ∂/∂θ  mean_i ⟨f_l(h_l), a⟩ + λ·mean_i ‖f_l(h_l)‖²  on detached h_l, norm clipped to 1
embed          ∂/∂θ  mean_i ⟨embed(x), a⟩
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from pytest_fadiag import ResidualMLP

CLIP = 1.0


@dataclass(frozen=True)
class LocalPass:
    """One forward pass in which the graph is cut at every state: each output knows only its own module."""

    h: list[Tensor]
    """h_0 … h_L, detached."""
    embedded: Tensor
    f: list[Tensor]
    """f_l(h_l)."""
    logits: Tensor


def local_pass(net: ResidualMLP, x: Tensor) -> LocalPass:
    """Forward, every module on a detached input."""
    embedded = net.embed(x.flatten(1))
    h, f = [embedded.detach()], []
    for block in net.blocks:
        f.append(block(h[-1]))
        h.append(h[-1] + f[-1].detach())
    return LocalPass(h, embedded, f, net.out_head(net.out_ln(h[-1])))


def descend(
    net: ResidualMLP,
    forward: LocalPass,
    y: Tensor,
    *,
    embed: Tensor,
    blocks: Sequence[Tensor],
    lam: float = 0.0,
) -> None:
    """Give every trained parameter the gradient of its local loss for these credits."""
    loss = F.cross_entropy(forward.logits, y) + _inner(forward.embedded, embed)
    for f, credit in zip(forward.f, blocks, strict=True):
        if f.requires_grad:  # not so in a frozen control
            loss = loss + _inner(f, credit)
            if lam:
                loss = loss + lam * _inner(f, f)
    loss.backward()
    for block in net.blocks:
        nn.utils.clip_grad_norm_(block.parameters(), CLIP)


def per_rms(credit: Tensor) -> Tensor:
    """Each sample's credit divided by its RMS over features."""
    return credit / (credit.square().mean(-1, keepdim=True).sqrt() + 1e-6)


def _inner(a: Tensor, b: Tensor) -> Tensor:
    """mean_i ⟨a_i, b_i⟩."""
    return (a * b).sum(-1).mean()
