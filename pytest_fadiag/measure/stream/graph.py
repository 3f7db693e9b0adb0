"""The values between samples and logits: which carry everything, and what lies between those."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import reduce
from itertools import combinations, pairwise, permutations
from operator import and_, or_

from torch import nn

from .tape import Call, Tape


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
"""Operations that leave a state the same state, seen otherwise."""
MEANS = _ops(
    "mean avg_pool1d avg_pool2d avg_pool3d _adaptive_avg_pool2d upsample_nearest2d "
    "upsample_bilinear2d upsample_bicubic2d"
)
HOLDING = REARRANGEMENTS | SCALINGS | SUMS
"""Operations of skips: the state is moved, scaled or added to."""
CHANGING = MEANS | _ops(
    "max_pool1d max_pool2d_with_indices max_pool3d_with_indices native_layer_norm "
    "native_group_norm _fused_rms_norm bmm"
)
"""Operations of skips that end in a sum: the state is pooled, normalised, or its streams mixed."""
PRODUCTS = _ops("mm addmm bmm baddbmm mv addmv dot linear _trilinear convolution")
LOOKUPS = _ops("embedding embedding_bag index index_select")
WEIGHTING = (
    PRODUCTS
    | LOOKUPS
    | _ops("mkldnn_rnn_layer _native_multi_head_attention _transformer_encoder_layer_fwd")
)
"""Operations that make a layer where one of their operands comes from parameters."""
LINEAR = (
    REARRANGEMENTS
    | SCALINGS
    | MEANS
    | PRODUCTS
    | LOOKUPS
    | _ops(
        "sum native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training "
        "cudnn_batch_norm"
    )
)
"""Operations that are linear in the samples where their other operands are weights."""


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

    made: tuple[int, ...]
    """All values after its start, up to its end."""
    adds: bool
    """Whether one of the paths that are joined at its end holds the state, or projects it."""


@dataclass(eq=False)
class Block(Stretch):
    """What turns one state into the next: a module call, or what lies between two cuts."""

    name: str
    kind: object = field(default_factory=object)
    """What tells like blocks from unlike: the class of the module, or those of the parts."""


class Graph:
    """The values on the way from the samples to the logits."""

    def __init__(self, tape: Tape, logits: int) -> None:
        self.tape, self.nodes = tape, tape.nodes
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
        self.segments: list[Segment] = []
        first = self.cuts[0]
        self.items = [Stretch(first, first)] if self.is_layer(first) else []
        """What has weights on the way, layers and segments; the last one is the head."""
        where = {index: number for number, index in enumerate(self.useful)}
        for start, end in pairwise(self.cuts):
            made = self.useful[where[start] + 1 : where[end] + 1]
            item = Stretch(start, end)
            if len(made) > 1:
                item = self._segment(start, made)
                self.segments.append(item)
            if any(map(self.is_layer, made)):
                self.items.append(item)
        self.spans: dict[Call, Block] = {}
        """The calls that one cut enters and one leaves, outer ones before inner ones."""
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
            ends = min(entering, default=0), max(leaving, default=0)
            single = len(entering) == len(leaving) == 1 and ends[0] < ends[1]
            if single and cuts.issuperset(ends):
                self.spans[call] = Block(*ends, call.name, (type(call.module),))
        self.additive = self._additive() if self.items else []
        """The segments that add to a state or stand next to it, between embedding and head."""

    def _segment(self, start: int, made: list[int]) -> Segment:
        last = self.nodes[made[-1]]
        holding = HOLDING | CHANGING if last.op in SUMS else HOLDING
        held, linear = {start}, {start}  # what still holds the state, and what is linear in it
        for node in (self.nodes[index] for index in made):
            straight = node.op in SUMS or len(node.parents) == 1
            if straight and node.op in LINEAR and linear.issuperset(node.parents):
                linear.add(node.index)
            if node.op in holding and held.intersection(node.parents):
                held.add(node.index)
        skip = last.op in SUMS | CONCATENATIONS and held.intersection(last.parents)
        # One path is linear and another is not: a skip to another shape.
        paths = {parent in linear for parent in last.parents}
        adds = bool(skip) or (last.op in SUMS and len(paths) == 2)
        return Segment(start, last.index, tuple(made), adds)

    def _additive(self) -> list[Segment]:
        end = self.items[-1].start
        between = [own for own in self.segments if own.end <= end and self.parameters(own)]
        kinds = {own: [span.kind for span in self.around(own)][-1:] for own in between}
        adding = [kinds[own] for own in between if own.adds and kinds[own]]
        return [own for own in between if own.adds or kinds[own] in adding]

    def is_layer(self, index: int) -> bool:
        """Whether a value is what a layer with weights makes of another."""
        return bool(self.nodes[index].parameters) and self.nodes[index].op in WEIGHTING

    def between(self, after: int, last: int) -> list[int]:
        """The cuts after one up to another."""
        return [cut for cut in self.cuts if after < cut <= last]

    def made_in(self, index: int, call: Call) -> bool:
        """Whether a value was made within a module call."""
        return call.path[-1] in self._path(index)

    def _path(self, index: int) -> tuple[int, ...]:
        return self.tape.calls[self.nodes[index].call].path

    def around(self, stretch: Stretch) -> list[Block]:
        """The module calls around a stretch that do not hold the head, outermost first."""
        spans, head = self.spans.values(), self.items[-1]
        return [span for span in spans if span.holds(stretch) and not span.holds(head)]

    def parameters(self, *stretches: Stretch, outside: bool = False) -> frozenset[str]:
        """The parameters that are read on the way within some stretches, or outside all of them."""
        taken = [
            self.nodes[index].parameters
            for index in self.useful
            if any(own.start < index <= own.end for own in stretches) != outside
        ]
        return frozenset[str]().union(*taken)

    def calls_in(self, stretch: Stretch) -> list[Call]:
        """The calls in which something within a stretch was made."""
        made = (index for index in self.useful if stretch.start < index <= stretch.end)
        return [self.tape.calls[call] for call in {own for at in made for own in self._path(at)}]

    def parts(self, segment: Segment) -> list[Call]:
        """The calls that a segment consists of: those just below the one that holds all of it."""
        paths = [self._path(index) for index in segment.made]
        depth = len({*paths[0]}.intersection(*paths))
        below = dict.fromkeys(call for path in paths for call in path[depth : depth + 1])
        return [self.tape.calls[call] for call in below]

    def class_of(self, call: Call) -> object:
        """The class of a module; of a container those of its parts."""
        if not isinstance(call.module, nn.Sequential):
            return type(call.module)
        return tuple(self.class_of(own) for own in self.tape.calls if own.path[:-1] == call.path)

    def maker(self, index: int) -> str:
        """What made a value, by name: the module that returned it, or the operation."""
        node = self.nodes[index]
        places = [own.place for own in node.sights if not own.function]
        names = [repr(name) for name, end, _ in places if name and end == "output"]
        within = repr(self.tape.calls[node.call].name).replace("''", "the network's forward")
        return "the input" if node.op == "input" else [*names, f"{node.op} in {within}"][0]

    def hidden(self, segment: Segment) -> list[int]:
        """The residual sums in a segment where they are several updates: something bypasses one.

        They are where weights lie between two of them, or two modules of one class have one each.
        """
        # Of each value, as bits: what leads to it, what it is linear in, and what leads to it
        # through weights.
        start = {segment.start: 1 << segment.start}
        reach, linear, through = start, {**start}, {segment.start: 0}
        sums: list[int] = []
        for index in segment.made:
            node, own = self.nodes[index], 1 << index
            # Whether it is a layer, whose weights may come from the samples too.
            weighted = self.is_layer(index) or (node.op in PRODUCTS and len(node.parents) > 1)
            before = reach if weighted else through
            through[index] = reduce(or_, (before[parent] for parent in node.parents))
            reach[index] = own | reduce(or_, (reach[parent] for parent in node.parents))
            kept = node.op in LINEAR and (len(node.parents) == 1 or node.op in SUMS)
            parts = (linear[parent] | ~reach[parent] for parent in node.parents)
            linear[index] = own | (reduce(and_, parts) & reach[index] if kept else 0)
            for one, other in permutations(node.parents, 2):
                around = 1 << one  # the state itself, or a projection of what the other began with
                if node.op in SUMS:
                    around |= linear[one] & ~linear[other]
                if node.op in SUMS | CONCATENATIONS and around & through[other]:
                    sums.append(index)
                    break
        between = any(through[later] >> sooner & 1 for sooner, later in combinations(sums, 2))
        calls = {call for index in sums for call in self._path(index)}
        classes = Counter(type(self.tape.calls[call].module) for call in calls)
        del classes[nn.Sequential]
        return sums if between or max(classes.values(), default=0) > 1 else []
