"""Direct random target projection, DFA and FA: sigmoid outputs, binary cross-entropy, labels in the forward."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import binary_cross_entropy, one_hot
from torch.optim import SGD

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository, freeze, load, missing

HERE = Repository(
    "ChFrenkel/DirectRandomTargetProjection",
    commit="b84e3fe965bf98b8531f3036604cbe16424a5cc6",
    rules=("BP", "DRTP", "DFA", "FA"),
    bp="BP",
    blocks=r"layers\.[12]",
    paper={"": "other · other · BP"},
    network="3 hidden layers of 500, tanh, sigmoid outputs",
    data="5 epochs of batches of 100, Adam lr 5e-4, one of its optimisers",
    changes="saved_variables is called saved_tensors today",
)


def setup(source: Path) -> None:
    """Their module, as a present torch takes it."""
    missing("tqdm")
    load(source / "function.py", {"saved_variables": "saved_tensors"})


def train(rule: str, source: Path, data: Data, *, frozen: bool) -> torch.nn.Module:
    """Their epoch function; their own train() keeps the network to itself."""
    theirs = load(source / "train.py", {"tqdm(train_loader)": "train_loader"})
    model = theirs.models.NetworkBuilder(
        "FC_500_FC_500_FC_500_FC_10", 28, 1, 10, 100, rule, 0, "tanh", "tanh", "sigmoid", False, "BCE", "cpu"
    )  # fmt: skip
    if frozen:
        freeze(model, HERE.blocks)
    args = argparse.Namespace(freeze_conv_layers=False, regression=False, label_features=10)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    batches = data.loader(100)
    for _ in range(5):
        theirs.train_epoch(
            args, model, "cpu", batches, optimizer, (binary_cross_entropy, lambda y: y)
        )
    model.y = None  # the outputs of the last batch, of a fixed size
    return model


def loss(outputs: Any, y: Any) -> Any:
    """Their loss of each sample: the outputs are sigmoids, so the audit's own "bce" does not fit."""
    return binary_cross_entropy(outputs, one_hot(y, 10).to(outputs), reduction="none").sum(1)


def theirs(rule: str, model: Any, x: Any, y: Any) -> Any:
    """Their loss of a batch; DFA writes the outputs into ``y`` for its backward."""
    targets = one_hot(y, 10).float()
    if rule == "DFA":
        model.y = torch.zeros_like(targets)
    return binary_cross_entropy(model(x, targets), targets)


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """Outputs without labels; in a step the labels go in, as in training."""
    return diagnose(
        trained,
        data.test(),
        train=data.training(),
        forward=lambda model, x, y: model(x, None),
        loss=loss,
        step=lambda model, x, y: SGD(model.parameters(), 1.0).step(
            lambda: theirs(rule, model, x, y).backward()
        ),
        method_name=rule,
    )
