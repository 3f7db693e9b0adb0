"""BioTorch: layers whose backward is the training rule, against plain ones of the same weights."""

from __future__ import annotations

import contextlib
import copy
import io
from collections.abc import Callable
from functools import partial

import torch
from biotorch.layers import brsf, dfa, fa, frsf, usf
from biotorch.models.le_net import LeNetCIFAR
from biotorch.models.small_resnet import BasicBlock, ResNet
from biotorch.module.biomodule import BioModule
from torch import Tensor, nn

from .member import CLASSES, Member, Stream, each, images, row, vectors

METHODS = {"fa": fa, "usf": usf, "brsf": brsf, "frsf": frsf, "dfa": dfa}
WIDTH = 16


class Block(nn.Module):
    """h + linear(relu(linear(norm(h))))."""

    def __init__(self, linear: Callable[[int, int], nn.Module]) -> None:
        super().__init__()
        self.norm, self.first, self.second = (
            nn.LayerNorm(WIDTH),
            linear(WIDTH, WIDTH),
            linear(WIDTH, WIDTH),
        )

    def forward(self, h: Tensor) -> Tensor:
        return h + self.second(torch.relu(self.first(self.norm(h))))


class ResMLP(nn.Module):
    """Four blocks of a method's layers."""

    def __init__(self, linear: Callable[[int, int], nn.Module]) -> None:
        super().__init__()
        self.embed = linear(12, WIDTH)
        self.blocks = nn.Sequential(*(Block(linear) for _ in range(4)))
        self.out_ln, self.head = nn.LayerNorm(WIDTH), linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.out_ln(self.blocks(self.embed(x))))


class OfCifar(LeNetCIFAR):
    """BioTorch's LeNet for as many classes as the zoo has."""

    def __init__(self) -> None:
        super().__init__()
        self.fc2 = nn.Linear(256, CLASSES)


def layer_of(method: str) -> Callable[[int, int], nn.Module]:
    """What makes a linear layer of a method."""
    if method == "dfa":
        return lambda inputs, outputs: dfa.Linear(
            inputs, outputs, CLASSES, layer_config={"type": "dfa"}
        )
    return lambda inputs, outputs: METHODS[method].Linear(
        inputs, outputs, layer_config={"type": method}
    )


def plain(model: nn.Module) -> nn.Module:
    """A copy with layers of torch of the same weights in the place of the method's."""
    copied = copy.deepcopy(model.module if isinstance(model, BioModule) else model)
    for module in list(copied.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Linear):
                made: nn.Module = nn.Linear(
                    child.in_features, child.out_features, child.bias is not None
                )
            elif isinstance(child, nn.Conv2d):
                made = nn.Conv2d(
                    child.in_channels,
                    child.out_channels,
                    child.kernel_size,
                    child.stride,
                    child.padding,
                    bias=child.bias is not None,
                )
            else:
                continue
            made = made.to(child.weight)
            made.load_state_dict(
                {
                    own: value
                    for own, value in child.state_dict().items()
                    if own in ("weight", "bias")
                }
            )
            setattr(module, name, made)
    return copied


def converted(model: nn.Module, method: str) -> nn.Module:
    """A network of a method's layers, without what BioTorch prints of it."""
    with contextlib.redirect_stdout(io.StringIO()):
        return BioModule(model, mode=method, output_dim=CLASSES)


def _resnet(method: str) -> nn.Module:
    return converted(ResNet(BasicBlock, [1, 2, 1], num_classes=CLASSES), method)


def _lenet(method: str) -> nn.Module:
    return converted(OfCifar(), method)


def members() -> list[Member]:
    """All of them."""
    blocks, layers = each("layer{}.{}", [1, 2, 1], first=1), ("conv2", "conv3", "fc1")
    made = []
    for method in METHODS:
        mlp = partial(ResMLP, layer_of(method))
        resnet = partial(_resnet, method)
        lenet = partial(_lenet, method)
        made += [
            Member(
                "BioTorch",
                f"ResMLP, {method}",
                mlp,
                vectors(12),
                Stream(row("blocks.{}", 4), within=plain),
            ),
            Member(
                "BioTorch", f"ResNet, {method}", resnet, images(16), Stream(blocks, within=plain)
            ),
            Member(
                "BioTorch",
                f"LeNet, {method}",
                lenet,
                images(32),
                Stream(layers, "fc2", within=plain),
            ),
        ]
    return made
