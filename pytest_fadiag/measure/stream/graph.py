"""The values between samples and logits: which carry everything, and what lies between those."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from torch import nn

from .tape import OUTSIDE_TORCH, Call, Tape


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
KEEPING = (
    HOLDING
    | MEANS
    | _ops(
        "sum amax max_pool1d max_pool2d_with_indices max_pool3d_with_indices "
        "relu leaky_relu prelu elu gelu silu mish softplus hardswish"
    )
)
"""Operations after which a state that explodes is as large as before."""
PRODUCTS = _ops("mm addmm bmm baddbmm mv addmv dot linear _trilinear convolution _cdist_forward")
LOOKUPS = _ops("embedding embedding_bag index index_select")
WEIGHTING = (
    PRODUCTS
    | LOOKUPS
    | _ops("mkldnn_rnn_layer _native_multi_head_attention _transformer_encoder_layer_fwd")
    | {OUTSIDE_TORCH}
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

MANY = 3
"""From this many runs, the same weights are steps in time, where they are not blocks in depth."""


@dataclass(eq=False)
class Stretch:
    """What lies between two cuts."""

    start: int
    end: int

    def holds(self, other: Stretch) -> bool:
        """Whether another one lies inside."""
        return self.start <= other.start and other.end <= self.end

    def lies_in(self, others: Iterable[Stretch]) -> bool:
        """Whether one of some others holds it."""
        return any(other.holds(self) for other in others)


@dataclass(eq=False)
class Segment(Stretch):
    """What lies between two consecutive cuts where a path goes around some value."""

    values: tuple[int, ...]
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
        self.tape = tape
        self.nodes = tape.nodes
        self.useful = self._leading_to(logits)
        """The values that the logits depend on, in the order in which they were made."""
        self.unread = tape.sizes.keys() - self._parameters(self.useful)
        """The parameters that no sample needs, such as feedback weights, or an expert's."""
        self.readers = self._readers()
        """The useful values that are made of each."""
        self.cuts = self._cuts()
        """The values on every path from the samples to the logits."""
        self.segments: list[Segment] = []
        self.items: list[Stretch] = []
        """What has weights on the way, layers and segments."""
        self._divide()
        self.spans: dict[Call, Block] = {}
        """The calls that one cut enters and one leaves, outer ones before inner ones."""
        cuts = frozenset(self.cuts)
        for call in tape.calls[1:]:
            self._add_span(call, cuts)
        self.head = self._head()
        """What makes the logits of the last state."""
        self.additive = self._additive()
        """The segments that add to a state or stand next to it, between embedding and head."""

    def _leading_to(self, logits: int) -> list[int]:
        useful = {logits}
        for node in reversed(self.nodes[: logits + 1]):
            if node.index in useful:
                useful.update(node.parents)
        return sorted(useful)

    def _readers(self) -> dict[int, list[int]]:
        readers: dict[int, list[int]] = {}
        for index in self.useful:
            readers[index] = []
            for parent in self.nodes[index].parents:
                readers[parent].append(index)
        return readers

    def _cuts(self) -> list[int]:
        cuts = []
        furthest = max(index for index in self.useful if not self.nodes[index].parents)
        for index in self.useful:
            if furthest <= index:
                cuts.append(index)
            furthest = max([furthest, *self.readers[index]])
        return cuts

    def _divide(self) -> None:
        """Find segments and items between the cuts."""
        first = self.cuts[0]
        if self.is_layer(first):
            self.items.append(Stretch(first, first))
        for start, end in pairwise(self.cuts):
            stretch = Stretch(start, end)
            inner = self.inside(stretch)
            if len(inner) > 1:
                stretch = self._segment(start, inner)
                self.segments.append(stretch)
            if any(map(self.is_layer, inner)):
                self.items.append(stretch)

    def _segment(self, start: int, inner: list[int]) -> Segment:
        last = self.nodes[inner[-1]]
        holding_ops = HOLDING
        if last.op in SUMS:
            holding_ops = HOLDING | CHANGING
        holding = {start}  # values that still hold the state
        linear = {start}  # values that are linear in it
        for index in inner:
            node = self.nodes[index]
            moves = node.op in holding_ops and not self.is_layer(index)
            if moves and holding.intersection(node.parents):
                holding.add(index)
            straight = node.op in SUMS or len(node.parents) == 1
            if straight and node.op in LINEAR and linear.issuperset(node.parents):
                linear.add(index)
        adds = False
        if last.op in SUMS | CONCATENATIONS and holding.intersection(last.parents):
            adds = True
        elif last.op in SUMS:
            # One path is linear and another is not: a skip to another shape.
            adds = len({parent in linear for parent in last.parents}) == 2
        return Segment(start, last.index, tuple(inner), adds)

    def _add_span(self, call: Call, cuts: frozenset[int]) -> None:
        """Note a call that one cut enters and one leaves."""
        entering = {index for index in call.inputs if index in self.readers}
        leaving = {index for index in call.outputs if self._leaves(index, call)}
        if len(entering) != 1 or len(leaving) != 1:
            return
        start = entering.pop()
        end = leaving.pop()
        if start < end and start in cuts and end in cuts:
            self.spans[call] = Block(start, end, call.name, (type(call.module),))

    def _leaves(self, index: int, call: Call) -> bool:
        """Whether a value is read outside a call, unlike attention weights returned for people."""
        if index == self.useful[-1]:
            return True
        return any(not self.made_in(reader, call) for reader in self.readers.get(index, ()))

    def _head(self) -> Stretch:
        """The last layer; or what reads the state that a last sum leaves, as a distance does."""
        if not self.items:
            return Stretch(self.cuts[0], self.cuts[0])
        last = self.items[-1]
        if isinstance(last, Segment) and self._leaves_state(last):
            return Stretch(*self.cuts[-2:])
        return last

    def _leaves_state(self, last: Segment) -> bool:
        """Whether the last segment is a block, and does not add up logits."""
        logits = self.cuts[-1]
        classes = self._classes(last)
        is_repeated = any(
            other.adds and other is not last and self._classes(other) == classes
            for other in self.segments
        )
        if self.size(last.end) != self.size(logits):
            return last.adds or is_repeated
        returned = set(self.ops(self.between(last.end, logits))) <= {"view"}
        return is_repeated and not returned

    def _classes(self, segment: Segment) -> list[object]:
        return list(map(self.class_of, self.parts(segment)))

    def _additive(self) -> list[Segment]:
        kinds: dict[Segment, object] = {}
        """Of the innermost module around each segment, if there is one."""
        adding = set()
        for segment in self.segments:
            if segment.end > self.head.start or not self.parameters(segment):
                continue
            kinds[segment] = None
            for span in self.around(segment)[-1:]:
                kinds[segment] = span.kind
            if segment.adds:
                adding.add(kinds[segment])
        adding.discard(None)
        return [segment for segment, kind in kinds.items() if segment.adds or kind in adding]

    @property
    def is_residual(self) -> bool | None:
        """Whether blocks add to their state; ``None`` where torch does not see what they do."""
        layers = [index for index in self.useful if self.is_layer(index)]
        if OUTSIDE_TORCH in self.ops(layers):
            return None
        return bool(self.additive)

    def is_layer(self, index: int) -> bool:
        """Whether a value is what a layer with weights makes of another."""
        node = self.nodes[index]
        if not node.parameters:
            return False
        # As prototypes do: each of them is taken from a state, or multiplied by it.
        spreads = node.op in ("sub", "mul") and self.size(index) > sum(map(self.size, node.parents))
        return spreads or node.op in WEIGHTING

    def between(self, after: int, last: int) -> list[int]:
        """The cuts after one up to another."""
        return self.cuts[bisect_right(self.cuts, after) : bisect_right(self.cuts, last)]

    def inside(self, stretch: Stretch) -> list[int]:
        """The useful values after the start of a stretch, up to its end."""
        first = bisect_right(self.useful, stretch.start)
        return self.useful[first : bisect_right(self.useful, stretch.end)]

    def size(self, index: int) -> int:
        """How many numbers a value holds."""
        return math.prod(self.nodes[index].shape)

    def ops(self, indices: Iterable[int]) -> tuple[str, ...]:
        """The operations that made some values."""
        return tuple(self.nodes[index].op for index in indices)

    def made_in(self, index: int, call: Call) -> bool:
        """Whether a value was made within a module call."""
        return call.path[-1] in self._path(index)

    def _path(self, index: int) -> tuple[int, ...]:
        return self.tape.calls[self.nodes[index].call].path

    def around(self, stretch: Stretch) -> list[Block]:
        """The module calls around a stretch that do not hold the head, outermost first."""
        spans = self.spans.values()
        return [span for span in spans if span.holds(stretch) and not span.holds(self.head)]

    def parameters(self, *stretches: Stretch) -> frozenset[str]:
        """The parameters that are read on the way within some stretches."""
        return self._parameters(set[int]().union(*map(self.inside, stretches)))

    def parameters_outside(self, *stretches: Stretch) -> frozenset[str]:
        """The parameters that are read on the way outside all of some stretches."""
        return self._parameters(set(self.useful).difference(*map(self.inside, stretches)))

    def _parameters(self, indices: Iterable[int]) -> frozenset[str]:
        names: set[str] = set()
        for index in indices:
            names |= self.nodes[index].parameters
        return frozenset(names)

    def calls_around(self, indices: Iterable[int]) -> list[Call]:
        """The calls in which some values were made."""
        calls: set[int] = set()
        for index in indices:
            calls.update(self._path(index))
        return list(map(self.tape.calls.__getitem__, calls))

    def parts(self, stretch: Stretch) -> list[Call]:
        """The calls that a stretch consists of: those just below the one that holds all of it."""
        paths = [self._path(index) for index in self.inside(stretch)]
        depth = len(set(paths[0]).intersection(*paths))
        below: dict[int, Call] = {}
        for path in paths:
            for call in path[depth : depth + 1]:
                below[call] = self.tape.calls[call]
        return list(below.values())

    def class_of(self, call: Call) -> object:
        """The class of a module; of a container those of its parts."""
        if not isinstance(call.module, nn.Sequential):
            return type(call.module)
        return tuple(map(self.class_of, call.parts))

    def maker(self, index: int) -> str:
        """What made a value, by name: the module that returned it, or the operation."""
        node = self.nodes[index]
        if node.op == "input":
            return "the input"
        for site in node.sights:
            name, end, _ = site.place
            if name and end == "output" and not site.function:
                return repr(name)
        module = self.tape.calls[node.call].name
        if not module:
            return f"{node.op} in the network's forward"
        return f"{node.op} in {module!r}"
