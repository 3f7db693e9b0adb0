"""Product feedback alignment on a residual network: two feedback matrices a layer, one of them learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository, freeze, missing

HERE = Repository(
    "jil095/product_feedback_alignment",
    commit="d1d413b38409ce11bc9f54e97bcbd588f5a2bea5",
    rules=("backpropagation", "fa", "tfa"),
    bp="backpropagation",
    blocks=r"module\.layer[123]",
    seeds=1,
    paper={"": "other · other · BP"},
    network="ResNet-8: its ResNet-20 with 1 block a stage, batch normalisation",
    data="of 3 × 28 × 28; 3 of 250 epochs, SGD lr 0.1, weight decay 5e-3 (1e-4 for BP and FA)",
    images=3_000,
    pairs=False,
)
IMAGES = {"mean": 0.286, "std": 0.353, "channels": 3}


def train(rule: str, source: Path, data: Data, *, frozen: bool) -> torch.nn.Module:
    """Their loop with the settings of ``exp_configs/cifar10_resnet20_sgd``; grey images go in thrice."""
    missing("einops", "tbparse", "jsonschema", "pandas", "tensorboard", "tqdm", "yaml")
    from biotorch.models import small_resnet
    from biotorch.models.utils import create_torchvision_biomodel

    def resnet8(*_: Any, num_classes: int) -> Any:
        return small_resnet.ResNet(small_resnet.BasicBlock, [1, 1, 1], num_classes)

    options = {
        "constrain_weights": False,
        "init": "xavier",
        "gradient_clip": False,
        "expand_ratio": 10,
    }
    config = {"type": rule, "options": options}
    model = create_torchvision_biomodel(resnet8, rule, config, num_classes=10)
    if frozen:
        freeze(model, HERE.blocks)
    decay = 5e-3 if rule == "tfa" else 1e-4
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=decay, momentum=0.9)
    for _ in range(3):
        for x, y in data.loader(128, **IMAGES):
            optimizer.zero_grad()
            cross_entropy(model(x), y).backward()
            optimizer.step()
    return model


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """The network as it is; the step is by its own backward."""
    return diagnose(
        trained.eval(),
        data.test(**IMAGES),
        train=data.training(**IMAGES),
        step=lambda model, x, y: SGD(model.parameters(), 0.01).step(
            lambda: cross_entropy(model(x), y).backward()
        ),
        method_name=rule,
    )
