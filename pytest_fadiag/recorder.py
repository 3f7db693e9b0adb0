"""A log that a training run writes, and a guard that ends a run where a diagnostic keeps firing."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from msgspec import structs
from torch import nn
from torch.utils import data

from .files import parse_json, write_atomically
from .judge.control import Control
from .judge.diagnostics import select
from .judge.errors import AuditError
from .judge.records import BATCH, BATCHES, Measurement, Score, check_accuracy, plain
from .judge.report import Report
from .judge.thresholds import DiagnosticThresholds
from .judge.words import plural
from .load.logs import RECORDER, read_log
from .load.names import identify
from .measure.copies import working_copy
from .measure.credit import CreditSource
from .measure.inputs import regrouped
from .measure.run import NetworkSource, measure
from .measure.task import Task

METRICS = ("states", "gradients", "directions", "output-error", "accuracy")
NAMES = {
    "residual_norms": "hidden_norms",
    "bp_grad_norms": "bp_grad_norms",
    "stability_layer": "stability_layer",
    "cross_batch_stability": "drift",
    "stream": "stream",
    "credit": "credit",
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
    ``forward`` are those of ``diagnose``. ``digits`` rounds numbers.
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
    ) -> None:
        sampler = getattr(getattr(eval_batches, "batch_sampler", None), "sampler", None)
        if isinstance(sampler, SHUFFLES) or getattr(sampler, "shuffle", False):
            raise AuditError(
                "the evaluation data is a DataLoader that shuffles; expected shuffle=False"
            )
        self.path, self.digits, self.written = Path(path), digits, -1
        given = {} if config is None else config
        settings = dict(given if isinstance(given, Mapping) else vars(given))
        stated: dict[str, object] = {} if method is None else {"method": method}
        stated |= {} if seed is None else {"seed": seed}
        self.method, self.seed = identify(self.path, {**settings, **stated})
        header = {"recorder": RECORDER, **stated, "batch": BATCH, "config": settings}
        self.header = json.dumps(header, default=str).encode() + b"\n"
        self.lines = self._earlier()
        batches = list(eval_batches) if isinstance(eval_batches, Iterator) else eval_batches
        with torch.random.fork_rng(devices=[]):  # a DataLoader draws a number when it starts
            first = [(x, y) for x, y, full in islice(regrouped(batches, BATCHES), BATCHES) if full]
        if len(first) < 2:
            raise AuditError(f"expected evaluation data with at least 2 batches of {BATCH} samples")
        self.data: dict[bool, Iterable[Any]] = {True: batches, False: first}
        self.options: dict[str, Any] = {
            "task": Task(kind=task, loss=loss),
            "forward": forward,
            "stream": stream,
            "batch_size": batch_size,
            "credit": None if credit is None else CreditSource(credit),
        }
        self.sources: dict[Any, NetworkSource] = {}
        self.told: set[str] = set()

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
        if type(epoch) is not int or epoch < max(0, self.written):
            after = "" if self.written < 0 else f" after {self.written}"
            raise AuditError(f"expected epochs that rise from 0 on, got {epoch!r}{after}")
        if model is None and acc is None:
            raise AuditError("nothing was recorded: neither a model nor an accuracy")
        if taken := {*NAMES.values(), "acc_eval", "companions"} & extra.keys():
            raise AuditError(f"nothing was recorded: {min(taken)!r} is a key of the log's own")
        measured = None if model is None else self._measured(model, whole=acc is None)
        score = measured and measured.score
        if acc is not None:
            task = measured.task if measured else "classes"
            score = Score(check_accuracy(acc, "acc", task), images)
        entry: dict[str, Any] = {"epoch": epoch}
        for key, value in extra.items():
            entry[key] = value.item() if hasattr(value, "item") else value
        entry |= {"acc_eval": score.value, "images": score.images} if score else {}
        if measured is not None:
            credit = None if measured.credit and measured.credit.problem else measured.credit
            numbers = structs.asdict(structs.replace(measured, credit=credit))
            blank = structs.asdict(Measurement())
            known = {name: value for name, value in numbers.items() if value != blank[name]}
            entry |= {key: known[name] for name, key in NAMES.items() if name in known}
            entry["companions"] = {name: own for name, own in known.items() if name in COMPANIONS}
        text = json.dumps(plain({key: value for key, value in entry.items() if value is not None}))
        if self.digits is not None:
            digits = f".{self.digits}g"
            text = json.dumps(
                json.loads(text, parse_float=lambda own: float(format(float(own), digits)))
            )
        self._write(epoch, text.encode() + b"\n")
        return measured

    def _measured(self, model: nn.Module, *, whole: bool) -> Measurement:
        """The numbers of a copy; stream and reference are looked for once per architecture."""
        key = (whole, *((name, value.shape) for name, value in model.named_parameters()))
        if key in self.sources:
            source = self.sources[key].redrawn(working_copy(model))
        else:
            source = self.sources[key] = NetworkSource(model, self.data[whole], **self.options)
        measured = measure(source, METRICS if source.credit is None else (*METRICS, "credit"))
        lacking = {"gradients": measured.reference, "Γ": measured.credit}
        for what, held in lacking.items():
            if held is not None and held.problem and what not in self.told:
                self.told.add(what)
                warnings.warn(f"{self.path.name}: {what} not logged: {held.problem}", stacklevel=4)
        return measured

    def _earlier(self) -> dict[int, bytes]:
        """The whole lines of an earlier run; a file that no recorder wrote is left alone."""
        try:
            content = self.path.read_bytes() if self.path.exists() else b""
            header, *lines = content.splitlines(keepends=True) or [self.header]
            if parse_json(header)["recorder"] != RECORDER:
                raise ValueError("a recorder's first line is missing")
            whole = [line for line in lines if line.endswith(b"\n")]
            return {int(parse_json(line)["epoch"]): line for line in whole}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise AuditError(
                f"cannot go on with this log: {error!r:.200}; name another\n  {self.path}"
            ) from error

    def _write(self, epoch: int, line: bytes) -> None:
        """Append a line; the first one, or one that replaces others, is written with all before."""
        kept = {earlier: text for earlier, text in self.lines.items() if earlier < epoch}
        dropped = sorted(set(self.lines) - set(kept) - {epoch})
        if kept and self.written < 0:
            log, ours = read_log(self.path).base, f"{self.method}, seed {self.seed}"
            theirs = f"{log.method_name}, seed {log.seed}"
            if theirs != ours:
                raise AuditError(
                    f"the log is of {theirs}; this is {ours}; name another file\n  {self.path}"
                )
        try:
            if 0 <= self.written < epoch:
                with self.path.open("ab") as file:
                    file.write(line)
            else:
                write_atomically(self.path, b"".join([self.header, *kept.values(), line]))
        except OSError as error:
            raise AuditError(f"the log cannot be written: {error}") from error
        self.lines, self.written = {**kept, epoch: line}, epoch
        if dropped:
            said = f"epochs {dropped[0]} to {dropped[-1]} of an earlier run were dropped"
            warnings.warn(f"{said}\n  {self.path}", stacklevel=3)


class GuardStopped(RuntimeError):
    """Training was stopped by a guard; the text says by which diagnostics, when and why."""

    def __init__(self, epoch: int, streaks: Mapping[str, Sequence[int]], report: Report) -> None:
        self.epoch, self.keys, self.report = epoch, tuple(streaks), report
        number = plural(min(map(len, streaks.values())), "record")
        text = f"training stopped at epoch {epoch}: {report.method_name} failed {number} in a row"
        for key, epochs in streaks.items():
            found, since = report.finding(key), f"epochs {epochs[0]} to {epochs[-1]}"
            text += f"\n  ({key}) {found.name}, {since}: {found.headline}. {found.explanation}"
        super().__init__(text)


class Guard:
    """Records, and stops training when one of ``stop`` fired in ``after`` records in a row.

    >>> guard = Guard(Recorder("runs/dfa_s42.jsonl", test_loader), stop="ab", after=3)
    >>> guard.record(epoch, model, acc=0.87)  # may raise GuardStopped

    (d) needs a ``control``. A resumed run counts its records from where it resumes.
    """

    def __init__(
        self,
        recorder: Recorder,
        *,
        stop: str = "ab",
        after: int = 3,
        control: float | Control | None = None,
        thresholds: DiagnosticThresholds | Mapping[str, Any] | None = None,
    ) -> None:
        if after < 1:
            raise AuditError(f"after: expected a number of records from 1, got {after!r}")
        self.recorder, self.after = recorder, after
        self.diagnostics = select(stop)
        self.control = Control(Score(control)) if isinstance(control, (int, float)) else control
        if isinstance(thresholds, Mapping):
            thresholds = DiagnosticThresholds().replace(**thresholds)
        self.thresholds = thresholds or DiagnosticThresholds()
        self.streaks: dict[str, list[int]] = {}

    def record(
        self, epoch: int, model: nn.Module, acc: float | None = None, **others: Any
    ) -> Measurement | None:
        """What ``Recorder.record`` does; then training stops if this ends a streak."""
        measured = self.recorder.record(epoch, model, acc, **others)
        report = Report.of(
            measured or Measurement(),
            method_name=self.recorder.method,
            seed=self.recorder.seed,
            headline_acc=acc,
            control=self.control,
            thresholds=self.thresholds,
            diagnostics=tuple(diagnostic.name for diagnostic in self.diagnostics),
        )
        if blind := [finding for finding in report.findings if not finding.measured]:
            raise AuditError(
                f"a guard cannot stop by ({blind[0].key}) {blind[0].name}: {blind[0].headline}"
            )
        for finding in report.findings:
            streak = [*self.streaks.get(finding.key, []), epoch]
            self.streaks[finding.key] = streak if finding.fired else []
        due = {key: epochs for key, epochs in self.streaks.items() if len(epochs) >= self.after}
        if due:
            raise GuardStopped(epoch, due, report)
        return measured
