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


def one_hot(y: Any) -> Any:
    return nn.functional.one_hot(y, 10).float()


def squared_error(o: Any, t: Any) -> Any:
    return 0.5 * (o - t).pow(2).sum()


def trainer(model: nn.Module, optimiser: Any) -> Any:
    """20 steps of inference, then one of the weights."""
    import predictive_coding as pc

    return pc.PCTrainer(
        model.train(), T=20, update_p_at="last",
        optimizer_x_fn=torch.optim.SGD, optimizer_x_kwargs={"lr": 0.01},
        optimizer_p_fn=optimiser, optimizer_p_kwargs={"lr": 0.001},
    )  # fmt: skip


def options(x: Any, y: Any) -> dict[str, Any]:
    """What it takes for a batch."""
    target = {"t": one_hot(y)}
    return {
        "inputs": x,
        "loss_fn": squared_error,
        "loss_fn_kwargs": target,
        "is_log_progress": False,
    }


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
    learner = trainer(model, torch.optim.Adam)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    for _ in range(10):
        for x, y in data.loader(500, shape=(784,)):
            if rule == "BP":
                optimizer.zero_grad()
                squared_error(model.eval()(x), one_hot(y)).backward()
                optimizer.step()
                continue
            learner.train_on_batch(**options(x, y))
    for layer in model:
        if isinstance(layer, pc.PCLayer):
            layer._energy = layer._energy_fn = layer._sample_x_fn = None  # of training alone
    return model


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """In eval mode the layers hand on what they get; the loss is the squared error."""
    own = None if rule == "BP" else step
    return diagnose(trained, data.test(shape=(784,)), loss="mse", step=own, method_name=rule)


def step(model: Any, x: Any, y: Any) -> None:
    """Its trainer, made again for the copy, by plain SGD; afterwards the layers hand on again."""
    for number in (1, 4):
        model[number] = type(model[1])()  # what was saved has no energy function
    trainer(model, torch.optim.SGD).train_on_batch(**options(x, y))
    model.eval()
