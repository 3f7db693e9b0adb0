"""A report, a trajectory and a margin over seeds as JSON has them: their fields, and what follows from these.

What follows is written for readers of the file; whoever reads the values back takes the fields and judges anew.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Annotated, Any

from msgspec import Meta

from .codec import read
from .config import Plain
from .control import Control
from .credit import Credit, SiteState
from .diagnostics import DIAGNOSTICS, Status
from .errors import AuditError
from .inputs import StatedInputs
from .margins import Interval, SeedMargin, SeedVerdict, Variance
from .protocol import ProtocolName
from .ranges import hold, hold_bounds
from .records import Accuracy, AuxiliaryStatistics, Reference, with_present_names
from .stream import ResidualStream
from .thresholds import DiagnosticThresholds
from .trajectory import JUDGED_BY, Point, Trajectory, says_something

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Several = Annotated[int, Meta(ge=2)]
_NAME = "[a-z][a-z0-9]*(-[a-z0-9]+)+"
Key = Annotated[
    str, Meta(pattern=f"^([a-z]|{_NAME})$", description="The letter of a diagnostic, or the name of another package's.")
]
KeyList = Annotated[
    str,
    Meta(
        pattern=f"^([a-z]*|([a-z]+,)?{_NAME}(,{_NAME})*)$",
        description="Letters of diagnostics, then the names of other packages' ones: abd, abd,my-name.",
    ),
]
# The bounds of these are for the schema alone: the report that is made of them says better what is wrong.
Norm = Annotated[float, Meta(extra_json_schema={"$ref": "#/$defs/Norm"})]
Cosine = Annotated[float, Meta(extra_json_schema={"$ref": "#/$defs/Cosine"})]
Fraction = Annotated[float, Meta(description="Not a percentage.", extra_json_schema={"minimum": 0, "maximum": 1})]
Points = Annotated[float, Meta(extra_json_schema={"minimum": -100, "maximum": 100})]
Norms = tuple[Norm | None, ...]
Names = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class FindingValues:
    """What one diagnostic says."""

    key: Key
    name: str
    status: Status
    value: float | None
    threshold: float
    headline: str
    explanation: str
    causes: Names


@dataclass(frozen=True, kw_only=True)
class CreditValues:
    """A method's credit against the BP gradient, an entry a site of the stream; all that was measured is in observations."""

    sites: Annotated[Names, Meta(description="h_0, where the method has credit there, then the block outputs.")]
    gamma: Annotated[tuple[Cosine, ...], Meta(description="Γ: the median cosine of a sample's credit and gradient.")]
    null_low: Annotated[tuple[Cosine, ...], Meta(description="The 2.5 % quantile of Γ with permuted features.")]
    null_high: Annotated[tuple[Cosine, ...], Meta(description="The 97.5 % quantile of Γ with permuted features.")]
    z: Annotated[tuple[float, ...], Meta(description="How many standard deviations Γ lies from the null's mean.")]
    nudge: Annotated[
        tuple[float, ...], Meta(description="The loss that a small step saves, as a share of BP's; NaN is not resolved.")
    ]
    magnitude: Annotated[tuple[float, ...], Meta(description="The median of ‖a‖/‖g‖, g of the summed loss.")]
    state: tuple[SiteState, ...]

    @classmethod
    def of(cls, credit: Credit) -> CreditValues:
        """What a report shows of it."""
        return cls(**{own.name: getattr(credit, own.name) for own in fields(cls)})


@dataclass(frozen=True, kw_only=True)
class TrajectoryValues:
    """What a training log says epoch by epoch: lists of one length; null was not logged."""

    epochs: Annotated[tuple[Count, ...], Meta(min_length=1)]
    accuracy: tuple[Fraction | None, ...]
    residual_norm: Annotated[Norms, Meta(description="‖h_L‖ of every epoch.")] = ()
    gradient_layer: Count | None = None
    gradient_norm: Norms = ()
    drift: tuple[Cosine | None, ...]
    first_fired: Annotated[
        Mapping[Key, int], Meta(description="By the key of the diagnostic; one that never fired is left out.")
    ] = field(default_factory=dict)
    known: Annotated[
        tuple[Key, ...],
        Meta(description="The diagnostics that some epoch allows to judge; of the others it does not tell when they fired."),
    ] = ()
    residual_norms: tuple[Annotated[Norms, Meta(min_length=1)], ...]
    bp_grad_norms: tuple[Norms, ...]
    companions: Annotated[
        Mapping[str, tuple[Any, ...]], Meta(description="The companions that were logged, an entry an epoch.")
    ] = field(default_factory=dict)
    credit: Annotated[
        tuple[Mapping[str, Any] | None, ...], Meta(description="What was seen of the credit in every epoch, if in any.")
    ] = ()

    def __post_init__(self) -> None:
        lists = {name: getattr(self, name) for name in ("accuracy", "drift", "residual_norms", "bp_grad_norms")}
        lists |= {"credit": self.credit} if self.credit else {}
        for name, column in {**lists, **{f"companions.{name}": column for name, column in self.companions.items()}}.items():
            if len(column) != len(self.epochs):
                raise AuditError(f"{name} must have an entry for each of {len(self.epochs)} epochs, not {len(column)}")
        if list(self.epochs) != sorted({*self.epochs}):
            raise AuditError("epochs must rise from one to the next")
        for name in ("residual_norms", "bp_grad_norms"):
            if len({len(norms) for norms in lists[name]}) > 1:
                raise AuditError(f"{name} must have the same layers in every epoch")

    @classmethod
    def of(cls, trajectory: Trajectory) -> TrajectoryValues:
        """The columns of a trajectory."""
        points = trajectory.points
        companions = {name: tuple(getattr(point.companions, name) for point in points) for name in JUDGED_BY}
        kept = {name: column for name, column in companions.items() if says_something(name, column)}
        if "sample_invariance" in kept:
            kept["probe_classes"] = companions[
                "probe_classes"
            ]  # without it the invariance would be read as one between samples
        return cls(
            epochs=trajectory.epochs,
            accuracy=trajectory.accuracy,
            residual_norm=trajectory.residual_norm,
            gradient_layer=trajectory.gradient_layer,
            gradient_norm=trajectory.gradient_norm,
            drift=trajectory.drift,
            first_fired=trajectory.first_fired,
            known=trajectory.known,
            residual_norms=tuple(point.residual_norms for point in points),
            bp_grad_norms=tuple(point.bp_grad_norms for point in points),
            companions=kept,
            credit=tuple(None if point.credit is None else asdict(point.credit) for point in points)
            if any(point.credit for point in points)
            else (),
        )

    def trajectory(self, what: str) -> Trajectory:
        """The trajectory of these columns."""
        points = []
        for index, epoch in enumerate(self.epochs):
            companions = with_present_names({name: column[index] for name, column in self.companions.items()})
            seen = self.credit[index] if self.credit else None
            points.append(
                Point(
                    epoch=epoch,
                    residual_norms=self.residual_norms[index],
                    bp_grad_norms=self.bp_grad_norms[index],
                    drift=self.drift[index],
                    accuracy=self.accuracy[index],
                    companions=read(AuxiliaryStatistics, companions, f"{what}.companions of epoch {epoch}"),
                    credit=None if seen is None else read(Credit, seen, f"{what}.credit of epoch {epoch}"),
                )
            )
        return Trajectory(tuple(points), self.first_fired, self.known)


@dataclass(frozen=True, kw_only=True)
class ReportValues:
    """What the diagnostics say about one network."""

    method_name: str
    residual_norms: Annotated[Norms, Meta(description="Median ‖h_l‖ of every layer, from the embedding to h_L.")]
    bp_grad_norms: Annotated[Norms, Meta(description="Median ‖g_l‖ of every layer, as with a mean loss over batches of 128.")]
    stability_layer: Annotated[Count | None, Meta(description="Where the cross-batch cosine was taken.")]
    cross_batch_stability: Annotated[Cosine | None, Meta(description="Mean pairwise cosine of the batch-mean gradients.")]
    headline_acc: Fraction | None
    frozen_baseline_acc: Fraction | None = None
    notes: str = ""
    checkpoint: Annotated[str | None, Meta(description="The name of the file that was audited.")] = None
    seed: int | None = None
    claimed_acc: Annotated[Fraction | None, Meta(description="What the checkpoint says of itself.")] = None
    partial: Annotated[bool, Meta(description="Made from a training log, or with holes.")] = False
    gradient_batch: Annotated[Positive | None, Meta(description="The batch size at which a log's gradients were taken.")] = None
    assumed_batch: Annotated[
        Positive | None,
        Meta(description="The training's batch size, at which a log's gradients are assumed to have been taken."),
    ] = None
    depth_known: Annotated[
        bool,
        Meta(description="If not, the last norms are those of h_L and g_L, and the others are of numbered layers."),
    ] = True
    caveats: Annotated[Names, Meta(description="What reading the log brought to light.")] = ()
    config: Annotated[
        Mapping[str, Plain], Meta(description="What the checkpoint or log says of its training, as far as it is plain.")
    ] = field(default_factory=dict)
    diagnostics: Annotated[Names, Meta(description="The diagnostics that were asked for, by name.")] = tuple(
        diagnostic.name for diagnostic in DIAGNOSTICS.by_default
    )
    protocol: Annotated[
        ProtocolName | None, Meta(description="The published form by which it is judged, where one was named.")
    ] = None
    thresholds: DiagnosticThresholds = field(default_factory=DiagnosticThresholds)
    companions: AuxiliaryStatistics = field(default_factory=AuxiliaryStatistics)
    accuracy: Accuracy | None = None
    control: Control | None = None
    environment: Annotated[
        Mapping[str, str | int | float | bool | None], Meta(description="What was measured, on what and with what.")
    ] = field(default_factory=dict)
    inputs: Annotated[StatedInputs | None, Meta(description="The data, and how it was normalised.")] = None
    stream: Annotated[ResidualStream | None, Meta(description="The blocks between h_0 and h_L.")] = None
    observations: Annotated[
        Mapping[str, Mapping[str, Any]],
        Meta(description="What observers saw whose numbers are no fields above, by the observers' names."),
    ] = field(default_factory=dict)
    reference: Reference | None = None
    reference_error: Annotated[float | None, Meta(description="How far autograd lies from finite differences, relative.")] = (
        None
    )
    probe_accuracies: Annotated[tuple[Fraction, ...] | None, Meta(description="What a linear probe reads at h_0 to h_L.")] = (
        None
    )
    null_probe_accuracies: Annotated[
        tuple[Fraction, ...] | None, Meta(description="The same with the blocks drawn anew, the mean of the draws.")
    ] = None
    depth_null_pp: Annotated[Points | None, Meta(description="What a probe gains from h_0 to h_L by blocks drawn anew.")] = None
    depth_utility_pp: Annotated[Points | None, Meta(description="What it gains beyond that, in percentage points.")] = None
    depth_interval_pp: Annotated[
        tuple[Points, Points] | None, Meta(description="The 95 % interval of the depth utility, paired over the images.")
    ] = None
    block_change: Annotated[tuple[Norm, ...] | None, Meta(description="Median ‖f_l‖/‖h_l‖ of every block.")] = None
    idle_blocks: Annotated[
        tuple[Count, ...] | None, Meta(description="The blocks, from 0 on, that add nothing to what a probe reads.")
    ] = None
    credit: Annotated[
        CreditValues | None, Meta(description="The method's credit against the BP gradient, an entry a site of the stream.")
    ] = None
    trajectory: TrajectoryValues | None = None
    margin_pp: Annotated[Points | None, Meta(description="Headline accuracy minus the control's, in percentage points.")] = None
    margin_interval: Interval | None = None
    residual_stream_exploded: bool | None = None
    bp_grad_at_floor: bool | None = None
    reference_drift_dominated: bool | None = None
    frozen_baseline_undercut: bool | None = None
    findings: tuple[FindingValues, ...] = ()
    remarks: Names = ()
    verdict: str = ""
    published: Annotated[str, Meta(description="What the published form says: PASS, FAIL(D1+D2), INCOMPLETE(D3).")] = ""


@dataclass(frozen=True, kw_only=True)
class SeedMarginValues:
    """The mean margin of a method over its seeds, in percentage points."""

    seeds: Several
    images: Several | None
    margin: float
    interval: Interval
    minimum: Points
    variance: Variance
    degrees_of_freedom: Annotated[
        float | None,
        Meta(description="Those of the interval; null where nothing varies, and of an interval that version 2 resampled."),
    ] = None
    caveat: str = ""
    assumed_images: Annotated[
        Several | None, Meta(description="The number of test images that was assumed where nobody states it.")
    ] = None
    verdict: SeedVerdict | None = None
    needed: str = ""
    seed_sd: Annotated[float | None, Meta(description="The sample standard deviation of the margin from seed to seed.")] = None

    def __post_init__(self) -> None:
        hold(self.variance, "over_seeds", "over_images", high=sys.float_info.max)
        hold_bounds("interval", (self.interval.low, self.interval.high))

    @classmethod
    def of(cls, margin: SeedMargin) -> SeedMarginValues:
        """A margin and what follows from it."""
        return cls(**fields_of(margin), verdict=margin.verdict, needed=margin.needed(), seed_sd=margin.seed_sd)

    def margin_over_seeds(self) -> SeedMargin:
        """The margin of these values."""
        return SeedMargin(**{own.name: getattr(self, own.name) for own in fields(SeedMargin)})


def fields_of(value: Any) -> dict[str, Any]:
    """The fields of a dataclass, as they are."""
    return {own.name: getattr(value, own.name) for own in fields(value)}
