"""One run: its settings, its targets and all that they name, resolved once; and the report of any of them."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from ..bench import Bench, Record
from ..cache import ResultCache
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
from ..load.setup import NOTHING_GIVEN, Given, Setup
from ..load.sources import DataSpec
from ..load.specs import absent, is_factory
from ..registry import Registry, load_packages
from ..show.audit import AuditRow
from ..show.progress import Progress
from ..show.status import in_words
from .checklist import Readings
from .expect import Expectations, check_update
from .files import check_destinations
from .merge import Merged, merge
from .outcome import changed, unrecorded_fire
from .selection import find_controls, find_targets
from .settings import Settings
from .targets import Kind, Target, Targets


@dataclass(frozen=True)
class Evidence:
    """What is known of a target: everything that no threshold and no control of this run changes."""

    method: str
    seed: int | None
    judge: Callable[[Control | None, DiagnosticThresholds, Sequence[Diagnostic]], DiagnosticReport]
    control: Control | None = None
    """The control that it brings itself; a measurement has none."""
    fingerprint: Fingerprint | None = None
    """Its tensors, where it is a network in a file of this machine."""
    expected: Keys | None = None
    """What was expected of it where it was recorded."""
    problems: Mapping[str, BaseException] = field(default_factory=dict)
    """By key what keeps a diagnostic from being judged: no proven reference, no credit, or no verdict where it was recorded."""


def _of_record(record: Record, *, everything: bool) -> Evidence:
    """A checkpoint, measured in this run or earlier; where everything is asked for, a credit that nobody gave is no problem."""
    absent = everything and record.credit is not None and record.credit.absent
    problems = {key: problem for key, problem in record.problems.items() if not (absent and key == CreditAlignment.key)}
    return Evidence(record.method, record.seed, record.judge, fingerprint=record.fingerprint, problems=problems)


def _of_log(log: TrainingLog, target: Target, available: Diagnostics) -> Evidence:
    """A training log, of which some numbers are exact and others bounds."""
    seed = target.seed if log.seed is None else log.seed

    def judge(control: Control | None, thresholds: DiagnosticThresholds, diagnostics: Sequence[Diagnostic]) -> DiagnosticReport:
        """The partial report of the log: all of it, whatever was asked for, since nothing more is measured for it."""
        report = log.report(control, thresholds)
        asked = (*report.diagnostics, *(d.name for d in diagnostics if d.name not in report.diagnostics))
        return replace(report, seed=seed, diagnostics=asked, available=available)

    return Evidence(log.method, seed, judge)


def _of_row(row: AuditRow, settings: Settings) -> Evidence:
    """A row of an earlier audit; what its run could not judge is not judged by merging it."""
    report, why = row.report, row.reason or in_words(row.status)
    control = None
    if report is not None and report.frozen_baseline_acc is not None:
        control = report.control or Control(Accuracy(report.frozen_baseline_acc), "recorded")
    unjudged = [d for d in settings.available if row.outcomes.get(d.key) in ("error", "not run")]
    problems = {d.key: AuditError(f"{d.name} was not judged in the recorded audit: {why}") for d in unjudged}

    def judge(control: Control | None, thresholds: DiagnosticThresholds, diagnostics: Sequence[Diagnostic]) -> DiagnosticReport:
        """The recorded numbers by the recorded thresholds, but for what this command changes."""
        if report is None:
            raise AuditError(row.reason or f"{row.checkpoint} was not judged in the recorded audit")
        accuracy = None if control is None else control.accuracy.value
        judged_by = report.thresholds.replace(**settings.threshold_changes())
        return replace(report, control=control, frozen_baseline_acc=accuracy, thresholds=judged_by)

    return Evidence(row.method, row.seed, judge, control, expected=row.expected, problems=problems)


@dataclass(frozen=True)
class Overrides:
    """What the fixtures of a repo put in the place of the plugin's for one test."""

    given: Given = NOTHING_GIVEN
    control: Callable[[], Control | float | None] | None = None
    depth_instead: bool = False
    """Whether (e) stands in where that control turns out to be none: until its test runs, nobody knows."""


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
            return _of_record(record, everything=self.settings.everything)
        if target not in self._evidence:
            self._evidence[target] = (
                _of_log(self._log(Path(target.path)), target, self.settings.available)
                if target.kind is Kind.LOG or self.merged is None
                else _of_row(self.merged.rows[target.path], self.settings)
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
            control = self.control(evidence, overrides, diagnostics) if CONTROLLED in asked else None
        except (Exception, pytest.skip.Exception, pytest.fail.Exception) as error:
            problems[CONTROLLED] = error  # it concerns one diagnostic; the others are judged
        by_record = expected is None
        if expected is None:
            expected = self._expected(target, evidence)
        # The tests of a checkpoint share one report, and with it what is computed from it, as long as it is the same record.
        key = (target, tuple(diagnostics), evidence.judge, thresholds, control, expected, overrides.depth_instead)
        if key not in self._reports:
            judged = evidence.judge(control, thresholds, diagnostics)
            stands_in = target.kind is Kind.CHECKPOINT and self.settings.form is None and not judged.asks_for(DepthUtility.key)
            none_given = overrides.depth_instead and control is None and CONTROLLED in asked and CONTROLLED not in problems
            if stands_in and (judged.lacks_usable_control or none_given):
                judged = self._with_depth(target, control, thresholds, diagnostics, overrides) or judged
            self._reports[key] = replace(
                judged,
                expected=judged.fired if self.settings.updates_expect else expected,
                protocol=self._form(diagnostics) or judged.protocol,
            )
        report = self._reports[key]
        if by_record:
            # What cannot be judged is said first.
            problems = self._unlike_the_record(target, evidence, report, asked) | problems
        return report, problems

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

    def control(self, evidence: Evidence, overrides: Overrides, beside: Sequence[Diagnostic]) -> Control | None:
        """The control of what is known: a fixture's, one of --fa-frozen, or that which a recorded row was compared with."""
        if overrides.control is not None:
            control = as_control(overrides.control())
        elif evidence.control is None:
            chosen = self.controls.choose_for(evidence.method, evidence.seed)
            control = self.bench.control(chosen, overrides.given, evidence.fingerprint, beside=beside)
        else:
            chosen = self.controls.choose(evidence.method, evidence.seed)
            control = self.bench.control(chosen, overrides.given, beside=beside)
        return evidence.control if control is None else control

    def control_for(self, method: str, seed: int | None, given: Given) -> Control | None:
        """The control of --fa-frozen that belongs to a method and seed."""
        return self.bench.control(self.controls.choose_for(method, seed), given)

    def _unlike_the_record(
        self, target: Target, evidence: Evidence, report: DiagnosticReport, asked: Set[str]
    ) -> dict[str, BaseException]:
        """By key what a test says where the record says nothing of its diagnostic, or has a number that this run has not.

        A record that was made before a diagnostic was there cannot know it: unless somebody asked for it, its test is skipped,
        but never where it fired.
        """
        if self.expectations is None:
            return {}
        place = target.id, evidence.method, evidence.seed
        unrecorded, recorded = self.expectations.unrecorded(*place), self.expectations.recorded(*place)
        said: dict[str, BaseException] = {}
        for diagnostic in self.settings.available.select(Keys.of(finding.key for finding in report.findings)):
            key, finding = diagnostic.key, report.finding(diagnostic.key)
            if key in unrecorded:
                later = diagnostic not in DIAGNOSTICS.by_default and key not in self.settings.named
                if finding.fired and later:
                    said[key] = unrecorded_fire(report, finding, self.expectations.path.name)
                elif key in asked:
                    said[key] = _unrecorded(f"{labelled(key)} of {target.id}", self.expectations.path.name, later=later)
            elif recorded is not None and recorded.finding(key).measured and not finding.measured:
                said[key] = changed(report, finding)
        return said

    def _expected(self, target: Target, evidence: Evidence) -> Keys | None:
        if self.expectations is not None:
            return self.expectations.of(target.id, evidence.method, evidence.seed)
        return evidence.expected


def _unrecorded(what: str, file: str, *, later: bool) -> BaseException:
    """That a record says nothing of a diagnostic is not «recorded to pass»."""
    text = f"{what} is not recorded in {file}"
    if later:
        return pytest.skip.Exception(f"{text}: record it there (--fa-update-expect)")
    return AuditError(
        f"{text}, so that its verdict cannot be compared: record it there (--fa-update-expect), or leave it out of this run "
        "(--fa-diagnostics)"
    )


def as_control(given: Control | float | None) -> Control | None:
    """What the fixture ``fa_frozen_baseline`` gives: a control, an accuracy, or none."""
    if given is None or isinstance(given, Control):
        return given
    return Control(Accuracy(given), "given by the fixture fa_frozen_baseline")


def registry_of(config: pytest.Config) -> Registry:
    """What this call of pytest knows: by its own plugins and conftests, and by the packages that add to an audit."""
    if not (os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD") or config.getoption("disable_plugin_autoload", False)):
        load_packages(config.pluginmanager)
    return Registry(config.pluginmanager)


def make_run(config: pytest.Config, registry: Registry) -> Run:
    """Everything that the command and the ini file ask for, found once and checked; no checkpoint is opened."""
    settings = Settings.of(config)
    received = getattr(config, "workerinput", {}).get("fadiag")
    merged = merge(settings) if settings.merge else None
    controls = find_controls(settings) if settings.frozen else Controls()
    # The checklist of the ini file belongs to a run of everything, as testpaths do.
    reads_code = "checklist" in settings.typed or config.args_source is not pytest.Config.ArgsSource.ARGS
    readings = Readings(settings) if settings.checklist and reads_code else None
    if received is None:
        pitfalls = frozenset() if readings is None else readings.ids
        targets = find_targets(config, settings, merged.targets if merged else (), pitfalls).without(controls.paths)
        targets.check_some()
        targets = targets if settings.shard is None else targets.shard(*settings.shard)
        check_update(settings)
        settings.thresholds()
    else:
        targets = Targets.from_dict(received["targets"])
        config.args = list(received["args"])
    data = None if settings.data is None else _data_spec(settings, registry, check=received is None)
    if received is None:
        _check_model(settings.model)
        _check_spelling(config)
        check_destinations(settings, targets, controls, None if data is None else data.path)
    expectations = None
    if settings.expect is not None and not settings.updates_expect:
        expectations = Expectations.read(settings.path("expect", settings.expect), settings.available)
    bench = _bench(config, settings, registry, None if data is None else data.text)
    run = Run(settings, targets, bench, controls, expectations, merged, readings)
    if settings.only and not run.in_play:
        raise AuditError("--fa-only: nothing to audit is named; add a checkpoint, --fa-log, --fa-merge or --fa-checklist")
    if settings.unsafe_load or any(
        spec is not None and is_factory(spec) for spec in (settings.model, settings.data, settings.credit)
    ):
        # package.module:factory means the repo's own package also when pytest is started in a sub-folder of it.
        sys.path += [str(settings.root)] * (str(settings.root) not in sys.path)
    if received is None:
        _check_factory(settings)
    return run


def idle_run(config: pytest.Config, registry: Registry) -> Run:
    """The run of a call of pytest that runs no tests."""
    settings = Settings.defaults(config)
    return Run(settings, Targets(), Bench(Setup(), registry=registry))


def _bench(config: pytest.Config, settings: Settings, registry: Registry, data: str | None) -> Bench:
    setup = Setup(
        data,
        settings.model,
        settings.stream,
        settings.batches,
        settings.batch_size,
        settings.device,
        settings.threads,
        settings.unsafe_load,
        settings.normalize,
        settings.base("data"),
        settings.credit,
    )
    plugin = config.pluginmanager.get_plugin  # asked later: the reporter is not there yet when a run is configured
    return Bench(
        setup,
        registry=registry,
        cache=_cache(config, settings),
        progress=lambda name: Progress(plugin("terminalreporter"), plugin("capturemanager"), name),
    )


def _cache(config: pytest.Config, settings: Settings) -> ResultCache:
    """In pytest's cache folder; where there is none or it is not wanted, what the workers of the run share while it lasts."""
    provider = getattr(config, "cache", None)
    worker = getattr(config, "workerinput", {})
    run = worker.get("testrunuid")
    if not settings.no_cache and provider is not None:
        return ResultCache(lambda: provider.mkdir("fadiag"), _warn, run)
    shared = worker.get("fadiag", {}).get("shared")

    def folder() -> Path:
        Path(shared).mkdir(parents=True, exist_ok=True)  # a worker on another host has none yet
        return Path(shared)

    return ResultCache(None if shared is None else folder, _warn, run)


def _warn(text: str) -> None:
    """Warn; where warnings are errors too, for a checkpoint is not to blame for a full disk."""
    warning = pytest.PytestWarning(f"fadiag: {text}")
    try:
        warnings.warn(warning, stacklevel=3)
    except pytest.PytestWarning:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn(warning, stacklevel=3)


def _check_spelling(config: pytest.Config) -> None:
    if "--fa-checkpoint" in [str(argument) for argument in config.invocation_params.args]:
        config.issue_config_time_warning(
            pytest.PytestConfigWarning(
                "write --fa-checkpoint=PATH with '=': behind a space pytest also takes PATH for a test path when it looks for "
                "its root folder, and may miss your ini file"
            ),
            stacklevel=2,
        )


def _data_spec(settings: Settings, registry: Registry, *, check: bool) -> DataSpec:
    try:
        spec = registry.data_spec(settings.data or "", settings.base("data"))
        if check:
            spec.check()
    except AuditError as error:
        raise AuditError(f"--fa-data: {error}") from None
    return spec


def _check_factory(settings: Settings) -> None:
    """Refuse a network that nothing has before every test fails of it; what is wrong with a credit concerns one diagnostic."""
    spec = settings.model
    if spec is not None and is_factory(spec) and not spec.startswith("torchvision:") and (problem := absent(spec)):
        raise AuditError(f"{settings.source('model')} {spec!r}: {problem}")


def _check_model(spec: str | None) -> None:
    if spec is not None and not spec.startswith("torchvision:") and not is_factory(spec):
        where = f"; it is a file, so did you mean --fa-checkpoint={spec}?" if os.path.exists(spec) else ""
        raise AuditError(f"--fa-model: unknown network {spec!r}; accepted: package.module:factory, torchvision:NAME{where}")
