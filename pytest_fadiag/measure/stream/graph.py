"""The values between samples and logits: which carry everything, and what lies between those."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations, pairwise, permutations, takewhile
from operator import and_, or_
from typing import TypeVar

from torch import nn

from .tape import Call, Tape

T = TypeVar("T")


def _ops(names: str) -> frozenset[str]:
    return frozenset(names.split())


SUMS = _ops("add sub rsub addcmul addcdiv lerp addmm baddbmm addbmm addmv")
"""Operations that add one path to another."""
CONCATENATIONS = _ops(
    "cat stack copy slice_scatter select_scatter index_put index_copy index_add scatter "
    "scatter_add where masked_fill"
)
"""Operations that put paths side by side."""
SCALINGS = _ops("mul div where masked_fill")
REARRANGEMENTS = _ops(
    "view clone _to_copy cat stack copy repeat roll flip index gather index_select neg add sub "
    "rsub constant_pad_nd reflection_pad2d im2col col2im pixel_shuffle pixel_unshuffle "
    "native_channel_shuffle native_dropout"
)
"""Operations that leave a state the same state, seen otherwise: a path of these is a skip."""
MAXIMA = _ops("max_pool1d max_pool2d_with_indices max_pool3d_with_indices")
MEANS = _ops(
    "mean avg_pool1d avg_pool2d avg_pool3d _adaptive_avg_pool2d upsample_nearest2d "
    "upsample_bilinear2d upsample_bicubic2d"
)
"""Like the maxima, operations of skips around a block that changes the size of the state."""
PRODUCTS = _ops("mm addmm bmm baddbmm mv addmv dot linear _trilinear convolution")
LOOKUPS = _ops("embedding embedding_bag index index_select")
FUSED = _ops("mkldnn_rnn_layer _native_multi_head_attention _transformer_encoder_layer_fwd")
WEIGHTING = PRODUCTS | LOOKUPS | FUSED
"""Operations that make a layer where one of their operands comes from parameters."""
NORMS = _ops(
    "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training "
    "cudnn_batch_norm"
)
MIXING = _ops("native_layer_norm native_group_norm _fused_rms_norm bmm")
"""What a skip may do to a state before something is added: normalise it, or mix its streams."""
MANY = 3
"""So many runs of the same weights are steps in time, where they are not blocks in depth."""
LINEAR = REARRANGEMENTS | SCALINGS | MEANS | PRODUCTS | LOOKUPS | NORMS | {"sum"}
"""Operations that are linear in the samples where their other operands are weights."""


def common_start(sequences: Iterable[Sequence[T]]) -> list[T]:
    """What all of them begin with."""
    columns = zip(*sequences, strict=False)
    return [column[0] for column in takewhile(lambda column: len({*column}) == 1, columns)]


@dataclass(eq=False)
class Stretch:
    """What lies between two cuts."""

    start: int
    end: int

    def holds(self, other: Stretch) -> bool:
        """Whether another one lies inside."""
        return self.start <= other.start and other.end <= self.end


@dataclass(eq=False)
class Segment(Stretch):
    """What lies between two consecutive cuts where a path goes around some value."""

    inner: tuple[int, ...]
    summed: bool = False
    """Whether the paths are added at its end."""
    gate: bool = False
    """Whether they are neither added nor put side by side there: multiplied, attended to."""
    skip: bool = False
    """Whether one of the paths leaves the state as it is."""
    linear: bool = False
    """Whether all paths are: convolutions side by side, which are one convolution."""
    projected: bool = False
    """Whether one path that is added is linear and another is not: a skip of another shape."""

    @property
    def made(self) -> tuple[int, ...]:
        """All values after its start."""
        return (*self.inner, self.end)


@dataclass(eq=False)
class Span(Stretch):
    """A module call that one cut enters and one leaves."""

    call: Call


@dataclass(eq=False)
class Block(Stretch):
    """What turns one state into the next."""

    name: str
    segments: tuple[Segment, ...] = ()
    call: Call | None = None
    """The module call that it is, where it is one."""


class Graph:
    """The values on the way from the samples to the logits."""

    def __init__(self, tape: Tape, logits: int) -> None:
        self.tape, self.nodes, self.logits = tape, tape.nodes, logits
        useful = {logits}
        for node in reversed(self.nodes[: logits + 1]):
            useful.update(node.parents if node.index in useful else ())
        self.useful = sorted(useful)
        """The values that the logits depend on, in the order in which they were made."""
        readers: dict[int, list[int]] = {index: [] for index in self.useful}
        for index in self.useful:
            for parent in self.nodes[index].parents:
                readers[parent].append(index)
        self.cuts: list[int] = []
        """The values on every path from the samples to the logits."""
        furthest = max(index for index in self.useful if not self.nodes[index].parents)
        for index in self.useful:
            if furthest <= index:
                self.cuts.append(index)
            furthest = max([furthest, *readers[index]])
        where = {index: number for number, index in enumerate(self.useful)}
        between = [
            (start, end, self.useful[where[start] + 1 : where[end]])
            for start, end in pairwise(self.cuts)
        ]
        self.segments = [
            self._segment(start, end, tuple(inner)) for start, end, inner in between if inner
        ]
        weighted = [own for own in self.segments if any(map(self.is_layer, own.made))]
        layers = [
            Stretch(start, end)
            for start, end in [(self.cuts[0], self.cuts[0]), *pairwise(self.cuts)]
            if self.is_layer(end) and not any(own.end == end for own in weighted)
        ]
        self.items = sorted([*layers, *weighted], key=lambda item: (item.start, item.end))
        """What has weights on the way, layers and segments; the last one is the head."""
        self.spans: list[Span] = []
        """Outer ones before inner ones; without the network itself."""
        cuts = set(self.cuts)
        for call in tape.calls[1:]:
            entering = {index for index in call.inputs if index in useful}
            # Attention weights, for one, are returned for people to see, and read inside alone.
            leaving = {
                index
                for index in call.outputs
                if index == logits
                or any(not self.made_in(reader, call) for reader in readers.get(index, ()))
            }
            if (
                len(entering) == len(leaving) == 1
                and max(entering) < max(leaving)
                and entering | leaving <= cuts
            ):
                self.spans.append(Span(entering.pop(), leaving.pop(), call))
        self.additive = self._additive() if self.items else []
        """The segments that add to a state or stand next to it, between embedding and head."""
        self.residual = any(segment.skip or segment.projected for segment in self.additive)

    def is_layer(self, index: int) -> bool:
        """Whether a value is what a layer with weights makes of another."""
        return bool(self.nodes[index].parameters) and self.nodes[index].op in WEIGHTING

    def made_in(self, index: int, call: Call) -> bool:
        """Whether a value was made within a module call."""
        return call.path[-1] in self._path(index)

    def _path(self, index: int) -> tuple[int, ...]:
        return self.tape.calls[self.nodes[index].call].path

    def around(self, stretch: Stretch) -> list[Span]:
        """The module calls around a stretch that do not hold the head, outermost first."""
        return [
            span for span in self.spans if span.holds(stretch) and not span.holds(self.items[-1])
        ]

    def parameters(self, *stretches: Stretch, outside: bool = False) -> frozenset[str]:
        """The parameters that are read on the way within some stretches, or outside all of them."""
        inside = (
            any(own.start < index <= own.end for own in stretches) != outside
            for index in self.useful
        )
        taken = [self.nodes[index] for index, own in zip(self.useful, inside, strict=True) if own]
        return frozenset(name for node in taken for name in node.parameters)

    def innermost(self, segment: Segment) -> Call:
        """The innermost call in which all of a segment was computed."""
        return self.tape.calls[[0, *common_start(map(self._path, segment.made))][-1]]

    def parts(self, outer: Call, segments: Iterable[Segment]) -> list[Call]:
        """The outermost calls inside a call in which the values of some segments were made."""
        paths = [self._path(index) for segment in segments for index in segment.made]
        inside = [[call for call in path if call > outer.path[-1]] for path in paths]
        first = dict.fromkeys(calls[0] for calls in inside if calls)
        return [self.tape.calls[call] for call in first]

    def kind(self, outer: Call, block: Block) -> tuple[object, ...]:
        """What tells like blocks from unlike: the class, those of the parts, or the operations."""
        if block.call is not None:
            return (type(block.call.module),)
        classes = tuple(map(self._class, self.parts(outer, block.segments)))
        return classes or tuple(self.nodes[i].op for own in block.segments for i in own.made)

    def _class(self, call: Call) -> object:
        """The class of a module; of a container those of its parts."""
        if not isinstance(call.module, nn.Sequential):
            return type(call.module)
        return tuple(self._class(own) for own in self.tape.calls if own.path[:-1] == call.path)

    def maker(self, index: int) -> str:
        """What made a value, by name: the module that returned it, or the operation."""
        node = self.nodes[index]
        places = [own.place for own in node.sights if not own.function]
        returned = next((repr(name) for name, end, _ in places if name and end == "output"), "")
        within = repr(self.tape.calls[node.call].name).replace("''", "the network's forward")
        return "the input" if node.op == "input" else returned or f"{node.op} in {within}"

    def hidden(self, segment: Segment) -> list[int]:
        """The residual sums in a segment where they are several updates: something bypasses one.

        They are where weights lie between two of them, or two modules of one class have one each.
        """
        start = {segment.start: 1 << segment.start}
        reach, linear, through = start, {**start}, {segment.start: 0}
        sums: list[int] = []
        for index in segment.made:
            node = self.nodes[index]
            parents = [parent for parent in node.parents if parent in through]
            # Whether it is a layer, whose weights may come from the samples too.
            weighted = self.is_layer(index) or (node.op in PRODUCTS and len(node.parents) > 1)
            before = reach if weighted else through
            through[index] = reduce(or_, (before[parent] for parent in parents), 0)
            kept = node.op in LINEAR and (len(parents) == 1 or node.op in SUMS)
            linear[index] = 1 << index
            linear[index] |= reduce(and_, (linear[own] for own in parents)) if kept else 0
            reach[index] = reduce(or_, (reach[parent] for parent in parents), 1 << index)
            for one, other in permutations(parents, 2):
                around = 1 << one  # the state itself, or a projection of what the other began with
                if node.op in SUMS:
                    around |= linear[one] & ~linear[other]
                if node.op in SUMS | CONCATENATIONS and around & through[other]:
                    sums.append(index)
                    break
        calls = [call for index in sums for call in {*self._path(index)}]
        like = {call: type(self.tape.calls[call].module) for call in calls}
        own = Counter(kind for kind in like.values() if kind is not nn.Sequential)
        between = any(through[later] >> sooner & 1 for sooner, later in combinations(sums, 2))
        return sums if between or max(own.values(), default=0) > 1 else []

    def repeated(self, blocks: Sequence[Stretch]) -> dict[str, int]:
        """How often modules run that hold most weights, many times and outside of some blocks."""
        reads: dict[str, list[int]] = {}
        for index in filter(self.is_layer, self.useful):
            for name in sorted(self.nodes[index].parameters):
                reads.setdefault(name, []).append(index)
        many = [name for name, own in reads.items() if len(own) >= MANY]
        weights, repeats = (sum(self.tape.sizes[name] for name in own) for own in (reads, many))
        times = Counter(call.name for call in self.tape.calls)
        found: dict[str, int] = {}
        for name in many if 2 * repeats > weights else ():
            held = [any(own.start < index <= own.end for own in blocks) for index in reads[name]]
            module = name.rpartition(".")[0] or name
            if not all(held):
                found[module] = max(times[module], len(held), found.get(module, 0))
        return found

    def _segment(self, start: int, end: int, inner: tuple[int, ...]) -> Segment:
        last, within = self.nodes[end], {start, *inner}
        segment = Segment(start, end, inner, last.op in SUMS, last.op not in SUMS | CONCATENATIONS)
        kept = REARRANGEMENTS | MEANS | MAXIMA if segment.summed else REARRANGEMENTS
        scaled = SCALINGS | SUMS | MIXING if segment.summed else SCALINGS | SUMS
        # The state itself, what holds it scaled, normalised or added to, what is linear in it.
        pure, held, linear = {start}, {start}, {start}
        for index in segment.made:
            op = self.nodes[index].op
            inside = [parent for parent in self.nodes[index].parents if parent in within]
            if op in LINEAR and linear.issuperset(inside) and (op in SUMS or len(inside) == 1):
                linear.add(index)
            if op in kept and len(inside) == 1:
                pure |= {index} if inside[0] in pure else set()
                held |= {index} if inside[0] in held else set()
            elif op in scaled and held.intersection(inside):
                held.add(index)
        skipped = held.intersection(last.parents) and not pure.issuperset(last.parents)
        segment.skip = bool(skipped) and not segment.gate
        segment.linear = linear == {*within, end}
        straight = {parent in linear for parent in last.parents if parent in within}
        segment.projected = segment.summed and len(straight) == 2
        return segment

    def _additive(self) -> list[Segment]:
        first, head = self.items[0], self.items[-1]
        between = [
            own
            for own in self.segments
            if not own.gate
            and own.end <= head.start
            and (own.skip or own.start > first.start)
            and self.parameters(own)
        ]
        spans = [(own, around[-1]) for own in between if (around := self.around(own))]
        classes = {own: type(span.call.module) for own, span in spans}
        like = {classes[own] for own in between if own.skip and own in classes}
        return [
            own
            for own in between
            if own.skip or (own.summed and not own.linear) or classes.get(own) in like
        ]
