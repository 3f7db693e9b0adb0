"""Training logs: what is left to audit when no checkpoint is; free of torch."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from ..judge.codec import read
from ..judge.control import Control
from ..judge.errors import AuditError
from ..judge.records import BATCH, Accuracy, AuxiliaryStatistics, with_present_names
from ..judge.report import DiagnosticReport
from ..judge.thresholds import DiagnosticThresholds
from ..judge.trajectory import Point, Series, Trajectory
from ..judge.wording import count, fraction, listed
from .identity import identify
from .logformats import ACCEPTED, RawLog, read_raw, trouble
from .lognumbers import Numbers

STATE_LISTS = ("hidden_norms", "residual_norms")
GRADIENT_LISTS = ("bp_grad_norms_per_sample_med", "bp_grad_norms")
ACCURACIES = ("acc_eval", "test_acc", "acc")
FINAL_ACCURACIES = ("final_test_acc", "test_acc")
DRIFTS = ("drift", "cross_batch_stability")
IMAGES = ("images", "test_images", "n_test")
BLOCKS = ("n_blocks", "num_blocks", "blocks", "L", "depth", "n_layers", "num_layers")
GRADIENT_BATCHES = ("grad_batch_size", "eval_batch_size", "diagnostic_batch_size")
TRAINING_BATCHES = ("batch_size", "batch")
"""Those of the optimiser's steps: what the gradients of a log were taken at is often, and not always, the same."""
NORM = re.compile(r"(?P<symbol>[hg])_(?P<layer>\d+|L)_norm")
SAME_NORM = 1e-2
"""How far two numbers for one norm may lie apart, relatively, as far as rounding to two digits explains."""
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
    caveats: tuple[str, ...] = field(default=())

    @property
    def epochs(self) -> tuple[int, ...]:
        """The epochs that were logged."""
        return tuple(point.epoch for point in self.points)

    def report(
        self,
        control: Control | float | None = None,
        thresholds: DiagnosticThresholds | Mapping[str, Any] | None = None,
        expected: str | None = None,
        *,
        notes: str | None = None,
    ) -> DiagnosticReport:
        """The partial audit of the last epoch, with when each diagnostic first fired."""
        if self.depth == 0:
            raise trouble(self.path, "a network without blocks has no stream to audit; it can serve as a shallow control")
        if control is not None and not isinstance(control, Control):
            control = Control(Accuracy(control))
        if isinstance(thresholds, Mapping):
            thresholds = DiagnosticThresholds().replace(**thresholds)
        last = self.points[-1]
        return DiagnosticReport(
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
            expected=expected,
            checkpoint=self.path.name,
            notes=f"{self.path.name}, a training log: {_epochs(self.epochs)}" if notes is None else notes,
        )


def read_log(path: str | Path, *, batch: int | None = None, method: str | None = None) -> TrainingLog:
    """The log in a file, of several that of a method; ``batch`` is the batch size of its gradients, where it does not say."""
    raw = read_raw(Path(path))
    several = len(raw) > 1
    fitting = [log for log in raw if method is None or log.method == method] if several else raw
    if len(fitting) != 1:
        methods = listed(str(log.method) for log in raw)
        if method is None:
            advice = (
                "split it into one file a method, each with its <method>_log and the config, named <method>_s<seed>.json; in "
                f"Python, read_log(path, method={raw[0].method!r}) takes one of them and read_logs all"
            )
            raise trouble(Path(path), f"holds the logs of several methods, {methods}; {advice}")
        raise trouble(Path(path), f"holds the logs of {methods}, and none of {method}")
    return _Reader(fitting[0], batch, several=several).read()


def log_methods(path: str | Path) -> tuple[str, ...]:
    """The methods of a file with the logs of several, in its order; of one log, or what cannot be read as logs, none.

    Nothing but the shape of the file is looked at: what is wrong with it is said by whoever reads it.
    """
    try:
        raw = read_raw(Path(path))
    except AuditError:
        return ()
    return tuple(str(log.method) for log in raw) if len(raw) > 1 else ()


def read_logs(path: str | Path, *, batch: int | None = None) -> list[TrainingLog]:
    """Every log in a file: one, or one a method."""
    raw = read_raw(Path(path))
    return [_Reader(log, batch, several=len(raw) > 1).read() for log in raw]


class Norm(NamedTuple):
    """One norm of an entry, under the name that it has there."""

    symbol: str
    layer: str
    value: float
    name: str
    outside: bool = False
    """Whether it stands beside the epochs, for those that have none of their own."""


class _Reader:
    """Checks the entries of one log and brings them to points of a trajectory."""

    def __init__(self, log: RawLog, batch: int | None, *, several: bool) -> None:
        self.log, self.path, self.config = log, log.path, log.config
        self.numbers = Numbers(log.path)
        self.named = {**log.config, "method": log.method} if log.method and several else dict(log.config)
        if log.method and not self.named.get("method"):
            self.named["method"] = log.method
        self.batch = BATCH if log.recorded else batch or self.numbers.whole(GRADIENT_BATCHES, log.config, "config", least=1)
        training = self.numbers.whole(TRAINING_BATCHES, log.config, "config", least=1) if self.batch is None else None
        self.assumed_batch = training
        self.lengths: dict[str, tuple[int, str]] = {}

    def read(self) -> TrainingLog:
        """The log, every number checked."""
        entries = self._ordered()
        loose = [self._norms(entry, place) for place, entry in entries]
        depth = self._depth()
        numbered = (int(norm.layer) for norms in loose for norm in norms if norm.layer != "L")
        size = depth + 1 if depth is not None else 2 + max(numbered, default=0)
        points = tuple(self._point(entry, place, norms, size) for (place, entry), norms in zip(entries, loose, strict=True))
        method, seed = identify(self.path, self.named)
        layer = self.numbers.whole(("stability_layer",), entries[-1][1], entries[-1][0])
        return TrainingLog(
            path=self.path,
            method=method,
            seed=seed,
            config=self.config,
            points=points,
            accuracy=self._final(points[-1]),
            depth=depth,
            batch=self.batch,
            assumed_batch=self.assumed_batch,
            stability_layer=layer if layer is not None or depth is None else depth // 2,
            caveats=(*self.log.caveats, *self._differs(points[-1]), *_gaps(points), *_skipped(points)),
        )

    def _ordered(self) -> list[tuple[str, dict[str, Any]]]:
        """The entries with epochs that rise, each under its place and epoch."""
        last, ordered = None, []
        for place, entry in self.log.entries:
            epoch = entry.get("epoch")
            if "epoch" not in entry:
                raise trouble(self.path, f"no epoch in this entry, which has {', '.join(map(repr, entry))}\n{ACCEPTED}", place)
            if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 0:
                raise trouble(self.path, f"epoch is {epoch!r:.40}, not a whole number", place)
            if last is not None and epoch <= last:
                wrong = f"epoch {epoch} is there twice" if epoch == last else f"epoch {epoch} comes after epoch {last}"
                raise trouble(self.path, f"{wrong}; keep the epochs of one training, in their order", place)
            last = epoch
            ordered.append((f"{place} (epoch {epoch})" if place.startswith("line") else f"epoch {epoch}", entry))
        return ordered

    def _norms(self, entry: Mapping[str, Any], place: str) -> list[Norm]:
        """The norms of an entry, from single numbers and from lists; ‖h_0‖ may stand outside of it, for epochs without one."""
        outer = {key: source[key] for source in (self.log.top, self.config) for key in ("h_0_norm",) if key in source}
        singles = [(key, value, True) for key, value in outer.items()] + [(key, value, False) for key, value in entry.items()]
        found = []
        for key, value, outside in singles:
            named = NORM.fullmatch(key)
            norm = self.numbers.norm(value, key, place) if named else None
            if named and norm is not None:
                found.append(Norm(named["symbol"], named["layer"], norm, key, outside))
        for symbol, names in (("h", STATE_LISTS), ("g", GRADIENT_LISTS)):
            name = next((name for name in names if entry.get(name) is not None), None)
            values = entry[name] if name else []
            if not isinstance(values, list):
                raise trouble(self.path, f"{name} is {values!r:.40}, not a list with one number a layer", place)
            if name:
                self._same_length(name, len(values), place)
            norms = [self.numbers.norm(value, f"{name}[{layer}]", place) for layer, value in enumerate(values)]
            found += [Norm(symbol, str(i), norm, f"{name}[{i}]") for i, norm in enumerate(norms) if norm is not None]
        return found

    def _same_length(self, name: str, length: int, place: str) -> None:
        before, where = self.lengths.setdefault(name, (length, place))
        if length != before:
            wrong = f"{name} has {count(length, 'entry', 'entries')}, but {before} in {where}"
            raise trouble(self.path, f"{wrong}; log every layer in every epoch, null for what is missing", place)

    def _depth(self) -> int | None:
        """The number of blocks: as the config says and the lists show, which must agree."""
        key = next((key for key in BLOCKS if self.config.get(key) is not None), None)
        stated = self.numbers.whole(BLOCKS, self.config, "config")
        for name, (length, place) in self.lengths.items():
            other = next((n for n, (m, _) in self.lengths.items() if m != length), None)
            if stated is not None and length != stated + 1:
                raise trouble(
                    self.path,
                    f"{name} has {count(length, 'entry', 'entries')}, but {key} in the config is {stated}, which makes "
                    f"{stated + 1} layers, h_0 to h_{stated}; correct the one that is wrong",
                    place,
                )
            if other is not None:
                raise trouble(self.path, f"{name} has {length} entries and {other} {self.lengths[other][0]}; log every layer")
        return stated if stated is not None or not self.lengths else next(iter(self.lengths.values()))[0] - 1

    def _point(self, entry: Mapping[str, Any], place: str, norms: Sequence[Norm], size: int) -> Point:
        scale = (self.batch or self.assumed_batch or BATCH) / BATCH
        found = self._by_layer(norms, size, place)
        states, gradients = ([found.get((symbol, layer)) for layer in range(size)] for symbol in "hg")
        drift = self.numbers.first(DRIFTS, entry, place)
        if drift is not None and abs(drift) > 1 + 1e-9:
            raise trouble(self.path, f"drift is {drift:g}, but a cosine lies in [-1, 1]", place)
        return Point(
            entry["epoch"],
            tuple(None if norm is None else norm.value for norm in states),
            tuple(None if norm is None else norm.value * scale for norm in gradients),  # to the size at N = 128, once and here
            drift,
            self.numbers.accuracy(ACCURACIES, entry, place),
            self._companions(entry, place, scale),
        )

    def _by_layer(self, norms: Sequence[Norm], size: int, place: str) -> dict[tuple[str, int], Norm]:
        """The norms by symbol and layer; one that is there twice must be there as the same number."""
        found: dict[tuple[str, int], Norm] = {}
        for norm in norms:
            index = size - 1 if norm.layer == "L" else int(norm.layer)
            if index >= size:
                raise trouble(self.path, f"{norm.name}, but there are {size - 1} blocks by the config or lists", place)
            other = found.get((norm.symbol, index))
            if other is not None and not other.outside and not _same(norm.value, other.value):
                raise trouble(
                    self.path,
                    f"{other.name} is {other.value:g} and {norm.name} is {norm.value:g}, but both are ‖{norm.symbol}_{index}‖; "
                    "correct the one that is wrong, or leave it out",
                    place,
                )
            found[norm.symbol, index] = norm
        return found

    def _companions(self, entry: Mapping[str, Any], place: str, scale: float) -> AuxiliaryStatistics:
        given = entry.get("companions") or {}
        if not isinstance(given, dict):
            raise trouble(self.path, f"companions is {given!r:.40}, not an object", place)
        names = {own.name for own in fields(AuxiliaryStatistics)}
        values = {key: self._companion(key, value, place) for key, value in with_present_names(given).items() if key in names}
        try:
            companions = read(AuxiliaryStatistics, values, "companions")
        except AuditError as error:
            raise trouble(self.path, str(error), place) from None
        per_error = companions.gradient_per_unit_error
        return companions if per_error is None else replace(companions, gradient_per_unit_error=per_error * scale)

    def _companion(self, key: str, value: Any, place: str) -> Any:
        """A number, or where it is one of a list of counts or names, that list."""
        if not isinstance(getattr(AuxiliaryStatistics(), key), tuple):
            checked = self.numbers.number(value, f"companions.{key}", place)
            return int(checked) if checked is not None and checked.is_integer() else checked
        kind = str if key == "nonfinite_weights" else int
        if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
            raise trouble(self.path, f"companions.{key} is {value!r:.40}, not a list", place)
        return value

    def _final(self, last: Point) -> Accuracy | None:
        """The final accuracy of the log, else that of its last epoch, each with the number of images that stands beside it."""
        final = self.numbers.accuracy(FINAL_ACCURACIES, self.log.top, "beside the log")
        value = last.accuracy if final is None else final
        if value is None:
            return None
        epoch, whole = self.log.entries[-1][1], (self.log.top, self.config)
        sources = (epoch, *whole) if final is None else (*whole, epoch) if final == last.accuracy else whole
        images = [self.numbers.whole(IMAGES, source, "the number of test images", least=1) for source in sources]
        return Accuracy(value, next((n for n in images if n is not None), None))

    def _differs(self, last: Point) -> tuple[str, ...]:
        value = self.numbers.accuracy(FINAL_ACCURACIES, self.log.top, "beside the log")
        if value is None or last.accuracy is None or 100 * abs(value - last.accuracy) <= FINAL_SLACK_PP:
            return ()
        return (f"the log's final accuracy is {fraction(value)}, that of its last epoch {fraction(last.accuracy)}",)


def _gaps(points: tuple[Point, ...]) -> tuple[str, ...]:
    """What earlier epochs have and the last one, which is judged, has not."""
    looks: dict[str, Callable[[Point], bool]] = {
        "‖h_l‖": lambda point: _any(point.residual_norms[1:]),  # ‖h_0‖ may stand beside the epochs
        "‖g_l‖": lambda point: _any(point.bp_grad_norms),
        "accuracy": lambda point: point.accuracy is not None,
        "cross-batch cosine": lambda point: point.drift is not None,
    }
    gaps = []
    for what, has in looks.items():
        with_it = [point.epoch for point in points if has(point)]
        if with_it and with_it[-1] != points[-1].epoch:
            gaps.append(f"epoch {points[-1].epoch}, the last, has no {what}; epoch {with_it[-1]} has, but is not judged")
    return tuple(gaps)


def _skipped(points: tuple[Point, ...]) -> tuple[str, ...]:
    """Where a log that goes in steps of one size leaves some out, as one does that a training went on with too late."""
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


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=SAME_NORM) or (math.isnan(one) and math.isnan(other))


def _any(norms: Series) -> bool:
    return any(norm is not None for norm in norms)


def _epochs(epochs: tuple[int, ...]) -> str:
    return f"{count(len(epochs), 'epoch')}, {epochs[0]} to {epochs[-1]}" if len(epochs) > 1 else f"epoch {epochs[0]}"
