"""Predictive coding by layers that hold their own state: the first notebook's network, squared error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import SGD, Adam

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository, freeze, missing

HERE = Repository(
    "Bogacz-Group/PredictiveCoding",
    commit="5bf803c3636a39928488941f05539c70ab4df0b1",
    rules=("BP", "PC"),
    bp="BP",
    blocks="3",
    paper={"": "other · other · other"},
    network="2 hidden layers of 256, ReLU",
    data="6 epochs of batches of 500, Adam lr 1e-3",
)


def setup(source: Path) -> None:
    """What only draws is left out."""
    missing("tqdm", "pandas", "seaborn")


def batch(rule: str, model: nn.Module, optimizer: Any, rate: float) -> Any:
    """Training on one batch: their trainer with 20 steps of inference, or BP."""
    import predictive_coding as pc

    if rule == "BP":
        chosen = optimizer(model.parameters(), lr=rate)

        def backward(x: Any, y: Any) -> None:
            chosen.zero_grad()
            squared(model.eval()(x), y).backward()
            chosen.step()

        return backward
    trainer = pc.PCTrainer(
        model.train(), T=20, update_p_at="last",
        optimizer_x_fn=SGD, optimizer_x_kwargs={"lr": 0.01},
        optimizer_p_fn=optimizer, optimizer_p_kwargs={"lr": rate},
    )  # fmt: skip
    return lambda x, y: trainer.train_on_batch(
        inputs=x, loss_fn=squared, loss_fn_kwargs={"y": y}, is_log_progress=False
    )


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
    update = batch(rule, model, Adam, 0.001)
    for _ in range(6):
        for x, y in data.loader(500, shape=(784,)):
            update(x, y)
    for layer in model:
        if isinstance(layer, pc.PCLayer):
            layer._x = layer._energy = None  # of the last batch
    return model


def squared(outputs: Any, y: Any) -> Any:
    """The loss of the notebook, with labels in place of targets."""
    return 0.5 * (outputs - nn.functional.one_hot(y, 10)).pow(2).sum()


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """In eval mode the layers hand on what they get; the step is one batch of their trainer."""
    return diagnose(
        trained,
        data.test(shape=(784,)),
        train=data.training(shape=(784,)),
        loss="mse",
        step=lambda model, x, y: (
            batch(rule, model, SGD, 1e-4)(x, y),
            model.eval(),  # in training its layers hand on activities, not what they get
        ),
        method_name=rule,
    )
