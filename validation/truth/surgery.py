"""What is done to a trained network to break it in one known way, or to save it otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from .data import Split
from .networks import branches, build
from .recipes import Recipe
from .training import fit, scaled

EXPLOSION = 1e4
FLOOR = 1e-6
SCALE_UP = 1e6
BIAS = 30.0
REFIT = 200


def operate(
    surgery: str, checkpoint: dict[str, Any], recipe: Recipe, split: Split
) -> dict[str, Any]:
    """A changed copy of a checkpoint."""
    config = checkpoint["config"]
    if surgery == "called frozen":
        return {**checkpoint, "config": {**config, "frozen": True}}
    if surgery in ("float16", "bfloat16"):
        dtype = getattr(torch, surgery)
        state = checkpoint["state_dict"].items()
        halved = {
            name: value.to(dtype) if value.is_floating_point() else value for name, value in state
        }
        return {**checkpoint, "state_dict": halved}
    net = build(config)
    net.load_state_dict(checkpoint["state_dict"])
    _OPERATIONS[surgery](net, recipe, split)
    return {**checkpoint, "state_dict": net.state_dict()}


def _explode(net: Any, recipe: Recipe, split: Split) -> None:
    """The last block adds ten thousand times as much; norm and head learn to live with it."""
    scaled(branches(net.blocks[-1])[-1], EXPLOSION)
    if recipe.architecture in ("plain", "conv"):  # no norm before the head
        scaled_weight(net.out_head, 1 / EXPLOSION)
        return
    net.requires_grad_(False)
    for part in (net.out_ln, net.out_head):
        part.requires_grad_(True)
    fit(net, replace(recipe, learning="trained", method="bp", lam=0.0, steps=REFIT), split)


def _floor(net: Any, recipe: Recipe, split: Split) -> None:
    """A head so small that nothing comes back through it; the largest logit stays the largest."""
    scaled(net.out_head, FLOOR)


def _scale_up(net: Any, recipe: Recipe, split: Split) -> None:
    """Everything on the stream a million times larger: behind a LayerNorm the same function."""
    scaled(net.embed, SCALE_UP)
    for block in net.blocks:
        for end in branches(block):
            scaled(end, SCALE_UP)


def _drive(net: Any, recipe: Recipe, split: Split) -> None:
    """One class is predicted whatever is seen: the second, which no class mix makes the most frequent."""
    net.out_head.bias.data[1] += BIAS


def scaled_weight(layer: nn.Linear, factor: float) -> None:
    """Multiply the weights of a layer and leave its bias."""
    layer.weight.data *= factor


_OPERATIONS = {"exploded": _explode, "floored": _floor, "scaled-up": _scale_up, "one-class": _drive}
