"""The blocks that a user names by --fa-stream, and the SPEC that names some blocks."""

from __future__ import annotations

import re
from itertools import pairwise

from ...judge.errors import AuditError
from ...judge.words import and_more
from .graph import Block, Graph
from .tape import Call


def named_blocks(
    graph: Graph, spec: str, all_blocks: list[Block]
) -> tuple[list[Block], int | None]:
    """The blocks that a SPEC such as ``attn.*, mlp.* -> out_ln`` names, if they are all of them.

    The number is that of the value which is h_L, where the SPEC says so.
    """
    left, arrow, right = map(str.strip, spec.partition("->"))
    by_ends: dict[tuple[int, int], Block] = {}
    for call in _calls(graph, spec, left):
        blocks_of_call = _blocks_of(graph, call)
        if not blocks_of_call:
            raise AuditError(f"stream {spec!r}: {call.name!r} adds nothing to the stream")
        for block in blocks_of_call:
            by_ends.setdefault((block.start, block.end), block)
    blocks = sorted(by_ends.values(), key=lambda block: block.start)
    problem = _problem(graph, all_blocks, blocks)
    if problem:
        raise AuditError(f"stream {spec!r} {problem}")
    if not arrow:
        return blocks, None
    for call in _calls(graph, spec, right):
        entering = [index for index in call.inputs if index in graph.cuts]
        if entering and entering[0] >= blocks[-1].end:
            return blocks, entering[0]
    raise AuditError(
        f"stream {spec!r}: {right!r} does not run after the last block, {blocks[-1].name!r}"
    )


def _blocks_of(graph: Graph, call: Call) -> list[Block]:
    """A module call as a block; else what adds to the stream in it."""
    span = graph.spans.get(call)
    if span and (not graph.additive or any(map(span.holds, graph.additive))):
        return [span]
    blocks = []
    for segment in graph.additive:
        if any(graph.made_in(index, call) for index in segment.values):
            blocks.append(Block(segment.start, segment.end, call.name))
    return blocks


def _problem(graph: Graph, all_blocks: list[Block], blocks: list[Block]) -> str:
    """What is wrong with some blocks, given those that were found; empty where nothing is."""
    for before, after in pairwise(blocks):
        if after.start < before.end:
            return f"names {after.name!r} inside another block"
    if blocks[-1].end > graph.head.start:
        return "takes the head for a block, and the logits are not a state"
    if not graph.additive:
        return ""
    missing: dict[str, None] = {}
    for block in all_blocks:
        for segment in filter(block.holds, graph.additive):
            if not segment.lies_in(blocks):
                missing[block.name] = None
    if missing:
        return f"leaves out {and_more(list(missing), 6)}"
    # Unlike parts, the same in every block, are one block: attention and MLP.
    first_kinds = _kinds_in(blocks[0], all_blocks)
    for block in blocks:
        kinds = _kinds_in(block, all_blocks)
        if len(kinds) > 1 and (kinds != first_kinds or len(set(kinds)) < len(kinds)):
            return f"takes several blocks for one at {block.name!r}"
    return ""


def _kinds_in(block: Block, all_blocks: list[Block]) -> list[object]:
    return [part.kind for part in all_blocks if block.holds(part)]


def _calls(graph: Graph, spec: str, patterns: str) -> list[Call]:
    """The calls of the modules that some patterns name, in the order in which they ran."""
    names = [name for name in graph.tape.modules if name]
    matching: set[str] = set()
    for pattern in map(str.strip, patterns.split(",")):
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
    others = {call.name for call in graph.tape.calls}.difference(names)
    patterns: dict[str, None] = {}
    for name in names:
        pattern = ".".join(re.sub(r"\d+$", "*", part) for part in name.split("."))
        if any(_fits(other, pattern) for other in others):
            pattern = name
        patterns[pattern] = None
    return ", ".join(patterns)
