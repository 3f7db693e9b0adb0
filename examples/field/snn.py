"""Leaky integrate-and-fire neurons by surrogate gradients through time; classes are read from spike counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository, missing

HERE = Repository(
    "jeshraghian/snntorch",
    commit="634fc22385ec5581998e62787bbe39b53662140f",
    rules=("surrogate gradient",),
    seeds=1,
    network="784-300-10 leaky integrate-and-fire neurons, 10 time steps, β 0.95: its fifth tutorial, which has 1,000 and 25",
    data="1 epoch of batches of 128, Adam lr 5e-4",
    images=10_000,
    pairs=False,
)


class Spiking(nn.Module):
    """Two layers of its neurons over time; spike counts come out."""

    def __init__(self) -> None:
        super().__init__()
        import snntorch

        self.fc1, self.lif1 = nn.Linear(784, 300), snntorch.Leaky(beta=0.95)
        self.fc2, self.lif2 = nn.Linear(300, 10), snntorch.Leaky(beta=0.95)

    def forward(self, x: Any) -> Any:
        """The same image at every step."""
        first, second = self.lif1.init_leaky(), self.lif2.init_leaky()
        counts = 0
        for _ in range(10):
            spikes, first = self.lif1(self.fc1(x), first)
            spikes, second = self.lif2(self.fc2(spikes), second)
            counts = counts + spikes
        return counts


def setup(source: Path) -> None:
    """What only draws is left out."""
    missing("matplotlib", "pandas", "nir", "nirtorch", "tqdm")


def train(rule: str, source: Path, data: Data) -> Any:
    """The loop of its tutorial; cross-entropy of the spike counts, as its ``ce_count_loss``."""
    model = Spiking()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4, betas=(0.9, 0.999))
    for x, y in data.loader(128, shape=(784,)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """Spike counts as outputs."""
    return diagnose(trained, data.test(shape=(784,)), method_name=rule)
