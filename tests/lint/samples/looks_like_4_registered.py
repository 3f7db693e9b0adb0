"""Feedback alignment whose feedback is part of a module's state, or handed on to what keeps it."""

from __future__ import annotations

import torch
from torch import nn


class DFANetwork(nn.Module):
    def __init__(self, widths: list[int], classes: int) -> None:
        super().__init__()
        self.feedback = nn.ParameterList(nn.Parameter(torch.randn(w, classes), requires_grad=False) for w in widths)
        self.weight_fa = nn.Parameter(torch.empty(widths[0], classes), requires_grad=False)
        self.register_buffer("B", torch.randn(widths[0], classes))
        self.fb_scale = nn.Linear(classes, classes)
        self.fixed_noise = torch.randn(8, widths[0])
        self.B_out = torch.randn(classes, classes)
        self.B_out = nn.Parameter(self.B_out)
        drawn = nn.Parameter(torch.randn(classes), requires_grad=False)
        self.feedback_bias = drawn
        self.backbone = torch.randn(3)


def draw(widths: list[int], classes: int, seed: int) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    Bs = [torch.randn(width, classes) for width in widths]
    return Bs


def train(net: DFANetwork, width: int, path: str) -> None:
    feedback = torch.randn(width, width)
    trainer = Trainer(net, feedback)
    trainer.run()
    torch.save(net.state_dict(), path)


class Trainer:
    def __init__(self, net: DFANetwork, feedback: torch.Tensor) -> None:
        self.net, self.feedback = net, feedback

    def run(self) -> None:
        self.net.feedback[0].data.copy_(self.feedback)
