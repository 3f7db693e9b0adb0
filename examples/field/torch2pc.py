"""Predictive coding of any ``nn.Sequential``, strict and with fixed predictions: the notebook's convolutional network."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository

HERE = Repository(
    "RobertRosenbaum/Torch2PC",
    commit="00c6c50ee3540537bbb56ab2b6567b541f42b093",
    rules=("Exact", "FixedPred", "Strict"),
    bp="Exact",
    blocks="[123]",
    seeds=1,
    paper={"FixedPred": "BP · BP · BP", "Strict": "other · other · any"},
    network="2 convolutions and 3 linear layers, ReLU: the notebook's",
    data="3 epochs of batches of 100 (its notebook: 2)",
    images=6_000,
    pairs=False,
)


def gradients(rule: str, model: nn.Module, x: Any, y: Any) -> None:
    """Their inference, which leaves its gradients in the weights."""
    with contextlib.redirect_stdout(io.StringIO()):
        from TorchSeq2PC import PCInfer

    PCInfer(model, cross_entropy, x, y, rule, 0.1, 20)


def train(rule: str, source: Path, data: Data, *, frozen: bool) -> nn.Module:
    """The notebook's network, optimiser and settings of inference."""
    model = nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 10, 3), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Conv2d(10, 5, 3), nn.ReLU(), nn.Flatten()),
        nn.Sequential(nn.Linear(5 * 11 * 11, 50), nn.ReLU()),
        nn.Sequential(nn.Linear(50, 30), nn.ReLU()),
        nn.Sequential(nn.Linear(30, 10)),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
    start = [one.detach().clone() for one in model.parameters()]
    for _ in range(3):
        for x, y in data.loader(100):
            gradients(rule, model, x, y)
            optimizer.step()
            if frozen:  # they ask for the gradient of every parameter
                for one, before in zip(model[1:4].parameters(), start[2:], strict=False):
                    one.data.copy_(before)
    return model


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """The network as it is; the step is along their gradients."""
    return diagnose(
        trained,
        data.test(),
        train=data.training(),
        step=lambda model, x, y: SGD(model.parameters(), 0.01).step(
            lambda: gradients(rule, model, x, y)
        ),
        method_name=rule,
    )
