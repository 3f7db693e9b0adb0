"""One run: its settings, its targets and all that they name, resolved once; and the report of any of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import pytest

from ..bench import Bench, Record
from ..judge.control import Control
from ..judge.diagnostics import CONTROLLED, DIAGNOSTICS, CreditAlignment, DepthUtility, Diagnostic, Diagnostics
from ..judge.doubts import Fingerprint
from ..judge.errors import AuditError
from ..judge.keys import Keys, labelled
from ..judge.records import Accuracy
from ..judge.report import DiagnosticReport
from ..judge.thresholds import DiagnosticThresholds
from ..load.controls import Controls
from ..load.logs import TrainingLog, read_log
from ..load.setup import NOTHING_GIVEN, Given
from .checklist import Readings
from .expect import Expectations
from .merge import Merged, RecordedRow
from .selection import Targets
from .settings import Settings
from .targets import Kind, Target


class Evidence(Protocol):
    """What is known of a target: everything that no threshold and no control of this run changes."""

    @property
    def method(self) -> str: ...
    @property
    def seed(self) -> int | None: ...
    @property
    def control(self) -> Control | None:
        """The control that it brings itself; a measurement has none."""

    @property
    def fingerprint(self) -> Fingerprint | None:
        """Its tensors, where it is a network in a file of this machine."""

    @property
    def expected(self) -> Keys | None:
        """What was expected of it where it was recorded."""

    @property
    def problems(self) -> Mapping[str, BaseException]:
        """By key what kept a diagnostic from being judged where it was recorded."""

    def judge(
        self, control: Control | None, thresholds: DiagnosticThresholds, diagnostics: Sequence[Diagnostic]
    ) -> DiagnosticReport: ...


@dataclass(frozen=True)
class Measured:
    """A checkpoint, measured in this run or earlier."""

    record: Record
    everything: bool = False
    """Whether all that can be measured is asked for, and nothing in particular."""
    control: None = None
    expected: None = None

    @property
    def problems(self) -> Mapping[str, BaseException]:
        """Without a proven reference there is no BP gradient to judge, nor to judge by; without credit no Γ."""
        credit = self.record.credit
        if self.everything and credit is not None and credit.absent:
            return {key: problem for key, problem in self.record.problems.items() if key != CreditAlignment.key}
        return self.record.problems

    @property
    def fingerprint(self) -> Fingerprint | None:
        """Its tensors, for a control to be compared with."""
        return self.record.fingerprint

    @property
    def method(self) -> str:
        """By the checkpoint's config, else its name."""
        return self.record.method

    @property
    def seed(self) -> int | None:
        """By the checkpoint's config, else its name, else what {seed} stood for."""
        return self.record.seed

    def judge(
        self, control: Control | None, thresholds: DiagnosticThresholds, diagnostics: Sequence[Diagnostic]
    ) -> DiagnosticReport:
        """The report of the measurement."""
        return self.record.judge(control, thresholds, diagnostics)


@dataclass(frozen=True)
class Logged:
    """A training log, of which some numbers are exact and others bounds."""

    log: TrainingLog
    target_seed: int | None
    available: Diagnostics
    control: None = None
    fingerprint: None = None
    expected: None = None
    problems: Mapping[str, BaseException] = field(default_factory=dict)

    @property
    def method(self) -> str:
        """By the log's config, else its name."""
        return self.log.method

    @property
    def seed(self) -> int | None:
        """By the log's config, else its name, else what {seed} stood for."""
        return self.target_seed if self.log.seed is None else self.log.seed

    def judge(
        self, control: Control | None, thresholds: DiagnosticThresholds, diagnostics: Sequence[Diagnostic]
    ) -> DiagnosticReport:
        """The partial report of the log: all of it, whatever was asked for, since nothing more is measured for it."""
        report = self.log.report(control, thresholds)
        asked = (*report.diagnostics, *(d.name for d in diagnostics if d.name not in report.diagnostics))
        return replace(report, seed=self.seed, diagnostics=asked, available=self.available)


@dataclass(frozen=True)
class Overrides:
    """What the fixtures of a repo put in the place of the plugin's for one test."""

    given: Given = NOTHING_GIVEN
    control: Callable[[], Control | float | None] | None = None


NO_OVERRIDES = Overrides()


@dataclass(frozen=True, eq=False)
class Run:
    """What one process was asked to audit."""

    settings: Settings
    targets: Targets
    bench: Bench
    controls: Controls = field(default_factory=Controls)
    expectations: Expectations | None = None
    """The recorded verdicts, if the run has some; one that records anew has none."""
    merged: Merged | None = None
    readings: Readings | None = None
    """What was read of evaluation code."""
    _evidence: dict[object, Evidence] = field(default_factory=dict)
    _reports: dict[object, DiagnosticReport] = field(default_factory=dict)

    @property
    def in_play(self) -> bool:
        """Whether this run audits anything that was named on the command line or in the ini file."""
        return bool(self.targets.written or self.targets.generated or self.targets.margins or self.readings)

    def evidence(self, target: Target, diagnostics: Sequence[Diagnostic], overrides: Overrides) -> Evidence:
        """What a report of this target is made from."""
        if target.kind is Kind.CHECKPOINT:
            record = self.bench.record(Path(target.path), diagnostics, overrides.given, seed=target.seed)
            return Measured(record, self.settings.everything)
        if target not in self._evidence:
            self._evidence[target] = (
                Logged(self._log(Path(target.path)), target.seed, self.settings.available)
                if target.kind is Kind.LOG or self.merged is None
                else RecordedRow(self.merged.rows[target.path], self.settings)
            )
        return self._evidence[target]

    def _log(self, path: Path) -> TrainingLog:
        columns = self.settings.log_columns
        return read_log(path, batch=self.settings.log_batch, columns=dict(columns) if columns else None)

    def report(
        self,
        target: Target,
        thresholds: DiagnosticThresholds,
        diagnostics: Sequence[Diagnostic],
        overrides: Overrides = NO_OVERRIDES,
        expected: Keys | None = None,
    ) -> tuple[DiagnosticReport, Mapping[str, BaseException]]:
        """The report of a target, and by key what keeps a diagnostic from being judged, if something does."""
        if target.kind is Kind.LOG and not self.settings.chooses:
            diagnostics = [own for own in diagnostics if own.key != DepthUtility.key]  # a log has no states to probe
        evidence = self.evidence(target, [*diagnostics, *self._shown(diagnostics, overrides)], overrides)
        control: Control | None = None
        asked = {diagnostic.key for diagnostic in diagnostics}
        problems = {key: problem for key, problem in evidence.problems.items() if key in asked}
        try:
            control = self.control(evidence, overrides) if CONTROLLED in asked else None
        except (Exception, pytest.skip.Exception, pytest.fail.Exception) as error:
            problems[CONTROLLED] = error  # it concerns one diagnostic; the others are judged
        if expected is None:
            expected = self._expected(target, evidence)
            problems |= self._unrecorded(target, evidence, diagnostics)
        # The tests of a checkpoint share one report, and with it what is computed from it.
        key = (target, tuple(diagnostics), overrides.given.identity, thresholds, control, expected)
        if key not in self._reports:
            judged = evidence.judge(control, thresholds, diagnostics)
            stands_in = target.kind is Kind.CHECKPOINT and self.settings.form is None and not judged.asks_for(DepthUtility.key)
            if stands_in and judged.lacks_usable_control:
                judged = self._with_depth(target, control, thresholds, diagnostics, overrides) or judged
            self._reports[key] = replace(
                judged,
                expected=judged.fired if self.settings.updates_expect else expected,
                protocol=self._form(diagnostics) or judged.protocol,
            )
        return self._reports[key], problems

    def _with_depth(
        self,
        target: Target,
        control: Control | None,
        thresholds: DiagnosticThresholds,
        diagnostics: Sequence[Diagnostic],
        overrides: Overrides,
    ) -> DiagnosticReport | None:
        """The report with (e) in it; nothing where the network has no stream to probe, for which nobody asked."""
        more = [*diagnostics, *self.settings.available.select(DepthUtility.key)]
        try:
            return self.evidence(target, more, overrides).judge(control, thresholds, more)
        except AuditError:
            return None

    def _form(self, diagnostics: Sequence[Diagnostic]) -> str | None:
        """The published form by which these diagnostics are judged; a marker that asks for others is judged by none."""
        form = self.settings.form
        return self.settings.protocol if form is not None and {*form.keys} <= {d.key for d in diagnostics} else None

    def _shown(self, diagnostics: Sequence[Diagnostic], overrides: Overrides) -> Sequence[Diagnostic]:
        """What is measured and not judged: beside a published form, the credit where one is given."""
        given = self.settings.credit is not None or overrides.given.credit is not None
        alignment = self.settings.available.select(CreditAlignment.key)
        return alignment if self._form(diagnostics) and given and alignment[0] not in diagnostics else ()

    def control(self, evidence: Evidence, overrides: Overrides) -> Control | None:
        """The control of what is known: a fixture's, one of --fa-frozen, or that which a recorded row was compared with."""
        if overrides.control is not None:
            control = as_control(overrides.control())
        elif evidence.control is None:
            control = self.control_for(evidence.method, evidence.seed, overrides.given, evidence.fingerprint)
        else:
            control = self.bench.control(self.controls.choose(evidence.method, evidence.seed), overrides.given)
        return evidence.control if control is None else control

    def control_for(self, method: str, seed: int | None, given: Given, network: Fingerprint | None = None) -> Control | None:
        """The control of --fa-frozen that belongs to a method and seed, questioned where the network's tensors are known."""
        return self.bench.control(self.controls.choose_for(method, seed), given, network)

    def _unrecorded(self, target: Target, evidence: Evidence, diagnostics: Sequence[Diagnostic]) -> dict[str, BaseException]:
        """A diagnostic of which the record says nothing is not «recorded to pass»: its test says so.

        A record that was made before a diagnostic was there cannot know it: unless somebody asked for it, its test is skipped.
        """
        if self.expectations is None:
            return {}
        keys = self.expectations.unrecorded(target.id, evidence.method, evidence.seed)
        file = self.expectations.path.name
        said: dict[str, BaseException] = {}
        for diagnostic in (diagnostic for diagnostic in diagnostics if diagnostic.key in keys):
            later = diagnostic not in DIAGNOSTICS.by_default and not self.settings.chooses
            text = f"{labelled(diagnostic.key)} of {target.id} is not recorded in {file}"
            said[diagnostic.key] = (
                pytest.skip.Exception(f"{text}: record it there (--fa-update-expect)")
                if later
                else AuditError(
                    f"{text}, so that its verdict cannot be compared: record it there (--fa-update-expect), or leave it out of "
                    "this run (--fa-diagnostics)"
                )
            )
        return said

    def _expected(self, target: Target, evidence: Evidence) -> Keys | None:
        if self.expectations is not None:
            return self.expectations.of(target.id, evidence.method, evidence.seed)
        return evidence.expected


def as_control(given: Control | float | None) -> Control | None:
    """What the fixture ``fa_frozen_baseline`` gives: a control, an accuracy, or none."""
    if given is None or isinstance(given, Control):
        return given
    return Control(Accuracy(given), "given by the fixture fa_frozen_baseline")
