"""Predictive coding of any nn.Sequential: the notebook's network, loss, optimiser and inference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository

HERE = Repository(
    "RobertRosenbaum/Torch2PC",
    commit="00c6c50ee3540537bbb56ab2b6567b541f42b093",
    rules=("Strict", "FixedPred"),
    network="2 convolutions and 2 linear layers of an nn.Sequential",
    data="Fashion-MNIST for MNIST, 10,000 images, 2 epochs",
)


def train(rule: str, source: Path, data: Data) -> nn.Module:
    """Adam, lr 0.002, batches of 300, 20 steps of inference, as in the notebook."""
    from TorchSeq2PC import PCInfer

    model = nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 10, 3), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Conv2d(10, 5, 3), nn.ReLU(), nn.Flatten()),
        nn.Sequential(nn.Linear(605, 50), nn.ReLU()),
        nn.Sequential(nn.Linear(50, 30), nn.ReLU()),
        nn.Sequential(nn.Linear(30, 10)),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
    for _ in range(2):
        for x, y in data.loader(300):
            PCInfer(model, nn.CrossEntropyLoss(), x, y, rule, 0.1, 20)
            optimizer.step()
            optimizer.zero_grad()
    return model


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """The credit of a layer is its prediction error after inference."""
    from TorchSeq2PC import PCInfer

    def credit(model: Any, x: Any, y: Any) -> Any:
        return PCInfer(model, nn.CrossEntropyLoss(), x, y, rule, 0.1, 20)[4][1:-1]

    return diagnose(trained, data.test(), credit=credit, method_name=rule)
