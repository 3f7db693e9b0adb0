"""Networks of torchvision, as small as their constructors allow."""

from __future__ import annotations

from functools import partial

from torchvision import models
from torchvision.models.convnext import CNBlockConfig
from torchvision.models.maxvit import MaxVit
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet
from torchvision.models.swin_transformer import (
    PatchMergingV2,
    SwinTransformer,
    SwinTransformerBlockV2,
)

from .member import CLASSES, Member, Stream, each, images, row

SWIN = {
    "patch_size": [4, 4],
    "embed_dim": 8,
    "depths": [2, 2, 2],
    "num_heads": [1, 2, 4],
    "window_size": [4, 4],
    "num_classes": CLASSES,
}
CONVNEXT = [CNBlockConfig(8, 16, 2), CNBlockConfig(16, 16, 1), CNBlockConfig(16, None, 3)]
INVERTED = "blocks without a skip only resample the stream between those that have one"

_resnet = partial(ResNet, num_classes=CLASSES)
_layers = partial(each, "layer{}.{}", first=1)


def members() -> list[Member]:
    """All of them."""
    made = [
        ("resnet18", lambda: models.resnet18(num_classes=CLASSES), 32, _layers([2, 2, 2, 2])),
        ("resnet34", lambda: models.resnet34(num_classes=CLASSES), 32, _layers([3, 4, 6, 3])),
        (
            "resnet, bottlenecks",
            lambda: _resnet(Bottleneck, [2, 1, 1, 2]),
            32,
            _layers([2, 1, 1, 2]),
        ),
        (
            "resnext",
            lambda: _resnet(Bottleneck, [1, 2, 1, 1], groups=4, width_per_group=4),
            32,
            _layers([1, 2, 1, 1]),
        ),
        (
            "wide resnet",
            lambda: _resnet(Bottleneck, [1, 1, 2, 1], width_per_group=32),
            32,
            _layers([1, 1, 2, 1]),
        ),
        (
            "resnet of one block a stage",
            lambda: _resnet(BasicBlock, [1, 1, 1, 1]),
            32,
            _layers([1, 1, 1, 1]),
        ),
        (
            "squeezenet1_0",
            lambda: models.squeezenet1_0(num_classes=CLASSES),
            64,
            tuple(f"features.{fire}" for fire in (3, 4, 5, 7, 8, 9, 10, 12)),
        ),
        (
            "squeezenet1_1",
            lambda: models.squeezenet1_1(num_classes=CLASSES),
            64,
            tuple(f"features.{fire}" for fire in (3, 4, 6, 7, 9, 10, 11, 12)),
        ),
        (
            "mobilenet_v2",
            lambda: models.mobilenet_v2(num_classes=CLASSES, width_mult=0.25),
            32,
            tuple(
                f"features.{block}" for block in (1, 3, 5, 6, 8, 9, 10, 12, 13, 15, 16)
            ),  # 8 → 8 channels in the first
        ),
        (
            "mobilenet_v3_small",
            lambda: models.mobilenet_v3_small(num_classes=CLASSES),
            32,
            tuple(f"features.{block}" for block in (3, 5, 6, 8, 10, 11)),
        ),
        (
            "mobilenet_v3_large",
            lambda: models.mobilenet_v3_large(num_classes=CLASSES),
            32,
            tuple(f"features.{block}" for block in (1, 3, 5, 6, 8, 9, 10, 12, 14, 15)),
        ),
        (
            "efficientnet_b0",
            lambda: models.efficientnet_b0(num_classes=CLASSES),
            32,
            tuple(
                f"features.{name}"
                for name in ("2.1", "3.1", "4.1", "4.2", "5.1", "5.2", "6.1", "6.2", "6.3")
            ),
        ),
        (
            "efficientnet_v2_s",
            lambda: models.efficientnet_v2_s(num_classes=CLASSES),
            32,
            (
                *("features.1.0", "features.1.1"),
                *(
                    f"features.{stage}.{block}"
                    for stage, depth in ((2, 4), (3, 4), (4, 6), (5, 9), (6, 15))
                    for block in range(1, depth)
                ),
            ),
        ),
        (
            "mnasnet0_5",
            lambda: models.mnasnet0_5(num_classes=CLASSES),
            32,
            tuple(
                f"layers.{stage}.{block}"
                for stage, depth in ((8, 3), (9, 3), (10, 3), (11, 2), (12, 4))
                for block in range(1, depth)
            ),
        ),
        (
            "shufflenet_v2_x0_5",
            lambda: models.shufflenet_v2_x0_5(num_classes=CLASSES),
            32,
            each("stage{}.{}", [4, 8, 4], first=2),
        ),
        (
            "densenet",
            lambda: models.DenseNet(4, (2, 2, 2, 2), 8, num_classes=CLASSES),
            32,
            row("features.denseblock{}", 5)[1:],
        ),
        (
            "googlenet",
            lambda: models.googlenet(num_classes=CLASSES, aux_logits=False, init_weights=False),
            32,
            (
                "conv2",
                "conv3",
                *(
                    f"inception{cell}"
                    for cell in ("3a", "3b", "4a", "4b", "4c", "4d", "4e", "5a", "5b")
                ),
            ),
        ),
        (
            "regnet_y_400mf",
            lambda: models.regnet_y_400mf(num_classes=CLASSES),
            32,
            tuple(
                f"trunk_output.block{s}.block{s}-{b}"
                for s, depth in enumerate((1, 3, 6, 6), 1)
                for b in range(depth)
            ),
        ),
        (
            "regnet_x_400mf",
            lambda: models.regnet_x_400mf(num_classes=CLASSES),
            32,
            tuple(
                f"trunk_output.block{s}.block{s}-{b}"
                for s, depth in enumerate((1, 2, 7, 12), 1)
                for b in range(depth)
            ),
        ),
        (
            "convnext",
            lambda: models.ConvNeXt(CONVNEXT, num_classes=CLASSES),
            32,
            (*row("features.1.{}", 2), "features.3.0", *row("features.5.{}", 3)),
        ),
        (
            "swin",
            lambda: SwinTransformer(**SWIN),
            64,
            tuple(f"features.{stage}.{block}" for stage in (1, 3, 5) for block in (0, 1)),
        ),
        (
            "swin v2",
            lambda: SwinTransformer(
                **SWIN, block=SwinTransformerBlockV2, downsample_layer=PatchMergingV2
            ),
            64,
            tuple(f"features.{stage}.{block}" for stage in (1, 3, 5) for block in (0, 1)),
        ),
        (
            "vit",
            lambda: models.VisionTransformer(32, 8, 3, 2, 16, 32, num_classes=CLASSES),
            32,
            row("encoder.layers.encoder_layer_{}", 3),
        ),
        (
            "maxvit",
            lambda: MaxVit((64, 64), 8, 4, [8, 16], [1, 2], 4, 0.0, num_classes=CLASSES),
            64,
            tuple(
                f"{layer}.layers.{part}"
                for layer in ("blocks.0.layers.0", "blocks.1.layers.0", "blocks.1.layers.1")
                for part in ("MBconv", "window_attention", "grid_attention")
            ),
        ),
    ]
    return [
        Member("torchvision", name, make, images(size), Stream(blocks))
        for name, make, size, blocks in made
    ]
