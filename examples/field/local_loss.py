"""Local losses (similarity and prediction) of every layer: labels go into the forward, a tuple comes out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from torch.nn.functional import cross_entropy, one_hot
from torch.optim import SGD

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository, freeze, load

HERE = Repository(
    "anokland/local-loss",
    commit="7b3b40b941b2db305c59b56888a1165aefbfc178",
    rules=("BP", "predsim"),
    bp="BP",
    blocks=r"layers\.[12]\.(encoder|bn)",
    seeds=1,
    paper={"": "other · other · BP"},
    network="MLP, 3 hidden layers of 512",
    data="4 of 100 epochs, batches of 128",
    changes="no checkpoint of every epoch",
)
NORMAL = {"mean": 0.286, "std": 0.353}
WORDS = "--model mlp --dataset FashionMNIST --num-layers 3 --num-hidden 512 --no-print-stats --no-cuda --save-dir "


def setup(source: Path, rule: str = "", epochs: int = 0, *, frozen: bool = False) -> Any:
    """Their script trains while it is imported, so many epochs as its options say."""
    sys.argv = ["train.py", *WORDS.split(), "", "--epochs", str(epochs)]
    sys.argv += ["--backprop"] * (rule == "BP")
    words = {"print(model)": f"freeze(model, {HERE.blocks!r})"} if frozen else {}
    return load(source / "train.py", words, name="local_loss_script", freeze=freeze)


def train(rule: str, source: Path, data: Data, *, frozen: bool) -> Any:
    """Their script, by its own options."""
    return setup(source, rule, epochs=4, frozen=frozen).model


def step(model: Any, x: Any, y: Any) -> None:
    """Plain SGD; in training mode the forward of a layer takes its own step."""
    for layer in model.train().layers:
        layer.optimizer = SGD(layer.parameters(), 0.01)
    loss = cross_entropy(model(x, y, one_hot(y, 10).float())[0], y)
    SGD(model.parameters(), 0.01).step(loss.backward)
    for layer in model.layers:
        layer.training = False  # so that it takes none where BP's gradient is measured


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """Labels in, the first of a tuple out; in training mode the layers go back by themselves."""
    return diagnose(
        trained,
        data.test(**NORMAL),
        train=data.training(**NORMAL),
        forward=lambda model, x, y: model(x, y, one_hot(y, 10).float())[0],
        step=step,
        method_name=rule,
    )
