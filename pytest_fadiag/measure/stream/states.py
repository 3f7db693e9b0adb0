"""The states between the blocks of a stream, and where each of them is seen."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise

from ...judge.errors import AuditError
from .blocks import layer_block, refuse_repeats
from .graph import KEEPING, REARRANGEMENTS, SCALINGS, Block, Graph
from .sites import Site
from .tape import Node

State = tuple[Node, Site]


class AmbiguousSamples(AuditError):
    """A state has two dimensions of the size of the batch: another number of samples is needed."""


@dataclass(frozen=True)
class _Gap:
    """What is done to a state between two blocks."""

    cuts: list[int]
    ops: tuple[str, ...]
    hides: bool
    """Whether a layer with weights, or a norm, lies there."""
    resized: bool
    """Whether layers change the size of the state."""


def find_states(graph: Graph, blocks: list[Block], last: int | None) -> list[State]:
    """h_0 … h_L: what the first sum adds to, what enters each other block, what the last leaves.

    Between two blocks there may be what most gaps lack: layers, as between the stages of a
    hierarchical network, or a norm. It would hide that the block before explodes, so the state is
    the one before it. ``last`` is the value that is h_L for the user.
    """
    head = graph.head.start
    end = blocks[-1].end
    after_last = graph.between(end, head)
    gaps = [_gap(graph, before, after) for before, after in pairwise(blocks)]
    steps = _common_steps(graph, blocks, gaps, graph.ops(after_last))
    indices = [_first(graph, blocks[0])]
    for gap, before, after in zip(gaps, blocks, blocks[1:], strict=False):
        if gap.resized or (gap.hides and gap.ops not in steps):
            indices.append(_left_by(graph, before.end, gap.cuts, steps))
        else:
            indices.append(after.start)
    left = _left_by(graph, end, after_last, steps)
    if last is None:
        last = left
    _refuse_head(graph, graph.between(left, last))
    return [_state(graph, graph.nodes[index]) for index in [*indices, last]]


def _first(graph: Graph, block: Block) -> int:
    """What enters a block; or what its first sum adds to, after a norm that the skip passes."""
    for segment in graph.segments:
        if segment.adds and block.holds(segment):
            cuts = graph.between(block.start, segment.start)
            is_held = graph.size(segment.start) == graph.size(segment.end)
            if is_held and _hides(graph, cuts) and not any(map(graph.is_layer, cuts)):
                return segment.start
            break
    return block.start


def _gap(graph: Graph, before: Block, after: Block) -> _Gap:
    cuts = graph.between(before.end, after.start)
    layered = any(before.end <= item.start and item.end <= after.start for item in graph.items)
    resized = layered and graph.size(before.end) != graph.size(after.start)
    return _Gap(cuts, graph.ops(cuts), layered or _hides(graph, cuts), resized)


def _hides(graph: Graph, cuts: list[int]) -> bool:
    """Whether some values can hide how large the one before them was, as after a norm."""
    for cut in cuts:
        node = graph.nodes[cut]
        by_itself = node.op in SCALINGS and len(node.parents) > 1  # as h / h.norm()
        if node.op not in KEEPING or by_itself:
            return True
    return False


def _common_steps(
    graph: Graph, blocks: list[Block], gaps: list[_Gap], after_last: tuple[str, ...]
) -> list[tuple[str, ...]]:
    """What is done to states before the next block takes them, layers only if to most of them."""
    if len(blocks) == 1 and not graph.additive and blocks[0].start >= graph.items[0].end:
        # The embedding tells what is done to a state before a block takes it.
        gaps = [_gap(graph, layer_block(graph, graph.items[0]), blocks[0])]
    counts = Counter((gap.ops, gap.hides) for gap in gaps if not gap.resized)
    steps = []
    for (ops, hides), times in counts.most_common():
        repeated = times > 1 or after_last[: len(ops)] == ops
        if not hides or (repeated and 2 * times > counts.total()):
            steps.append(ops)
    return steps


def _left_by(graph: Graph, end: int, cuts: list[int], steps: list[tuple[str, ...]]) -> int:
    """What a block leaves, with what is done to most states."""
    for step in steps:
        reached = cuts[: len(step)]
        layers = filter(graph.is_layer, reached)
        resized = any(graph.size(cut) != graph.size(end) for cut in layers)
        if graph.ops(reached) == step and not resized:
            return [end, *reached][-1]
    if graph.additive:
        return end
    # Of plain layers with pooling after some: the activation alone.
    left = end
    for cut in cuts:
        if graph.size(cut) != graph.size(end) or "norm" in graph.nodes[cut].op:
            break
        left = cut
    return left


def _refuse_head(graph: Graph, cuts: list[int]) -> None:
    """Refuse a state that a user names as h_L after one of some values."""
    for cut in cuts:
        if graph.nodes[cut].op not in REARRANGEMENTS or graph.nodes[cut].parameters:
            raise AuditError(
                f"the state named as h_L comes after {graph.maker(cut)}, which is part of the "
                "head: h_L is what the last block leaves"
            )


def _state(graph: Graph, node: Node) -> State:
    """A value, and where it is first seen, at a module if one can; refused where it is no state."""
    while node.op == "view" and not node.sights:  # inside a function: what it shows was seen
        node = graph.nodes[node.parents[0]]
    batch = graph.tape.batch
    site = site_of(node)
    if site and node.dtype.is_floating_point and node.shape.count(batch) == 1:
        batch_dim = node.shape.index(batch)
        return node, replace(site, batch_dim=batch_dim, copied=node.overwritten)
    problem = f"a state has shape {node.shape} for {batch} samples"
    if node.shape.count(batch) > 1:
        raise AmbiguousSamples(f"{problem}: which dimension counts the samples cannot be told")
    if batch not in node.shape and any(size % batch == 0 for size in node.shape):
        raise AuditError(
            f"{problem}: samples and tokens are folded into one dimension; let the blocks take "
            "[samples, tokens, features]"
        )
    refuse_repeats(graph, [])
    raise AuditError(f"{problem}: {_why_unseen(graph, node)}")


def _why_unseen(graph: Graph, node: Node) -> str:
    if node.dtype.is_complex:
        return "its numbers are complex; let blocks hand on real and imaginary parts side by side"
    if not node.dtype.is_floating_point:
        return "it holds whole numbers"
    if graph.tape.vmapped:
        return "vmap hides what runs in it; audit a network without it, such as one member alone"
    if node.overwritten:
        return "one tensor holds several states, written one by one; let the forward use a list"
    return "no module and no function returns it"


def site_of(node: Node) -> Site | None:
    """Where a value is first seen, at a module if one can; what is expanded, where it is made."""
    sites = []
    for site in node.sights:
        # What enters a module is held by others too, who may be the ones that write to it.
        if site.function or site.place[1] == "output" or not node.overwritten:
            sites.append(site)
    for site in sites:
        if not site.function and not node.expanded:
            return site
    return next(iter(sites), None)
