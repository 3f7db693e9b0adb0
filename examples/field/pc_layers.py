"""Predictive coding by layers that hold their own state: the first notebook's network, squared error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository, by_backward, freeze, missing

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


def predictive(model: nn.Module, optimizer: Any, rate: float) -> Any:
    """Their trainer with 20 steps of inference."""
    import predictive_coding as pc

    return pc.PCTrainer(
        model.train(), T=20, update_p_at="last",
        optimizer_x_fn=torch.optim.SGD, optimizer_x_kwargs={"lr": 0.01},
        optimizer_p_fn=optimizer, optimizer_p_kwargs={"lr": rate},
    )  # fmt: skip


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
    trainer = predictive(model, torch.optim.Adam, 0.001)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    for _ in range(10):
        for x, y in data.loader(500, shape=(784,)):
            if rule == "BP":
                optimizer.zero_grad()
                squared(model.eval()(x), y).backward()
                optimizer.step()
                continue
            trainer.train_on_batch(
                inputs=x,
                loss_fn=squared,
                loss_fn_kwargs={"y": y},
                is_log_progress=False,
            )
    for layer in model:
        if isinstance(layer, pc.PCLayer):
            layer._energy = layer._energy_fn = layer._sample_x_fn = None  # of training alone
    return model


def squared(outputs: Any, y: Any) -> Any:
    """The loss of the notebook, with labels in place of targets."""
    return 0.5 * (outputs - nn.functional.one_hot(y, 10)).pow(2).sum()


def step(model: Any, x: Any, y: Any) -> None:
    """Inference and one step of plain SGD by their trainer."""
    trainer = predictive(model, torch.optim.SGD, 1e-4)
    trainer.train_on_batch(
        inputs=x, loss_fn=squared, loss_fn_kwargs={"y": y}, is_log_progress=False
    )


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """In eval mode the layers hand on what they get; the loss is the squared error."""
    test, train = data.test(shape=(784,)), data.training(shape=(784,))
    chosen = by_backward(squared) if rule == "BP" else step
    return diagnose(trained, test, train=train, loss="mse", step=chosen, method_name=rule)
