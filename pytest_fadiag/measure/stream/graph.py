"""The values between the samples and the logits: which of them carry everything, and how paths around the others join again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from .tape import Node

SUMS = {"add", "sub", "rsub", "addcmul", "addcdiv", "lerp", "baddbmm", "addmm", "addbmm", "addmv"}
"""Operations that add one path to another."""
CONCATENATIONS = {
    *("cat", "stack", "copy", "slice_scatter", "select_scatter", "index_put", "index_copy", "index_add"),
    *("scatter", "scatter_add", "where", "masked_fill"),
}
"""Operations that put paths side by side."""
SCALINGS = {"mul", "div", "where", "masked_fill"}
REARRANGEMENTS = {
    *("view", "_unsafe_view", "_reshape_alias", "reshape", "permute", "transpose", "t", "expand", "repeat"),
    *("squeeze", "unsqueeze", "slice", "select", "split", "split_with_sizes", "chunk", "unbind", "narrow"),
    *("as_strided", "unfold", "roll", "flip", "alias", "clone", "contiguous", "_to_copy", "to", "detach"),
    *("lift_fresh", "constant_pad_nd", "reflection_pad2d", "pad", "index", "gather", "index_select", "cat"),
    *("stack", "copy", "neg", "add", "sub", "rsub", "native_dropout", "pixel_shuffle", "pixel_unshuffle"),
    *("channel_shuffle", "native_channel_shuffle", "im2col", "col2im"),
}
"""Operations after which a state is still the same state, seen otherwise: a path of these around a block is a skip."""
RESIZINGS = {
    *("avg_pool1d", "avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d", "max_pool1d", "max_pool2d_with_indices"),
    *("max_pool3d_with_indices", "upsample_nearest2d", "upsample_bilinear2d", "upsample_bicubic2d", "mean"),
}
"""Operations that a skip may hold too where the block changes the size of the state and adds to it."""
WEIGHTING = {
    *("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "matmul", "linear", "bilinear", "_trilinear", "einsum"),
    *("convolution", "_convolution", "conv2d", "convolution_overrideable", "embedding", "embedding_bag", "index"),
    *("index_select", "lstm", "gru", "mkldnn_rnn_layer", "mkldnn_linear", "_native_multi_head_attention"),
    *("_transformer_encoder_layer_fwd",),
}
"""Operations that make a layer where one of their operands comes from parameters."""
PRODUCTS = {"mm", "bmm", "baddbmm", "addmm", "mv", "dot", "matmul", "linear", "bilinear", "_trilinear", "convolution"}
"""Those of them that multiply sums of what they are given, whatever it comes from."""

LINEAR = (
    REARRANGEMENTS
    | RESIZINGS - {"max_pool1d", "max_pool2d_with_indices", "max_pool3d_with_indices"}
    | WEIGHTING - {"lstm", "gru", "mkldnn_rnn_layer", "_native_multi_head_attention", "_transformer_encoder_layer_fwd"}
    | {"native_batch_norm", "_native_batch_norm_legit_no_training", "_native_batch_norm_legit", "cudnn_batch_norm", "sum"}
)
"""Operations that are linear in the samples where their other operands are weights."""


class Join(Enum):
    """How the paths of a segment come together again."""

    SUM = "sum"
    CONCATENATION = "concatenation"
    GATE = "gate"
    """They are multiplied, compared, attended to: no state goes on beside a block."""


@dataclass(frozen=True)
class Segment:
    """What lies between two consecutive cuts where a path goes around some value."""

    start: int
    end: int
    inner: tuple[int, ...]
    join: Join
    skip: bool
    """Whether one of the paths leaves the state as it is."""
    parameters: frozenset[str]
    projected: bool = False
    """Whether one of the paths that are added is linear, and another is not: a skip that changes the shape."""


class Graph:
    """The values on the way from the samples to the logits."""

    def __init__(self, nodes: Sequence[Node], logits: int) -> None:
        self.nodes, self.logits = nodes, logits
        reaching = {logits}
        for node in reversed(nodes[: logits + 1]):
            if node.index in reaching:
                reaching.update(node.parents)
        self.useful = [node.index for node in nodes if node.index in reaching]
        """The values that the logits depend on, in the order in which they were made."""

    @cached_property
    def cuts(self) -> list[int]:
        """The values on every path from the samples to the logits."""
        last_use = dict.fromkeys(self.useful, -1)
        for index in self.useful:
            for parent in self.nodes[index].parents:
                last_use[parent] = index
        cuts, furthest = [], max(index for index in self.useful if not self.nodes[index].parents)
        for index in self.useful:
            if furthest <= index:
                cuts.append(index)
            furthest = max(furthest, last_use[index])
        return cuts

    @cached_property
    def readers(self) -> dict[int, list[int]]:
        """The values that were made of each, as far as the logits depend on them."""
        readers: dict[int, list[int]] = {index: [] for index in self.useful}
        for index in self.useful:
            for parent in self.nodes[index].parents:
                readers[parent].append(index)
        return readers

    @cached_property
    def position(self) -> dict[int, int]:
        """The number of each cut in their order."""
        return {cut: number for number, cut in enumerate(self.cuts)}

    @cached_property
    def segments(self) -> list[Segment]:
        """The stretches between cuts that some path goes around, in their order."""
        starts = dict(zip(self.cuts, self.cuts[1:], strict=False))
        inner: dict[int, list[int]] = {}
        cut = -1
        for index in self.useful:
            if index in self.position:
                cut = index
            else:
                inner.setdefault(cut, []).append(index)
        return [self._segment(start, starts[start], tuple(between)) for start, between in inner.items() if start in starts]

    @cached_property
    def layers(self) -> list[int]:
        """The cuts that a layer with weights makes, in their order; the last is the head's."""
        return [cut for cut in self.cuts if self.is_layer(cut)]

    def is_layer(self, index: int) -> bool:
        """Whether a value is what a layer with weights makes of another."""
        node = self.nodes[index]
        return bool(node.parameters) and node.op in WEIGHTING

    def is_product(self, index: int) -> bool:
        """Whether a value is made of others as by a layer, and the weights too come from the samples."""
        return self.nodes[index].op in PRODUCTS and len(self.nodes[index].parents) > 1

    def is_linear(self, segment: Segment) -> bool:
        """Whether all its paths are linear: convolutions side by side, which are one convolution, and no block that adds."""
        inside = {segment.start, *segment.inner}
        return all(
            self.nodes[index].op in SCALINGS | LINEAR
            and (self.nodes[index].op in SUMS or sum(parent in inside for parent in self.nodes[index].parents) == 1)
            for index in (*segment.inner, segment.end)
        )

    def _segment(self, start: int, end: int, inner: tuple[int, ...]) -> Segment:
        last = self.nodes[end]
        join = Join.SUM if last.op in SUMS else Join.CONCATENATION if last.op in CONCATENATIONS else Join.GATE
        kept = REARRANGEMENTS | RESIZINGS if join is Join.SUM else REARRANGEMENTS
        pure, held = {start}, {start}  # the state itself, and what holds it: scaled, or with something added
        for index in inner:
            node = self.nodes[index]
            inside = [parent for parent in node.parents if parent == start or parent in inner]
            if node.op in kept and len(inside) == 1:
                pure |= {index} if inside[0] in pure else set()
                held |= {index} if inside[0] in held else set()
            elif node.op in SCALINGS | SUMS and any(parent in held for parent in inside):
                held.add(index)
        skip = any(parent in held for parent in last.parents) and not all(parent in pure for parent in last.parents)
        parameters = frozenset(name for index in (*inner, end) for name in self.nodes[index].parameters)
        projected = join is Join.SUM and self._one_is_linear(start, inner, last)
        return Segment(start, end, inner, join, skip and join is not Join.GATE, parameters, projected)

    def _one_is_linear(self, start: int, inner: tuple[int, ...], last: Node) -> bool:
        """Whether some of what is added is linear in the state before it, and some is not."""
        linear, inside = {start}, {start, *inner}
        for index in inner:
            parents = [parent for parent in self.nodes[index].parents if parent in inside]
            if len(parents) == 1 and parents[0] in linear and self.nodes[index].op in LINEAR | SCALINGS:
                linear.add(index)
        return len({parent in linear for parent in last.parents if parent in inside}) == 2
