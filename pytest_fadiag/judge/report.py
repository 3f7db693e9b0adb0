"""The report of one audited network: a measurement with a name, a control and thresholds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from .control import Control, Doubt, Severity, doubts_about, void
from .diagnostics import (
    Diagnostic,
    Finding,
    Open,
    OpenKind,
    Status,
    parse_keys,
    published_names,
    select,
)
from .diagnostics.direction_drift import DirectionDrift
from .diagnostics.frozen_margin import FrozenMargin, is_within_noise
from .diagnostics.gradient_floor import GradientFloor
from .diagnostics.residual_growth import ResidualGrowth
from .errors import AuditError, AuditFailure
from .margins import Interval, Margin, margin_over
from .protocol import published
from .records import Epoch, Log, Measurement, Score, check_accuracy, check_norms, plain
from .remarks import AUDIT_ITSELF, is_loose, likely_loss, remarks_on
from .text import diagnostic_text, report_text
from .thresholds import DiagnosticThresholds
from .twin import Twin, in_view_of_twin, share_of
from .verdict import Verdict
from .words import WIDTH, one_line

if TYPE_CHECKING:
    from typing_extensions import Self

DERIVED = (
    "findings",
    "verdict",
    "headline",
    "next",
    "published",
    "remarks",
    "fired",
    "first_fired",
    "partial",
    "margin_pp",
    "plain_margin_pp",
    "margin_interval",
    "margin_share",
    "utility_share",
    "questions_control",
    "probe_accuracies",
    "depth_null_pp",
    "depth_utility_pp",
    "depth_interval_pp",
    "reference_error",
)
"""What :meth:`Report.to_dict` adds to the fields for readers of the file."""
PUBLISHED_FLAGS: dict[str, type[Diagnostic]] = {
    "residual_stream_exploded": ResidualGrowth,
    "bp_grad_at_floor": GradientFloor,
    "reference_drift_dominated": DirectionDrift,
    "frozen_baseline_undercut": FrozenMargin,
}
"""The published properties, each whether one diagnostic fired."""
OF_ALL_EPOCHS = (
    "method_name",
    "seed",
    "control",
    "twin",
    "thresholds",
    "diagnostics",
    "stream",
    "reference",
    "stability_layer",
    "environment",
)
"""What the report of one epoch has of the report of the whole log."""


class Report(Measurement, frozen=True, kw_only=True, dict=True):
    """What the diagnostics say about one network; can be built by hand from plain lists.

    >>> report = Report(
    ...     method_name="dfa", residual_norms=[9, 4e6, 5e6], bp_grad_norms=[1e-6, 4e-9, 4e-9],
    ...     cross_batch_stability=0.1, headline_acc=0.3, frozen_baseline_acc=0.35,
    ... )
    >>> report.fired
    ('a', 'b', 'd')
    """

    method_name: str = "unnamed"
    headline_acc: float | None = None
    frozen_baseline_acc: float | None = None
    seed: int | None = None
    notes: str = ""
    checkpoint: str | None = None
    """The name of the file that was audited."""
    claimed_acc: float | None = None
    control: Control | None = None
    control_problem: str = ""
    """Why no control could be compared although one was supplied."""
    thresholds: DiagnosticThresholds = msgspec.field(default_factory=DiagnosticThresholds)
    twin: Twin | None = None
    """BP networks of the same shapes and data, to compare with."""
    diagnostics: tuple[str, ...] = published_names()
    """Those that were asked for, by name; without any word the published four."""
    protocol: str | None = None
    """The published form by which it is judged, three or four."""
    caveats: tuple[str, ...] = ()
    """What reading the checkpoint or the log brought to light."""
    config: dict[str, Any] = msgspec.field(default_factory=dict)
    """What the checkpoint or the log says about its training."""
    log: Log | None = None
    """The training log that it was made from."""

    def __post_init__(self) -> None:
        self._put("diagnostics", tuple(diagnostic.name for diagnostic in self.asked))
        self._put("residual_norms", check_norms(self.residual_norms, "residual_norms"))
        self._put("bp_grad_norms", check_norms(self.bp_grad_norms, "bp_grad_norms"))
        if len(self.residual_norms) == 1:
            raise AuditError("residual_norms has 1 entry: there is nothing to judge")
        for diagnostic in self.asked:
            diagnostic.check(self)
        for name in ("headline_acc", "frozen_baseline_acc", "claimed_acc"):
            if getattr(self, name) is not None:
                self._put(name, check_accuracy(getattr(self, name), name, self.task))
        self._join_score()
        self._join_control()
        self._put("caveats", tuple(self.caveats))
        scalars = {key: v for key, v in self.config.items() if isinstance(v, (str, int, float))}
        self._put("config", scalars)

    def _put(self, name: str, value: Any) -> None:
        msgspec.structs.force_setattr(self, name, value)

    def _join_score(self) -> None:
        """Let the accuracy be that of the score, to three digits; else it is of other images."""
        score = self.score
        if score is None:
            return
        if self.headline_acc is not None:
            images = min(score.images or math.inf, 1_000)
            if abs(self.headline_acc - score.value) * images >= 0.5:
                score = Score(self.headline_acc)
                self._put("score", score)
        self._put("headline_acc", check_accuracy(score.value, "headline_acc", self.task))

    def _join_control(self) -> None:
        """Let the control's accuracy and the control be one."""
        accuracy = self.frozen_baseline_acc
        if self.control is None:
            if accuracy is not None:
                self._put("control", Control(Score(accuracy)))
            return
        known = check_accuracy(self.control.score.value, "frozen_baseline_acc", self.task)
        if accuracy is not None and accuracy != known:
            raise AuditError(f"the control's accuracy is {known}, not {accuracy}")
        self._put("frozen_baseline_acc", known)

    @classmethod
    def of(cls, measurement: Measurement, **changes: Any) -> Self:
        """The report of a measurement, or of another report with some fields changed.

        >>> Report.of(Measurement(), method_name="bp", diagnostics=()).verdict[:10]
        'incomplete'
        """
        values = {name: getattr(measurement, name) for name in measurement.__struct_fields__}
        for pair in (("control", "frozen_baseline_acc"), ("score", "headline_acc")):
            changed = [name for name in pair if name in changes]
            if len(changed) == 1 and isinstance(measurement, Report):
                values |= dict.fromkeys(pair)  # what is not given anew is stale
        return cls(**{**values, **changes})

    def replace(self, **changes: Any) -> Self:
        """The report with some fields changed; a new control or score brings its accuracy."""
        return self.of(self, **changes)

    @property
    def asked(self) -> tuple[Diagnostic, ...]:
        """The diagnostics that were asked for; an error where the package of one is missing."""
        if not self.diagnostics:
            return ()
        return select(self.diagnostics)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """One finding per diagnostic that was asked for, in their order."""
        return tuple(map(self.judged_by, self.asked))

    def judged_by(self, diagnostic: Diagnostic) -> Finding:
        """What a diagnostic says, asked for or not; an error where what it needs is missing."""
        if self.stream_problem and diagnostic.needs_stream:
            why = f"no stream: {self.stream_problem}"
            return diagnostic.unmeasured(self, why, error=why)
        if self.unproven and diagnostic.needs_reference:
            why = f"the reference is not proven: {self.unproven}"
            return diagnostic.unmeasured(self, why, error=why)
        finding = in_view_of_twin(diagnostic.judge(self), diagnostic, self)
        if diagnostic.needs_reference and finding.passed and is_loose(self):
            return msgspec.structs.replace(
                finding, open=Open(OpenKind.REFERENCE_QUESTIONED), remedy=AUDIT_ITSELF
            )
        if diagnostic.needs_reference and finding.fired and likely_loss(self):
            remedy = f"name the loss (--fa-loss, loss=); {finding.remedy}"
            return msgspec.structs.replace(finding, remedy=remedy)
        return finding

    def finding(self, key: str) -> Finding:
        """The finding of a diagnostic, by key or name; not measured if it was not asked for."""
        diagnostic = select([key])[0]
        for finding in self.findings:
            if finding.key == diagnostic.key:
                return finding
        return diagnostic.unmeasured(self, "was not asked for")

    @property
    def fired(self) -> tuple[str, ...]:
        """The keys of the diagnostics that fired."""
        return tuple(finding.key for finding in self.findings if finding.fired)

    @cached_property
    def conclusion(self) -> Verdict:
        """The verdict as a value."""
        return Verdict.of(self.findings, as_given=self.trace)

    @property
    def verdict(self) -> str:
        """«needs walk-back: …» with what fired, «incomplete: …» or «trustworthy»."""
        return self.conclusion.sentence

    @property
    def headline(self) -> str:
        """The verdict in the words of the findings: what reports, tables and pages print."""
        return self.conclusion.headline

    @property
    def next(self) -> str:
        """What to do, or to write in a paper; empty where the result is trustworthy."""
        return self.conclusion.next

    @property
    def published(self) -> str:
        """What the published form says: «PASS», «FAIL(D1+D2)»; empty where none was named."""
        findings = [diagnostic.by_point(self) for diagnostic in self.asked]
        fired = [finding.key for finding in findings if finding.fired]
        decided = [finding.key for finding in findings if finding.open is None]
        return published(self.protocol, fired, decided)

    @cached_property
    def doubts(self) -> tuple[Doubt, ...]:
        """What makes the control doubtful."""
        return doubts_about(self)

    @cached_property
    def remarks(self) -> tuple[str, ...]:
        """What a reader must know apart from the diagnostics, such as an accuracy at chance."""
        return tuple(remarks_on(self))

    def check(self, expected: str | Sequence[str] = "") -> None:
        """Raise an ``AssertionError`` with this report unless exactly the expected ones fired."""
        __tracebackhide__ = True
        errors = [f"{finding.name}: {finding.error}" for finding in self.findings if finding.error]
        if errors:
            raise AuditError("; ".join(errors))
        expected_keys = parse_keys(expected)
        changes = []
        for finding in self.findings:
            if finding.fired and finding.key not in expected_keys:
                changes.append(finding.headline)
            if not finding.fired and finding.key in expected_keys:
                outcome = f"{finding.outcome}, {finding.headline}"
                changes.append(f"{finding.name} was expected to fail: {outcome}")
        if changes:
            raise AuditFailure("\n".join([str(self), *changes]), "; ".join(changes))

    # --- the published properties ---

    @property
    def residual_stream_exploded(self) -> bool:
        """Whether (a) fired; an error where it was not judged."""
        return self._whether_fired(ResidualGrowth)

    @property
    def bp_grad_at_floor(self) -> bool:
        """Whether (b) fired; an error where it was not judged."""
        return self._whether_fired(GradientFloor)

    @property
    def reference_drift_dominated(self) -> bool:
        """Whether (c) fired; an error where it was not judged."""
        return self._whether_fired(DirectionDrift)

    @property
    def frozen_baseline_undercut(self) -> bool | None:
        """Whether (d) fired; ``None`` without a control or an accuracy, or where not resolved."""
        status = self.finding(FrozenMargin.key).status
        if self.margin_pp is None or status is Status.NOT_RESOLVED:
            return None
        return self._whether_fired(FrozenMargin)

    def _whether_fired(self, diagnostic: type[Diagnostic]) -> bool:
        finding = self.finding(diagnostic.key)
        if finding.error or finding.name not in self.diagnostics:
            raise AuditError(f"({diagnostic.key}) is undetermined: {finding.headline}")
        return finding.fired

    # --- the control ---

    @cached_property
    def margin(self) -> Margin | None:
        """How far the network is above its control, by class where both are known by class."""
        if self.control is None or self.headline_acc is None or void(self.doubts):
            return None
        return margin_over(self.score or Score(self.headline_acc), self.control.score)

    @property
    def margin_pp(self) -> float | None:
        """Accuracy minus the control's, in pp; class-balanced where both are known by class."""
        return self.margin.pp if self.margin else None

    @property
    def margin_interval(self) -> Interval | None:
        """The 95 % interval of the margin, where the number of test images is known."""
        return self.margin.interval if self.margin else None

    @property
    def plain_margin_pp(self) -> float | None:
        """Accuracy minus the control's, in pp, as published."""
        if self.margin is None or self.control is None or self.headline_acc is None:
            return None
        return round(100 * (self.headline_acc - self.control.score.value), 9)

    @property
    def questions_control(self) -> bool:
        """Whether a control was supplied on which no pass rests alone: (e) must pass too."""
        return any(doubt.severity is not Severity.REMARK for doubt in self.doubts)

    @property
    def control_decides(self) -> bool:
        """Whether (d) decides, and not (e): by a control that was audited too, without a doubt.

        What a number stands for cannot be looked at.
        """
        is_audited = self.control is not None and self.control.score.outcomes is not None
        return is_audited and not self.questions_control and not is_within_noise(self)

    @property
    def margin_share(self) -> float | None:
        """Which share of BP's margin this network reaches."""
        if self.twin is None:
            return None
        return share_of(self.margin_pp, self.twin.margin_pp)

    @property
    def utility_share(self) -> float | None:
        """Which share of BP's depth utility this network reaches."""
        if self.twin is None:
            return None
        return share_of(self.depth_utility_pp, self.twin.utility_pp)

    # --- the linear probes and the reference ---

    @property
    def probe_accuracies(self) -> tuple[float, ...] | None:
        """Linear probes of h_0 … h_L, as fractions."""
        if self.depth is None or not self.depth.probes:
            return None
        return self.depth.probes

    @property
    def depth_null_pp(self) -> float | None:
        """The gain of a probe from h_0 to h_L with re-initialised blocks."""
        if self.depth is None:
            return None
        return self.depth.null_pp

    @property
    def depth_utility_pp(self) -> float | None:
        """The gain of a probe from h_0 to h_L beyond that."""
        if self.depth is None:
            return None
        return self.depth.utility_pp

    @property
    def depth_interval_pp(self) -> tuple[float, float] | None:
        """The 95 % interval of the depth utility; without a null that of the gain."""
        if self.depth is None:
            return None
        return self.depth.interval

    @property
    def reference_error(self) -> float | None:
        """How far autograd lies from finite differences, relative."""
        if self.reference is None:
            return None
        return self.reference.error

    @property
    def unproven(self) -> str:
        """Why the BP gradient is not proven; empty where it is, or was not checked."""
        if self.reference is None:
            return ""
        return self.reference.problem

    # --- logs ---

    @property
    def partial(self) -> bool:
        """Whether it was made from a log, or norms are missing."""
        return self.log is not None or None in (*self.residual_norms, *self.bp_grad_norms)

    @property
    def depth_known(self) -> bool:
        """Whether the number of blocks is known."""
        return self.log is None or self.log.depth_known

    def at(self, epoch: Epoch) -> Self:
        """The report with the numbers of one epoch in place of its own."""
        values = {name: getattr(self, name) for name in OF_ALL_EPOCHS}
        for name in epoch.__struct_fields__:
            if name != "epoch":
                values[name] = getattr(epoch, name)
        return type(self)(**values, log=msgspec.structs.replace(self.log or Log(), epochs=()))

    @cached_property
    def first_fired(self) -> dict[str, int]:
        """The first epoch of the log at which each diagnostic fired, by key."""
        first: dict[str, int] = {}
        for epoch in self.log.epochs if self.log else ():
            for key in self.at(epoch).fired:
                first.setdefault(key, epoch.epoch)
        return dict(sorted(first.items(), key=lambda item: (item[1], item[0])))

    # --- its own words ---

    @property
    def title(self) -> str:
        """Method and seed."""
        seed = "" if self.seed is None else f", seed {self.seed}"
        return f"{one_line(self.method_name)}{seed}"

    @property
    def score_name(self) -> str:
        """What the score of its task is called."""
        return {"regression": "R²", "tokens": "token accuracy"}.get(self.task, "accuracy")

    @property
    def unit(self) -> str:
        """What its test set is counted in."""
        if self.task == "tokens":
            return "sequence"
        return "image" if self.inputs and self.inputs.pixels else "sample"

    @property
    def probe_score(self) -> str:
        """What the score of linear probes, and of the network where these read, is called."""
        return "class-balanced accuracy" if self.task == "classes" else self.score_name

    @property
    def probe_unit(self) -> str:
        """What linear probes are fitted to."""
        return "token" if self.task == "tokens" else self.unit

    def layer(self, index: int) -> str:
        """The number of a layer, or L for the last one where the number of blocks is not known."""
        is_last = index + 1 >= len(self.residual_norms)
        if is_last and not self.depth_known:
            return "L"
        return str(index)

    def blocks(self, *indices: int) -> str:
        """Blocks by the names of their modules, where the stream is known."""
        if self.stream is None:
            return ", ".join(f"block {index}" for index in indices)
        return ", ".join(self.stream.blocks[index] for index in indices)

    def site(self, name: str) -> str:
        """A state by its tensor, where the stream is known: «h_1: the input of 'blocks.1'»."""
        if self.stream is None or not self.stream.states:
            return name
        layer = int(name.removeprefix("h_"))
        return f"{name}: {self.stream.states[layer]}"

    def lines(self, key: str, width: int = WIDTH) -> str:
        """The text of one diagnostic alone: outcome, numbers, what it means where it fails."""
        return diagnostic_text(self, select([key])[0], width)

    def text(self, width: int = WIDTH) -> str:
        """The whole report, wrapped at a width."""
        return report_text(self, width)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<report: {self.title}: {one_line(self.headline)}>"

    def to_dict(self) -> dict[str, Any]:
        """The fields, then what follows from them, as plain JSON values."""
        values = {name: getattr(self, name) for name in (*self.__struct_fields__, *DERIVED)}
        for name, diagnostic in PUBLISHED_FLAGS.items():
            finding = self.finding(diagnostic.key)
            values[name] = finding.fired if finding.measured else None
        if self.credit is not None:
            derived = {"state": self.credit.state, "z": self.credit.z}
            values["credit"] = plain(self.credit) | derived
        if self.step is not None:
            values["step"] = plain(self.step) | {"state": self.step.state}
        return dict(plain(values))
