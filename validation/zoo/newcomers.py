"""Norms, heads, gates, towers and states of networks that others wrote: each plain, and loud in three places.

A part times 1e4 must show as growth of the stream, or the stream was misread.
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
AROUND = "no single stream"
States = tuple[Tensor, list[Tensor]]


def rms(h: Tensor) -> Tensor:
    """Divided by its root mean square, by hand."""
    return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)


class ByHand(Chain):
    """A network that tells its states."""

    def states(self, x: Inputs) -> States:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        return self.states(x)[0]


class NormBetween(ByHand):
    """A norm between the second and the third of four blocks."""

    def __init__(self, norm: Callable[[Tensor], Tensor]) -> None:
        super().__init__([Whole() for _ in range(4)])
        self.between = norm

    def states(self, x: Any) -> States:
        states = [self.embed(x)]
        for number, block in enumerate(self.blocks):
            h = states[-1]
            if number == 2:
                h = self.between(h)
            states.append(block(h))
        return self.head(self.ln(states[-1])), states


class Siglip(Tokens):
    """Layers, a norm, and a head that pools by attention and adds an MLP of its own."""

    def __init__(self) -> None:
        super().__init__([Transformer() for _ in range(3)])
        self.probe = nn.Parameter(torch.randn(1, 1, D))
        self.kv, self.q, self.out = nn.Linear(D, 2 * D), nn.Linear(D, D), nn.Linear(D, D)
        self.last = Branch()

    def states(self, x: Any) -> States:
        states = [self.embed(x.reshape(len(x), 6, 2))]
        for block in self.blocks:
            states.append(block(states[-1]))
        k, v = self.kv(self.ln(states[-1])).chunk(2, -1)
        scores = self.q(self.probe.expand(len(x), -1, -1)) @ k.mT / D**0.5
        h = self.out(torch.softmax(scores, -1) @ v)
        states.append(h + self.last(h))
        return self.head(states[-1][:, 0]), states

    def forward(self, x: Tensor) -> Tensor:
        return self.states(x)[0]


class NormedFirst(Transformer):
    """The first layer of RWKV-4: it normalises what the words are looked up as, skip and all."""

    def __init__(self) -> None:
        super().__init__()
        self.ln0 = nn.LayerNorm(D)

    def forward(self, h: Tensor) -> Tensor:
        return super().forward(self.ln0(h))


class Rwkv(Tokens):
    """Small lookups, which the first block normalises."""

    def __init__(self, by: float) -> None:
        super().__init__([NormedFirst(), Transformer(), Transformer()])
        self.by = by

    def states(self, x: Any) -> States:
        first: Any = self.blocks[0]
        h = first.ln0(self.by * self.embed(x.reshape(len(x), 6, 2)))
        states = [h, Transformer.forward(first, h)]
        for block in list(self.blocks)[1:]:
            states.append(block(states[-1]))
        return self.head(self.ln(states[-1]).mean(1)), states

    def forward(self, x: Tensor) -> Tensor:
        h = self.by * self.embed(x.reshape(len(x), 6, 2))
        for block in self.blocks:
            h = block(h)
        return self.head(self.ln(h).mean(1))


HEADS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "distances": lambda h, p: -torch.cdist(h, p),
    "squared distances": lambda h, p: -(h[:, None] - p).pow(2).sum(-1),
    "cosines": lambda h, p: F.cosine_similarity(h[:, None], p, dim=-1),
    "products that are added": lambda h, p: (h[:, None] * p).sum(-1),
    "a slice": lambda h, p: h[:, :CLASSES],
    "norms of groups": lambda h, p: torch.cat([h, h[:, :2]], 1).reshape(-1, 5, 2).norm(dim=-1),
}


class Headed(ByHand):
    """A head that is no matrix product."""

    def __init__(self, head: Callable[[Tensor, Tensor], Tensor], *, normed: bool) -> None:
        super().__init__([Whole() for _ in range(3)])
        self.prototypes = nn.Parameter(torch.randn(CLASSES, D))
        self.read, self.normed = head, normed
        del self.head

    def states(self, x: Any) -> States:
        states = [self.embed(x)]
        for block in self.blocks:
            states.append(block(states[-1]))
        h = self.ln(states[-1]) if self.normed else states[-1]
        return self.read(h, self.prototypes), states


class Gated(Chain):
    """Blocks that run where a weight says so."""

    def __init__(self) -> None:
        super().__init__([Whole() for _ in range(6)])
        self.gates = nn.Parameter(torch.ones(6))

    def hidden(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for gate, block in zip(self.gates, self.blocks, strict=True):
            if gate > 0:
                h = block(h)
        return h


class Leaving(Chain):
    """The layers after which a first head is sure are left out."""

    def hidden(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for block in self.blocks:
            h = block(h)
            if self.head(100 * h).softmax(-1).amax() > 0.99:
                break
        return h


class Threshold(Branch):
    """A branch that is silent up to a threshold."""

    def __init__(self, threshold: float, *, spikes: bool) -> None:
        super().__init__()
        self.threshold, self.spikes = threshold, spikes

    def forward(self, h: Tensor) -> Tensor:
        potential = super().forward(h) - self.threshold
        return (potential > 0).to(h) if self.spikes else F.relu(potential)


class Silent(ByHand):
    """Spiking residual blocks, of which those with a high threshold are silent where weights are small."""

    def __init__(self, *, spikes: bool) -> None:
        super().__init__([Threshold(at, spikes=spikes) for at in (0.1, 100.0, 100.0, 0.1)])

    def states(self, x: Any) -> States:
        states = [self.embed(x)]
        for block in self.blocks:
            states.append(states[-1] + block(states[-1]))
        return self.head(self.ln(states[-1])), states


class Connections(ByHand):
    """Several streams: a small matrix mixes them, a block reads one mixture and writes to all."""

    def __init__(self, number: int, dim: int = 1) -> None:
        super().__init__([Branch() for _ in range(3)])
        self.number, self.dim = number, dim
        self.mix = nn.ParameterList(torch.eye(number) for _ in range(3))
        self.read = nn.ParameterList(torch.ones(number) for _ in range(3))
        self.write = nn.ParameterList(torch.ones(number) for _ in range(3))

    def states(self, x: Any) -> States:
        states = [torch.stack([self.embed(x)] * self.number, self.dim)]
        streams, where = ("bnd", "bmd") if self.dim == 1 else ("nbd", "mbd")
        for block, mix, read, write in zip(
            self.blocks, self.mix, self.read, self.write, strict=True
        ):
            update = block(torch.einsum(f"n,{streams}->bd", read, states[-1]))
            mixed = torch.einsum(f"mn,{streams}->{where}", mix, states[-1])
            states.append(mixed + torch.einsum(f"m,bd->{where}", write, update))
        return self.head(self.ln(states[-1].sum(self.dim))), states


class TowerBlock(nn.Module):
    """As in MobileViT: a convolution, layers over places, a norm, and a convolution of both."""

    def __init__(self, *, normed: bool) -> None:
        super().__init__()
        self.local = nn.Conv2d(D, D, 3, padding=1)
        self.layers = nn.ModuleList(Transformer() for _ in range(2))
        self.ln = nn.LayerNorm(D) if normed else nn.Identity()
        self.fuse = nn.Conv2d(2 * D, D, 1)

    def forward(self, h: Tensor) -> Tensor:
        places = self.local(h).flatten(2).mT
        for layer in self.layers:
            places = layer(places)
        places = self.ln(places).mT.reshape(h.shape)
        return self.fuse(torch.cat([h, places], 1))


class Csp(nn.Module):
    """Half of the channels pass two residual blocks; a convolution reads both halves."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(Conv(4, 4), Conv(4, 4))
        self.fuse = nn.Conv2d(8, 8, 1)

    def forward(self, h: Tensor) -> Tensor:
        one, other = h.chunk(2, 1)
        return F.relu(self.fuse(torch.cat([one, self.inner(other)], 1)))


class Registers(Tokens):
    """A class token, no register tokens, and patches."""

    def __init__(self) -> None:
        super().__init__([Transformer() for _ in range(3)])
        self.first = nn.Parameter(torch.randn(1, 1, D))
        self.registers = nn.Parameter(torch.empty(1, 0, D))

    def states(self, x: Any) -> States:
        patches = self.embed(x.reshape(len(x), 6, 2))
        tokens = (self.first, self.registers)
        states = [torch.cat([*(own.expand(len(x), -1, -1) for own in tokens), patches], 1)]
        for block in self.blocks:
            states.append(block(states[-1]))
        return self.head(self.ln(states[-1])[:, 0]), states

    def forward(self, x: Tensor) -> Tensor:
        return self.states(x)[0]


class Fractal(nn.Module):
    """Two paths of one and two convolutions, or of one fractal after another, and their mean."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.short = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.long = None
        if columns > 1:
            self.long = nn.Sequential(Fractal(columns - 1), Fractal(columns - 1))

    def forward(self, h: Tensor) -> Tensor:
        if self.long is None:
            return self.short(h)
        return torch.stack([self.short(h), self.long(h)]).mean(0)


class Spectral(nn.Module):
    """A layer of a Fourier neural operator."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(D, D, 3, dtype=torch.cfloat) / D)
        self.conv = nn.Conv1d(D, D, 1)

    def forward(self, h: Tensor) -> Tensor:
        frequencies = torch.fft.rfft(h)
        out = torch.zeros_like(frequencies)
        out[..., :3] = torch.einsum("bik,iok->bok", frequencies[..., :3], self.weight)
        return F.gelu(torch.fft.irfft(out, n=h.shape[-1]) + self.conv(h))


class Fno(nn.Module):
    """Lifted, four layers, projected."""

    def __init__(self) -> None:
        super().__init__()
        self.lift = nn.Conv1d(2, D, 1)
        self.blocks = nn.ModuleList(Spectral() for _ in range(4))
        self.project, self.head = nn.Conv1d(D, 2 * D, 1), nn.Linear(2 * D, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.lift(x.reshape(len(x), 2, 6))
        for block in self.blocks:
            h = block(h)
        return self.head(F.gelu(self.project(h)).mean(-1))


class Parallel(nn.Module):
    """A block whose memory is written down in one product, as the mLSTM's."""

    def __init__(self) -> None:
        super().__init__()
        self.ln, self.qkv, self.gate, self.out = (
            nn.LayerNorm(D),
            nn.Linear(D, 3 * D),
            nn.Linear(D, D),
            nn.Linear(D, D),
        )

    def forward(self, h: Tensor) -> Tensor:
        normed = self.ln(h)
        q, k, v = self.qkv(normed).chunk(3, -1)
        memory = (q @ k.mT).tril() @ v / 6
        return h + self.out(memory * torch.sigmoid(self.gate(normed)))


class Scanning(nn.Module):
    """A block with a cell that runs over the tokens, as the sLSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.ln, self.read, self.again = nn.LayerNorm(D), nn.Linear(D, 4 * D), nn.Linear(D, 4 * D)
        self.out = nn.Linear(D, D)

    def forward(self, h: Tensor) -> Tensor:
        gates = self.read(self.ln(h))
        hidden = cell = norm = h.new_zeros(len(h), D)
        left = []
        for step in gates.unbind(1):
            z, i, f, o = (step + self.again(hidden)).chunk(4, -1)
            cell = torch.sigmoid(f) * cell + torch.exp(i.clamp(max=3)) * torch.tanh(z)
            norm = torch.sigmoid(f) * norm + torch.exp(i.clamp(max=3))
            hidden = torch.sigmoid(o) * cell / norm
            left.append(hidden)
        return h + self.out(torch.stack(left, 1))


class WrittenScan(nn.Module):
    """A block with a scan that is written into one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.ln, self.read, self.out = nn.LayerNorm(D), nn.Linear(D, D), nn.Linear(D, D)
        self.decay = nn.Parameter(torch.rand(D))

    def forward(self, h: Tensor) -> Tensor:
        inputs = self.read(self.ln(h))
        left = torch.empty_like(inputs)
        state = torch.zeros_like(inputs[:, 0])
        for step in range(inputs.shape[1]):
            state = torch.sigmoid(self.decay) * state + inputs[:, step]
            left[:, step] = state
        return h + self.out(left)


class Complex(nn.Module):
    """States are complex; their sizes are read."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(INPUT, 2 * D), nn.Linear(D, CLASSES)
        self.blocks = nn.ModuleList(nn.Linear(D, D, dtype=torch.cfloat) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.view_as_complex(self.embed(x).reshape(len(x), D, 2))
        for block in self.blocks:
            h = h + block(h) / (1 + h.abs())
        return self.head(h.abs())


class OneBuffer(Chain):
    """Unlike blocks whose states are written into one tensor."""

    def forward(self, x: Tensor) -> Tensor:
        start = self.embed(x)
        path = start.new_empty(4, *start.shape)
        path[0] = start
        for number, block in enumerate(self.blocks):
            path[number + 1] = block(path[number])
        return self.head(self.ln(path[-1]))


class Ensemble(nn.Module):
    """Members of one architecture, run at once."""

    def __init__(self) -> None:
        super().__init__()
        self.template = [Chain()]
        for name, tensor in Chain().named_parameters():
            stacked = torch.stack([tensor.detach() + torch.randn_like(tensor) for _ in range(2)])
            self.register_parameter(name.replace(".", "_"), nn.Parameter(stacked))

    def forward(self, x: Tensor) -> Tensor:
        names = [name for name, _ in self.template[0].named_parameters()]
        weights = {name: getattr(self, name.replace(".", "_")) for name in names}

        def member(own: dict[str, Tensor]) -> Tensor:
            return torch.func.functional_call(self.template[0].to(x), own, (x,))

        return torch.vmap(member)(weights).mean(0)


class Plain(nn.Module):
    """Weights that are tensors in a list, and no parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.randn(INPUT, D), torch.randn(D, CLASSES)
        self.weights = [torch.randn(D, D) / 3 for _ in range(3)]

    def forward(self, x: Tensor) -> Tensor:
        h = x @ self.first.to(x)
        for weight in self.weights:
            h = h + torch.tanh(h @ weight.to(x))
        return h @ self.last.to(x)


class Periodic(Tokens):
    """TimesNet: the strongest period of the batch tells how tokens are folded."""

    def __init__(self) -> None:
        super().__init__([Whole() for _ in range(3)])
        self.convs = nn.ModuleList(nn.Conv2d(D, D, 3, padding=1) for _ in range(3))

    def hidden(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for conv in self.convs:
            strength = torch.fft.rfft(h, dim=1).abs().mean((0, 2))
            strength[0] = 0
            period = 6 // int(strength.argmax())
            folded = F.pad(h, (0, 0, 0, -6 % period)).reshape(len(h), -1, period, D)
            out = conv(folded.permute(0, 3, 1, 2)).permute(0, 2, 3, 1).reshape(len(h), -1, D)
            h = h + F.gelu(out[:, :6])
        return h


class Supervised(Maps):
    """Every stage has a head, and the logits are the sum of all."""

    def __init__(self) -> None:
        super().__init__(*(Conv(4, 4) for _ in range(3)))
        self.heads = nn.ModuleList(nn.Linear(4, CLASSES) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        h, logits = self.stem(x), torch.zeros(())
        for block, head in zip(self.blocks, self.heads, strict=True):
            h = block(h)
            logits = logits + head(h.mean((2, 3)))
        return logits


Loud = Sequence[Callable[[Any], nn.Module | Tensor]]
"""Which parts are multiplied, one in each network."""


def _outs(*numbers: int) -> Loud:
    return [lambda net, number=number: net.blocks[number].out for number in numbers]


def _parts() -> Loud:
    return [
        lambda net: net.blocks[0].mlp[2],
        lambda net: net.blocks[1].attn.out,
        lambda net: net.blocks[2].mlp[2],
    ]


def _accepted() -> list[tuple[str, Callable[[], nn.Module], Any, Stream, Loud]]:
    three, by_hand = row("blocks.{}", 3), Stream(by_hand=lambda net, x: net.states(x))
    flat, maps = vectors(INPUT), images(8, 1)
    norms: dict[str, Callable[[], Callable[[Tensor], Tensor]]] = {
        "a norm": lambda: nn.LayerNorm(D),
        "a norm that is a function": lambda: lambda h: F.normalize(h, dim=-1),
        "a norm by hand": lambda: rms,
    }
    made: list[tuple[str, Callable[[], nn.Module], Any, Stream, Loud]] = []
    for name, norm in norms.items():
        make = lambda norm=norm: NormBetween(norm())  # noqa: E731
        made.append((f"{name} between two blocks", make, flat, by_hand, _outs(0, 1, 3)))
    for name, head in HEADS.items():
        for normed in (False, True):
            make = lambda head=head, normed=normed: Headed(head, normed=normed)  # noqa: E731
            title = f"a head of {name}{' after a norm' if normed else ''}"
            made.append((title, make, flat, by_hand, _outs(0, 1, 2)))
    for number in (2, 3, 4):
        for dim in (0, 1):
            make = lambda number=number, dim=dim: Connections(number, dim)  # noqa: E731
            truth = Stream(by_hand=lambda net, x: net.states(x), batch_dim=1 - dim)
            title = f"{number} streams, {'first' if dim == 0 else 'second'} dimension"
            made.append((title, make, flat, truth, _outs(0, 1, 2)))
    for spikes in (False, True):
        make = lambda spikes=spikes: Silent(spikes=spikes)  # noqa: E731
        title = "branches that are silent" + (" or spike" if spikes else "")
        made.append((title, make, flat, by_hand, () if spikes else _outs(0, 1, 3)))
    for name, columns in (("two", 2), ("three", 3)):
        make = lambda columns=columns: Maps(*(Fractal(columns) for _ in range(3)))  # noqa: E731
        parts: Loud = [lambda net, n=n: net.blocks[n].short[0] for n in range(3)]
        made.append((f"fractals of {name} columns", make, maps, Stream(three), parts))
    sigs: Loud = [*_parts()[:2], lambda net: net.last.out]
    scans: Loud = _outs(0, 1, 3)
    halves: Loud = [lambda net, n=n: net.blocks[n].inner[n % 2].conv2 for n in range(3)]
    open_towers: Loud = [lambda net, n=n: net.blocks[n].layers[n % 2].mlp[2] for n in range(3)]
    made += [
        ("attention pools, and an MLP is added", Siglip, flat, by_hand, sigs),
        ("the first block normalises", lambda: Rwkv(1e-4), flat, by_hand, _parts()),
        ("no register tokens", Registers, flat, by_hand, _parts()),
        (
            "Fourier layers",
            Fno,
            flat,
            Stream(row("blocks.{}", 4)),
            [lambda net, n=n: net.blocks[n].conv for n in (0, 2, 3)],
        ),
        (
            "one block that scans",
            lambda: Tokens([Parallel(), Scanning(), Parallel(), Parallel()]),
            flat,
            Stream(row("blocks.{}", 4)),
            scans,
        ),
        (
            "scans that are written",
            lambda: Tokens([WrittenScan() for _ in range(3)]),
            flat,
            Stream(three),
            _outs(0, 1, 2),
        ),
        (
            "halves that pass residual blocks",
            lambda: Maps(*(Csp() for _ in range(3)), width=8, last=8),
            maps,
            Stream(three),
            halves,
        ),
        (
            "towers without a norm in repeated blocks",
            lambda: Maps(*(TowerBlock(normed=False) for _ in range(3)), width=8, last=8),
            maps,
            Stream(three),
            open_towers,
        ),
    ]
    return made


def _refused() -> list[tuple[str, Callable[[], nn.Module], Any, Refusal]]:
    flat, maps = vectors(INPUT), images(8, 1)
    depends = Refusal("which modules run depends on the weights", "depends on the weights")
    towers = Refusal("the norm hides what explodes in the tower", "updates of its own")
    return [
        ("blocks behind gates", Gated, flat, depends),
        ("an early exit", Leaving, flat, depends),
        (
            "towers in repeated blocks",
            lambda: Maps(*(TowerBlock(normed=True) for _ in range(3)), width=8, last=8),
            maps,
            towers,
        ),
        ("complex states", Complex, flat, Refusal("states are complex", "complex")),
        ("states in one buffer", OneBuffer, flat, Refusal("one tensor holds all", "one tensor")),
        ("members at once", Ensemble, flat, Refusal("vmap hides what runs", "vmap")),
        ("weights that are no parameters", Plain, flat, Refusal("no parameters", "no parameters")),
        ("periods of the batch", Periodic, flat, Refusal("samples interact", "samples interact")),
        ("a head after every stage", Supervised, maps, Refusal("several heads", AROUND)),
    ]


def newcomers() -> list[Member]:
    """All of them."""
    family = "newcomers"
    members = [Member(family, name, *parts) for name, *parts in _refused()]
    for name, make, inputs, truth, loud in _accepted():
        members.append(Member(family, name, make, inputs, truth, grows=False))
        for number, part in enumerate(loud, 1):
            louder = _louder(make, part)
            title = f"{name}, loud in place {number}"
            members.append(Member(family, title, louder, inputs, truth, grows=True))
    return members


def _louder(
    make: Callable[[], nn.Module], part: Callable[[Any], nn.Module | Tensor]
) -> Callable[[], nn.Module]:
    """The same network with one part times 1e4."""

    def changed() -> nn.Module:
        network = make()
        chosen = part(network)
        assert isinstance(chosen, nn.Module)
        with torch.no_grad():
            for parameter in chosen.parameters():
                parameter.mul_(LOUD)
        return network

    return changed
