"""Blocks and networks by hand, of 12 numbers or of images of 1 × 8 × 8, that need torch alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .member import CLASSES

D, INPUT = 8, 12


class Branch(nn.Module):
    """f alone: whoever calls it adds the residual."""

    def __init__(self, d: int = D) -> None:
        super().__init__()
        self.ln, self.fc, self.out = nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, h: Tensor) -> Tensor:
        return self.out(F.gelu(self.fc(self.ln(h))))


class Whole(Branch):
    """h + f(h)."""

    def forward(self, h: Tensor) -> Tensor:
        return h + super().forward(h)


class Loud(Whole):
    """A block of another class, whose branch is much larger than the state."""

    def forward(self, h: Tensor) -> Tensor:
        return h + 1e4 * Branch.forward(self, h)


class Formula(nn.Module):
    """A block that is a formula of the state and a branch."""

    def __init__(self, formula: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.branch, self.formula = Branch(), formula

    def forward(self, h: Tensor) -> Tensor:
        return self.formula(h, self.branch(h))


class Tuple(Whole):
    """A block that returns its state in a tuple, beside something that nobody reads."""

    def forward(self, h: Tensor) -> Any:
        return super().forward(h), h.mean()


class Named(Whole):
    """A block that returns a dictionary."""

    def forward(self, h: Tensor) -> Any:
        return {"hidden": super().forward(h)}


class Attention(nn.Module):
    """Attention of one head over tokens."""

    def __init__(self, d: int = D) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, h: Tensor) -> Tensor:
        q, k, v = self.qkv(h).chunk(3, -1)
        return self.out(torch.softmax(q @ k.mT / D**0.5, -1) @ v)


class Transformer(nn.Module):
    """Attention and MLP, normalised before or behind."""

    def __init__(self, *, post: bool = False) -> None:
        super().__init__()
        self.attn, self.mlp, self.post = (
            Attention(),
            nn.Sequential(nn.Linear(D, 16), nn.GELU(), nn.Linear(16, D)),
            post,
        )
        self.ln1, self.ln2 = nn.LayerNorm(D), nn.LayerNorm(D)

    def forward(self, h: Tensor) -> Tensor:
        if self.post:
            h = self.ln1(h + self.attn(h))
            return self.ln2(h + self.mlp(h))
        h = h + self.attn(self.ln1(h))
        return h + self.mlp(self.ln2(h))


class Parallel(Transformer):
    """Attention and MLP side by side, as in GPT-J."""

    def forward(self, h: Tensor) -> Tensor:
        normed = self.ln1(h)
        return h + self.attn(normed) + self.mlp(normed)


class Conv(nn.Module):
    """A basic block of a ResNet, with a projection where its shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1), nn.BatchNorm2d(outputs)
        same = stride == 1 and inputs == outputs
        self.short: nn.Module = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, h: Tensor) -> Tensor:
        return F.relu(self.short(h) + self.bn2(self.conv2(F.relu(self.bn1(self.conv1(h))))))


class Projection(Conv):
    """Another class for the blocks that change the shape."""


class PreActivation(Conv):
    """The same with norm and ReLU before each convolution, and the sum as it is."""

    def forward(self, h: Tensor) -> Tensor:
        return self.short(h) + self.conv2(F.relu(self.bn2(self.conv1(F.relu(h)))))


class Squeezed(Conv):
    """A branch that is gated by squeeze and excitation."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, channels)
        self.down, self.up = nn.Linear(channels, 2), nn.Linear(2, channels)

    def forward(self, h: Tensor) -> Tensor:
        f = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(h)))))
        return h + f * torch.sigmoid(self.up(F.relu(self.down(f.mean((2, 3))))))[:, :, None, None]


class Chain(nn.Module):
    """Embedding, blocks, norm, head, with one way to get from a state to the next."""

    def __init__(
        self,
        blocks: Sequence[nn.Module] = (),
        step: Callable[[Chain, nn.Module, Tensor], Any] = lambda net, block, h: block(h),
        embed: nn.Module | None = None,
        head: nn.Module | None = None,
        norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.embed = embed or nn.Linear(INPUT, D)
        self.blocks = nn.ModuleList(blocks or [Whole() for _ in range(3)])
        self.ln = norm or nn.LayerNorm(D)
        self.head = head or nn.Linear(D, CLASSES)
        self.step = step

    def hidden(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for block in self.blocks:
            h = self.step(self, block, h)
        return h

    def forward(self, x: Tensor) -> Any:
        return self.head(self.ln(self.hidden(x)))


class Tokens(Chain):
    """The same over six tokens, of which the mean is read."""

    def __init__(
        self, blocks: Sequence[nn.Module], *, batch_first: bool = True, **options: Any
    ) -> None:
        super().__init__(blocks, embed=nn.Linear(2, D), **options)
        self.batch_first = batch_first

    def forward(self, x: Tensor) -> Tensor:
        x = x.reshape(len(x), 6, 2)
        h = self.hidden(x if self.batch_first else x.transpose(0, 1))
        return self.head(self.ln(h).mean(1 if self.batch_first else 0))


class Maps(nn.Module):
    """A stem, blocks, and a head that reads the mean of each channel."""

    def __init__(self, *blocks: nn.Module, width: int = 4, last: int = 4) -> None:
        super().__init__()
        self.stem, self.blocks = nn.Conv2d(1, width, 3, padding=1), nn.Sequential(*blocks)
        self.head = nn.Linear(last, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class Fixed(torch.autograd.Function):
    """A linear map with another matrix in its backward: feedback alignment."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, feedback: Tensor) -> Tensor:
        ctx.save_for_backward(feedback)
        return h @ weight

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gradients[0] @ ctx.saved_tensors[0], None, None


class Feedback(nn.Module):
    """A block of feedback alignment; plain where ``own`` is false."""

    def __init__(self, *, own: bool = True) -> None:
        super().__init__()
        self.weight, self.own = nn.Parameter(torch.randn(D, D) / 3), own
        self.register_buffer("feedback", torch.randn(D, D))

    def forward(self, h: Tensor) -> Tensor:
        if not self.own:
            return h + torch.tanh(h @ self.weight)
        return h + torch.tanh(Fixed.apply(h, self.weight, self.feedback))
