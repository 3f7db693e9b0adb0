"""The states of a stream: which value is h_l, and where it can be seen while the network runs."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence

from ...judge.errors import AuditError
from .blocks import Anatomy, Block
from .graph import REARRANGEMENTS
from .sites import Site
from .tape import Node, Tape


class AmbiguousSamples(AuditError):
    """A state has two dimensions of the size of the batch; another number of samples tells them apart."""


class States:
    """h_0 … h_L of some blocks: what enters each block, and what the last one leaves behind.

    Where layers stand between two blocks, as between the stages of a hierarchical network, what the first of them leaves: a
    norm among those layers would hide that it explodes.
    """

    def __init__(self, anatomy: Anatomy, blocks: Sequence[Block], last: int | None = None) -> None:
        self.anatomy, self.blocks, self.named_last = anatomy, blocks, last
        self.tape, self.graph = anatomy.tape, anatomy.graph

    def nodes(self) -> list[Node]:
        """The values h_0 … h_L; an error where one of them cannot be seen, or does not tell the samples apart."""
        first = self._seen(self.graph.cuts[0], self.blocks[0].start)
        between = [self._passed_on(before, after) for before, after in itertools.pairwise(self.blocks)]
        return [first, *between, self._last() if self.named_last is None else self._named(self.named_last)]

    def sites(self) -> tuple[Site, ...]:
        """Where each of them can be seen."""
        return tuple(site for node in self.nodes() if (site := site_of(self.tape, node)) is not None)

    def _named(self, last: int) -> Node:
        """h_L where the user says which module takes it: it must not be what comes behind it, such as a normalised state."""
        own = self._last()
        done = [self.graph.nodes[cut] for cut in self.graph.cuts if own.index < cut <= last]
        if any(node.op not in REARRANGEMENTS or node.parameters for node in done):
            changed = next(node for node in done if node.op not in REARRANGEMENTS or node.parameters)
            raise AuditError(
                f"the state that was named as h_L comes behind {self.anatomy.maker(changed.index)}, which is part of the head: "
                "h_L is what the last block leaves"
            )
        node = self.graph.nodes[last]
        return node if self.measurable(node) else own

    def _passed_on(self, before: Block, after: Block) -> Node:
        """The state between two blocks."""
        behind = [cut for cut in self.graph.cuts if before.end < cut <= after.start]
        if self._layered(before, after) and (self._resized(before, after) or self._ops(behind) not in self._steps()):
            return self._left(before.end, behind)
        return self._seen(before.end, after.start)

    def _seen(self, first: int, last: int) -> Node:
        """The last value that can be measured of those from one cut to another, between which no block lies."""
        between = [self.graph.nodes[cut] for cut in self.graph.cuts if first <= cut <= last]
        for node in reversed(between):
            if self.measurable(node):
                return node
        raise self._unmeasurable(between)

    def _unmeasurable(self, nodes: Sequence[Node]) -> AuditError:
        shape, batch = nodes[-1].shape, self.tape.batch
        if any(node.shape.count(batch) > 1 for node in nodes):
            return AmbiguousSamples(
                f"a state has shape {shape} for {batch} samples: which dimension counts them cannot be told"
            )
        if not any(batch in node.shape for node in nodes) and any(size % batch == 0 for size in shape):
            return AuditError(
                f"the states have samples and tokens folded into one dimension (shape {shape} for {batch} samples), so they "
                "are no states of single samples; let the blocks take [samples, tokens, features]"
            )
        if not any(node.floating for node in nodes):
            return AuditError(
                "this network has no stream that the audit could follow: all that comes behind "
                f"{self.anatomy.maker(nodes[-1].index)}, which holds no fractions, is one stretch, since something goes on "
                "beside every value in it (a second tower, a decoder that reads the input again). No --fa-stream passes"
            )
        return AuditError(f"a state of shape {shape} for {batch} samples cannot be seen: no module and no function returns it")

    def measurable(self, node: Node) -> bool:
        """Whether a value is fractions of single samples, and a module or a function returns it."""
        return node.floating and node.shape.count(self.tape.batch) == 1 and site_of(self.tape, node) is not None

    def _last(self) -> Node:
        """h_L: what the last block leaves, and what is done to every state before the next block takes it."""
        end, head = self.blocks[-1].end, self.anatomy.items[-1][0]
        return self._left(end, [cut for cut in self.graph.cuts if end < cut <= head])

    def _left(self, end: int, behind: Sequence[int]) -> Node:
        """What a block leaves, with what is done to most states before the next block takes them."""
        for steps in self._steps():
            reached = behind[: len(steps)]
            resized = any(cut in self.graph.layers and self._size(cut) != self._size(end) for cut in reached)
            if self._ops(reached) == steps and not resized:
                return self._first_seen([end, *reached][::-1], behind[len(steps) :])
        # Of plain layers with pooling behind some: what all steps begin with. What a residual block leaves is h_L as it is.
        between = [] if self.anatomy.residual else [steps for steps, _ in self._between()]
        shared = len(_common_start([*between, self._ops(behind)])) if between else 0
        return self._first_seen([end, *behind[:shared]][::-1], behind[shared:])

    def _size(self, cut: int) -> int:
        return math.prod(self.graph.nodes[cut].shape)

    def _ops(self, cuts: Sequence[int]) -> list[str]:
        return [self.graph.nodes[cut].op for cut in cuts]

    def _first_seen(self, reached: Sequence[int], behind: Sequence[int]) -> Node:
        # What a function makes inside is seen when it returns: a view of the same value.
        for cut in (reached[0], *(cut for cut in behind if self._same_value(cut))):
            if self.measurable(self.graph.nodes[cut]):
                return self.graph.nodes[cut]
        raise self._unmeasurable([self.graph.nodes[reached[0]]])

    def _same_value(self, cut: int) -> bool:
        return self.graph.nodes[cut].op in ("view", "_unsafe_view", "alias", "transpose", "permute", "unsqueeze", "squeeze")

    def _steps(self) -> list[list[str]]:
        """What is done to the states between two blocks, if it is done to most of them."""
        between = self._between()
        usual = [
            (-count, len(steps), steps)
            for (steps, layered), count in Counter(between).items()
            if not layered or (count > 1 and 2 * count > len(between))
        ]
        return [list(steps) for _, _, steps in sorted(usual)]

    def _between(self) -> list[tuple[tuple[str, ...], bool]]:
        """What is done to each state before the next block takes it, and whether a layer is among that.

        Layers that leave another size behind, as those between two stages, are done to none but this state.
        """
        units = self.blocks if len(self.blocks) > 1 or self.anatomy.residual else [self._embedding(), *self.blocks]
        between = []
        for before, after in itertools.pairwise(units):
            cuts = [cut for cut in self.graph.cuts if before.end < cut <= after.start]
            layered = self._layered(before, after)
            if not layered or not self._resized(before, after):
                between.append((tuple(self._ops(cuts)), layered))
        return between

    def _layered(self, before: Block, after: Block) -> bool:
        """Whether layers with weights stand between two blocks."""
        return any(before.end <= start and end <= after.start for start, end in self.anatomy.items)

    def _resized(self, before: Block, after: Block) -> bool:
        return self._size(before.end) != self._size(after.start)

    def _embedding(self) -> Block:
        start, end = self.anatomy.items[0]
        spans = [span for span in self.anatomy.spanning(start, end) if span.end <= self.blocks[0].start]
        return Block("", start, max((span.end for span in spans), default=end), frozenset())


def _common_start(steps: Sequence[Sequence[str]]) -> list[str]:
    """What all of them begin with."""
    start = []
    for own in zip(*steps, strict=False):
        if len(set(own)) > 1:
            break
        start.append(own[0])
    return start


def site_of(tape: Tape, node: Node) -> Site | None:
    """Where a value is shown to whoever watches: where it is first seen, before anything reads it; at a module if one can."""
    overwritten = tape.overwritten(node)
    # Of a tensor that enters a module others hold the same object, and may be the ones that write to it.
    sights = [
        sight
        for sight in node.sights
        if (node.read is None or sight.time < node.read)
        and not (overwritten and not sight.function and sight.place[1] == "input")
    ]
    at_modules = [sight for sight in sights if not sight.function]
    if not sights:
        return None
    return Site.at((at_modules or sights)[0], node.shape.index(tape.batch), copied=overwritten)
