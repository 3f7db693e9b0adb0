"""Bursts in cortico-cortical networks: dendritic errors through learned feedback weights, sigmoid layers."""

from __future__ import annotations

from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import one_hot

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository, missing

HERE = Repository(
    "neuralml/BurstCCN",
    commit="5a0a33c95266fccd6884ee1807368a083d311bf0",
    rules=("BP", "FA", "BurstCCN"),
    bp="BP",
    blocks="the hidden layers 2 and 3",
    seeds=1,
    paper={"": "other · other · BP"},
    network="MLP 784-500-500-500-10, sigmoid: its default",
    data="4 of 250 epochs, batches of 32, lr 0.1",
    images=10_000,
    pairs=False,
)


def setup(source: Path) -> None:
    """What logs to a service is left out."""
    missing("wandb", "tqdm")


def changes(rule: str, model: Any, optimiser: Any) -> None:
    """Their update by BP, FA or bursts, all of which their backward pass leaves in the layers."""
    model.update_weights(
        [0.1] * 4, [0.001] * 4, [0.001] * 4, optimiser,
        use_backprop=rule == "BP", use_feedback_alignment=rule == "FA",
    )  # fmt: skip


def train(rule: str, source: Path, data: Data, *, frozen: bool) -> torch.nn.Module:
    """Their trainer with its defaults; feedback weights Q start as Y and stay."""
    import model_trainers
    from modules.networks_burstccn import BurstCCN
    from modules.optimisers import SGDOptimiser

    class Trainer(model_trainers.BurstCCNTrainer):  # type: ignore[misc]
        def update_model_weights(self, global_cost: Any = None) -> None:
            changes(rule, self.model, SGDOptimiser())
            for layer, start in held:
                layer.weight.data.copy_(start[0])
                layer.bias.data.copy_(start[1])

    trainer = Trainer()
    trainer.config = Namespace(log_mode="minimal")
    trainer.model = model = BurstCCN(
        784, 10, 0.5, 3, 500, "random_init", "symmetric_init", 1.0, 1.0, False, False, "cpu"
    )
    hidden = model.classification_layers[1:-1] if frozen else []
    held = [(layer, (layer.weight.clone(), layer.bias.clone())) for layer in hidden]
    for _ in range(4):
        trainer.train(data.loader(32))
    for layer in model.classification_layers:
        layer.weight.requires_grad_()
        layer.bias.requires_grad_()
    return model


def step(rule: str, model: Any, x: Any, y: Any) -> None:
    """Their forward, backward and update, without a graph."""
    from modules.optimisers import SGDOptimiser

    with torch.no_grad():
        model(x)
        model.backward(one_hot(y, 10).float())
        changes(rule, model, SGDOptimiser())


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """The network as it is; the squared error, as they report it."""
    return diagnose(
        trained,
        data.test(),
        train=data.training(),
        loss="mse",
        step=partial(step, rule),
        method_name=rule,
    )
