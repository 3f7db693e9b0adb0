"""What one process was asked to audit, and the report of any checkpoint or log of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ..auditor import Auditor, Overrides
from ..cache import Cache
from ..hooks import Registry, load_packages
from ..judge.control import Control
from ..judge.diagnostics import Diagnostic, available
from ..judge.errors import AuditError
from ..judge.report import Report
from ..judge.thresholds import DiagnosticThresholds
from ..load.controls import Controls, parse_controls
from ..load.names import identify
from ..load.specs import check_factory, is_factory
from ..load.traces import is_trace
from ..show.audit import Keys
from .expect import Expectations, check_update
from .files import check_destinations
from .plan import Job, Kind, Plan, make_plan, real_files
from .settings import Settings


class Run:
    """Settings, plan, controls, expectations and auditor of one process."""

    def __init__(self, config: pytest.Config) -> None:
        self.worker: dict[str, Any] = getattr(config, "workerinput", {}).get("fadiag", {})
        load_packages(config.pluginmanager)
        self.registry = Registry(config.pluginmanager)
        config.add_cleanup(self.registry.close)
        self.settings = Settings.read(config)
        self.controls = _controls(self.settings)
        self.expectations = _expectations(self.settings)
        """Those of --fa-expect; ``None`` without it, and where what is found is recorded."""
        self.plan = self._plan(config)
        self._check_factories()
        _ = self.twins  # refused at the start where there are none
        cache = Cache(self._cache_folder(config))
        self.auditor = Auditor(self.settings.setup, cache=cache, registry=self.registry)
        self.reports: dict[object, Report] = {}
        """Those of tests, by all that a report depends on."""
        self.overridden_reports: dict[str, Report] = {}
        """Those measured with the fixtures of a conftest, by the id of the checkpoint."""
        self.first_failures: dict[str, str] = {}
        """The first test that failed of each checkpoint, by its id: it shows the numbers."""
        self.first_errors: dict[str, str] = {}
        """The first test that showed each error, by its text."""

    def _plan(self, config: pytest.Config) -> Plan:
        """The plan of the controller, which its workers are sent."""
        if self.worker:
            return msgspec.convert(self.worker["plan"], Plan)
        words: list[str] = []
        if config.args_source is pytest.Config.ArgsSource.ARGS:
            words = [str(word) for word in config.args]
        plan = make_plan(self.settings, words, {str(path) for path in self.controls.paths})
        check_destinations(self.settings, plan, self.controls, self.registry.outputs())
        return plan

    def _check_factories(self) -> None:
        """Refuse a function that does not exist; its module may be the repo's own."""
        setup = self.settings.setup
        specs = {**setup.factories, "data": setup.data}
        factories = {name: str(spec) for name, spec in specs.items() if is_factory(str(spec))}
        root = str(self.settings.root)
        if (factories or setup.unsafe) and root not in sys.path:
            sys.path.append(root)  # package.module is found from a sub-folder too
        for name, spec in factories.items():
            if not spec.startswith("torchvision:"):
                check_factory(spec, f"--fa-{name}")

    def _cache_folder(self, config: pytest.Config) -> Path | None:
        """In pytest's cache; where there is none, what workers share while a run lasts."""
        cache = getattr(config, "cache", None)
        if cache and not self.settings.no_cache:
            try:
                return Path(cache.mkdir("fadiag"))
            except OSError:  # the first measurement that cannot be kept says so
                return Path(cache._cachedir, "fadiag")
        return Path(self.worker["shared"]) if "shared" in self.worker else None

    def report(
        self,
        job: Job,
        diagnostics: Sequence[Diagnostic],
        thresholds: DiagnosticThresholds,
        control: Controls | Control | float | None,
        overrides: Overrides | None = None,
        *,
        listed: bool = True,
    ) -> Report:
        """The report of a checkpoint or log; ``listed`` where the diagnostics were listed."""
        twins = [twin for twin in self.twins if twin.kind == job.kind]
        twins = [twin for twin in twins if twin.seed == job.seed] or twins
        if "bp" not in self.settings.texts:  # the name of a file says nothing of itself
            twins = [twin for twin in twins if twin.path != job.path]
        return self.auditor.report(
            Path(job.path),
            diagnostics=diagnostics,
            control=control,
            thresholds=thresholds,
            overrides=overrides,
            seed=job.seed,
            protocol=self.settings.protocol,
            listed=listed,
            log=job.kind == "log",
            twins=[Path(twin.path) for twin in twins],
        )

    def margin_report(self, job: Job) -> Report:
        """The report of a checkpoint or log with its margin alone, by what the options say."""
        diagnostics = [diagnostic for diagnostic in available() if diagnostic.over_seeds]
        return self.report(job, diagnostics, self.settings.thresholds, self.controls or None)

    @cached_property
    def twins(self) -> list[Job]:
        """The BP networks that others are compared with: those of --fa-bp, else those audited."""
        values = self.settings.texts.get("bp")
        twins = []
        if values is None:
            for job in self.plan.all_jobs:
                if job.method == "bp" and job.kind != "log" and not job.skip:
                    twins.append(job)
            return twins
        for value in values:
            for name in real_files(self.settings.path("bp", value), "checkpoint"):
                method, seed = identify(Path(name))
                kind: Kind = "checkpoint"
                if is_trace(Path(name)):
                    kind = "trace"
                twins.append(Job(name, name, kind, method, seed))
        if not twins:
            first = self.settings.path("bp", values[0])
            raise AuditError(f"--fa-bp: no such checkpoint\n  {first}")
        return twins

    def expected(self, job: Job, report: Report) -> Keys | None:
        """The keys that are expected to fire; ``None`` without a record."""
        if self.settings.update_expect:
            return report.fired
        if self.expectations is None:
            return None
        return self.expectations.expected_keys(job.id, report.method_name)


def _expectations(settings: Settings) -> Expectations | None:
    if settings.update_expect:
        check_update(settings.expect)
        return None
    return None if settings.expect is None else Expectations.read(settings.expect)


def _controls(settings: Settings) -> Controls:
    """The controls of --fa-frozen, with their globs expanded."""

    def files(value: str) -> list[Path]:
        path = settings.path("frozen", value)
        names = real_files(path, "checkpoint") or real_files(path, "log")
        if not names:
            raise AuditError(f"no such control\n  {path}")
        return [Path(name) for name in names]

    values = settings.texts.get("frozen", ())
    if not values:
        return Controls()
    try:
        return parse_controls(values, files)
    except AuditError as error:
        raise AuditError(f"--fa-frozen: {error}") from None
