"""Cascaded Forward: random convolutions that stay random, and a closed-form predictor on each of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository, load, missing

HERE = Repository(
    "Graph-ZKY/CaFo",
    commit="b2cccf3a93258bf115f2285f217c7135fcda6c79",
    rules=("CaFo",),
    blocks="all: its blocks are not trained",
    seeds=1,
    network="2 of 3 blocks of a convolution, ReLU, pooling and batch normalisation; 32 and 128 channels",
    data="closed form, its default",
    images=1_000,
    pairs=False,
    changes="it runs on a CPU",
)


class Cascade(nn.Module):
    """Its prediction: the mean of the softmax of every block's predictor, as a logarithm."""

    def __init__(self, blocks: Any, predictors: Any) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.predictors = nn.ParameterList(nn.Parameter(one) for one in predictors)

    def forward(self, x: Any) -> Any:
        """The blocks one after the other, and their predictors."""
        shares = 0
        for block, predictor in zip(self.blocks, self.predictors, strict=True):
            x = block(x)
            shares = shares + (x.flatten(1) @ predictor).softmax(1)
        return (shares / len(self.blocks)).log()


def train(rule: str, source: Path, data: Data, *, frozen: bool) -> Any:
    """``run_CaFo``; the control is the network itself, whose blocks nothing trains."""
    missing("tqdm")
    words = {".cuda()": "", ", device='cuda'": ""}
    load(source / "block.py", words)
    theirs = load(source / "model.py", {".cuda()": ""}, name="cafo_model")
    torch.manual_seed(data.seed)
    network = theirs.construct_CaFo("Fashion-MNIST", "MSE", 10, 1, 1, 1, 28, n_blocks=2)
    x, y = data.arrays(train=True).tensors
    network.train(x, y, x[:10])
    return Cascade(
        [layer.conv_module for layer in network.layers], [layer.W for layer in network.layers]
    )


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """As one module, with the statistics of batches that its blocks have collected."""
    return diagnose(trained.eval(), data.test(), train=data.training(), method_name=rule)
