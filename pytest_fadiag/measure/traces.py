"""A trace as a source of batches: states, gradients and credit are taken as given, and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor, nn

from ..judge.errors import AuditError
from ..judge.records import BATCH, BATCHES, Measurement, Reference, Score, StreamInfo
from ..judge.words import sig
from .credit import Credit, Site
from .pooling import Layout
from .run import NetworkSource, measure
from .stream.sites import Stream
from .task import OutputError, Task
from .types import Batch, Progress
from .vectors import column, median, row_norms

COSINE = 0.9999
"""Of e and its formula at least; that of another loss was 0.997."""
RATIO = (0.67, 1.5)
"""Of secants by states to secants by outputs, the median: right dumps have 0.98 to 1.33, states
after a LayerNorm at most 0.52.
"""
RANK = 0.2
"""Their rank correlation at least: permuted dumps have at most 0.11."""


class TraceSource(NetworkSource):
    """Batches as a trace has them, by the arrays of ``read_trace``; there is no network.

    >>> measure(TraceSource(arrays), ["states", "accuracy"]).residual_norms
    """

    def __init__(self, trace: Mapping[str, Any]) -> None:
        self.arrays: dict[str, Tensor] = {}
        self.layers: dict[str, dict[int, Tensor]] = {"h": {}, "g": {}, "a": {}}
        """States, gradients and credit by the number of their layer."""
        for name, array in trace.items():
            if not isinstance(array, str):
                self.arrays[name] = torch.as_tensor(array)
        depth = sum(name.startswith("h_") for name in self.arrays)
        for kind, layers in self.layers.items():
            for layer in range(depth):
                if f"{kind}_{layer}" in self.arrays:
                    layers[layer] = self.arrays[f"{kind}_{layer}"]
        states = list(self.layers["h"].values())
        super().__init__(nn.Module(), (), batch_size=BATCH)
        self.rows = len(states[0])
        self.dtype = states[-1].dtype
        self.evaluation_batches = min(BATCHES, self.rows // BATCH)
        self.stream = _stream_of(states)
        self.proof = Reference(dtype="as given")  # nothing is proven, and nothing refuted
        self.labels = self.arrays["y"]
        if not self.labels.is_floating_point():
            self.labels = self.labels.long()
        outputs = self.arrays["outputs"]
        self.task = Task(loss=trace.get("loss") or None).inferred(self.labels, outputs)
        self.task.check(self.task.read(outputs), self.labels)
        x = self.arrays.get("x", self.labels[:, None][:, :0])
        if x.dtype == torch.uint8 and self.task.kind != "tokens":  # pixels
            x = x.float()
        self.data = [(x, self.labels)]
        if "groups" in self.arrays:
            self.clusters = self.arrays["groups"]

    @cached_property
    def error(self) -> tuple[OutputError, float, float]:
        """The output error of the rows that have states, the size of e relative to its formula.

        The last number is the cosine of both. Directions are those of the formula, which does not
        cancel. Sizes are those of e: a sample that is 0 in float32 has no gradient either.
        """
        outputs = self.arrays["outputs"][: self.rows].double()
        e = self.arrays["e"][: self.rows].double()
        formula = self.task.error(self.task.read(outputs), self.labels[: self.rows])
        expected = self.task.written_error(formula.whole).reshape(e.shape)
        size = float(e.norm() / expected.norm())
        cosine = float((e * expected).sum() / (e.norm() * expected.norm()))
        relative = row_norms(e.flatten(1)) / row_norms(expected.flatten(1)) / size
        norms = (formula.norms * relative).nan_to_num(0.0)
        return OutputError(formula.units, norms), size, cosine

    @cached_property
    def pooling(self) -> Any:
        """States as linear probes see them: vectors of all samples, or of all tokens."""
        places: list[int] = []
        pool: nn.Module = nn.Identity()
        if self.task.kind == "tokens":
            places = [*self.labels.shape[1:]]
            pool = nn.Flatten(0, 1)
        if any([*state.shape[1:-1]] != places for state in self.layers["h"].values()):
            raise AuditError("a trace does not tell which tokens or places the head reads")
        if self.rows < len(self.labels):
            raise AuditError(
                f"the trace holds states of {self.rows:,} of {len(self.labels):,} samples; linear "
                "probes need all"
            )
        pool.words = ""  # type: ignore[assignment]
        return pool

    def _forward(self, batch: Batch, needs: frozenset[str]) -> None:
        """Add what the trace holds of a batch, gradients per unit of output error."""
        part = slice(batch.start, batch.start + len(batch.y))
        batch.outputs = self.task.read(self.arrays["outputs"][part])
        states = [state[part] for state in self.layers["h"].values()]
        if "features" in needs:
            batch.features = list(map(self.pooling, states))
        if not batch.evaluation:
            return
        error, size, _ = self.error
        batch.error = OutputError(error.units[part], error.norms[part])
        batch.states = states
        for gradient in self.layers["g"].values():
            norms = column(batch.error.norms, gradient)
            batch.gradients.append(torch.where(norms > 0, gradient[part] / (size * norms), 0.0))

    def redrawn(self, network: nn.Module) -> NetworkSource:
        """There is no other network to send the data through: (e) has no null."""
        raise AuditError("a trace holds no blocks to re-initialise")

    def check(self) -> float:
        """An error where e is not that of the loss, or states and gradients do not fit outputs.

        Else the smallest rank correlation of secants.
        """
        _, size, cosine = self.error
        name = self.task.name
        if not cosine >= COSINE:
            raise AuditError(
                f"e is not the gradient of the {name} by the outputs (cosine {cosine:.4f}): the "
                "loss is another one, or y or e belong to other samples"
            )
        if self.task.key != "mse" and not 0.99 < size < 1.01:
            raise AuditError(
                f"e is not the gradient of the {name} by the outputs, but {sig(size)} times it: "
                "differentiate the sum of the losses, not their mean (1/N)"
            )
        rows = slice(min(self.rows, BATCH * BATCHES))
        outputs = self.arrays["outputs"][rows].flatten(1).double()
        error = self.arrays["e"][rows].flatten(1).double()
        ranks = []
        for layer in self.layers["h"]:
            states = self.layers["h"][layer][rows].flatten(1).double()
            gradients = self.layers["g"][layer][rows].flatten(1).double()
            ranks.append(_check_secants(layer, states, gradients, outputs, error))
        return min(ranks)


def _stream_of(states: Sequence[Tensor]) -> Stream:
    """The stream as a trace tells it: a block between every two states."""
    tokens = []
    sizes = []
    for state in states:
        is_tokens = state.ndim == 3
        tokens.append(is_tokens)
        sizes.append(state[0, 0].numel() if is_tokens else state[0].numel())
    blocks = tuple(f"block {layer}" for layer in range(1, len(states)))
    info = StreamInfo(blocks=blocks, sizes=tuple(sizes))
    layout = Layout(nn.Module(), frozenset())
    return Stream((), info, (), frozenset(), tuple(tokens), layout)


def _check_secants(
    layer: int, states: Tensor, gradients: Tensor, outputs: Tensor, error: Tensor
) -> float:
    """The rank correlation of secants by neighbours; an error where they do not fit at a layer."""
    distances = torch.cdist(states, states).fill_diagonal_(torch.inf)
    nearest = distances.argmin(1)
    sizes = row_norms(error) + row_norms(error)[nearest]  # from both ends: curvature cancels
    by_states = _secants(gradients, states, nearest) / sizes
    by_outputs = _secants(error, outputs, nearest) / sizes
    usable = torch.isfinite(by_states) & (by_outputs != 0)
    ranks = [secants[usable].argsort().argsort() for secants in (by_states, by_outputs)]
    rank = float(torch.corrcoef(torch.stack(ranks).double())[0, 1])
    ratio = median(by_states[usable] / by_outputs[usable])
    if not abs(rank) >= RANK:
        raise AuditError(
            f"g_{layer} does not fit h_{layer} (rank correlation of secants {rank:.2f}): samples "
            "are in another order, or h is not the state at which g was taken"
        )
    reason = ""
    if rank < 0:
        reason = "g has the other sign"
    elif not RATIO[0] <= ratio <= RATIO[1]:
        reason = (
            "g is of a mean loss (1/N), h or g was scaled, as by a LayerNorm, or a layer is "
            "saturated"
        )
    if reason:
        raise AuditError(f"g_{layer} is {sig(ratio)} times what h_{layer} and e ask for: {reason}")
    return rank


def _secants(slopes: Tensor, values: Tensor, nearest: Tensor) -> Tensor:
    """The change from each row to its nearest one, by the slopes at both."""
    return ((slopes + slopes[nearest]) * (values[nearest] - values)).sum(1)


class TraceCredit(Credit):
    """Γ and its null by the trace's own credit; there is nothing to nudge."""

    needs = frozenset({"gradients"})

    def __init__(self, source: TraceSource) -> None:
        self.layers = source.layers["a"]
        self.name = "the trace"
        self.samples = 0
        self.problem = ""
        if not self.layers:
            self.problem = "the trace holds no credit: a_1 … a_L"
        layout = source.stream.layout
        self.sites = {layer: Site(layer, layout, credit) for layer, credit in self.layers.items()}

    def update(self, batch: Batch) -> None:
        """Compare the credits of an evaluation batch with its gradients."""
        part = slice(batch.start, batch.start + len(batch.y))
        for layer, credit in self.layers.items():
            a = credit[part].flatten(1).double()
            g = batch.gradients[layer].flatten(1).double()
            self.sites[layer].compare(a, g, batch.error.norms, batch.states[layer])
        self.samples += len(batch.y)


def measure_trace(
    arrays: Mapping[str, Any],
    metrics: Sequence[str],
    progress: Progress | None = None,
    extra: Mapping[str, Any] | None = None,
) -> tuple[Measurement, Score | None]:
    """The numbers of a trace, which is checked first, and the score of its control's outputs."""
    source = TraceSource(arrays)
    rank = source.check()
    makers = {**(extra or {}), "credit": TraceCredit}
    numbers = measure(source, metrics, progress, makers)
    score = None
    if "control_outputs" in arrays:
        control = TraceSource({**arrays, "outputs": arrays["control_outputs"]})
        score = measure(control, ["accuracy"]).score
    return replace(numbers, trace=True, secants=rank, reference=None), score
