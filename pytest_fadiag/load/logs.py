"""Training logs: what is left to audit when no checkpoint is; free of torch."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..judge.codec import read
from ..judge.control import Control
from ..judge.credit import Credit
from ..judge.diagnostics import DIAGNOSTICS, CreditAlignment, Diagnostic
from ..judge.errors import AuditError
from ..judge.keys import Keys
from ..judge.limits import MOST_LAYERS
from ..judge.records import BATCH, Accuracy, AuxiliaryStatistics, with_present_names
from ..judge.report import DiagnosticReport
from ..judge.stream import ResidualStream
from ..judge.thresholds import DiagnosticThresholds, ThresholdChanges
from ..judge.trajectory import Point, Series, Trajectory, credit_seen
from ..judge.wording import count, fraction, listed
from .identity import identify
from .logfields import Entry, Field, Fields, depth_of, entries_of, layer_norms
from .logformats import RawLog, kept_caveat, log_error, read_raw
from .logtables import Columns, as_log, is_table, read_table, renamed

FINAL_SLACK_PP = 0.5
"""How far the final accuracy may lie from that of the last epoch before the report says so."""


@dataclass(frozen=True)
class TrainingLog:
    """What a log says of one training: gradients as for batches of 128, ``None`` where it says nothing."""

    path: Path
    method: str
    seed: int | None
    config: Mapping[str, Any]
    points: tuple[Point, ...]
    accuracy: Accuracy | None
    """The final accuracy, which is the headline."""
    depth: int | None
    """The number of blocks."""
    batch: int | None
    """The batch size at which the gradients were taken, where that is stated."""
    assumed_batch: int | None = None
    """The training's batch size, which is assumed where nothing is stated."""
    stability_layer: int | None = None
    stream: ResidualStream | None = None
    """Which blocks the norms are of, where the log says it."""
    caveats: tuple[str, ...] = field(default=())

    @property
    def epochs(self) -> tuple[int, ...]:
        """The epochs that were logged."""
        return tuple(point.epoch for point in self.points)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """What it is judged by: as any network, and by its credit where that was recorded."""
        recorded = any(point.credit is not None for point in self.points)
        return (*DIAGNOSTICS.by_default, *(DIAGNOSTICS.select(CreditAlignment.key) if recorded else ()))

    def report(
        self,
        control: Control | float | None = None,
        thresholds: DiagnosticThresholds | ThresholdChanges | None = None,
        expected: str | None = None,
        *,
        notes: str | None = None,
    ) -> DiagnosticReport:
        """The partial audit of the last epoch, with when each diagnostic first fired."""
        if self.depth == 0:
            raise log_error(self.path, "a network without blocks has no stream to audit; it can serve as a shallow control")
        if control is not None and not isinstance(control, Control):
            control = Control(Accuracy(control))
        if isinstance(thresholds, Mapping):
            thresholds = DiagnosticThresholds().replace(**thresholds)
        last = self.points[-1]
        report = DiagnosticReport(
            method_name=self.method,
            seed=self.seed,
            residual_norms=last.residual_norms,
            bp_grad_norms=last.bp_grad_norms,
            stability_layer=self.stability_layer,
            cross_batch_stability=last.drift,
            headline_acc=None if self.accuracy is None else self.accuracy.value,
            frozen_baseline_acc=None if control is None else control.accuracy.value,
            thresholds=thresholds or DiagnosticThresholds(),
            companions=last.companions,
            accuracy=self.accuracy,
            control=control,
            partial=True,
            gradient_batch=self.batch,
            assumed_batch=self.assumed_batch,
            depth_known=self.depth is not None,
            trajectory=Trajectory(self.points),
            caveats=self.caveats,
            config=self.config,
            expected=None if expected is None else Keys.parse(expected),
            checkpoint=self.path.name,
            stream=self.stream,
            diagnostics=tuple(d.name for d in self.diagnostics),
            observations=credit_seen(last),
            notes=f"{self.path.name}, a training log: {_epochs(self.epochs)}" if notes is None else notes,
        )
        if not any(finding.measured for finding in report.findings):
            number = "" if self.accuracy is None else " but an accuracy, for which there is no control (--fa-frozen)"
            raise log_error(self.path, f"nothing to judge: {_last(self.epochs)} has no number that a diagnostic needs{number}")
        return report


def read_log(
    path: str | Path, *, batch: int | None = None, method: str | None = None, columns: Columns | None = None
) -> TrainingLog:
    """The log in a file, of several that of a method; ``batch`` is the batch size of its gradients, where it does not say.

    ``columns`` names the columns of a table that another tool kept: ``{"epoch": "step", "acc_eval": "val/acc"}``.
    """
    raw = _raw(Path(path), columns)
    if len(raw) == 1:
        return _log(raw[0], batch, several=False)
    log = next((log for log in raw if log.method == method), None)
    if log is not None:
        return _log(log, batch, several=True)
    methods = listed(str(log.method) for log in raw)
    if method is not None:
        raise log_error(Path(path), f"holds the logs of {methods}, and none of {method}")
    advice = (
        "split it into one file a method, each with its <method>_log and the config, named <method>_s<seed>.json; in "
        f"Python, read_log(path, method={raw[0].method!r}) takes one of them and read_logs all"
    )
    raise log_error(Path(path), f"holds the logs of several methods, {methods}; {advice}")


def read_logs(path: str | Path, *, batch: int | None = None, columns: Columns | None = None) -> list[TrainingLog]:
    """Every log in a file: one, or one a method."""
    raw = _raw(Path(path), columns)
    return [_log(log, batch, several=len(raw) > 1) for log in raw]


def _raw(path: Path, columns: Columns | None = None) -> list[RawLog]:
    if is_table(path):
        return [read_table(path, columns)]
    logs = read_raw(path)
    if any("_step" in entry for _, entry in logs[0].entries[:1]):  # rows of a table as JSON: W&B's history
        return [as_log(path, (entry for _, entry in log.entries), columns) for log in logs]
    return [renamed(log, columns) for log in logs] if columns else logs


def _log(raw: RawLog, batch: int | None, *, several: bool) -> TrainingLog:
    """A log in three steps: its values under canonical keys, the checks of one epoch against another, the record."""
    config, top = Fields(raw.path, "config", raw.config), Fields(raw.path, "beside the log", raw.top)
    entries = entries_of(raw)
    if not entries:
        raise log_error(raw.path, "the log holds no epoch: no row of it counts one")
    thinned = (kept_caveat(len(raw.entries)),) if len(entries) < len(raw.entries) else ()
    depth = depth_of(entries, config)

    batch = BATCH if raw.recorded else batch or config["gradient_batch"].whole(least=1)
    assumed_batch = config["training_batch"].whole(least=1) if batch is None else None
    numbers = [layer for entry in entries for _, layer, field in entry.norms if layer != "L" and field.value is not None]
    size = depth + 1 if depth is not None else 2 + max(map(int, numbers), default=0)
    if size > MOST_LAYERS:
        raise log_error(raw.path, f"a norm of layer {size - 2:,}, and at most {MOST_LAYERS:,} layers are read")
    start = (config if raw.config.get("h_0_norm") is not None else top)["h_0_norm"].norm()
    norms = [layer_norms(entry, size, start) for entry in entries]

    scale = (batch or assumed_batch or BATCH) / BATCH
    points = tuple(_point(entry, *series, scale) for entry, series in zip(entries, norms, strict=True))
    accuracy, differs = _final(entries[-1].fields, points[-1].accuracy, top, config)
    named = raw.method and (several or not raw.config.get("method"))
    method, seed = identify(raw.path, {**raw.config, "method": raw.method} if named else raw.config)
    layer = entries[-1].fields["stability_layer"].whole()
    return TrainingLog(
        path=raw.path,
        method=method,
        seed=seed,
        config=raw.config,
        points=points,
        accuracy=accuracy,
        depth=depth,
        batch=batch,
        assumed_batch=assumed_batch,
        stability_layer=layer if layer is not None or depth is None else depth // 2,
        stream=_stream(entries[-1].fields),
        caveats=(*raw.caveats, *thinned, *differs, *_gaps(points), *_skipped(points)),
    )


def _point(entry: Entry, states: Series, gradients: Series, scale: float) -> Point:
    """The numbers of an epoch, gradients at the size that they have for batches of 128."""
    companions = _companions(entry.fields)
    per_error = companions.gradient_per_unit_error
    return Point(
        entry.epoch,
        states,
        tuple(None if norm is None else norm * scale for norm in gradients),
        entry.fields["drift"].cosine(),
        entry.fields["accuracy"].accuracy(),
        companions if per_error is None else replace(companions, gradient_per_unit_error=per_error * scale),
        _credit(entry.fields),
    )


def _credit(fields: Fields) -> Credit | None:
    credit = fields["credit"]
    if not isinstance(credit.value, dict) or "gamma" not in credit.value:
        return None  # a number of somebody's own may have that name
    try:
        return read(Credit, credit.value, "credit")
    except AuditError as error:
        raise credit.error(str(error)) from None


def _stream(fields: Fields) -> ResidualStream | None:
    stream = fields["stream"]
    if stream.value is None:
        return None
    try:
        return read(ResidualStream, stream.value, "stream")
    except AuditError as error:
        raise stream.error(str(error)) from None


def _companions(fields: Fields) -> AuxiliaryStatistics:
    companions = fields["companions"]
    if not isinstance(companions.value or {}, dict):
        raise companions.error(f"companions is {companions.value!r:.40}, not an object")
    blank = AuxiliaryStatistics()
    values = {key: value for key, value in with_present_names(companions.value or {}).items() if hasattr(blank, key)}
    for key, value in values.items():
        field = Field(fields.path, fields.place, f"companions.{key}", value)
        if isinstance(getattr(blank, key), tuple):  # counts or names, one each layer or tensor
            kind = str if key == "nonfinite_weights" else int
            if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
                raise field.error(f"{field.name} is {value!r:.40}, not a list")
        else:
            number = field.number()
            values[key] = int(number) if number is not None and number.is_integer() else number
    try:
        return read(AuxiliaryStatistics, values, "companions")
    except AuditError as error:
        raise companions.error(str(error)) from None


def _final(epoch: Fields, last: float | None, top: Fields, config: Fields) -> tuple[Accuracy | None, tuple[str, ...]]:
    """The final accuracy, else that of the last epoch, with the number of its images; and a caveat where the two differ."""
    final = top["final_accuracy"].accuracy()
    value = last if final is None else final
    if value is None:
        return None, ()
    sources = (epoch, top, config) if final is None else (top, config, epoch) if final == last else (top, config)
    images = [replace(source["images"], place="the number of test images").whole(least=1) for source in sources]
    caveats: tuple[str, ...] = ()
    if final is not None and last is not None and 100 * abs(final - last) > FINAL_SLACK_PP:
        caveats = (f"the log's final accuracy is {fraction(final)}, that of its last epoch {fraction(last)}",)
    return Accuracy(value, next((n for n in images if n is not None), None)), caveats


def _gaps(points: tuple[Point, ...]) -> tuple[str, ...]:
    """What earlier epochs have and the last one, which is judged, has not."""
    quantities: dict[str, Callable[[Point], bool]] = {
        "‖h_l‖": lambda point: any(norm is not None for norm in point.residual_norms[1:]),  # ‖h_0‖ may stand beside the epochs
        "‖g_l‖": lambda point: any(norm is not None for norm in point.bp_grad_norms),
        "accuracy": lambda point: point.accuracy is not None,
        "cross-batch cosine": lambda point: point.drift is not None,
        "Γ": lambda point: point.credit is not None,
    }
    gaps = []
    for name, has in quantities.items():
        epochs = [point.epoch for point in points if has(point)]
        if epochs and epochs[-1] != points[-1].epoch:
            gaps.append(f"epoch {points[-1].epoch}, the last, has no {name}; epoch {epochs[-1]} has, but is not judged")
    return tuple(gaps)


def _skipped(points: tuple[Point, ...]) -> tuple[str, ...]:
    """The epochs before which a log with steps of one size makes a larger one, as after a training resumed too late."""
    pairs = list(itertools.pairwise(point.epoch for point in points))
    steps = Counter(after - before for before, after in pairs)
    usual, times = max(steps.items(), key=lambda item: item[1], default=(0, 0))
    if 2 * times <= len(pairs):
        return ()
    return tuple(
        f"epoch {after} follows on epoch {before}: what lies between is not in the log, nor is what may have fired there"
        for before, after in pairs
        if after - before > usual
    )[:3]


def _last(epochs: tuple[int, ...]) -> str:
    return f"epoch {epochs[-1]}, the last," if len(epochs) > 1 else f"its only epoch, {epochs[0]},"


def _epochs(epochs: tuple[int, ...]) -> str:
    return f"{count(len(epochs), 'epoch')}, {epochs[0]} to {epochs[-1]}" if len(epochs) > 1 else f"epoch {epochs[0]}"
