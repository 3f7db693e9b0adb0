"""The public functions: a network or a checkpoint in, a report out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .auditor import CONTROL_METRICS, Auditor, finite_score, needed, questioned, with_depth
from .judge.control import Control
from .judge.diagnostics import default_diagnostics
from .judge.errors import AuditError
from .judge.records import Inputs, Score, check_accuracy
from .judge.thresholds import DiagnosticThresholds
from .load.controls import parse_controls
from .load.fingerprint import fingerprint
from .load.setup import Setup
from .load.traces import checked, fields_of, is_trace, write_trace
from .measure.copies import threads as using_threads
from .measure.credit import CreditSource
from .measure.run import NetworkSource, measure
from .measure.task import Task
from .measure.traces import TraceSource
from .progress import patient
from .show.report import DiagnosticReport

if TYPE_CHECKING:
    from torch import nn

    from .load.data import DataSet
    from .measure.types import Progress

Thresholds = DiagnosticThresholds | Mapping[str, float | str] | None


def diagnose(
    model: nn.Module,
    eval_batches: Iterable[Any],
    *,
    headline_acc: float | None = None,
    frozen_baseline_acc: float | Control | None = None,
    control: nn.Module | float | Control | None = None,
    method_name: str = "unnamed",
    notes: str = "",
    thresholds: Thresholds = None,
    seed: int | None = None,
    credit: Callable[..., Any] | str | None = None,
    stream: str | None = None,
    loss: str | Callable[..., Any] | None = None,
    task: str | None = None,
    forward: Callable[..., Any] | None = None,
    batch_size: int = 512,
    threads: int | None = None,
    progress: Progress | bool | None = None,
) -> DiagnosticReport:
    """Measure a network and judge it; the network itself is not touched, a copy is measured.

    >>> report = diagnose(model, test_loader, control=frozen_model, method_name="dfa")
    >>> print(report)
    >>> report.check()  # raises if a diagnostic fires
    >>> report.save("audit.json")  # `fadiag show audit.json` prints it again

    ``control`` is the frozen-random control: the network, or its accuracy as a fraction, which
    ``frozen_baseline_acc`` gives too. Without one (e) is measured instead. With ``credit``, a
    function of ``(model, x, y)`` that returns the method's credit at each block output, or
    ``"own"`` for the network's own backward, (f) is measured too. ``loss`` is ``"ce"``, ``"mse"``,
    ``"bce"`` or a function of ``(outputs, y)`` with one value per sample; ``task`` is
    ``"classes"``, ``"regression"`` or ``"tokens"``, else told by the targets; ``forward`` is a
    function of ``(model, x, y)`` that returns the outputs. A line on stderr
    tells the progress after five seconds; ``progress=False`` prints none.
    """
    if isinstance(credit, str) and credit != "own":
        raise AuditError(f"credit: expected a function or 'own', got {credit!r}")
    if control is not None and frozen_baseline_acc is not None:
        raise AuditError("expected control or frozen_baseline_acc, got both; leave out one")
    given: Any = frozen_baseline_acc if control is None else control
    network = given if hasattr(given, "state_dict") else None
    if not (given is None or network is not None or isinstance(given, Control)):
        given = Control(Score(given))
    if headline_acc is not None:
        check_accuracy(headline_acc, "headline_acc", "regression")  # the report knows the task
    asked = default_diagnostics(control=given is not None, credit=credit is not None)

    def seen_by(network: nn.Module, batches: Any, own: CreditSource | None = None) -> NetworkSource:
        return NetworkSource(
            network,
            batches,
            task=Task(kind=task, loss=loss),
            forward=forward,
            stream=stream,
            credit=own,
            batch_size=batch_size,
        )

    own = CreditSource(credit if callable(credit) else None)
    source, told = seen_by(model, eval_batches, own), _line(progress)
    with using_threads(threads):
        numbers = measure(source, needed(asked), progress=told)
        if network is not None:
            measured = measure(seen_by(network, source.data), CONTROL_METRICS, progress=told)
            made = Control(finite_score(measured, "control"), "given as a network")
            prints = fingerprint(network), fingerprint(model, source.blocks)
            given = questioned(made, measured, *prints)

        if headline_acc is not None and numbers.score:
            notes += f"\naccuracy as given; {numbers.score.value:.4f} was measured"
        report = DiagnosticReport.of(
            numbers,
            method_name=method_name,
            headline_acc=headline_acc,
            control=given,
            thresholds=_thresholds(thresholds),
            notes=notes.strip(),
            seed=seed,
            inputs=Inputs(),
            diagnostics=tuple(one.name for one in asked),
        )
        if report.credit is not None and report.credit.problem:
            raise AuditError(report.credit.problem)
        return with_depth(report, lambda: measure(source, ["depth"]))


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
    file. What else can be given, ``Setup`` lists: model, stream, credit, loss, task, forward,
    normalize, device, …
    """
    control: Any = frozen
    if isinstance(frozen, Mapping):
        control = parse_controls([f"{method}={acc}" for method, acc in frozen.items()])
    elif frozen is not None and not isinstance(frozen, Control):
        control = parse_controls([str(frozen)])
    told = _line(progress)
    auditor = Auditor(Setup(data=data, **setup), progress=lambda name: told)
    held = fields_of(Path(path)) if is_trace(Path(path)) else {}
    asked = default_diagnostics(
        control=control is not None or "control_outputs" in held,
        credit=auditor.setup.credit is not None or "a_1" in held,
    )
    report = auditor.report(
        Path(path),
        diagnostics=asked,
        control=control,
        thresholds=_thresholds(thresholds),
    )
    problem = report.control_problem or (report.credit.problem if report.credit is not None else "")
    if problem:
        raise AuditError(f"{path}: {problem}")
    return DiagnosticReport.of(report)


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
    layers = (("h", 0, h), ("g", 0, g), ("a", 1, a))
    named = {f"{kind}_{n}": own for kind, at, held in layers for n, own in enumerate(held, at)}
    arrays = checked({"outputs": outputs, "y": y, "e": e, **named, **others})
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
    asked = Task(kind=task, loss=loss)
    numbers = measure(NetworkSource(model, eval_batches, task=asked, **options), [metric])
    if numbers.reference is not None and numbers.reference.problem:
        raise AuditError(f"the reference is not proven: {numbers.reference.problem}")
    return numbers


def _line(progress: Progress | bool | None) -> Progress | None:
    """What tells how far a measurement is: the caller's own, or lines on stderr, ever fewer."""
    if progress is None or progress is True:
        return patient(lambda text: print(f"fadiag: {text}", file=sys.stderr))
    return progress or None


def _thresholds(given: Thresholds) -> DiagnosticThresholds:
    return (
        DiagnosticThresholds().replace(**given)
        if isinstance(given, Mapping)
        else given or DiagnosticThresholds()
    )
