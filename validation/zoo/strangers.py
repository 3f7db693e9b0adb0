"""Networks whose values pass around their blocks, or run in time: each plain and with a loud part.

One inner part times 1e4 must change nothing about what is found or refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .member import CLASSES, Inputs, Member, Refusal, Stream, images, row, vectors
from .parts import INPUT, Branch, Chain, Conv, D, Maps, Tokens, Transformer, Whole

LOUD = 1e4


class Scaled(nn.Module):
    """A part whose output is multiplied."""

    def __init__(self, part: nn.Module, by: float = LOUD) -> None:
        super().__init__()
        self.part, self.by = part, by

    def forward(self, *args: Tensor) -> Tensor:
        return self.by * self.part(*args)


class LongSkips(Tokens):
    """What layer i leaves is added, or concatenated and projected, before layer L - i."""

    def __init__(self, *, concatenated: bool) -> None:
        super().__init__([Transformer() for _ in range(6)])
        self.joins = nn.ModuleList(nn.Linear(2 * D, D) for _ in range(3)) if concatenated else None

    def hidden(self, x: Tensor) -> Tensor:
        h, kept = self.embed(x), []
        for number, block in enumerate(self.blocks):
            if number < 3:
                kept.append(h)
            elif self.joins is None:
                h = h + kept.pop()
            else:
                h = self.joins[number - 3](torch.cat([h, kept.pop()], -1))
            h = block(h)
        return h


class Handing(Transformer):
    """Attention whose values, or scores, are added to those that another layer hands on."""

    def __init__(self, carried: str) -> None:
        super().__init__()
        self.carried = carried

    def forward(self, h: Tensor, other: Tensor | None = None) -> Any:
        q, k, v = self.attn.qkv(self.ln1(h)).chunk(3, -1)
        scores = q @ k.mT / D**0.5
        if self.carried == "scores":
            scores = handed = scores if other is None else scores + other
        else:
            handed = v if other is None else other
            v = v if other is None else v + other
        h = h + self.attn.out(torch.softmax(scores, -1) @ v)
        return h + self.mlp(self.ln2(h)), handed


class Handed(Tokens):
    """Values of the first layer go to all others, or scores from each to the next."""

    def __init__(self, carried: str) -> None:
        super().__init__([Handing(carried) for _ in range(4)])

    def hidden(self, x: Tensor) -> Tensor:
        h, other = self.embed(x), None
        for block in self.blocks:
            h, other = block(h, other)
        return h


class Inside(nn.Module):
    """All layers and the last norm in one module, between an embedding and a head."""

    def __init__(self, chain: Chain) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(2, D), nn.Linear(D, CLASSES)
        chain.embed, chain.head = nn.Identity(), nn.Identity()
        self.transformer = _Body(chain)

    @property
    def blocks(self) -> Any:
        return self.transformer.chain.blocks

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.transformer(self.embed(x.reshape(len(x), 6, 2))).mean(1))


class _Body(nn.Module):
    def __init__(self, chain: Chain) -> None:
        super().__init__()
        self.chain = chain

    def forward(self, h: Tensor) -> Tensor:
        return self.chain.ln(self.chain.hidden(h))


def double(inputs: int, outputs: int) -> nn.Module:
    """Two convolutions with norms."""
    return nn.Sequential(
        *(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()),
        *(nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()),
    )


class Ushaped(nn.Module):
    """Down, down, up, up, with what each way down left put next to the way up; a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.blocks = double(1, 4), double(4, 8), nn.ModuleList([double(8, 8)])
        self.up2, self.up1 = double(16, 4), double(8, 4)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        one = self.one(x)
        two = self.two(F.max_pool2d(one, 2))
        h = F.interpolate(self.blocks[0](F.max_pool2d(two, 2)), scale_factor=2)
        h = F.interpolate(self.up2(torch.cat([two, h], 1)), scale_factor=2)
        return self.head(self.up1(torch.cat([one, h], 1)).mean((2, 3)))


class MultiScale(nn.Module):
    """Dense layers on a fine and a coarse scale, the coarse ones reading both; then dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.fine0, self.coarse0 = double(1, 8), double(8, 8)
        self.blocks = nn.ModuleList(double(8 + 8 * i, 8) for i in range(4))
        self.coarse = nn.ModuleList(double(16 + 16 * i, 8) for i in range(4))
        self.last = nn.ModuleList(nn.Conv2d(72 + 2 * i, 2, 1) for i in range(3))
        self.head = nn.Linear(78, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        fine = self.fine0(x)
        coarse = self.coarse0(F.max_pool2d(fine, 2))
        for one, other in zip(self.blocks, self.coarse, strict=True):
            down = F.max_pool2d(fine, 2)
            fine = torch.cat([fine, one(fine)], 1)
            coarse = torch.cat([coarse, other(torch.cat([coarse, down], 1))], 1)
        h = torch.cat([coarse, F.max_pool2d(fine[:, :32], 2)], 1)
        for layer in self.last:
            h = torch.cat([h, F.relu(layer(h))], 1)
        return self.head(h.mean((2, 3)))


class OverTime(nn.Module):
    """Residual convolutions that run once a time step, each with a potential that decays."""

    def __init__(self, steps: int = 4, *, spiking: bool = False) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(4, CLASSES)
        self.blocks = nn.ModuleList(Conv(4, 4) for _ in range(4))
        self.steps, self.spiking = steps, spiking

    def forward(self, x: Tensor) -> Tensor:
        potentials: list[Any] = [0.0] * 4
        total: Any = 0.0
        for _ in range(self.steps):
            h = self.stem(x)
            for number, block in enumerate(self.blocks):
                potentials[number] = 0.5 * potentials[number] + block(h)
                fired = (potentials[number] > 0.1).to(h) + 0.1 * torch.tanh(potentials[number])
                h = fired if self.spiking else h + torch.tanh(potentials[number])
            total = total + h
        return self.head(total.mean((2, 3)))


class Peg(nn.Module):
    """An embedding that ends with a sum of its own: patches, and what a convolution adds."""

    def __init__(self, by: float = 1.0) -> None:
        super().__init__()
        self.proj, self.peg, self.by = (
            nn.Conv2d(1, 4, 2, 2),
            nn.Conv2d(4, 4, 3, padding=1, groups=4),
            by,
        )

    def forward(self, x: Tensor) -> Tensor:
        h = self.by * self.proj(x)
        return h + self.peg(h)


class Embedded(Maps):
    """Residual blocks after such an embedding."""

    def __init__(self, by: float = 1.0) -> None:
        super().__init__(*(Conv(4, 4) for _ in range(3)))
        self.stem = Peg(by)  # type: ignore[assignment]


class Hyper(Chain):
    """Four streams: a small matrix mixes them, a block reads one mixture and writes to all."""

    def __init__(self) -> None:
        super().__init__([Branch() for _ in range(3)])
        self.mix = nn.ParameterList(torch.eye(4) + torch.randn(4, 4) / 9 for _ in range(3))
        self.read = nn.ParameterList(torch.randn(4) for _ in range(3))
        self.write = nn.ParameterList(torch.randn(4, 1) for _ in range(3))

    def states(self, x: Inputs) -> tuple[Tensor, list[Tensor]]:
        states = [self.embed(x)[:, None].repeat(1, 4, 1)]
        for block, mix, read, write in zip(
            self.blocks, self.mix, self.read, self.write, strict=True
        ):
            update = block(torch.einsum("n,bnd->bd", read, states[-1]))
            states.append(torch.einsum("mn,bnd->bmd", mix, states[-1]) + write * update[:, None])
        return self.head(self.ln(states[-1].sum(1))), states

    def forward(self, x: Tensor) -> Tensor:
        return self.states(x)[0]


class NormedSkip(Chain):
    """The state is normalised on its way around the block."""

    def __init__(self) -> None:
        super().__init__([Branch() for _ in range(3)])
        self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in range(3))

    def states(self, x: Inputs) -> tuple[Tensor, list[Tensor]]:
        states = [self.embed(x)]
        for block, norm in zip(self.blocks, self.norms, strict=True):
            states.append(norm(states[-1]) + block(states[-1]))
        return self.head(self.ln(states[-1])), states

    def forward(self, x: Tensor) -> Tensor:
        return self.states(x)[0]


class Freeing(Whole):
    """A reversible block: what it can compute again, it does not keep."""

    def forward(self, h: Tensor) -> Tensor:
        out = super().forward(h)
        h.untyped_storage().resize_(0)
        return out


class Ode(Chain):
    """Steps of one function, all of them written into one buffer."""

    def forward(self, x: Tensor) -> Tensor:
        start = self.embed(x)
        path = start.new_empty(5, *start.shape)
        path[0] = start
        for step in range(4):
            path[step + 1] = path[step] + 0.25 * self.blocks[0](path[step])
        return self.head(self.ln(path[-1]))


class Expanded(Chain):
    """One vector for every token, in the same memory."""

    def states(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        hidden = [self.embed(x)[:, None].expand(-1, 4, -1)]
        for block in self.blocks:
            hidden.append(block(hidden[-1]))
        return self.head(self.ln(hidden[-1].mean(1))), hidden

    def forward(self, x: Tensor) -> Tensor:
        return self.states(x)[0]


class Recurrent(nn.Module):
    """Six steps of a cell, or of torch's own."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.blocks, self.head = nn.ModuleList([cell]), nn.Linear(D, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x, (cell,) = x.reshape(len(x), 6, 2), self.blocks
        if isinstance(cell, nn.RNNBase):
            return self.head(cell(x)[0][:, -1])
        h = x.new_zeros(len(x), D)
        for step in x.unbind(1):
            h = cell(torch.cat([step, h], 1))
        return self.head(h)


class Relaxing(nn.Module):
    """Equilibrium propagation: layers pull at each other, with the input, until they rest."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(INPUT, D), nn.Linear(D, CLASSES)
        self.blocks = nn.ModuleList(nn.Linear(D, D) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        states = [x.new_zeros(len(x), D) for _ in range(3)]
        for _ in range(5):
            below = [self.first(x), *(own(h) for own, h in zip(self.blocks, states, strict=False))]
            above = [h @ own.weight for own, h in zip(self.blocks, states[1:], strict=True)]
            pulled = [one + other for one, other in zip(below, [*above, 0.0], strict=True)]
            states = [
                0.5 * h + 0.5 * torch.tanh(own) for h, own in zip(states, pulled, strict=True)
            ]
        return self.head(states[-1])


def _one_layer(net: Any, x: Inputs) -> tuple[Tensor, list[Tensor]]:
    x = x.clone().requires_grad_()  # type: ignore[union-attr]
    hidden = torch.relu(net.blocks[0](x))
    return net.head(hidden), [x, hidden]


class OneLayer(nn.Module):
    """One hidden layer."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.head = nn.ModuleList([nn.Linear(INPUT, D)]), nn.Linear(D, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.blocks[0](x)))


def _cell() -> nn.Module:
    return nn.Sequential(nn.Linear(D + 2, D), nn.Tanh())


def strangers() -> list[Member]:
    """All of them."""
    around, many = "no single stream", "run many times|runs many times"
    by_hand = Stream(by_hand=lambda net, x: net.states(x))
    skips, carried = Refusal("long skips", around), Refusal("something is carried", around)
    of_vectors: Sequence[tuple[str, Callable[[], nn.Module], Stream | Refusal]] = [
        ("long skips, added", lambda: LongSkips(concatenated=False), skips),
        ("long skips, concatenated", lambda: LongSkips(concatenated=True), skips),
        ("long skips inside", lambda: Inside(LongSkips(concatenated=False)), skips),
        ("long skips inside, concatenated", lambda: Inside(LongSkips(concatenated=True)), skips),
        ("value residuals", lambda: Handed("values"), carried),
        ("value residuals inside", lambda: Inside(Handed("values")), carried),
        ("carried attention scores", lambda: Handed("scores"), carried),
        ("carried attention scores inside", lambda: Inside(Handed("scores")), carried),
        ("hyper-connections", Hyper, by_hand),
        ("a skip through a norm", NormedSkip, by_hand),
        (
            "blocks that free their input",
            lambda: Chain([Freeing() for _ in range(3)]),
            Refusal("states are gone", "was freed"),
        ),
        ("an ODE in one buffer", Ode, Refusal("steps in time", many)),
        ("expanded states", Expanded, by_hand),
        ("a recurrent cell", lambda: Recurrent(_cell()), Refusal("steps in time", many)),
        (
            "torch's own recurrent layer",
            lambda: Recurrent(nn.GRU(2, D, batch_first=True)),
            Refusal("steps in time", many),
        ),
        ("relaxation", Relaxing, Refusal("steps in time", many)),
        ("one hidden layer", OneLayer, Stream(by_hand=_one_layer)),
    ]
    of_images: Sequence[tuple[str, Callable[[], nn.Module], Stream | Refusal]] = [
        ("a U with pooling and a head", Ushaped, Refusal("values pass beside the bottom", around)),
        ("dense layers on two scales", MultiScale, Refusal("two scales", f"{around}|whole stream")),
        ("residual convolutions over time", OverTime, Refusal("steps in time", many)),
        ("spikes", lambda: OverTime(spiking=True), Refusal("steps in time", many)),
    ]
    made = [
        *(
            Member("strangers", name, make, vectors(INPUT), truth)
            for name, make, truth in of_vectors
        ),
        *(Member("strangers", name, make, images(8, 1), truth) for name, make, truth in of_images),
    ]
    embedded = Stream(row("blocks.{}", 3))
    return [
        *made,
        *(
            Member("strangers", f"{own.name}, loud", loud(own.make), own.inputs, own.truth)
            for own in made
        ),
        Member("strangers", "an embedding with a sum", Embedded, images(8, 1), embedded),
        Member(
            "strangers",
            "an embedding with a sum, loud",
            lambda: Embedded(1000.0),
            images(8, 1),
            embedded,
        ),
    ]


def loud(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """The same network with one inner part times 1e4."""

    def changed() -> nn.Module:
        net: Any = make()
        block = net.blocks[len(net.blocks) // 2]
        if isinstance(block, Transformer):
            block.mlp = Scaled(block.mlp)
        elif isinstance(block, Branch):
            block.out = Scaled(block.out)
        elif isinstance(block, Conv):
            block.conv2 = Scaled(block.conv2)
        elif isinstance(block, nn.Sequential):
            block[0] = Scaled(block[0])
        elif isinstance(block, nn.Linear) and not isinstance(net, Relaxing):
            net.blocks[len(net.blocks) // 2] = Scaled(block)
        else:
            with torch.no_grad():
                next(iter(block.parameters())).mul_(LOUD)
        return net

    return changed
