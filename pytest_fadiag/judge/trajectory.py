"""What a training log says epoch by epoch, and when each diagnostic first fired."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .credit import Credit
from .keys import Keys, labelled
from .observers import CREDIT
from .records import AuxiliaryStatistics

if TYPE_CHECKING:
    from .report import DiagnosticReport

Series = tuple[float | None, ...]

JUDGED_BY = (
    "gradient_per_unit_error",
    "sample_invariance",
    "invariance_between_samples",
    "probe_classes",
    "predicted_class_share",
    "nonfinite_states",
    "nonfinite_gradients",
    "nonfinite_logits",
)
"""The companions that decide whether a diagnostic fires; the others only explain it, and only the last epoch is explained."""


@dataclass(frozen=True)
class Point:
    """What a log says of one epoch: ``None`` was not logged, gradients are as for batches of 128."""

    epoch: int
    residual_norms: Series
    bp_grad_norms: Series
    drift: float | None = None
    accuracy: float | None = None
    companions: AuxiliaryStatistics = field(default_factory=AuxiliaryStatistics)
    credit: Credit | None = None


@dataclass(frozen=True)
class Trajectory:
    """The epochs of a log, and the first of them at which each diagnostic fired; a report fills in the latter."""

    points: tuple[Point, ...]
    first_fired: Mapping[str, int] = field(default_factory=dict)
    """By the key of the diagnostic; one that never fired, not even likely, is left out."""
    known: tuple[str, ...] = ()
    """The keys of the diagnostics that one epoch or more allows to judge; of another, no epoch tells when it first fired."""
    excused: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By key the epochs at which its number crosses its threshold and passes all the same."""

    def __post_init__(self) -> None:
        kept = tuple(replace(point, companions=_judged_by(point.companions)) for point in self.points)
        object.__setattr__(self, "points", kept)

    @property
    def epochs(self) -> tuple[int, ...]:
        """The epochs that were logged."""
        return tuple(point.epoch for point in self.points)

    @property
    def residual_norm(self) -> Series:
        """‖h_L‖ of every epoch."""
        return tuple(point.residual_norms[-1] for point in self.points)

    @property
    def gradient_layer(self) -> int | None:
        """The deepest layer whose gradient was logged in any epoch."""
        layers = [index for point in self.points for index, norm in enumerate(point.bp_grad_norms) if norm is not None]
        return max(layers, default=None)

    @property
    def gradient_norm(self) -> Series:
        """‖g‖ of every epoch at the gradient layer."""
        layer = self.gradient_layer
        return tuple(None if layer is None else point.bp_grad_norms[layer] for point in self.points)

    @property
    def accuracy(self) -> Series:
        """The accuracy of every epoch."""
        return tuple(point.accuracy for point in self.points)

    @property
    def drift(self) -> Series:
        """The cross-batch cosine of every epoch."""
        return tuple(point.drift for point in self.points)

    @property
    def aligned(self) -> Series:
        """At how many block sites the credit was aligned, of every epoch."""
        return tuple(None if point.credit is None else float(point.credit.aligned) for point in self.points)

    def judged(self, report: DiagnosticReport) -> Trajectory:
        """This trajectory with its first epochs judged by a report's thresholds and control."""
        first: dict[str, int] = {}
        judgeable: set[str] = set()
        excused: dict[str, tuple[int, ...]] = {}
        for point in self.points:
            judged = at_epoch(report, point)
            for key in judged.fired:
                first.setdefault(key, point.epoch)
            judgeable |= {finding.key for finding in judged.findings if finding.measured}
            excused |= {f.key: (*excused.get(f.key, ()), point.epoch) for f in judged.findings if f.excused}
        ordered = dict(sorted(first.items(), key=lambda item: (item[1], item[0])))
        return replace(self, first_fired=ordered, known=tuple(Keys.of(judgeable)), excused=excused)

    def line(self, fired: Keys) -> str:
        """«first fired: (d) epoch 1, (a) epoch 6 of 30», with what fires only before the end, or only there, said to be so."""
        parts = [
            f"{labelled(key)} epoch {epoch}{'' if key in fired else ' (not at the end)'}"
            for key, epoch in self.first_fired.items()
        ]
        if parts:
            parts[-1] += f" of {self.epochs[-1]}"
        parts += [
            f"{labelled(key)} {'only in the final numbers' if key in self.known else 'not logged by epoch'}"
            for key in fired
            if key not in self.first_fired
        ]
        return f"first fired: {', '.join(parts)}" if parts and len(self.points) > 1 else ""


def at_epoch(report: DiagnosticReport, point: Point) -> DiagnosticReport:
    """The report with the numbers of one epoch in the place of its own."""
    return replace(
        report,
        residual_norms=point.residual_norms,
        bp_grad_norms=point.bp_grad_norms,
        cross_batch_stability=point.drift,
        headline_acc=point.accuracy,
        companions=point.companions,
        accuracy=None,
        observations=credit_seen(point),  # what else was observed is of the end of the training
        config={},
        trajectory=None,
    )


def credit_seen(point: Point) -> dict[str, dict[str, Any]]:
    """The credit of an epoch as an observer saw it; nothing where it was not logged."""
    return {} if point.credit is None else {CREDIT.name: asdict(point.credit)}


def _judged_by(companions: AuxiliaryStatistics) -> AuxiliaryStatistics:
    return AuxiliaryStatistics(**{name: getattr(companions, name) for name in JUDGED_BY})


def says_something(name: str, column: Sequence[Any]) -> bool:
    """Not so what was not measured, and counts of what did not happen; an invariance of 0 is a measurement, and excuses."""
    if name.startswith("nonfinite"):
        return any(any(value) if isinstance(value, tuple) else value for value in column)
    return any(value is not None for value in column)
