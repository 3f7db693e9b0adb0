"""Local losses (similarity and prediction) of every layer: labels go into the forward, a tuple comes out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from torch.nn.functional import cross_entropy, one_hot

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository, descend, freeze, load

HERE = Repository(
    "anokland/local-loss",
    commit="7b3b40b941b2db305c59b56888a1165aefbfc178",
    rules=("BP", "predsim"),
    bp="BP",
    blocks=r"layers\.[12]\.(encoder|bn)",
    seeds=1,
    network="MLP, 3 hidden layers of 512",
    data="Fashion-MNIST, 10,000 images, 10 epochs",
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
    return setup(source, rule, epochs=10, frozen=frozen).model


def step(model: Any, x: Any, y: Any) -> None:
    """Their forward with local losses, and plain SGD."""
    model.train().zero_grad()
    cross_entropy(model(x, y, one_hot(y, 10).float())[0], y).backward()
    descend(model)


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """Labels in, the first of a tuple out; in training mode the layers go back by themselves."""
    test, training = data.test(**NORMAL), data.training(**NORMAL)

    def forward(model: Any, x: Any, y: Any) -> Any:
        return model(x, y, one_hot(y, 10))[0]

    return diagnose(trained, test, train=training, forward=forward, step=step, method_name=rule)
