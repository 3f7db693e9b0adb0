"""The blocks of a network: which stretches between cuts belong together, and how they are called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from torch import nn

from .graph import SUMS, Graph, Join, Segment
from .tape import Call, Tape


@dataclass(frozen=True)
class Block:
    """What turns one state into the next."""

    name: str
    start: int
    end: int
    parameters: frozenset[str]
    segments: tuple[Segment, ...] = ()
    call: int | None = None
    """The module call that it is, where one module has a state before it and one behind it."""


@dataclass(frozen=True)
class Span:
    """A module call with a cut before it and a cut behind it."""

    call: Call
    start: int
    end: int

    def holds(self, start: int, end: int) -> bool:
        """Whether a stretch lies inside."""
        return self.start <= start and end <= self.end


class Anatomy:
    """A forward pass taken apart: layers, segments, modules that span them, and the blocks that they make."""

    def __init__(self, tape: Tape, graph: Graph) -> None:
        self.tape, self.graph = tape, graph
        self.stacks: list[str] = []
        """The modules that could be taken for one block each, though blocks like each other lie in them."""

    @cached_property
    def items(self) -> list[tuple[int, int]]:
        """What has weights on the way, layers and segments, as cuts before and behind it; the last one is the head."""
        behind = dict(zip(self.graph.cuts[1:], self.graph.cuts, strict=False))
        layers = [(behind.get(cut, cut), cut) for cut in self.graph.layers]
        joined = [
            (segment.start, segment.end)
            for segment in self.graph.segments
            if any(self.graph.is_layer(index) for index in (*segment.inner, segment.end))
        ]
        ends = {end for _, end in joined}
        return sorted([*(layer for layer in layers if layer[1] not in ends), *joined])

    @cached_property
    def additive(self) -> list[Segment]:
        """The segments that add to a state or stand beside it, between embedding and head."""
        if not self.items:
            return []
        first, head = self.items[0], self.items[-1]
        between = [
            segment
            for segment in self.graph.segments
            if segment.join is not Join.GATE
            and segment.parameters
            and segment.end <= head[0]
            and (segment.skip or segment.start > first[0])
        ]
        classes = {self._class_of(segment) for segment in between if segment.skip}
        return [
            segment
            for segment in between
            if segment.skip
            or (segment.join is Join.SUM and not self.graph.is_linear(segment))
            or self._class_of(segment) in classes - {None}
        ]

    @property
    def residual(self) -> bool:
        """Whether some block leaves its state as it is, or changes its shape by a linear map, and adds to it."""
        return any(segment.skip or segment.projected for segment in self.additive)

    @cached_property
    def blocks(self) -> list[Block]:
        """The blocks in their order: residual ones, or the layers of a network without residual connections."""
        return self._residual_blocks() if self.residual else self._plain_blocks()

    @cached_property
    def spans(self) -> list[Span]:
        """The calls that one cut enters and one leaves, inner ones behind those they are in; the network itself aside."""
        position, useful = self.graph.position, set(self.graph.useful)
        spans = []
        for call in self.tape.calls[1:]:
            entering = {node for node in call.inputs if node in useful}
            leaving = {node for node in call.outputs if node in useful and self._goes_on(node, call.index)}
            if len(entering) == len(leaving) == 1:
                start, end = entering.pop(), leaving.pop()
                if start in position and end in position and start < end:
                    spans.append(Span(call, start, end))
        return spans

    def _goes_on(self, index: int, call: int) -> bool:
        """Whether what a call returned is read outside of it; attention weights, for one, are returned for people to see."""
        return index == self.graph.logits or any(not self.made_in(reader, call) for reader in self.graph.readers[index])

    def spanning(self, start: int, end: int) -> list[Span]:
        """The module calls around a stretch, from the outermost to the innermost; none that holds the head."""
        return [span for span in self.spans if span.holds(start, end) and not span.holds(*self.items[-1])]

    def block_of(self, segment: Segment) -> Block:
        """The block that a segment belongs to."""
        return next(block for block in self.blocks if segment in block.segments)

    def kind(self, block: Block) -> tuple[object, ...]:
        """What a block is made of, to tell like from unlike."""
        return self._signature(self._innermost(block.segments[0]), block) if block.segments else (block.name,)

    def made_in(self, index: int, call: int) -> bool:
        """Whether a value was made within a module call."""
        own = self.graph.nodes[index].call
        while own > call:
            own = self.tape.calls[own].outer
        return own == call

    def maker(self, index: int) -> str:
        """What made a value, by name: the outermost module that returned it, or the function in the module that called it."""
        node = self.graph.nodes[index]
        if node.op == "input":
            return "the input"
        for sight in node.sights:
            if not sight.function and sight.place[1] == "output":
                return repr(sight.place[0]) if sight.place[0] else "the network"
        name = self.tape.calls[node.call].name if node.call >= 0 else ""
        return f"{node.op} in {name!r}" if name else f"{node.op} in the network's forward"

    def nested(self, block: Block) -> list[int]:
        """The residual sums inside a block that are no states, since something goes on beside them."""
        within = block.segments or [s for s in self.graph.segments if block.start <= s.start and s.end <= block.end]
        return self.nested_in(within[0]) if len(within) == 1 else []

    def nested_in(self, segment: Segment) -> list[int]:
        """The residual sums inside a stretch that are no states."""
        ancestors: dict[int, int] = {segment.start: 1 << segment.start}
        sums = []
        for index in segment.inner:
            node = self.graph.nodes[index]
            parents = [parent for parent in node.parents if parent in ancestors]
            mine = 1 << index
            for parent in parents:
                mine |= ancestors[parent]
            ancestors[index] = mine
            if node.op in SUMS and any(
                p != q and ancestors[q] >> p & 1 and self._weighted(p, q, ancestors) for p in parents for q in parents
            ):
                sums.append(index)
        return sums

    def _weighted(self, start: int, end: int, ancestors: dict[int, int]) -> bool:
        """Whether a layer lies on the way from one value to another, with weights of its own or made from the samples."""
        between = ancestors[end]
        return any(
            between >> index & 1
            and ancestors[index] >> start & 1
            and (self.graph.is_layer(index) or self.graph.is_product(index))
            for index in range(start + 1, end + 1)
            if index in ancestors
        )

    def holds_others(self, block: Block) -> bool:
        """Whether blocks lie inside a block that is the only one of its kind: towers, or a residual carried beside them."""
        if len(self.nested(block)) < 2:
            return False
        kinds = Counter(type(self.tape.calls[own.call].module) for own in self.blocks if own.call is not None)
        return block.call is None or kinds[type(self.tape.calls[block.call].module)] < 2

    def stretches(self) -> Iterator[Block]:
        """What lies beside the blocks and holds residual sums: without it a part of the stream would be taken for all of it."""
        taken = {segment for block in self.blocks for segment in block.segments}
        inside = [(block.start, block.end) for block in self.blocks]
        for segment in self.graph.segments:
            if segment in taken or any(start <= segment.start and segment.end <= end for start, end in inside):
                continue
            if len(self.nested_in(segment)) >= 2:
                yield Block("", segment.start, segment.end, segment.parameters, (segment,))

    def bypass(self, block: Block, index: int) -> tuple[int, int]:
        """A value from before another one, and one made of it behind that."""
        for later in self.graph.useful:
            if index < later <= block.end:
                for parent in self.graph.nodes[later].parents:
                    if block.start <= parent < index:
                        return parent, later
        return block.start, block.end

    def _class_of(self, segment: Segment) -> type | None:
        around = self.spanning(segment.start, segment.end)
        return type(around[-1].call.module) if around else None

    def _residual_blocks(self) -> list[Block]:
        return self._grouped([self._alone(segment) for segment in self.additive], self.additive)

    def _plain_blocks(self) -> list[Block]:
        """Every layer but the first and the last; paths side by side, as in an inception cell, are one with their module."""
        blocks = [self._unit(item) for item in self.items[1:-1]]
        ends = {end for _, end in self.items[1:-1]}
        return self._grouped(blocks, [segment for segment in self.graph.segments if segment.end in ends])

    def _grouped(self, blocks: list[Block], segments: Sequence[Segment]) -> list[Block]:
        """The blocks with those made one that lie in one module of their own."""
        owners: dict[int, Span] = {}
        for segment in segments:
            around = self.spanning(segment.start, segment.end)
            if around:
                owners[around[-1].call.index] = around[-1]
        kinds = Counter(type(owner.call.module) for owner in owners.values())
        for owner in sorted(owners.values(), key=lambda span: span.end - span.start):
            inside = [block for block in blocks if owner.holds(block.start, block.end)]
            if inside and self._is_block(owner, inside, kinds[type(owner.call.module)]):
                blocks = [*(block for block in blocks if block not in inside), self._merged(owner, inside)]
            elif inside and kinds[type(owner.call.module)] > 1:
                self.stacks.append(owner.call.name)
        return sorted(blocks, key=lambda block: block.start)

    def _is_block(self, owner: Span, inside: Sequence[Block], instances: int) -> bool:
        """Whether a module with these blocks inside is a block itself, and not the stack that holds them."""
        signatures = [self._signature(owner.call.index, block) for block in inside]
        repeated = len(set(signatures)) < len(signatures)
        if not repeated:
            return instances > 1 or len(inside) == 1 or not self._embeds(owner, inside[0])
        numbered = any(part.isdigit() for block in inside for part in _below(owner.call.name, block.name).split("."))
        return instances > 1 and not numbered

    def _embeds(self, owner: Span, first: Block) -> bool:
        """Whether a layer with weights stands in a module before its first block."""
        return any(owner.start < layer <= first.start for layer in self.graph.layers)

    def _signature(self, outer: int, block: Block) -> tuple[object, ...]:
        if block.call is not None:
            return (type(self.tape.calls[block.call].module),)
        calls = self._children(outer, block.segments)
        if calls:
            return tuple(self._kind_of(call) for call in calls)
        return tuple(self.graph.nodes[index].op for segment in block.segments for index in (*segment.inner, segment.end))

    def _kind_of(self, call: Call) -> object:
        """The class of a module; of a container those of its parts."""
        if not isinstance(call.module, nn.Sequential):
            return type(call.module)
        return tuple(self._kind_of(inner) for inner in self.tape.calls[call.index + 1 :] if inner.outer == call.index)

    def _children(self, outer: int, segments: Iterable[Segment]) -> list[Call]:
        """The outermost calls inside a call, or inside the network, in which the values of some segments were made."""
        children: dict[int, Call] = {}
        for segment in segments:
            for index in (*segment.inner, segment.end):
                call = self.graph.nodes[index].call
                while call > outer and self.tape.calls[call].outer > outer:
                    call = self.tape.calls[call].outer
                if call > outer and call >= 0:
                    children[call] = self.tape.calls[call]
        return list(children.values())

    def _alone(self, segment: Segment) -> Block:
        """A segment as a block, called after the module in it that has most parameters, and beginning where its modules do."""
        before = max((other.end for other in self.graph.segments if other.end <= segment.start), default=0)
        calls = self._children(self._innermost(segment), [segment])
        entering = [node for call in calls for node in call.inputs if node in self.graph.position and before <= node]
        start = min([segment.start, *entering])
        return Block(self._name(segment), start, segment.end, self.parameters_between(start, segment.end), (segment,))

    def _name(self, segment: Segment) -> str:
        sizes = {name: self.tape.sizes[name] for name in segment.parameters}
        children = {call.name for call in self._children(self._innermost(segment), [segment])}
        shares = {name: sum(size for own, size in sizes.items() if own.startswith(f"{name}.")) for name in children}
        best = max(shares, key=lambda name: shares[name], default="")
        if best and shares[best]:
            return best
        return common_prefix(sorted(sizes)) or max(sizes, key=lambda name: sizes[name])

    def _innermost(self, segment: Segment) -> int:
        """The innermost call in which all of a segment was computed."""
        paths = []
        for index in (*segment.inner, segment.end):
            path, call = [], self.graph.nodes[index].call
            while call >= 0:
                path.append(call)
                call = self.tape.calls[call].outer
            paths.append(path[::-1])
        shared = [calls[0] for calls in zip(*paths, strict=False) if len(set(calls)) == 1]
        return shared[-1] if shared else 0

    def _merged(self, owner: Span, inside: Sequence[Block]) -> Block:
        whole = Block(owner.call.name, owner.start, owner.end, frozenset(), (), owner.call.index)
        inner = self.parameters_between(owner.start, owner.end)
        return replace(whole, parameters=inner, segments=tuple(part for block in inside for part in block.segments))

    def parameters_between(self, start: int, end: int) -> frozenset[str]:
        """The parameters that are read on the way from one cut to a later one."""
        return frozenset(
            name for index in self.graph.useful if start < index <= end for name in self.graph.nodes[index].parameters
        )

    def parameters_outside(self, blocks: Sequence[Block]) -> frozenset[str]:
        """The parameters that are read where none of these blocks is."""
        nodes = [index for index in self.graph.useful if not any(block.start < index <= block.end for block in blocks)]
        return frozenset(name for index in nodes for name in self.graph.nodes[index].parameters)

    def unread_in(self, block: Block) -> frozenset[str]:
        """The parameters of a block's module that no test sample needed, such as those of experts that it was not sent to."""
        read = frozenset(name for index in self.graph.useful for name in self.graph.nodes[index].parameters)
        return frozenset(name for name in self.tape.sizes if name not in read and name.startswith(f"{block.name}."))

    def _unit(self, item: tuple[int, int]) -> Block:
        start, end = item
        alone = [span for span in self.spanning(start, end) if sum(span.holds(*other) for other in self.items) == 1]
        parameters = self.parameters_between(start, end)
        if alone:
            start, end = alone[0].start, alone[0].end
            return Block(alone[0].call.name, start, end, self.parameters_between(start, end), (), alone[0].call.index)
        return Block(common_prefix(sorted(parameters)) or next(iter(sorted(parameters)), ""), start, end, parameters)


def common_prefix(names: Sequence[str]) -> str:
    """The dotted name that all these names begin with."""
    shared = []
    for parts in zip(*(name.split(".") for name in names), strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ".".join(shared)


def _below(outer: str, name: str) -> str:
    return name.removeprefix(f"{outer}.") if outer else name
