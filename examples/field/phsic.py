"""pHSIC: each layer by a kernel measure of dependence on the labels, three factors; the last layer by its loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository, load

HERE = Repository(
    "romanpogodin/plausible-kernelized-bottleneck",
    commit="8f075d0ea4bd575758ac3f20885299a5ff2b5ffd",
    rules=("BP", "pHSIC"),
    bp="BP",
    blocks=r"hidden_layers\.[12]",
    seeds=1,
    paper={"": "other · other · BP"},
    network="MLP, 3 hidden layers of 512 (its default has 1024), leaky ReLU, divisive normalisation",
    data="5 of 100 epochs, batches of 128, local lr 0.05",
)
WORDS = "--experiment mlp --dataset fMNIST --mlp-layer-size 512 --n-epochs 5 --device cpu --training-mode test --local-lr 0.05 --final-lr 0.05 --divisive-norm-fc --epoch-decrease-lr 100"


def train(rule: str, source: Path, data: Data, *, frozen: bool) -> torch.nn.Module:
    """``run_mlp_experiment`` of ``experiments.py`` by its options."""
    import datasets
    import utils

    def loaders(*_: Any, **__: Any) -> Any:
        test = torch.utils.data.DataLoader(data.arrays(train=False), 500)
        return data.loader(128), test, test

    def held(network: Any) -> None:
        for layer in network.hidden_layers[1:] if frozen else ():
            for group in layer.local_opt.param_groups:
                group["lr"] = 0.0
            if rule == "BP":
                layer.requires_grad_(False)

    datasets.build_loaders_by_dataset = loaders
    words = {"return train_acc, val_acc, test_acc": "return net", "print(net)": "held(net)"}
    module = load(source / "experiments.py", words, name="phsic_experiments", held=held)
    args = utils.parse_arguments([*WORDS.split(), *(["--backprop"] if rule == "BP" else [])])
    network: torch.nn.Module = module.run_mlp_experiment(args, torch.device("cpu"))
    return network


def gradients(rule: str, model: Any, x: Any, y: Any) -> None:
    """The loss of the outputs and, where they are asked for, of every hidden layer."""
    local = rule == "pHSIC"
    for layer in model.hidden_layers:
        layer.local_opt = SGD(layer.parameters(), 0.0)  # it leaves the gradients
    cross_entropy(model(x, y, local, local), y).backward()


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """Labels go in, and are not used without local losses."""
    return diagnose(
        trained,
        data.test(),
        train=data.training(),
        forward=lambda model, x, y: model(x, y),
        step=lambda model, x, y: SGD(model.parameters(), 0.01).step(
            lambda: gradients(rule, model, x, y)
        ),
        method_name=rule,
    )
