"""PEPITA: a second forward pass with the error added to the input; the change of each layer is its credit. numpy."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import SGD

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository, load, missing

HERE = Repository(
    name="GiorgiaD/PEPITA",
    commit="3fe03d80b642fa6df8ed23fc1c6dc9247f98c63b",
    rules=("BP", "PEPITA"),
    bp="BP",
    blocks="the layers 0 and 1",
    paper={"": "other · other · any"},
    network="numpy MLP 784-256-256-10 (its default has 1024), ReLU, softmax",
    data="3 of 100 epochs of batches of 64, lr 0.1",
    images=20_000,
    changes="the shuffle of scikit-learn is numpy's",
)


def train(rule: str, source: Path, data: Data, *, frozen: bool) -> Any:
    """``main.py`` with the README's settings and its default of two hidden layers."""
    rng = np.random.default_rng(data.seed)
    missing("sklearn.model_selection", "scipy", "sklearn")
    sys.modules["sklearn.utils"] = SimpleNamespace(
        shuffle=lambda *lists, random_state: zip(
            *[[one[i] for one in lists] for i in rng.permutation(len(lists[0]))], strict=True
        )
    )
    utils = load(source / "utils.py")
    functions = load(source / "functions.py")
    np.random.seed(data.seed)
    network = functions.general_network(
        [784, 256, 256, 10], [utils.relu, utils.relu, utils.softmax], [utils.step_f] * 3,
        "BP" if rule == "BP" else "ERIN", 64, "mom", "un", "he_uniform", 2,
    )  # fmt: skip
    if frozen:
        learning, start = network.learning, [layer.w.copy() for layer in network.layers[:-1]]

        def head(*given: Any) -> None:
            learning(*given)
            for layer, w in zip(network.layers, start, strict=False):
                layer.w[:] = w

        network.learning = head
    x, y = (
        one.numpy().astype(np.float64) for one in data.arrays(train=True, shape=(784, 1)).tensors
    )
    targets = np.eye(10)[y.astype(int)][..., None]
    passes = 1 if rule == "BP" else 2
    network.train(
        list(x), list(targets), [], [], 3, passes, 0.1, 0.9,
        True, True, False, False, False, False, False, str(source), 0, False,
    )  # fmt: skip
    return [layer.w for layer in network.layers], getattr(network.layers[-1], "F", None)


def network(weights: Any) -> nn.Sequential:
    """The layers in torch, without the softmax of the outputs."""
    layers: list[nn.Module] = []
    for weight in weights:
        layers += [nn.Linear(*weight.shape[::-1], bias=False), nn.ReLU()]
        layers[-2].weight.data = torch.tensor(weight, dtype=torch.float32)
    return nn.Sequential(*layers[:-1])


def step(feedback: Any, model: Any, x: Any, y: Any) -> None:
    """Two passes and plain SGD, as their ``ERIN`` takes it off the weights."""
    with torch.no_grad():
        e = model(x).softmax(1) - nn.functional.one_hot(y, 10)
        second = x + e @ torch.tensor(feedback, dtype=torch.float32).T
        before, after = x, second
        for layer in model[:-1:2]:
            h, moved = layer(before).relu(), layer(after).relu()
            layer.weight -= 1e-3 * (h - moved).T @ after
            before, after = h, moved
        model[-1].weight -= 1e-3 * e.T @ after


def backward(model: Any, x: Any, y: Any) -> None:
    """BP over the same layers."""
    SGD(model.parameters(), 0.01).step(lambda: nn.functional.cross_entropy(model(x), y).backward())


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """Logits of the layers in torch."""
    weights, feedback = trained
    return diagnose(
        network(weights),
        data.test(shape=(784,)),
        train=data.training(shape=(784,)),
        step=backward if feedback is None else partial(step, feedback),
        method_name=rule,
    )
