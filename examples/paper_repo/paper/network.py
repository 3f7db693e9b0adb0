"""The paper's own network: patches, residual blocks that add their input themselves, mean pooling."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class MixerBlock(nn.Module):
    """h + mix over patches, then h + mix over channels."""

    def __init__(self, patches: int, d: int) -> None:
        super().__init__()
        self.token_norm, self.channel_norm = nn.LayerNorm(d), nn.LayerNorm(d)
        self.tokens = nn.Sequential(
            nn.Linear(patches, patches), nn.GELU(), nn.Linear(patches, patches)
        )
        self.channels = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, h: Tensor) -> Tensor:
        h = h + self.tokens(self.token_norm(h).transpose(1, 2)).transpose(1, 2)
        out: Tensor = h + self.channels(self.channel_norm(h))
        return out


class PaperNet(nn.Module):
    """A small MLP-Mixer for 28 x 28 images."""

    def __init__(self, d: int = 32, depth: int = 3, classes: int = 10) -> None:
        super().__init__()
        self.patch = nn.Conv2d(1, d, 7, 7)
        self.layers = nn.ModuleList(MixerBlock(16, d) for _ in range(depth))
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, classes)

    def forward(self, images: Tensor) -> Tensor:
        h = self.patch(images).flatten(2).transpose(1, 2)
        for layer in self.layers:
            h = layer(h)
        logits: Tensor = self.head(torch.mean(self.norm(h), 1))
        return logits
