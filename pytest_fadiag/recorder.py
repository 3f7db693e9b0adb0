"""A log that a training writes as it goes, from which (a), (b) and (c) can be audited exactly when the checkpoint is gone."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .judge.credit import CreditFunction
from .judge.diagnostics import DIAGNOSTICS
from .judge.errors import AuditError
from .judge.observers import CREDIT, PRECISION
from .judge.records import BATCH, BATCHES, Measurement, check_accuracy
from .judge.reference import UNPROVEN
from .load.identity import identify
from .load.recording import Recording
from .measure.batches import Batch, regrouped
from .measure.measure import measure
from .measure.output_error import Loss, cross_entropy

OWN_KEYS = (
    "epoch",
    "acc_eval",
    "images",
    "hidden_norms",
    "bp_grad_norms",
    "stability_layer",
    "drift",
    "companions",
    "stream",
    "credit",
)


class Recorder:
    """Appends one line of JSON an epoch: ``recorder = Recorder(path, eval_batches=…)``, then ``recorder.record(epoch, model)``.

    The probe, the first 1,280 samples, is taken from ``eval_batches`` once. With ``acc`` given nothing else is looked at, which
    costs a few percent of an epoch; without it every sample is classified, in each epoch anew. ``config``, ``method`` and
    ``seed`` say in the log's first line what is trained. A path with the log of an interrupted training goes on with it.
    With ``credit``, a function of ``(model, x, y)`` that returns the method's credit at each block output, Γ is logged too.
    """

    def __init__(
        self,
        path: str | Path,
        eval_batches: Iterable[Batch],
        *,
        config: object = None,
        method: str | None = None,
        seed: int | None = None,
        stream: str | None = None,
        loss: Loss = cross_entropy,
        batch_size: int = BATCH,
        digits: int | None = None,
        credit: CreditFunction | None = None,
    ) -> None:
        self.stream, self.loss, self.batch_size = stream, loss, batch_size
        settings = _plain_config(config)
        self.recording = Recording(Path(path), settings, method, seed, digits)
        stated = {key: value for key, value in {"method": method, "seed": seed}.items() if value is not None}
        self.method, self.seed = identify(Path(path), {**settings, **stated})
        if isinstance(eval_batches, Iterator):
            eval_batches = list(eval_batches)  # it could be read only once
        _refuse_shuffled(eval_batches)
        self.eval_batches = eval_batches
        self.credit = credit
        self._warned: set[str] = set()
        self.probe = _probe(eval_batches)

    @property
    def path(self) -> Path:
        """Where the log is."""
        return self.recording.path

    def record(
        self, epoch: int, model: nn.Module | None, acc: float | None = None, *, images: int | None = None, **extra: object
    ) -> Measurement | None:
        """Measure the model and append a line; what a resumed training records again replaces what was recorded before.

        Later epochs of an interrupted run go with it, and a warning names them; one recorder goes forward only.
        ``images`` is the number of images behind ``acc``; without it, what a DataLoader tells, if ``acc`` can be a share of so
        many. ``extra`` are numbers of your own, such as a training loss. Without a model, as for a control without blocks,
        ``acc`` is all that is logged. The model comes back as it was.
        """
        if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 0:
            raise AuditError(f"epoch is {epoch!r}, not a whole number from 0")
        taken = [key for key in extra if key in OWN_KEYS]
        if taken:
            raise AuditError(f"{taken[0]!r} is a key of the log's own; give your number another name")
        self.recording.check_forward(epoch)
        measurement = None
        entry: dict[str, Any] = {"epoch": epoch, **{key: _item(key, value) for key, value in extra.items()}}
        if acc is not None:
            value = check_accuracy(acc, "acc")
            images = _images(self.eval_batches, value) if images is None else images
            entry |= {"acc_eval": value} | ({} if images is None else {"images": images})
        elif model is None:
            raise AuditError("neither a model nor an accuracy: there is nothing to record")
        if model is not None:
            measurement = measure(
                model,
                self.eval_batches if acc is None else self.probe,
                stream=self.stream,
                loss=self.loss,
                batch_size=self.batch_size,
                # In which dtypes is no number of a log.
                observers=[
                    *(name for name in DIAGNOSTICS.by_default.observers if name != PRECISION.name),
                    *([] if self.credit is None else [CREDIT.name]),
                ],
                credit=self.credit,
            )
            self._warn(measurement)
            if acc is None and measurement.accuracy is not None:
                entry |= {"acc_eval": measurement.accuracy.value, "images": measurement.accuracy.images}
            entry |= _numbers(measurement)
        self.recording.write(entry)
        return measurement

    def _warn(self, measurement: Measurement) -> None:
        """Say once that gradients or Γ are not logged, rather than end a training for it."""
        unproven = "" if measurement.reference is None else measurement.reference.problem
        no_credit = str(measurement.extra.get(CREDIT.name, {}).get("problem", ""))
        said = {"gradients": f"{UNPROVEN}: {unproven}" if unproven else "", "Γ": no_credit}
        for what, problem in said.items():
            if problem and what not in self._warned:
                self._warned.add(what)
                warnings.warn(f"{self.path.name} gets no {what}, since {problem}", stacklevel=4)


def _numbers(measured: Measurement) -> dict[str, Any]:
    """What was measured; without a proven reference there are no gradients among it."""
    numbers = {
        "hidden_norms": measured.residual_norms,
        "bp_grad_norms": measured.bp_grad_norms,
        "stability_layer": measured.stability_layer,
        "drift": measured.cross_batch_stability,
        "companions": {key: value for key, value in asdict(measured.companions).items() if _says_something(value)},
        "stream": None if measured.stream is None else asdict(measured.stream),
        "credit": _logged_credit(measured),
    }
    return {key: value for key, value in numbers.items() if value is not None and value != ()}


def _logged_credit(measured: Measurement) -> dict[str, Any] | None:
    """Γ at every site and what it is judged by, where it was measured."""
    seen = measured.extra.get(CREDIT.name)
    return (
        {name: value for name, value in seen.items() if name not in ("problem", "absent")}
        if seen and not seen["problem"]
        else None
    )


def _says_something(value: Any) -> bool:
    """Not so what was not measured, and counts of what did not happen."""
    return isinstance(value, float) or bool(any(value) if isinstance(value, tuple) else value)


def _probe(batches: Iterable[Batch]) -> list[Batch]:
    """The first ten groups of 128; a DataLoader draws a number when it starts, which is not to be missing in the training."""
    probe: list[Batch] = []
    with torch.random.fork_rng(devices=[]):
        for number, batch in regrouped(batches, BATCHES):
            if number is not None:
                probe.append(batch)
            if number is None or len(probe) == BATCHES:
                break  # the rest need not be loaded
    if len(probe) < 2:
        raise AuditError(f"the evaluation data of a recorder needs at least 2 batches of {BATCH} samples")
    return probe


def _images(batches: Iterable[Batch], acc: float) -> int | None:
    """How many images the loader has, where it tells, and an accuracy over all of them can be this one."""
    if not isinstance(batches, torch.utils.data.DataLoader) or batches.batch_sampler is None or batches.drop_last:
        return None
    try:
        images = len(batches.sampler)  # type: ignore[arg-type]
    except TypeError:  # a stream of samples, which nobody counted
        return None
    right = acc * images
    return images if abs(right - round(right)) <= max(1e-6, 1e-6 * images) < 0.1 else None


def _refuse_shuffled(batches: Iterable[Batch]) -> None:
    """The protocol probes the test split in its own order; another 1,280 samples in each run would be compared."""
    if isinstance(getattr(batches, "sampler", None), torch.utils.data.RandomSampler):
        raise AuditError("the evaluation data is a DataLoader that shuffles; give one with shuffle=False")


def _plain_config(config: object) -> dict[str, Any]:
    """A config from a mapping, a dataclass or the Namespace of argparse."""
    if config is None:
        return {}
    if is_dataclass(config) and not isinstance(config, type):
        return asdict(config)
    if not isinstance(config, Mapping) and not hasattr(config, "__dict__"):
        raise AuditError(f"config is a {type(config).__name__}; give a dictionary")
    return dict(config if isinstance(config, Mapping) else vars(config))


def _item(key: str, value: object) -> object:
    """The number in a tensor or an array of one entry."""
    try:
        return value.item() if hasattr(value, "item") else value
    except (RuntimeError, TypeError, ValueError):
        raise AuditError(f"{key} holds several numbers; log one, or a list") from None
