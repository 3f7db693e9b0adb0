"""What networks of other packages taught: the shortest that were once measured wrongly."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .member import CLASSES, SAMPLES, Member, Refusal, Stream, images, row, vectors
from .parts import INPUT, Attention, Conv, D, Maps, Tokens, Transformer, Whole


class Weights(Transformer):
    """A layer that returns its attention weights too, which are read inside of it alone."""

    def forward(self, h: Tensor) -> Any:
        normed = self.ln1(h)
        weights = torch.softmax(normed @ normed.mT, -1)
        h = h + self.attn(weights @ normed)
        return h + self.mlp(self.ln2(h)), weights


class Windows(Transformer):
    """Tokens are dealt to windows and put back: the next layer turns a view of this one back."""

    def forward(self, h: Tensor) -> Tensor:
        batch, tokens, d = h.shape
        windows = h.reshape(batch, tokens // 2, 2, d).permute(0, 2, 1, 3)
        windows = windows + self.attn(self.ln1(windows))
        windows = windows + self.mlp(self.ln2(windows))
        return windows.permute(0, 2, 1, 3).reshape(batch, tokens, d)


class Branched(nn.Module):
    """Two convolutions that are added, which are one convolution."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.wide, self.narrow = (
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.Conv2d(inputs, outputs, 1),
        )

    def forward(self, h: Tensor) -> Tensor:
        return F.relu(self.wide(h) + self.narrow(h))


class Decoder(nn.Module):
    """Reads the words shifted by one, and what the encoder made of them."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.encoder = nn.Embedding(50, D), nn.ModuleList(Whole() for _ in range(3))
        self.decoder, self.read = (
            nn.ModuleList(Whole() for _ in range(3)),
            nn.ModuleList(Attention() for _ in range(3)),
        )
        self.head = nn.Linear(D, CLASSES)

    def forward(self, input_ids: Tensor) -> Tensor:
        shifted = input_ids.new_zeros(input_ids.shape)
        shifted[:, 1:] = input_ids[:, :-1].clone()
        shifted[:, 0] = 1
        seen = self.words(input_ids)
        for layer in self.encoder:
            seen = layer(seen)
        h = self.words(shifted)
        for layer, read in zip(self.decoder, self.read, strict=True):
            h = layer(h + read(h + seen))
        return self.head(h[:, -1])


class LeNet(nn.Module):
    """Layers with pooling after some of them: an activation is all that states have in common."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.fc1, self.fc2 = nn.Linear(8 * 4 * 4, D), nn.Linear(D, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.conv2(F.relu(self.conv1(x))))
        return self.fc2(F.relu(self.fc1(F.max_pool2d(h, 2).flatten(1))))


class Fading(nn.Module):
    """Layers that leave so little of the input that rounding alone tells the logits apart."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(INPUT if not layer else D, D) for layer in range(12))
        self.head = nn.Linear(D, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = 0.2 * torch.tanh(layer(x))
        return self.head(x)


def lessons() -> list[Member]:
    """All of them."""
    three = row("blocks.{}", 3)
    ids = lambda: {"input_ids": torch.randint(2, 50, (SAMPLES, 6))}  # noqa: E731
    beside = Refusal(
        "the decoder reads what the encoder made beside its own stream",
        "no single stream",
    )

    def tokens(block: type[nn.Module], **options: Any) -> nn.Module:
        return Tokens([block() for _ in range(3)], **options)

    made = [
        (
            "attention weights returned beside the state",
            lambda: tokens(Weights, step=lambda net, block, h: block(h)[0]),
            vectors(INPUT),
            Stream(three),
        ),
        ("windows that are put back", lambda: tokens(Windows), vectors(INPUT), Stream(three)),
        (
            "convolutions side by side before and between blocks",
            lambda: Maps(Branched(4, 4), Conv(4, 4), Branched(4, 8), Conv(8, 8), last=8),
            images(8, 1),
            Stream(("blocks.1", "blocks.3")),
        ),
        (
            "projections alone, behind a stem of three layers",
            lambda: Maps(
                nn.ReLU(),
                nn.Conv2d(4, 4, 3, padding=1),
                nn.ReLU(),
                Conv(4, 8, 2),
                Conv(8, 12, 2),
                last=12,
            ),
            images(8, 1),
            Stream(("blocks.3", "blocks.4")),
        ),
        ("pooling behind some layers", LeNet, images(8, 1), Stream(("conv2", "fc1"), "fc2")),
        ("a signal that fades", Fading, vectors(INPUT), Stream(row("layers.{}", 12)[1:], "head")),
    ]
    found = [Member("by hand", name, make, inputs, truth) for name, make, inputs, truth in made]
    return [*found, Member("by hand", "a decoder beside its encoder", Decoder, ids, beside)]
