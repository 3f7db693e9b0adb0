"""The public functions: a network or a checkpoint in, a report out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsFloat

from msgspec.structs import replace

from .auditor import Auditor
from .hooks import current
from .judge.control import Control
from .judge.diagnostics import default_diagnostics
from .judge.errors import AuditError
from .judge.records import Inputs, Score, check_accuracy
from .judge.report import Report
from .judge.thresholds import DiagnosticThresholds
from .load.checkpoint import load_checkpoint
from .load.controls import parse_controls
from .load.data import as_data_set
from .load.fingerprint import fingerprint
from .load.network import with_tensors_of
from .load.setup import Setup
from .load.traces import checked, fields_of, is_trace, write_trace
from .measure.copies import threads as using_threads
from .measure.credit import CreditSource
from .measure.inputs import read_once
from .measure.run import NetworkSource, measure
from .measure.step import StepSource
from .measure.task import Task
from .measure.traces import TraceSource
from .orchestration import (
    CONTROL_METRICS,
    Provenance,
    Question,
    Record,
    Subject,
    finite_score,
    judged,
    questioned_control,
)
from .progress import shown
from .show.report import DiagnosticReport

if TYPE_CHECKING:
    from torch import nn

    from .load.data import DataSet
    from .measure.types import Progress

Thresholds = DiagnosticThresholds | Mapping[str, float | str] | None


def diagnose(
    model: nn.Module,
    eval_batches: Iterable[Any],
    y: Any = None,
    *,
    headline_acc: float | None = None,
    frozen_baseline_acc: float | Control | None = None,
    control: nn.Module | str | Path | float | Control | None = None,
    method_name: str = "unnamed",
    notes: str = "",
    thresholds: Thresholds = None,
    seed: int | None = None,
    credit: Callable[..., Any] | str | None = None,
    step: Callable[..., Any] | None = None,
    stream: str | None = None,
    loss: str | Callable[..., Any] | None = None,
    task: str | None = None,
    forward: Callable[..., Any] | None = None,
    train: Iterable[Any] | None = None,
    batch_size: int = 512,
    memory: float | None = None,
    threads: int | None = None,
    progress: Progress | bool | None = None,
) -> DiagnosticReport:
    """Measure a network and judge it; the network itself is not touched, a copy is measured.

    >>> report = diagnose(model, test_loader, control=frozen_model, method_name="dfa")
    >>> report = diagnose(model, x, y)
    >>> print(report)
    >>> report.check()  # raises if a diagnostic fires
    >>> report.save("audit.json")  # `fadiag show audit.json` prints it again

    ``eval_batches`` are pairs (x, y) of any sizes, such as a ``DataLoader``, or x alone with ``y``.
    ``control`` is the frozen-random control: the network, its checkpoint, or its accuracy as a
    fraction, which ``frozen_baseline_acc`` gives too. Without a sound one (e) is measured. With
    ``credit``, a function of ``(model, x, y)`` that returns the method's credit at each block
    output, or ``"own"`` for the network's own backward, (f) is measured too; or by ``step``, one
    update of the rule: a function of ``(model, x, y)`` that changes the copy it gets, or returns a
    loss, or a method of a rule that holds the network. ``loss`` is
    ``"ce"``, ``"mse"``, ``"bce"``, a loss of ``torch.nn``, or a function of ``(outputs, y)`` with
    one value per sample; ``task`` is ``"classes"``, ``"regression"`` or ``"tokens"``, else told by
    the targets; ``forward`` is a function of ``(model, x, y)`` that returns the outputs. ``train``
    are batches of the training data, normalised alike: linear probes and readouts are fitted to at
    most 20,000 samples of it. Batches of a generator are kept: they may take ``memory`` GB, by
    default half of what is free. A line on stderr tells the progress; ``progress=False`` prints
    none.
    """
    if isinstance(credit, str) and credit != "own":
        raise AuditError(f"credit: expected a function or 'own', got {credit!r}")
    if step is not None and not callable(step):
        raise AuditError(f"step: expected a function of (model, x, y), got {step!r}")
    if control is not None and frozen_baseline_acc is not None:
        raise AuditError("expected control or frozen_baseline_acc, got both; leave out one")
    if headline_acc is not None:
        check_accuracy(headline_acc, "headline_acc", "regression")  # the report knows the task
    provenance = Provenance(
        method_name=method_name, seed=seed, notes=notes, headline_acc=headline_acc
    )
    options: dict[str, Any] = {
        "task": Task(kind=task, loss=loss),
        "forward": forward,
        "stream": stream,
        "batch_size": batch_size,
        "memory": memory,
    }
    if train is not None:
        options["training"] = read_once(train, memory)
        options["training_name"] = getattr(train, "name", "the training data")
    if y is not None:
        eval_batches = as_data_set((eval_batches, y), "x and y")
    if control is None:
        control = frozen_baseline_acc
    if isinstance(control, (str, Path)):
        control = with_tensors_of(model, load_checkpoint(control))
    elif isinstance(control, SupportsFloat):
        control = Control(Score(float(control)))
    rule: dict[str, Any] = {}
    if step is not None:
        rule["step"] = StepSource(step)
    if credit is not None or step is None:
        rule["credit"] = CreditSource(credit if callable(credit) else None)
    source = NetworkSource(model, eval_batches, **rule, **options)
    diagnostics = default_diagnostics(credit is not None or step is not None)
    with using_threads(threads), shown(progress) as progress_of:
        subject = NetworkSubject(
            model=model,
            source=source,
            provenance=provenance,
            supplied=control,
            options=options,
            progress=progress_of(method_name),
        )
        report = judged(subject, Question(diagnostics, _thresholds_of(thresholds)))
    _refuse_problems(report)
    return DiagnosticReport.of(report)


@dataclass(kw_only=True)
class NetworkSubject(Subject):
    """A network in memory, and its control as the caller gave it."""

    model: nn.Module
    source: NetworkSource
    provenance: Provenance
    options: Mapping[str, Any]
    progress: Progress | None = None

    def measured(self, metrics: Sequence[str]) -> Record:
        """Its numbers, with a note where an accuracy was given as well."""
        extra = current().metrics()
        measurement = measure(self.source, metrics, progress=self.progress, extra=extra)
        provenance = self.provenance
        if provenance.headline_acc is not None and measurement.score:
            note = f"accuracy as given; {measurement.score.value:.4f} was measured"
            notes = f"{provenance.notes}\n{note}".strip()
            provenance = replace(provenance, notes=notes)
        return Record(
            provenance=provenance,
            measurement=replace(measurement, inputs=Inputs()),
            metrics=tuple(metrics),
        )

    def control(self, record: Record) -> Control | None:
        """The control as given; a network is measured on the same data and questioned."""
        if not hasattr(self.supplied, "state_dict"):
            return self.supplied  # type: ignore[no-any-return]
        source = NetworkSource(self.supplied, self.source.data, **self.options)
        measurement = measure(source, CONTROL_METRICS, progress=self.progress)
        control = Control(finite_score(measurement, "control"), "given as a network")
        of_control = Record(
            provenance=Provenance(),
            measurement=measurement,
            metrics=CONTROL_METRICS,
            fingerprint=fingerprint(self.supplied),
        )
        network = fingerprint(self.model, self.source.blocks)
        return questioned_control(control, of_control, network)


def audit(
    path: str | Path,
    *,
    data: str | DataSet | None = None,
    frozen: float | Mapping[str, float] | Control | str | Path | None = None,
    thresholds: Thresholds = None,
    progress: Progress | bool | None = None,
    **setup: Any,
) -> DiagnosticReport:
    """The report of a checkpoint on disk, or of a trace, which needs no data.

    >>> audit("runs/dfa_s42.pt", data="cifar10:data", frozen="runs/frozen_dfa_s42.pt").verdict

    ``frozen`` is the control: an accuracy, a mapping by method, a control checkpoint or a JSON
    file. What else can be given, ``Setup`` lists: model, stream, credit, step, loss, task, forward,
    normalize, device, …
    """
    control: Any = frozen
    if isinstance(frozen, Mapping):
        control = parse_controls([f"{method}={acc}" for method, acc in frozen.items()])
    elif frozen is not None and not isinstance(frozen, Control):
        control = parse_controls([str(frozen)])
    auditor = Auditor(Setup(data=data, **setup))
    fields = fields_of(Path(path)) if is_trace(Path(path)) else {}
    credit = (auditor.setup.credit, auditor.setup.step) != (None, None) or "a_1" in fields
    with shown(progress) as auditor.progress:
        report = auditor.report(
            Path(path),
            diagnostics=default_diagnostics(credit),
            control=control,
            thresholds=_thresholds_of(thresholds),
        )
    _refuse_problems(report, f"{path}: ")
    return DiagnosticReport.of(report)


def _refuse_problems(report: Report, prefix: str = "") -> None:
    """Raise where what the caller supplied cannot be used."""
    problem = report.control_problem
    for measured in (report.credit, report.step):
        if not problem and measured is not None:
            problem = measured.problem
    if problem:
        raise AuditError(f"{prefix}{problem}")


def save_trace(
    path: str | Path,
    *,
    outputs: Any,
    y: Any,
    e: Any,
    h: Sequence[Any],
    g: Sequence[Any],
    a: Sequence[Any] = (),
    **others: Any,
) -> None:
    """Check the arrays of a network that ran elsewhere, and write them as a .npz file to audit.

    >>> save_trace("traces/dfa_s1.npz", outputs=o, y=y, e=e, h=hs, g=gs, a=credits, x=x)
    >>> audit("traces/dfa_s1.npz").verdict

    ``e`` and ``g`` are gradients of the sum of the losses by the outputs and by the states
    ``h``, of h_0 first. ``a`` is the credit at h_1 … h_L. Others: ``x``, ``control_outputs``,
    ``groups``, ``method``, ``seed``, ``loss``.
    """
    arrays: dict[str, Any] = {"outputs": outputs, "y": y, "e": e}
    for name, first_layer, values in (("h", 0, h), ("g", 0, g), ("a", 1, a)):
        for layer, array in enumerate(values, first_layer):
            arrays[f"{name}_{layer}"] = array
    arrays = checked({**arrays, **others})
    TraceSource(arrays).check()
    write_trace(Path(path), arrays)


def residual_norms(model: nn.Module, eval_batches: Iterable[Any], **options: Any) -> list[float]:
    """The median ‖h_l‖ of every state, h_0 first."""
    return [*map(float, _measured(model, eval_batches, "states", **options).residual_norms)]


def bp_grad_norms(model: nn.Module, eval_batches: Iterable[Any], **options: Any) -> list[float]:
    """The median ‖g_l‖ of every state, as for a mean loss over batches of 128."""
    return [*map(float, _measured(model, eval_batches, "gradients", **options).bp_grad_norms)]


def cross_batch_direction_stability(
    model: nn.Module, eval_batches: Iterable[Any], **options: Any
) -> float:
    """The mean pairwise cosine of the batch-mean gradients at layer L//2, batches of 128."""
    return float(_measured(model, eval_batches, "directions", **options).cross_batch_stability)


def _measured(
    model: nn.Module,
    eval_batches: Iterable[Any],
    metric: str,
    *,
    loss: Any = None,
    task: str | None = None,
    **options: Any,
) -> Any:
    source = NetworkSource(model, eval_batches, task=Task(kind=task, loss=loss), **options)
    measurement = measure(source, [metric])
    if measurement.reference is not None and measurement.reference.problem:
        raise AuditError(f"the reference is not proven: {measurement.reference.problem}")
    return measurement


def _thresholds_of(thresholds: Thresholds) -> DiagnosticThresholds:
    if isinstance(thresholds, Mapping):
        return DiagnosticThresholds().replace(**thresholds)
    return thresholds or DiagnosticThresholds()
