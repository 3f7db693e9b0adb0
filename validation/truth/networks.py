"""Seven small architectures for images of 28 by 28, each an embedding, blocks that hold their own residual, and a head."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pytest_fadiag import ResidualMLP

PIXELS = 28 * 28
PATCH = 7
TOKENS = (28 // PATCH) ** 2
HEADS = 2


class PostNormBlock(nn.Module):
    """LN(h + fc2(gelu(fc1(h)))): the norm stands on the stream itself."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.fc1, self.fc2, self.ln = nn.Linear(d, 4 * d), nn.Linear(4 * d, d), nn.LayerNorm(d)

    def forward(self, h: Tensor) -> Tensor:
        return self.ln(h + self.fc2(F.gelu(self.fc1(h))))  # type: ignore[no-any-return]


class PlainBlock(nn.Module):
    """relu(W h + b): no residual connection."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.linear = nn.Linear(d, d)

    def forward(self, h: Tensor) -> Tensor:
        return self.linear(h).relu()  # type: ignore[no-any-return]


class ConvBlock(nn.Module):
    """relu(shortcut(h) + bn2(conv2(relu(bn1(conv1(h)))))): a basic block; a stride halves the map and changes its channels."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        stride = 1 if before == after else 2
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.shortcut = (
            nn.Identity() if stride == 1 else nn.Conv2d(before, after, 1, stride, bias=False)
        )

    def forward(self, h: Tensor) -> Tensor:
        return (self.shortcut(h) + self.bn2(self.conv2(self.bn1(self.conv1(h)).relu()))).relu()  # type: ignore[no-any-return]


class AttentionBlock(nn.Module):
    """A pre-LayerNorm transformer block."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.ln1, self.qkv, self.out = nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.ln2, self.fc1, self.fc2 = nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, h: Tensor) -> Tensor:
        n, tokens, d = h.shape
        q, k, v = self.qkv(self.ln1(h)).view(n, tokens, 3, HEADS, d // HEADS).permute(2, 0, 3, 1, 4)
        h = h + self.out(
            F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, tokens, d)
        )
        return h + self.fc2(F.gelu(self.fc1(self.ln2(h))))  # type: ignore[no-any-return]


class MixerBlock(nn.Module):
    """Mixes over the tokens, then over the features."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.ln1, self.token1, self.token2 = (
            nn.LayerNorm(d),
            nn.Linear(TOKENS, 2 * TOKENS),
            nn.Linear(2 * TOKENS, TOKENS),
        )
        self.ln2, self.fc1, self.fc2 = nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, h: Tensor) -> Tensor:
        h = h + self.token2(F.gelu(self.token1(self.ln1(h).transpose(1, 2)))).transpose(1, 2)
        return h + self.fc2(F.gelu(self.fc1(self.ln2(h))))  # type: ignore[no-any-return]


class Patches(nn.Module):
    """Images as a sequence of embedded patches with positions, after a class token if there is one."""

    def __init__(self, d: int, *, class_token: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(PATCH * PATCH, d)
        self.position = nn.Parameter(0.02 * torch.randn(TOKENS + class_token, d))
        self.token = nn.Parameter(0.02 * torch.randn(1, 1, d)) if class_token else None

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.linear(F.unfold(x, PATCH, stride=PATCH).transpose(1, 2))
        if self.token is not None:
            tokens = torch.cat([self.token.expand(len(x), -1, -1), tokens], 1)
        return tokens + self.position  # type: ignore[no-any-return]


class Rectified(nn.Module):
    """Flattened images through a Linear and a ReLU."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.linear = nn.Linear(PIXELS, d)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.flatten(1)).relu()  # type: ignore[no-any-return]


class ClassToken(nn.Module):
    """The first token."""

    def forward(self, h: Tensor) -> Tensor:
        return h[:, 0]


class TokenMean(nn.Module):
    """The mean of all tokens."""

    def forward(self, h: Tensor) -> Tensor:
        return h.mean(1)


class MapMean(nn.Module):
    """The mean over a feature map."""

    def forward(self, h: Tensor) -> Tensor:
        return h.mean((2, 3))


class Stack(nn.Module):
    """Embedding, blocks, norm, what the head reads, head."""

    def __init__(
        self,
        embed: nn.Module,
        blocks: list[nn.Module],
        norm: nn.Module,
        read: nn.Module,
        head: nn.Linear,
    ) -> None:
        super().__init__()
        self.embed, self.blocks = embed, nn.ModuleList(blocks)
        self.out_ln, self.read, self.out_head = norm, read, head

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for block in self.blocks:
            h = block(h)
        return self.out_head(self.read(self.out_ln(h)))  # type: ignore[no-any-return]


def _post_norm(d: int, depth: int, classes: int) -> Stack:
    embed = nn.Sequential(nn.Flatten(), nn.Linear(PIXELS, d))
    return Stack(
        embed,
        [PostNormBlock(d) for _ in range(depth)],
        nn.Identity(),
        nn.Identity(),
        nn.Linear(d, classes),
    )


def _plain(d: int, depth: int, classes: int) -> Stack:
    return Stack(
        Rectified(d),
        [PlainBlock(d) for _ in range(depth)],
        nn.Identity(),
        nn.Identity(),
        nn.Linear(d, classes),
    )


def _conv(d: int, depth: int, classes: int, stages: int = 1) -> Stack:
    """``depth`` blocks in equal stages; each stage has twice the channels of the one before."""
    stem = nn.Sequential(nn.Conv2d(1, d, 5, 4, 2, bias=False), nn.BatchNorm2d(d), nn.ReLU())
    widths = [d] + [d * 2 ** (block * stages // depth) for block in range(depth)]
    blocks: list[nn.Module] = [ConvBlock(before, after) for before, after in pairwise(widths)]
    return Stack(stem, blocks, nn.Identity(), MapMean(), nn.Linear(widths[-1], classes))


def _vit(d: int, depth: int, classes: int, *, class_token: bool) -> Stack:
    read = ClassToken() if class_token else TokenMean()
    blocks: list[nn.Module] = [AttentionBlock(d) for _ in range(depth)]
    return Stack(
        Patches(d, class_token=class_token), blocks, nn.LayerNorm(d), read, nn.Linear(d, classes)
    )


def _mixer(d: int, depth: int, classes: int) -> Stack:
    return Stack(
        Patches(d),
        [MixerBlock(d) for _ in range(depth)],
        nn.LayerNorm(d),
        TokenMean(),
        nn.Linear(d, classes),
    )


ARCHITECTURES: dict[str, Callable[[int, int, int], nn.Module]] = {
    "post-ln": _post_norm,
    "plain": _plain,
    "conv": _conv,
    "conv-stages": lambda d, depth, classes: _conv(d, depth, classes, stages=2),
    "vit-class": lambda d, depth, classes: _vit(d, depth, classes, class_token=True),
    "vit-mean": lambda d, depth, classes: _vit(d, depth, classes, class_token=False),
    "mixer": _mixer,
}


def build(config: Mapping[str, Any]) -> nn.Module:
    """The network that a checkpoint's ``config`` describes."""
    d, depth, classes = (config[name] for name in ("d", "blocks", "classes"))
    kind = config.get("architecture", "resmlp")  # the shipped checkpoints name none
    if kind == "resmlp":
        return ResidualMLP(
            PIXELS, d, depth, classes, activation=config["activation"], out_ln=config["out_ln"]
        )
    return ARCHITECTURES[kind](d, depth, classes)


def branches(block: nn.Module) -> list[nn.Module]:
    """The layers whose output is what a block adds to the stream; a plain layer is its own."""
    last = {
        "ConvBlock": ("bn2",),
        "AttentionBlock": ("out", "fc2"),
        "MixerBlock": ("token2", "fc2"),
        "PlainBlock": ("linear",),
    }
    return [getattr(block, name) for name in last.get(type(block).__name__, ("fc2",))]
