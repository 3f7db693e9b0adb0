"""Predictive coding with tensors that are changed by hand: fixed predictions, squared error, no nn.Module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import one_hot
from torch.optim import SGD

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository

HERE = Repository(
    "infer-actively/pypc",
    commit="965425df619210f577478f1ffd64b038753879b9",
    rules=("BP", "predictive coding"),
    bp="BP",
    blocks="the second layer",
    paper={"": "BP · BP · BP"},
    network="MLP 784-300-100-10, a bias after each ReLU",
    data="5 of 30 epochs of batches of 64, Adam lr 1e-3 (its default is 1e-4)",
)


def theirs() -> Any:
    """Their network with the settings of ``scripts/supervised.py``."""
    from pypc.models import PCModel
    from pypc.utils import ReLU

    return PCModel([784, 300, 100, 10], 0.01, ReLU(), use_bias=True)


class Layer(nn.Module):
    """Their layer as torch has it."""

    def __init__(self, weights: Any, bias: Any, *, last: bool) -> None:
        super().__init__()
        self.weights, self.bias, self.last = nn.Parameter(weights), nn.Parameter(bias), last

    def forward(self, x: Any) -> Any:
        """The bias comes after the activation."""
        h = x @ self.weights
        return (h if self.last else h.relu()) + self.bias


def train(rule: str, source: Path, data: Data, *, frozen: bool) -> Any:
    """Their training; BP is this project's loop over the same layers."""
    from pypc.optim import Adam

    pc = theirs()
    optimizer = Adam(pc.params, lr=1e-3, batch_scale=False, grad_clip=50)
    model = network([(layer.weights, layer.bias) for layer in pc.layers])
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    second = pc.layers[1]
    start = second.weights.clone(), second.bias.clone()
    for epoch in range(5):
        for batch, (x, y) in enumerate(data.loader(64, shape=(784,))):
            if rule == "BP":
                model[1].requires_grad_(not frozen)
                adam.zero_grad()
                squared(model(x), y).backward()
                adam.step()
                continue
            with torch.no_grad():
                pc.train_batch_supervised(x, one_hot(y, 10).float(), 50, fixed_preds=True)
                optimizer.step(curr_epoch=epoch, curr_batch=batch, n_batches=1, batch_size=64)
                if frozen:
                    second.weights, second.bias = start[0].clone(), start[1].clone()
    layers = model if rule == "BP" else pc.layers
    return [(layer.weights.detach(), layer.bias.detach()) for layer in layers]


def squared(outputs: Any, y: Any) -> Any:
    """Half the squared error, whose gradient is their prediction error."""
    return 0.5 * (outputs - one_hot(y, 10)).square().sum()


def network(weights: Any) -> nn.Sequential:
    """Their layers as modules."""
    return nn.Sequential(*(Layer(w.clone(), b.clone(), last=len(b) == 10) for w, b in weights))


def step(model: Any, x: Any, y: Any) -> None:
    """Their inference and update by plain SGD, with these weights."""
    from pypc.optim import SGD as Plain

    pc = theirs()
    for layer, own in zip(pc.layers, model, strict=True):
        layer.weights, layer.bias = own.weights.detach().clone(), own.bias.detach().clone()
    with torch.no_grad():
        pc.train_batch_supervised(x, one_hot(y, 10).float(), 50, fixed_preds=True)
        Plain(pc.params, lr=1e-2, batch_scale=False).step(batch_size=len(x))
    for layer, own in zip(pc.layers, model, strict=True):
        own.weights.data, own.bias.data = layer.weights, layer.bias


def backward(model: Any, x: Any, y: Any) -> None:
    """BP over the same layers."""
    SGD(model.parameters(), 1e-3).step(lambda: squared(model(x), y).backward())


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """The layers as modules; the squared error."""
    return diagnose(
        network(trained),
        data.test(shape=(784,)),
        train=data.training(shape=(784,)),
        loss="mse",
        step=backward if rule == "BP" else step,
        method_name=rule,
    )
