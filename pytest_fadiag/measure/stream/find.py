"""The search for the residual stream of a network, on a copy with other weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...judge.errors import AuditError
from ...judge.records import StreamInfo
from ...judge.words import and_more
from ..copies import copy_of, quiet, refuse_scripted, reinitialised
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
from .choose import (
    LEAST_COVERED,
    AmbiguousSamples,
    covered,
    find_blocks,
    find_states,
    named_blocks,
    spec_of,
)
from .graph import Block, Graph
from .sites import Stream
from .tape import Tape

SIZES = (3, 5, 7, 11, 13)
"""Numbers of test samples; one that no other dimension has tells where the samples are."""
ATTEMPTS = ((1.0, False), (1.0, True), (2.0, True), (4.0, True))
"""How large weights are drawn, and whether token ids are, until logits tell samples apart."""
APART = 1e-4
"""How far two samples' logits must lie apart, relative to their size; else by rounding alone."""
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
    with quiet(network):
        try:
            trial = _Trial(network, x, outputs or Outputs(), torch.float64)
        except NetworkError:  # some networks cannot run in float64
            trial = _Trial(network, x, outputs or Outputs(), torch.float32)
        for size in SIZES[1:]:
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
        self.x, self.outputs = each(x, Tensor.cpu), outputs
        self.tolerance = 1e-9 if dtype == torch.float64 else 1e-4
        """How far two ways to the same logits may differ, by the largest difference of samples."""
        for gain, self.drawn in ATTEMPTS:
            self.network = reinitialised(copy_of(network, dtype), gain=gain).eval()
            self.draw(SIZES[0])
            size = float(self.logits.abs().max())
            if size < math.inf and largest_difference(self.logits) > APART * size:
                return
        raise AuditError(
            "the logits are the same for all samples, or not finite, whatever weights the "
            "network has: its stream cannot be tested"
        )

    def draw(self, number: int) -> None:
        """Take so many test samples."""
        self.samples = like(draw_samples(self.x, number, drawn=self.drawn), self.network)
        self.logits = self._run(self.samples)
        if self.logits.shape[:1] != (number,):
            raise AuditError(
                f"the network returned logits of shape {tuple(self.logits.shape)} for {number} "
                f"samples; expected [{number}, classes]"
            )

    def _run(self, samples: ModelInput) -> Tensor:
        return self.outputs(call_network(self.network, copied(samples)))

    def _apart(self, logits: Tensor, expected: Tensor) -> float:
        if logits.shape != expected.shape:
            return math.inf
        return float((logits - expected).abs().max()) / largest_difference(self.logits)

    def stream(self, spec: str | None) -> Stream:
        """The stream, every state of it tested."""
        graph = self._graph()
        blocks, last = find_blocks(graph), None
        if spec is not None:
            blocks, last = named_blocks(graph, spec, blocks)
        if not blocks:
            ran = and_more(
                [f"{call.name} ({type(call.module).__name__})" for call in graph.tape.calls[1:]],
                12,
            )
            raise AuditError(
                "the network has no blocks: nothing adds to a state, and no layer lies, between "
                f"its first layer with weights and its last; modules that ran: {ran}"
            )
        share = covered(graph, blocks)
        if share < LEAST_COVERED and spec is None:
            raise AuditError(
                f"the blocks found hold {100 * share:.2g} % of the weights between embedding and "
                "head, so they are not the whole stream. If the network has no others, name them: "
                f"--fa-stream='{spec_of(graph, blocks)}'"
            )
        states, sizes = find_states(graph, blocks, last), graph.tape.sizes
        outside = graph.parameters(*blocks, outside=True)
        parameters = tuple(_parameters(graph, block, outside) for block in blocks)
        inside = frozenset[str]().union(*parameters)
        shapes = [
            [*node.shape[: site.batch_dim], *node.shape[site.batch_dim + 1 :]]
            for node, site in states
        ]
        tokens = tuple(map(Layout(self.network, inside - outside).are_tokens, shapes))
        counted = [shape[-1:] if own else shape for shape, own in zip(shapes, tokens, strict=True)]
        after = {index for index in graph.useful if index >= states[-1][0].index}
        reading = [call.name for call in graph.tape.calls if after.intersection(call.inputs)]
        info = StreamInfo(
            blocks=tuple(block.name for block in blocks),
            residual=bool(graph.additive),
            head=[*reading, ""][0],
            outside=1 - sum(sizes[name] for name in inside) / sum(sizes.values()),
            states=tuple(str(site) for _, site in states),
            sizes=tuple(map(math.prod, counted)),
            spec=spec or "",
            covered=share if share < LEAST_COVERED else None,
        )
        sites = tuple(site for _, site in states)
        stream = Stream(sites, info, parameters, outside, tokens, self.outputs)
        self._check(stream)
        return stream

    def _graph(self) -> Graph:
        """The forward pass taken apart, if a second pass and a smaller batch agree with it."""
        tape, given = Tape(self.network, len(self.logits)), copied(self.samples)
        returned = tape.record(lambda: call_network(self.network, given), tensors_of(given))
        logits = self.outputs(returned)
        apart = self._apart(logits, self.logits)
        if not apart <= max(self.tolerance, PARTLY_NARROW):
            raise AuditError(
                "the forward is random: two passes of the same samples give different logits in "
                "eval mode; take out what draws random numbers, such as dropout with training=True"
            )
        self.tolerance = max(self.tolerance, 10 * apart)
        fewer = self._run(rows(self.samples, slice(2)))
        if not self._apart(fewer, self.logits[:2]) <= self.tolerance:
            raise AuditError(
                "samples interact: the logits of a sample depend on which others are in its batch, "
                "so it has no gradient of its own; batch statistics must be running averages"
            )
        node = tape.node_of(self.outputs.found(returned))
        if node.constant:
            raise AuditError(
                "the logits do not depend on the samples in a way that could be followed"
            )
        return Graph(tape, node.index)

    def _check(self, stream: Stream) -> None:
        """The cut test: with samples of a state in another order, the logits come in that order.

        All states are shifted in each of a few passes: in the first by 1, in the second where the
        next digit of the layer's number to the base of the samples changes, and so on. Whatever
        bypasses some of them is out of step in one of these.
        """
        number, layers, power = len(self.logits), range(len(stream.sites)), 1
        while power <= len(layers) and self._passes(
            stream, [((layer + 1) // power - layer // power) % number for layer in layers]
        ):
            power *= number
        for layer in layers if power <= len(layers) else ():
            if not self._passes(stream, [int(own == layer) for own in layers]):
                raise AuditError(
                    f"the state at {stream.sites[layer]} does not carry all that the logits depend "
                    "on: with its samples in another order, the logits do not come in that order"
                )

    def _passes(self, stream: Stream, shifts: Sequence[int]) -> bool:
        def shift(layer: int, state: Tensor) -> None:
            if 0 in [own for own, n in zip(state.stride(), state.shape, strict=True) if n > 1]:
                raise AuditError(
                    f"the state at {stream.sites[layer]} is an expanded tensor, whose entries "
                    "share memory; let the forward clone it"
                )
            if shifts[layer]:
                state.copy_(state.roll(shifts[layer], stream.batch_dims[layer]))

        logits = stream.run(self.network, copied(self.samples), shift)
        return self._apart(logits, self.logits.roll(sum(shifts), 0)) <= self.tolerance


def _parameters(graph: Graph, block: Block, outside: frozenset[str]) -> frozenset[str]:
    """The parameters of a block: those it reads, and what no sample needs in their modules."""
    read = graph.parameters(block)
    # Such as feedback weights, or an expert.
    unread = graph.tape.sizes.keys() - graph.parameters(outside=True)
    modules = {name.rpartition(".")[0] for name in read - outside} | {block.name}
    around = tuple(f"{name}." for name in modules if name)
    return read.union(name for name in unread if name.startswith(around))


def draw_samples(x: ModelInput, number: int, *, drawn: bool) -> ModelInput:
    """So many samples like those given.

    Real numbers get noise; token ids are shuffled among the places of one sample, or ``drawn``.
    Masks, token types, labels and what else does not tell samples apart is one sample's, repeated
    for all: that of the sample with the widest masks.
    """
    generator = torch.Generator().manual_seed(20261)
    given = x if isinstance(x, dict) else {"": x}
    others = [name for name in given if name not in LABEL_NAMES and "mask" not in name]
    real = [name for name in others if given[name].is_floating_point()]
    varied = [own for own in real if len(given[own]) < 2 or (given[own] != given[own][:1]).any()]
    # Without real numbers, the whole ones with most values.
    read = varied or real[:1] or sorted(others, key=lambda own: -len(torch.unique(given[own])))[:1]
    masks = [tensor.flatten(1).count_nonzero(1) for name, tensor in given.items() if "mask" in name]
    widest = int(torch.stack(masks).sum(0).argmax()) if masks else 0
    made = {}
    for name, tensor in given.items():
        if name not in read:
            made[name] = tensor[[widest] * number]
        elif tensor.is_floating_point():
            values = tensor.double()
            spread = float(values.std(correction=0))
            made[name] = values[torch.arange(number) % len(values)]
            noise = torch.randn(made[name].shape, generator=generator, dtype=torch.float64)
            made[name] += noise * (spread if 0 < spread < 1e6 else 1.0)
        else:
            made[name] = _token_ids(tensor, number, generator, drawn)
    return made if isinstance(x, dict) else made[""]


def _token_ids(tensor: Tensor, number: int, generator: torch.Generator, drawn: bool) -> Tensor:
    """Rows with one sample's numbers in other orders, or with numbers between the extremes.

    A number that comes twice stays where it is, as padding and separators do, and so do the first
    and the last.
    """
    flat = tensor.flatten(1)
    sample = max(flat, key=lambda row: len(torch.unique(row)))
    places = torch.nonzero((sample == sample[:, None]).sum(0) == 1).flatten()[1:-1]
    rows: Tensor = sample.repeat(number, 1)
    for row in rows[1:]:
        row[places] = sample[places[torch.randperm(len(places), generator=generator)]]
    if drawn or len(places) < 4 or len(torch.unique(rows, dim=0)) < number:
        low, high = int(flat.min()), int(flat.max())
        rows = torch.randint(low, high + 1, rows.shape, generator=generator).to(tensor)
    if len(torch.unique(rows, dim=0)) < number:
        raise AuditError("the first samples are too much alike; shuffle the evaluation data")
    return rows.reshape(number, *tensor.shape[1:])
