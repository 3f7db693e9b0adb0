"""Feedback alignment whose feedback is part of a module's state, or handed on to what keeps it."""

from __future__ import annotations

import torch
from torch import nn


class DFANetwork(nn.Module):
    def __init__(self, widths: list[int], classes: int) -> None:
        super().__init__()
        self.feedback = nn.ParameterList(
            nn.Parameter(torch.randn(w, classes), requires_grad=False) for w in widths
        )
        self.weight_fa = nn.Parameter(torch.empty(widths[0], classes), requires_grad=False)
        self.register_buffer("B", torch.randn(widths[0], classes))
        self.fb_scale = nn.Linear(classes, classes)
        self.fixed_noise = torch.randn(8, widths[0])
        self.B_out = torch.randn(classes, classes)
        self.B_out = nn.Parameter(self.B_out)
        drawn = nn.Parameter(torch.randn(classes), requires_grad=False)
        self.feedback_bias = drawn
        self.backbone = torch.randn(3)
