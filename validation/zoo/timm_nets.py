"""Networks of timm, as small as their constructors allow."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import timm
from timm.layers import GatedMlp, GluMlp
from timm.models import convmixer, crossvit, focalnet, metaformer, mlp_mixer, nest, tiny_vit
from torch import nn

from .member import CLASSES, Member, Refusal, Stream, each, images, row

PLAIN_VIT = {"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 3, "num_heads": 2}
SWIN = {
    "img_size": 64,
    "embed_dim": 8,
    "depths": (2, 2, 2),
    "num_heads": (1, 2, 4),
    "window_size": 4,
}
STAGED = {"depths": (1, 2, 1, 1), "dims": (8, 16, 16, 16)}
TWINS = {
    "img_size": 64,
    "embed_dims": (8, 16, 16, 16),
    "num_heads": (1, 1, 1, 1),
    "depths": (2, 1, 2, 1),
}
SHORT = {"layers": (1, 2, 1, 1)}
STAGES = each("stages.{}.blocks.{}", (1, 2, 1, 1))
PEG = tuple(
    name
    for stage, depth in enumerate((2, 1, 2, 1))
    for name in (
        f"blocks.{stage}.0",
        f"pos_block.{stage}",
        *(f"blocks.{stage}.{block}" for block in range(1, depth)),
    )
)
"""The positional encoding of Twins: a convolution added after the first block of a stage."""

_layers = partial(each, "layer{}.{}", first=1)
_mixer = partial(
    mlp_mixer.MlpMixer, num_classes=CLASSES, img_size=32, patch_size=8, num_blocks=3, embed_dim=16
)


def members() -> list[Member]:
    """All of them."""
    return [*_by_name(), *_by_class(), *_refused()]


def _made(name: str, **options: Any) -> Callable[[], nn.Module]:
    return lambda: timm.create_model(name, pretrained=False, num_classes=CLASSES, **options)


def _by_name() -> list[Member]:
    """What ``create_model`` makes."""
    transformers = (
        *("vit_tiny_patch16_224", "vit_relpos_small_patch16_224", "vit_srelpos_small_patch16_224"),
        *(
            "vit_small_patch16_18x2_224",
            "vit_base_patch16_reg4_gap_256",
            "deit_tiny_distilled_patch16_224",
        ),
        *("deit3_small_patch16_224", "beit_base_patch16_224", "beitv2_base_patch16_224"),
    )
    made = [(name, 32, PLAIN_VIT, row("blocks.{}", 3)) for name in transformers]
    made += [
        (
            "eva02_tiny_patch14_224",
            28,
            {**PLAIN_VIT, "img_size": 28, "patch_size": 7},
            row("blocks.{}", 3),
        ),
        (
            "samvit_base_patch16_224",
            64,
            {**PLAIN_VIT, "img_size": 64, "patch_size": 16, "global_attn_indexes": (2,)},
            row("blocks.{}", 3),
        ),
        (
            "convit_tiny",
            32,
            {**PLAIN_VIT, "embed_dim": 4, "num_heads": 4, "local_up_to_layer": 2},
            row("blocks.{}", 3),
        ),
        (
            "xcit_nano_12_p16_224",
            32,
            {**PLAIN_VIT, "depth": 2},
            (*row("blocks.{}", 2), *row("cls_attn_blocks.{}", 2)),
        ),
        ("swin_tiny_patch4_window7_224", 64, SWIN, each("layers.{}.blocks.{}", (2, 2, 2))),
        ("swinv2_tiny_window8_256", 64, SWIN, each("layers.{}.blocks.{}", (2, 2, 2))),
        ("swinv2_cr_tiny_ns_224", 64, SWIN, each("stages.{}.blocks.{}", (2, 2, 2))),
        ("convnext_atto", 64, STAGED, STAGES),
        ("convnextv2_atto", 64, STAGED, STAGES),
        ("mambaout_femto", 64, STAGED, STAGES),
        ("inception_next_atto", 64, {"depths": (1, 2, 1, 1), "dims": (16, 16, 16, 32)}, STAGES),
        ("edgenext_xx_small", 64, {"depths": (1, 2, 1, 1), "dims": (8, 16, 24, 32)}, STAGES),
        ("fastvit_t8", 64, {"layers": (1, 2, 1, 1), "embed_dims": (8, 16, 16, 32)}, STAGES),
        (
            "fastvit_sa12",
            64,
            {"layers": (1, 2, 1, 1), "embed_dims": (32, 32, 32, 64)},
            (*STAGES[:-1], "stages.3.pos_emb", STAGES[-1]),
        ),
        (
            "pvt_v2_b0",
            64,
            {"depths": (1, 2, 1, 1), "embed_dims": (8, 16, 16, 32), "num_heads": (1, 1, 1, 1)},
            STAGES,
        ),
        (
            "sequencer2d_s",
            64,
            {"layers": (1, 2, 1, 1), "embed_dims": (8, 16, 16, 16), "hidden_sizes": (4, 8, 8, 8)},
            STAGES,
        ),
        (
            "davit_tiny",
            64,
            {"depths": (1, 2, 1, 1), "embed_dims": (8, 16, 16, 16), "num_heads": (1, 2, 2, 2)},
            tuple(f"{name}.{half}" for name in STAGES for half in (0, 1)),
        ),
        (
            "starnet_s1",
            64,
            {"base_dim": 8, "depths": (1, 2, 1, 1)},
            ("stages.0.1", "stages.1.1", "stages.1.2", "stages.2.1", "stages.3.1"),
        ),
        ("twins_pcpvt_small", 64, TWINS, PEG),
        ("twins_svt_small", 64, {**TWINS, "wss": (4, 4, 4, 2)}, PEG),
        (
            "levit_128s",
            64,
            {
                "img_size": 64,
                "embed_dim": (16, 32, 32),
                "key_dim": 8,
                "num_heads": (2, 2, 2),
                "depth": (1, 2, 1),
            },
            (
                *(
                    "stages.0.blocks.0",
                    "stages.1.downsample",
                    "stages.1.blocks.0",
                    "stages.1.blocks.1",
                ),
                *("stages.2.downsample", "stages.2.blocks.0"),
            ),
        ),
        (
            "visformer_tiny",
            64,
            {
                "img_size": 64,
                "init_channels": 8,
                "embed_dim": 32,
                "depth": (2, 1, 1),
                "num_heads": 2,
            },
            ("stage1.0", "stage1.1", "stage2.0", "stage3.0"),
        ),
        (
            "hiera_tiny_224",
            64,
            {"img_size": (64, 64), "embed_dim": 16, "stages": (1, 1, 2, 1), "num_heads": 1},
            row("blocks.{}", 5),
        ),
        (
            "resnetv2_50",
            32,
            {"layers": (1, 2, 1, 1), "channels": (16, 32, 32, 64), "stem_chs": 8},
            STAGES,
        ),
        ("nf_regnet_b0", 32, {}, each("stages.{}.{}", (1, 3, 6, 6))),
        (
            "regnety_002",
            32,
            {},
            tuple(
                f"s{s}.b{b + 1}" for s, depth in enumerate((1, 1, 4, 7), 1) for b in range(depth)
            ),
        ),
        (
            "ghostnet_050",
            32,
            {},
            (*each("blocks.{}.{}", (1, 1, 1, 1, 1, 1, 5, 1, 4)),),
        ),
        ("repvgg_a0", 32, {}, each("stages.{}.{}", (2, 4, 14, 1))),
        ("res2net50_26w_4s", 32, SHORT, _layers((1, 2, 1, 1))),
        ("resnest14d", 32, {}, _layers((1, 1, 1, 1))),
        ("seresnet18", 32, {}, _layers((2, 2, 2, 2))),
        ("skresnet18", 32, {}, _layers((2, 2, 2, 2))),
        ("resnet26d", 32, SHORT, _layers((1, 2, 1, 1))),
        ("ecaresnet26t", 32, SHORT, _layers((1, 2, 1, 1))),
        ("resnetaa50", 32, SHORT, _layers((1, 2, 1, 1))),
        ("resnetblur18", 32, {}, _layers((2, 2, 2, 2))),
        ("darknet21", 32, {}, each("stages.{}.blocks.{}", (1, 1, 1, 2, 2))),
        ("cspresnet50", 32, {}, row("stages.{}", 4)),
        (
            "densenet121",
            32,
            {"growth_rate": 4, "block_config": (2, 2, 2, 2)},
            row("features.denseblock{}", 5)[1:],
        ),
        (
            "mobilenetv3_small_050",
            32,
            {},
            tuple(f"blocks.{name}" for name in ("1.1", "2.1", "2.2", "3.0", "3.1", "4.1", "4.2")),
        ),
        (
            "efficientnet_lite0",
            32,
            {},
            tuple(
                f"blocks.{name}"
                for name in ("1.1", "2.1", "3.1", "3.2", "4.1", "4.2", "5.1", "5.2", "5.3")
            ),
        ),
        (
            "rexnet_100",
            32,
            {},
            tuple(f"features.{block}" for block in (2, 4, 6, 7, 8, 9, 10, 12, 13, 14, 15)),
        ),
    ]
    return [
        Member("timm", name, _made(name, **options), images(size), Stream(blocks))
        for name, size, options, blocks in made
    ]


def _by_class() -> list[Member]:
    """What is too large by name."""
    norms = [metaformer.LayerNorm2dNoBias] * 2 + [metaformer.LayerNormNoBias] * 2
    attention = [metaformer.SepConv, metaformer.SepConv, metaformer.Attention, metaformer.Attention]
    made: list[tuple[str, Callable[[], nn.Module], int, tuple[str, ...]]] = [
        ("mixer", _mixer, 32, row("blocks.{}", 3)),
        (
            "resmlp",
            partial(
                _mixer, mlp_ratio=4, block_layer=mlp_mixer.ResBlock, norm_layer=mlp_mixer.Affine
            ),
            32,
            row("blocks.{}", 3),
        ),
        (
            "gmlp",
            partial(
                _mixer, mlp_ratio=6, block_layer=mlp_mixer.SpatialGatingBlock, mlp_layer=GatedMlp
            ),
            32,
            row("blocks.{}", 3),
        ),
        ("gmixer", partial(_mixer, mlp_layer=GluMlp, act_layer=nn.SiLU), 32, row("blocks.{}", 3)),
        (
            "convmixer",
            lambda: convmixer.ConvMixer(16, 3, 3, 4, num_classes=CLASSES),
            32,
            row("blocks.{}", 3),
        ),
        ("poolformer", lambda: metaformer.MetaFormer(num_classes=CLASSES, **STAGED), 64, STAGES),
        (
            "caformer",
            lambda: metaformer.MetaFormer(
                num_classes=CLASSES,
                depths=(1, 2, 1, 1),
                dims=(8, 16, 32, 32),
                token_mixers=attention,
                norm_layers=norms,
            ),
            64,
            STAGES,
        ),
        (
            "focalnet",
            lambda: focalnet.FocalNet(num_classes=CLASSES, embed_dim=8, depths=(1, 2, 1, 1)),
            64,
            each("layers.{}.blocks.{}", (1, 2, 1, 1)),
        ),
        (
            "tiny_vit",
            lambda: tiny_vit.TinyVit(
                num_classes=CLASSES,
                embed_dims=(8, 16, 16, 32),
                depths=(1, 2, 1, 1),
                num_heads=(1, 1, 1, 2),
                window_sizes=(4, 4, 4, 2),
            ),
            64,
            STAGES,
        ),
        (
            "nest",
            lambda: nest.Nest(
                64,
                embed_dims=(8, 16, 16),
                num_heads=(1, 2, 2),
                depths=(1, 2, 1),
                num_classes=CLASSES,
            ),
            64,
            each("levels.{}.transformer_encoder.{}", (1, 2, 1)),
        ),
    ]
    return [
        Member("timm", name, make, images(size), Stream(blocks))
        for name, make, size, blocks in made
    ]


def _refused() -> list[Member]:
    """What has no stream, or a stretch in it of which no tensor carries all."""
    tnt = {
        "img_size": 32,
        "embed_dim": 16,
        "inner_dim": 8,
        "depth": 2,
        "num_heads_outer": 2,
        "num_heads_inner": 1,
    }
    return [
        Member(
            "timm",
            "cait_xxs24_224",
            _made("cait_xxs24_224", **PLAIN_VIT, depth_token_only=2),
            images(32),
            Refusal(
                "every class layer reads the patches again, beside the last", "no single stream"
            ),
        ),
        Member(
            "timm",
            "crossvit",
            lambda: crossvit.CrossVit(
                img_size=64,
                img_scale=(1.0, 1.0),
                patch_size=(8, 16),
                embed_dim=(16, 32),
                depth=((1, 1, 0), (1, 1, 0)),
                num_heads=(1, 1),
                mlp_ratio=(1, 1, 1),
                num_classes=CLASSES,
            ),
            images(64),
            Refusal(
                "two towers of different patches exchange their class tokens",
                "no single stream",
            ),
        ),
        Member(
            "timm",
            "tnt_s_legacy_patch16_224",
            _made("tnt_s_legacy_patch16_224", **tnt),
            images(32),
            Refusal(
                "the pixels of a patch are carried beside the patches",
                "no single stream",
            ),
        ),
        Member(
            "timm",
            "hrnet_w18_small",
            _made("hrnet_w18_small"),
            images(64),
            Refusal(
                "maps of several resolutions are carried side by side",
                "no single stream",
            ),
        ),
    ]
