"""The report of one audited network: numbers, findings, verdict, and the text that a failing test shows."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from .control import Control
from .diagnostics import DIAGNOSTICS, Finding
from .diagnostics.frozen_margin import interval, margin
from .errors import AuditError, AuditFailure
from .measurement import Accuracy, Companions, Measurement, check_accuracy
from .plain import number, numbers, to_plain
from .statistics import at_chance
from .thresholds import DiagnosticThresholds
from .wording import count, fraction

WIDTH = 118
"""Where the text folds its sentences; the lists of norms are folded too."""

CLAIM_SLACK_PP = 0.5
"""How far a checkpoint's own accuracy may lie from the measured one before the report says so."""


@dataclass(frozen=True, kw_only=True)
class DiagnosticReport:
    """What the four diagnostics say about one network; can be built by hand from plain lists."""

    method_name: str
    residual_norms: Sequence[float]
    bp_grad_norms: Sequence[float]
    stability_layer: int
    cross_batch_stability: float | None
    headline_acc: float
    frozen_baseline_acc: float | None = None
    notes: str = ""
    thresholds: DiagnosticThresholds = field(default_factory=DiagnosticThresholds)
    seed: int | None = None
    companions: Companions = field(default_factory=Companions)
    accuracy: Accuracy | None = None
    control: Control | None = None
    claimed_acc: float | None = None
    environment: Mapping[str, str | int | bool] = field(default_factory=dict)
    expected: str | None = None
    """The diagnostics that are expected to fire, where somebody recorded them; not part of the report's data."""

    def __post_init__(self) -> None:
        states = _norms(self.residual_norms, "residual_norms")
        if len(states) < 2:
            raise AuditError(f"residual_norms has one entry ({states[0]:g}): a network without blocks has no stream to audit")
        object.__setattr__(self, "residual_norms", states)
        object.__setattr__(self, "bp_grad_norms", _norms(self.bp_grad_norms, "bp_grad_norms"))
        object.__setattr__(self, "headline_acc", check_accuracy(self.headline_acc, "headline_acc"))
        drift = self.cross_batch_stability
        if drift is not None and not (isinstance(drift, (int, float)) and (math.isnan(drift) or abs(drift) <= 1 + 1e-9)):
            raise AuditError(f"cross_batch_stability must be a cosine in [-1, 1], NaN if undefined, or None, not {drift!r}")
        for name in ("frozen_baseline_acc", "claimed_acc"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, check_accuracy(getattr(self, name), name))

    @classmethod
    def from_measurement(
        cls,
        measurement: Measurement,
        *,
        method_name: str,
        headline_acc: float | None = None,
        control: Control | None = None,
        thresholds: DiagnosticThresholds | Mapping[str, Any] | None = None,
        **identity: Any,
    ) -> DiagnosticReport:
        """The report of a measurement; a ``headline_acc`` from elsewhere replaces the measured accuracy and its images."""
        if isinstance(thresholds, Mapping):
            thresholds = DiagnosticThresholds().replace(**thresholds)
        accuracy = measurement.accuracy
        if headline_acc is not None and abs(headline_acc - accuracy.value) * (accuracy.images or 0) >= 0.5:
            accuracy = Accuracy(headline_acc)  # of another set of images, whose number is not known
        return cls(
            method_name=method_name,
            residual_norms=measurement.residual_norms,
            bp_grad_norms=measurement.bp_grad_norms,
            stability_layer=measurement.stability_layer,
            cross_batch_stability=measurement.cross_batch_stability,
            headline_acc=accuracy.value,
            frozen_baseline_acc=None if control is None else control.accuracy.value,
            thresholds=thresholds or DiagnosticThresholds(),
            companions=measurement.companions,
            accuracy=accuracy,
            control=control,
            environment=measurement.environment,
            **identity,
        )

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """One finding per diagnostic, in the order of the registry."""
        return tuple(diagnostic.judge(self) for diagnostic in DIAGNOSTICS)

    def finding(self, key: str) -> Finding:
        """The finding of one diagnostic, by its key or its name."""
        for finding in self.findings:
            if key in (finding.key, finding.name):
                return finding
        raise KeyError(key)

    @property
    def residual_stream_exploded(self) -> bool:
        """Whether (a) fired."""
        return self.finding("a").fired

    @property
    def bp_grad_at_floor(self) -> bool:
        """Whether (b) fired."""
        return self.finding("b").fired

    @property
    def reference_drift_dominated(self) -> bool:
        """Whether (c) fired."""
        return self.finding("c").fired

    @property
    def frozen_baseline_undercut(self) -> bool | None:
        """Whether (d) fired; ``None`` without a control."""
        return None if self.frozen_baseline_acc is None else self.finding("d").fired

    @property
    def verdict(self) -> str:
        """«trustworthy», or «needs walk-back: …» with what fired."""
        flags = [d.walk_back for d, finding in zip(DIAGNOSTICS, self.findings, strict=True) if finding.fired]
        return "needs walk-back: " + "; ".join(flags) if flags else "trustworthy"

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader must know beside the diagnostics, such as an accuracy at chance."""
        return tuple(_remarks(self))

    @property
    def fired(self) -> str:
        """The keys of the diagnostics that fired: «abd»."""
        return "".join(finding.key for finding in self.findings if finding.fired)

    def check(self, expected: str | None = None) -> None:
        """Raise an ``AssertionError`` with this report as its text unless exactly the expected diagnostics (none) fired."""
        __tracebackhide__ = True
        recorded = self.expected if expected is None else expected
        if set(self.fired) == set(recorded or ""):
            return
        changed = [
            _changed(finding, recorded) for finding in self.findings if finding.fired != (finding.key in (recorded or ""))
        ]
        text = str(self) if not recorded else "\n".join([str(self), *(f"CHANGED: {change}" for change in changed)])
        raise AuditFailure(text, "; ".join(changed))

    def __str__(self) -> str:
        seed = "" if self.seed is None else f", seed {self.seed}"
        lines = [f"FA diagnostic report: {self.method_name}{seed}"]
        lines += _folded("  ", self.notes.splitlines())
        lines += _folded("  note: ", self.remarks)
        for diagnostic, finding in zip(DIAGNOSTICS, self.findings, strict=True):
            lines.append(f"({diagnostic.key}) {diagnostic.name}: {finding.outcome}")
            lines += _folded("    ", diagnostic.lines(self))
            if finding.fired:  # one line, however long: whoever greps for it must see number, threshold and meaning
                lines.append(f"    FLAG: {diagnostic.walk_back}: {finding.headline}. {finding.explanation}")
        return "\n".join([*lines, f"VERDICT: {self.verdict}"])

    def to_dict(self) -> dict[str, Any]:
        """The fields, then what follows from them, as plain JSON values."""
        values = {
            **{name: getattr(self, name) for name in _PLAIN_FIELDS},
            "thresholds": self.thresholds.to_dict(),
            "companions": asdict(self.companions),
            "accuracy": None if self.accuracy is None else asdict(self.accuracy),
            "control": None if self.control is None else self.control.to_dict(),
            "environment": dict(self.environment),
            "margin_pp": margin(self),
            "margin_interval": None if (bounds := interval(self)) is None else asdict(bounds),
            "residual_stream_exploded": self.residual_stream_exploded,
            "bp_grad_at_floor": self.bp_grad_at_floor,
            "reference_drift_dominated": self.reference_drift_dominated,
            "frozen_baseline_undercut": self.frozen_baseline_undercut,
            "findings": [{**asdict(finding), "status": finding.status.value} for finding in self.findings],
            "remarks": self.remarks,
            "verdict": self.verdict,
        }
        plain: dict[str, Any] = to_plain(values)
        return plain

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> DiagnosticReport:
        """The report that :meth:`to_dict` wrote, judged anew; of a hand-written one only the published fields are needed."""
        missing = [name for name in _REQUIRED_FIELDS if name not in values]
        if missing:
            raise AuditError(f"not a report: {', '.join(missing)} missing")
        given: dict[str, Any] = {
            name: values[name] if name in _TEXT_FIELDS else number(values[name]) for name in _PLAIN_FIELDS if name in values
        }
        given["residual_norms"] = numbers(values["residual_norms"])
        given["bp_grad_norms"] = numbers(values["bp_grad_norms"])
        if values.get("thresholds") is not None:
            given["thresholds"] = DiagnosticThresholds.from_dict(
                {name: number(value) for name, value in values["thresholds"].items()}
            )
        if values.get("companions") is not None:
            given["companions"] = Companions.from_dict(values["companions"])
        if values.get("accuracy") is not None:
            given["accuracy"] = Accuracy(**values["accuracy"])
        if values.get("control") is not None:
            given["control"] = Control.from_dict(values["control"])
        return cls(**given, environment=dict(values.get("environment") or {}))


_REQUIRED_FIELDS = (
    "method_name",
    "residual_norms",
    "bp_grad_norms",
    "stability_layer",
    "cross_batch_stability",
    "headline_acc",
)
_TEXT_FIELDS = ("method_name", "notes")
_PLAIN_FIELDS = (*_REQUIRED_FIELDS, "frozen_baseline_acc", "notes", "seed", "claimed_acc")


def _changed(finding: Finding, recorded: str | None) -> str:
    if recorded is None or (recorded == "" and finding.fired):
        return finding.headline
    before, now = ("fire", "pass") if not finding.fired else ("pass", "fire")
    return f"{finding.name} was expected to {before} and does not: {now}, {finding.headline}"


def _remarks(report: DiagnosticReport) -> list[str]:
    companions, remarks = report.companions, []
    images = report.accuracy.images if report.accuracy is not None else None
    if companions.nonfinite_logits:
        remarks.append(f"the logits are not finite for {count(companions.nonfinite_logits, 'image')}, which count as errors")
    elif companions.classes and at_chance(report.headline_acc, companions.classes, images):
        remarks.append(
            f"accuracy is at chance (1/{companions.classes}); an untrained network passes (a) to (c) by construction"
        )
    dtype = report.environment.get("dtype")
    if dtype in ("float16", "bfloat16"):
        remarks.append(f"the checkpoint is half precision ({dtype}); it was audited in float32")
    if companions.nonfinite_weights:
        names = ", ".join(companions.nonfinite_weights[:3]) + (" …" if len(companions.nonfinite_weights) > 3 else "")
        remarks.append(f"{count(len(companions.nonfinite_weights), 'weight tensor')} with NaN or inf: {names}")
    if report.claimed_acc is not None and 100 * abs(report.claimed_acc - report.headline_acc) > CLAIM_SLACK_PP:
        remarks.append(
            f"the checkpoint claims accuracy {fraction(report.claimed_acc)}, but {fraction(report.headline_acc)} was measured; "
            "check the data and its normalisation"
        )
    return remarks


def _norms(values: Any, name: str) -> tuple[float, ...]:
    try:
        norms = tuple(float(value) for value in values)
    except (TypeError, ValueError):
        raise AuditError(f"{name} must be a list of numbers, not {values!r}") from None
    if not norms:
        raise AuditError(f"{name} is empty: nothing was measured, so there is nothing to judge")
    negative = [norm for norm in norms if norm < 0 and not math.isnan(norm)]
    if negative:
        raise AuditError(f"{name} holds {negative[0]:g}, but a norm is never negative")
    return norms


def _folded(prefix: str, lines: Sequence[str]) -> list[str]:
    hang = " " * (len(prefix) - len(prefix.lstrip()) + 2)
    folded: list[str] = []
    for line in lines:
        folded += textwrap.wrap(
            line, WIDTH, initial_indent=prefix, subsequent_indent=hang, break_long_words=False, break_on_hyphens=False
        ) or [prefix.rstrip()]
    return folded
