"""Difference target propagation, with fixed and with learned feedback: tensors, no nn.Module, so a trace."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from pytest_fadiag import DiagnosticReport, save_trace
from pytest_fadiag import audit as audit_trace

from .common import Data, Repository, missing

HERE = Repository(
    "TatsukichiShibuya/Fixed-Weight-Difference-Target-Propagation",
    commit="486e9fb3314897a4fdad384e43389499c6a189f7",
    rules=("BP", "FWDTP", "DTP"),
    bp="BP",
    blocks="the layers 1 to 4",
    seeds=1,
    network="5 hidden layers of 256, tanh",
    data="Fashion-MNIST, 10,000 images, 8 epochs, lr 1 (0.08 for BP, the same step of the last layer)",
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
        epochs=8,
        lr=0.08 if rule == "BP" else 1.0,
        lrb=1e-3,
        std=1e-2,
        stepsize=0.04,
        log=False,
        params={"loss_feedback": "DTP", "epochs_backward": 1},
    )
    return net


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """States, gradients and credit as their own compute_target() leaves them in the layers."""
    x, y = (torch.cat(part) for part in zip(*data.test(**IMAGES), strict=True))
    trained.compute_target(x, y, 0.04)
    *hidden, last = trained.layers
    h, g = [one.output.detach() for one in hidden], [one.output.grad for one in hidden]
    arrays = {
        "outputs": last.output.detach(),
        "e": last.output.grad,
        "x": x,
        "y": y,
        "h": h,
        "g": g,
    }
    credit = [state - one.target for state, one in zip(h, hidden, strict=True)]
    credit = [] if rule == "BP" else credit[1:]
    save_trace("trace.npz", **arrays, a=credit, loss="ce", method=rule)
    return audit_trace("trace.npz")
