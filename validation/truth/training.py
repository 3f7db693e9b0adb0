"""From a recipe to a checkpoint: one loop for all of them; the learning rules are those of the examples."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from examples.methods import METHODS
from examples.methods.bp import Backpropagation
from examples.methods.rule import LearningRule
from examples.methods.settings import Settings
from examples.methods.streams import streams

from .data import TASKS, Split
from .initialisers import initialise
from .networks import branches, build
from .recipes import Recipe

FAINT = 1e-3
OPTIMISERS: dict[str, Any] = {
    "adamw": lambda p, r: torch.optim.AdamW(p, lr=r.lr, weight_decay=r.wd, fused=True),
    "adam": lambda p, r: torch.optim.Adam(p, lr=r.lr, fused=True),
    "sgd": lambda p, r: torch.optim.SGD(p, lr=r.lr, momentum=0.9, weight_decay=r.wd, fused=True),
    "rmsprop": lambda p, r: torch.optim.RMSprop(p, lr=r.lr),
}


class Smoothed(Backpropagation):
    """The same with smoothed targets."""

    smoothing = 0.0

    def backward(self, x: Tensor, y: Tensor) -> Tensor:
        logits: Tensor = self.net(x)
        F.cross_entropy(logits, y, label_smoothing=self.smoothing).backward()
        return logits.detach()


class TwoLabels(Backpropagation):
    """The blocks learn from other labels than embedding and head."""

    block_labels: Tensor

    def backward(self, x: Tensor, y: Tensor) -> Tensor:
        logits: Tensor = self.net(x)
        blocks = list(self.net.blocks.parameters())
        others = [p for name, p in self.net.named_parameters() if not name.startswith("blocks.")]
        _give(others, torch.autograd.grad(F.cross_entropy(logits, y), others, retain_graph=True))
        _give(blocks, torch.autograd.grad(F.cross_entropy(logits, self.block_labels), blocks))
        return logits.detach()


def train(recipe: Recipe, split: Split) -> dict[str, Any]:
    """The checkpoint of a recipe."""
    torch.manual_seed(recipe.seed)
    config = {
        **recipe.config(),
        "classes": len(TASKS[recipe.task]),
        "mean": list(split.mean),
        "std": list(split.std),
    }
    net = build(config)
    _prepare(net, recipe)
    feedback = fit(net, recipe, split) if recipe.learning != "untrained" else []
    return {"state_dict": net.state_dict(), "Bs": feedback, "config": config}


def _prepare(net: nn.Module, recipe: Recipe) -> None:
    """Put the blocks into the state that the recipe asks for, and decide what is to learn."""
    blocks: Any = net.blocks
    for number, block in enumerate(blocks):
        if recipe.initialiser:
            initialise(block, recipe.initialiser)
        ends = branches(block)
        for end in ends:
            if recipe.learning == "identity":
                scaled(end, 0.0)
            if recipe.learning == "faint":
                scaled(end, FAINT)
            if recipe.learning in ("identity", "faint") and recipe.architecture == "plain":
                end.weight.data += torch.eye(recipe.d)
        if recipe.learning in ("frozen", "identity") or (recipe.learning == "first" and number):
            block.requires_grad_(False)
        if recipe.learning == "faint":
            for end in ends:
                end.requires_grad_(False)


def scaled(layer: nn.Module, factor: float) -> None:
    """Multiply what a layer puts out."""
    for parameter in layer.parameters():
        parameter.data *= factor


def _rule(net: Any, recipe: Recipe) -> LearningRule:
    settings = Settings(
        recipe.method,
        "",
        Path(),
        seed=recipe.seed,
        lam=recipe.lam,
        frozen=recipe.learning == "frozen",
    )
    kind = (
        TwoLabels
        if recipe.learning == "busy"
        else Smoothed
        if recipe.smoothing
        else METHODS[recipe.method]
    )
    rule = kind(net, settings, streams(recipe.seed))
    if isinstance(rule, Smoothed):
        rule.smoothing = recipe.smoothing
    return rule


def fit(net: nn.Module, recipe: Recipe, split: Split) -> list[Tensor]:
    """All steps: shuffled batches, the learning rate from its full value to 0 by a cosine; the rule's feedback is returned."""
    rule = _rule(net, recipe)
    order = torch.Generator().manual_seed(recipe.seed)
    random = split.y[torch.randperm(len(split.y), generator=order)]
    y = random if recipe.labels == "shuffled" else split.y
    optimiser = OPTIMISERS[recipe.optimiser](
        [p for p in net.parameters() if p.requires_grad], recipe
    )
    net.train()
    for block in (
        block for block in net.blocks if not any(p.requires_grad for p in block.parameters())
    ):  # type: ignore[union-attr]
        block.eval()  # the batch statistics of a block that does not learn stay as well
    indices = torch.empty(0, dtype=torch.long)
    for step in range(recipe.steps):
        if len(indices) < recipe.batch:
            indices = torch.randperm(len(y), generator=order)
        chunk, indices = indices[: recipe.batch], indices[recipe.batch :]
        for group in optimiser.param_groups:
            group["lr"] = recipe.lr * (1 + math.cos(math.pi * step / recipe.steps)) / 2
        if isinstance(rule, TwoLabels):
            rule.block_labels = random[chunk]
        optimiser.zero_grad(set_to_none=True)
        rule.backward(split.x[chunk], y[chunk])
        optimiser.step()
    net.eval()
    return rule.feedback


def _give(parameters: Iterable[nn.Parameter], gradients: Iterable[Tensor]) -> None:
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
