"""Direct feedback alignment with feedback that is learned: by Kolen-Pollack, or from forward-mode derivatives."""

from __future__ import annotations

import contextlib
import io
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from torch.optim import SGD
from torch.utils.data import DataLoader, TensorDataset

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository, freeze, load

HERE = Repository(
    "Florian-BACHO/FDFA",
    commit="20dd074d5f2188c879f6401004ab74caa49901f0",
    rules=("BP", "DFA", "DKP", "FDFA"),
    bp="BP",
    blocks=r"(fc|bn)_hidden\.1",
    seeds=1,
    paper={"": "other · other · BP"},
    network="MLP 784-800-800-10, batch normalisation, ReLU",
    data="4 of 100 epochs, Adam lr 1e-3 (its default is 1e-4)",
    images=10_000,
    changes="saved_variables is called saved_tensors today",
)
IMAGES = {"mean": 0.5, "std": 0.5}


def setup(source: Path) -> Any:
    """Their modules, as a present torch takes them."""
    load(
        source / "utils/DFATrainingHook.py",
        {"saved_variables": "saved_tensors"},
        name="utils.DFATrainingHook",
    )
    return load(source / "main.py", name="fdfa_main")


def epoch(rule: str, model: Any, loader: Any, optimizer: Any) -> None:
    """Their epoch of training, without its lines of progress."""
    import fdfa_main

    args = Namespace(log_interval=10**9, dry_run=False)
    with contextlib.redirect_stdout(io.StringIO()):
        fdfa_main.train(args, model, "cpu", loader, optimizer, rule == "FDFA", 1, None)


def weights(model: Any) -> list[Any]:
    """Forward and feedback weights that are trained; an empty one is no weight."""
    return [one for one in model.parameters() if one.numel() and one.requires_grad]


def train(rule: str, source: Path, data: Data, *, frozen: bool) -> torch.nn.Module:
    """Their network; one optimiser for forward and feedback weights, which share a rate here."""
    model = setup(source).NetworkFC_MNIST(64, 2, rule, "cpu")
    loader = data.loader(64, **IMAGES)
    model.eval()(next(iter(loader))[0])  # feedback weights are made by the first pass, as in theirs
    if frozen:
        freeze(model, HERE.blocks)
    optimizer = torch.optim.Adam(weights(model), lr=1e-3)
    for _ in range(4):
        epoch(rule, model, loader, optimizer)
    return model


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """The network as it is; the step is their training function on one batch."""
    return diagnose(
        trained,
        data.test(**IMAGES),
        train=data.training(**IMAGES),
        step=lambda model, x, y: epoch(
            rule, model, DataLoader(TensorDataset(x, y), len(x)), SGD(weights(model), 0.01)
        ),
        method_name=rule,
    )
