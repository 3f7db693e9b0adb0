"""The search for the residual stream of a network, on a copy with other weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from ...judge.errors import AuditError
from ...judge.records import StreamInfo
from ...judge.words import and_more
from ..copies import (
    copy_of,
    named_parameters,
    quiet,
    refuse_scripted,
    reinitialised,
)
from ..inputs import (
    NetworkError,
    Outputs,
    call_network,
    copied,
    each,
    largest_difference,
    like,
    rows,
    tensors_of,
)
from ..pooling import Layout
from ..types import ModelInput
from .blocks import covered, find_blocks, least_covered
from .flow import tower_sums
from .gates import refuse_gates
from .graph import Block, Graph
from .samples import draw_samples
from .sites import Stream
from .spec import named_blocks, spec_of
from .states import AmbiguousSamples, State, find_states, site_of
from .tape import Tape

SIZES = (3, 5, 7, 11, 13)
"""Numbers of test samples; one that no dimension of weights or inputs has is taken."""
ATTEMPTS = ((1.0, False), (1.0, True), (2.0, True), (4.0, True))
"""How large weights are drawn, and whether token ids are, until logits tell samples apart."""
APART = 1e-4
"""How far two samples' logits must lie apart, relative to their size; else by rounding alone."""
LOUD = 1e4
"""What an inner sum is multiplied by; it shows where its block grows by more than ``SHOWN``."""
SHOWN = 50
PARTLY_NARROW = 1e-6
"""Up to here two passes may differ, since scripted functions compute in less than float64."""


def find_stream(
    network: nn.Module, x: ModelInput, spec: str | None = None, outputs: Outputs | None = None
) -> Stream:
    """The stream of a network: the blocks that ``spec`` names, else those that are found.

    ``x`` is a handful of samples, ``outputs`` what reads the logits in what the network returns.

    >>> find_stream(network, x).blocks
    ('blocks.0', 'blocks.1', 'blocks.2', 'blocks.3')
    >>> find_stream(network, x, "blocks.* -> out_ln").info.head
    'out_ln'
    """
    refuse_scripted(network)
    if not named_parameters(network):
        raise AuditError(
            "the network has no parameters: its stream is found by them, and plain tensors, "
            "buffers and quantised weights are none; make its weights torch.nn.Parameter"
        )
    with quiet(network):
        try:
            trial = _Trial(network, x, outputs or Outputs(), torch.float64)
        except NetworkError:  # some networks cannot run in float64
            trial = _Trial(network, x, outputs or Outputs(), torch.float32)
        for size in trial.sizes[1:]:
            try:
                return trial.stream(spec)
            except AmbiguousSamples:
                trial.draw(size)
        return trial.stream(spec)


class _Trial:
    """A copy of the network with other weights, test samples, and their logits.

    The stream belongs to the architecture: no branch of the copy is off, exploded or not finite.
    """

    def __init__(
        self, network: nn.Module, x: ModelInput, outputs: Outputs, dtype: torch.dtype
    ) -> None:
        self.original = network
        self.x = each(x, Tensor.cpu)
        shapes = [tensor.shape for tensor in named_parameters(network).values()]
        shapes += [tensor.shape[1:] for tensor in tensors_of(x)]
        dimensions = set[int]().union(*shapes)
        self.sizes = [size for size in SIZES if size not in dimensions] or list(SIZES)
        self.outputs = outputs
        self.tolerance = 1e-4
        """How far two ways to the same logits may differ, by the largest difference of samples."""
        if dtype == torch.float64:
            self.tolerance = 1e-9
        for gain, self.random_ids in ATTEMPTS:
            self.network = reinitialised(copy_of(network, dtype), gain=gain)
            self.draw(self.sizes[0])
            size = float(self.logits.abs().max())
            if size < math.inf and largest_difference(self.logits) > APART * size:
                return
        raise AuditError(
            "the logits are the same for all samples, or not finite, whatever weights the "
            "network has: its stream cannot be tested"
        )

    def draw(self, number: int) -> None:
        """Take so many test samples."""
        samples = draw_samples(self.x, number, random_ids=self.random_ids)
        self.samples = like(samples, self.network)
        self.logits = self._run(self.samples)
        if self.logits.shape[:1] != (number,) or not self.logits.numel():
            raise AuditError(
                f"the network returned logits of shape {tuple(self.logits.shape)} for {number} "
                f"samples; expected [{number}, classes]"
            )

    def _run(self, samples: ModelInput) -> Tensor:
        return self.outputs(call_network(self.network, copied(samples)))

    def _distance(self, logits: Tensor, expected: Tensor) -> float:
        """How far logits differ from those expected, by the largest difference of samples."""
        if logits.shape != expected.shape:
            return math.inf
        return float((logits - expected).abs().max()) / largest_difference(self.logits)

    def stream(self, spec: str | None) -> Stream:
        """The stream, every state of it tested."""
        graph = self._graph()
        blocks = find_blocks(graph)
        if spec is None:
            return self._whole(graph, blocks)
        try:
            chosen, last = named_blocks(graph, spec, blocks)
        except AuditError as error:
            raise AuditError(f"{error}{self._hint(graph, blocks)}") from None
        return self._tested(graph, chosen, last, spec)

    def _whole(self, graph: Graph, blocks: list[Block]) -> Stream:
        """The stream of the blocks found, if they are all of it."""
        if not blocks:
            calls = graph.tape.calls[1:]
            modules = [f"{call.name} ({type(call.module).__name__})" for call in calls]
            raise AuditError(
                "the network has no blocks: nothing adds to a state, and no layer lies, between "
                "its first layer with weights and its last; modules that ran: "
                f"{and_more(modules, 12)}"
            )
        share = covered(graph, blocks)
        if share < least_covered(graph):
            names = and_more(list(dict.fromkeys(block.name for block in blocks)), 6)
            raise AuditError(
                f"the blocks found, {names}, hold {100 * share:.2g} % of the weights between "
                "embedding and head, so they are not the whole stream; if the network has no "
                "others, name them by --fa-stream"
            )
        return self._tested(graph, blocks, None, "")

    def _hint(self, graph: Graph, blocks: list[Block]) -> str:
        """The SPEC of the whole stream, where that is found and so named."""
        spec = spec_of(graph, blocks)
        try:
            self._whole(graph, blocks)
            named, _ = named_blocks(graph, spec, blocks)
        except AuditError:
            return ""
        if [block.end for block in named] != [block.end for block in blocks]:
            return ""
        return f"; the blocks of this network: --fa-stream='{spec}'"

    def _tested(self, graph: Graph, blocks: list[Block], last: int | None, spec: str) -> Stream:
        stream = self._described(graph, blocks, find_states(graph, blocks, last), spec)
        self._check(stream)
        self._refuse_inner_updates(graph, blocks, stream)
        refuse_gates(graph, blocks, self.original, self.samples)
        return stream

    def _described(
        self, graph: Graph, blocks: list[Block], states: list[State], spec: str
    ) -> Stream:
        """The stream of some blocks and states, in the words of a report."""
        share = covered(graph, blocks)
        outside = graph.parameters_outside(*blocks)
        parameters = tuple(_parameters(graph, block, outside) for block in blocks)
        inside = frozenset[str]().union(*parameters)
        layout = Layout(self.network, inside - outside)
        tokens = []
        sizes = []
        sites = []
        for node, site in states:
            sites.append(site)
            shape = [*node.shape[: site.batch_dim], *node.shape[site.batch_dim + 1 :]]
            tokens.append(layout.are_tokens(shape))
            if tokens[-1]:
                shape = shape[-1:]
            sizes.append(math.prod(shape))
        info = StreamInfo(
            blocks=tuple(block.name for block in blocks),
            residual=graph.is_residual,
            head=_head(graph, states[-1]),
            outside=1 - graph.tape.count(inside) / graph.tape.count(graph.tape.sizes),
            states=tuple(map(str, sites)),
            sizes=tuple(sizes),
            spec=spec,
            covered=share if share < least_covered(graph) else None,
        )
        return Stream(tuple(sites), info, parameters, outside, tuple(tokens), layout, self.outputs)

    def _graph(self) -> Graph:
        """The forward pass taken apart, if a second pass and a smaller batch agree with it."""
        tape = Tape(self.network, len(self.logits))
        samples = copied(self.samples)
        returned = tape.record(lambda: call_network(self.network, samples), tensors_of(samples))
        distance = self._distance(self.outputs(returned), self.logits)
        if not distance <= max(self.tolerance, PARTLY_NARROW):
            self._refuse_changing()
        self.tolerance = max(self.tolerance, 10 * distance)
        for part in (slice(2), slice(-2, None)):
            fewer = self._run(rows(self.samples, part))
            if not self._distance(fewer, self.logits[part]) <= self.tolerance:
                raise AuditError(
                    "samples interact: the logits of a sample depend on which others are in its "
                    "batch, so it has no gradient of its own; batch statistics must be running "
                    "averages"
                )
        node = tape.node_of(self.outputs.found(returned))
        if node.constant:
            raise AuditError(
                "the logits do not depend on the samples in a way that could be followed"
            )
        return Graph(tape, node.index)

    def _refuse_changing(self) -> None:
        """Refuse a network whose logits differ between two passes of the same samples."""
        before = {name: buffer.clone() for name, buffer in self.network.named_buffers()}
        self._run(self.samples)
        changing = []
        for name, buffer in self.network.named_buffers():
            if not torch.equal(buffer, before[name]):
                changing.append(name)
        if changing:
            raise AuditError(
                f"every pass changes {and_more(changing, 3)}, and the logits with it, in eval mode "
                "too; freeze these buffers (observers by torch.ao.quantization.disable_observer)"
            )
        raise AuditError(
            "the forward is random: two passes of the same samples give different logits in eval "
            "mode; take out what draws random numbers, such as dropout with training=True"
        )

    def _refuse_inner_updates(self, graph: Graph, blocks: list[Block], stream: Stream) -> None:
        """Refuse blocks in which a sum may explode and not show where they end, as before a norm.

        One block of each kind is tried.
        """
        for block in {block.kind: block for block in blocks}.values():
            for segment in filter(block.holds, graph.segments):
                sums = [index for index in tower_sums(graph, segment) if index < segment.end]
                if any(self._is_lost(graph, block, index, stream) for index in sums):
                    raise AuditError(
                        f"{block.name!r} has updates of its own that no state shows: "
                        f"{graph.maker(sums[0])} times {LOUD:g} is lost before the block ends, "
                        "as by a norm. No --fa-stream passes; audit a variant without that path"
                    )

    def _is_lost(self, graph: Graph, block: Block, index: int, stream: Stream) -> bool:
        """Whether a value within a block that is made loud does not show where the block ends."""
        sizes = []

        def take(layer: int, state: Tensor) -> None:
            if layer == 1:
                state.mul_(LOUD)
            sizes.append(float(state.square().mean().sqrt()))

        sites = []
        for node in (block.start, index, block.end):
            site = site_of(graph.nodes[node])
            if site is not None:
                sites.append(site)
        if len(sites) < 3:
            return False
        replace(stream, sites=tuple(sites)).run(self.network, copied(self.samples), take)
        return sizes[2] < SHOWN * sizes[0]

    def _check(self, stream: Stream) -> None:
        """The cut test: with samples of a state in another order, the logits come in that order.

        All states are shifted in each of a few passes: in the first by 1, in the second where the
        next digit of the layer's number to the base of the samples changes, and so on. Whatever
        bypasses some of them is out of step in one of these.
        """
        number = len(self.logits)
        layers = range(len(stream.sites))
        power = 1
        while power <= len(layers):
            shifts = [((layer + 1) // power - layer // power) % number for layer in layers]
            if not self._passes(stream, shifts):
                self._refuse_first(stream)
                return
            power *= number

    def _refuse_first(self, stream: Stream) -> None:
        """Refuse the first state that fails the cut test when it alone is shifted."""
        for layer, site in enumerate(stream.sites):
            shifts = [0] * len(stream.sites)
            shifts[layer] = 1
            if not self._passes(stream, shifts):
                raise AuditError(
                    f"the state at {site} does not carry all that the logits depend on: with its "
                    "samples in another order, the logits do not come in that order"
                )

    def _passes(self, stream: Stream, shifts: Sequence[int]) -> bool:
        def shift(layer: int, state: Tensor) -> None:
            if shifts[layer]:
                state.copy_(state.roll(shifts[layer], stream.batch_dims[layer]))

        logits = stream.run(self.network, copied(self.samples), shift)
        return self._distance(logits, self.logits.roll(sum(shifts), 0)) <= self.tolerance


def _head(graph: Graph, last: State) -> str:
    """The first module that reads the last state, or what is made of it."""
    node, _ = last
    for call in graph.tape.calls:
        if any(index >= node.index and index in graph.readers for index in call.inputs):
            return call.name
    return ""


def _parameters(graph: Graph, block: Block, outside: frozenset[str]) -> frozenset[str]:
    """The parameters of a block: those it reads, and what no sample needs in their modules."""
    read = graph.parameters(block)
    prefixes = {f"{block.name}."}
    for name in read - outside:
        prefixes.add(f"{name.rpartition('.')[0]}.")
    prefixes.discard(".")
    return read.union(name for name in graph.unread if name.startswith(tuple(prefixes)))
