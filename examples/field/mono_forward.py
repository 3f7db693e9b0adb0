"""Mono-Forward: each layer by the cross-entropy of its own projection to classes, one layer after the other."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository, freeze, missing

HERE = Repository(
    "Przemyslaw11/BeyondBackpropagation",
    commit="597d79d8ca3895ef67f251a892d04d6eb4951ece",
    rules=("BP", "Mono-Forward"),
    bp="BP",
    blocks=r"layers\.2",
    paper={"": "other · other · BP"},
    network="MLP 784-500-500-10, ReLU",
    data="5 epochs (a layer in Mono-Forward) of batches of 128, Adam lr 1e-3",
)


def setup(source: Path) -> None:
    """What logs, searches and measures energy is left out."""
    missing("wandb", "tqdm", "pynvml", "codecarbon", "yaml", "optuna", "torch_optimizer", "ptflops")


def train(rule: str, source: Path, data: Data, *, frozen: bool) -> torch.nn.Module:
    """Their loops; the last projection is what they read classes from."""
    from src.algorithms.mf import train_mf_model
    from src.architectures.mf_mlp import MF_MLP
    from src.baselines.bp import train_bp_epoch

    model = MF_MLP(784, [500, 500], 10)
    cpu, flat = torch.device("cpu"), partial(torch.flatten, start_dim=1)
    loader = data.loader(128)
    second = model.layers[2]
    start = [one.detach().clone() for one in second.parameters()]
    if rule == "BP":
        if frozen:
            freeze(model, HERE.blocks)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for epoch in range(5):
            train_bp_epoch(
                model, loader, optimizer, torch.nn.CrossEntropyLoss(), cpu, epoch, 5,
                input_adapter=flat,
            )  # fmt: skip
        return model
    if frozen:  # they switch gradients on for the layer that they train
        second.register_forward_hook(partial(hold, start))
    train_mf_model(model, loader, {"algorithm_params": {"epochs_per_layer": 5}}, cpu, flat)
    hold(start if frozen else [one.data for one in second.parameters()], second)
    second._forward_hooks.clear()
    model.output_layer.weight = model.projection_matrices[-1]
    model.output_layer.bias = None  # a projection has none
    return model.requires_grad_()


def hold(start: Any, layer: Any, *_: Any) -> None:
    """Put the weights back."""
    for one, before in zip(layer.parameters(), start, strict=True):
        one.data.copy_(before)


def loss(rule: str, model: Any, x: Any, y: Any) -> Any:
    """The losses of all layers at once."""
    if rule == "BP":
        return cross_entropy(model(x), y)
    losses, h = [], x
    for layer, matrix in zip(model.layers[::2], list(model.projection_matrices)[1:], strict=True):
        h = layer(h.detach()).relu()
        losses.append(cross_entropy(h @ matrix.t(), y))
    return sum(losses)


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """The network as it is: the last projection is its head."""
    return diagnose(
        trained,
        data.test(shape=(784,)),
        train=data.training(shape=(784,)),
        step=lambda model, x, y: SGD(model.parameters(), 0.01).step(
            lambda: loss(rule, model, x, y).backward()
        ),
        method_name=rule,
    )
