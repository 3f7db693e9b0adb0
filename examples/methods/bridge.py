"""The small network that State Bridge and Credit Bridge learn beside the one they train."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pytest_fadiag import ResidualMLP

from .streams import initialise


class BridgeNet(nn.Module):
    """An MLP on (h_l, l, e): the state, its layer as one-hot, the output error; all layers share it."""

    def __init__(self, net: ResidualMLP, outputs: int, generator: torch.Generator) -> None:
        super().__init__()
        classes, d = net.out_head.weight.shape
        self.layers = len(net.blocks) + 1
        with torch.random.fork_rng(devices=[]):
            self.mlp = nn.Sequential(
                nn.Linear(d + self.layers + classes, 2 * d),
                nn.GELU(),
                nn.Linear(2 * d, 2 * d),
                nn.GELU(),
                nn.Linear(2 * d, outputs),
            )
        initialise(self, generator)
        self.to(net.out_head.weight)

    def forward(self, h: Tensor, e: Tensor, first: int = 0) -> Tensor:
        """Outputs for states ``[…, K, N, d]`` of the layers first … first+K−1, given the errors ``[N, C]``."""
        k, n = h.shape[-3:-1]
        layer = torch.eye(self.layers, dtype=h.dtype, device=h.device)[first : first + k, None]
        inputs = [h, layer.expand(*h.shape[:-1], -1), e.expand(*h.shape[:-3], k, n, -1)]
        outputs: Tensor = self.mlp(torch.cat(inputs, -1))
        return outputs


def in_own_units(h: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The states of all layers, each layer divided by its RMS over batch and features, and these RMS values ``[K, 1, 1]``.

    One number for a whole layer leaves directions as they are, and a stream that explodes does not blind the bridge.
    """
    states = torch.stack(list(h))
    scale = (
        states.square().mean((1, 2), keepdim=True).sqrt().clamp_min(torch.finfo(states.dtype).tiny)
    )
    return states / scale, scale
