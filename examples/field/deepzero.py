"""Zeroth order on a residual network: the loss at random neighbours of the weights, no backward pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.nn.functional import cross_entropy
from torch.optim import SGD

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository, freeze

HERE = Repository(
    "OPTML-Group/DeepZero",
    commit="5cf30b1c314a94f0c13be8da5d68e382ade801fa",
    rules=("BP", "random gradient estimate"),
    bp="BP",
    blocks=r"layer[123]",
    seeds=1,
    changes="its f() puts back a state_dict that is the network itself, so weights stay displaced; here they are put back",
    paper={"": "other · other · other"},
    network="ResNet-8: its ResNet-20 with 1 block a stage, batch normalisation",
    data="of 3 × 28 × 28; 2 epochs of batches of 128, 10 neighbours a step; its coordinatewise estimate takes a forward pass a weight",
    images=3_000,
    pairs=False,
)
IMAGES = {"mean": 0.286, "std": 0.353, "channels": 3}


def gradients(rule: str, model: Any, x: Any, y: Any) -> None:
    """BP's gradient or their estimate, left where an optimiser finds it."""
    from algorithm.zoo.gradient_estimate import f, rge

    if rule == "BP":
        cross_entropy(model(x), y).backward()
        return
    trained = {name: one for name, one in model.named_parameters() if one.requires_grad}
    weights = {name: one.detach().clone() for name, one in trained.items()}
    found = rge(lambda near: f(near, model, x, y, cross_entropy), weights, 10, 5e-3)
    for name, one in trained.items():
        one.data.copy_(weights[name])
        one.grad = found[name]


def train(rule: str, source: Path, data: Data, *, frozen: bool) -> Any:
    """SGD with momentum, as theirs; grey images go in thrice."""
    from models.resnet_s import BasicBlock, ResNet

    model = ResNet(BasicBlock, [1, 1, 1])  # one block a stage
    if frozen:
        freeze(model, HERE.blocks)
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    for _ in range(2):
        for x, y in data.loader(128, **IMAGES):
            optimizer.zero_grad()
            gradients(rule, model, x, y)
            optimizer.step()
    return model


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """The network as it is; the step is along their gradients."""
    return diagnose(
        trained.eval(),
        data.test(**IMAGES),
        train=data.training(**IMAGES),
        step=lambda model, x, y: SGD(model.parameters(), 10.0).step(
            lambda: gradients(rule, model, x, y)
        ),
        method_name=rule,
    )
