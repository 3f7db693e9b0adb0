"""Which blocks and states make the stream: those found, or those that the user names."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile

from ...judge.errors import AuditError
from ...judge.words import and_more
from .graph import (
    LINEAR,
    LOOKUPS,
    PRODUCTS,
    REARRANGEMENTS,
    Block,
    Graph,
    Segment,
    Stretch,
    common_start,
)
from .sites import Site
from .tape import Call, Node

State = tuple[Node, Site]
LEAST_COVERED = 0.2
"""The least share of the weights between embedding and head that the whole stream holds."""


@dataclass(frozen=True)
class Choice:
    """The blocks of a stream."""

    blocks: list[Block]
    last: int | None = None
    """The value that is h_L, where the user names it."""
    alternatives: tuple[str, ...] = ()
    """Modules that could each have been one block."""


def find_blocks(graph: Graph) -> Choice:
    """What adds to the stream, or the layers of a network without residual connections.

    Several in one module are one block where that module is a block itself, and not a stack.
    """
    if graph.residual:
        segments, blocks = graph.additive, [_alone(graph, segment) for segment in graph.additive]
    else:  # all layers but the first and the last; paths side by side go with their module
        items = graph.items[1:-1] or _hidden_layer(graph)
        ends = [item.end for item in items]
        segments = [segment for segment in graph.segments if segment.end in ends]
        blocks = [_layer(graph, item) for item in items]
    owners = {
        around[-1].call: around[-1] for segment in segments if (around := graph.around(segment))
    }
    classes = Counter(type(call.module) for call in owners)
    stacks = []
    for call, owner in sorted(owners.items(), key=lambda own: own[1].end - own[1].start):
        inside = [block for block in blocks if owner.holds(block)]
        several = classes[type(call.module)] > 1
        if len({graph.kind(call, block) for block in inside}) == len(inside):
            # All unlike: one block, unless it is the only one of its class and embeds first.
            before = [cut for cut in graph.cuts if owner.start < cut <= inside[0].start]
            whole = several or len(inside) == 1 or not any(map(graph.is_layer, before))
        else:
            names = [block.name.removeprefix(f"{call.name}.").split(".") for block in inside]
            whole = several and not any(part.isdigit() for name in names for part in name)
        if whole:
            held = tuple(segment for block in inside for segment in block.segments)
            blocks = [block for block in blocks if block not in inside]
            blocks.append(Block(owner.start, owner.end, call.name, held, call))
        elif several:
            stacks.append(call.name)
    blocks.sort(key=lambda block: block.start)
    kinds = [_kind(graph, block) for block in blocks]
    if kinds and kinds.count(kinds[0]) < 2 and _is_embedding(graph, blocks[0], blocks[1:]):
        blocks = blocks[1:]
    return Choice(blocks, alternatives=tuple(stacks))


def _hidden_layer(graph: Graph) -> list[Stretch]:
    """The only layer before the last; not where it is an embedding that is normalised and read."""
    if len(graph.items) != 2 or graph.nodes[graph.items[0].end].op not in PRODUCTS:
        return []
    first, head = graph.items
    ops = [graph.nodes[cut].op for cut in graph.cuts if first.end < cut <= head.start]
    normed = [op for op in ops if "norm" in op]
    return [first] if not normed or not LINEAR.issuperset({*ops} - {*normed}) else []


def _alone(graph: Graph, segment: Segment) -> Block:
    """A segment as a block: it begins where its modules do, and is named after the largest."""
    before = max((other.end for other in graph.segments if other.end <= segment.start), default=0)
    parts = graph.parts(graph.innermost(segment), [segment])
    entering = [
        index for call in parts for index in call.inputs if index in graph.cuts and before <= index
    ]
    sizes = {name: graph.tape.sizes[name] for name in graph.parameters(segment)}
    held = {
        call.name: sum(size for name, size in sizes.items() if name.startswith(f"{call.name}."))
        for call in parts
    }
    name = max(held, key=lambda own: held[own], default="")
    if not held.get(name):
        name = _common_name(sizes) or max(sizes, key=lambda own: sizes[own])
    return Block(min([segment.start, *entering]), segment.end, name, (segment,))


def _layer(graph: Graph, item: Stretch) -> Block:
    """A layer as a block: the outermost module that holds no other layer, where there is one."""
    for span in graph.around(item):
        if sum(span.holds(other) for other in graph.items) == 1:
            return Block(span.start, span.end, span.call.name, (), span.call)
    names = sorted(graph.parameters(item))
    return Block(item.start, item.end, _common_name(names) or names[0])


def _common_name(names: Iterable[str]) -> str:
    return ".".join(common_start(name.split(".") for name in names))


def check_coverage(graph: Graph, blocks: list[Block], *, named: bool = False) -> None:
    """Refuse blocks that are not the whole stream.

    They are not where modules run in time, where a stretch that is the only one of its kind holds
    several updates, and where few of the weights that are neither embedding nor head are in blocks.
    """
    outside = [
        Block(segment.start, segment.end, "", (segment,))
        for segment in graph.segments
        if not any(block.holds(segment) for block in blocks)
        and not any(_is_embedding(graph, own, blocks) for own in [segment, *graph.around(segment)])
    ]
    kinds = Counter(_kind(graph, block) for block in [*blocks, *outside])
    for block in [*blocks, *outside]:
        for segment in block.segments or filter(block.holds, graph.segments):
            sums = graph.hidden(segment) if kinds[_kind(graph, block)] < 2 else []
            if sums:
                _refuse_recurrence(graph, [])
                raise _bypassed(graph, segment, sums)
    _refuse_recurrence(graph, blocks)
    share = covered(graph, blocks) if blocks else 1.0
    if share < LEAST_COVERED and not named:
        raise AuditError(
            f"the blocks found hold {100 * share:.2g} % of the weights between embedding and head, "
            "so they are not the whole stream. If the network has no others, name them: "
            f"--fa-stream='{spec_of(graph, blocks)}'"
        )


def covered(graph: Graph, blocks: list[Block]) -> float:
    """The share of the weights in blocks, of those that are neither embedding nor head."""
    first, last = blocks[0].start, blocks[-1].end
    layers = [index for index in graph.useful if graph.is_layer(index)]
    embedding = [own for own in layers if own <= first and graph.nodes[own].op in LOOKUPS]
    ends = {*embedding, *[own for own in layers if own <= first][:1]}
    ends |= {own for own in layers[-1:] if own > last}
    inside, read = graph.parameters(*blocks), graph.nodes
    between = {name for own in layers if own not in ends for name in read[own].parameters}
    sizes = graph.tape.sizes
    return sum(sizes[own] for own in inside) / max(sum(sizes[own] for own in inside | between), 1)


def _is_embedding(graph: Graph, first: Stretch, blocks: list[Block]) -> bool:
    """Whether what begins at the raw input, before any layer, comes before the whole stream."""
    return (
        bool(blocks)
        and first.start <= graph.items[0].start
        and first.end <= blocks[0].start
        and covered(graph, blocks) >= LEAST_COVERED
    )


def _kind(graph: Graph, block: Block) -> object:
    """What a block is told from others by; one layer of many is like no other."""
    outer = block.call or (graph.innermost(block.segments[0]) if block.segments else None)
    return block if outer is None else graph.kind(outer, block)


def _refuse_recurrence(graph: Graph, blocks: list[Block]) -> None:
    if many := graph.repeated(blocks):
        ran = and_more([f"{name!r} {times} times" for name, times in many.items()], 3)
        raise AuditError(
            f"the same modules run many times in one pass ({ran}), as in recurrence, relaxation, "
            "spikes or ODE steps: their states follow in time, not in depth. Audit a trace of "
            "them, or a network whose steps are unrolled as layers, named by --fa-stream"
        )


def _bypassed(graph: Graph, segment: Segment, sums: list[int]) -> AuditError:
    bypass = next(
        (parent, later)
        for later in segment.made
        for parent in graph.nodes[later].parents
        if segment.start <= parent < sums[0] < later
    )
    start, end, source, target = map(graph.maker, (segment.start, segment.end, *bypass))
    calls = [graph.tape.calls[graph.nodes[index].call].name for index in sums]
    inside = and_more([repr(name) if name else "forward" for name in dict.fromkeys(calls)], 4)
    return AuditError(
        f"the network has no single stream between {start} and {end}: what {source} returns "
        f"bypasses the sums in {inside} and feeds {target} (a second tower, a long skip, a carried "
        "value or a condition). No --fa-stream passes; audit a variant without that path"
    )


def named_blocks(graph: Graph, spec: str) -> Choice:
    """The blocks that a SPEC such as ``attn.*, mlp.* -> out_ln`` names, if they are all of them."""
    found = find_blocks(graph).blocks
    check_coverage(graph, found, named=True)
    left, arrow, right = (part.strip() for part in spec.partition("->"))
    advice = f"the blocks of this network: --fa-stream='{spec_of(graph, found)}'"
    chosen: dict[tuple[int, int], Block] = {}
    for call in _calls(graph, spec, left):
        span = next((span for span in graph.spans if span.call is call), None)
        held = tuple(
            segment for segment in graph.additive if span is not None and span.holds(segment)
        )
        if span is not None and (held or not graph.residual):
            own = [Block(span.start, span.end, call.name, held, call)]
        else:
            own = [
                Block(part.start, part.end, call.name, (part,))
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
        return Choice(blocks)
    for call in _calls(graph, spec, right):
        entering = [index for index in call.inputs if index in graph.cuts]
        if entering and entering[0] >= blocks[-1].end:
            return Choice(blocks, entering[0])
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
    if not graph.residual:
        return ""
    missing = [
        block.name
        for block in found
        if not all(any(own.holds(part) for own in blocks) for part in block.segments)
    ]
    if missing:
        return f"leaves out {and_more(missing, 6)}"
    inside = [[own for own in found if block.holds(own)] for block in blocks]
    lumps = [block for block, held in zip(blocks, inside, strict=True) if len(held) > 1]
    kinds = [[graph.kind(graph.innermost(own.segments[0]), own) for own in held] for held in inside]
    # Unlike parts, the same in every block, are one block: attention and MLP.
    if lumps and any(kind != kinds[0] or len({*kind}) < len(kind) for kind in kinds):
        return f"takes several blocks for one at {lumps[0].name!r}"
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
    calls = [
        call for call in graph.tape.calls if call.name in matching and call.inputs and call.outputs
    ]
    if not calls:
        raise AuditError(
            f"stream {spec!r}: {and_more(sorted(matching))} did not run on a tensor of the samples"
        )
    return calls


def _fits(name: str, pattern: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", "[^.]*"), name) is not None


def spec_of(graph: Graph, blocks: list[Block]) -> str:
    """The SPEC that names these blocks: ``blocks.*`` where no other module that ran fits it."""
    names = list(dict.fromkeys(block.name for block in blocks))
    others = {call.name for call in graph.tape.calls if call.inputs} - {*names}
    patterns: dict[str, None] = {}
    for name in names:
        parts = name.split(".")
        starred = [re.sub(r"\d+$", "*", part) for part in parts]
        general = [
            ".".join([*parts[:at], starred[at], *parts[at + 1 :]])
            for at in reversed(range(len(parts)))
        ]
        fitting = {
            pattern: sum(_fits(own, pattern) for own in names)
            for pattern in [*general, ".".join(starred)]
        }
        usable = {
            own: count
            for own, count in fitting.items()
            if count > 1 and not any(_fits(other, own) for other in others)
        }
        patterns[max(usable, key=lambda own: usable[own], default=name)] = None
    return ", ".join(patterns)


class AmbiguousSamples(AuditError):
    """A state has two dimensions of the size of the batch: another number of samples is needed."""


def find_states(graph: Graph, choice: Choice) -> list[State]:
    """h_0 … h_L: what enters each block, and what the last one leaves.

    Where layers lie between two blocks, as between the stages of a hierarchical network, what the
    first of them leaves: a norm among those layers would hide that it explodes.
    """
    nodes, blocks, units = graph.nodes, choice.blocks, list[Stretch](choice.blocks)
    if len(blocks) == 1 and not graph.residual and blocks[0].start >= graph.items[0].end:
        # The embedding tells what is done to a state before a block takes it.
        embedding = graph.items[0]
        ends = [own.end for own in graph.around(embedding) if own.end <= blocks[0].start]
        units = [Stretch(embedding.start, max([embedding.end, *ends])), *blocks]

    def cuts(after: int, last: int) -> list[int]:
        return [cut for cut in graph.cuts if after < cut <= last]

    def ops(between: Sequence[int]) -> tuple[str, ...]:
        return tuple(nodes[cut].op for cut in between)

    def size(cut: int) -> int:
        return math.prod(nodes[cut].shape)

    def activates(cut: int, end: int) -> bool:
        """Whether it is neither pooled nor normalised."""
        own = nodes[cut]
        return size(cut) == size(end) and not own.parameters and "norm" not in own.op

    gaps = []
    for before, after in pairwise(units):
        layered = any(before.end <= own.start and own.end <= after.start for own in graph.items)
        resized = layered and size(before.end) != size(after.start)
        gaps.append((cuts(before.end, after.start), layered, resized))
    # What is done to states before the next block takes them, layers only if to most of them.
    done = [(ops(between), layered) for between, layered, resized in gaps if not resized]
    counts = Counter(done)
    usual = [own for own, n in counts.items() if not own[1] or (n > 1 and 2 * n > len(done))]
    usual.sort(key=lambda own: (-counts[own], len(own[0]), own[0]))
    steps = [own for own, _ in usual]

    def seen(candidates: Iterable[int], among: Sequence[int]) -> State:
        for cut in candidates:
            if (site := _site_of(graph, nodes[cut])) is not None:
                return nodes[cut], site
        raise _unmeasurable(graph, [nodes[cut] for cut in among])

    def entering(first: int, last: int) -> State:
        """The last value that can be measured, of those between which no block lies."""
        between = [first, *cuts(first, last)]
        return seen(reversed(between), between)

    def left(end: int, between: list[int]) -> State:
        """What a block leaves, with what is done to most states."""
        for step in steps:
            reached = between[: len(step)]
            layers = [cut for cut in reached if graph.is_layer(cut)]
            if ops(reached) == step and all(size(cut) == size(end) for cut in layers):
                break
        else:  # of plain layers with pooling after some: what all steps begin with
            plain = [own for own, _ in done if not graph.residual]
            reached = between[: len(common_start([ops(between), *plain]))] if plain else []
            if not graph.residual and len(units) == 1:  # one hidden layer, with its activation
                reached = list(takewhile(lambda cut: activates(cut, end), between))
        own, rest = [end, *reached][-1], between[len(reached) :]
        # What a function makes inside is seen when it returns: a view of the same value.
        views = [cut for cut in rest if nodes[cut].op == "view" and size(cut) == size(own)]
        return seen([own, *views], [own])

    states = [entering(graph.cuts[0], blocks[0].start)]
    for (before, after), (between, layered, resized) in zip(pairwise(blocks), gaps, strict=False):
        apart = resized or (layered and ops(between) not in steps)
        states.append(left(before.end, between) if apart else entering(before.end, after.start))
    last = left(blocks[-1].end, cuts(blocks[-1].end, graph.items[-1].start))
    if choice.last is not None:
        for cut in cuts(last[0].index, choice.last):
            if nodes[cut].op not in REARRANGEMENTS or nodes[cut].parameters:
                raise AuditError(
                    f"the state named as h_L comes after {graph.maker(cut)}, which is part of the "
                    "head: h_L is what the last block leaves"
                )
        last = seen([choice.last, last[0].index], [])
    return [*states, last]


def _site_of(graph: Graph, node: Node) -> Site | None:
    """Where a value is first seen, at a module if one can; nothing where it is no state."""
    overwritten = node.memory.version > node.version
    # What enters a module is held by others too, who may be the ones that write to it.
    sights = [
        own for own in node.sights if own.function or own.place[1] == "output" or not overwritten
    ]
    if not sights or not node.floating or node.shape.count(graph.tape.batch) != 1:
        return None
    first = min(sights, key=lambda own: bool(own.function))
    return replace(first, batch_dim=node.shape.index(graph.tape.batch), copied=overwritten)


def _unmeasurable(graph: Graph, nodes: Sequence[Node]) -> AuditError:
    shape, batch = nodes[-1].shape, graph.tape.batch
    what = f"a state has shape {shape} for {batch} samples"
    if any(node.shape.count(batch) > 1 for node in nodes):
        return AmbiguousSamples(f"{what}: which dimension counts the samples cannot be told")
    if not any(batch in node.shape for node in nodes) and any(own % batch == 0 for own in shape):
        return AuditError(
            f"{what}: samples and tokens are folded into one dimension; let the blocks take "
            "[samples, tokens, features]"
        )
    if not any(node.floating for node in nodes):
        return AuditError(
            f"the network has no single stream: after {graph.maker(nodes[-1].index)}, which holds "
            "whole numbers, something bypasses every value (a second tower, a decoder that reads "
            "the input again); no --fa-stream passes"
        )
    _refuse_recurrence(graph, [])
    return AuditError(f"{what}, and no module and no function returns it")
