"""The search for the residual stream of a network, on a copy with other weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import torch
from torch import Tensor, nn

from ...judge.errors import AuditError
from ...judge.records import StreamInfo
from ...judge.words import and_more
from ..copies import (
    copy_of,
    named_modules,
    named_parameters,
    precisions,
    quiet,
    refuse_scripted,
    reinitialised,
)
from ..inputs import (
    LABEL_NAMES,
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
from .blocks import LEAST_COVERED, covered, find_blocks
from .graph import Block, Graph
from .sites import Stream
from .spec import named_blocks, spec_of
from .states import AmbiguousSamples, State, find_states
from .tape import Tape

SIZES = (3, 5, 7, 11, 13)
"""Numbers of test samples; one that no dimension of weights or inputs has is taken."""
ATTEMPTS = ((1.0, False), (1.0, True), (2.0, True), (4.0, True))
"""How large weights are drawn, and whether token ids are, until logits tell samples apart."""
APART = 1e-4
"""How far two samples' logits must lie apart, relative to their size; else by rounding alone."""
TINY = 1e-3
"""A gain at which early exits are not sure of themselves."""
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
            "the network has no parameters: its stream is found by weights, and plain tensors and "
            "buffers count as none; make its weights torch.nn.Parameter"
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
            self.network = reinitialised(copy_of(network, dtype).eval(), gain=gain)
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
        if self.logits.shape[:1] != (number,):
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
        last = None
        if spec is not None:
            blocks, last = named_blocks(graph, spec, blocks)
        if not blocks:
            calls = graph.tape.calls[1:]
            modules = [f"{call.name} ({type(call.module).__name__})" for call in calls]
            raise AuditError(
                "the network has no blocks: nothing adds to a state, and no layer lies, between "
                "its first layer with weights and its last; modules that ran: "
                f"{and_more(modules, 12)}"
            )
        share = covered(graph, blocks)
        if share < LEAST_COVERED and spec is None:
            raise AuditError(
                f"the blocks found hold {100 * share:.2g} % of the weights between embedding and "
                "head, so they are not the whole stream. If the network has no others, name them: "
                f"--fa-stream='{spec_of(graph, blocks)}'"
            )
        stream = self._described(graph, blocks, find_states(graph, blocks, last), spec or "", share)
        self._check(stream)
        self._refuse_other_modules(graph, blocks)
        return stream

    def _described(
        self, graph: Graph, blocks: list[Block], states: list[State], spec: str, share: float
    ) -> Stream:
        """The stream of some blocks and states, in the words of a report."""
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
            covered=share if share < LEAST_COVERED else None,
        )
        return Stream(tuple(sites), info, parameters, outside, tuple(tokens), self.outputs)

    def _graph(self) -> Graph:
        """The forward pass taken apart, if a second pass and a smaller batch agree with it."""
        tape = Tape(self.network, len(self.logits))
        samples = copied(self.samples)
        returned = tape.record(lambda: call_network(self.network, samples), tensors_of(samples))
        distance = self._distance(self.outputs(returned), self.logits)
        if not distance <= max(self.tolerance, PARTLY_NARROW):
            raise AuditError(
                "the forward is random: two passes of the same samples give different logits in "
                "eval mode; take out what draws random numbers, such as dropout with training=True"
            )
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

    def _refuse_other_modules(self, graph: Graph, blocks: list[Block]) -> None:
        """Refuse a network that runs other modules with its own weights, or with tiny ones.

        Within a block they may differ, as experts do.
        """
        prefixes: list[str] = []
        for block in blocks:
            prefixes += (
                f"{name}." for name in (block.name, *(call.name for call in graph.parts(block)))
            )
        before = _outside([call.name for call in graph.tape.calls], prefixes)
        for gain in (None, TINY):
            network = copy_of(self.original, precisions(self.network)[-1]).eval()
            if gain is not None:
                reinitialised(network, gain=gain)
            names = _outside(_modules_run(network, self.samples), prefixes)
            if names != before:
                differing = sorted(set(names).symmetric_difference(before)) or names
                raise AuditError(
                    "which modules run depends on the weights, as with gates and early exits: "
                    f"{and_more(differing, 4)} do not always run; audit a variant that runs all"
                )

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
            if _is_expanded(state):
                raise AuditError(
                    f"the state at {stream.sites[layer]} is an expanded tensor, whose entries "
                    "share memory; let the forward clone it"
                )
            if shifts[layer]:
                state.copy_(state.roll(shifts[layer], stream.batch_dims[layer]))

        logits = stream.run(self.network, copied(self.samples), shift)
        return self._distance(logits, self.logits.roll(sum(shifts), 0)) <= self.tolerance


def _outside(names: list[str], prefixes: list[str]) -> list[str]:
    return [name for name in names if not name.startswith(tuple(prefixes))]


def _modules_run(network: nn.Module, samples: ModelInput) -> list[str]:
    """The names of the modules that a pass runs, in their order."""
    names: list[str] = []
    with ExitStack() as stack:
        for name, module in named_modules(network).items():
            hook = module.register_forward_pre_hook(lambda *_, name=name: names.append(name))
            stack.callback(hook.remove)
        call_network(network, copied(samples))
    return names


def _is_expanded(state: Tensor) -> bool:
    """Whether entries of a state share memory."""
    strides = zip(state.stride(), state.shape, strict=True)
    return any(size > 1 and stride == 0 for stride, size in strides)


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
    # Such as feedback weights, or an expert.
    unread = graph.tape.sizes.keys() - graph.parameters_outside()
    prefixes = {f"{block.name}."}
    for name in read - outside:
        prefixes.add(f"{name.rpartition('.')[0]}.")
    prefixes.discard(".")
    return read.union(name for name in unread if name.startswith(tuple(prefixes)))


def draw_samples(x: ModelInput, number: int, *, random_ids: bool) -> ModelInput:
    """So many samples like those given.

    Real numbers get noise; token ids are shuffled among the places of one sample, or drawn.
    Masks, token types, labels and what else does not tell samples apart is one sample's, repeated
    for all: that of the sample with the widest masks.
    """
    generator = torch.Generator().manual_seed(20261)
    tensors = x if isinstance(x, dict) else {"": x}
    differing = _telling_apart(tensors)
    widest = _widest(tensors)
    samples = {}
    for name, tensor in tensors.items():
        if name not in differing:
            samples[name] = tensor[[widest] * number]
        elif tensor.is_floating_point():
            samples[name] = _noisy(tensor, number, generator)
        else:
            samples[name] = _token_ids(tensor, number, generator, random_ids)
    if isinstance(x, dict):
        return samples
    return samples[""]


def _telling_apart(tensors: Mapping[str, Tensor]) -> list[str]:
    """The names of inputs that tell samples apart: real numbers, else the most varied ids."""
    names = [name for name in tensors if name not in LABEL_NAMES and "mask" not in name]
    real = [name for name in names if tensors[name].is_floating_point()]
    differing = []
    for name in real:
        tensor = tensors[name]
        if len(tensor) < 2 or (tensor != tensor[:1]).any():
            differing.append(name)
    if real:
        return differing or real[:1]
    return sorted(names, key=lambda name: -len(torch.unique(tensors[name])))[:1]


def _widest(tensors: Mapping[str, Tensor]) -> int:
    """The number of the sample whose masks leave out least."""
    masks = [
        tensor.flatten(1).count_nonzero(1) for name, tensor in tensors.items() if "mask" in name
    ]
    if not masks:
        return 0
    return int(torch.stack(masks).sum(0).argmax())


def _noisy(tensor: Tensor, number: int, generator: torch.Generator) -> Tensor:
    """So many samples of real numbers, with noise of the size of their spread."""
    values = tensor.double()
    spread = float(values.std(correction=0))
    if not 0 < spread < 1e6:
        spread = 1.0
    samples = values[torch.arange(number) % len(values)]
    noise = torch.randn(samples.shape, generator=generator, dtype=torch.float64)
    return samples + noise * spread


def _token_ids(tensor: Tensor, number: int, generator: torch.Generator, random: bool) -> Tensor:
    """Rows with one sample's numbers in other orders, or with numbers between the extremes.

    A number that comes twice stays where it is, as padding and separators do, and so do the first
    and the last.
    """
    flat = tensor.flatten(1)
    sample = max(flat, key=lambda row: len(torch.unique(row)))
    places = torch.nonzero((sample == sample[:, None]).sum(0) == 1).flatten()[1:-1]
    ids: Tensor = sample.repeat(number, 1)
    for row in ids[1:]:
        row[places] = sample[places[torch.randperm(len(places), generator=generator)]]
    if random or len(places) < 4 or len(torch.unique(ids, dim=0)) < number:
        low = int(flat.min())
        high = int(flat.max())
        ids = torch.randint(low, high + 1, ids.shape, generator=generator).to(tensor)
    if len(torch.unique(ids, dim=0)) < number:
        raise AuditError("the first samples are too much alike; shuffle the evaluation data")
    return ids.reshape(number, *tensor.shape[1:])
