"""PEPITA: a second forward pass with the error added to the input; the change of each layer is its credit. numpy."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from pytest_fadiag import DiagnosticReport, save_trace
from pytest_fadiag import audit as audit_trace

from .common import Data, Repository, load, missing

HERE = Repository(
    name="GiorgiaD/PEPITA",
    commit="3fe03d80b642fa6df8ed23fc1c6dc9247f98c63b",
    rules=("BP", "PEPITA"),
    bp="BP",
    blocks="the layers 0 and 1",
    network="numpy MLP 784-256-256-10 (its default has 1024), ReLU, softmax",
    data="Fashion-MNIST for MNIST, 10,000 images; 4 of 100 epochs",
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
        list(x), list(targets), [], [], 4, passes, 0.1, 0.9,
        True, True, False, False, False, False, False, str(source), 0, False,
    )  # fmt: skip
    return [layer.w for layer in network.layers], getattr(network.layers[-1], "F", None)


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """States, gradients and changes of all test images."""
    (*hidden, last), feedback = trained
    x, y = (one.numpy() for one in data.arrays(train=False, shape=(784,)).tensors)

    def states(h: Any) -> list[Any]:
        return [h, *(h := np.maximum(h @ w.T, 0) for w in hidden)]

    h = states(x.astype(np.float64))
    outputs = h[-1] @ last.T
    p = np.exp(outputs - outputs.max(1, keepdims=True))
    e = p / p.sum(1, keepdims=True) - np.eye(10)[y]
    g = [e @ last]
    for w, after in zip(reversed(hidden), reversed(h), strict=False):
        g.insert(0, (g[0] * (after > 0)) @ w)
    second = [] if feedback is None else states(h[0] + e @ feedback.T)
    a = [before - after for before, after in zip(h, second, strict=False)][1:]
    save_trace("trace.npz", outputs=outputs, y=y, e=e, h=h, g=g, a=a, x=x, loss="ce", method=rule)
    return audit_trace("trace.npz")
