"""Feedback alignment in one autograd function: the script's network of two linear layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository, freeze, load

HERE = Repository(
    "L0SG/feedback-alignment-pytorch",
    commit="f9c6a2d76e4a01472ea3690bd37f33f129cfdc71",
    rules=("BP", "FA"),
    bp="BP",
    blocks=r"linear\.0",
    paper={"": "other · other · BP"},
    network="1 hidden layer of 1,000",
    data="5 epochs of batches of 32, SGD lr 1e-2 (its default is 1e-4)",
    changes="saved_variables is called saved_tensors today, init functions end in _",
)
IMAGES = {"mean": 0.1307, "std": 0.3081, "shape": (784,)}


def setup(source: Path) -> None:
    """Their module, as a present torch takes it."""
    renamed = {
        "saved_variables": "saved_tensors",
        "kaiming_uniform(": "kaiming_uniform_(",
        "init.constant(": "init.constant_(",
    }
    load(source / "lib" / "fa_linear.py", renamed)
    load(source / "lib" / "linear.py", renamed)


def train(rule: str, source: Path, data: Data, *, frozen: bool) -> torch.nn.Module:
    """Batches of 32, SGD with momentum and weight decay, as in the script."""
    from fa_linear import LinearFANetwork
    from linear import LinearNetwork

    network = LinearNetwork if rule == "BP" else LinearFANetwork
    model = network(in_features=784, num_layers=2, num_hidden_list=[1000, 10])
    if frozen:
        freeze(model, HERE.blocks)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=1e-2, momentum=0.9, weight_decay=0.001, nesterov=True
    )
    for _ in range(5):
        for x, y in data.loader(32, **IMAGES):
            model.zero_grad()
            cross_entropy(model(x), y).backward()
            optimizer.step()
    return model


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """The network as it is; the step is by its own backward."""
    return diagnose(
        trained,
        data.test(**IMAGES),
        train=data.training(**IMAGES),
        step=lambda model, x, y: SGD(model.parameters(), 0.01).step(
            lambda: cross_entropy(model(x), y).backward()
        ),
        method_name=rule,
    )
