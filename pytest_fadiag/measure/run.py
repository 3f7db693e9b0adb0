"""A network measured: one pass over the data, in which metrics take in batches as seen."""

from __future__ import annotations

import copy
import math
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
from .folds import stratified
from .inputs import (
    FORWARD,
    NetworkError,
    Outputs,
    call_network,
    checked,
    copied,
    labelled,
    like,
    read_once,
    regrouped,
    rows,
    unlabelled,
)
from .metrics import Accuracy, Directions, Gradients, OutputErrors, States
from .pooling import EachToken, Pooling
from .precision import GradientPrecision
from .probes import DepthProbes
from .reference import passed, prove
from .step import Step, StepSource
from .stream.find import find_stream
from .stream.sites import Stream
from .task import Task
from .types import Batch, Metric, ModelInput, Progress

SAMPLES = 16
"""How many samples the stream is found by."""
TRAINING_SAMPLES = 20_000
"""So many samples of a training split are enough for a linear readout."""
OUTPUTS = 1 << 24
"""How many outputs of tokens are computed at once."""
EVERY_BATCH = frozenset({"inputs", "outputs", "features"})
"""What metrics need of all batches; the rest is taken on the evaluation batches."""
CONSTANT = 1e-3
"""Outputs that differ by less between samples are those of a dead network."""
REFERENCE_ALONE = frozenset({"reference"})
"""What metrics need that take whole evaluation batches and forward them by themselves."""
REFERENCE = frozenset({"gradients", "reference"})
"""What rests on a proven reference."""


class NetworkSource:
    """Batches as a network sees them, by a copy of it: the network that is given is never touched.

    ``batches`` are pairs (inputs, labels) of any sizes, or dictionaries with the labels in them, in
    an order that stays the same. Stream, reference and pooling are looked for when they are first
    asked for. ``batch_size`` bounds what is forwarded at once and changes no number. A generator is
    kept, ``memory`` GB of it at most.

    >>> source = NetworkSource(network, [(x, y)])
    >>> measure(source, ["states", "accuracy"]).residual_norms
    """

    evaluation_batches = BATCHES

    def __init__(
        self,
        model: nn.Module,
        batches: Iterable[Any],
        *,
        task: Task | None = None,
        forward: Callable[..., Any] | None = None,
        stream: str | None = None,
        credit: CreditSource | None = None,
        step: StepSource | None = None,
        batch_size: int = 512,
        memory: float | None = None,
        data_digest: str | None = None,
        n_train: int | None = None,
        training: Iterable[Any] | None = None,
        training_name: str = "",
    ) -> None:
        self.original = model
        self.network = working_copy(model)
        self.dtype = precisions(model)[0]
        self.data = read_once(batches, memory)
        self.task_option = task or Task()
        self.stream_option = stream
        self.forward = forward
        if forward is not None:
            vars(self.network)[FORWARD] = forward
        self.credit = credit
        self.step = step
        self.batch_size = batch_size
        self.data_digest = data_digest
        self.n_train = n_train
        self.training_data = training
        if training is not None:
            self.training_data = read_once(training, memory)
        self.training_name = training_name

    @cached_property
    def first(self) -> tuple[ModelInput, Tensor]:
        """The first samples, 128 at most, on the network's device, and their labels."""
        for x, y, _ in regrouped(self.data, 1):
            return self.inputs(x, y), y
        raise AuditError("the evaluation data holds no samples")

    def inputs(self, x: ModelInput, y: Tensor) -> ModelInput:
        """What the network, or the function that calls it, takes."""
        return like(x if self.forward is None else labelled(x, y), self.network)

    @cached_property
    def labels(self) -> Tensor:
        """Every target as given, in the order of the data."""
        data: Any = self.data
        if hasattr(data, "flat") and isinstance(data.y, Tensor):  # a DataSet
            return _widened(data.y.cpu())
        return _widened(torch.cat([y for _, y in checked(data)]).cpu())

    @cached_property
    def task(self) -> Task:
        """The task as all targets and the outputs of the first samples tell it."""
        x, y = self.first
        task = self.task_option
        are_indices = y.ndim == 1 and not y.is_floating_point()
        if are_indices and task.kind in (None, "classes") and y.max() > 1:
            return replace(task, kind="classes")
        if y.ndim == 2 and not y.is_floating_point():
            x = rows(x, slice(2))  # tokens have very many outputs
        with torch.no_grad():
            returned = call_network(self.network, copied(x))
        return task.inferred(self.labels, self._reader(task).found(returned))

    def refuse_leakage(self) -> None:
        """An error where the function that gives the outputs reads the labels.

        It is called with labels of other samples. One that draws numbers draws the same ones.
        """
        if self.forward is None:
            return
        x, y = unlabelled(self.first[0])
        spread = torch.linspace(0, len(self.labels) - 1, len(y)).round().long()
        outputs = []
        for labels in (y, y, self.labels[spread].flip(0)):
            torch.manual_seed(0)
            inputs = like(copied(labelled(x, _widened(labels))), self.network)
            outputs.append(self.outputs(call_network(self.network, inputs)).nan_to_num())
        if torch.equal(*outputs[:2]) and not torch.equal(*outputs[1:]):
            raise AuditError(
                "the outputs depend on the labels: scores would be of the labels, not of the "
                "network; let --fa-forward (forward=) ignore y"
            )

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
        _, y = self.first
        if y.is_floating_point():
            return Outputs(y[:1].numel(), 2, task)
        if y.ndim == 2:
            return Outputs(y.shape[1], 3, task)
        return Outputs(int(y.max()) + 1, 2, task)

    @cached_property
    def outputs(self) -> Outputs:
        """What reads the outputs of the network."""
        return self._reader(self.task)

    @cached_property
    def stream(self) -> Stream:
        """The stream, as the user names it or as it is found."""
        x = rows(self.first[0], slice(SAMPLES))
        return find_stream(self.network, x, self.stream_option, self.outputs)

    @property
    def blocks(self) -> tuple[tuple[str, ...], ...]:
        """The parameters of each block alone, by name; none where no stream was looked for."""
        if not self.has("stream"):
            return ()
        return self.stream.exclusive_parameters

    def has(self, name: str) -> bool:
        """Whether this cached property has been asked for."""
        return name in vars(self)

    @cached_property
    def proof(self) -> Reference:
        """How the reference is proven."""
        return prove(self.network, self.stream, self.first[0])

    @cached_property
    def pooling(self) -> Pooling | EachToken:
        """How linear probes see a state."""
        x = rows(self.first[0], slice(SAMPLES))
        if self.task.kind == "tokens":
            return EachToken(self.network, self.stream, x)
        return Pooling(self.network, self.stream, x)

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next(self.network.parameters(), torch.empty(0)).device

    def redrawn(self, network: nn.Module) -> NetworkSource:
        """The same data through another network of this architecture, with stream and pooling."""
        source = copy.copy(self)
        source.network = network
        if self.forward is not None:
            vars(network)[FORWARD] = self.forward
        return source

    @cached_property
    def training_samples(self) -> Iterable[Any] | None:
        """At most ``n_train`` and 20,000 samples of the training split, of each class its share."""
        if self.training_data is None:
            return None
        split = self._on(self.training_data)
        limit = min(TRAINING_SAMPLES, self.n_train or TRAINING_SAMPLES)
        groups = torch.zeros(len(split.labels), dtype=torch.long)
        if limit >= len(groups):
            return split.data
        if self.task.kind == "classes":
            groups = split.targets
        drawn = stratified(groups, limit)
        if hasattr(split.data, "taken"):  # a DataSet
            return split.data.taken(drawn)  # type: ignore[no-any-return]
        return Samples(split.data, torch.zeros_like(groups).bool().index_fill_(0, drawn, True))

    @property
    def training(self) -> NetworkSource | None:
        """The training split through the same network, with its stream and pooling."""
        if self.training_samples is None:
            return None
        return self._on(self.training_samples)

    def _on(self, data: Iterable[Any]) -> NetworkSource:
        """Other data through the same network."""
        source = copy.copy(self)
        source.data = data
        for name in ("first", "labels", "targets", "clusters"):
            vars(source).pop(name, None)
        return source

    def chosen(self, mask: Tensor) -> Iterator[ModelInput]:
        """The inputs of the samples of a mask in batches of exactly 128; a rest is left out."""
        for x, y, is_full in regrouped(Samples(self.data, mask), sys.maxsize):
            if is_full:
                yield self.inputs(x, y)

    def batches(self, needs: frozenset[str]) -> Iterator[Batch]:
        """Ten batches of exactly 128, and the rest as it comes where something is needed of it.

        They come in slices of as many samples as are forwarded at once. The first slice of an
        evaluation batch brings the inputs and labels of all of it along.
        """
        start = 0
        for x, y, evaluation in regrouped(self.data, self.evaluation_batches):
            if not evaluation and not needs & EVERY_BATCH:
                return
            needed = needs if evaluation else needs & EVERY_BATCH
            for first in range(0, len(y), self.at_once):
                part = slice(first, first + self.at_once)
                self._refuse_another_order(y[part], start)
                batch = self._batch(rows(x, part), y[part], start, evaluation=evaluation)
                if evaluation and not first:
                    batch.whole = self._batch(x, y, start, evaluation=True)
                if needed - {"inputs", "reference"}:
                    self._forward(batch, needed)
                start += len(batch.y)
                yield batch

    @cached_property
    def at_once(self) -> int:
        """How many samples are forwarded at once: tokens have very many outputs."""
        if self.task.kind != "tokens":
            return self.batch_size
        outputs = self.first[1].shape[1] * len(self.task.ranks)
        return max(1, min(self.batch_size, OUTPUTS // outputs))

    def _batch(self, x: ModelInput, y: Tensor, start: int, *, evaluation: bool) -> Batch:
        """Inputs and labels as the network takes them."""
        labels = _widened(y.to(self.device))
        return Batch(self.inputs(x, labels), labels, start, evaluation)

    def _refuse_another_order(self, y: Tensor, start: int) -> None:
        """An error where labels are others than those that were read before from this place on."""
        if not self.has("labels"):
            return
        if not torch.equal(_widened(y.cpu()), self.labels[start : start + len(y)]):
            raise AuditError("the data comes in another order when read again; do not shuffle it")

    @torch.no_grad()
    def _forward(self, batch: Batch, needs: frozenset[str]) -> None:
        """Add what is needed of a batch, by one pass of the network."""
        x = batch.x
        y = batch.y
        pooling = self.pooling if "features" in needs else nn.Identity()  # before the pass

        def objective(outputs: Tensor) -> Tensor:
            """⟨outputs, unit error⟩, whose gradient by the outputs is the unit error."""
            self.task.check(outputs, y)
            batch.outputs = outputs.detach()
            if not needs & {"error", "gradients"}:
                return outputs
            batch.error = self.task.error(outputs, y)
            return (outputs * batch.error.units.to(outputs.dtype)).sum()

        def on_state(layer: int, state: Tensor) -> None:
            state = state.movedim(self.stream.batch_dims[layer], 0)
            if "states" in needs:
                batch.states.append(state)
            if "features" in needs:
                batch.features.append(pooling(state))

        if "gradients" in needs:
            trip = passed(self.network, self.stream, x, objective)
            batch.states = trip.states
            batch.gradients = trip.gradients
            if "features" in needs:
                batch.features = [pooling(state) for state in trip.states]
        elif needs & {"states", "features"}:
            objective(self.stream.run(self.network, copied(x), on_state))
        else:
            objective(self.outputs(call_network(self.network, copied(x))))


class Samples:
    """The batches of some data without the samples that are not in a mask."""

    def __init__(self, data: Iterable[Any], mask: Tensor) -> None:
        self.data = data
        self.mask = mask
        self.groups = getattr(data, "groups", None)
        if self.groups is not None:
            self.groups = torch.as_tensor(self.groups).cpu()[mask]

    def __iter__(self) -> Iterator[tuple[ModelInput, Tensor]]:
        start = 0
        for x, y in checked(self.data):
            end = start + len(y)
            part = self.mask[start:end]
            yield rows(x, part), y[part]
            start = end


def _widened(y: Tensor) -> Tensor:
    """Labels as 64-bit whole numbers; values as they are."""
    if y.is_floating_point():
        return y
    return y.long()


METRICS: dict[str, Callable[[NetworkSource], Metric]] = {
    "states": States,
    "gradients": Gradients,
    "directions": Directions,
    "output-error": OutputErrors,
    "accuracy": Accuracy,
    "precision": GradientPrecision,
    "floor": Floor,
    "depth": DepthProbes,
    "credit": Credit,
    "step": Step,
    "control-readout": lambda source: DepthProbes(source, embedding_alone=True),
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
    tell = progress or (lambda *_: None)
    with quiet(source.network):
        tell("stream", 0, 1)
        task = source.task
        source.refuse_leakage()
        measurable, stream_problem = _measurable(source, metrics)
        chosen = _make(source, measurable, {**METRICS, **(extra or {})})
        batch_count, are_probabilities = _update_all(source, list(chosen.values()), progress)
        if are_probabilities:
            task.refuse_probabilities()
        fields: dict[str, Any] = {}
        extra_fields = {}
        for number, (name, metric) in enumerate(chosen.items()):
            tell(name, number, len(chosen))
            values = metric.compute()
            if name in METRICS:
                fields.update(values)
            else:
                extra_fields[name] = values
    return Measurement(
        **fields,
        batches=batch_count,
        samples=batch_count * BATCH,
        stream=source.stream.info if source.has("stream") else None,
        stream_problem=stream_problem,
        reference=source.proof if source.has("proof") else None,
        task=task.kind or "classes",
        loss=task.name,
        loss_assumed=task.assumed,
        environment=_environment(source),
        extra=extra_fields,
    )


def _measurable(source: NetworkSource, metrics: Sequence[str]) -> tuple[Sequence[str], str]:
    """The metrics that can be measured, and why the others cannot: the stream is refused."""
    streamless = [name for name in metrics if name in STREAMLESS]
    if len(streamless) == len(metrics):
        return metrics, ""
    try:
        source.stream  # noqa: B018 (it is looked for here)
    except NetworkError:
        raise
    except AuditError as error:
        if not streamless:
            raise
        return streamless, str(error)
    return metrics, ""


def _make(
    source: NetworkSource,
    names: Sequence[str],
    makers: Mapping[str, Callable[[NetworkSource], Metric]],
) -> dict[str, Metric]:
    """The metrics of these names, without those that rest on a reference that is not proven.

    Of credit and step what was given, credit where neither was.
    """
    unasked = "step"
    if source.step is not None:
        unasked = "" if source.credit is not None else "credit"
    metrics = {}
    for name in names:
        if name != unasked:
            metric = makers[name](source)
            if not metric.needs & REFERENCE or not source.proof.problem:
                metrics[name] = metric
    return metrics


def _update_all(
    source: NetworkSource, metrics: Sequence[Metric], progress: Progress | None
) -> tuple[int, bool]:
    """Show every batch to the metrics: how many evaluation batches, and whether all outputs are
    probabilities.
    """
    needs = frozenset[str]().union(*(metric.needs for metric in metrics))
    samples = 0
    batch_count = 0
    low = torch.tensor(math.inf)
    high = -low
    """The smallest and the largest output of each class."""
    for batch in source.batches(needs):
        begins = batch.evaluation and batch.start % BATCH == 0
        for metric in metrics:
            if metric.needs <= REFERENCE_ALONE:
                if batch.whole is not None:
                    metric.update(batch.whole)
            elif batch.evaluation or metric.needs & EVERY_BATCH:
                metric.update(batch)
        samples += len(batch.y)
        batch_count += begins
        if source.task.kind != "tokens" and len(batch.outputs):
            low = torch.minimum(low, batch.outputs.amin(0).cpu())
            high = torch.maximum(high, batch.outputs.amax(0).cpu())
        if progress is not None:
            progress("samples", samples, len(source.labels))
        del batch  # before the next one is made
    needs_batches = any(not metric.needs & EVERY_BATCH for metric in metrics)
    if needs_batches and batch_count < 2:
        raise AuditError(
            f"the evaluation data has {samples} samples in all; the protocol needs at least 2 "
            f"batches of {BATCH}"
        )
    # Those of a dead network do not vary; it fires.
    varies = float((high - low).max()) > CONSTANT
    are_probabilities = varies and float(low.min()) >= 0 and float(high.max()) <= 1
    return batch_count, are_probabilities


def _environment(source: NetworkSource) -> dict[str, Any]:
    """What the numbers were measured with."""
    device = source.device
    is_cuda = device.type == "cuda"
    device_name = platform.processor() or platform.machine()
    if is_cuda:
        device_name = torch.cuda.get_device_name(device)
    has_tf32 = torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32
    environment = {
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "device": device.type,
        "device_name": device_name,
        "dtype": str(source.dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        "tf32": is_cuda and bool(has_tf32),
    }
    if source.task.remark:
        return {"targets": source.task.remark, **environment}
    return environment
