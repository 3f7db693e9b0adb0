"""Zeroth order on a residual network: the loss at random neighbours of the weights, no backward pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository, by_backward, freeze

HERE = Repository(
    "OPTML-Group/DeepZero",
    commit="5cf30b1c314a94f0c13be8da5d68e382ade801fa",
    rules=("BP", "random gradient estimate"),
    bp="BP",
    blocks=r"layer[123]",
    seeds=1,
    network="ResNet-8: its ResNet-20 with 1 block a stage, batch normalisation",
    data="Fashion-MNIST for CIFAR-10, 3,000 images of 3 × 28 × 28; 2 epochs of batches of 128, 10 neighbours a step; its coordinatewise estimate takes a forward pass a weight",
)
IMAGES = {"mean": 0.286, "std": 0.353}


def network() -> torch.nn.Module:
    """Their class with one block a stage."""
    from models.resnet_s import BasicBlock, ResNet

    return ResNet(BasicBlock, [1, 1, 1])


def estimate(model: Any, x: Any, y: Any) -> None:
    """Their estimate of the gradient, left where an optimiser finds it."""
    from algorithm.zoo.gradient_estimate import f, rge

    weights = {name: one.data for name, one in model.named_parameters() if one.requires_grad}
    found = rge(lambda near: f(near, model, x, y, cross_entropy), weights, 10, 5e-3)
    for name, one in model.named_parameters():
        one.grad = found.get(name)


def train(rule: str, source: Path, data: Data, *, frozen: bool) -> Any:
    """SGD with momentum, as theirs; grey images go in thrice."""
    model = network()
    if frozen:
        freeze(model, HERE.blocks)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    for _ in range(2):
        for grey, y in replace(data, train=min(data.train, 3_000)).loader(128, **IMAGES):
            x = grey.expand(-1, 3, -1, -1)
            optimizer.zero_grad()
            if rule == "BP":
                cross_entropy(model(x), y).backward()
            else:
                estimate(model, x, y)
            optimizer.step()
    return model.state_dict()


def step(model: Any, x: Any, y: Any) -> None:
    """Plain SGD by their estimate."""
    estimate(model, x, y)
    for one in model.parameters():
        one.data -= 0.01 * one.grad


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """The network as it is."""
    model = network()
    model.load_state_dict(trained)
    test = [(x.expand(-1, 3, -1, -1), y) for x, y in data.test(**IMAGES)]
    train = [(x.expand(-1, 3, -1, -1), y) for x, y in data.training(**IMAGES)]
    chosen = by_backward() if rule == "BP" else step
    return diagnose(model.eval(), test, train=train, step=chosen, method_name=rule)
