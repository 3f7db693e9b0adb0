"""A trace as a source of batches: states, gradients and credit are taken as given, and checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import torch
from msgspec.structs import replace
from torch import nn

from ..judge.errors import AuditError
from ..judge.records import BATCH, BATCHES, Measurement, Reference, Score, StreamInfo
from ..judge.words import sig
from .credit import Credit, Site
from .pooling import Layout
from .run import EVERY_BATCH, NetworkSource, measure
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
RANK = 0.5
"""Their rank correlation at least: right dumps have 0.68, permuted ones at most 0.2."""


class TraceSource(NetworkSource):
    """Batches as a trace has them, by the arrays of ``read_trace``; there is no network.

    >>> measure(TraceSource(arrays), ["states", "accuracy"]).residual_norms
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.arrays = arrays = {
            name: torch.as_tensor(own) for name, own in given.items() if not isinstance(own, str)
        }
        depth = sum(name.startswith("h_") for name in arrays)
        self.layers = {
            kind: {n: arrays[f"{kind}_{n}"] for n in range(depth) if f"{kind}_{n}" in arrays}
            for kind in "hga"
        }
        states, y = list(self.layers["h"].values()), arrays["y"]
        self.rows, self.dtype, self.network = len(states[0]), states[-1].dtype, nn.Module()
        self.data_digest, self.n_train = None, None
        self.data = SimpleNamespace(groups=arrays.get("groups"))
        tokens = tuple(state.ndim == 3 for state in states)
        sizes = tuple(
            state[(0,) * (1 + own)].numel() for state, own in zip(states, tokens, strict=True)
        )
        blocks = tuple(f"block {n}" for n in range(1, depth))
        info = StreamInfo(blocks=blocks, sizes=sizes)
        self.stream = Stream((), info, (), frozenset(), tokens)
        self.proof = Reference(dtype="as given")  # nothing is proven, and nothing refuted
        self.labels = y if y.is_floating_point() else y.long()
        self.task = Task(loss=given.get("loss") or None).inferred(self.labels, arrays["outputs"])
        self.task.check(self.task.read(arrays["outputs"]), self.labels)

    @cached_property
    def error(self) -> tuple[OutputError, float, float]:
        """The output error of the rows that have states, the size of what is given relative to its
        formula, and the cosine of both.

        Directions are those of the formula, which does not cancel. Sizes are as given: a sample
        that is 0 in float32 has no gradient either.
        """
        outputs, e = self.arrays["outputs"][: self.rows], self.arrays["e"][: self.rows].double()
        formula = self.task.error(self.task.read(outputs.double()), self.labels[: self.rows])
        wanted = self.task.written_error(formula.whole).reshape(e.shape)
        size = float(e.norm() / wanted.norm())
        cosine = float((e * wanted).sum() / (e.norm() * wanted.norm()))
        own = row_norms(e.flatten(1)) / row_norms(wanted.flatten(1)) / size
        norms = (formula.norms * own).nan_to_num(0.0)
        return OutputError(formula.units, norms), size, cosine

    @cached_property
    def pooling(self) -> Any:
        """States as linear probes see them: vectors of all samples, or of all tokens."""
        places = [] if self.task.kind != "tokens" else [*self.labels.shape[1:]]
        if any([*state.shape[1:-1]] != places for state in self.layers["h"].values()):
            raise AuditError("a trace does not tell which tokens or places the head reads")
        if self.rows < len(self.labels):
            known = f"states of {self.rows:,} of {len(self.labels):,} samples"
            raise AuditError(f"the trace holds {known}; linear probes need all")
        made = nn.Flatten(0, 1) if places else nn.Identity()
        made.words = ""  # type: ignore[assignment]
        return made

    def batches(self, needs: frozenset[str]) -> Iterator[Batch]:
        """Ten batches of 128 at most, and the rest where something is needed of it."""
        whole = BATCH * min(BATCHES, self.rows // BATCH)
        end = len(self.labels) if needs & EVERY_BATCH else whole
        outputs, x = self.arrays["outputs"], self.arrays.get("x", self.labels[:, None][:, :0])
        x = x.float() if x.dtype == torch.uint8 and self.task.kind != "tokens" else x  # pixels
        error, size, _ = self.error
        for start in range(0, end, BATCH):
            part, evaluation = slice(start, start + BATCH), start < whole
            read = self.task.read(outputs[part])
            batch = Batch(x[part], self.labels[part], start, evaluation, read)
            if evaluation:
                batch.error = OutputError(error.units[part], error.norms[part])
                batch.states = [own[part] for own in self.layers["h"].values()]
                batch.gradients = [
                    torch.where(norms > 0, own[part] / (size * norms), 0.0)
                    for own in self.layers["g"].values()
                    for norms in [column(error.norms[part], own)]
                ]
            if "features" in needs:
                batch.features = [self.pooling(own[part]) for own in self.layers["h"].values()]
            yield batch

    def redrawn(self, network: nn.Module) -> NetworkSource:
        """There is no other network to send the data through: (e) has no null."""
        raise AuditError("a trace holds no blocks to re-initialise")

    def check(self) -> None:
        """An error where e is not that of the loss, or states and gradients do not fit outputs."""
        _, size, cosine = self.error
        by = f"e is not the gradient of the {self.task.name} by the outputs"
        if not cosine >= COSINE:
            raise AuditError(
                f"{by} (cosine {cosine:.4f}): the loss is another one, or y or e belong to other "
                "samples"
            )
        if self.task.key != "mse" and not 0.99 < size < 1.01:
            raise AuditError(
                f"{by}, but {sig(size)} times it: differentiate the sum of the losses, not their "
                "mean (1/N)"
            )
        rows = slice(min(self.rows, BATCH * BATCHES))
        o, e = (self.arrays[name][rows].flatten(1).double() for name in ("outputs", "e"))
        for layer in self.layers["h"]:
            h, g = (self.layers[kind][layer][rows].flatten(1).double() for kind in "hg")
            near = torch.cdist(h, h).fill_diagonal_(torch.inf).argmin(1)
            sizes = row_norms(e) + row_norms(e)[near]  # from both ends: curvature cancels
            by_states, by_outputs = (
                ((a + a[near]) * (b[near] - b)).sum(1) / sizes for a, b in ((g, h), (e, o))
            )
            told = torch.isfinite(by_states) & (by_outputs != 0)
            ranks = [own[told].argsort().argsort() for own in (by_states, by_outputs)]
            rank = float(torch.corrcoef(torch.stack(ranks).double())[0, 1])
            ratio = median(by_states[told] / by_outputs[told])
            if not abs(rank) >= RANK:
                raise AuditError(
                    f"g_{layer} does not fit h_{layer} (rank correlation of secants {rank:.2f}): "
                    "samples are in another order, or h is not the state at which g was taken"
                )
            if rank < 0 or not RATIO[0] <= ratio <= RATIO[1]:
                why = "g is of a mean loss (1/N), or h or g was scaled, as by a LayerNorm"
                why = "g has the other sign" if rank < 0 else why
                raise AuditError(
                    f"g_{layer} is {sig(ratio)} times what h_{layer} and e ask for: {why}"
                )


class TraceCredit(Credit):
    """Γ and its null by the trace's own credit; there is nothing to nudge."""

    needs = frozenset({"gradients"})

    def __init__(self, source: TraceSource) -> None:
        self.given = source.layers["a"]
        self.name, self.samples = "the trace", 0
        self.problem = "" if self.given else "the trace holds no credit: a_1 … a_L"
        layout = Layout(source.network, frozenset())
        self.sites = {layer: Site(layer, layout, own) for layer, own in self.given.items()}

    def update(self, batch: Batch) -> None:
        """Compare the credits of an evaluation batch with its gradients."""
        part = slice(batch.start, batch.start + len(batch.y))
        for layer, own in self.given.items():
            a, g = (v.flatten(1).double() for v in (own[part], batch.gradients[layer]))
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
    source.check()
    makers = {**(extra or {}), "credit": TraceCredit}
    numbers = measure(source, metrics, progress, makers)
    score = None
    if "control_outputs" in arrays:
        control = TraceSource({**arrays, "outputs": arrays["control_outputs"]})
        score = measure(control, ["accuracy"]).score
    return replace(numbers, trace=True, reference=None), score
