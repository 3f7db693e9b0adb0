"""Chains of same-class blocks among the module calls of one forward pass."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor, nn


@dataclass(eq=False)
class Call:
    """One module call: which tensor entered it, which left it, and when it began and ended."""

    name: str
    module: nn.Module
    start: int
    _entered: Tensor | None
    end: int = -1
    left: Tensor | None = None
    container: str = ""
    siblings: tuple[str, ...] = field(default=(), repr=False)

    @property
    def entered(self) -> Tensor:
        """The tensor that entered; calls without one never become blocks."""
        assert self._entered is not None
        return self._entered

    @property
    def takes_tensor(self) -> bool:
        """Whether a tensor entered and a tensor left."""
        return self._entered is not None and self.left is not None

    @property
    def learns(self) -> bool:
        """Whether the module has parameters: an activation between two layers is no block."""
        return next(self.module.parameters(), None) is not None

    def resolved(self, model: nn.Module) -> Call:
        """This call with the ModuleList or Sequential that holds its module, if one does."""
        parent = self.name.rpartition(".")[0]
        holder = model.get_submodule(parent) if parent else model
        if isinstance(holder, (nn.ModuleList, nn.Sequential)):
            self.container = parent or "."
            self.siblings = tuple(f"{parent}.{name}" if parent else name for name, _ in holder.named_children())
        return self


@dataclass(frozen=True)
class Chain:
    """Blocks that run one after another, each with the siblings that belong to it (the ReLU behind a Linear)."""

    blocks: tuple[Call, ...]
    tails: tuple[tuple[Call, ...], ...] = ()

    @property
    def ends(self) -> tuple[Call, ...]:
        """The call that ends each block."""
        tails = self.tails or ((),) * len(self.blocks)
        return tuple((block, *tail)[-1] for block, tail in zip(self.blocks, tails, strict=True))

    @property
    def adds_itself(self) -> bool:
        """Whether what leaves the last block is h_L: so it is when what left the others entered their successors."""
        pairs = list(zip(self.ends, self.blocks[1:], strict=False))
        return bool(pairs) and all(before.left is after.entered for before, after in pairs)

    def pattern(self) -> str:
        """The chain as a stream SPEC."""
        containers = dict.fromkeys(block.container for block in self.blocks)
        whole = [name for name in containers for block in self.blocks if block.container == name]
        held = sum(len(next(b.siblings for b in self.blocks if b.container == name)) for name in containers)
        if len(whole) == held and all(containers):
            return ", ".join("*" if name == "." else f"{name}.*" for name in containers)
        return ", ".join(block.name for block in self.blocks)

    def describe(self) -> str:
        """The chain in words: blocks.0 … blocks.3, 4 × Block."""
        names = [block.name for block in self.blocks]
        shown = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"
        return f"{shown}, {len(names)} × {type(self.blocks[0].module).__name__}"


def candidate_chains(calls: Sequence[Call]) -> list[Chain]:
    """The chains of two or more blocks, outermost only, longest first."""
    held = [call for call in calls if call.container and call.takes_tensor and call.entered.ndim > 1 and call.learns]
    chains = [chain for chain in _chains(held, calls) if len(chain.blocks) > 1]
    outer = [chain for chain in chains if not any(_inside(chain, other) for other in chains if other is not chain)]
    return sorted(outer, key=lambda chain: -len(chain.blocks))


def module_after(chain: Chain, calls: Sequence[Call]) -> Call | None:
    """The first module to begin after the chain ended and to take a tensor of the stream's shape."""
    last = chain.blocks[-1]
    for call in calls:
        if call.start > last.end and call.takes_tensor:
            return call if call.entered.shape == last.entered.shape else None
    return None


def _chains(held: Sequence[Call], calls: Sequence[Call]) -> list[Chain]:
    chains: list[Chain] = []
    for kind in dict.fromkeys(type(call.module) for call in held):
        run: list[Call] = []
        for call in [call for call in held if type(call.module) is kind]:
            if run and not _follows(run[-1], call):
                chains += _trimmed(run, calls)
                run = []
            run.append(call)
        chains += _trimmed(run, calls)
    return chains


def _follows(before: Call, after: Call) -> bool:
    """Whether one block runs right after another: its output enters it, or both stand in one container in that order."""
    return after.start > before.end and (before.left is after.entered or before.container == after.container)


def _trimmed(run: list[Call], calls: Sequence[Call]) -> list[Chain]:
    """The run as a chain; of plain torch layers only what keeps the stream's shape, so neither embedding nor head."""
    if not run or not type(run[0].module).__module__.startswith("torch.nn"):
        return [Chain(tuple(run))]
    tails = [_between(before, after, calls) for before, after in itertools.pairwise(run)]
    tails.append(_like(tails[-1], run[-1], calls) if tails else ())
    chains = []
    for keeps_shape, units in itertools.groupby(zip(run, tails, strict=True), key=_keeps_shape):
        if keeps_shape:
            blocks, ends = zip(*units, strict=True)
            chains.append(Chain(blocks, ends))
    return chains


def _keeps_shape(unit: tuple[Call, tuple[Call, ...]]) -> bool:
    block, tail = unit
    left = (block, *tail)[-1].left
    return left is not None and left.shape == block.entered.shape


def _like(tail: tuple[Call, ...], last: Call, calls: Sequence[Call]) -> tuple[Call, ...]:
    """The siblings behind the last block, if they are of the same classes as those behind the one before it."""
    behind = [call for call in calls if call.start > last.end and call.container == last.container][: len(tail)]
    same = [type(call.module) for call in behind] == [type(call.module) for call in tail]
    return tuple(behind) if same else ()


def _between(before: Call, after: Call, calls: Sequence[Call]) -> tuple[Call, ...]:
    return tuple(
        call for call in calls if before.end < call.start < call.end < after.start and call.container == before.container
    )


def _inside(chain: Chain, other: Chain) -> bool:
    return any(block.start > outer.start and block.end < outer.end for outer in other.blocks for block in chain.blocks)
