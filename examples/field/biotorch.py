"""BP, FA, DFA and uniform sign-concordant feedback: the library's LeNet, its own training loop."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository, by_backward, freeze

HERE = Repository(
    "jsalbert/biotorch",
    commit="74fad0dd32529e754e4bba8298d4e0fd0a06a886",
    rules=("backpropagation", "fa", "dfa", "usf"),
    bp="backpropagation",
    blocks=r"module\.(conv[23]|fc1)",
    network="LeNet, 3 convolutions and 2 linear layers",
    data="Fashion-MNIST for MNIST, 10,000 images, 6 epochs, Adam lr 1e-3",
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


def loss(rule: str, model: Any, x: Any, y: Any) -> Any:
    """Their forward of a batch: in training DFA takes the labels and hands the error to every layer."""
    if rule != "dfa":
        return cross_entropy(model(x), y)
    outputs = model.train()(x, y, cross_entropy)
    model.eval()
    return cross_entropy(outputs, y)


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """The network as it is; the step is by its own backward."""
    test, train = data.test(**IMAGES), data.training(**IMAGES)
    step = by_backward(partial(loss, rule))
    return diagnose(trained, test, train=train, step=step, method_name=rule)
