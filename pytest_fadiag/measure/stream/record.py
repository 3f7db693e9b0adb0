"""A stream as a report names it, from the forward pass in which it was found."""

from __future__ import annotations

from collections.abc import Sequence

from ...judge.stream import ResidualStream
from ..accumulators import norm_size
from .blocks import Anatomy, Block
from .choice import Choice
from .tape import Node


def recorded(
    anatomy: Anatomy, choice: Choice, states: Sequence[Node], tokens: Sequence[bool], named: str = ""
) -> ResidualStream:
    """The names of the blocks, what h_L goes to, and how much of the network they leave out."""
    tape = anatomy.tape
    return ResidualStream(
        tuple(block.name for block in choice.blocks),
        anatomy.residual,
        _behind(anatomy, states[-1]),
        _outside(anatomy, choice.blocks),
        tuple(norm_size(of_one_sample(state.shape, tape.batch), tokens=own) for state, own in zip(states, tokens, strict=True)),
        named,
        choice.alternatives,
    )


def of_one_sample(shape: tuple[int, ...], batch: int) -> tuple[int, ...]:
    """The shape of a state without the dimension that counts the samples."""
    where = shape.index(batch)
    return shape[:where] + shape[where + 1 :]


def _behind(anatomy: Anatomy, last: Node) -> str:
    """The first module that runs on something that the logits depend on, once h_L is there."""
    useful = set(anatomy.graph.useful)
    for call in anatomy.tape.calls:
        if call.start > last.made and any(node in useful and node >= last.index for node in call.inputs):
            return call.name
    return ""


def _outside(anatomy: Anatomy, blocks: Sequence[Block]) -> float | None:
    """The share of the parameters that no block reads; one that nothing reads, as of feedback, lies where its module does."""
    sizes, elsewhere = anatomy.tape.sizes, anatomy.parameters_outside(blocks)
    inside = frozenset[str]().union(*(block.parameters for block in blocks))
    modules = {name.rpartition(".")[0] for name in inside - elsewhere} | {block.name for block in blocks}
    with_them = [name for name in sizes if name in inside or (name not in elsewhere and modules & _around(name))]
    total = sum(sizes.values())
    return 1 - sum(sizes[name] for name in with_them) / total if total else None


def _around(name: str) -> set[str]:
    """The modules that a parameter lies in, but for the network itself."""
    parts = name.split(".")[:-1]
    return {".".join(parts[:end]) for end in range(1, len(parts) + 1)}
