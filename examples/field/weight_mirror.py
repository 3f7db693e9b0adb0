"""Weight mirrors, Kolen-Pollack and feedback alignment in numpy: sigmoid layers, sigmoid cross-entropy."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository

HERE = Repository(
    "makrout/Deep-Learning-without-Weight-Transport",
    commit="688f47addd2131684da1b7829b20365f585eee66",
    rules=("BP", "FA", "WM", "KP"),
    bp="BP",
    blocks="the second layer",
    paper={"": "other · other · BP"},
    network="numpy MLP 784-500-200-10 (its default has 1000), sigmoid",
    data="10 of 400 epochs of batches of 128, lr 0.4 (its default is 0.2)",
    images=10_000,
    pairs=False,
)


def train(rule: str, source: Path, data: Data, *, frozen: bool) -> Any:
    """``main.py`` with its batches of 128."""
    import fcnn.FCNN_BP
    import fcnn.FCNN_FA
    import fcnn.FCNN_KP
    import fcnn.FCNN_WM

    kind = getattr(getattr(fcnn, f"FCNN_{rule}"), f"FCNN_{rule}")

    class Held(kind):  # type: ignore[misc,valid-type]
        def backpropagate(self, *given: Any, **options: Any) -> Any:
            found = super().backpropagate(*given, **options)
            if frozen and isinstance(found, tuple):
                found[1][1][:] = 0
                found[2][1][:] = 0
            return found

    np.random.seed(data.seed)
    network = Held([784, 500, 200, 10], str(source))
    arrays = [data.arrays(train=part, shape=(784,)).tensors for part in (True, False)]
    given = [one for x, y in arrays for one in (x.numpy(), np.eye(10)[y.numpy()])]
    network.train(*given, 128, 0.4, 10, 1)
    return rule, network.weights, network.biases, getattr(network, "backward_weights", None)


def network(weights: Any, biases: Any) -> nn.Sequential:
    """The layers in torch, without the sigmoid of the outputs."""
    layers: list[nn.Module] = []
    for weight, bias in zip(weights, biases, strict=True):
        layers += [nn.Linear(*weight.shape[::-1]), nn.Sigmoid()]
        layers[-2].weight.data = torch.tensor(weight, dtype=torch.float32)
        layers[-2].bias.data = torch.tensor(bias[:, 0], dtype=torch.float32)
    return nn.Sequential(*layers[:-1])


def step(rule: str, feedback: Any, model: Any, x: Any, y: Any) -> None:
    """The changes that their ``train`` takes off, by a network of theirs with these weights."""
    import fcnn.FCNN_BP
    import fcnn.FCNN_FA

    kind = fcnn.FCNN_BP.FCNN_BP if rule == "BP" else fcnn.FCNN_FA.FCNN_FA
    theirs = kind([784, 500, 200, 10], ".")
    theirs.weights = [layer.weight.detach().double().numpy() for layer in model[::2]]
    theirs.biases = [layer.bias.detach().double().numpy()[:, None] for layer in model[::2]]
    theirs.backward_weights = feedback
    _, biases, weights = theirs.backpropagate(x.double().numpy().T, np.eye(10)[y.numpy()].T)
    for layer, weight, bias in zip(model[::2], weights, biases, strict=True):
        layer.weight.data -= 0.1 / len(x) * torch.tensor(weight).to(layer.weight)
        layer.bias.data -= 0.1 / len(x) * torch.tensor(bias[:, 0]).to(layer.bias)


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """Logits and binary cross-entropy; WM and KP go back as FA does, through what they learned."""
    return diagnose(
        network(*trained[1:3]),
        data.test(shape=(784,)),
        train=data.training(shape=(784,)),
        loss="bce",
        step=partial(step, rule, trained[3]),
        method_name=rule,
    )
