"""Predictive coding by layers that hold their own state: the first notebook's network, squared error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository, freeze, missing

HERE = Repository(
    "Bogacz-Group/PredictiveCoding",
    commit="5bf803c3636a39928488941f05539c70ab4df0b1",
    rules=("BP", "PC"),
    bp="BP",
    blocks="3",
    network="2 hidden layers of 256, ReLU",
    data="Fashion-MNIST for MNIST, 10,000 images, 10 epochs",
)


def setup(source: Path) -> None:
    """What only draws is left out."""
    missing("tqdm", "pandas", "seaborn")


def train(rule: str, source: Path, data: Data, *, frozen: bool) -> nn.Module:
    """The settings of the notebook, batches of 500 and 20 steps of inference."""
    import predictive_coding as pc

    model = nn.Sequential(
        *(nn.Linear(784, 256), pc.PCLayer(), nn.ReLU()),
        *(nn.Linear(256, 256), pc.PCLayer(), nn.ReLU()),
        nn.Linear(256, 10),
    )
    if frozen:
        freeze(model, HERE.blocks)
    trainer = pc.PCTrainer(
        model.train(), T=20, update_p_at="last",
        optimizer_x_fn=torch.optim.SGD, optimizer_x_kwargs={"lr": 0.01},
        optimizer_p_fn=torch.optim.Adam, optimizer_p_kwargs={"lr": 0.001},
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    for _ in range(10):
        for x, y in data.loader(500, shape=(784,)):
            target = nn.functional.one_hot(y, 10).float()
            if rule == "BP":
                optimizer.zero_grad()
                (0.5 * (model.eval()(x) - target).pow(2).sum()).backward()
                optimizer.step()
                continue
            trainer.train_on_batch(
                inputs=x,
                loss_fn=lambda o, t: 0.5 * (o - t).pow(2).sum(),
                loss_fn_kwargs={"t": target},
                is_log_progress=False,
            )
    for layer in model:
        if isinstance(layer, pc.PCLayer):
            layer._energy = layer._energy_fn = layer._sample_x_fn = None  # of training alone
    return model


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """In eval mode the layers hand on what they get; the loss is the squared error."""
    return diagnose(trained, data.test(shape=(784,)), loss="mse", method_name=rule)
