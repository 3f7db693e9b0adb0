"""A network measured: every number that the diagnostics need, or those that some of them need, from one pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import nn

from ..judge.credit import CreditFunction
from ..judge.diagnostics import DIAGNOSTICS
from ..judge.observers import CREDIT
from ..judge.records import BATCH, BATCHES, Measurement
from .batches import Batch
from .credit import CreditSource, function_name
from .observe import OnProgress, observe
from .observers import ObserverMaker
from .output_error import Loss, cross_entropy


def measure(
    model: nn.Module,
    eval_batches: Iterable[Batch],
    *,
    stream: str | None = None,
    loss: Loss = cross_entropy,
    batches: int = BATCHES,
    batch_size: int = BATCH,
    threads: int | None = None,
    progress: OnProgress | None = None,
    data_digest: str | None = None,
    observers: Sequence[str | ObserverMaker] | None = None,
    credit: CreditFunction | CreditSource | None = None,
) -> Measurement:
    """Measure a network on ``(x, y)`` batches of any sizes.

    The first ``batches`` groups of 128 samples are the probe: states, gradients and directions are measured on them. Every
    sample counts for the accuracy. ``batch_size`` bounds what is forwarded at once and changes no number; ``threads`` is how
    many torch computes with on a CPU (as many as it is set to), which may change last digits. The model comes back as it
    was: mode, ``requires_grad``, gradients, random state. ``progress`` is told the samples done so far.
    ``data_digest`` identifies the data, where the caller knows how: outcomes on other data are then not taken for outcomes
    on the same images. ``observers`` are those that shall observe, by name or by class, all of the protocol if there are none:
    what no one of them needs is not computed. ``credit`` gives the method's credit at the block outputs, for Γ: a function of
    ``(model, x, y)`` or ``(model, x, y, checkpoint)``.
    """
    if credit is not None and not isinstance(credit, CreditSource):
        credit = CreditSource(credit, function_name(credit))
    if observers is None:
        observers = [*DIAGNOSTICS.by_default.observers, *([] if credit is None else [CREDIT.name])]
    observations = observe(
        model,
        eval_batches,
        observers,
        stream=stream,
        loss=loss,
        batches=batches,
        batch_size=batch_size,
        threads=threads,
        progress=progress,
        data_digest=data_digest,
        credit=credit,
    )
    return Measurement.of(observations.results, observations.environment, observations.stream)
