"""Networks by hand, among them the shortest that were once measured wrongly or refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .lessons import lessons
from .member import CLASSES, SAMPLES, Inputs, Member, Refusal, Stream, images, row, vectors
from .newcomers import newcomers
from .oddities import oddities
from .parts import (
    INPUT,
    Attention,
    Branch,
    Chain,
    Conv,
    D,
    Feedback,
    Formula,
    Loud,
    Maps,
    Named,
    Parallel,
    PreActivation,
    Projection,
    Squeezed,
    Tokens,
    Transformer,
    Tuple,
    Whole,
)
from .strangers import strangers

THREE = row("blocks.{}", 3)


def members() -> list[Member]:
    """All of them."""
    return [
        *_chains(),
        *_tokens(),
        *_maps(),
        *_own_backwards(),
        *oddities(),
        *lessons(),
        *strangers(),
        *newcomers(),
    ]


def _net(
    name: str,
    make: Callable[[], nn.Module],
    blocks: tuple[str, ...] = THREE,
    last: str = "",
    **truth: Any,
) -> Member:
    named = truth.pop("named", None)
    return Member("by hand", name, make, vectors(INPUT), Stream(blocks, last, **truth), named)


def branches(number: int = 3) -> list[nn.Module]:
    """So many of them."""
    return [Branch() for _ in range(number)]


def wholes(number: int = 3) -> list[nn.Module]:
    """So many of them."""
    return [Whole() for _ in range(number)]


def _added(net: Chain, block: nn.Module, h: Tensor) -> Tensor:
    return h + block(h)


def _chains() -> list[Member]:
    formulas: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "the branch first": lambda h, f: f + h,
        "a difference": lambda h, f: h - f,
        "torch.add with alpha": lambda h, f: torch.add(h, f, alpha=0.5),
        "addcmul": lambda h, f: torch.addcmul(h, f, torch.full_like(f, 0.5)),
        "lerp": lambda h, f: torch.lerp(h, f, 0.3),
        "a scaled state": lambda h, f: 0.5 * h + 0.5 * f,
        "in place": lambda h, f: f.add_(h),
        "a clone that is written to": lambda h, f: h.clone().add_(f),
        "stack and sum": lambda h, f: torch.stack([h, f]).sum(0),
    }
    many = "two lists"
    return [
        _net("residual inside", Chain),
        *(
            _net(f"residual as {name}", lambda own=own: Chain([Formula(own) for _ in range(3)]))
            for name, own in formulas.items()
        ),
        _net("residual outside", lambda: Chain(branches(), _added), last="ln"),
        _net(
            "five blocks and a loud one of another class",
            lambda: Chain([*wholes(5), Loud()]),
            row("blocks.{}", 6),
        ),
        _net(
            "two loud blocks and a head of four equal layers",
            lambda: Chain(
                [Loud(), Loud()],
                head=nn.Sequential(*(nn.Linear(D, D) for _ in range(3)), nn.Linear(D, CLASSES)),
            ),
            row("blocks.{}", 2),
        ),
        _net(
            "an embedding of six layers and four loud blocks",
            lambda: Chain(
                [Loud() for _ in range(4)],
                embed=nn.Sequential(nn.Linear(INPUT, D), *(nn.Linear(D, D) for _ in range(5))),
            ),
            row("blocks.{}", 4),
        ),
        _net(
            "blocks that return tuples",
            lambda: Chain([Tuple() for _ in range(3)], lambda net, block, h: block(h)[0]),
        ),
        _net(
            "blocks that return dictionaries",
            lambda: Chain([Named() for _ in range(3)], lambda net, block, h: block(h)["hidden"]),
        ),
        _net("one block", lambda: Chain(wholes(1)), ("blocks.0",)),
        _net("named by a SPEC", Chain, named="blocks.* -> ln"),
        _net(
            "named outside, by what h_L enters",
            lambda: Chain(branches(), _added),
            last="ln",
            named="blocks.* -> ln",
        ),
        _net(
            f"{many} joined by a comma",
            Pairs,
            tuple(f"{part}.{i}" for i in range(3) for part in ("attn", "mlp")),
            last="ln",
            named="attn.*, mlp.*",
        ),
        _net(
            "two lists",
            Pairs,
            tuple(f"{part}.{i}" for i in range(3) for part in ("attn", "mlp")),
            last="ln",
        ),
        _net("a ModuleDict", Keyed, tuple(f"blocks.{key}" for key in "abc")),
        _net("numbered attributes", Numbered, row("block{}", 3)),
        _net("numbered attributes by a star", Numbered, row("block{}", 3), named="block*"),
        _net("one block in a loop", Looped, ("block",) * 3),
        _net(
            "one norm at every step",
            lambda: Chain(
                [nn.Linear(D, D) for _ in range(3)], lambda net, block, h: h + block(net.ln(h))
            ),
            by_hand=_normed,
        ),
        _net("a plain list of Python", Listed, by_hand=_listed),
        _net("a norm that is a function", Functional, last="", by_hand=_functional),
    ]


class Pairs(Chain):
    """Attention-like and MLP-like branches in two lists."""

    def __init__(self) -> None:
        super().__init__()
        del self.blocks
        self.attn, self.mlp = nn.ModuleList(branches()), nn.ModuleList(branches())

    def hidden(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for attn, mlp in zip(self.attn, self.mlp, strict=True):
            h = h + attn(h)
            h = h + mlp(h)
        return h


class Keyed(Chain):
    """Blocks under keys."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleDict({key: Whole() for key in "abc"})  # type: ignore[assignment]

    def hidden(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for key in "abc":
            h = self.blocks[key](h)  # type: ignore[index]
        return h


class Numbered(Chain):
    """Blocks as attributes."""

    def __init__(self) -> None:
        super().__init__()
        del self.blocks
        self.block0, self.block1, self.block2 = wholes()

    def hidden(self, x: Tensor) -> Tensor:
        return self.block2(self.block1(self.block0(self.embed(x))))


class Looped(Chain):
    """One block, three times."""

    def __init__(self) -> None:
        super().__init__()
        del self.blocks
        self.block = Whole()

    def hidden(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for _ in range(3):
            h = self.block(h)
        return h


class Listed(Chain):
    """Blocks in a list that torch knows nothing of."""

    def __init__(self) -> None:
        super().__init__()
        del self.blocks
        self.__dict__["blocks"] = wholes()

    def double(self) -> Any:
        for block in self.blocks:
            block.double()
        return super().double()

    def eval(self) -> Any:
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        for block in self.blocks:
            block.requires_grad_(requires_grad)
        return super().requires_grad_(requires_grad)


class Functional(Chain):
    """The terminal norm is a function: what enters the head is normalised, and no state."""

    def __init__(self) -> None:
        super().__init__(branches(), _added)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.layer_norm(self.hidden(x), (D,)))


def _states(
    net: Any, x: Inputs, step: Callable[[Any, Tensor], Tensor], end: Callable[[Tensor], Tensor]
) -> Any:
    states = [net.embed(x)]
    for block in net.blocks:
        states.append(step(block, states[-1]))
    return end(states[-1]), states


def _normed(net: Any, x: Inputs) -> tuple[Tensor, list[Tensor]]:
    return _states(net, x, lambda block, h: h + block(net.ln(h)), lambda h: net.head(net.ln(h)))


def _listed(net: Any, x: Inputs) -> tuple[Tensor, list[Tensor]]:
    return _states(net, x, lambda block, h: block(h), lambda h: net.head(net.ln(h)))


def _functional(net: Any, x: Inputs) -> tuple[Tensor, list[Tensor]]:
    return _states(net, x, lambda block, h: h + block(h), lambda h: net.head(F.layer_norm(h, (D,))))


def _tokens() -> list[Member]:
    def encoder(**options: Any) -> list[nn.Module]:
        layer = lambda: nn.TransformerEncoderLayer(D, 2, 16, 0.0, **options)  # noqa: E731
        return [layer() for _ in range(3)]

    return [
        _net("transformer, norm before", lambda: Tokens([Transformer() for _ in range(3)])),
        _net(
            "transformer, norm behind", lambda: Tokens([Transformer(post=True) for _ in range(3)])
        ),
        _net("attention and MLP side by side", lambda: Tokens([Parallel() for _ in range(3)])),
        _net("torch's encoder layers", lambda: Tokens(encoder(batch_first=True))),
        _net(
            "torch's encoder layers, norm first",
            lambda: Tokens(encoder(batch_first=True, norm_first=True)),
        ),
        _net("tokens first", lambda: Tokens(encoder(), batch_first=False), batch_dim=1),
        _net(
            "attention alone, added outside",
            lambda: Tokens([Attention() for _ in range(3)], step=_added),
            last="ln",
        ),
    ]


def _image(
    name: str, make: Callable[[], nn.Module], blocks: tuple[str, ...], **truth: Any
) -> Member:
    return Member("by hand", name, make, images(8, 1), Stream(blocks, **truth))


def _maps() -> list[Member]:
    stages = row("blocks.{}", 4)
    return [
        _image(
            "resnet",
            lambda: Maps(Conv(4, 4), Conv(4, 8, 2), Conv(8, 8), Conv(8, 8), last=8),
            stages,
        ),
        _image(
            "projections of another class",
            lambda: Maps(Conv(4, 4), Projection(4, 8, 2), Conv(8, 8), Conv(8, 8), last=8),
            stages,
        ),
        _image(
            "resnet, activation first",
            lambda: Maps(*(PreActivation(4, 4) for _ in range(4))),
            stages,
        ),
        _image("squeeze and excitation", lambda: Maps(*(Squeezed(4) for _ in range(4))), stages),
        _image(
            "a convolution between two stages",
            lambda: Maps(Conv(4, 4), Conv(4, 4), nn.Conv2d(4, 8, 2, 2), Conv(8, 8), last=8),
            ("blocks.0", "blocks.1", "blocks.3"),
        ),
        _image(
            "stages in stages",
            lambda: Maps(
                nn.Sequential(Conv(4, 4), Conv(4, 4)),
                nn.Sequential(Conv(4, 8, 2), Conv(8, 8)),
                last=8,
            ),
            ("blocks.0.0", "blocks.0.1", "blocks.1.0", "blocks.1.1"),
        ),
        _image(
            "convolutions without residuals",
            lambda: Maps(
                *(part for _ in range(3) for part in (nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1)))
            ),
            ("blocks.1", "blocks.3", "blocks.5"),
        ),
    ]


def _own_backwards() -> list[Member]:
    def plain(model: nn.Module) -> nn.Module:
        copied = copy.deepcopy(model)
        for module in copied.modules():
            module._backward_hooks.clear()
            if isinstance(module, Feedback):
                module.own = False
        return copied

    def hooked() -> nn.Module:
        net = Chain()
        net.blocks[1].register_full_backward_hook(
            lambda module, inner, outer: (torch.zeros_like(outer[0]),)
        )
        return net

    def by_hand(net: Any, x: Inputs) -> tuple[Tensor, list[Tensor]]:
        return _states(net, x, lambda block, h: h + block(h), lambda h: net.head(net.ln(h)))

    return [
        _net("feedback alignment", lambda: Chain([Feedback() for _ in range(3)]), within=plain),
        _net("a backward hook that zeroes the gradient", hooked, within=plain),
        _net(
            "a state that is detached",
            lambda: Chain(branches(), lambda net, block, h: h.detach() + block(h)),
            by_hand=by_hand,
        ),
        _net(
            "a branch that is scaled back",
            lambda: Chain(branches(), lambda net, block, h: h + Doubled.apply(block(h))),
            by_hand=by_hand,
        ),
    ]


class Doubled(torch.autograd.Function):
    """The identity, with twice its gradient."""

    @staticmethod
    def forward(ctx: Any, h: Tensor) -> Tensor:
        return h.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return 2 * gradients[0]


__all__ = ["SAMPLES", "Refusal", "members"]
