"""A network measured: one pass over the data, in which metrics take in batches as seen."""

from __future__ import annotations

import copy
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from ..judge.errors import AuditError
from ..judge.records import BATCH, BATCHES, Measurement, Reference
from .copies import precisions, quiet, working_copy
from .credit import Credit, CreditSource
from .floor import Floor
from .inputs import (
    FORWARD,
    NetworkError,
    Outputs,
    call_network,
    checked,
    copied,
    labelled,
    like,
    regrouped,
    rows,
)
from .metrics import Accuracy, Directions, GradientPrecision, Gradients, OutputErrors, States
from .pooling import EachToken, Pooling
from .probes import Depth
from .reference import passed, prove
from .stream.find import find_stream
from .stream.sites import Stream
from .task import OutputError, Task
from .types import Batch, Metric, ModelInput, Progress

LOOK = 16
"""How many samples are looked at to find the stream."""
EVERY_BATCH = frozenset({"outputs", "features"})
"""What metrics need of all batches; the rest is taken on the evaluation batches."""
CONSTANT = 1e-3
"""Outputs that differ by less between samples are those of a dead network."""
REFERENCE = frozenset({"gradients", "reference"})
"""What rests on a proven reference."""


class NetworkSource:
    """Batches as a network sees them, by a copy of it: the network that is given is never touched.

    ``batches`` are pairs (inputs, labels) of any sizes, or dictionaries with the labels in them, in
    an order that stays the same. Stream, reference and pooling are looked for when they are first
    asked for. ``batch_size`` bounds what is forwarded at once and changes no number.

    >>> source = NetworkSource(network, [(x, y)])
    >>> measure(source, ["states", "accuracy"]).residual_norms
    """

    def __init__(
        self,
        model: nn.Module,
        batches: Iterable[Any],
        *,
        task: Task | None = None,
        forward: Callable[..., Any] | None = None,
        stream: str | None = None,
        credit: CreditSource | None = None,
        batch_size: int = 512,
        data_digest: str | None = None,
        n_train: int | None = None,
    ) -> None:
        self.network = working_copy(model)
        self.dtype = precisions(model)[0]
        self.data = list(map(copy.deepcopy, batches)) if isinstance(batches, Iterator) else batches
        self.asked, self.spec, self.credit = task or Task(), stream, credit
        self.forward = forward
        if forward is not None:
            vars(self.network)[FORWARD] = forward
        self.batch_size, self.data_digest, self.n_train = batch_size, data_digest, n_train

    @cached_property
    def first(self) -> tuple[ModelInput, Tensor]:
        """The first samples, 128 at most, on the network's device, and their labels."""
        for x, y, _ in regrouped(self.data, 1):
            return self._inputs(x, y), y
        raise AuditError("the evaluation data holds no samples")

    def _inputs(self, x: ModelInput, y: Tensor) -> ModelInput:
        """What the network, or the function that calls it, takes."""
        return like(x if self.forward is None else labelled(x, y), self.network)

    @cached_property
    def labels(self) -> Tensor:
        """Every target as given, in the order of the data."""
        own = getattr(self.data, "y", None) if hasattr(self.data, "flat") else None  # a DataSet
        parts = [own] if isinstance(own, Tensor) else [y for _, y in checked(self.data)]
        return _whole(torch.cat(parts).cpu())

    @cached_property
    def task(self) -> Task:
        """The task as all targets and the outputs of the first samples tell it."""
        (x, y), asked = self.first, self.asked
        if y.ndim == 1 and not y.is_floating_point() and asked.kind != "regression" and y.max() > 1:
            return replace(asked, kind=asked.kind or "classes")
        with torch.no_grad():
            returned = call_network(self.network, copied(x))
        return asked.told(self.labels, self._reader(asked).found(returned))

    @cached_property
    def targets(self) -> Tensor:
        """Every target in the form of the task: class indices, token ids, values in √V."""
        return self.task.targets(self.labels)

    @cached_property
    def clusters(self) -> Tensor:
        """Which samples belong together: each to itself, or by the data's ``groups``."""
        groups = getattr(self.data, "groups", None)
        if groups is None:
            return torch.arange(len(self.labels))
        return torch.as_tensor(groups).cpu()

    def _reader(self, task: Task) -> Outputs:
        y = self.first[1]
        tokens = y.ndim == 2 and not y.is_floating_point()
        values = y.ndim == 2 or y.is_floating_point()
        return Outputs(y[:1].numel() if values else int(y.max()) + 1, 2 + tokens, task)

    @cached_property
    def outputs(self) -> Outputs:
        """What reads the outputs of the network."""
        return self._reader(self.task)

    @cached_property
    def stream(self) -> Stream:
        """The stream, as the user names it or as it is found."""
        look = rows(self.first[0], slice(LOOK))
        return find_stream(self.network, look, self.spec, self.outputs)

    @property
    def blocks(self) -> tuple[tuple[str, ...], ...]:
        """The parameters of each block alone, by name; none where no stream was looked for."""
        return self.stream.exclusive_parameters if "stream" in vars(self) else ()

    @cached_property
    def proof(self) -> Reference:
        """How the reference is proven."""
        return prove(self.network, self.stream, self.first[0])

    @cached_property
    def pooling(self) -> Pooling | EachToken:
        """How linear probes see a state."""
        kind = EachToken if self.task.kind == "tokens" else Pooling
        return kind(self.network, self.stream, rows(self.first[0], slice(LOOK)))

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next(self.network.parameters(), torch.empty(0)).device

    def redrawn(self, network: nn.Module) -> NetworkSource:
        """The same data through another network of this architecture, with stream and pooling."""
        other = copy.copy(self)
        other.network = network
        if self.forward is not None:
            vars(network)[FORWARD] = self.forward
        return other

    def chosen(self, mask: Tensor) -> Iterator[ModelInput]:
        """The inputs of the samples of a mask in batches of exactly 128; a rest is left out."""

        def picked() -> Iterator[tuple[ModelInput, Tensor]]:
            start = 0
            for x, y in checked(self.data):
                part = mask[start : (start := start + len(y))]
                yield rows(x, part), y[part]

        groups = regrouped(picked(), sys.maxsize)
        yield from (self._inputs(x, y) for x, y, whole in groups if whole)

    def batches(self, needs: frozenset[str]) -> Iterator[Batch]:
        """Ten batches of exactly 128, and the rest as it comes where something is needed of it."""
        start = 0
        for x, y, evaluation in regrouped(self.data, BATCHES):
            if not evaluation and not needs & EVERY_BATCH:
                return
            known = self.labels[start : start + len(y)] if "labels" in vars(self) else y
            if not torch.equal(_whole(y.cpu()), _whole(known.cpu())):
                raise AuditError(
                    "the data comes in another order when read again; do not shuffle it"
                )
            for part in _slices(len(y), BATCH if evaluation else self.batch_size):
                labels = _whole(y[part].to(self.device))
                batch = Batch(self._inputs(rows(x, part), labels), labels, start, evaluation)
                start += len(labels)
                self._look(batch, needs if evaluation else needs & EVERY_BATCH)
                yield batch

    def _look(self, batch: Batch, needs: frozenset[str]) -> None:
        """Add what is needed of a batch, at most ``batch_size`` samples at once."""
        slices = _slices(len(batch.y), self.batch_size) if needs - {"reference"} else []
        parts = [self._seen(rows(batch.x, part), batch.y[part], needs) for part in slices]
        for name in parts[0] if parts else ():
            tensors = zip(*(part[name] for part in parts), strict=True)
            whole = [torch.cat(own) if len(own) > 1 else own[0] for own in tensors]
            kind: Any = {"outputs": next, "error": lambda own: OutputError(*own)}.get(name, list)
            setattr(batch, name, kind(iter(whole)))

    @torch.no_grad()
    def _seen(self, x: ModelInput, y: Tensor, needs: frozenset[str]) -> dict[str, list[Tensor]]:
        pooling = self.pooling if "features" in needs else torch.nn.Identity()  # before the pass
        seen: dict[str, list[Tensor]] = {name: [] for name in needs & {"states", "features"}}

        def carried(outputs: Tensor) -> Tensor:
            """⟨outputs, unit error⟩, whose gradient by the outputs is the unit error."""
            self.task.check(outputs, y)
            seen["outputs"] = [outputs.detach()]
            if not needs & {"error", "gradients"}:
                return outputs
            error = self.task.error(outputs, y)
            seen["error"] = [error.units, error.norms]
            return (outputs * error.units.to(outputs.dtype)).sum()

        def on_state(layer: int, state: Tensor) -> None:
            state = state.movedim(self.stream.batch_dims[layer], 0)
            if "states" in needs:
                seen["states"].append(state)
            if "features" in needs:
                seen["features"].append(pooling(state))

        if "gradients" in needs:
            _, seen["states"], seen["gradients"], _ = passed(self.network, self.stream, x, carried)
            if "features" in needs:
                seen["features"] = [pooling(state) for state in seen["states"]]
        elif seen:
            carried(self.stream.run(self.network, copied(x), on_state))
        else:
            carried(self.outputs(call_network(self.network, copied(x))))
        return seen


def _whole(y: Tensor) -> Tensor:
    return y if y.is_floating_point() else y.long()


def _slices(length: int, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, length, size)]


METRICS: dict[str, Callable[[NetworkSource], Metric]] = {
    "states": States,
    "gradients": Gradients,
    "directions": Directions,
    "output-error": OutputErrors,
    "accuracy": Accuracy,
    "precision": GradientPrecision,
    "floor": Floor,
    "depth": Depth,
    "credit": Credit,
    "control-readout": lambda source: Depth(source, states=1),
}
"""What can be measured, by name."""
STREAMLESS = ("accuracy", "output-error", "floor")
"""What is measured also where the stream is refused."""


def measure(
    source: NetworkSource,
    metrics: Sequence[str],
    progress: Progress | None = None,
    extra: Mapping[str, Callable[[NetworkSource], Metric]] | None = None,
) -> Measurement:
    """Measure what these metrics compute, in one pass; ``extra`` makes those of other packages.

    A metric that rests on the reference computes nothing where that is not proven:
    ``reference.problem`` says why. Where the stream is refused, ``stream_problem`` says so, and
    what needs none is measured.
    """
    makers = {**METRICS, **(extra or {})}
    stream_problem = ""
    with quiet(source.network):
        task = source.task
        if along := [name for name in metrics if name not in STREAMLESS]:
            try:
                _ = source.stream
            except NetworkError:
                raise
            except AuditError as error:
                if len(along) == len(metrics):
                    raise
                metrics = [name for name in metrics if name in STREAMLESS]
                stream_problem = str(error)
        made = {name: makers[name](source) for name in metrics}
        rests = {name for name, metric in made.items() if metric.needs & REFERENCE}
        if rests and source.proof.problem:
            made = {name: metric for name, metric in made.items() if name not in rests}
        needs = frozenset[str]().union(*(metric.needs for metric in made.values()))
        samples = batches = 0
        probabilities = bool(needs - {"reference"})
        for batch in source.batches(needs):
            for metric in made.values():
                if batch.evaluation or metric.needs & EVERY_BATCH:
                    metric.update(batch)
            samples, batches = samples + len(batch.y), batches + batch.evaluation
            if probabilities:
                low, high = batch.outputs.amin(0), batch.outputs.amax(0)
                varied = float((high - low).max()) > CONSTANT  # else it is dead, and fires
                probabilities = varied and float(low.min()) >= 0 and float(high.max()) <= 1
            if progress is not None:
                progress(samples, len(source.labels))
            del batch  # before the next one is made
        beyond = any(not metric.needs & EVERY_BATCH for metric in made.values())
        if beyond and batches < 2:
            raise AuditError(
                f"the evaluation data has {samples} samples in all; the protocol needs at least 2 "
                f"batches of {BATCH}"
            )
        if probabilities:
            task.refuse_probabilities()
        computed = {name: metric.compute() for name, metric in made.items()}
    device, cuda = source.device, source.device.type == "cuda"
    machine = platform.processor() or platform.machine()
    tf32 = torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32
    own = [fields for name, fields in computed.items() if name in METRICS]
    return Measurement(
        **{field: value for fields in own for field, value in fields.items()},
        batches=batches,
        samples=batches * BATCH,
        stream=source.stream.info if "stream" in vars(source) else None,
        stream_problem=stream_problem,
        reference=source.proof if "proof" in vars(source) else None,
        task=task.kind or "classes",
        loss=task.name,
        loss_assumed=task.assumed,
        environment={
            **({"targets": task.remark} if task.remark else {}),
            "torch": str(torch.__version__),
            "python": platform.python_version(),
            "device": device.type,
            "device_name": torch.cuda.get_device_name(device) if cuda else machine,
            "dtype": str(source.dtype).removeprefix("torch."),
            "threads": torch.get_num_threads(),
            "tf32": cuda and bool(tf32),
        },
        extra={name: fields for name, fields in computed.items() if name not in METRICS},
    )
