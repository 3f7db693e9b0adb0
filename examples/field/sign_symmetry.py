"""Sign symmetry on a residual network: the feedback is the sign of the weights, the last layer is trained by BP."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.nn import functional
from torch.nn.functional import cross_entropy
from torch.nn.grad import conv2d_input, conv2d_weight
from torch.optim import SGD

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository, freeze

HERE = Repository(
    "willwx/sign-symmetry",
    commit="ac446398a0c99d3c77d0eb57e302cae407250d43",
    rules=("sham", "sign_symmetry"),
    bp="sham",
    blocks=r"layer[1-4]",
    seeds=1,
    paper={"": "other · other · BP"},
    network="ResNet-10: their ResNet-18 with 1 block a stage",
    data="of 3 × 28 × 28, 2,000 test images; 2 epochs of batches of 64, lr 0.05",
    images=1_500,
    pairs=False,
    changes="its convolution calls a backend that torch no longer has: written anew with torch.nn.grad; pooling over what is left of 28 pixels",
)
IMAGES = {"mean": 0.286, "std": 0.353, "channels": 3}


class Convolution(torch.autograd.Function):
    """A convolution whose backward uses other weights, in the words of a present torch."""

    @staticmethod
    def forward(
        ctx: Any, x: Any, weight: Any, feedback: Any, bias: Any, stride: Any, padding: Any
    ) -> Any:
        ctx.save_for_backward(x, weight, feedback)
        ctx.options = tuple(stride.tolist()), tuple(padding.tolist())
        return functional.conv2d(x, weight, bias, *ctx.options)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        x, weight, feedback = ctx.saved_tensors
        back = (
            conv2d_input(x.shape, feedback, grad, *ctx.options) if ctx.needs_input_grad[0] else None
        )
        return back, conv2d_weight(x, weight.shape, grad, *ctx.options), None, None, None, None


def setup(source: Path) -> None:
    """Their layers find this convolution in place of theirs; the last layer is torch's own."""
    for name in ("functional", "functional.af_conv2d_function"):
        sys.modules[name] = ModuleType(name)
    sys.modules["functional"].__path__ = [str(source / "functional")]
    sys.modules["functional.af_conv2d_function"].AsymmetricFeedbackConv2dFunc = Convolution


def train(rule: str, source: Path, data: Data, *, frozen: bool) -> torch.nn.Module:
    """Their network and, but for the rate, their optimiser's settings; grey images go in thrice."""
    from models.af_resnet import AsymmetricFeedbackResNet, BasicBlock

    model = AsymmetricFeedbackResNet(BasicBlock, [1, 1, 1, 1], rule, num_classes=10)
    model.avgpool = torch.nn.AdaptiveAvgPool2d(1)
    if frozen:
        freeze(model, HERE.blocks)
    optimizer = SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    batches = data.loader(64, **IMAGES)
    for _ in range(2):
        for x, y in batches:
            optimizer.zero_grad()
            cross_entropy(model(x), y).backward()
            optimizer.step()
    return model


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """The network as it is; the step is by its own backward."""
    return diagnose(
        trained,
        data.test(**IMAGES)[:4],
        train=data.training(**IMAGES),
        step=lambda model, x, y: SGD(model.parameters(), 0.01).step(
            lambda: cross_entropy(model(x), y).backward()
        ),
        method_name=rule,
    )
