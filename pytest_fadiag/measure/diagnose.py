"""The whole protocol in one call, and the three measured quantities by themselves."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict

from torch import nn

from ..judge.codec import to_plain
from ..judge.control import Control
from ..judge.credit import CreditFunction
from ..judge.diagnostics import DIAGNOSTICS, DepthUtility, unasked
from ..judge.errors import AuditError
from ..judge.inputs import NormalisedBy, StatedInputs
from ..judge.observers import DEPTH
from ..judge.records import BATCH, BATCHES, Accuracy
from ..judge.report import DiagnosticReport
from ..judge.thresholds import DiagnosticThresholds, ThresholdChanges
from ..judge.wording import count, fraction
from .batches import Batch
from .measure import measure
from .observe import OnProgress, observe
from .output_error import Loss, cross_entropy

if TYPE_CHECKING:
    from typing_extensions import Unpack


def diagnose(
    *,
    model: nn.Module,
    eval_batches: Iterable[Batch],
    headline_acc: float | None = None,
    frozen_baseline_acc: float | Control | None = None,
    method_name: str = "unnamed",
    notes: str = "",
    thresholds: DiagnosticThresholds | ThresholdChanges | None = None,
    seed: int | None = None,
    credit: CreditFunction | None = None,
    stream: str | None = None,
    loss: Loss = cross_entropy,
    batches: int = BATCHES,
    batch_size: int = BATCH,
    threads: int | None = None,
    progress: OnProgress | None = None,
    data_digest: str | None = None,
) -> DiagnosticReport:
    """Measure a network and judge it.

    Without ``headline_acc`` the accuracy is that of the model on all ``eval_batches``. ``frozen_baseline_acc`` is the
    control's accuracy as a fraction, or a :class:`Control`, whose per-image outcomes give a paired interval. With ``credit``,
    a function of ``(model, x, y)`` that returns the method's credit at each block output, (f) is measured too; without a
    control, or with one that is at chance, (e) is, if there are 1,000 samples. The rest is what :func:`measure` says of it.
    """
    control = frozen_baseline_acc
    if control is not None and not isinstance(control, Control):
        control = Control(Accuracy(control))
    if headline_acc is not None:
        Accuracy(headline_acc)  # a percentage is rejected before the measurement, not after it
    asked = unasked(DIAGNOSTICS, control=control is not None, credit=credit is not None)
    measurement = measure(
        model,
        eval_batches,
        stream=stream,
        loss=loss,
        batches=batches,
        batch_size=batch_size,
        threads=threads,
        progress=progress,
        data_digest=data_digest,
        observers=[*asked.observers],
        credit=credit,
    )
    report = DiagnosticReport.from_measurement(
        measurement,
        method_name=method_name,
        headline_acc=headline_acc,
        control=control,
        thresholds=thresholds,
        notes="\n".join(filter(None, [notes, _differs(headline_acc, measurement.accuracy)])),
        seed=seed,
        inputs=StatedInputs("", NormalisedBy.CALLER),
        diagnostics=tuple(diagnostic.name for diagnostic in asked),
    )
    if report.credit is not None and report.credit.problem:
        raise AuditError(report.credit.problem)
    if not report.lacks_usable_control:
        return report
    probed = observe(model, eval_batches, [DEPTH.name], stream=stream, batches=batches, batch_size=batch_size, threads=threads)
    return replace(
        report,
        diagnostics=(*report.diagnostics, DepthUtility.name),
        observations={**report.observations, **to_plain(probed.results)},
    )


def _differs(headline_acc: float | None, measured: Accuracy | None) -> str:
    """A note where the accuracy that was given cannot be that of the network that was measured, sampling apart."""
    if headline_acc is None or measured is None or not measured.images:
        return ""
    error = math.sqrt(max(headline_acc * (1 - headline_acc), 0.01) / measured.images)
    if abs(headline_acc - measured.value) <= max(0.005, 3 * error):
        return ""
    return (
        f"headline accuracy given as {fraction(headline_acc)}, but {fraction(measured.value)} was measured on the "
        f"{count(measured.images, 'sample')} given"
    )


class PassOptions(TypedDict, total=False):
    """What a pass over the data can be told; see :func:`measure`."""

    stream: str | None
    loss: Loss
    batches: int
    batch_size: int
    threads: int | None
    progress: OnProgress | None


def residual_norms(model: nn.Module, eval_batches: Iterable[Batch], **options: Unpack[PassOptions]) -> list[float]:
    """The median ‖h_l‖ of every layer."""
    return list(observe(model, eval_batches, ["states"], **options).results["states"]["residual_norms"])


def bp_grad_norms(model: nn.Module, eval_batches: Iterable[Batch], **options: Unpack[PassOptions]) -> list[float]:
    """The median ‖g_l‖ of every layer, scaled as for a mean loss over batches of 128."""
    return list(observe(model, eval_batches, ["gradients"], **options).results["gradients"]["bp_grad_norms"])


def cross_batch_direction_stability(model: nn.Module, eval_batches: Iterable[Batch], **options: Unpack[PassOptions]) -> float:
    """The mean pairwise cosine, over disjoint batches of 128, of the batch-mean gradient at layer L//2."""
    return float(observe(model, eval_batches, ["directions"], **options).results["directions"]["cross_batch_stability"])
