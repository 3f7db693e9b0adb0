"""What each value of a segment comes from, and whether several updates hide in it."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, permutations

from torch import nn

from .graph import CONCATENATIONS, LINEAR, MANY, PRODUCTS, SUMS, Graph, Segment


def hidden_sums(graph: Graph, segment: Segment) -> list[int]:
    """The residual sums in a segment where they are several updates: something bypasses one.

    They are where weights lie between two of them, one joins layers that follow each other, or two
    modules of one class have one each.
    """
    flow = Flow(graph, segment)
    sums = flow.sums()
    for sooner, later in combinations(sums, 2):
        if flow.weighted[later] >> sooner & 1:
            return sums
    if any(map(flow.joins_a_chain, sums)):
        return sums
    return tower_sums(graph, segment)


def tower_sums(graph: Graph, segment: Segment) -> list[int]:
    """The residual sums in a segment where two modules of one class have one each."""
    sums = Flow(graph, segment).sums()
    classes = Counter(type(call.module) for call in graph.calls_around(sums))
    del classes[nn.Sequential]
    if max(classes.values(), default=0) > 1:
        return sums
    return []


class Flow:
    """What each value of a segment comes from; sets of values are bits of a number."""

    def __init__(self, graph: Graph, segment: Segment) -> None:
        self.graph = graph
        self.segment = segment
        start = 1 << segment.start
        self.reach = {segment.start: start}
        """What leads to a value, itself included."""
        self.linear = {segment.start: start}
        """What it is linear in."""
        self.weighted = {segment.start: 0}
        """What leads to it through weights."""
        self.unstepped = {segment.start: 0}
        """What leads to it through weights other than those of a scan, which run many times."""
        self.runs = Counter[str]()
        for index in filter(graph.is_layer, segment.values):
            self.runs.update(graph.nodes[index].parameters)
        for index in segment.values:
            self._add(index)

    def _add(self, index: int) -> None:
        node = self.graph.nodes[index]
        reach = weighted = unstepped = 0
        linear = ~0
        for parent in node.parents:
            reach |= self.reach[parent]
            weighted |= self.weighted[parent]
            unstepped |= self.unstepped[parent]
            linear &= self.linear[parent] | ~self.reach[parent]
        # The weights of a product may come from the samples too.
        if self.graph.is_layer(index) or (node.op in PRODUCTS and len(node.parents) > 1):
            weighted = reach
            if not any(self.runs[name] >= MANY for name in node.parameters):
                unstepped = reach
        if node.op not in LINEAR or (len(node.parents) > 1 and node.op not in SUMS):
            linear = 0
        # A part of a state, such as one token in a scan, bypasses none of the others.
        if node.op == "view" and self.graph.size(index) < self.graph.size(node.parents[0]):
            linear = 0
        self.weighted[index] = weighted
        self.unstepped[index] = unstepped
        self.reach[index] = reach | 1 << index
        self.linear[index] = (linear & self.reach[index]) | 1 << index

    def sums(self) -> list[int]:
        """The values that are residual sums."""
        return [index for index in self.segment.values if self._joins_a_bypass(index)]

    def _joins_a_bypass(self, index: int) -> bool:
        """Whether a value joins what weights made of a state and what bypasses them."""
        node = self.graph.nodes[index]
        if node.op not in SUMS | CONCATENATIONS:
            return False
        for bypass, update in permutations(node.parents, 2):
            if node.op not in SUMS:
                if self.unstepped[update] >> bypass & 1:
                    return True
                continue
            common = self.reach[bypass] & self.reach[update]
            fork = common.bit_length() - 1
            # Held, or projected: what the update begins with, and goes through weights from there.
            skips = self.linear[bypass] & ~self.linear[update] | 1 << bypass
            if common and (skips & self.weighted[update]) >> fork & 1:
                return True
        return False

    def joins_a_chain(self, index: int) -> bool:
        """Whether a concatenation joins a value, a layer of that, and a layer of the latter."""
        node = self.graph.nodes[index]
        if node.op in SUMS:
            return False
        joined = layers = 0
        for operand in sorted(node.parents):
            if self.unstepped[operand] & layers:
                return True
            if self.unstepped[operand] & joined:
                layers |= 1 << operand
            joined |= 1 << operand
        return False
