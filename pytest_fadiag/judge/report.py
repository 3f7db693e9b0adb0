"""The report of one audited network: numbers, findings, verdict, and the text that a failing test shows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from .codec import read, to_plain
from .config import Plain, plain_config
from .control import Control
from .credit import Credit
from .diagnostics import (
    CONTROLLED,
    DIAGNOSTICS,
    Cause,
    CauseKind,
    CreditAlignment,
    Diagnostic,
    Diagnostics,
    Finding,
    GradientFloor,
    ResidualGrowth,
    Status,
)
from .diagnostics.frozen_margin import interval, margin
from .errors import AuditError, AuditFailure
from .inputs import StatedInputs
from .keys import Keys, labelled
from .late import named
from .margins import Interval
from .names import LONGEST_NAME, as_name, as_text, printable
from .observers import CREDIT, ObserverSpec
from .probed import Probed
from .protocol import PROTOCOL_NAMES, published
from .records import (
    Accuracy,
    AuxiliaryStatistics,
    Measurement,
    Reference,
    check_accuracy,
    check_norms,
    with_present_names,
)
from .reference import UNPROVEN, reference_line
from .remarks import remarks_on
from .stream import ResidualStream
from .thresholds import DiagnosticThresholds, ThresholdChanges, check_names
from .trajectory import Trajectory
from .verdict import DECIDED, left_open, not_walked_back, state, walk_back
from .wire import CreditValues, ReportValues, TrajectoryValues
from .wording import folded, listed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Result = TypeVar("Result")
_FLAGS = {
    "residual_stream_exploded": "a",
    "bp_grad_at_floor": "b",
    "reference_drift_dominated": "c",
    "frozen_baseline_undercut": "d",
}
"""The properties that say of one diagnostic each whether it fired."""


@dataclass(frozen=True, kw_only=True)
class DiagnosticReport(Probed):
    """What the diagnostics say about one network; can be built by hand from plain lists, ``None`` for what is unknown."""

    method_name: str
    residual_norms: Sequence[float | None]
    bp_grad_norms: Sequence[float | None]
    stability_layer: int | None
    cross_batch_stability: float | None
    headline_acc: float | None
    frozen_baseline_acc: float | None = None
    notes: str = ""
    checkpoint: str | None = None
    """The name of the file that was audited, a checkpoint or a log."""
    thresholds: DiagnosticThresholds = field(default_factory=DiagnosticThresholds)
    seed: int | None = None
    companions: AuxiliaryStatistics = field(default_factory=AuxiliaryStatistics)
    accuracy: Accuracy | None = None
    control: Control | None = None
    claimed_acc: float | None = None
    environment: Mapping[str, str | int | bool] = field(default_factory=dict)
    inputs: StatedInputs | None = None
    """Which data it was measured on, and how the inputs were normalised."""
    stream: ResidualStream | None = None
    """Which modules are its blocks; ``None`` where nobody looked, as in a log by hand."""
    reference: Reference | None = None
    """How the BP gradient was proven to be the network's own derivative; ``None`` where nobody looked, as in a log."""
    reference_error: float | None = None
    """How far autograd lies from finite differences, relative."""
    partial: bool = False
    """Made from a training log, or with holes: what is not known exactly is likely or not measured."""
    gradient_batch: int | None = None
    """The batch size at which a log's gradients were taken; here they are given as at 128."""
    assumed_batch: int | None = None
    """The training's batch size, at which they are assumed to have been taken where nothing else is known; else 128 is."""
    depth_known: bool = True
    """Where it is not, the norms are those of numbered layers, then that of h_L."""
    trajectory: Trajectory | None = None
    caveats: Sequence[str] = ()
    """What reading the log brought to light, such as a last line that was cut."""
    config: Mapping[str, Plain] = field(default_factory=dict)
    """What the checkpoint or the log says of its training: architecture, optimiser, epochs, whatever its author saved."""
    diagnostics: tuple[str, ...] = tuple(diagnostic.name for diagnostic in DIAGNOSTICS.by_default)
    """Those that were asked for, by name; what another one needs need not have been measured."""
    protocol: str | None = None
    """The published form by which it is judged, three or four, where somebody named one."""
    observations: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What observers saw whose numbers are no fields of a report, by the observers' names, as plain JSON values."""
    expected: Keys | None = None
    """The diagnostics that are expected to fire, where somebody recorded them; not part of the report's data."""
    available: Diagnostics = field(default=DIAGNOSTICS, repr=False, compare=False)
    """All that there are, those of other packages among them; not part of the report's data."""

    def __post_init__(self) -> None:
        states = check_norms(self.residual_norms, "residual_norms", empty=ResidualGrowth.name not in self.diagnostics)
        if len(states) == 1:
            only = "" if states[0] is None else f" ({states[0]:g})"
            raise AuditError(f"residual_norms has one entry{only}: a network without blocks has no stream to audit")
        no_gradients = bool(self.unproven) or GradientFloor.name not in self.diagnostics
        gradients = check_norms(self.bp_grad_norms, "bp_grad_norms", empty=no_gradients)
        object.__setattr__(self, "residual_norms", states)
        object.__setattr__(self, "bp_grad_norms", gradients)
        object.__setattr__(self, "diagnostics", tuple(self.diagnostics))
        object.__setattr__(self, "caveats", tuple(as_text(caveat, "a caveat") for caveat in self.caveats))
        object.__setattr__(self, "method_name", as_name(self.method_name, "the method's name"))
        object.__setattr__(self, "notes", as_text(self.notes, "the note of a report"))
        object.__setattr__(self, "config", plain_config(self.config))
        if self.checkpoint is not None:
            object.__setattr__(self, "checkpoint", as_name(self.checkpoint, "the name of a file", LONGEST_NAME))
        if None in (*self.residual_norms, *self.bp_grad_norms, self.headline_acc) or not self.depth_known:
            object.__setattr__(self, "partial", True)
        drift = self.cross_batch_stability
        if drift is not None and not (isinstance(drift, (int, float)) and (math.isnan(drift) or abs(drift) <= 1 + 1e-9)):
            raise AuditError(f"cross_batch_stability must be a cosine in [-1, 1], NaN if undefined, or None, not {drift!r}")
        for name in ("headline_acc", "frozen_baseline_acc", "claimed_acc"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, check_accuracy(getattr(self, name), name))
        if self.protocol not in (None, *PROTOCOL_NAMES):
            raise AuditError(f"protocol must be one of {', '.join(PROTOCOL_NAMES)}, not {self.protocol!r:.40}")
        unknown = [name for name in self.diagnostics if self.available.get(name) is None]
        if unknown:
            raise AuditError(
                f"no diagnostic {unknown[0]!r} here; install the package that adds it. There are: {self.available.listed}"
            )
        for diagnostic in self._asked:
            for observer in diagnostic.observers:
                self.observed(observer)  # numbers that are none are found now, not when they are judged
        if self.expected is not None:
            object.__setattr__(self, "expected", Keys.parse(self.expected))
        if self.trajectory is not None:
            object.__setattr__(self, "trajectory", self.trajectory.judged(self))

    @classmethod
    def from_measurement(
        cls,
        measurement: Measurement,
        *,
        method_name: str,
        headline_acc: float | None = None,
        control: Control | None = None,
        thresholds: DiagnosticThresholds | ThresholdChanges | None = None,
        notes: str = "",
        checkpoint: str | None = None,
        seed: int | None = None,
        claimed_acc: float | None = None,
        inputs: StatedInputs | None = None,
        caveats: Sequence[str] = (),
        config: Mapping[str, Plain] | None = None,
        diagnostics: tuple[str, ...] | None = None,
        available: Diagnostics = DIAGNOSTICS,
    ) -> DiagnosticReport:
        """The report of a measurement; a ``headline_acc`` from elsewhere replaces the measured accuracy and its images."""
        defaults = available.thresholds()
        if isinstance(thresholds, Mapping):
            thresholds = defaults.replace(**thresholds)
        accuracy = measurement.accuracy
        if headline_acc is not None and (
            accuracy is None or not accuracy.images or abs(headline_acc - accuracy.value) * accuracy.images >= 0.5
        ):
            accuracy = Accuracy(headline_acc)  # of another set of images, whose number is not known
        return cls(
            method_name=method_name,
            residual_norms=measurement.residual_norms,
            bp_grad_norms=measurement.bp_grad_norms,
            stability_layer=measurement.stability_layer,
            cross_batch_stability=measurement.cross_batch_stability,
            headline_acc=None if accuracy is None else accuracy.value,
            frozen_baseline_acc=None if control is None else control.accuracy.value,
            thresholds=thresholds or defaults,
            companions=measurement.companions,
            accuracy=accuracy,
            control=control,
            environment=measurement.environment,
            observations=measurement.extra,
            reference=measurement.reference,
            reference_error=measurement.reference_error,
            stream=measurement.stream,
            notes=notes,
            checkpoint=checkpoint,
            seed=seed,
            config=config or {},
            claimed_acc=claimed_acc,
            inputs=inputs,
            caveats=caveats,
            diagnostics=tuple(d.name for d in DIAGNOSTICS.by_default) if diagnostics is None else diagnostics,
            available=available,
        )

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """One finding per diagnostic that was asked for, in the order of the registry."""
        return tuple(self._judged(diagnostic) for diagnostic in self._asked)

    def _judged(self, diagnostic: Diagnostic) -> Finding:
        if self.lacks(diagnostic):
            return diagnostic.finding(self, Status.NOT_MEASURED, None, UNPROVEN, causes=(Cause(CauseKind.UNPROVEN),))
        return diagnostic.judge(self)

    def lacks(self, diagnostic: Diagnostic) -> bool:
        """Whether a diagnostic has nothing to judge by, for want of a proven reference."""
        return bool(self.unproven) and diagnostic.rests_on_reference

    @property
    def unproven(self) -> str:
        """Why the BP gradient is not proven to be the network's derivative; empty where it is, or nobody looked."""
        return "" if self.reference is None else self.reference.problem

    @property
    def _asked(self) -> tuple[Diagnostic, ...]:
        return tuple(diagnostic for diagnostic in self.available if diagnostic.name in self.diagnostics)

    def observed(self, observer: ObserverSpec[Result]) -> Result | None:
        """What an observer saw, where its numbers are no fields of a report; ``None`` where it was not there."""
        if observer.result is None or observer.name not in self.observations:
            return None
        return read(observer.result, self.observations[observer.name], f"observations[{observer.name!r}]")

    @property
    def credit(self) -> Credit | None:
        """Γ at every site with its null, nudge, size and state; ``None`` where the method's credit was not looked at."""
        return self.observed(CREDIT)

    @property
    def shown(self) -> tuple[Diagnostic, ...]:
        """What was measured beside what is judged: its numbers are shown, and nothing follows from them."""
        unasked = self.credit is not None and not self.asks_for(CreditAlignment.key)
        return self.available.select(CreditAlignment.key) if unasked else ()

    @property
    def published(self) -> str:
        """What the published form says: «PASS», «FAIL(D1+D2)»; nothing where none was named, or it has no such word."""
        decided = [finding.key for finding in self.findings if state(self, finding) == DECIDED]
        return published(self.protocol, self.fired, decided)

    @property
    def lacks_usable_control(self) -> bool:
        """Whether a control was supplied that is none, so that (d) says nothing: then (e) stands in for it."""
        supplied = self.frozen_baseline_acc is not None and self.headline_acc is not None
        return supplied and self.asks_for(CONTROLLED) and not self.finding(CONTROLLED).measured

    def asks_for(self, key: str) -> bool:
        """Whether the diagnostic of a key was asked for."""
        return any(diagnostic.key == key for diagnostic in self._asked)

    def finding(self, key: str) -> Finding:
        """The finding of one diagnostic, by its key or its name; of one that was not asked for, that it was not measured."""
        for finding in self.findings:
            if key in (finding.key, finding.name):
                return finding
        diagnostic = self.available.get(key)
        if diagnostic is None:
            raise KeyError(key)
        return diagnostic.finding(self, Status.NOT_MEASURED, None, "was not asked for")

    @property
    def residual_stream_exploded(self) -> bool:
        """Whether (a) fired; an error where it was not asked for."""
        return self._fired("a")

    @property
    def bp_grad_at_floor(self) -> bool:
        """Whether (b) fired; an error where it was not asked for."""
        return self._fired("b")

    @property
    def reference_drift_dominated(self) -> bool:
        """Whether (c) fired; an error where it was not asked for."""
        return self._fired("c")

    @property
    def frozen_baseline_undercut(self) -> bool | None:
        """Whether (d) fired; ``None`` without a control or an accuracy."""
        return None if margin(self) is None else self._fired("d")

    def _fired(self, key: str) -> bool:
        for diagnostic, finding in zip(self._asked, self.findings, strict=True):
            if finding.key == key and self.lacks(diagnostic):
                raise AuditError(f"nobody knows whether ({key}) fires, since {UNPROVEN}: {self.unproven}")
            if finding.key == key:
                return finding.fired
        names = ", ".join(self.diagnostics)
        raise AuditError(f"{labelled(key)} was not asked for, so that nobody knows whether it fires; this report is of {names}")

    @property
    def verdict(self) -> str:
        """«needs walk-back: …» with what fired, else «incomplete: …» with what was not decided, else «trustworthy»."""
        likely = Keys.of(finding.key for finding in self.findings if finding.measured and not finding.exact)
        if self.fired:
            return walk_back(self.available, self.fired, likely)
        states = {finding.key: state(self, finding) for finding in self.findings}
        return not_walked_back(self.available, left_open(self.available, states, "not asked for"))

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader must know beside the diagnostics, such as an accuracy at chance."""
        return tuple(remarks_on(self))

    @property
    def fired(self) -> Keys:
        """The keys of the diagnostics that fired: «abd», «abd,my-name»."""
        return Keys.of(finding.key for finding in self.findings if finding.fired)

    def check(self, expected: str | Sequence[str] | None = None) -> None:
        """Raise an ``AssertionError`` with this report as its text unless exactly the expected diagnostics (none) fired."""
        __tracebackhide__ = True
        unjudged = [diagnostic.name for diagnostic in self._asked if self.lacks(diagnostic)]
        if unjudged:
            raise AuditError(f"{listed(unjudged)} cannot be judged, since {UNPROVEN}: {self.unproven}")
        recorded = self.expected if expected is None else Keys.parse(expected)
        if recorded is not None:  # what was not asked for is not compared
            recorded = Keys.of(finding.key for finding in self.findings if finding.key in recorded)
        if self.fired == (recorded or ""):
            return
        changed = [
            _changed(finding, recorded) for finding in self.findings if finding.fired != (finding.key in (recorded or Keys()))
        ]
        text = str(self) if not recorded else "\n".join([str(self), *(f"CHANGED: {change}" for change in changed)])
        raise AuditFailure(text, "; ".join(changed))

    def __str__(self) -> str:
        seed = "" if self.seed is None else f", seed {self.seed}"
        lines = [f"FA diagnostic report: {self.method_name}{seed}"]
        lines += folded("  ", self.notes.splitlines())
        lines += [] if self.stream is None else folded("  ", [f"stream: {self.stream}"])
        lines += folded("  note: ", self.remarks)
        lines += [] if self.inputs is None else folded("  ", [f"inputs: {self.inputs}"])
        lines += folded("  reference: ", filter(None, [reference_line(self)]))
        if self.trajectory is not None:
            lines += folded("  ", filter(None, [self.trajectory.line(self.fired)]))
        for diagnostic, finding in zip(self._asked, self.findings, strict=True):
            lines.append(f"{diagnostic.label}: {finding.outcome}")
            lines += folded("    ", [finding.headline] if self.lacks(diagnostic) else diagnostic.lines(self))
            if finding.fired:  # one line, however long: whoever greps for it must see number, threshold and meaning
                lines.append(f"    FLAG: {diagnostic.walk_back}: {finding.headline}. {finding.explanation}")
        for diagnostic in self.shown:
            lines += [f"{diagnostic.label}: shown, not judged", *folded("    ", diagnostic.lines(self))]
        beside = f" [{self.published}]" if self.published else ""
        return printable("\n".join([*lines, f"VERDICT: {self.verdict}{beside}"]))

    @property
    def margin_pp(self) -> float | None:
        """Headline accuracy minus the control's, in percentage points."""
        return margin(self)

    @property
    def margin_interval(self) -> Interval | None:
        """The 95 % interval of the margin, where the number of test images is known."""
        return interval(self)

    def _repr_html_(self) -> str:
        """What a notebook shows of it."""
        return str(named("pytest_fadiag.show.notebook:report_html")(self))

    def plot(self) -> Figure:
        """The figure of an audit of this network alone."""
        figure: Figure = named("pytest_fadiag.show.notebook:report_figure")(self)
        return figure

    def to_dict(self) -> dict[str, Any]:
        """The fields, then what follows from them, as plain JSON values."""
        known = [diagnostic.key for diagnostic in self._asked if not self.lacks(diagnostic)]
        fired = {finding.key: finding.fired for finding in self.findings if finding.key in known}
        values = {own.name: getattr(self, own.name) for own in fields(ReportValues) if own.name not in _FLAGS}
        values |= {name: fired.get(key) for name, key in _FLAGS.items()}
        values["frozen_baseline_undercut"] = self.frozen_baseline_undercut if "d" in fired else None
        values["findings"] = [finding.to_dict() for finding in self.findings]
        values["credit"] = None if self.credit is None or self.credit.problem else CreditValues.of(self.credit)
        values["trajectory"] = None if self.trajectory is None else TrajectoryValues.of(self.trajectory)
        plain: dict[str, Any] = to_plain(values)
        return plain

    @cached_property
    def plain(self) -> dict[str, Any]:
        """As :meth:`to_dict`, made once for all who do not change it."""
        return self.to_dict()

    @classmethod
    def from_dict(
        cls, values: Mapping[str, Any], what: str = "report", available: Diagnostics = DIAGNOSTICS
    ) -> DiagnosticReport:
        """The report that :meth:`to_dict` wrote, judged anew; of a hand-written one only the published fields are needed.

        ``what`` names it where something is wrong with it; ``available`` are the diagnostics that there are.
        """
        if isinstance(values, Mapping) and "companions" in values:
            values = {**values, "companions": with_present_names(values["companions"])}
        report = read(ReportValues, values, what)
        check_names(name for name in values.get("thresholds", ()) if name != "others")
        return cls.of(report, what, available)

    @classmethod
    def of(cls, values: ReportValues, what: str, available: Diagnostics = DIAGNOSTICS) -> DiagnosticReport:
        """The report of these values, judged anew."""
        course = None if values.trajectory is None else values.trajectory.trajectory(f"{what}.trajectory")
        apart = ("expected", "trajectory", "available")
        given = {own.name: getattr(values, own.name) for own in fields(cls) if own.name not in apart}
        try:
            return cls(**given, trajectory=course, available=available)
        except AuditError as error:
            raise AuditError(f"{what}: {error}") from None


def _changed(finding: Finding, recorded: Keys | None) -> str:
    if recorded is None or (recorded == "" and finding.fired):
        return finding.headline
    before, now = ("fire", "pass") if not finding.fired else ("pass", "fire")
    return f"{finding.name} was expected to {before} and does not: {now}, {finding.headline}"
