"""What one process was asked to audit, resolved once.

And the report of any checkpoint or log of it.
"""

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
from ..judge.diagnostics import Diagnostic, select
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
from .plan import Job, Plan, make_plan, real_files
from .settings import Settings


class Run:
    """Settings, plan, controls, record and auditor of one process.

    Workers are sent the plan of their controller.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.worker: dict[str, Any] = getattr(config, "workerinput", {}).get("fadiag", {})
        load_packages(config.pluginmanager)
        self.registry = Registry(config.pluginmanager)
        config.add_cleanup(self.registry.close)
        self.settings = settings = Settings.read(config)
        self.controls = _controls(settings)
        self.record: Expectations | None = None
        """What is expected; nothing where what is found is recorded."""
        if settings.update_expect:
            check_update(settings.expect)
        elif settings.expect is not None:
            self.record = Expectations.read(settings.expect)
        if self.worker:
            self.plan = msgspec.convert(self.worker["plan"], Plan)
        else:
            typed = config.args if config.args_source is pytest.Config.ArgsSource.ARGS else ()
            self.plan = make_plan(
                settings, [str(word) for word in typed], {str(path) for path in self.controls.paths}
            )
            check_destinations(settings, self.plan, self.controls, self.registry.outputs())
        setup = settings.setup
        named = {**setup.factories, "data": setup.data}.items()
        factories = {f"--fa-{name}": str(spec) for name, spec in named if is_factory(str(spec))}
        if factories or setup.unsafe:  # package.module is the repo's own also from a sub-folder
            sys.path += [str(settings.root)] * (str(settings.root) not in sys.path)
        for option, spec in factories.items():
            if not spec.startswith("torchvision:"):
                check_factory(spec, option)
        _ = self.twins  # refused at the start where there are none
        self.auditor = Auditor(
            setup, cache=Cache(self._cache_folder(config)), registry=self.registry
        )
        self.reports: dict[object, Report] = {}
        """What was measured with the fixtures of a conftest, by test."""

    def _cache_folder(self, config: pytest.Config) -> Path | None:
        """In pytest's cache; where there is none, what workers share while a run lasts."""
        if not self.settings.no_cache and hasattr(config, "cache"):
            return config.cache.mkdir("fadiag") if config.cache else None
        return Path(self.worker["shared"]) if "shared" in self.worker else None

    def report(
        self,
        job: Job,
        diagnostics: Sequence[Diagnostic],
        thresholds: DiagnosticThresholds,
        control: Controls | Control | float | None,
        overrides: Overrides | None = None,
        *,
        literal: bool = True,
    ) -> Report:
        """The report of a checkpoint or log; ``literal`` where the diagnostics were listed."""
        twins = [(path, seed) for path, seed, kind in self.twins if kind == job.kind]
        same = [path for path, seed in twins if seed == job.seed]
        return self.auditor.report(
            Path(job.path),
            diagnostics=diagnostics,
            control=control,
            thresholds=thresholds,
            overrides=overrides,
            seed=job.seed,
            protocol=self.settings.protocol,
            literal=literal,
            log=job.kind == "log",
            twins=same or [path for path, _ in twins],
        )

    def margin(self, job: Job) -> Report:
        """The report of a checkpoint or log with (d) alone, by what the options say."""
        return self.report(job, select("d"), self.settings.thresholds, self.controls or None)

    @cached_property
    def twins(self) -> list[tuple[Path, int | None, str]]:
        """The BP networks that others are compared with, their seeds, and what they are."""
        if "bp" in self.settings.texts:
            paths = [self.settings.path("bp", value) for value in self.settings.texts["bp"]]
            files = [Path(file) for path in paths for file in real_files(path, "checkpoint")]
            if not files:
                raise AuditError(f"--fa-bp: no such checkpoint\n  {paths[0]}")
            return [
                (file, identify(file)[1], "trace" if is_trace(file) else "checkpoint")
                for file in files
            ]
        jobs = [one for one in self.plan.named if one.kind != "log" and not one.skip]
        return [(Path(one.path), one.seed, one.kind) for one in jobs if one.method == "bp"]

    def expected(self, job: Job, report: Report) -> Keys | None:
        """The keys that are expected to fire; ``None`` without a record."""
        if self.settings.update_expect:
            return report.fired
        return None if self.record is None else self.record.of(job.id, report.method_name)


def _controls(settings: Settings) -> Controls:
    """The controls of --fa-frozen, with their globs expanded."""

    def files(value: str) -> list[Path]:
        path = settings.path("frozen", value)
        found = real_files(path, "checkpoint") or real_files(path, "log")
        if not found:
            raise AuditError(f"no such control\n  {path}")
        return [Path(file) for file in found]

    try:
        given = settings.texts.get("frozen", ())
        return parse_controls(given, files) if given else Controls()
    except AuditError as error:
        raise AuditError(f"--fa-frozen: {error}") from None
