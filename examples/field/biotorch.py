"""BP, FA, DFA and sign-concordant feedback in three forms: the library's LeNet, its own training loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository, freeze

HERE = Repository(
    "jsalbert/biotorch",
    commit="74fad0dd32529e754e4bba8298d4e0fd0a06a886",
    rules=("backpropagation", "fa", "dfa", "usf", "brsf", "frsf"),
    bp="backpropagation",
    blocks=r"module\.(conv[23]|fc1)",
    paper={"": "other · other · BP"},
    network="LeNet, 3 convolutions and 2 linear layers",
    data="6 epochs of batches of 128, Adam lr 1e-3",
    images=10_000,
    pairs=False,
)
IMAGES = {"shape": (1, 32, 32), "pad": 2}


def train(rule: str, source: Path, data: Data, *, frozen: bool) -> torch.nn.Module:
    """Their loop and batch size; one optimiser for all, with a learning rate for few epochs."""
    from biotorch import models
    from biotorch.training.functions import train as epoch

    model = getattr(models, rule).le_net_mnist(layer_config={"type": rule})
    if frozen:
        freeze(model, HERE.blocks)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
    batches = data.loader(128, **IMAGES)
    for number in range(6):
        epoch(model, rule, cross_entropy, optimizer, batches, "cpu", number, False)
    return model


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """The network as it is; the step is their training function on one batch."""
    from biotorch.training.functions import train as epoch

    return diagnose(
        trained,
        data.test(**IMAGES),
        train=data.training(**IMAGES),
        step=lambda model, x, y: (
            epoch(
                model, rule, cross_entropy, SGD(model.parameters(), 0.01), [(x, y)], "cpu", 0, False
            ),
            model.eval(),  # in training DFA asks for labels
        ),
        method_name=rule,
    )
