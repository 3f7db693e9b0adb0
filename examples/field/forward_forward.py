"""Forward-Forward: each layer by its own goodness, a class by the largest sum of goodness over ten passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository, load, missing

HERE = Repository(
    name="mohammadpz/pytorch_forward_forward",
    commit="de9de2673fc2bb862fed85106b456ea707333d50",
    rules=("forward-forward",),
    seeds=1,
    network="MLP 784-500-500, ReLU, goodness of both layers",
    data="100 of 1,000 epochs a layer, all images in one batch",
    images=4_000,
    pairs=False,
)
NORMAL = {"mean": 0.1307, "std": 0.3081, "shape": (784,)}


def setup(source: Path) -> Any:
    """Its classes, so that a saved network can be loaded."""
    missing("tqdm")
    words = {".cuda()": "", "tqdm(range(self.num_epochs))": "range(100)", "argmax(1)": "clone()"}
    return load(source / "main.py", words, name="forward_forward_main")


def train(rule: str, source: Path, data: Data) -> torch.nn.Module:
    """The main block of ``main.py``; ``predict`` gives the goodness of each label instead of the largest."""
    main = setup(source)
    x, y = data.arrays(train=True, **NORMAL).tensors
    network: torch.nn.Module = main.Net([784, 500, 500])
    network.train(main.overlay_y_on_x(x, y), main.overlay_y_on_x(x, y[torch.randperm(len(y))]))
    return network


def audit(rule: str, network: torch.nn.Module, data: Data) -> DiagnosticReport:
    """Goodness per label as outputs; the layers in a list that torch sees; ``train`` as torch calls it."""
    network.layers = torch.nn.ModuleList(vars(network).pop("layers"))
    type(network).train = type(network.layers[0]).train = torch.nn.Module.train
    return diagnose(
        network,
        data.test(**NORMAL),
        train=data.training(**NORMAL),
        forward=lambda net, x, y: net.predict(x),
        method_name="FF",
    )
