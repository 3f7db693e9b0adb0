"""Which blocks make the stream of a network; refused where these are not all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from os.path import commonprefix

from ...judge.errors import AuditError
from ...judge.words import and_more
from .flow import hidden_sums
from .graph import LINEAR, LOOKUPS, MANY, PRODUCTS, Block, Graph, Segment, Stretch

LEAST_COVERED = 0.2
"""The least share of the weights between embedding and head that the whole stream holds."""
LEAST_OF_LAYERS = 0.8
"""The same with one residual sum at most, where each layer is a block: others lie beside heads."""


def find_blocks(graph: Graph) -> list[Block]:
    """What adds to the stream, or the layers of a network without residual connections."""
    segments = graph.additive
    blocks = [_block_of(graph, segment) for segment in segments]
    layers = _hidden_layers(graph)
    if not segments or (len(segments) == 1 and segments[0] in layers):
        # One sum alone, such as a pyramid's, stands among plain layers.
        layers = [layer for layer in layers if not layer.lies_in(blocks)]
        blocks += [layer_block(graph, layer) for layer in layers]
        segments = segments + [layer for layer in layers if isinstance(layer, Segment)]
    blocks = _joined(graph, blocks, segments)
    blocks.sort(key=lambda block: block.start)
    if blocks and _starts_with_embedding(graph, blocks):
        blocks = blocks[1:]
    _refuse_bypass(graph, blocks)
    refuse_repeats(graph, blocks)
    return blocks


def _starts_with_embedding(graph: Graph, blocks: list[Block]) -> bool:
    """Whether the first block is the only one of its kind, and comes before the stream."""
    first, *others = blocks
    if any(block.kind == first.kind for block in others):
        return False
    return _is_embedding(graph, first, others)


def _hidden_layers(graph: Graph) -> list[Stretch]:
    """All layers but the first and the last.

    Of two, the first counts, unless it is an embedding that is normalised and read.
    """
    if len(graph.items) != 2:
        return graph.items[1:-1]
    first, head = graph.items
    if graph.nodes[first.end].op not in PRODUCTS:
        return []
    ops = set(graph.ops(graph.between(first.end, head.start)))
    norms = {op for op in ops if "norm" in op}
    if norms and ops <= norms | LINEAR:
        return []
    return [first]


def _block_of(graph: Graph, segment: Segment) -> Block:
    """A segment as a block: it begins where its modules do, and is named after the largest."""
    before = max((other.end for other in graph.segments if other.end <= segment.start), default=0)
    cuts = set(graph.between(before - 1, segment.start))
    parts = graph.parts(segment)
    start = segment.start
    for call in parts:
        start = min([start, *cuts.intersection(call.inputs)])
    name = _largest(graph, segment, [call.name for call in parts])
    return Block(start, segment.end, name, tuple(map(graph.class_of, parts)))


def layer_block(graph: Graph, layer: Stretch) -> Block:
    """A layer as a block: the outermost module that holds no other layer, where there is one."""
    for span in graph.around(layer):
        if sum(span.holds(other) for other in graph.items) == 1:
            return span
    return Block(layer.start, layer.end, _largest(graph, layer, []))


def _largest(graph: Graph, stretch: Stretch, modules: list[str]) -> str:
    """Which of some modules holds most of what is read, else what its parameters are called."""
    parameters = sorted(graph.parameters(stretch))
    if not modules:
        return _common_name(parameters)
    sizes = dict.fromkeys(modules, 0)
    for parameter in parameters:
        for module in sizes:
            if f"{parameter}.".startswith(f"{module}."):
                sizes[module] += graph.tape.sizes[parameter]
    return max(modules, key=sizes.__getitem__)


def _common_name(parameters: list[str]) -> str:
    """The name that some parameters share, as ``blocks.0``; else the first one."""
    shared = commonprefix([parameter.split(".") for parameter in parameters])  # noqa: RUF071 (of lists)
    return ".".join(shared) or next(iter(parameters), "")


def _joined(graph: Graph, blocks: list[Block], segments: Iterable[Stretch]) -> list[Block]:
    """The blocks, where several in one module are one if that is a block, and not a stack."""
    owners: dict[Block, None] = {}
    for segment in segments:
        owners.update(dict.fromkeys(graph.around(segment)[-1:]))
    kinds = Counter(owner.kind for owner in owners)
    for owner in sorted(owners, key=lambda span: span.end - span.start):
        inner = [block for block in blocks if owner.holds(block)]
        if inner and _is_one_block(graph, owner, inner, repeated=kinds[owner.kind] > 1):
            blocks = [block for block in blocks if block not in inner]
            blocks.append(owner)
    return _with_what_follows(graph, blocks)


def _with_what_follows(graph: Graph, blocks: list[Block]) -> list[Block]:
    """The modules around all blocks that hold one each and a layer after it, if there are such."""
    owners = []
    for block in blocks:
        for span in reversed(graph.around(block)):
            follows = any(map(graph.is_layer, graph.between(block.end, span.end)))
            if follows and sum(map(span.holds, blocks)) == 1:
                owners.append(span)
                break
    if len(blocks) > 1 and len(owners) == len(blocks) and len({span.kind for span in owners}) == 1:
        return owners
    return blocks


def _is_one_block(graph: Graph, owner: Block, inner: list[Block], *, repeated: bool) -> bool:
    """Whether a module is a block, rather than a stack of those in it.

    All unlike: a block, unless the module is the only one of its class and embeds first.
    """
    unlike = len({block.kind for block in inner}) == len(inner)
    if repeated:
        return unlike or not any(_is_numbered(owner, block) for block in inner)
    if not unlike:
        return False
    before = graph.between(owner.start, inner[0].start)
    return len(inner) == 1 or not any(map(graph.is_layer, before))


def _is_numbered(owner: Block, block: Block) -> bool:
    name = block.name.removeprefix(f"{owner.name}.")
    return any(part.isdigit() for part in name.split("."))


def covered(graph: Graph, blocks: list[Block]) -> float:
    """The share of the weights in blocks, of those that are neither embedding nor head."""
    layers = list(filter(graph.is_layer, graph.useful))
    inside = graph.parameters(*blocks)
    between = set(inside)
    for index in layers:
        node = graph.nodes[index]
        embeds = index == layers[0] or node.op in LOOKUPS
        is_embedding = index <= blocks[0].start and embeds
        is_head = index == layers[-1] and index > blocks[-1].end
        if not is_embedding and not is_head:
            between |= node.parameters
    return graph.tape.count(inside) / max(graph.tape.count(between), 1)


def least_covered(graph: Graph) -> float:
    """Which share of the weights between embedding and head the blocks must hold."""
    if len(graph.additive) > 1:
        return LEAST_COVERED
    return LEAST_OF_LAYERS


def _is_embedding(graph: Graph, first: Stretch, blocks: list[Block]) -> bool:
    """Whether what begins at the raw input, before any layer, comes before the whole stream.

    A module of the class of a block is part of the stream.
    """
    if not blocks or first.start > graph.items[0].start or first.end > blocks[0].start:
        return False
    if covered(graph, blocks) < LEAST_COVERED:
        return False
    classes: set[object] = set()
    for block in blocks:
        classes |= _classes(block.kind)
    for call in graph.calls_around(graph.inside(first)):
        if type(call.module) in classes and any(call.module.children()):
            return False
    return True


def _classes(kind: object) -> set[object]:
    """The classes of modules in the kind of a block."""
    if not isinstance(kind, tuple):
        return {kind}
    return set[object]().union(*map(_classes, kind))


def _refuse_bypass(graph: Graph, blocks: list[Block]) -> None:
    """Refuse a stretch that is the only one of its kind and holds several updates."""
    stretches = [*blocks]
    for segment in graph.segments:
        if segment.lies_in(blocks):
            continue
        if segment.adds and not graph.parameters(segment) and _multiplies(graph, segment):
            raise AuditError(
                f"{graph.maker(segment.end)} adds a product with a tensor outside the parameters, "
                "which hides a block; make all weights torch.nn.Parameter"
            )
        if not any(
            _is_embedding(graph, part, blocks) for part in [segment, *graph.around(segment)]
        ):
            stretches.append(_block_of(graph, segment))
    kinds = Counter(stretch.kind for stretch in stretches)
    for stretch in stretches:
        if kinds[stretch.kind] > 1:
            continue
        for segment in filter(stretch.holds, graph.segments):
            sums = hidden_sums(graph, segment)
            if sums:
                refuse_repeats(graph, [], graph.parameters(segment))
                _refuse_sums(graph, segment, sums)


def _multiplies(graph: Graph, segment: Segment) -> bool:
    """Whether a state is multiplied by a matrix that is the same for all samples."""
    nodes = [graph.nodes[index] for index in segment.values]
    return any(node.op in PRODUCTS and len(node.parents) == 1 for node in nodes)


def refuse_repeats(
    graph: Graph, blocks: Sequence[Stretch], among: frozenset[str] | None = None
) -> None:
    """Refuse modules with most weights, of all or ``among`` some, that run many times.

    Not those that always run in some blocks.
    """
    runs = _runs(graph, among)
    repeated = [name for name, indices in runs.items() if len(indices) >= MANY]
    if 2 * graph.tape.count(repeated) <= graph.tape.count(runs):
        return
    in_blocks = set[int]().union(*map(graph.inside, blocks))
    times: dict[str, int] = {}
    for name in repeated:
        if not in_blocks.issuperset(runs[name]):
            times[name.rpartition(".")[0] or name] = len(runs[name])
    if times:
        modules = and_more([f"{name!r} {number} times" for name, number in times.items()], 3)
        raise AuditError(
            f"the same modules run many times in one pass ({modules}): in time, as in recurrence, "
            "relaxation, spikes or ODE steps, or once per candidate label; not in depth. Steps in "
            "time can be audited as a trace, or unrolled as layers named by --fa-stream; passes "
            "per label and spikes, which are piecewise constant and have no useful BP gradient, "
            "cannot"
        )


def _runs(graph: Graph, among: frozenset[str] | None) -> dict[str, list[int]]:
    """The layers that read each parameter."""
    runs: dict[str, list[int]] = {}
    for index in filter(graph.is_layer, graph.useful):
        for name in sorted(graph.nodes[index].parameters):
            if among is None or name in among:
                runs.setdefault(name, []).append(index)
    return runs


def _refuse_sums(graph: Graph, segment: Segment, sums: list[int]) -> None:
    """Refuse a stretch with several updates, naming what bypasses them."""
    source, target = _bypass(graph, segment, sums[0])
    origin = graph.maker(source)
    if origin != "the input":
        origin = f"what {origin} returns"
    modules: dict[str, None] = {}
    for index in sums:
        name = graph.tape.calls[graph.nodes[index].call].name
        modules[repr(name) if name else "forward"] = None
    inside = and_more(list(modules), 4)
    raise AuditError(
        f"the network has no single stream between {graph.maker(segment.start)} and "
        f"{graph.maker(segment.end)}: {origin} bypasses the sums in {inside} and feeds "
        f"{graph.maker(target)} (a second tower, a long skip, a carried value or a condition). "
        "No --fa-stream passes; audit a variant without that path"
    )


def _bypass(graph: Graph, segment: Segment, first_sum: int) -> tuple[int, int]:
    """The ends of a path around the first sum of a segment."""
    for later in segment.values:
        for parent in graph.nodes[later].parents:
            if parent < first_sum < later:
                return parent, later
    return segment.start, segment.end
