"""Difference target propagation, with fixed and with learned feedback: tensors, no nn.Module."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD
from torch.utils.data import DataLoader

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository, missing

HERE = Repository(
    "TatsukichiShibuya/Fixed-Weight-Difference-Target-Propagation",
    commit="486e9fb3314897a4fdad384e43389499c6a189f7",
    rules=("BP", "FWDTP"),
    bp="BP",
    blocks="the layers 1 to 4",
    seeds=1,
    paper={"": "other · other · BP"},
    network="5 hidden layers of 256, tanh",
    data="5 epochs, lr 1 (0.08 for BP, the same step of the last layer)",
)
IMAGES = {"mean": 0.1307, "std": 0.3081, "shape": (784,)}
FEEDBACK = {"FWDTP": ("FWDTP", "uniform-1"), "DTP": ("DTP", "uniform")}  # ±0.1, fixed; ±0.01


def setup(source: Path) -> None:
    """Their code lies one folder deeper, and logs to a service."""
    missing("wandb")
    sys.path.insert(0, str(source / "code"))


def train(rule: str, source: Path, data: Data, *, frozen: bool) -> Any:
    """Their network and training; without batch norm their default feedback of ±0.001 is rounding noise.

    BP is trained here with the same layers: their ``bp_net`` multiplies by pre-activations.
    """
    from Main import get_args, set_params
    from models.tp_net import tp_net

    kind, feedback = FEEDBACK.get(rule, FEEDBACK["FWDTP"])
    sys.argv = ["Main.py", "--algorithm", kind, "--backward_function_1_init", feedback]
    options = vars(get_args())
    cross_entropy = torch.nn.CrossEntropyLoss(reduction="sum")
    net = tp_net(6, 1, 784, 256, 10, cross_entropy, "cpu", params=set_params(options))
    if rule == "BP":  # compute_target() leaves the gradients of the loss in the weights
        net.update_weights = lambda x, lr: [one.update_forward(lr / len(x)) for one in net.layers]
    for layer in net.layers[1:-1] if frozen else ():
        layer.update_forward = lambda lr: None
    valid = DataLoader(data.arrays(train=False, **IMAGES), 10_000)
    net.train(
        data.loader(256, **IMAGES),
        valid,
        epochs=5,
        lr=0.08 if rule == "BP" else 1.0,
        lrb=1e-3,
        std=1e-2,
        stepsize=0.04,
        log=False,
        params={"loss_feedback": "DTP", "epochs_backward": 1},
    )
    return net


def network(layers: Any) -> nn.Sequential:
    """Their layers as modules."""
    modules: list[nn.Module] = []
    for layer in layers:
        weight = layer.forward_function_2.weight
        modules += [nn.Linear(*weight.shape[::-1], bias=False), nn.Tanh()]
        modules[-2].weight.data = weight.detach().clone()
    return nn.Sequential(*modules[:-1])


def step(theirs: Any, model: Any, x: Any, y: Any) -> None:
    """Targets and update by their network with these weights."""
    for own, layer in zip(model[::2], theirs.layers, strict=True):
        layer.forward_function_2.weight = own.weight.detach().clone().requires_grad_()
    theirs.compute_target(x, y, 0.04)
    theirs.update_weights(x, 1.0)
    for own, layer in zip(model[::2], theirs.layers, strict=True):
        own.weight.data = layer.forward_function_2.weight.detach()


def backward(_: Any, model: Any, x: Any, y: Any) -> None:
    """BP over the same layers."""
    SGD(model.parameters(), 0.01).step(lambda: cross_entropy(model(x), y).backward())


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """The layers as modules."""
    return diagnose(
        network(trained.layers),
        data.test(**IMAGES),
        train=data.training(**IMAGES),
        step=partial(backward if rule == "BP" else step, trained),
        method_name=rule,
    )
