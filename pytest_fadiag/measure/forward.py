"""Samples on their way through a network, shown to whoever watches; no state and no gradient is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..judge.errors import AuditError
from .backward import Backward
from .inputs import Inputs, ModelInput, call_network, copied, describe, rows, size_of
from .observers import Event, EveryBatch, FirstBatch, Gradient, Observer, Output, OutputError, ProbeBatch, Samples, State
from .output_error import Loss, output_error
from .outputs import Outputs
from .reference import Proof, prove
from .stream.find import find_stream
from .stream.sites import Stream

LOOK = 16
"""How many samples are looked at to find the stream."""

T = TypeVar("T")


class Forward:
    """A network, those who watch samples go through it, and its stream, looked for when somebody first watches it."""

    def __init__(self, network: nn.Module, observers: Sequence[Observer[Any]], spec: str | None, loss: Loss) -> None:
        self.network, self.observers, self.spec, self.loss = network, observers, spec, loss
        self.inputs, self.outputs = Inputs(network), Outputs()
        self.stream: Stream | None = None
        self.labels_unused = self.inputs.label_name is None
        self.proof: Proof | None = None

    def begin(self, x: ModelInput, y: Tensor) -> None:
        """Prove the reference with the first samples of the probe, where somebody watches gradients or asks how it is taken."""
        if not any({FirstBatch, ProbeBatch, Gradient} & set(observer.watches) for observer in self.observers):
            return
        x, _ = self.inputs.moved(x, y)
        self.outputs.expect(y)
        self.proof = prove(self.network, self._find_stream(x), x)
        problem = self.proof.record.problem
        if problem and not any(FirstBatch in observer.watches for observer in self.observers):
            raise AuditError(f"the reference is not proven: {problem}")

    def run(self, x: ModelInput, y: Tensor, start: int, *, in_probe: bool) -> None:
        """Forward some samples, and back to the stream where somebody watches its gradients."""
        x, labels = self.inputs.on_device(x, y)
        self.outputs.expect(y)
        samples = Samples(labels, start, in_probe)
        look = x if self.labels_unused else copied(rows(x, slice(LOOK)))  # before the network writes to its input
        backward = Backward(self._show, self._find_stream(x)) if self._watching(Gradient, samples) else None
        if self.proof is not None and in_probe and samples.batch == 0:
            self._show(FirstBatch(samples, x, self.network, self._find_stream(x), self.loss, self.proof))
        if self.proof is not None and self._watching(ProbeBatch, samples):
            self._show(ProbeBatch(samples, copied(x), self.network, self._find_stream(x), self.loss, self.proof))
        if self._watching(EveryBatch, samples):
            self._show(EveryBatch(samples, x, self.network, self._find_stream(x)))
        if not any(self._watching(kind, samples) for kind in (Output, State, OutputError, Gradient)):
            return
        with torch.set_grad_enabled(backward is not None):
            logits = _guarded(x, lambda: self._logits(x, samples, backward))
            self.inputs.check_logits(logits, labels)
            self.outputs.check(logits)
            if not self.labels_unused:
                _guarded(look, lambda: self._check_labels_unused(look, logits.shape[1]))
            self._show(Output(samples, logits.detach()))
            if backward is None and not self._watching(OutputError, samples):
                return
            error = OutputError(samples, *output_error(logits, labels, self.loss))
            self._show(error)
            if backward is not None:
                self._differentiate(x, logits, error, backward)

    def _logits(self, x: ModelInput, samples: Samples, backward: Backward | None) -> Tensor:
        """The logits, and on the way to them the states, for those who watch them or their gradients."""
        if backward is None and not self._watching(State, samples):
            return self.outputs(call_network(self.network, x))
        stream, depth = self._find_stream(x), 0
        proof = self.proof if backward is not None else None
        with nullcontext() if proof is None else proof.forward(self.network) as through:

            def on_state(layer: int, state: Tensor) -> None:
                nonlocal depth
                depth = layer
                with nullcontext() if through is None else through.aside():
                    if backward is not None:
                        backward.attach(layer, state)
                    value = state.detach().movedim(stream.batch_dims[layer], 0)
                    self._show(State(samples, layer, value, stream.tokens[layer]))

            logits = stream.run(self.network, x, on_state)
        if depth == 0:
            raise AuditError("the network has no blocks: with h_0 alone there is no residual stream to audit")
        return logits

    def _differentiate(self, x: ModelInput, logits: Tensor, error: OutputError, backward: Backward) -> None:
        _guarded(x, lambda: backward.run(logits, error))
        if backward.unreached:
            raise AuditError(
                f"no gradient of the loss reaches h_{backward.unreached[-1]} of the stream ({self._find_stream(x).source}); "
                "check the stream (--fa-stream) and the loss"
            )

    def _check_labels_unused(self, x: ModelInput, classes: int) -> None:
        """An error where the logits of a forward pass that insists on labels depend on them: they would be no prediction."""
        self.labels_unused = True
        other = self.inputs.with_other_labels(x, classes)
        if other is None:
            return
        with torch.no_grad():
            logits, with_other = (self.outputs(call_network(self.network, copied(given))) for given in (x, other))
        if not torch.allclose(logits, with_other, rtol=1e-4, equal_nan=True):
            raise AuditError(
                f"the network's forward takes {self.inputs.label_name!r} and its logits depend on them, so they are no "
                "prediction; let forward return logits that come from the inputs alone"
            )

    def _find_stream(self, x: ModelInput) -> Stream:
        if self.stream is None:
            look = rows(x, slice(LOOK))
            self.stream = _guarded(look, lambda: find_stream(self.network, look, self.spec, self.outputs))
        return self.stream

    def _watching(self, kind: type[Event], samples: Samples) -> list[Observer[Any]]:
        """Who watches this kind of event at these samples; gradients are taken on the probe alone."""
        return [
            observer
            for observer in self.observers
            if kind in observer.watches and (samples.in_probe or (observer.every_batch and kind not in (Gradient, ProbeBatch)))
            if not (kind in (Gradient, ProbeBatch) and self.unproven)
        ]

    @property
    def unproven(self) -> bool:
        """Whether there is no gradient to watch, since autograd's is not proven to be the network's."""
        return self.proof is not None and bool(self.proof.record.problem)

    def _show(self, event: Event) -> None:
        for observer in self._watching(type(event), event.samples):
            try:
                observer.update(event)
            except (AuditError, torch.OutOfMemoryError):
                raise
            except Exception as error:  # most of this runs inside the network, which is not to blame
                raise AuditError(f"the observer {observer.spec.name!r} failed: {type(error).__name__}: {error}") from error


def _guarded(x: ModelInput, run: Callable[[], T]) -> T:
    """What a network computes; its failure as an error that says with which inputs."""
    try:
        return run()
    except AuditError:
        raise
    except torch.OutOfMemoryError as error:
        raise AuditError(
            f"out of memory with {size_of(x)} samples at once; lower the batch size (--fa-batch-size): {error}"
        ) from error
    except Exception as error:
        raise AuditError(f"the network failed on {describe(x)}: {type(error).__name__}: {error}") from error
