"""One pass over a network yields every number the diagnostics need; nothing is computed twice or kept longer than needed."""

from __future__ import annotations

import copy
import hashlib
import platform
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn

from ..judge.errors import AuditError
from ..judge.records import BATCH, BATCHES, Accuracy, AuxiliaryStatistics, Measurement
from ..judge.wording import count
from .batches import Batch, regrouped
from .output_error import Loss, cross_entropy, output_error
from .stream.find import find_stream
from .stream.sites import Stream, logits_of
from .tally import DirectionTally, NormTally, Rows, median, pairwise_cosine, row_norms

Progress = Callable[[int], None]
T = TypeVar("T")

LOOK = 3
"""How many samples one forward pass takes to find the stream."""


def measure(
    model: nn.Module,
    eval_batches: Iterable[Batch],
    *,
    stream: str | None = None,
    loss: Loss = cross_entropy,
    batches: int = BATCHES,
    batch_size: int = BATCH,
    threads: int | None = None,
    progress: Progress | None = None,
    data_digest: str | None = None,
) -> Measurement:
    """Measure a network on ``(x, y)`` batches of any sizes.

    The first ``batches`` groups of 128 samples are the probe: states, gradients and directions are measured on them. Every
    sample counts for the accuracy. ``batch_size`` bounds what is forwarded at once and changes no number; ``threads`` is how
    many torch computes with on a CPU (as many as it is set to), which may change last digits. The model comes back as it
    was: mode, ``requires_grad``, gradients, random state. ``progress`` is told the samples done so far.
    ``data_digest`` identifies the data, where the caller knows how: outcomes on other data are then not taken for outcomes
    on the same images.
    """
    if not isinstance(model, nn.Module):
        raise AuditError(f"the model is {type(model).__name__}, not a torch.nn.Module")
    if not (isinstance(batches, int) and isinstance(batch_size, int)):
        raise AuditError(f"batches and batch_size must be whole numbers, not {batches!r} and {batch_size!r}")
    if batches < 2:
        raise AuditError(f"the cross-batch cosine needs at least 2 batches of {BATCH} samples, not {batches}")
    if batch_size < 1:
        raise AuditError(f"the batch size must be at least 1, not {batch_size}")
    with _threads(threads), _undisturbed(model) as (network, dtype):
        return _Pass(network, dtype, stream, loss, batches, batch_size, progress, data_digest).over(eval_batches)


def evaluate(
    model: nn.Module,
    eval_batches: Iterable[Batch],
    *,
    batch_size: int = BATCH,
    threads: int | None = None,
    progress: Progress | None = None,
    data_digest: str | None = None,
) -> Accuracy:
    """The accuracy of a network, image by image; it needs no residual stream, so it serves controls without blocks too."""
    with _threads(threads), _undisturbed(model) as (network, dtype):
        return _Pass(network, dtype, None, cross_entropy, 0, batch_size, progress, data_digest).classify(eval_batches)


class _Pass:
    """The running statistics of one measurement; they stay on the device until the end."""

    def __init__(
        self,
        network: nn.Module,
        dtype: torch.dtype,
        spec: str | None,
        loss: Loss,
        batches: int,
        batch_size: int,
        progress: Progress | None,
        data: str | None,
    ) -> None:
        self.network, self.dtype, self.spec, self.loss = network, dtype, spec, loss
        self.batches, self.batch_size, self.data = batches, batch_size, data
        self.progress = progress or (lambda done: None)
        weight = next(network.parameters(), torch.empty(0))
        self.device, self.compute = weight.device, weight.dtype
        self.stream: Stream | None = None
        self.hits: list[Tensor] = []
        self.predictions: list[Tensor] = []
        self.broken_inputs: list[Tensor] = []
        self.broken_logits: list[Tensor] = []
        self.largest_logits: list[Tensor] = []
        self.labels: set[int] = set()
        self.order = hashlib.sha256()
        self.done = self.classes = 0

    def over(self, eval_batches: Iterable[Batch]) -> Measurement:
        """The measurement of everything that these batches show."""
        probed = self._run(eval_batches)
        if probed < 2:
            raise AuditError(
                f"the protocol needs at least 2 batches of {BATCH} samples; the evaluation data has {self.done} samples in all"
            )
        return self._result(probed)

    def _run(self, eval_batches: Iterable[Batch]) -> int:
        probed = 0
        for group, (x, y) in regrouped(eval_batches, self.batches):
            for rows in range(0, len(y), self.batch_size):
                part = self._on_device(x[rows : rows + self.batch_size], y[rows : rows + self.batch_size])
                if group is None:
                    self._classify(*part)
                else:
                    self._probe(*part, group)
                self.done += len(part[1])
                self.progress(self.done)
            probed += group is not None
        return probed

    def classify(self, eval_batches: Iterable[Batch]) -> Accuracy:
        """The accuracy alone, without a probe; a network whose logits are not finite has none."""
        self._run(eval_batches)
        self._check_inputs()
        broken = int(torch.stack(self.broken_logits).sum()) if self.broken_logits else 0
        if broken:
            raise AuditError(f"the logits are not finite for {count(broken, 'image')}, so this network has no accuracy")
        return self._accuracy()

    def _accuracy(self) -> Accuracy:
        return Accuracy.of(torch.cat(self.hits).tolist() if self.hits else [], self.order.hexdigest(), self.data)

    def _on_device(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        self.labels.update(torch.unique(y).tolist())
        self.order.update(y.long().cpu().numpy().tobytes())
        # A copy, since a network may write to its input in place, and the caller's data serve the next network too.
        x = x.detach().to(self.device, self.compute if x.is_floating_point() else x.dtype, non_blocking=True, copy=True)
        if x.is_floating_point():
            self.broken_inputs.append(
                (x * 0).count_nonzero()
            )  # only NaN and inf times 0 is not 0; isfinite takes thrice as long
        return x, y.to(self.device, torch.long, non_blocking=True)

    def _classify(self, x: Tensor, y: Tensor) -> None:
        with torch.no_grad():
            self._score(self._forward(lambda: logits_of(self.network(x)), x), y)

    def _probe(self, x: Tensor, y: Tensor, group: int) -> None:
        """Forward and backward through the stream; norms are taken as states appear and as gradients arrive."""
        stream = self._found(x)
        leaf: list[Tensor] = []

        def observe(layer: int, state: Tensor) -> None:
            if layer == 0:
                # No parameter and no input requires grad, so h_0 is where the graph begins: nothing before it is kept.
                leaf.append(state if state.requires_grad else state.requires_grad_())
            elif not state.requires_grad:
                raise AuditError(
                    f"the stream is detached before h_{layer}, so no BP gradient reaches the states below it; audit the "
                    "network with a forward pass that does not detach its states"
                )
            self.state_norms.add(layer, state.detach())
            state.register_hook(  # type: ignore[no-untyped-call]
                lambda gradient: self._arrived(layer, group, gradient)
            )

        with torch.enable_grad():
            logits = self._forward(lambda: stream.run(self.network, x, observe), x)
            if len(self.state_norms) < 2:
                raise AuditError("the network has no blocks: with h_0 alone there is no residual stream to audit")
            self._score(logits.detach(), y)
            units, norms = output_error(logits, y, self.loss)
            self.scale = norms
            # ⟨logits, unit error⟩ has the unit error as its gradient; passed as grad_outputs, torch would load sympy for it.
            carried = (logits * units.to(logits.dtype)).sum()
            self._forward(lambda: torch.autograd.grad(carried, leaf[0], allow_unused=True), x)
        unreached = [
            layer for layer in range(len(self.state_norms)) if self.gradient_norms.seen(layer) != self.state_norms.seen(0)
        ]
        if unreached:
            raise AuditError(
                f"no gradient of the loss reaches h_{max(unreached)} of the stream ({stream.source}); "
                "check the stream (--fa-stream) and the loss"
            )
        self.errors.add(group, units, norms)
        self.error_norms.add(norms)
        self.error_units.add(row_norms(units))

    def _arrived(self, layer: int, group: int, gradient: Tensor) -> None:
        gradient = gradient.detach()
        self.gradient_norms.add(layer, gradient)
        if layer == (len(self.state_norms) - 1) // 2:
            assert self.stream is not None
            self.directions.add(group, gradient.movedim(self.stream.batch_dim, 0), self.scale)

    def _found(self, x: Tensor) -> Stream:
        if self.stream is None:
            look = x[:LOOK]
            self.stream = self._forward(lambda: find_stream(self.network, look, self.spec), look)
            samples = self.batches * BATCH
            self.state_norms = NormTally(samples, self.stream.batch_dim)
            self.gradient_norms = NormTally(samples, self.stream.batch_dim)
            self.directions, self.errors = DirectionTally(self.batches), DirectionTally(self.batches)
            self.error_norms, self.error_units = Rows(samples), Rows(samples)
        return self.stream

    def _forward(self, run: Callable[[], T], x: Tensor) -> T:
        try:
            return run()
        except AuditError:
            raise
        except torch.OutOfMemoryError as error:
            raise AuditError(
                f"out of memory with {len(x)} samples at once; lower the batch size (--fa-batch-size): {error}"
            ) from error
        except Exception as error:
            raise AuditError(
                f"the network failed on inputs of shape {tuple(x.shape)} ({x.dtype}): {type(error).__name__}: {error}"
            ) from error

    def _score(self, logits: Tensor, y: Tensor) -> None:
        if logits.ndim != 2 or len(logits) != len(y):
            raise AuditError(
                f"the network returned logits of shape {tuple(logits.shape)} for {len(y)} samples; expected [{len(y)}, classes]"
            )
        self.classes = logits.shape[1]
        outside = sorted(label for label in self.labels if not 0 <= label < self.classes)
        if outside:
            raise AuditError(
                f"label {outside[0]} is out of range: the network has {self.classes} outputs, "
                f"so labels run from 0 to {self.classes - 1}"
            )
        finite = torch.isfinite(logits).all(1)
        predicted = logits.argmax(1)
        self.hits.append((predicted == y) & finite)
        self.predictions.append(torch.bincount(predicted, minlength=self.classes))
        self.broken_logits.append((~finite).sum())
        self.largest_logits.append(logits.abs().amax())

    def _check_inputs(self) -> None:
        broken = int(torch.stack(self.broken_inputs).sum()) if self.broken_inputs else 0
        if broken:
            raise AuditError(f"{count(broken, 'input value')} NaN or inf; the evaluation data is broken, not the network")
        if len(self.labels) == 1:
            raise AuditError(
                f"all {self.done:,} labels are {self.labels.pop()}: one class only measures neither accuracy nor direction; "
                "check the labels, or shuffle data that is sorted by class"
            )

    def _result(self, probed: int) -> Measurement:
        self._check_inputs()
        layers = len(self.state_norms)
        error_norms = self.error_norms.all()
        gradients = self.gradient_norms.medians(error_norms / BATCH)
        counts = torch.stack(self.predictions).sum(0)
        companions = AuxiliaryStatistics(
            batches=probed,
            samples=probed * BATCH,
            gradient_per_unit_error=self.gradient_norms.median_where(layers - 1, self.error_units.all() != 0) / BATCH,
            output_error_norm=median(error_norms),
            sample_invariance=self.directions.invariance(),
            output_error_drift=pairwise_cosine(self.errors.sums(probed)),
            zero_gradient_samples=self.directions.directionless(),
            nonfinite_states=self.state_norms.nonfinite(),
            nonfinite_gradients=self.gradient_norms.nonfinite(),
            nonfinite_logits=int(torch.stack(self.broken_logits).sum()),
            nonfinite_weights=_nonfinite_weights(self.network),
            tokens_without_gradient=self.gradient_norms.unread(),
            tokens=self.gradient_norms.tokens,
            classes=self.classes,
            predicted_class_share=float(counts.max() / counts.sum()),
            largest_logit=float(torch.stack(self.largest_logits).max()),
        )
        return Measurement(
            residual_norms=self.state_norms.medians(),
            bp_grad_norms=gradients,
            stability_layer=(layers - 1) // 2,
            cross_batch_stability=pairwise_cosine(self.directions.sums(probed)),
            companions=companions,
            accuracy=self._accuracy(),
            environment=self._environment(),
        )

    def _environment(self) -> dict[str, str | int | bool]:
        assert self.stream is not None
        name = (
            torch.cuda.get_device_name(self.device)
            if self.device.type == "cuda"
            else platform.processor() or platform.machine()
        )
        return {
            "torch": str(torch.__version__),
            "python": platform.python_version(),
            "device": self.device.type,
            "device_name": name,
            "dtype": str(self.dtype).removeprefix("torch."),
            "threads": torch.get_num_threads(),
            "tf32": self.device.type == "cuda"
            and bool(torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32),
            "stream": self.stream.source,
        }


@contextmanager
def _threads(number: int | None) -> Iterator[None]:
    """Compute with this many threads, and afterwards with as many as before."""
    before = torch.get_num_threads()
    try:
        if number is not None and number != before:
            torch.set_num_threads(number)
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)


@contextmanager
def _undisturbed(model: nn.Module) -> Iterator[tuple[nn.Module, torch.dtype]]:
    """The network to measure and its own dtype: in eval mode with frozen parameters, and afterwards as it was found."""
    dtypes = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    half = next((dtype for dtype in dtypes if dtype in (torch.float16, torch.bfloat16)), None)
    compute = torch.float64 if torch.float64 in dtypes else torch.float32
    network = copy.deepcopy(model).to(compute) if half is not None or len(dtypes) > 1 else model
    modes = [(module, module.training) for module in network.modules()]
    wanted = [(parameter, parameter.requires_grad) for parameter in network.parameters()]
    devices = {parameter.device for parameter in network.parameters() if parameter.device.type == "cuda"}
    try:
        with (
            torch.inference_mode(False),
            torch.autocast("cpu", enabled=False),
            torch.autocast("cuda", enabled=False),
            torch.random.fork_rng(devices=[device.index or 0 for device in devices]),
        ):
            network.eval()
            for parameter, _ in wanted:
                parameter.requires_grad_(False)
            yield network, half or next(iter(dtypes), torch.get_default_dtype())
    finally:
        for module, training in modes:
            module.training = training
        for parameter, required in wanted:
            parameter.requires_grad_(required)


def _nonfinite_weights(network: nn.Module) -> tuple[str, ...]:
    tensors = [(name, value) for name, value in network.state_dict().items() if value.is_floating_point()]
    if not tensors:
        return ()
    broken = torch.stack([(~torch.isfinite(value)).any() for _, value in tensors]).tolist()
    return tuple(name for (name, _), bad in zip(tensors, broken, strict=True) if bad)
