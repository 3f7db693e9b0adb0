"""Networks by hand that return, take or carry something unusual, or have no stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .member import CLASSES, SAMPLES, Inputs, Member, Refusal, Stream, row, vectors
from .parts import INPUT, Branch, Chain, D, Whole

THREE = row("blocks.{}", 3)
NO_STREAM = "no single stream"


@dataclass
class Answer:
    """What some libraries return."""

    logits: Tensor
    hidden: Tensor


class Answers(Chain):
    """Returns what a function makes of logits and features."""

    def __init__(self, answer: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, x: Tensor) -> Any:
        h = self.ln(self.hidden(x))
        return self.answer(self.head(h), h)


class Carried(Chain):
    """Branch and state are handed on side by side, and added in the next block, as in Mamba."""

    def __init__(self) -> None:
        super().__init__([_Carries() for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        branch, state = self.embed(x), None
        for block in self.blocks:
            branch, state = block(branch, state)
        return self.head(self.ln(branch + state))


class _Carries(Branch):
    def forward(self, branch: Tensor, state: Tensor | None) -> Any:  # type: ignore[override]
        state = branch if state is None else branch + state
        return super().forward(state), state


class Conditioned(Chain):
    """Every block gets a condition that comes from the input beside the stream."""

    def __init__(self) -> None:
        super().__init__([_Conditional() for _ in range(3)])
        self.cond = nn.Linear(INPUT, D)

    def forward(self, x: Tensor) -> Tensor:
        cond, h = self.cond(x), self.embed(x)
        for block in self.blocks:
            h = block(cond, h)
        return self.head(self.ln(h))


class _Conditional(Whole):
    def forward(self, cond: Tensor, h: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(h) + torch.tanh(cond)


class Towers(nn.Module):
    """Two towers of residual blocks, added at the end."""

    def __init__(self, one: int = 6, other: int = 4) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(INPUT, D), nn.Linear(INPUT, D)
        self.left, self.right = (
            nn.Sequential(*(Whole() for _ in range(number))) for number in (one, other)
        )
        self.head = nn.Linear(D, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.left(self.a(x)) + self.right(self.b(x)))


class LongSkip(Chain):
    """The embedding is added again behind the last block, as in a U-Net."""

    def forward(self, x: Tensor) -> Tensor:
        h = first = self.embed(x)
        for block in self.blocks:
            h = block(h)
        return self.head(self.ln(h + first))


class Folded(Chain):
    """Samples and tokens are one dimension in the blocks."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.hidden(x.reshape(len(x) * 6, 2))
        return self.head(self.ln(h).reshape(len(x), 6, D).mean(1))


class Masked(Chain):
    """Takes named tensors, one of which says which tokens there are."""

    def __init__(self) -> None:
        super().__init__(embed=nn.Embedding(50, D))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:  # type: ignore[override]
        h = self.ln(self.hidden(input_ids)) * attention_mask[:, :, None]
        return self.head(h.sum(1) / attention_mask.sum(1, keepdim=True))


class Reversible(Whole):
    """Two halves of a state, each of which adds to the other."""

    def __init__(self) -> None:
        super().__init__()
        self.f, self.g = Branch(D // 2), Branch(D // 2)

    def forward(self, h: Tensor) -> Tensor:
        one, other = h.chunk(2, -1)
        one = one + self.f(other)
        return torch.cat([one, other + self.g(one)], -1)


def oddities() -> list[Member]:
    """All of them."""
    return [*_answers(), *_carried(), *_refused()]


def _net(
    name: str, make: Callable[[], nn.Module], truth: Stream | Refusal, named: str | None = None
) -> Member:
    return Member("by hand", name, make, vectors(INPUT), truth, named)


def _answers() -> list[Member]:
    right = Stream(THREE)
    softmax = Refusal("probabilities are no logits", "softmax|probabilit")
    return [
        _net("features beside the logits", lambda: Answers(lambda logits, h: (h, logits)), right),
        _net("logits beside features", lambda: Answers(lambda logits, h: (logits, h)), right),
        _net(
            "logits under a key",
            lambda: Answers(lambda logits, h: {"features": h, "logits": logits}),
            right,
        ),
        _net("logits in a dataclass", lambda: Answers(Answer), right),
        _net("log-softmax", lambda: Answers(lambda logits, h: logits.log_softmax(-1)), right),
        _net("softmax", lambda: Answers(lambda logits, h: logits.softmax(-1)), softmax),
    ]


def _sentences() -> dict[str, Tensor]:
    return {
        "input_ids": torch.randint(0, 50, (SAMPLES, 6)),
        "attention_mask": torch.ones(SAMPLES, 6, dtype=torch.long),
    }


def _by_hand(net: Any, x: Inputs) -> tuple[Tensor, list[Tensor]]:
    states = [net.embed(x)]
    for block in net.blocks:
        states.append(states[-1] + Branch.forward(block, states[-1]))
    return net.head(net.ln(states[-1])), states


def _layers(net: Any, x: Inputs) -> tuple[Tensor, list[Tensor]]:
    first = torch.relu(net[0](x))
    second = torch.relu(net[2](first))
    return net[4](second), [first, second]


def _mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(INPUT, D), nn.ReLU(), nn.Linear(D, D), nn.ReLU(), nn.Linear(D, CLASSES)
    )


def _carried() -> list[Member]:
    return [
        _net("branch and state handed on side by side", Carried, Stream(by_hand=_by_hand)),
        _net(
            "two halves that add to each other",
            lambda: Chain([Reversible() for _ in range(3)]),
            Stream(THREE),
        ),
        _net("a plain MLP, whose logits are no state", _mlp, Stream(by_hand=_layers)),
        _net("in a wrapper", lambda: nn.DataParallel(Chain()), Stream(row("module.blocks.{}", 3))),
        Member("by hand", "named tensors with a mask", Masked, _sentences, Stream(THREE)),
    ]


class _Noisy(Chain):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + torch.rand_like(x))


class _Interacting(Chain):
    def forward(self, x: Tensor) -> Tensor:
        h = self.hidden(x)
        return self.head(self.ln(h) - h.mean(0))


def _refused() -> list[Member]:
    tower = Refusal("there are two towers", NO_STREAM)
    condition = Refusal("a condition is carried beside the blocks", NO_STREAM)
    return [
        _net("towers of six and four blocks", Towers, tower),
        _net(
            "two towers, one of them named",
            Towers,
            Refusal("there are two towers", f"{NO_STREAM}|leaves out"),
            "left.*",
        ),
        _net("a condition beside the blocks", Conditioned, condition),
        _net(
            "a condition beside the blocks, which are named",
            Conditioned,
            condition,
            "blocks.* -> ln",
        ),
        _net(
            "the embedding added again at the end",
            LongSkip,
            Refusal("it goes on beside all blocks", NO_STREAM),
        ),
        _net(
            "samples and tokens in one dimension",
            lambda: Folded(embed=nn.Linear(2, D)),
            Refusal("a state is of several samples", "folded into one dimension"),
        ),
        _net("a random forward", _Noisy, Refusal("no two passes agree", "the forward is random")),
        _net(
            "samples that interact",
            _Interacting,
            Refusal("a sample has no logits of its own", "samples interact"),
        ),
        _net(
            "a single layer",
            lambda: nn.Linear(INPUT, CLASSES),
            Refusal("there is nothing between first and last", "no blocks"),
        ),
        _net(
            "scripted",
            lambda: torch.jit.script(Scripted()),
            Refusal("TorchScript shows no states", "TorchScript|script"),
        ),
        _net("a chain that leaves blocks out", Chain, Stream(THREE), "blocks.0"),
        _net(
            "h_L named behind a norm that is a function",
            lambda: _Behind([Branch() for _ in range(3)], lambda net, block, h: h + block(h)),
            Refusal("what enters the head is normalised", "which is part of the head"),
            "blocks.* -> head",
        ),
        _net(
            "h_L named behind a mean over tokens",
            lambda: _Pooled(
                [Branch() for _ in range(3)],
                lambda net, block, h: h + block(h),
                embed=nn.Linear(2, D),
            ),
            Refusal("what enters the head is pooled", "which is part of the head"),
            "blocks.* -> head",
        ),
    ]


class _Behind(Chain):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(nn.functional.layer_norm(self.hidden(x), (D,)))


class _Pooled(Chain):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.hidden(x.reshape(len(x), 6, 2)).mean(1))


class Scripted(nn.Module):
    """Simple enough for TorchScript."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(INPUT, D), nn.Linear(D, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)))
