"""One pass over the evaluation data, in which observers see what they watch; nothing is computed that none of them watches."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..judge.errors import AuditError
from ..judge.records import BATCH, BATCHES
from ..judge.stream import ResidualStream
from .batches import Batch, regrouped
from .credit import CreditSource
from .evaluation import Evaluation
from .forward import Forward
from .inputs import rows
from .observers import Gradient, ObserverMaker, PassInfo, ProbeBatch, make_observers
from .output_error import Loss, cross_entropy
from .undisturbed import computing_threads, undisturbed

OnProgress = Callable[[int], None]
"""Takes the number of samples done so far."""


@dataclass(frozen=True)
class Observations:
    """What each observer of a pass computed, by its name, and what with."""

    results: dict[str, dict[str, Any]]
    environment: dict[str, str | int | bool]
    stream: ResidualStream | None = None
    """Which blocks it was, where an observer looked at the stream."""
    blocks: tuple[tuple[str, ...], ...] = ()
    """The parameters of each block of the stream, by name, where somebody looked for it."""


def observe(
    model: nn.Module,
    eval_batches: Iterable[Batch],
    observers: Iterable[str | ObserverMaker],
    *,
    stream: str | None = None,
    loss: Loss = cross_entropy,
    batches: int = BATCHES,
    batch_size: int = BATCH,
    threads: int | None = None,
    progress: OnProgress | None = None,
    data_digest: str | None = None,
    credit: CreditSource | None = None,
) -> Observations:
    """Run ``(x, y)`` batches of any sizes through a network, with observers by name or by class.

    The first ``batches`` groups of 128 samples are the probe; the rest is run only if an observer watches every batch. What
    else there is to say of the arguments is said at :func:`measure`.
    """
    _check(model, batches, batch_size)
    with computing_threads(threads), undisturbed(model) as (network, dtype):
        evaluation = Evaluation(eval_batches)
        watching = make_observers(observers, PassInfo(network, batches, data_digest, credit, evaluation, batch_size))
        forward = Forward(network, watching, stream, loss)
        every_batch = any(observer.every_batch for observer in watching)
        samples = probed = 0
        for group, (x, y) in regrouped(eval_batches, batches, rest=every_batch):
            if group == 0:
                forward.begin(x, y)
            for row in range(0, len(y), batch_size):
                part = slice(row, row + batch_size)
                if every_batch or group is not None:
                    forward.run(rows(x, part), y[part], samples, in_probe=group is not None)
                samples += len(y[part])
                if progress is not None:
                    progress(samples)
            probed += group is not None
        if probed < 2 and any(not observer.every_batch or Gradient in observer.watches for observer in watching):
            raise AuditError(
                f"the protocol needs at least 2 batches of {BATCH} samples; the evaluation data has {samples} samples in all"
            )
        forward.inputs.check_values()
        if every_batch:  # the probe of data that is sorted by class may well hold one class only
            forward.inputs.check_classes(samples)
        # A gradient that is not proven was shown to nobody: what rests on it has no numbers.
        without = [observer for observer in watching if forward.unproven and {Gradient, ProbeBatch} & set(observer.watches)]
        results = {observer.spec.name: {} if observer in without else observer.compute() for observer in watching}
        found = forward.stream
        blocks = () if found is None else found.own
        return Observations(results, _environment(forward, dtype), None if found is None else found.record, blocks)


def _check(model: nn.Module, batches: int, batch_size: int) -> None:
    if not isinstance(model, nn.Module):
        raise AuditError(f"the model is {type(model).__name__}, not a torch.nn.Module")
    if not (isinstance(batches, int) and isinstance(batch_size, int)):
        raise AuditError(f"batches and batch_size must be whole numbers, not {batches!r} and {batch_size!r}")
    if batches < 2:
        raise AuditError(f"the cross-batch cosine needs at least 2 batches of {BATCH} samples, not {batches}")
    if batch_size < 1:
        raise AuditError(f"the batch size must be at least 1, not {batch_size}")


def _environment(forward: Forward, dtype: torch.dtype) -> dict[str, str | int | bool]:
    device = forward.inputs.device
    cuda = device.type == "cuda"
    return {
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "device": device.type,
        "device_name": torch.cuda.get_device_name(device) if cuda else platform.processor() or platform.machine(),
        "dtype": str(dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        "tf32": cuda and bool(torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32),
    }
