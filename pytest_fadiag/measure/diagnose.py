"""The whole protocol in one call, and the three measured quantities by themselves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from ..judge.control import Control
from ..judge.diagnostics import DIAGNOSTICS, CreditAlignment
from ..judge.errors import AuditError
from ..judge.inputs import NormalisedBy, StatedInputs
from ..judge.records import Accuracy
from ..judge.report import DiagnosticReport
from ..judge.thresholds import DiagnosticThresholds
from ..judge.wording import count, fraction
from .batches import Batch
from .credit import CreditFunction
from .measure import measure
from .observe import observe


def diagnose(
    *,
    model: nn.Module,
    eval_batches: Iterable[Batch],
    headline_acc: float | None = None,
    frozen_baseline_acc: float | Control | None = None,
    method_name: str = "unnamed",
    notes: str = "",
    thresholds: DiagnosticThresholds | Mapping[str, Any] | None = None,
    seed: int | None = None,
    credit: CreditFunction | None = None,
    **options: Any,
) -> DiagnosticReport:
    """Measure a network and judge it.

    Without ``headline_acc`` the accuracy is that of the model on all ``eval_batches``. ``frozen_baseline_acc`` is the
    control's accuracy as a fraction, or a :class:`Control`, whose per-image outcomes give a paired interval. With ``credit``,
    a function of ``(model, x, y)`` that returns the method's credit at each block output, (f) is measured too. ``options`` go
    to :func:`measure`: ``stream``, ``loss``, ``batches``, ``batch_size``, ``progress``.
    """
    control = frozen_baseline_acc
    if control is not None and not isinstance(control, Control):
        control = Control(Accuracy(control))
    if headline_acc is not None:
        Accuracy(headline_acc)  # a percentage is rejected before the measurement, not after it
    measurement = measure(model, eval_batches, credit=credit, **options)
    asked = [*DIAGNOSTICS.by_default, *([] if credit is None else DIAGNOSTICS.select(CreditAlignment.key))]
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
    return report


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


def residual_norms(model: nn.Module, eval_batches: Iterable[Batch], **options: Any) -> list[float]:
    """The median ‖h_l‖ of every layer."""
    return list(_observed(model, eval_batches, "states", options)["residual_norms"])


def bp_grad_norms(model: nn.Module, eval_batches: Iterable[Batch], **options: Any) -> list[float]:
    """The median ‖g_l‖ of every layer, scaled as for a mean loss over batches of 128."""
    return list(_observed(model, eval_batches, "gradients", options)["bp_grad_norms"])


def cross_batch_direction_stability(model: nn.Module, eval_batches: Iterable[Batch], **options: Any) -> float:
    """The mean pairwise cosine, over disjoint batches of 128, of the batch-mean gradient at layer L//2."""
    return float(_observed(model, eval_batches, "directions", options)["cross_batch_stability"])


def _observed(model: nn.Module, eval_batches: Iterable[Batch], name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    return observe(model, eval_batches, [name], **options).results[name]
