"""Which blocks make the stream: those that were found, or those that the user names, if they leave none out."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from ...judge.errors import AuditError
from .blocks import Anatomy, Block, common_prefix
from .graph import Segment
from .specs import Spec, shortest
from .tape import Call


@dataclass(frozen=True)
class Choice:
    """The blocks of a stream, the value that is h_L where it was named, and what else they could have been."""

    blocks: tuple[Block, ...]
    last: int | None = None
    alternatives: tuple[str, ...] = ()


def found(anatomy: Anatomy) -> Choice:
    """The blocks as they are found; an error where some stretch can be no block."""
    blocks = tuple(anatomy.blocks)
    _check_inside(anatomy)
    if not blocks:
        raise AuditError(
            "the network has no blocks: nothing adds to a state between its first layer with weights and its last, and no "
            f"layer lies between the two. Modules that ran: {_ran(anatomy)}"
        )
    return Choice(blocks, alternatives=tuple(anatomy.stacks))


def _check_inside(anatomy: Anatomy) -> None:
    """An error where blocks lie inside a stretch that is taken for one, and something goes on beside them."""
    for block in anatomy.blocks:
        if anatomy.holds_others(block):
            raise beside(anatomy, block, anatomy.blocks)
    for stretch in anatomy.stretches():
        raise beside(anatomy, stretch, [stretch])


def named(anatomy: Anatomy, model: nn.Module, spec: Spec) -> Choice:
    """The blocks that a SPEC names; an error where they are none, or leave some out."""
    if len(anatomy.blocks) <= 1 or any(True for _ in anatomy.stretches()):
        _check_inside(anatomy)  # with other blocks around it, a stretch may be named as one; alone it is no stream
    calls = _calls(anatomy, model, spec, spec.blocks)
    blocks: dict[tuple[int, int], Block] = {}
    for call in calls:
        own = _blocks_of(anatomy, call)
        if not own:
            raise AuditError(
                f"stream {spec.text!r}: {call.name!r} adds nothing to the stream. The blocks of this network: "
                f"--fa-stream='{full_spec(anatomy)}'"
            )
        for block in own:
            key = (block.start, block.end)
            blocks[key] = blocks.get(key, block)
    chosen = tuple(sorted(blocks.values(), key=lambda block: block.start))
    _check_cover(anatomy, chosen, f"stream {spec.text!r}")
    if not spec.behind:
        return Choice(chosen)
    takers = [call for call in _calls(anatomy, model, spec, spec.behind) if _entering(anatomy, call) >= chosen[-1].end]
    if not takers:
        raise AuditError(f"stream {spec.text!r}: {spec.behind!r} does not run after the last block, {chosen[-1].name!r}")
    return Choice(chosen, _entering(anatomy, takers[0]))


def between(anatomy: Anatomy, states: Sequence[int]) -> Choice | None:
    """The blocks between some states, or nothing where they leave one out or are no states."""
    position = anatomy.graph.position
    if len(states) < 2 or any(state not in position for state in states) or sorted(set(states)) != list(states):
        return None
    blocks = []
    for start, end in itertools.pairwise(states):
        inside = [block for block in anatomy.blocks if start <= block.start and block.end <= end]
        names = [block.name for block in inside]
        parameters = anatomy.parameters_between(start, end)
        segments = tuple(segment for block in inside for segment in block.segments)
        blocks.append(Block(names[0] if len(names) == 1 else common_prefix(names), start, end, parameters, segments))
    try:
        _check_inside(anatomy)
        _check_cover(anatomy, blocks, "the states that return_hidden=True gives")
    except AuditError:
        return None
    return Choice(tuple(blocks), states[-1])


def full_spec(anatomy: Anatomy, blocks: Sequence[Block] | None = None) -> str:
    """The SPEC that names every block."""
    names = [block.name for block in (anatomy.blocks if blocks is None else blocks)]
    return shortest(list(dict.fromkeys(names)), {call.name for call in anatomy.tape.calls if call.inputs})


def beside(anatomy: Anatomy, block: Block, blocks: Sequence[Block]) -> AuditError:
    """Why a stretch is no block: blocks lie inside it, and something goes on beside them."""
    inner = anatomy.nested(block)
    names = list(dict.fromkeys(anatomy.maker(index) for index in inner))
    source, target = anatomy.bypass(block, inner[0])
    listed = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    text = (
        f"this network has no stream that the audit could follow: between {anatomy.maker(block.start)} and "
        f"{anatomy.maker(block.end)} no tensor carries all that the logits depend on. Beside the residual sums in {listed}, "
        f"what {anatomy.maker(source)} returns goes on to {anatomy.maker(target)} (a second tower, a residual or a condition "
        "carried beside the blocks)"
    )
    others = [other for other in blocks if other is not block]
    if not others:
        return AuditError(f"{text}. No --fa-stream passes the test for this network")
    spec = full_spec(anatomy, blocks)
    return AuditError(f"{text}.\nTo take all of this for one block: --fa-stream='{spec}'")


def _blocks_of(anatomy: Anatomy, call: Call) -> list[Block]:
    """The block that a module call is, or the segments in which it computes something."""
    span = next((span for span in anatomy.spans if span.call is call), None)
    whole = [s for s in anatomy.additive if span is not None and span.holds(s.start, s.end)]
    if span is not None and (whole or not anatomy.residual):
        parameters = anatomy.parameters_between(span.start, span.end)
        return [Block(call.name, span.start, span.end, parameters, tuple(whole), call.index)]
    return [
        Block(call.name, segment.start, segment.end, segment.parameters, (segment,))
        for segment in anatomy.additive
        if any(anatomy.made_in(index, call.index) for index in (*segment.inner, segment.end))
    ]


def _check_cover(anatomy: Anatomy, blocks: Sequence[Block], what: str) -> None:
    """An error where some blocks of the network are in none of these, or several in one."""
    full = full_spec(anatomy)
    if not blocks:
        raise AuditError(f"{what}: none of these modules adds to the stream. The blocks of this network: --fa-stream='{full}'")
    missing = [segment for segment in anatomy.additive if not any(_holds(block, segment) for block in blocks)]
    if anatomy.residual and missing:
        names = list(dict.fromkeys(anatomy.block_of(segment).name for segment in missing))
        shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
        raise AuditError(f"{what} leaves out blocks that add to the stream: {shown}. All of them: --fa-stream='{full}'")
    overlapping = [after for before, after in itertools.pairwise(blocks) if after.start < before.end]
    if overlapping:
        raise AuditError(f"{what} names {overlapping[0].name!r} inside another block. The blocks: --fa-stream='{full}'")
    inside = [[own for own in anatomy.blocks if block.start <= own.start and own.end <= block.end] for block in blocks]
    kinds = {tuple(anatomy.kind(own) for own in several) for several in inside if len(several) > 1}
    if (
        anatomy.residual
        and kinds
        and (len(kinds) > 1 or any(len(set(kind)) < len(kind) for kind in kinds) or any(len(own) == 1 for own in inside))
    ):
        lump = next(block for block, several in zip(blocks, inside, strict=True) if len(several) > 1)
        raise AuditError(f"{what} takes several blocks for one at {lump.name!r}. All of them: --fa-stream='{full}'")
    head = anatomy.items[-1]
    if any(block.end > head[0] for block in blocks):
        raise AuditError(
            f"{what} takes the head for a block: the logits are no state. The blocks of this network: --fa-stream='{full}'"
        )


def _holds(block: Block, segment: Segment) -> bool:
    return block.start <= segment.start and segment.end <= block.end


def _calls(anatomy: Anatomy, model: nn.Module, spec: Spec, patterns: str) -> list[Call]:
    """The calls of the modules that a pattern names, in the order in which they ran."""
    modules = spec.modules(model, patterns)
    chosen = set(modules.values())
    calls = [call for call in anatomy.tape.calls if call.module in chosen and call.inputs and call.outputs]
    if not calls:
        raise AuditError(f"stream {spec.text!r}: {patterns!r} matches {', '.join(modules)}, but none of them ran on a tensor")
    return calls


def _entering(anatomy: Anatomy, call: Call) -> int:
    return next((node for node in call.inputs if node in anatomy.graph.position), -1)


def _ran(anatomy: Anatomy, most: int = 12) -> str:
    shown = [f"{call.name} ({type(call.module).__name__})" for call in anatomy.tape.calls if call.name]
    return ", ".join(shown[:most]) + (f" and {len(shown) - most} more" if len(shown) > most else "") if shown else "none"
