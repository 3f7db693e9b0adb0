"""Equilibrium propagation on convolutions: all layers relax together, free and nudged by the label."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository, missing

HERE = Repository(
    "Laborieux-Axel/Equilibrium-Propagation",
    commit="93660ed6c5b0ec07978b674a69c169ce32e8cd5f",
    rules=("equilibrium propagation",),
    seeds=1,
    network="2 convolutions of 16 and 32 channels (its CIFAR-10 network has 4 of 128 to 512), 1 linear layer",
    data="1,000 test images; 1 of 120 epochs, 30 free and 10 nudged steps of 250 and 30",
    images=2_000,
    pairs=False,
)


def setup(source: Path) -> Any:
    """What only draws is left out."""
    missing("matplotlib", "matplotlib.pyplot")
    import model_utils

    return model_utils


def train(rule: str, source: Path, data: Data) -> Any:
    """Its training with its learning rates of the lower layers and a third phase."""
    theirs = setup(source)
    pools = theirs.make_pools("mm")
    model = theirs.P_CNN(
        28, [1, 16, 32], [3, 3], [1, 1], [10], pools, [1, 1], activation=theirs.my_hard_sig
    )
    groups = [
        {"params": layer.parameters(), "lr": rate}
        for layer, rate in zip(model.synapses, (0.25, 0.15, 0.1), strict=True)
    ]
    optimizer = torch.optim.SGD(groups, momentum=0.9, weight_decay=3e-4)
    loader = data.loader(128)
    loader.dataset.train = True  # what it prints
    theirs.train(
        model, optimizer, loader, loader, 30, 10, (0.0, 0.5), torch.device("cpu"), 1,
        torch.nn.MSELoss(reduction="none"), alg="EP", thirdphase=True,
    )  # fmt: skip
    return model


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """The outputs of the free phase."""
    return diagnose(
        trained,
        data.test()[:2],
        forward=torch.enable_grad()(  # its states relax by gradients
            lambda model, x, y: model(x, y, model.init_neurons(len(x), x.device), 30)[-1]
        ),
        loss="mse",
        method_name=rule,
    )
