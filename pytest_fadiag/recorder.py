"""A log that a training run writes, and a guard that ends a run where a diagnostic keeps firing."""

from __future__ import annotations

import json
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from msgspec import structs
from torch import nn
from torch.utils import data

from .files import LARGEST_TEXT, parse_json, read_bytes, write_atomically
from .judge.control import Control
from .judge.diagnostics import available, select
from .judge.errors import AuditError
from .judge.records import (
    BATCH,
    BATCHES,
    Credit,
    Measurement,
    Reference,
    Score,
    check_accuracy,
    plain,
)
from .judge.report import Report
from .judge.thresholds import DiagnosticThresholds
from .judge.words import plural
from .load.logs import RECORDER, read_log
from .load.names import identify
from .measure.copies import quiet, working_copy
from .measure.credit import CreditSource
from .measure.inputs import checked, regrouped
from .measure.run import NetworkSource, measure
from .measure.step import Updates
from .measure.task import Task

METRICS = ("states", "gradients", "directions", "output-error", "accuracy")
NAMES = {
    "residual_norms": "hidden_norms",
    "bp_grad_norms": "bp_grad_norms",
    "stability_layer": "stability_layer",
    "cross_batch_stability": "drift",
    "stream": "stream",
    "credit": "credit",
    "step": "rule_step",
}
"""What a line calls the fields of a measurement that do not stand among its companions."""
COMPANIONS = set(Measurement.__struct_fields__) - {
    *("score", "reference", "precision", "depth", "inputs", "environment", "extra", *NAMES)
}
SHUFFLES = (data.RandomSampler, data.SubsetRandomSampler, data.WeightedRandomSampler)


class Recorder:
    """Appends one line of JSON per epoch, from which (a), (b), (c) can be audited later.

    >>> recorder = Recorder("runs/dfa_s42.jsonl", test_loader, config=options)
    >>> recorder.record(epoch, model, acc=0.87)

    ``config``, ``method`` and ``seed`` say in the first line what is trained. A path with the log
    of an interrupted run goes on with it. With ``credit``, a function of ``(model, x, y)`` that
    returns the method's credit at each block output, Γ is logged too. ``loss``, ``task`` and
    ``forward`` are those of ``diagnose``. ``digits`` rounds numbers. Of ``model``, every
    ``step_every``-th update is compared with the BP gradient:

    >>> with recorder.step(x, y):
    ...     my_update(x, y)
    """

    def __init__(
        self,
        path: str | Path,
        eval_batches: Iterable[Any],
        *,
        config: object = None,
        method: str | None = None,
        seed: int | None = None,
        stream: str | None = None,
        loss: str | Callable[..., Any] | None = None,
        task: str | None = None,
        forward: Callable[..., Any] | None = None,
        batch_size: int = BATCH,
        digits: int | None = None,
        credit: Callable[..., Any] | None = None,
        model: nn.Module | None = None,
        step_every: int = 10,
    ) -> None:
        sampler = getattr(getattr(eval_batches, "batch_sampler", None), "sampler", None)
        if isinstance(sampler, SHUFFLES) or getattr(sampler, "shuffle", False):
            raise AuditError(
                "the evaluation data is a DataLoader that shuffles; expected shuffle=False"
            )
        self.path = Path(path)
        self.digits = digits
        self.last_epoch = -1
        settings: dict[str, Any] = {}
        if config is not None:
            settings = dict(config if isinstance(config, Mapping) else vars(config))
        identity: dict[str, object] = {}
        if method is not None:
            identity["method"] = method
        if seed is not None:
            identity["seed"] = seed
        self.method, self.seed = identify(self.path, {**settings, **identity})
        header = {"recorder": RECORDER, **identity, "batch": BATCH, "config": settings}
        self.header = json.dumps(header, default=str).encode() + b"\n"
        self.lines = self._earlier_lines()
        if isinstance(eval_batches, Iterator):
            eval_batches = list(eval_batches)
        with torch.random.fork_rng(devices=[]):  # a DataLoader draws a number when it starts
            batches = islice(regrouped(eval_batches, BATCHES), BATCHES)
            full_batches = [(x, y) for x, y, full in batches if full]
        if len(full_batches) < 2:
            raise AuditError(f"expected evaluation data with at least 2 batches of {BATCH} samples")
        self.all_batches: Iterable[Any] = eval_batches
        self.first_batches = full_batches
        self.options: dict[str, Any] = {
            "task": Task(kind=task, loss=loss),
            "forward": forward,
            "stream": stream,
            "batch_size": batch_size,
            "credit": None if credit is None else CreditSource(credit),
        }
        self.sources: dict[Any, NetworkSource] = {}
        self.model = model
        self.step_every = step_every
        self.steps = 0
        self.updates: Updates | None = None
        self.warned_of: set[str] = set()

    def record(
        self,
        epoch: int,
        model: nn.Module | None,
        acc: float | None = None,
        *,
        images: int | None = None,
        **extra: object,
    ) -> Measurement | None:
        """Measure a copy of the model and append a line.

        With ``acc``, the test accuracy over ``images`` images, only the first 1,280 evaluation
        samples are looked at; without it every sample is classified. ``extra`` are numbers of your
        own. What a resumed run records again replaces what was recorded before. Without a model,
        as for a control without blocks, ``acc`` is all that is logged.
        """
        if type(epoch) is not int or epoch < max(0, self.last_epoch):
            after = "" if self.last_epoch < 0 else f" after {self.last_epoch}"
            raise AuditError(f"expected epochs that rise from 0 on, got {epoch!r}{after}")
        if model is None and acc is None:
            raise AuditError("nothing was recorded: neither a model nor an accuracy")
        clashes = sorted({*NAMES.values(), "acc_eval", "companions"} & extra.keys())
        if clashes:
            raise AuditError(f"nothing was recorded: {clashes[0]!r} is a key of the log's own")
        measurement = None
        score = None
        task = "classes"
        if model is not None:
            measurement = self._measured(model, all_batches=acc is None)
            if self.updates is not None:
                measurement = structs.replace(measurement, step=self.updates.taken())
            score = measurement.score
            task = measurement.task
        if acc is not None:
            score = Score(check_accuracy(acc, "acc", task), images)
        entry: dict[str, Any] = {"epoch": epoch}
        for key, value in extra.items():
            entry[key] = value.item() if hasattr(value, "item") else value
        if score is not None:
            entry["acc_eval"] = score.value
            entry["images"] = score.images
        if measurement is not None:
            entry |= _entry(measurement)
        self._write(epoch, self._line(entry))
        return measurement

    @contextmanager
    def step(self, x: Any, y: Any = None, model: nn.Module | None = None) -> Iterator[None]:
        """Compare the update within with BP's, by one pass more; ``record`` logs the mean by part.

        Without ``y``, ``x`` is a batch as the evaluation data has them.
        """
        model = self.model if model is None else model
        if model is None:
            raise AuditError("which network takes the step? Give Recorder(model=…)")
        self.steps += 1
        if (self.steps - 1) % self.step_every:
            yield
            return
        ((inputs, labels),) = checked([x if y is None else (x, y)])
        if self.updates is None:
            source = self._source(model, all_batches=False)
            with quiet(source.network):
                self.updates = Updates(source)
        with self.updates.watched(model, inputs, labels):
            yield

    def _line(self, entry: Mapping[str, Any]) -> bytes:
        """A line of the log: what is unknown is left out, numbers are rounded."""
        text = json.dumps(plain({key: value for key, value in entry.items() if value is not None}))
        if self.digits is not None:
            digits = f".{self.digits}g"
            rounded = json.loads(text, parse_float=lambda word: float(format(float(word), digits)))
            text = json.dumps(rounded)
        return text.encode() + b"\n"

    def _measured(self, model: nn.Module, *, all_batches: bool) -> Measurement:
        """The numbers of a copy."""
        source = self._source(model, all_batches=all_batches)
        metrics: tuple[str, ...] = METRICS
        if source.credit is not None:
            metrics = (*METRICS, "credit")
        measurement = measure(source, metrics)
        self._warn_once("gradients", measurement.reference)
        self._warn_once("Γ", measurement.credit)
        return measurement

    def _source(self, model: nn.Module, *, all_batches: bool) -> NetworkSource:
        """A copy with its data; stream and reference are looked for once per architecture."""
        shapes = [(name, value.shape) for name, value in model.named_parameters()]
        key = (all_batches, *shapes)
        if key in self.sources:
            return self.sources[key].redrawn(working_copy(model))
        batches = self.all_batches if all_batches else self.first_batches
        self.sources[key] = NetworkSource(model, batches, **self.options)
        return self.sources[key]

    def _warn_once(self, what: str, measured: Reference | Credit | None) -> None:
        """Say what cannot be measured, and is not logged."""
        if measured is None or not measured.problem or what in self.warned_of:
            return
        self.warned_of.add(what)
        warnings.warn(f"{self.path.name}: {what} not logged: {measured.problem}", stacklevel=5)

    def _earlier_lines(self) -> dict[int, bytes]:
        """The whole lines of an earlier run; a file that no recorder wrote is left alone."""
        try:
            content = read_bytes(self.path, LARGEST_TEXT) if self.path.exists() else b""
            header, *lines = content.splitlines(keepends=True) or [self.header]
            if parse_json(header)["recorder"] != RECORDER:
                raise ValueError("a recorder's first line is missing")
            by_epoch = {}
            for line in lines:
                if line.endswith(b"\n"):
                    by_epoch[int(parse_json(line)["epoch"])] = line
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise AuditError(
                f"cannot go on with this log: {error!r:.200}; name another\n  {self.path}"
            ) from error
        return by_epoch

    def _write(self, epoch: int, line: bytes) -> None:
        """Append a line; the first one, or one that replaces others, is written with all before."""
        before = {earlier: text for earlier, text in self.lines.items() if earlier < epoch}
        dropped = sorted(later for later in self.lines if later > epoch)
        if before and self.last_epoch < 0:
            self._refuse_log_of_another_run()
        try:
            if 0 <= self.last_epoch < epoch:
                with self.path.open("ab") as file:
                    file.write(line)
            else:
                write_atomically(self.path, b"".join([self.header, *before.values(), line]))
        except OSError as error:
            raise AuditError(f"the log cannot be written: {error}") from error
        self.lines = {**before, epoch: line}
        self.last_epoch = epoch
        if dropped:
            warnings.warn(
                f"epochs {dropped[0]} to {dropped[-1]} of an earlier run were dropped\n"
                f"  {self.path}",
                stacklevel=3,
            )

    def _refuse_log_of_another_run(self) -> None:
        log = read_log(self.path).base
        if (log.method_name, log.seed) != (self.method, self.seed):
            raise AuditError(
                f"the log is of {log.method_name}, seed {log.seed}; this is {self.method}, "
                f"seed {self.seed}; name another file\n  {self.path}"
            )


def _entry(measurement: Measurement) -> dict[str, Any]:
    """What a line says of a measurement; a credit that cannot be measured is left out."""
    if measurement.credit is not None and measurement.credit.problem:
        measurement = structs.replace(measurement, credit=None)
    blank = structs.asdict(Measurement())
    entry: dict[str, Any] = {}
    companions = {}
    for name, value in structs.asdict(measurement).items():
        if value == blank[name]:
            continue
        if name in NAMES:
            entry[NAMES[name]] = value
        elif name in COMPANIONS:
            companions[name] = value
    return {**entry, "companions": companions}


class GuardStopped(RuntimeError):
    """Training was stopped by a guard; the text says by which diagnostics, when and why."""

    def __init__(self, epoch: int, streaks: Mapping[str, Sequence[int]], report: Report) -> None:
        self.epoch = epoch
        self.keys = tuple(streaks)
        self.report = report
        number = plural(min(map(len, streaks.values())), "record")
        text = f"training stopped at epoch {epoch}: {report.method_name} failed {number} in a row"
        for key, epochs in streaks.items():
            finding = report.finding(key)
            text += (
                f"\n  ({key}) {finding.name}, epochs {epochs[0]} to {epochs[-1]}: "
                f"{finding.headline}. {finding.explanation}"
            )
        super().__init__(text)


class Guard:
    """Records, and stops training when one of ``stop`` fired in ``after`` records in a row.

    >>> guard = Guard(Recorder("runs/dfa_s42.jsonl", test_loader), stop="ab", after=3)
    >>> guard.record(epoch, model, acc=0.87)  # may raise GuardStopped

    By default (a) and (b) stop it. (d) needs a ``control``. A resumed run counts its records from
    where it resumes.
    """

    def __init__(
        self,
        recorder: Recorder,
        *,
        stop: str | None = None,
        after: int = 3,
        control: float | Control | None = None,
        thresholds: DiagnosticThresholds | Mapping[str, Any] | None = None,
    ) -> None:
        if after < 1:
            raise AuditError(f"after: expected a number of records from 1, got {after!r}")
        self.recorder = recorder
        self.step = recorder.step
        self.after = after
        if stop is None:
            self.diagnostics = tuple(d for d in available() if d.stops_training)
        else:
            self.diagnostics = select(stop)
        self.control = Control(Score(control)) if isinstance(control, (int, float)) else control
        if isinstance(thresholds, Mapping):
            thresholds = DiagnosticThresholds().replace(**thresholds)
        self.thresholds = thresholds or DiagnosticThresholds()
        self.streaks: defaultdict[str, list[int]] = defaultdict(list)

    def record(
        self, epoch: int, model: nn.Module, acc: float | None = None, **others: Any
    ) -> Measurement | None:
        """What ``Recorder.record`` does; then training stops if this ends a streak."""
        measurement = self.recorder.record(epoch, model, acc, **others)
        report = Report.of(
            measurement or Measurement(),
            method_name=self.recorder.method,
            seed=self.recorder.seed,
            headline_acc=acc,
            control=self.control,
            thresholds=self.thresholds,
            diagnostics=tuple(diagnostic.name for diagnostic in self.diagnostics),
        )
        stopping = {}
        for finding in report.findings:
            if not finding.measured:
                raise AuditError(
                    f"a guard cannot stop by ({finding.key}) {finding.name}: {finding.headline}"
                )
            streak = self.streaks[finding.key]
            if finding.fired:
                streak.append(epoch)
            else:
                streak.clear()
            if len(streak) >= self.after:
                stopping[finding.key] = streak
        if stopping:
            raise GuardStopped(epoch, stopping, report)
        return measurement
