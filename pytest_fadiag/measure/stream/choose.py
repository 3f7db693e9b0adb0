"""Which blocks and states make the stream: those found, or those that the user names."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, takewhile

from ...judge.errors import AuditError
from ...judge.words import and_more
from .graph import LINEAR, LOOKUPS, PRODUCTS, REARRANGEMENTS, Block, Graph, Segment, Stretch
from .sites import Site
from .tape import Call, Node

State = tuple[Node, Site]
LEAST_COVERED = 0.2
"""The least share of the weights between embedding and head that the whole stream holds."""
MANY = 3
"""So many runs of the same weights are steps in time, where they are not blocks in depth."""


def find_blocks(graph: Graph) -> list[Block]:
    """What adds to the stream, or the layers of a network without residual connections.

    Several in one module are one block where that module is a block itself, and not a stack.
    """
    segments = graph.additive
    blocks = [_alone(graph, segment) for segment in segments]
    if not segments:
        # All layers but the first and the last; paths side by side go with their module.
        items = graph.items[1:-1] or _hidden_layer(graph)
        segments = [item for item in items if isinstance(item, Segment)]
        blocks = [_layer(graph, item) for item in items]
    owners = dict.fromkeys(span for segment in segments for span in graph.around(segment)[-1:])
    kinds = Counter(owner.kind for owner in owners)
    for owner in sorted(owners, key=lambda own: own.end - own.start):
        inside = [block for block in blocks if owner.holds(block)]
        names = [block.name.removeprefix(f"{owner.name}.").split(".") for block in inside]
        numbered = any(part.isdigit() for name in names for part in name)
        several = kinds[owner.kind] > 1
        # All unlike: one block, unless it is the only one of its class and embeds first.
        unlike = len({block.kind for block in inside}) == len(inside)
        embeds = any(map(graph.is_layer, graph.between(owner.start, inside[0].start)))
        if (several and (unlike or not numbered)) or (unlike and (len(inside) == 1 or not embeds)):
            blocks = [*(block for block in blocks if block not in inside), owner]
    blocks.sort(key=lambda block: block.start)
    alike = [block for block in blocks if block.kind == blocks[0].kind]
    if len(alike) == 1 and _is_embedding(graph, blocks[0], blocks[1:]):
        blocks = blocks[1:]
    _refuse_bypass(graph, blocks)
    _refuse_repeats(graph, blocks)
    return blocks


def _hidden_layer(graph: Graph) -> list[Stretch]:
    """The only layer before the last; not where it is an embedding that is normalised and read."""
    if len(graph.items) != 2 or graph.nodes[graph.items[0].end].op not in PRODUCTS:
        return []
    first, head = graph.items
    ops = {graph.nodes[cut].op for cut in graph.between(first.end, head.start)}
    activated = any(op not in LINEAR and "norm" not in op for op in ops)
    return [first] if activated or not any("norm" in op for op in ops) else []


def _alone(graph: Graph, segment: Segment) -> Block:
    """A segment as a block: it begins where its modules do, and is named after the largest."""
    before = max((other.end for other in graph.segments if other.end <= segment.start), default=0)
    parts = graph.parts(segment)
    cuts = {*graph.between(before - 1, segment.start)}
    entering = [cut for call in parts for cut in cuts.intersection(call.inputs)]
    name = _largest(graph, segment, [call.name for call in parts])
    kind = tuple(map(graph.class_of, parts))
    return Block(min([segment.start, *entering]), segment.end, name, kind)


def _layer(graph: Graph, item: Stretch) -> Block:
    """A layer as a block: the outermost module that holds no other layer, where there is one."""
    for span in graph.around(item):
        if sum(span.holds(other) for other in graph.items) == 1:
            return span
    return Block(item.start, item.end, _largest(graph, item, []))


def _largest(graph: Graph, stretch: Stretch, names: list[str]) -> str:
    """Which of some modules holds most of what is read, else what its parameters are called."""
    read = sorted(graph.parameters(stretch))

    def size(name: str) -> int:
        return sum(graph.tape.sizes[own] for own in read if f"{own}.".startswith(f"{name}."))

    parts = zip(*(own.split(".") for own in read), strict=False)
    common = ".".join(part[0] for part in takewhile(lambda part: len({*part}) == 1, parts))
    return max(names or [common or "".join(read[:1])], key=size)


def _refuse_bypass(graph: Graph, blocks: list[Block]) -> None:
    """Refuse a stretch that is the only one of its kind and holds several updates."""
    outside = [
        _alone(graph, segment)
        for segment in graph.segments
        if not any(block.holds(segment) for block in blocks)
        and not any(_is_embedding(graph, own, blocks) for own in [segment, *graph.around(segment)])
    ]
    kinds = Counter(block.kind for block in [*blocks, *outside])
    for block in [*blocks, *outside]:
        for segment in filter(block.holds, graph.segments):
            sums = graph.hidden(segment) if kinds[block.kind] < 2 else []
            if sums:
                _refuse_repeats(graph, [], graph.parameters(segment))
                _refuse_sums(graph, segment, sums)


def covered(graph: Graph, blocks: list[Block]) -> float:
    """The share of the weights in blocks, of those that are neither embedding nor head."""
    layers = [index for index in graph.useful if graph.is_layer(index)]
    before = [own for own in layers if own <= blocks[0].start]
    ends = {*before[:1], *(own for own in before if graph.nodes[own].op in LOOKUPS)}
    ends |= {own for own in layers[-1:] if own > blocks[-1].end}
    inside, sizes = graph.parameters(*blocks), graph.tape.sizes
    between = inside.union(*(graph.nodes[own].parameters for own in layers if own not in ends))
    return sum(sizes[own] for own in inside) / max(sum(sizes[own] for own in between), 1)


def _is_embedding(graph: Graph, first: Stretch, blocks: list[Block]) -> bool:
    """Whether what begins at the raw input, before any layer, comes before the whole stream.

    A module of the class of a block is part of the stream.
    """
    classes = {own for block in blocks for own in _classes(block.kind)}
    modules = [call.module for call in graph.calls_in(first)]
    return (
        bool(blocks)
        and first.start <= graph.items[0].start
        and first.end <= blocks[0].start
        and covered(graph, blocks) >= LEAST_COVERED
        and not any(type(own) in classes and any(own.children()) for own in modules)
    )


def _classes(kind: object) -> set[object]:
    return {own for part in kind for own in _classes(part)} if isinstance(kind, tuple) else {kind}


def _refuse_repeats(
    graph: Graph, blocks: Sequence[Stretch], among: frozenset[str] | None = None
) -> None:
    """Refuse modules with most weights, of all or ``among`` some, that run many times.

    Not those that always run in some blocks.
    """
    reads: dict[str, list[int]] = {}
    for index in filter(graph.is_layer, graph.useful):
        for name in sorted(graph.nodes[index].parameters):
            if among is None or name in among:
                reads.setdefault(name, []).append(index)
    many = {name: own for name, own in reads.items() if len(own) >= MANY}
    weights, repeats = (sum(graph.tape.sizes[name] for name in own) for own in (reads, many))
    found: dict[str, int] = {}
    for name, own in many.items() if 2 * repeats > weights else ():
        module = name.rpartition(".")[0] or name
        if not all(any(block.start < index <= block.end for block in blocks) for index in own):
            found[module] = len(own)
    if found:
        ran = and_more([f"{name!r} {often} times" for name, often in found.items()], 3)
        raise AuditError(
            f"the same modules run many times in one pass ({ran}): in time, as in recurrence, "
            "relaxation, spikes or ODE steps, or once per candidate label; not in depth. Steps in "
            "time can be audited as a trace, or unrolled as layers named by --fa-stream; passes "
            "per label and spikes, which are piecewise constant and have no useful BP gradient, "
            "cannot"
        )


def _refuse_sums(graph: Graph, segment: Segment, sums: list[int]) -> None:
    bypasses = (
        (parent, later)
        for later in segment.made
        for parent in graph.nodes[later].parents
        if parent < sums[0] < later
    )
    bypass = next(bypasses, (segment.start, segment.end))
    start, end, source, target = map(graph.maker, (segment.start, segment.end, *bypass))
    source = source if source == "the input" else f"what {source} returns"
    calls = [graph.tape.calls[graph.nodes[index].call].name for index in sums]
    inside = and_more([repr(name) if name else "forward" for name in dict.fromkeys(calls)], 4)
    raise AuditError(
        f"the network has no single stream between {start} and {end}: {source} "
        f"bypasses the sums in {inside} and feeds {target} (a second tower, a long skip, a carried "
        "value or a condition). No --fa-stream passes; audit a variant without that path"
    )


def named_blocks(graph: Graph, spec: str, found: list[Block]) -> tuple[list[Block], int | None]:
    """The blocks that a SPEC such as ``attn.*, mlp.* -> out_ln`` names, if they are all of them.

    The number is that of the value which is h_L, where the SPEC says so.
    """
    left, arrow, right = (part.strip() for part in spec.partition("->"))
    advice = f"the blocks of this network: --fa-stream='{spec_of(graph, found)}'"
    chosen: dict[tuple[int, int], Block] = {}
    for call in _calls(graph, spec, left):
        span = graph.spans.get(call)
        if span and (not graph.additive or any(map(span.holds, graph.additive))):
            own = [span]
        else:
            own = [
                Block(part.start, part.end, call.name)
                for part in graph.additive
                if any(graph.made_in(index, call) for index in part.made)
            ]
        if not own:
            raise AuditError(f"stream {spec!r}: {call.name!r} adds nothing to the stream; {advice}")
        for block in own:
            chosen.setdefault((block.start, block.end), block)
    blocks = sorted(chosen.values(), key=lambda block: block.start)
    if problem := _problem(graph, found, blocks):
        raise AuditError(f"stream {spec!r} {problem}; {advice}")
    if not arrow:
        return blocks, None
    for call in _calls(graph, spec, right):
        entering = [index for index in call.inputs if index in graph.cuts]
        if entering and entering[0] >= blocks[-1].end:
            return blocks, entering[0]
    raise AuditError(
        f"stream {spec!r}: {right!r} does not run after the last block, {blocks[-1].name!r}"
    )


def _problem(graph: Graph, found: list[Block], blocks: list[Block]) -> str:
    """What is wrong with some blocks, given those that were found."""
    for before, after in pairwise(blocks):
        if after.start < before.end:
            return f"names {after.name!r} inside another block"
    if blocks[-1].end > graph.items[-1].start:
        return "takes the head for a block, and the logits are not a state"
    if not graph.additive:
        return ""
    missing = [
        block.name
        for block in found
        for part in filter(block.holds, graph.additive)
        if not any(own.holds(part) for own in blocks)
    ]
    if missing:
        return f"leaves out {and_more(list(dict.fromkeys(missing)), 6)}"
    kinds = [[own.kind for own in found if block.holds(own)] for block in blocks]
    # Unlike parts, the same in every block, are one block: attention and MLP.
    for block, held in zip(blocks, kinds, strict=True):
        if len(held) > 1 and (held != kinds[0] or len({*held}) < len(held)):
            return f"takes several blocks for one at {block.name!r}"
    return ""


def _calls(graph: Graph, spec: str, patterns: str) -> list[Call]:
    """The calls of the modules that some patterns name, in the order in which they ran."""
    names = [name for name in graph.tape.modules if name]
    matching: set[str] = set()
    for pattern in (part.strip() for part in patterns.split(",")):
        fitting = {name for name in names if _fits(name, pattern)}
        if not fitting:
            top_level = ", ".join(name for name in names if "." not in name) or "none"
            raise AuditError(
                f"stream {spec!r}: no module matches {pattern!r} (* stands for any part of a name "
                f"between two dots); the network's top-level modules are: {top_level}"
            )
        matching |= fitting
    calls = [call for call in graph.tape.calls if call.name in matching]
    if not calls:
        raise AuditError(
            f"stream {spec!r}: {and_more(sorted(matching))} did not run on a tensor of the samples"
        )
    return calls


def _fits(name: str, pattern: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", "[^.]*"), name) is not None


def spec_of(graph: Graph, blocks: list[Block]) -> str:
    """The SPEC that names these blocks: ``blocks.*`` where no other module that ran fits it."""
    names = dict.fromkeys(block.name for block in blocks)
    others = {call.name for call in graph.tape.calls} - {*names}
    patterns: dict[str, None] = {}
    for name in names:
        starred = ".".join(re.sub(r"\d+$", "*", part) for part in name.split("."))
        patterns[name if any(_fits(other, starred) for other in others) else starred] = None
    return ", ".join(patterns)


class AmbiguousSamples(AuditError):
    """A state has two dimensions of the size of the batch: another number of samples is needed."""


def find_states(graph: Graph, blocks: list[Block], named: int | None) -> list[State]:
    """h_0 … h_L: what enters each block, and what the last one leaves.

    Where layers lie between two blocks, as between the stages of a hierarchical network, what the
    first of them leaves: a norm among those layers would hide that it explodes. ``named`` is the
    value that is h_L for the user.
    """
    nodes, units = graph.nodes, blocks
    if len(blocks) == 1 and not graph.additive and blocks[0].start >= graph.items[0].end:
        # The embedding tells what is done to a state before a block takes it.
        units = [_layer(graph, graph.items[0]), *blocks]

    def ops(between: Sequence[int]) -> tuple[str, ...]:
        return tuple(nodes[cut].op for cut in between)

    def size(cut: int) -> int:
        return math.prod(nodes[cut].shape)

    # What is done to states before the next block takes them, layers only if to most of them.
    gaps = []
    for before, after in pairwise(units):
        layered = any(before.end <= own.start and own.end <= after.start for own in graph.items)
        resized = layered and size(before.end) != size(after.start)
        gaps.append((graph.between(before.end, after.start), layered, resized))
    done = Counter((ops(between), layered) for between, layered, resized in gaps if not resized)
    steps = [
        step
        for (step, layered), times in done.most_common()
        if not layered or (times > 1 and 2 * times > done.total())
    ]

    def left(end: int, between: list[int]) -> int:
        """What a block leaves, with what is done to most states."""
        for step in steps:
            reached = between[: len(step)]
            resized = any(graph.is_layer(cut) and size(cut) != size(end) for cut in reached)
            if ops(reached) == step and not resized:
                return [end, *reached][-1]
        if graph.additive:
            return end
        # Of plain layers with pooling after some: the activation alone.
        activated = takewhile(
            lambda cut: size(cut) == size(end) and "norm" not in nodes[cut].op, between
        )
        return [end, *activated][-1]

    states = [blocks[0].start]
    gaps = gaps[len(units) - len(blocks) :]
    for (before, after), (between, layered, resized) in zip(pairwise(blocks), gaps, strict=True):
        apart = resized or (layered and ops(between) not in steps)
        states.append(left(before.end, between) if apart else after.start)
    last = left(blocks[-1].end, graph.between(blocks[-1].end, graph.items[-1].start))
    for cut in graph.between(last, named or last):
        if nodes[cut].op not in REARRANGEMENTS or nodes[cut].parameters:
            raise AuditError(
                f"the state named as h_L comes after {graph.maker(cut)}, which is part of the "
                "head: h_L is what the last block leaves"
            )
    return [_state(graph, nodes[cut]) for cut in [*states, named or last]]


def _state(graph: Graph, node: Node) -> State:
    """A value, and where it is first seen, at a module if one can; refused where it is no state."""
    while node.op == "view" and not node.sights:  # inside a function: what it shows was seen
        node = graph.nodes[node.parents[0]]
    batch, shape, overwritten = graph.tape.batch, node.shape, node.overwritten
    # What enters a module is held by others too, who may be the ones that write to it.
    sights = [
        own for own in node.sights if own.function or own.place[1] == "output" or not overwritten
    ]
    if sights and node.floating and shape.count(batch) == 1:
        first = min(sights, key=lambda own: bool(own.function))
        return node, replace(first, batch_dim=shape.index(batch), copied=overwritten)
    what = f"a state has shape {shape} for {batch} samples"
    if shape.count(batch) > 1:
        raise AmbiguousSamples(f"{what}: which dimension counts the samples cannot be told")
    if batch not in shape and any(own % batch == 0 for own in shape):
        raise AuditError(
            f"{what}: samples and tokens are folded into one dimension; let the blocks take "
            "[samples, tokens, features]"
        )
    _refuse_repeats(graph, [])
    raise AuditError(f"{what}: it holds whole numbers, or no module and no function returns it")
