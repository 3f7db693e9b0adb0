"""Chains of same-class blocks among the module calls of one forward pass, and where the last of their states can be seen."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

End = Literal["input", "output"]

AUXILIARY = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.PReLU)
"""Layers with weights that belong to a block beside them and are none themselves."""


@dataclass(frozen=True, eq=False)
class TensorVersion:
    """A tensor as it was at one moment: a later write in place makes the same object another value."""

    tensor: Tensor
    version: int

    @classmethod
    def of(cls, tensor: Tensor) -> TensorVersion:
        """The tensor as it is now."""
        return cls(tensor, _version(tensor))

    def same(self, other: TensorVersion | None) -> bool:
        """Whether both show one tensor with one value."""
        return other is not None and self.tensor is other.tensor and self.version == other.version

    @property
    def overwritten(self) -> bool:
        """Whether the tensor has been written to since."""
        return _version(self.tensor) != self.version


@dataclass(eq=False)
class Call:
    """One module call: which tensors entered it, which left it, and when it began and ended."""

    name: str
    module: nn.Module
    start: int
    inputs: tuple[TensorVersion, ...]
    number: int = 0
    """How many calls of the same module came before it in this forward pass."""
    end: int = -1
    output: TensorVersion | None = None
    container: str = ""
    siblings: tuple[str, ...] = field(default=(), repr=False)

    @property
    def input_tensor(self) -> Tensor:
        """The tensor that entered first; calls without one never become blocks."""
        return self.inputs[0].tensor

    @property
    def takes_tensor(self) -> bool:
        """Whether a tensor entered and a tensor left."""
        return bool(self.inputs) and self.output is not None

    @property
    def has_parameters(self) -> bool:
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
    """Blocks that run one after another."""

    blocks: tuple[Call, ...]

    def pattern(self) -> str:
        """The chain as a stream SPEC."""
        names = list(dict.fromkeys(block.name for block in self.blocks))
        containers = {block.container: block.siblings for block in self.blocks}
        if all(containers) and len(names) == sum(map(len, containers.values())):
            return ", ".join("*" if name == "." else f"{name}.*" for name in containers)
        return ", ".join(names)

    def describe(self) -> str:
        """The chain in words: blocks.0 … blocks.3, 4 × Block."""
        names = [block.name for block in self.blocks]
        shown = names[0] if len(set(names)) == 1 else f"{names[0]} … {names[-1]}"
        return f"{shown}, {len(names)} × {type(self.blocks[0].module).__name__}"


def candidate_chains(calls: Sequence[Call]) -> list[Chain]:
    """The chains of two or more blocks, outermost only, longest first."""
    contained = [
        call
        for call in calls
        if call.container
        and call.takes_tensor
        and call.input_tensor.ndim > 1
        and call.has_parameters
        and not isinstance(call.module, AUXILIARY)
    ]
    chains = [chain for chain in _chains(contained, calls) if len(chain.blocks) > 1]
    outer = [chain for chain in chains if not any(_inside(chain, other) for other in chains if other is not chain)]
    return sorted(outer, key=lambda chain: -len(chain.blocks))


def last_state(chain: Chain, calls: Sequence[Call]) -> tuple[Call, End] | None:
    """The end of a module at which h_L is seen, or ``None`` where no module sees it.

    The steps between two blocks tell how a state becomes the next. Where modules alone lead from one to the other, as when the
    block adds the residual itself, h_L is what leaves the last block and the modules that belong to it. Where an operator
    stands between them, as in ``h = h + drop(block(h))``, h_L is what enters the first module behind those.
    """
    last = chain.blocks[-1]
    pairs = [(before, after, between(before, after, calls)) for before, after in itertools.pairwise(chain.blocks)]
    if not pairs:
        return _last_state_of_one(last, calls)
    with_operator = [pair for pair in pairs if _index_of_maker(*pair) is None]
    if not with_operator:
        steps, end = pairs[-1][2], _index_of_maker(*pairs[-1])
        unit = (last, *(_same_steps_behind(steps, last, calls) or ()))
        return unit[end if end is not None and end < len(unit) else 0], "output"
    adds_residual = all(_is_sum(before, after.inputs[0], steps) for before, after, steps in with_operator)
    unit = (last, *(_same_steps_behind(with_operator[-1][2], last, calls) or ()))
    following = _next_call(unit[-1], calls)
    if following is not None and not _receives_from(following, unit) and not following.inputs[0].same(last.inputs[0]):
        same_shape = following.input_tensor.shape == last.input_tensor.shape
        fits = same_shape and (not adds_residual or _is_sum(last, following.inputs[0], unit[1:]))
        return (following, "input") if fits else None
    return None if adds_residual else (unit[-1], "output")


def between(before: Call, after: Call, calls: Sequence[Call]) -> tuple[Call, ...]:
    """The modules that ran between two calls, without those inside them."""
    return _outermost(call for call in calls if before.end < call.start and -1 < call.end < after.start)


def _last_state_of_one(block: Call, calls: Sequence[Call]) -> tuple[Call, End] | None:
    """h_L of a single block: the sum with what entered it where a module takes that, else its own output."""
    steps = _outermost(call for call in calls if call.start > block.end and call.takes_tensor)
    for index, call in enumerate(steps):
        if not _receives_from(call, (block, *steps[:index])) and call.input_tensor.shape == block.input_tensor.shape:
            return (call, "input") if _is_sum(block, call.inputs[0], steps[:index]) else None
    return (block, "output") if steps and _receives_from(steps[0], (block,)) else None


def _index_of_maker(before: Call, after: Call, steps: Sequence[Call]) -> int | None:
    """Which of a block and the steps behind it made the next block's input, if modules alone lead there."""
    descendants = [before]
    for step in steps:
        if any(_receives_from(step, (maker,)) for maker in descendants):
            descendants.append(step)
    makers = [index for index, call in enumerate((before, *steps)) if call in descendants and _receives_from(after, (call,))]
    return makers[-1] if makers else None


def _receives_from(call: Call, makers: Sequence[Call]) -> bool:
    """Whether one of the makers returned a tensor that entered this call."""
    return any(seen.same(maker.output) for maker in makers for seen in call.inputs)


def _is_sum(block: Call, state: TensorVersion, steps: Sequence[Call]) -> bool:
    """Whether a state is what entered the block plus what left it, or left one of the steps behind it."""
    if block.inputs[0].overwritten or state.overwritten or block.input_tensor.shape != state.tensor.shape:
        return False
    branches = [call.output.tensor for call in (block, *steps) if call.output is not None]
    same_shape = (branch for branch in branches if branch.shape == state.tensor.shape)
    return any(torch.allclose(block.input_tensor + branch, state.tensor, equal_nan=True) for branch in same_shape)


def _same_steps_behind(steps: Sequence[Call], last: Call, calls: Sequence[Call]) -> tuple[Call, ...] | None:
    """The modules behind the last block, if they are of the same classes as those behind the one before it."""
    behind = _outermost(call for call in calls if call.start > last.end)[: len(steps)]
    same = [type(call.module) for call in behind] == [type(call.module) for call in steps]
    return behind if same else None


def _next_call(call: Call, calls: Sequence[Call]) -> Call | None:
    return next((other for other in calls if other.start > call.end and other.takes_tensor), None)


def _outermost(calls: Iterable[Call]) -> tuple[Call, ...]:
    kept: list[Call] = []
    for call in calls:
        if not kept or call.start > kept[-1].end:
            kept.append(call)
    return tuple(kept)


def _chains(contained: Sequence[Call], calls: Sequence[Call]) -> list[Chain]:
    chains: list[Chain] = []
    for kind in dict.fromkeys(type(call.module) for call in contained):
        run: list[Call] = []
        for call in [call for call in contained if type(call.module) is kind]:
            if run and not _follows(run[-1], call):
                chains += _trimmed(run, calls)
                run = []
            run.append(call)
        chains += _trimmed(run, calls)
    return chains


def _follows(before: Call, after: Call) -> bool:
    """Whether one block runs right after another: its output enters it, or both stand in one container in that order.

    Two that take the very same tensor are branches side by side, such as the experts of a mixture.
    """
    if after.start <= before.end or after.inputs[0].same(before.inputs[0]):
        return False
    return after.inputs[0].same(before.output) or before.container == after.container


def _trimmed(run: list[Call], calls: Sequence[Call]) -> list[Chain]:
    """The run as a chain; of plain torch layers only what keeps the stream's shape, so neither embedding nor head."""
    if not run or not type(run[0].module).__module__.startswith("torch.nn"):
        return [Chain(tuple(run))]
    layer = isinstance(run[-1].module, (nn.Linear, nn.modules.conv._ConvNd))
    if layer and not any(call.has_parameters and call.start > run[-1].end for call in calls):
        run = run[:-1]  # the last layer with weights is the head, whatever its width
    steps = [between(before, after, calls) for before, after in itertools.pairwise(run)]
    steps += [_same_steps_behind(steps[-1], run[-1], calls) or ()] if steps else [()] * len(run)
    grouped = itertools.groupby(zip(run, steps, strict=True), key=_keeps_shape)
    return [Chain(tuple(block for block, _ in units)) for keeps_shape, units in grouped if keeps_shape]


def _keeps_shape(unit: tuple[Call, tuple[Call, ...]]) -> bool:
    block, steps = unit
    output = (block, *steps)[-1].output
    return output is not None and output.tensor.shape == block.input_tensor.shape


def _inside(chain: Chain, other: Chain) -> bool:
    return any(block.start > outer.start and block.end < outer.end for outer in other.blocks for block in chain.blocks)


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else int(tensor._version)
