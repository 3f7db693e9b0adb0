"""Backpropagation and DFA for any network with ``embed``, ``blocks``, ``out_ln`` and ``out_head``.

    h_0 = embed(x)      h_{l+1} = h_l + f_l(h_l)      outputs = out_head(out_ln(h_L))

The loss is any function of (outputs, y) with one value per sample or token: DFA sends its
derivative by the outputs, e, through fixed random matrices, a_l = e B_lᵀ.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

CLIP = 1.0
"""The largest gradient norm of one block under DFA."""


def train(
    net: Any,
    x: Tensor,
    y: Tensor,
    losses: Callable[[Tensor, Tensor], Tensor],
    *,
    rule: str,
    seed: int,
    steps: int,
    batch: int = 64,
    lr: float = 1e-3,
    lam: float = 0.0,
    frozen: bool = False,
) -> list[Tensor]:
    """Train in place by ``bp`` or ``dfa``, all but the blocks if frozen; the feedback matrices."""
    generator = torch.Generator().manual_seed(seed + 1)
    outputs, d = net.out_head.weight.shape
    drawn = [torch.randn(d, outputs, generator=generator) for _ in net.blocks]
    Bs = [B / math.sqrt(outputs) for B in drawn]
    net.blocks.requires_grad_(not frozen)
    learnt = [own for own in net.parameters() if own.requires_grad]
    optimiser = torch.optim.AdamW(learnt, lr, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        chosen = torch.randint(len(x), (batch,), generator=generator)
        optimiser.zero_grad()
        if rule == "bp":
            losses(net(x[chosen]), y[chosen]).mean().backward()
        else:
            dfa(net, x[chosen], y[chosen], losses, Bs, lam)
        optimiser.step()
        schedule.step()
    return Bs


def dfa(
    net: Any,
    x: Tensor,
    y: Tensor,
    losses: Callable[[Tensor, Tensor], Tensor],
    Bs: list[Tensor],
    lam: float,
) -> None:
    """Gradients by direct feedback alignment, each part on the detached state before it."""
    states = [net.embed(x.flatten(1) if x.is_floating_point() else x)]
    added = []
    for block in net.blocks:
        added.append(block(states[-1].detach()))
        states.append(states[-1].detach() + added[-1].detach())
    outputs = net.out_head(net.out_ln(states[-1].detach()))
    losses(outputs, y).mean().backward(retain_graph=True)
    (e,) = torch.autograd.grad(losses(outputs, y).sum(), outputs)
    credits = [e @ B.T for B in Bs]
    credits = [a / (a.square().mean(-1, keepdim=True).sqrt() + 1e-6) for a in credits]
    (states[0] * credits[0]).sum(-1).mean().backward()
    for block, f, a in zip(net.blocks, added, credits, strict=True):
        if f.requires_grad:
            ((f * a).sum(-1) + lam * f.square().sum(-1)).mean().backward()
            nn.utils.clip_grad_norm_(block.parameters(), CLIP)


def save(path: Path, net: nn.Module, Bs: list[Tensor], **config: Any) -> None:
    """What an audit needs: the weights, the very feedback, and how the network was trained."""
    torch.save({"state_dict": net.state_dict(), "Bs": Bs, "config": config}, path)


def audit(folder: Path, words: str) -> int:
    """Audit what was saved by the command; 0 also where a diagnostic fires, as it does for DFA."""
    places = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}
    options = "--data test.npz --frozen frozen_*.pt --report json:audit.json --no-cache"
    command = [sys.executable, "-m", "pytest_fadiag", "audit", *words.split(), *options.split()]
    return int(subprocess.call([*command, "--tb=no", "-q"], cwd=folder, env=environment) > 1)
