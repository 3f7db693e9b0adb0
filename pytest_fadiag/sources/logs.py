"""Training logs: what is left to audit when no checkpoint is; free of torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..protocol.control import Control
from ..protocol.measurement import BATCH, Accuracy, Companions
from ..protocol.plain import known_fields
from ..protocol.report import DiagnosticReport
from ..protocol.thresholds import DiagnosticThresholds
from ..protocol.trajectory import Point, Series, Trajectory
from ..protocol.wording import count, fraction, listed
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
GRADIENT_BATCHES = ("grad_batch_size", "eval_batch_size", "diagnostic_batch_size", "batch_size", "batch")
NORM = re.compile(r"(?P<symbol>[hg])_(?P<layer>\d+|L)_norm")
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
    """The batch size at which the gradients were taken."""
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
            depth_known=self.depth is not None,
            trajectory=Trajectory(self.points),
            caveats=self.caveats,
            expected=expected,
            notes=f"{self.path.name}, a training log: {_epochs(self.epochs)}" if notes is None else notes,
        )


def read_log(path: str | Path, *, batch: int | None = None) -> TrainingLog:
    """The one log in a file; ``batch`` is the batch size at which its gradients were taken, where the log does not say."""
    logs = read_logs(path, batch=batch)
    if len(logs) > 1:
        methods = listed(log.method for log in logs)
        raise trouble(Path(path), f"holds the logs of several methods, {methods}; read_logs gives them all")
    return logs[0]


def read_logs(path: str | Path, *, batch: int | None = None) -> list[TrainingLog]:
    """Every log in a file: one, or one a method."""
    raw = read_raw(Path(path))
    return [_Reader(log, batch, several=len(raw) > 1).read() for log in raw]


class _Reader:
    """Checks the entries of one log and brings them to points of a trajectory."""

    def __init__(self, log: RawLog, batch: int | None, *, several: bool) -> None:
        self.log, self.path, self.config = log, log.path, log.config
        self.numbers = Numbers(log.path)
        self.named = {**log.config, "method": log.method} if log.method and several else dict(log.config)
        if log.method and not self.named.get("method"):
            self.named["method"] = log.method
        self.batch = BATCH if log.recorded else batch or self.numbers.whole(GRADIENT_BATCHES, log.config, "config", least=1)
        self.lengths: dict[str, tuple[int, str]] = {}

    def read(self) -> TrainingLog:
        """The log, every number checked."""
        entries = self._ordered()
        loose = [self._norms(entry, place) for place, entry in entries]
        depth = self._depth()
        size = depth + 1 if depth is not None else 2 + max((int(n) for s in loose for _, n in s if n != "L"), default=0)
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
            stability_layer=layer if layer is not None or depth is None else depth // 2,
            caveats=(*self.log.caveats, *self._differs(points[-1]), *_gaps(points)),
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

    def _norms(self, entry: Mapping[str, Any], place: str) -> dict[tuple[str, str], float]:
        """The norms of an entry by symbol and layer, from lists and from single numbers; ‖h_0‖ may stand outside of it."""
        found: dict[tuple[str, str], float] = {}
        outer = {key: source[key] for source in (self.log.top, self.config) for key in ("h_0_norm",) if key in source}
        for key, value in {**outer, **entry}.items():
            named = NORM.fullmatch(key)
            norm = self.numbers.norm(value, key, place) if named else None
            if named and norm is not None:
                found[named["symbol"], named["layer"]] = norm
        for symbol, names in (("h", STATE_LISTS), ("g", GRADIENT_LISTS)):
            name = next((name for name in names if entry.get(name) is not None), None)
            values = entry[name] if name else []
            if not isinstance(values, list):
                raise trouble(self.path, f"{name} is {values!r:.40}, not a list with one number a layer", place)
            if name:
                self._same_length(name, len(values), place)
            norms = [self.numbers.norm(value, f"{name}[{layer}]", place) for layer, value in enumerate(values)]
            found |= {(symbol, str(layer)): norm for layer, norm in enumerate(norms) if norm is not None}
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

    def _point(self, entry: Mapping[str, Any], place: str, norms: Mapping[tuple[str, str], float], size: int) -> Point:
        states: list[float | None] = [None] * size
        gradients: list[float | None] = [None] * size
        scale = (self.batch or BATCH) / BATCH
        for (symbol, layer), norm in norms.items():
            index = size - 1 if layer == "L" else int(layer)
            if index >= size:
                raise trouble(
                    self.path, f"{symbol}_{layer}_norm, but there are {size - 1} blocks by the config or lists", place
                )
            if symbol == "h":
                states[index] = norm
            else:
                gradients[index] = norm * scale  # to the size at N = 128, once and here
        drift = self.numbers.first(DRIFTS, entry, place)
        if drift is not None and abs(drift) > 1 + 1e-9:
            raise trouble(self.path, f"drift is {drift:g}, but a cosine lies in [-1, 1]", place)
        return Point(
            entry["epoch"],
            tuple(states),
            tuple(gradients),
            drift,
            self.numbers.accuracy(ACCURACIES, entry, place),
            self._companions(entry, place, scale),
        )

    def _companions(self, entry: Mapping[str, Any], place: str, scale: float) -> Companions:
        given = entry.get("companions") or {}
        if not isinstance(given, dict):
            raise trouble(self.path, f"companions is {given!r:.40}, not an object", place)
        values = {key: self._companion(key, value, place) for key, value in known_fields(Companions, given).items()}
        companions = Companions.from_dict(values)
        per_error = companions.gradient_per_unit_error
        return companions if per_error is None else replace(companions, gradient_per_unit_error=per_error * scale)

    def _companion(self, key: str, value: Any, place: str) -> Any:
        """A number, or where it is one of a list of counts or names, that list."""
        if not isinstance(getattr(Companions(), key), tuple):
            checked = self.numbers.number(value, f"companions.{key}", place)
            return value if isinstance(value, int) else checked
        kind = str if key == "nonfinite_weights" else int
        if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
            raise trouble(self.path, f"companions.{key} is {value!r:.40}, not a list", place)
        return value

    def _final(self, last: Point) -> Accuracy | None:
        """The final accuracy of the log, else that of its last epoch."""
        value = self.numbers.accuracy(FINAL_ACCURACIES, self.log.top, "beside the log")
        value = last.accuracy if value is None else value
        if value is None:
            return None
        sources = (self.log.entries[-1][1], self.log.top, self.config)
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


def _any(norms: Series) -> bool:
    return any(norm is not None for norm in norms)


def _epochs(epochs: tuple[int, ...]) -> str:
    return f"{count(len(epochs), 'epoch')}, {epochs[0]} to {epochs[-1]}" if len(epochs) > 1 else f"epoch {epochs[0]}"
