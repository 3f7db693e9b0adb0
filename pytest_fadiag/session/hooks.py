"""An audit as pytest sees it: it takes part in collection and reporting, and answers the fixtures."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any

import pytest

from ..judge.errors import AuditError
from ..judge.report import DiagnosticReport
from ..judge.thresholds import DiagnosticThresholds
from ..show.printable import printable
from . import checklist, dist, items, outcome, seeds, undertest
from .options import describe_others
from .run import NO_OVERRIDES
from .settings import MARKER, REGISTRY, marked
from .signals import Signals
from .start import for_worker, idle_run, make_run, registry_of
from .summary import Summary
from .targets import Kind

if TYPE_CHECKING:
    from torch import nn

    from ..judge.control import Control
    from ..judge.credit import CreditFunction
    from ..load.data import DataSet
    from ..measure.batches import Batch

INFORMATION = ("help", "version", "markers", "cacheshow", "showfixtures")
"""Options of pytest that print something and end: they work whatever the ini file says of checkpoints."""


class AuditHooks:
    """The audit of one process; the controller's, or the only one, also keeps the summary."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.informs = any(config.getoption(name, None) for name in INFORMATION)
        try:
            config.stash[REGISTRY] = registry = registry_of(config)
            self.run = idle_run(config, registry) if self.informs else make_run(config, registry)
            if self.informs:
                describe_others(config, registry)
        except AuditError as error:
            raise pytest.UsageError(printable(str(error))) from None

    def begin(self) -> None:
        """Keep the summary, unless a controller does."""
        if not self.informs and not hasattr(self.config, "workerinput"):
            self.config.pluginmanager.register(Summary(self.config, self.run), "fadiag-summary")
            if self.run.in_play:
                self.config.pluginmanager.register(Signals(self.config), "fadiag-signals")

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Add the generated tests to what the session collects."""
        report = yield
        if isinstance(collector, pytest.Session) and report.passed and self.run.in_play:
            others = () if self.run.settings.only else report.result or ()
            report.result = [*others, *items.everything(collector, self.run)]
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Check the markers before anything runs."""
        self.check_tests(items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Fail a test whose marker is wrong, whatever else it would do."""
        items.refuse_broken(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Give the report of an audit's test its text and its row."""
        report = yield
        if isinstance(item, seeds.SeedItem):
            seeds.annotate(item, call, report)
        elif isinstance(item, checklist.PitfallItem):
            checklist.annotate(report)
        elif "fa_checkpoint" in getattr(item, "fixturenames", ()):
            outcome.annotate(item, call, report)
        elif report.failed and item.get_closest_marker(MARKER):
            outcome.annotate_error(item, call, report)
        return report

    def check_tests(self, collected: list[pytest.Item]) -> None:
        """Look for what is wrong with markers."""
        items.check_tests(self.config, collected, self.run)

    def parametrize(self, metafunc: pytest.Metafunc) -> None:
        """Run a written test over its checkpoints and diagnostics."""
        items.prepare(metafunc, self.run)

    def prepare_workers(self, specs: list[Any]) -> None:
        """One GPU and a share of the cores for each worker of an audit."""
        if self.run.in_play:
            dist.prepare_workers(specs)
            dist.start_again(self.config)

    def make_scheduler(self, log: Any) -> Any:
        """The scheduler of an audit; other runs keep xdist's."""
        return dist.make_scheduler(self.config, log, self.run.settings.available) if self.run.in_play else None

    def for_worker(self) -> dict[str, Any]:
        """What a worker of xdist is told."""
        return for_worker(self.config, self.run)

    def checkpoint(self, request: pytest.FixtureRequest) -> undertest.CheckpointUnderTest:
        """The checkpoint that a test was parametrised with or generated for."""
        return undertest.checkpoint_for(self.run, request)

    def device(self, request: pytest.FixtureRequest) -> str:
        """Where the network of a test is measured."""
        return self.run.bench.workshop.device(undertest.given_by(request).without("device"))

    def network(self, request: pytest.FixtureRequest, checkpoint: object) -> nn.Module:
        """The network of a test's checkpoint."""
        target = undertest.as_checkpoint(self.run, checkpoint)
        return self.run.bench.workshop.network(target.contents, undertest.given_by(request).without("network"))

    def credit(self) -> CreditFunction | None:
        """The credit function of --fa-credit."""
        return self.run.bench.workshop.credit_function

    def batches(self, request: pytest.FixtureRequest, checkpoint: object, network: nn.Module) -> Iterable[Batch]:
        """The batches that the network of a test is measured on."""
        target = undertest.as_checkpoint(self.run, checkpoint)
        return self.run.bench.workshop.batches(target.contents, network, undertest.given_by(request).without("batches"))

    def data(self) -> DataSet:
        """The test split of --fa-data."""
        return self.run.bench.workshop.data

    def control(self, request: pytest.FixtureRequest, checkpoint: object) -> Control | None:
        """The control of --fa-frozen that belongs to a test's checkpoint."""
        known = undertest.as_checkpoint(self.run, checkpoint)
        if known.target.kind is Kind.CHECKPOINT:
            return self.run.control_for(known.method, known.seed, undertest.given_by(request))
        evidence = self.run.evidence(known.target, (), NO_OVERRIDES)
        return self.run.control_for(evidence.method, evidence.seed, undertest.given_by(request))

    def thresholds(self, request: pytest.FixtureRequest) -> DiagnosticThresholds:
        """The thresholds of a test."""
        return self.run.settings.thresholds(marked(request.node))

    def report(self, request: pytest.FixtureRequest, checkpoint: object, thresholds: DiagnosticThresholds) -> DiagnosticReport:
        """The report of a test's checkpoint."""
        return undertest.report_for(self.run, request, undertest.as_checkpoint(self.run, checkpoint), thresholds)

    def diagnostic(self, request: pytest.FixtureRequest, report: DiagnosticReport) -> undertest.DiagnosticUnderTest:
        """The diagnostic of a test."""
        return undertest.diagnostic_for(request, report)
