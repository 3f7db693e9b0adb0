"""pHSIC (a layer-wise kernel loss), feedback alignment and sign symmetry: the paper's MLP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository

HERE = Repository(
    "romanpogodin/plausible-kernelized-bottleneck",
    commit="8f075d0ea4bd575758ac3f20885299a5ff2b5ffd",
    rules=("pHSIC", "feedback-alignment", "sign-symmetry"),
    network="3 hidden layers of 256, leaky ReLU",
    data="Fashion-MNIST, 10,000 images, 6 epochs",
)
WORDS = "--experiment mlp --dataset fMNIST --training-mode test --n-epochs 6 --mlp-layer-size 256 --batch-size 256 --dropout-p 0.01 --center-labels --epoch-decrease-lr 100"
OF_A_RULE = {
    "pHSIC": "--hsic-kernel-z gaussian --local-lr 0.5 --final-lr 0.05 --center-local-loss-data --group-fc --grouped-var-delta 1.0 --grouping-dim 32",
    "feedback-alignment": "--feedback-alignment --final-lr 0.05",
    "sign-symmetry": "--sign-symmetry --final-lr 0.005",
}


def train(rule: str, source: Path, data: Data) -> torch.nn.Module:
    """Their experiment by their own options; it keeps the network to itself, so it is caught."""
    import experiments
    import utils

    caught, original = [], utils.train_network
    utils.train_network = lambda net, *rest, **more: (
        caught.append(net) or original(net, *rest, **more)
    )
    experiments.run_mlp_experiment(
        utils.parse_arguments(f"{WORDS} {OF_A_RULE[rule]}".split()), torch.device("cpu")
    )
    for layer in caught[0].hidden_layers:
        layer.local_loss = layer.local_opt = layer.local_opt_scheduler = layer.activation = None
    return caught[0]


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """The network as it is; where there is a backward of its own, it is the credit."""
    own = hasattr(trained.softmax_layer, "weight_backward")
    return diagnose(
        trained, data.test(mean=0.5, std=0.5), credit="own" if own else None, method_name=rule
    )
